"""A workflow as Mermaid, Graphviz and a Markdown page.

Names and texts are untrusted, so each is escaped for its language. Stored mappings have sorted keys, so roles
are ordered by the graph, and a stored node gives the same page as its file. A fan-out's edges lead to the first roles
of its branches, or to a node for their workflow; from their ends arrows lead to a node for the join.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from uwf_git.base.markdown import code, inline, paragraphs, table
from uwf_git.base.text import counted, printable, shortened
from uwf_git.format.edges import ALL, FanOut, Transition
from uwf_git.format.ids import Hash
from uwf_git.format.kinds import COMPLETE, Code, Origin, Role, Workflow
from uwf_git.format.types import END, ENDS, FAIL, JOIN, NEW, START
from uwf_git.workflow.branch_bodies import bodies_of, innermost
from uwf_git.workflow.fan_out import join_name, joins_of

OTHERWISE = "otherwise"

_SHAPES = {
    "decision": ("{", "}"), "merge": ("{{", "}}"), "end": ("([", "])"), "join": ("((", "))"), "workflow": ("[[", "]]")
}  # fmt: skip
_DOT_SHAPES = {
    "decision": ", shape=diamond",
    "merge": ", shape=hexagon",
    "end": ", shape=oval",
    "join": ", shape=circle",
    "workflow": ", peripheries=2",
}
_WORKFLOW = (
    "workflow "  # begins the name of a node that stands for another workflow; no role's name has a space
)
_TERMINALS = (START, END, FAIL)
_LONGEST_LABEL = 80
_MOST_SHOWN = 12
# Mermaid gives meaning to most punctuation, also inside quotes; a number entity is always text.
_MERMAID_PLAIN = re.compile(r"[^\w .,:/()-]")


def mermaid(workflow: Workflow) -> str:
    """Return the graph as a Mermaid flowchart without fence, ending in a newline."""
    drawn = Drawing(workflow)
    ids = _ids(drawn)
    lines = ["flowchart TD"]
    for name, id_ in ids.items():
        if name in _TERMINALS:
            lines.append(f'    {id_}(["{name}"])')
        else:
            before, after = _SHAPES.get(_kind(workflow, name), ("[", "]"))
            lines.append(f'    {id_}{before}"{_mermaid(label_of(name))}"{after}')
    for arrow in drawn.arrows:
        line = f'-->|"{_mermaid(arrow.label)}"|' if arrow.label else "-->"
        lines.append(f"    {ids[arrow.source]} {line} {ids[arrow.target]}")
    return "\n".join(lines) + "\n"


def dot(workflow: Workflow) -> str:
    """Return the graph for Graphviz, ending in a newline."""
    drawn = Drawing(workflow)
    ids = _ids(drawn)
    lines = [f"digraph {_dot(workflow.name)} {{", "    node [shape=box, style=rounded];"]
    for name, id_ in ids.items():
        shape = _DOT_SHAPES.get("end" if name in _TERMINALS else _kind(workflow, name), "")
        lines.append(f"    {id_} [label={_dot(label_of(name))}{shape}];")
    for arrow in drawn.arrows:
        label = f" [label={_dot(arrow.label)}];" if arrow.label else ";"
        lines.append(f"    {ids[arrow.source]} -> {ids[arrow.target]}{label}")
    return "\n".join([*lines, "}"]) + "\n"


def readme(workflow: Workflow, schemas: Mapping[Hash, Any]) -> str:
    """Return the workflow's page. `schemas` has the roles' schema payloads by hash; missing ones are omitted."""
    parts = [f"# {inline(workflow.name)}"]
    if workflow.description.strip():
        parts.append(paragraphs(workflow.description))
    parts.append(f"```mermaid\n{mermaid(workflow)}```")
    if workflow.code is not None:
        parts.append(_of_code(workflow, workflow.code))
    if workflow.crew is not None:
        parts.append(_of_crew(workflow, workflow.crew))
    roles = [role for name in Drawing(workflow).names if (role := workflow.roles.get(name)) is not None]
    rows = [
        (code(role.name), *_spoken(workflow, role), inline(_purpose(role)), _answer(schemas.get(role.schema)))
        for role in roles
    ]
    spoken = () if workflow.crew is None else ("kind", "who")
    parts.append("## Roles\n\n" + table(("role", *spoken, "what it does", "answers"), rows))
    if workflow.conditions:
        rows = [
            (code(condition.name), inline(condition.description), code(condition.expression))
            for _, condition in sorted(workflow.conditions.items())
        ]
        parts.append("## Conditions\n\n" + table(("condition", "holds when", "expression"), rows))
    return "\n\n".join(parts) + "\n"


def _of_code(workflow: Workflow, code: Code) -> str:
    sentence = f"The code in [{workflow.file}](../{workflow.file}) decides who is next."
    if workflow.graph:
        sentence = sentence[:-1] + ", and the drawing is what it says of itself."
    if code.max_rounds is not None:
        sentence += f" A thread has at most {counted(code.max_rounds, 'step')}."
    return sentence


def _of_crew(workflow: Workflow, crew: Origin) -> str:
    sentence = f"It is the workflow {code(crew.workflow)} of the crew {code(crew.name)}."
    if any(workflow.stops(edge) for edges in workflow.graph.values() for edge in edges):
        sentence += f" Not drawn: it ends wherever {code(COMPLETE)}."
    return sentence


class Arrow(NamedTuple):
    """An arrow from `source` to `target`, names of nodes. `edge` is the workflow's, None for one from a role without
    edges to its join."""

    source: str
    target: str
    label: str
    edge: Transition | None = None


class Drawing:
    """The nodes and arrows of a workflow's graph. Besides roles and ends, nodes are joins, by the names that
    `join_name` gives them, and other workflows, by `workflow NAME`."""

    def __init__(self, workflow: Workflow) -> None:
        self.workflow = workflow
        self.joins = joins_of(workflow)
        bodies = bodies_of(workflow.graph)
        self._forks = {join_name(body.source, body.position): body.source for body in bodies}
        self.within = innermost(bodies)

    @cached_property
    def names(self) -> list[str]:
        """All nodes: breadth first from $START, then unreachable ones by name."""
        names = [START]
        rest = sorted({*self.workflow.roles, *self.workflow.graph})
        while True:
            seen = set(names)
            for name in names:  # grows while it is walked
                for arrow in self._leaving(name):
                    if arrow.target not in seen:
                        seen.add(arrow.target)
                        names.append(arrow.target)
            start = next((name for name in rest if name not in seen), None)
            if start is None:
                return names
            names.append(start)

    @property
    def arrows(self) -> Iterator[Arrow]:
        for source in self.names:
            ways = self._leaving(source)
            going = [way for way in ways if way.edge is None or not self.workflow.stops(way.edge)] or ways
            several = len({id(way.edge) for way in going}) > 1
            fallback = (
                NEW if source == START and any(way.edge and way.edge.status for way in going) else OTHERWISE
            )
            for way in going:
                yield way._replace(label=_label(way, fallback if several else ""))

    def ends(self, source: str, target: str) -> list[str]:
        """Return the joins at which an edge of a role or join ends a branch; none if it leads on."""
        around = self.within.get(self._forks.get(source, source), ())
        return [
            join_name(body.source, body.position) for body in around if target in body.ends or target in ENDS
        ]

    def _leaving(self, source: str) -> list[Arrow]:
        if source.startswith(_WORKFLOW):
            forks = [
                name for name, fan_out in self.joins.items() if source in map(_node_of, fan_out.workflows)
            ]
            return [Arrow(source, name, "") for name in forks]
        if (fan_out := self.joins.get(source)) is not None:
            return [arrow for edge in fan_out.join for arrow in self._of(source, 0, edge)]
        edges = list(enumerate(self.workflow.graph.get(source, ())))
        if not edges:
            return [Arrow(source, join, "") for join in self.ends(source, END)]
        if any(edge.status is not None for _, edge in edges):
            # An unstarted thread cannot be resumed.
            edges.sort(key=lambda item: (source != START and item[1].status is None, item[1].status or ""))
        return [arrow for position, edge in edges for arrow in self._of(source, position, edge)]

    def _of(self, source: str, position: int, edge: Transition) -> list[Arrow]:
        if edge.fan_out is None:
            return [Arrow(source, target, "", edge) for target in self.ends(source, edge.role) or [edge.role]]
        entries = (*edge.fan_out.roles, *map(_node_of, edge.fan_out.workflows))
        return [Arrow(source, entry, "", edge) for entry in entries]


def label_of(name: str) -> str:
    """Return the text of a node."""
    return "join" if name.startswith(JOIN) else name.removeprefix(_WORKFLOW)


def _node_of(workflow: str) -> str:
    return f"{_WORKFLOW}{workflow}"


def _label(arrow: Arrow, fallback: str) -> str:
    edge = arrow.edge
    if edge is None:
        return ""
    label = edge.status or edge.label or edge.condition or fallback
    if edge.fan_out is not None:
        return f"{label}: {_fanned(edge.fan_out)}" if label else _fanned(edge.fan_out)
    return label or ("failed" if edge.role == FAIL and arrow.target != FAIL else "")


def _fanned(fan_out: FanOut) -> str:
    return fan_out.label if fan_out.need == ALL else f"{fan_out.label}, need {fan_out.need}"


def _kind(workflow: Workflow, name: str) -> str:
    if name.startswith((JOIN, _WORKFLOW)):
        return "join" if name.startswith(JOIN) else "workflow"
    role = workflow.roles.get(name)
    return role.node.type if role is not None and role.node is not None else ""


def _spoken(workflow: Workflow, role: Role) -> tuple[str, ...]:
    if workflow.crew is None:
        return ()
    persona = workflow.personas.get(role.persona)
    who = inline(f"{persona.icon} {persona.name}".strip()) if persona is not None else "whom its thread names"
    return _kind(workflow, role.name) or "role", who


def _ids(drawn: Drawing) -> dict[str, str]:
    ids = {START: "start"}
    numbers = dict.fromkeys(("role", "join", "workflow"), 0)
    for name in drawn.names:
        if name not in _TERMINALS:
            kind = _kind(drawn.workflow, name) if name.startswith((JOIN, _WORKFLOW)) else "role"
            numbers[kind] += 1
            ids[name] = f"{kind}{numbers[kind]}"
    ids[END] = "finish"
    return {**ids, FAIL: "failure"} if FAIL in drawn.names else ids


def _purpose(role: Role) -> str:
    return role.description or role.goal or role.system_prompt.strip().split("\n")[0]


def _answer(schema: Any) -> str:
    from uwf_git.workflow.role_schemas import answers_of

    if schema is None:
        return ""
    answers = answers_of(schema)
    parts = []
    if answers.statuses:
        parts.append(_some(answers.statuses))
    each = [field for variant in answers.variants for field in variant.fields]
    required = dict.fromkeys(field.name for field in each if field.required)
    names = [*required, *sorted({field.name for field in each} - required.keys())]
    fields = [name for name in names if name not in ("$status", "status")]
    if fields:
        parts.append(_some(fields))
    return "; ".join(parts)


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    shown = ", ".join(code(name, 60) for name in listed[:_MOST_SHOWN])
    return shown + (", …" if len(listed) > _MOST_SHOWN else "")


def _mermaid(text: str) -> str:
    flat = _flat(text) or " "
    return _MERMAID_PLAIN.sub(lambda match: f"#{ord(match.group())};", flat)


def _dot(text: str) -> str:
    # `\N` and its like mean something in labels, so the backslash is doubled for both levels.
    return '"' + _flat(text).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _flat(text: str) -> str:
    return shortened(printable(" ".join(text.split())), _LONGEST_LABEL)
