"""Arguments and options that several commands have, with the values that they stand for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial, update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from uwf_cli.completers import (
    complete_agent,
    complete_path,
    complete_remote,
    complete_speaker,
    complete_thread,
)
from uwf_git.base.errors import Invalid, NotFound
from uwf_git.format.types import MOST_ROUNDS

if TYPE_CHECKING:
    from uwf_git.config.resolve import AgentOptions
    from uwf_git.workspaces.options import WorkspaceOption

_F = TypeVar("_F", bound=Callable[..., Any])

THREAD = click.argument("thread", metavar="ID", shell_complete=complete_thread)
AT_ONCE = click.IntRange(1, 1000)
"""How many steps may be made at once: each is a process."""


def _agents(
    _context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]
) -> AgentOptions | None:
    if not values:
        return None
    from uwf_git.config.resolve import agent_options

    return agent_options(values)


AGENT = click.option(
    "--agent",
    metavar="CMD",
    multiple=True,
    callback=_agents,
    help="Agent of config.yaml, or a command line, for all roles that a model plays; ROLE=CMD for one role. Repeatable."
    " Default: as configured.",
    shell_complete=complete_agent,
)
STEP_AGENT = click.option(
    "--agent",
    metavar="CMD",
    help="Agent of config.yaml, or a command line, for this step. Default: as configured.",
    shell_complete=complete_agent,
)
CWD = click.option(
    "--cwd",
    type=Path,  # click.Path looks for a translation of its name, which loads `locale`
    shell_complete=complete_path,
    metavar="DIR",
    help="Folder that agents work in; remembered on this machine.",
)


remote = partial(click.option, "--remote", metavar="NAME", shell_complete=complete_remote)
REMOTE = remote(help="Pull the thread before each step and push it afterwards.", metavar="R")
WORKSPACE = click.option(
    "--workspace",
    metavar="W",
    help="Where agents work: worktree, folder or shared. Default: a git worktree if one may change files.",
)
WAIT = click.option(
    "--wait",
    is_flag=True,
    help="If a provider is throttled or its quota is used up, wait until it answers again.",
)
FILES = click.option(
    "--files",
    type=click.Choice(("attempt", "step")),
    help="After a failed attempt, begin with the files that it left, or with those of the last step."
    " Default: those of the attempt if its session is resumed.",
)
INCLUDE_CHANGES = click.option(
    "--include-changes", is_flag=True, help="Begin a worktree with the uncommitted changes here."
)


MAX_STEPS = click.option(
    "--max-steps",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    metavar="N",
    help="Stop after N steps of the thread itself, of which a script or a sub-workflow is one; each branch may make as"
    " many.",
)
QUIET = click.option("-q", "--quiet", is_flag=True, help="Don't show the live line while an agent runs.")
PROMPT = click.option("-p", "--prompt", metavar="TEXT", help="The prompt. - reads standard input.")
PROMPT_FILE = click.option(
    "--prompt-file", metavar="FILE", help="Read the prompt from this file. - reads standard input."
)


def budget(
    helps: Mapping[str, str], begin: str = "--max-", parameter: str = "budget", may_add: bool = False
) -> Callable[[_F], _F]:
    """Add options for limits with these helps, by the last word of their names, as one parameter: the amounts that were
    given, by the names of `format.amounts`; if they `may_add` to limits, as texts. Calls raise Usage."""

    def decorate(function: _F) -> _F:
        def packed(*args: Any, **given: Any) -> Any:
            texts = {word: given.pop(f"{parameter}_{word}") for word in helps}
            typed = {f"--max-{word}": text for word, text in texts.items() if text is not None}
            return function(*args, **{parameter: _amounts(typed, may_add) if typed else {}}, **given)

        wrapped: Any = update_wrapper(packed, function)
        for word, text in reversed(list(helps.items())):
            unit = _UNITS[word]
            metavar = f"{unit}|+{unit}" if may_add else unit
            wrapped = click.option(f"{begin}{word}", f"{parameter}_{word}", metavar=metavar, help=text)(
                wrapped
            )
        return wrapped  # type: ignore[no-any-return]

    return decorate


def _amounts(texts: Mapping[str, str], may_add: bool) -> dict[str, Any]:
    from uwf_git.engine.budget import OPTIONS, parse_option

    amounts = {key: texts[option] for key, option in OPTIONS.items() if option in texts}
    return dict(amounts) if may_add else {key: parse_option(key, text) for key, text in amounts.items()}


_UNITS = {"steps": "N", "tokens": "N", "cost": "USD", "time": "TIME"}
PAUSES = {
    "tokens": "Pause for approval after N tokens.",
    "cost": "Pause for approval after spending USD.",
    "time": "Pause for approval after this working time: 90s, 30m, 2h.",
}
"""The helps of limits of tokens, cost and time."""

MAX_ROUNDS = click.option(
    "--max-rounds",
    type=click.IntRange(1, MOST_ROUNDS),
    metavar="N",
    help="Code workflows only: stop after N steps.",
)


AS = click.option(
    "--as",
    "persona",
    metavar="PERSONA",
    help="Crew workflows: the default persona.",
    shell_complete=complete_speaker,
)


def packed(parameter: str, kind: Any, *given: Callable[[_F], _F]) -> Callable[[_F], _F]:
    """Return a decorator that adds options, whose values a function gets as one named tuple of a kind."""

    def decorate(function: _F) -> _F:
        def call(*args: Any, **values: Any) -> Any:
            own = {name: values.pop(name) for name in kind._fields if name in values}
            return function(*args, **{parameter: kind(**own)}, **values)

        wrapped: Any = update_wrapper(call, function)  # with declarations of other decorators
        for option in reversed(given):
            wrapped = option(wrapped)
        return wrapped  # type: ignore[no-any-return]

    return decorate


def patience(wait: bool) -> float:
    """Return how long a step waits between two tries, in seconds."""
    from uwf_git.api.run import FOREVER, PATIENCE

    return FOREVER if wait else PATIENCE


def workspace_option(workspace: str | None, changes: bool) -> WorkspaceOption | None:
    """Parse --workspace and --include-changes. Raises Usage."""
    from uwf_git.workspaces.options import WORKTREE, parse_option

    if workspace is None and not changes:
        return None
    return parse_option(workspace or WORKTREE, changes=changes)


def folder(cwd: Path | None) -> Path | None:
    if cwd is None:
        return None
    from uwf_git.sandbox.programs import avoid

    path = cwd.expanduser()
    if not path.is_dir():
        if path.exists():
            raise Invalid(f"--cwd {cwd} is not a folder")
        raise NotFound(f"no folder {cwd}", "create it first")
    avoid(path)
    return path.absolute()
