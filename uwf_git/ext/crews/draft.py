"""What the files of a package say, of either form, before it is made into nodes: parsed and checked, with where each
thing stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from uwf_git.base.errors import Invalid
from uwf_git.base.text import one_line
from uwf_git.format.personas import Member


class PackageFinding(NamedTuple):
    """Something wrong in a package, in the order to show it: `path` is the file's in the package, "" for the package
    itself; `line` and `column` count from 1, 0 where there is no such place. `code` is stable; `severity` is error or
    warning."""

    path: str
    line: int
    column: int
    code: str
    message: str
    hint: str = ""
    severity: str = "error"


class InvalidPackage(Invalid):
    """A package has errors. `findings` holds all of them, and the warnings."""

    def __init__(self, package: str, findings: Sequence[PackageFinding]) -> None:
        errors = [each for each in findings if each.severity == "error"]
        first = errors[0]
        place = first.path + (f":{first.line}" if first.line else "")
        where = f"{one_line(package)}: {one_line(place)}" if place else one_line(package)
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        super().__init__(f"{where}: {first.message}{more}", first.hint)
        self.findings = tuple(findings)


class NodeDraft(NamedTuple):
    """A node of a graph: `type` is step, decision, merge or end; `agent` the id of a persona, "" for none; `text` the
    body of its file, without its frontmatter; `sets` the variables that its answer is asked for, none where it doesn't
    say."""

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
    """An edge of a graph. `expression` is JSONLogic, None where there is none, and decides alone; a default has none.
    `text` is told to whoever decides. `line` is where it stands in the graph's file."""

    source: str
    target: str
    label: str
    is_default: bool = False
    text: str = ""
    expression: Any = None
    line: int = 0


def named_edge(source: str, target: str, label: str) -> str:
    """An edge as findings call it."""
    return f'edge {source} → {target} ("{one_line(label, 40)}")'


class GraphDraft(NamedTuple):
    """A workflow of a package made elsewhere. `entry` and `graph` are the paths of its document and its graph;
    `variables` those that a run begins with."""

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
    """A workflow of a crew of one's own: the path of its YAML, and who speaks for its roles, by their names."""

    id: str
    title: str
    description: str
    tags: tuple[str, ...]
    entry: str
    personas: Mapping[str, str]


class CrewDraft(NamedTuple):
    """A crew as its package says it. The main workflow comes first; so does who speaks where nobody is named."""

    name: str
    version: str
    description: str
    format: str
    members: tuple[Member, ...]
    workflows: tuple[GraphDraft | YamlDraft, ...]
    warnings: tuple[PackageFinding, ...] = ()
