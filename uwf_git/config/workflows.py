"""Workflows, roles, crews and personas named in `config.yaml`, and unknown ones. A name may precede its
registration, so unknown names are warnings. Callers provide the known roles of the newest version and those
in use."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from uwf_git.base.text import nearest, one_line
from uwf_git.config.read import load_config, read_document
from uwf_git.config.settings import Config, ConfigProblem
from uwf_git.format.schema import ValuePath

RUNS_A_WORKFLOW = "uwf-workflow"

Known = Mapping[str, Collection[str]]
"""The roles of each workflow that is known, also the personas of a crew's; and of each crew its personas."""


def together(*parts: Known) -> dict[str, set[str]]:
    known: dict[str, set[str]] = {}
    for part in parts:
        for workflow, roles in part.items():
            known.setdefault(workflow, set()).update(roles)
    return known


class Reference(NamedTuple):
    """A workflow named at `path`, and `roles` in keys below it."""

    path: ValuePath
    workflow: str
    roles: tuple[str, ...] = ()


def references(config: Config) -> Iterator[Reference]:
    """Yield the workflows named in a configuration, in order."""
    for alias, agent in config.agents.items():
        if agent.command == RUNS_A_WORKFLOW and agent.args:
            yield Reference(("agents", alias), agent.args[-1])
    for workflow, roles in config.agent_overrides.items():
        yield Reference(("agentOverrides", workflow), workflow, tuple(roles))
    for workflow in config.budgets:
        if workflow:
            yield Reference(("budgets", "workflows", workflow), workflow)


class UnknownName(NamedTuple):
    """An unknown name at `path`."""

    path: ValuePath
    message: str
    hint: str


def strangers(config: Config, known: Known) -> Iterator[UnknownName]:
    """Yield unknown workflows and roles; not the roles of an unknown workflow."""
    for path, workflow, roles in references(config):
        shown = one_line(workflow, 60)
        if workflow not in known:
            where = "runs" if path[0] == "agents" else "is about"
            hint = (
                nearest(workflow, known) or "register it: uwf workflow put FILE, or uwf crew import PACKAGE"
            )
            key = f"{path[0]}.{one_line(str(path[-1]), 60)}"
            yield UnknownName(path, f'{key} {where} workflow "{shown}", which is not known here', hint)
            continue
        for role in roles:
            if role not in known[workflow]:
                is_crew = any(name.startswith(f"{workflow}/") for name in known)
                what = f'crew "{shown}" has no persona' if is_crew else f'workflow "{shown}" has no role'
                message = f'{what} "{one_line(role, 60)}"'
                yield UnknownName((*path, role), message, nearest(role, known[workflow]))


def check_names(root: Path, known: Known, changed: ValuePath = ()) -> list[ConfigProblem]:
    """Return the unknown names in the file with lines, or those of one changed setting. Raises Invalid."""
    document = read_document(root)
    problems = []
    for path, message, hint in strangers(load_config(root), known):
        length = min(len(path), len(changed))
        if path[:length] == changed[:length]:
            mark = document.key_mark(path)
            problems.append(ConfigProblem(mark.line, mark.column, message, hint))
    return sorted(problems)
