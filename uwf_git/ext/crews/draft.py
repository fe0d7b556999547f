"""Parsed packages of both forms, before compilation, with positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from uwf_git.ext.crews.crew_node import Member
from uwf_git.plugin import Invalid, one_line


class PackageFinding(NamedTuple):
    """A problem in a package, sorted for display: `path` is "" for the package itself; `line` and `column`
    count from 1, 0 if none. `severity` is error or warning."""

    path: str
    line: int
    column: int
    code: str
    message: str
    hint: str = ""
    severity: str = "error"


class InvalidPackage(Invalid):
    """A package has errors; `findings` include warnings."""

    def __init__(self, package: str, findings: Sequence[PackageFinding]) -> None:
        errors = [finding for finding in findings if finding.severity == "error"]
        first = errors[0]
        place = first.path + (f":{first.line}" if first.line else "")
        where = f"{one_line(package)}: {one_line(place)}" if place else one_line(package)
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        super().__init__(f"{where}: {first.message}{more}", first.hint)
        self.findings = tuple(findings)


class NodeDraft(NamedTuple):
    """A graph's node: `type` is step, decision, merge or end; `agent` a persona's id or ""; `text` its file's
    body; `sets` the variables its answer may set."""

    id: str
    type: str
    file: str
    text: str
    title: str = ""
    description: str = ""
    agent: str = ""
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    sets: tuple[str, ...] = ()


class EdgeDraft(NamedTuple):
    """A graph's edge. `expression` is JSONLogic or None, and decides alone; a default has none. `text` is for
    the decider."""

    source: str
    target: str
    label: str
    is_default: bool = False
    text: str = ""
    expression: Any = None


def named_edge(source: str, target: str, label: str) -> str:
    return f'edge {source} → {target} ("{one_line(label, 40)}")'


class GraphDraft(NamedTuple):
    """A third-party workflow. `entry` and `graph` are paths; `variables` the initial ones."""

    id: str
    title: str
    description: str
    tags: tuple[str, ...]
    entry: str
    graph: str
    first: str
    nodes: Mapping[str, NodeDraft]
    edges: tuple[EdgeDraft, ...]
    variables: Mapping[str, Any] = {}


class YamlDraft(NamedTuple):
    """Your own crew's workflow: its YAML's path, and personas by role."""

    id: str
    title: str
    description: str
    tags: tuple[str, ...]
    entry: str
    personas: Mapping[str, str]


class CrewDraft(NamedTuple):
    """A crew. The main workflow and the default persona come first."""

    name: str
    version: str
    description: str
    format: str
    members: tuple[Member, ...]
    workflows: tuple[GraphDraft | YamlDraft, ...]
    warnings: tuple[PackageFinding, ...] = ()
