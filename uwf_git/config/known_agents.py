"""Known agents: shipped ones and those of installed packages, by entry points `uwf.agents` (name: the
agent's; value: an `Agent` or a function that returns one) or by their extensions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.base import extensions
from uwf_git.format.kinds import SUBWORKFLOW
from uwf_git.format.types import UWF

if TYPE_CHECKING:
    from uwf_git.config.settings import Config

GROUP = "uwf.agents"
PLUGIN = "plugin:"
"""Before the name of a package's agent, where a command stands: a program may have the same name."""

_KINDS = ("rehearsal", "human", "command", "model", "workflow", "protocol", "cli")
"""The kinds of agents, in the order in which their names count."""
_FIXED = frozenset(("human", "command", "workflow"))
_MODELLESS = _FIXED | {"rehearsal"}


class Plugin(NamedTuple):
    """A package's agent. `load()` returns an `Agent`, or a function that returns one."""

    name: str
    package: str
    version: str
    load: Callable[[], Any]


def shipped(name: str) -> extensions.AgentProgram | None:
    return next((each for each in extensions.agent_programs() if each.name == name), None)


@cache
def shipped_names() -> tuple[str, ...]:
    """Return the shipped agents' names in order of precedence."""
    return tuple(
        each.name for each in sorted(extensions.agent_programs(), key=lambda each: _KINDS.index(each.kind))
    )


def is_delegate(agent: str) -> bool:
    """Return whether an agent does no work of its own, but has others work for it."""
    return agent == SUBWORKFLOW or agent in extensions.runner_names()


def asks_no_model(agent: str) -> bool:
    """Return whether an agent calls no model itself, so that it reports no tokens."""
    name = agent.partition("/")[0]
    program = shipped(name)
    return name == UWF or is_delegate(name) or (program is not None and program.kind in _MODELLESS)


def asks_model(command: str) -> bool:
    """Return whether a model plays the roles of this command's agent, which is then replaced by an agent that is named
    for a whole run. It doesn't for uwf-exec and other commands, people, and workflows; `uwf-rehearse` stands in for
    one."""
    if command.startswith(PLUGIN):
        name = command.removeprefix(PLUGIN)
        kinds = [each.kind for one in extensions.others() for each in one.agents if each.name == name]
        return kinds[0] not in _FIXED if kinds else True
    program = shipped(command)
    return program is not None and program.kind not in _FIXED


@cache
def plugins() -> Mapping[str, Plugin]:
    """Return installed packages' agents by name, except names of shipped ones. Cached."""
    from importlib.metadata import entry_points

    found = [
        Plugin(program.name, extension.name, "", program.load)
        for extension in extensions.others()
        for program in extension.agents
    ]
    for each in entry_points(group=GROUP):
        dist = each.dist
        found.append(Plugin(each.name, dist.name if dist else "", dist.version if dist else "", each.load))
    return {each.name: each for each in found if shipped(each.name) is None}


def plugin_names() -> list[str]:
    return sorted(plugins())


def full_name(command: str) -> str:
    """Return `uwf-codex` for `codex` and other shipped agents, `uwf-claude-code` for `claude`; other commands
    unchanged."""
    names = (command, f"uwf-{command}")
    return next(
        (each.name for each in extensions.agent_programs() if each.name in names or each.alias == command),
        command,
    )


def known_names(config: Config) -> list[str]:
    """Return all usable names in order of precedence."""
    names = shipped_names()
    short = [name.removeprefix("uwf-") for name in names]
    return list(dict.fromkeys([*config.agents, *config.named_agents, *names, *short, *plugin_names()]))
