"""What a project's `.uwf/config.yaml` may say, and how the user's own settings are laid over it.

    agents: {<name>: {command: uwf-exec, args, timeout, silence, limits}}   also uwf-workflow; no other program
    agentOverrides: {<workflow>: {<role>: <agent, or uwf-exec COMMAND>}}    defaultAgent: <agent>
    workspace: {kind: worktree | folder, copy, setup, timeout, keepIgnored}
    budgets: {default: {…}, workflows: {<workflow>: {…}}}                   budget: {unpriced: stop}
    tools: {allow, deny, runCommand: false, network: false, …}
    land: {onto, branch, commits, checks, timeout}                          and what other extensions offer to projects

A setting that `config.yaml` has, too, is the user's. Of budgets the tightest applies, and `tools` can only narrow. All
else, such as providers, hooks and variables, is the user's alone: it is refused here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from uwf_git.base.extensions import config_section
from uwf_git.base.text import one_line
from uwf_git.config.policy import PROJECT, parse_policy
from uwf_git.config.read import SettingsReader, read_document, refuse_problems
from uwf_git.config.resolve import full_name, is_command, known_agent, shipped
from uwf_git.config.settings import FILE, UNPRICED, Config, Layer
from uwf_git.format import yaml12
from uwf_git.format.document import Document
from uwf_git.format.kinds import EXEC, SUBWORKFLOW
from uwf_git.format.schema import ValuePath

FOLDER = ".uwf"
"""A project's folder with its set-up, at the top of its checkout."""
SETTINGS = f"{FOLDER}/{FILE}"

_KEYS = ("agents", "agentOverrides", "defaultAgent", "workspace", "budgets", "budget", "tools")
_AGENT = ("command", "args", "timeout", "silence", "limits")
_WORKSPACE = ("kind", "copy", "setup", "timeout", "keepIgnored")
_PLAYERS = (EXEC, SUBWORKFLOW)
_OWN_FILE = re.compile(r"(?<![\w.-])\.uwf(?![\w-])")
"""What in a command leads to the set-up's own files, which an agent or a pull may have changed in the worktree."""
_YOURS = "a project can't set it; it belongs into your own config.yaml"


class ProjectSettings(NamedTuple):
    """The settings of a project: their document, their `data`, and what they add to those that they are merged into.
    Without a file all are empty."""

    document: Document
    data: Mapping[str, Any]
    layer: Layer
    stops_unpriced: bool = False


def parse_settings(text: bytes) -> ProjectSettings:
    """Parse `.uwf/config.yaml`. Raises Invalid with the place of the first problem."""
    document = yaml12.load(text, SETTINGS)
    reader = _ProjectReader(document)
    data = reader.settings()
    refuse_problems(Path(SETTINGS), reader.problems)
    config = _read(document, {key: value for key, value in data.items() if key != "tools"}, Path(SETTINGS))
    tools, _ = parse_policy(data.get("tools"), PROJECT)
    layer = Layer(SETTINGS, config.budgets, tools, frozenset(document.keys))
    return ProjectSettings(document, data, layer, config.stops_unpriced)


class _ProjectReader(SettingsReader):
    """Refuses what only a user may say. What remains is read as the user's own is."""

    def settings(self) -> Mapping[str, Any]:
        data = self.mapping((), self.document.data, "the set-up of a project")
        for key, value in data.items():
            row = None if key in _KEYS else config_section(str(key))
            if key not in _KEYS and (row is None or not row.project):
                self._not_yours((key,))
            elif key == "workspace":
                self._only((key,), value, _WORKSPACE)
            elif row is not None:
                self._only((key,), value, row.project)
        for name, entry in self.mapping(("agents",), data.get("agents"), "agents").items():
            self._command_only(name, entry)
        overrides = self.mapping(("agentOverrides",), data.get("agentOverrides"), "agentOverrides")
        for workflow, roles in overrides.items():
            path: ValuePath = ("agentOverrides", workflow)
            for role, name in self.mapping(path, roles, "agentOverrides").items():
                self._name_only((*path, role), name)
        self._name_only(("defaultAgent",), data.get("defaultAgent"))
        workspace = data.get("workspace")
        if isinstance(workspace, dict) and workspace.get("kind") == "shared":
            self.refuse(("workspace", "kind"), f"kind: shared lets agents work in your own folder: {_YOURS}")
        budget = self.mapping(("budget",), data.get("budget"), "budget")
        if budget.get("unpriced", UNPRICED[1]) != UNPRICED[1]:
            self.refuse(("budget", "unpriced"), f"unpriced can only be {UNPRICED[1]} here")
        for problem in parse_policy(data.get("tools"), PROJECT)[1]:
            self.refuse(("tools",), problem)
        for path, text in _texts((), data):
            if _OWN_FILE.search(text):
                self.refuse(
                    path,
                    f"a command reads {FOLDER} as the worktree has it, not as it was allowed: {one_line(text, 60)}",
                    "keep scripts in another folder",
                )
        return data

    def _not_yours(self, path: ValuePath) -> None:
        mark = self.document.key_mark(path)
        shown = ".".join(one_line(str(part), 60) for part in path)
        self.problems.append(
            self.problem(path, f"{shown}: {_YOURS}")._replace(line=mark.line, column=mark.column)
        )

    def _only(self, path: ValuePath, value: Any, known: Iterable[str]) -> None:
        for key in self.mapping(path, value, str(path[-1])):
            if key not in known:
                self._not_yours((*path, key))

    def _command_only(self, name: str, entry: Any) -> None:
        path: ValuePath = ("agents", name)
        self._only(path, entry, _AGENT)
        if shipped(full_name(name)) is not None or is_command(name):
            self.refuse(path, f'"{one_line(name, 60)}" cannot be the name of a command', "take another one")
        if isinstance(entry, dict):
            self._plays((*path, "command"), self.text(path, entry, "command"))

    def _name_only(self, path: ValuePath, value: Any) -> None:
        if isinstance(value, str) and is_command(value):
            self._plays(path, value)

    def _plays(self, path: ValuePath, line: str) -> None:
        words = self.command(path[:-1], line, str(path[-1])) if line else ()
        if not words or full_name(words[0]) not in _PLAYERS:
            shown = one_line(line, 60)
            self.refuse(
                path,
                f"a project names agents, and cannot say how they are called: {shown}"
                if shown
                else f"{'.'.join(map(str, path))} is not a command",
                f"give the name alone, or a command: {EXEC} make test",
            )


def _texts(path: ValuePath, value: Any) -> Iterator[tuple[ValuePath, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _texts((*path, key), item)


def _read(document: Document, data: Mapping[str, Any], path: Path) -> Config:
    reader = SettingsReader(document._replace(data=dict(data)))
    config = reader.config(path)
    refuse_problems(path, reader.problems)
    return config


def layered(root: Path, own: Config, project: ProjectSettings) -> Config:
    """Return the configuration of a storage root, `own`, with the settings of a project under it."""
    document, theirs = read_document(root), project.data
    user = {key: value for key, value in (document.data or {}).items() if value is not None}
    data = dict(user)
    agents = {name: entry for name, entry in _of(theirs, "agents").items() if known_agent(own, name) is None}
    data["agents"] = {**agents, **_of(user, "agents")}
    roles = _of(theirs, "agentOverrides"), _of(user, "agentOverrides")
    data["agentOverrides"] = {
        name: {**_of(roles[0], name), **_of(roles[1], name)} for name in dict.fromkeys((*roles[0], *roles[1]))
    }
    if default := theirs.get("defaultAgent"):
        data.setdefault("defaultAgent", default)
    for key in theirs:
        if key not in _KEYS or key == "workspace":
            yours = _of(user, key)
            if not _runs(key) & yours.keys():  # secrets that were meant for a command of the user's
                yours = {name: value for name, value in yours.items() if name != "env"}
            data[key] = {**_of(theirs, key), **yours}
    keys = frozenset(project.layer.keys) - document.keys.keys()
    return _read(document, data, own.path)._replace(
        tools=own.tools,
        stops_unpriced=own.stops_unpriced or project.stops_unpriced,
        layer=project.layer._replace(keys=keys),
    )


def _runs(section: str) -> set[str]:
    """Return the fields of a section that have commands."""
    row = config_section(section)
    words = row.project if row is not None else {"setup": "runs"}
    return {field for field, word in words.items() if word.startswith("runs")}


def _of(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the entries of a section that say something."""
    return {name: value for name, value in (data.get(key) or {}).items() if value is not None}
