"""What a set-up does, in plain words, and its texts as a person can read them whole."""

from __future__ import annotations

import difflib
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.plugin import UwfError, config_section, counted, parse_command, written_out

if TYPE_CHECKING:
    from uwf_git.plugin import Config, ProjectSettings, Setup

EXEC, SUBWORKFLOW = "uwf-exec", "uwf-workflow"
_BLANKS = 24  # characters in a row, and empty lines, beyond which a text could move something out of sight
_EMPTY_LINES = 4
_RUNS = "runs"


class Effect(NamedTuple):
    """What a set-up does: a `kind` in a word, `what` it is about, and `where` or how."""

    kind: str
    what: str
    where: str


def effects(settings: ProjectSettings) -> Iterator[Effect]:
    """Yield what settings do, commands first."""
    data = settings.data
    agents = {name: _line(entry) for name, entry in _of(data, "agents").items()}
    players: dict[str, list[str]] = {}
    for workflow, roles in _of(data, "agentOverrides").items():
        named: dict[str, list[str]] = {}
        for role, name in _of(roles).items():
            named.setdefault(str(name), []).append(str(role))
        for name, of_roles in named.items():
            players.setdefault(name, []).append(f"{', '.join(of_roles)} of {workflow}")
    commands = agents | {name: _line({"command": name}) for name in players if any(map(str.isspace, name))}
    for name, line in commands.items():
        where = "; ".join(players.get(name, [])) or f"where {name} is named as an agent"
        yield Effect(_RUNS, line, f"as {where}" if name in players else where)
    workspace = _of(data, "workspace")
    if setup := workspace.get("setup"):
        yield Effect(_RUNS, _text(setup), "in each new worktree")
    for section in data:
        row = config_section(section)
        for field, value in _of(data, section).items() if row is not None else ():
            kind, _, where = (
                row.project.get(field, field).partition(": ") if row is not None else ("", "", "")
            )
            for what in value if isinstance(value, list) else [value]:
                yield Effect(kind, str(what), where)
    if copied := workspace.get("copy"):
        yield Effect("copies", _text(copied), "from your checkout into each new worktree")
    for field in ("kind", "timeout", "keepIgnored"):
        if field in workspace:
            yield Effect("sets", f"workspace.{field}", _text(workspace[field]))
    for name, of in players.items():
        if name not in commands:
            yield Effect("agent", name, f"plays {'; '.join(of)}")
    if default := data.get("defaultAgent"):
        yield Effect("agent", str(default), "plays all other roles, unless you have a default agent")
    for name, limits in settings.layer.budgets.items():
        text = ", ".join(f"{key} {value:g}" for key, value in limits.items())
        yield Effect("limits", text, f"for each thread of {name}" if name else "for each thread")
    for key, value in _of(data, "tools").items():
        yield Effect("limits", f"tools.{key}", _text(value))
    if settings.stops_unpriced:
        yield Effect("limits", "budget.unpriced", "stop")


def missing(settings: ProjectSettings, config: Config, environ: Mapping[str, str]) -> list[str]:
    """Return what of the agents that settings name is not on this machine, a line each."""
    from uwf_git.plugin import embedded_agent, named_agent

    names = {
        str(name): None
        for roles in _of(settings.data, "agentOverrides").values()
        for name in _of(roles).values()
    }
    names |= {str(name): None for name in filter(None, [settings.data.get("defaultAgent")])}
    names |= dict.fromkeys(_of(settings.data, "agents"))
    problems: dict[str, None] = {}
    for name in names:
        try:
            agent = named_agent(config, name)
            if (playing := embedded_agent(agent.command)) is not None:
                playing.ready(config, agent.args, environ)
        except UwfError as error:
            problems[f"{name}: {error.message}"] = None
    return list(problems)


def overridden(settings: ProjectSettings, config: Config) -> list[str]:
    """Return the settings, as dotted keys, that the user's own replace."""
    keys = config.layer.keys if config.layer is not None else ()
    leaves = [path for path in settings.document.scalars if all(isinstance(part, str) for part in path)]
    return [
        ".".join(map(str, path))
        for path in leaves
        if path[0] not in ("budgets", "tools") and path not in keys
    ]


def readable(text: str) -> str:
    """Return a text with all that a terminal or an editor would not show written out, and nothing out of sight."""
    shown = re.sub(
        rf" {{{_BLANKS},}}", lambda match: f" ⟨{counted(len(match[0]), 'blank')}⟩ ", written_out(text)
    )
    return re.sub(
        rf"\n{{{_EMPTY_LINES + 2},}}",
        lambda match: f"\n⟨{counted(len(match[0]) - 1, 'empty line')}⟩\n",
        shown,
    )


def difference(old: Setup, new: Setup) -> str:
    """Return a diff of two set-ups, readable."""
    parts: list[str] = []
    for path in sorted({*old.files, *new.files}):
        before, after = (readable(setup.files.get(path, "")).split("\n") for setup in (old, new))
        parts += difflib.unified_diff(before, after, f"{path} (allowed)", f"{path} (here)", lineterm="")
    return "\n".join(parts)


def _line(entry: Any) -> str:
    """Return the command line of an agent's entry, without the program that runs it."""
    entry = _of(entry)
    program, words = parse_command(str(entry.get("command") or EXEC))
    line = shlex.join([*words, *map(str, entry.get("args") or ())])
    return f"workflow {line}" if program.removeprefix("uwf-") == SUBWORKFLOW.removeprefix("uwf-") else line


def _text(value: Any) -> str:
    if isinstance(value, list):
        return shlex.join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _of(data: Any, key: str | None = None) -> Mapping[str, Any]:
    value = data if key is None else data.get(key)
    return value if isinstance(value, Mapping) else {}


def review(setup: Setup, old: Setup | None, config: Config, top: Path) -> dict[str, Any]:
    """Return all that a person has to see of a set-up, as JSON. Raises Invalid."""
    settings = setup.settings()
    return {
        "project": str(top),
        "digest": setup.digest,
        "effects": [
            effect._asdict() for effect in sorted(effects(settings), key=lambda effect: effect.kind != _RUNS)
        ],
        "missing": missing(settings, config, os.environ),
        "overridden": overridden(settings, config),
        "files": dict(setup.files),
        "diff": difference(old, setup) if old is not None else None,
    }
