"""A workflow as Mermaid, Graphviz and a Markdown page.

Names and texts are untrusted, so each is escaped for its language. Stored mappings have sorted keys, so roles
are ordered by the graph, and a stored node gives the same page as its file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from uwf_git.base.markdown import code, inline, paragraphs, table
from uwf_git.base.text import counted, printable, shortened
from uwf_git.format.edges import Transition
from uwf_git.format.ids import Hash
from uwf_git.format.kinds import COMPLETE, Code, Origin, Role, Workflow
from uwf_git.format.types import END, FAIL, NEW, START

OTHERWISE = "otherwise"

_SHAPES = {"decision": ("{", "}"), "merge": ("{{", "}}"), "end": ("([", "])")}
_DOT_SHAPES = {"decision": ", shape=diamond", "merge": ", shape=hexagon", "end": ", shape=oval"}
_TERMINALS = (START, END, FAIL)
_LONGEST_LABEL = 80
_MOST_SHOWN = 12
# Mermaid gives meaning to most punctuation, also inside quotes; a number entity is always text.
_MERMAID_PLAIN = re.compile(r"[^\w .,:/()-]")


def mermaid(workflow: Workflow) -> str:
    """Return the graph as a Mermaid flowchart without fence, ending in a newline."""
    ids = _ids(workflow)
    lines = ["flowchart TD"]
    for name, id_ in ids.items():
        if name in _TERMINALS:
            lines.append(f'    {id_}(["{name}"])')
        else:
            before, after = _SHAPES.get(_kind(workflow, name), ("[", "]"))
            lines.append(f'    {id_}{before}"{_mermaid(name)}"{after}')
    for source, edge, label in edges(workflow):
        arrow = f'-->|"{_mermaid(label)}"|' if label else "-->"
        lines.append(f"    {ids[source]} {arrow} {ids[edge.role]}")
    return "\n".join(lines) + "\n"


def dot(workflow: Workflow) -> str:
    """Return the graph for Graphviz, ending in a newline."""
    ids = _ids(workflow)
    lines = [f"digraph {_dot(workflow.name)} {{", "    node [shape=box, style=rounded];"]
    for name, id_ in ids.items():
        shape = _DOT_SHAPES.get("end" if name in _TERMINALS else _kind(workflow, name), "")
        lines.append(f"    {id_} [label={_dot(name)}{shape}];")
    for source, edge, label in edges(workflow):
        lines.append(
            f"    {ids[source]} -> {ids[edge.role]}" + (f" [label={_dot(label)}];" if label else ";")
        )
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
    roles = [role for name in order(workflow) if (role := workflow.roles.get(name)) is not None]
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
    said = f"The code in [{workflow.file}](../{workflow.file}) decides who is next."
    if workflow.graph:
        said = said[:-1] + ", and the drawing is what it says of itself."
    if code.max_rounds is not None:
        said += f" A thread has at most {counted(code.max_rounds, 'step')}."
    return said


def _of_crew(workflow: Workflow, crew: Origin) -> str:
    said = f"It is the workflow {code(crew.workflow)} of the crew {code(crew.name)}."
    if any(workflow.stops(edge) for edges in workflow.graph.values() for edge in edges):
        said += f" Not drawn: it ends wherever {code(COMPLETE)}."
    return said


def _kind(workflow: Workflow, name: str) -> str:
    role = workflow.roles.get(name)
    return role.node.type if role is not None and role.node is not None else ""


def _spoken(workflow: Workflow, role: Role) -> tuple[str, ...]:
    if workflow.crew is None:
        return ()
    persona = workflow.personas.get(role.persona)
    who = inline(f"{persona.icon} {persona.name}".strip()) if persona is not None else "whom its thread names"
    return _kind(workflow, role.name) or "role", who


def _ids(workflow: Workflow) -> dict[str, str]:
    names = order(workflow)
    roles = [name for name in names if name not in _TERMINALS]
    ids = {START: "start", **{name: f"role{number}" for number, name in enumerate(roles, 1)}, END: "finish"}
    return {**ids, FAIL: "failure"} if FAIL in names else ids


def order(workflow: Workflow) -> list[str]:
    """Return all names of the graph: breadth first from $START, then unreachable ones by name."""
    found = [START]
    rest = sorted({*workflow.roles, *workflow.graph})
    while True:
        seen = set(found)
        for name in found:  # grows while it is walked
            for edge in _leaving(workflow, name):
                if edge.role not in seen:
                    seen.add(edge.role)
                    found.append(edge.role)
        left = next((name for name in rest if name not in seen), None)
        if left is None:
            return found
        found.append(left)


def _leaving(workflow: Workflow, source: str) -> tuple[Transition, ...]:
    edges = workflow.graph.get(source, ())
    if all(edge.status is None for edge in edges):
        return tuple(edges)
    if source == START:  # an unstarted thread cannot be resumed
        return tuple(sorted(edges, key=lambda edge: edge.status or ""))
    return tuple(sorted(edges, key=lambda edge: (edge.status is None, edge.status or "")))


def edges(workflow: Workflow) -> Iterable[tuple[str, Transition, str]]:
    """Yield the graph's edges with source and label."""
    for source in order(workflow):
        ways = _leaving(workflow, source)
        leaving = [edge for edge in ways if not workflow.stops(edge)] or ways
        for edge in leaving:
            fallback = NEW if source == START and any(each.status for each in leaving) else OTHERWISE
            yield (
                source,
                edge,
                edge.status or edge.label or edge.condition or (fallback if len(leaving) > 1 else ""),
            )


def _purpose(role: Role) -> str:
    return role.description or role.goal or role.system_prompt.strip().split("\n")[0]


def _answer(schema: Any) -> str:
    from uwf_git.workflow.role_schemas import answers_of

    if schema is None:
        return ""
    answers = answers_of(schema)
    said = []
    if answers.statuses:
        said.append(_some(answers.statuses))
    each = [field for variant in answers.variants for field in variant.fields]
    required = dict.fromkeys(field.name for field in each if field.required)
    names = [*required, *sorted({field.name for field in each} - required.keys())]
    fields = [name for name in names if name not in ("$status", "status")]
    if fields:
        said.append(_some(fields))
    return "; ".join(said)


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    shown = ", ".join(code(name, 60) for name in listed[:_MOST_SHOWN])
    return shown + (", …" if len(listed) > _MOST_SHOWN else "")


def _mermaid(text: str) -> str:
    flat = _flat(text) or " "
    return _MERMAID_PLAIN.sub(lambda found: f"#{ord(found.group())};", flat)


def _dot(text: str) -> str:
    # `\N` and its like mean something in labels, so the backslash is doubled for both levels.
    return '"' + _flat(text).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _flat(text: str) -> str:
    return shortened(printable(" ".join(text.split())), _LONGEST_LABEL)
