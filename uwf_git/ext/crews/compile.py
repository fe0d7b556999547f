"""Compiling a crew's package into a Crew node and a Workflow node per workflow. Pure: equal files give equal
hashes. docs/reference/format.md says what becomes of a third party's graph.

Expressions see the run's state, computed from `{start, steps}`: `$variables`, the initial ones with the answers'
merged in order; `$currentNodeId`, the last node done; `$stepsCompleted` and `$artifacts`, each once in order of
first occurrence. Questions and answers, which have no `summary`, don't count.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import chain, count
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.ext.crews.conversation import TALK, conversation_payload
from uwf_git.ext.crews.crew_node import Crew, CrewWorkflow
from uwf_git.ext.crews.draft import (
    CrewDraft,
    EdgeDraft,
    GraphDraft,
    NodeDraft,
    PackageFinding,
    YamlDraft,
)
from uwf_git.ext.crews.package import Package, definition_of
from uwf_git.plugin import (
    COMPLETE_CONDITION,
    CREW,
    CREW_DEFINITION,
    END,
    OWN_FORM,
    START,
    Compiled,
    Document,
    Hash,
    Invalid,
    Source,
    cbor,
    conversations,
    hash_of,
    nearest,
    one_line,
    parse_workflow,
    schemas,
    workflow_type,
)
from uwf_git.plugin import foresee as rehearsed

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS, MOST_REHEARSED = 1.0, 60
STATUS = "workflowStatus"
"""The variable by which a run says that it is complete."""

_DONE = "steps[$exists(output.summary)]"
_FOLDED = {
    "currentNodeId": "steps[-1].role",
    "stepsCompleted": f"[$distinct({_DONE}.role)]",
    "artifacts": "[$distinct(steps.output.artifacts)]",
}
_STATE = frozenset((*_FOLDED, "variables"))
_COMPARED = frozenset({"==", "===", "!=", "!==", "<", "<=", ">", ">=", "in"})


class CompiledCrew(NamedTuple):
    """A compiled crew: value, Crew node's payload and hash, workflows by id in order, and all schema
    payloads."""

    crew: Crew
    payload: dict[str, Any]
    hash: Hash
    workflows: Mapping[str, Compiled]
    schemas: Mapping[Hash, Any]
    warnings: tuple[PackageFinding, ...] = ()


def compile_crew(package: Package) -> CompiledCrew:
    """Compile a package without storing it. Raises InvalidPackage."""
    draft, written = _read(package)
    workflows = {
        workflow.id: _compiled(draft, workflow, written.get(workflow.id), package)
        for workflow in draft.workflows
    }
    offered = (
        CrewWorkflow(
            workflow.id,
            workflows[workflow.id].hash,
            workflow.title,
            workflow.description,
            workflow.entry,
            workflow.tags,
        )
        for workflow in draft.workflows
    )
    crew = Crew(draft.name, draft.version, draft.description, draft.format, draft.members, tuple(offered))
    payload = cbor.normalise(crew.payload())
    schemas = {name: schema for workflow in workflows.values() for name, schema in workflow.schemas.items()}
    return CompiledCrew(crew, payload, hash_of(CREW, payload), workflows, schemas, draft.warnings)


def compile_version(text: bytes, files: Mapping[str, bytes]) -> Compiled:
    """Compile the workflow named by a version's definition. Raises Invalid, InvalidPackage."""
    name, workflow = _named(text)
    if text != definition_of(name, workflow):
        raise Invalid(f"{CREW_DEFINITION} is not written as it is by uwf", "restore it")
    package = Package(name, files, None)
    draft, written = _read(package)
    if workflow == TALK and draft.name == name:
        return _talk(draft, package, text)
    match = next((flow for flow in draft.workflows if flow.id == workflow), None)
    if draft.name != name or match is None:
        raise Invalid(
            f"{CREW_DEFINITION} names {one_line(f'{name}/{workflow}', 80)}, which its package doesn't have",
            nearest(f"{name}/{workflow}", [f"{draft.name}/{flow.id}" for flow in draft.workflows]),
        )
    return _compiled(draft, match, written.get(workflow), package)


def _talk(draft: CrewDraft, package: Package, text: bytes) -> Compiled:
    payload = conversation_payload(draft.name, draft.format, draft.members)
    return _node(payload, {conversations.REPLY: conversations.REPLY_SCHEMA}, text, package)


def foresee(package: Package, crew: CompiledCrew, seconds: float = SECONDS) -> tuple[PackageFinding, ...]:
    """Return a package's warnings, with those of rehearsals of its own workflows of at most `seconds` each,
    skipping workflows with very many roles. The graphs of a third party are not rehearsed."""
    if package.form() != OWN_FORM:
        return crew.warnings
    from uwf_git.ext.crews.crew_file import placed

    warnings = list(crew.warnings)
    draft, sources = _read(package)
    for workflow in draft.workflows:
        if len(crew.workflows[workflow.id].workflow.roles) <= MOST_REHEARSED:
            compiled = sources[workflow.id]
            warnings += (
                placed(workflow.entry, finding)
                for finding in rehearsed(compiled, seconds)
                if finding not in compiled.warnings
            )
    return tuple(warnings)


def _named(text: bytes) -> tuple[str, str]:
    try:
        definition = json.loads(text)
        if not all(isinstance(definition[key], str) for key in ("crew", "workflow")):
            raise TypeError
    except (ValueError, LookupError, TypeError, RecursionError):
        raise Invalid(f"{CREW_DEFINITION} doesn't say a crew and a workflow") from None
    return definition["crew"], definition["workflow"]


def _read(package: Package) -> tuple[CrewDraft, Mapping[str, Compiled]]:
    if package.form() == OWN_FORM:
        from uwf_git.ext.crews.crew_file import read_own

        return read_own(package)
    from uwf_git.ext.crews.bmad import read_bmad

    return read_bmad(package), {}


def _compiled(
    draft: CrewDraft, workflow: GraphDraft | YamlDraft, written: Compiled | None, package: Package
) -> Compiled:
    origin = {"name": draft.name, "workflow": workflow.id, "format": draft.format}
    schemas: dict[Hash, Any] = {}
    if isinstance(workflow, GraphDraft):
        payload = _Graph(workflow, package, schemas).payload()
        besides = {"entry": workflow.entry, "graph": workflow.graph, "variables": dict(workflow.variables)}
    else:
        assert written is not None
        roles = {
            name: {**role, "persona": workflow.personas[name]} if name in workflow.personas else role
            for name, role in written.payload["roles"].items()
        }
        payload = {**written.payload, "roles": roles}
        schemas.update(written.schemas)
        besides = {"entry": workflow.entry}
    payload["name"] = f"{draft.name}/{workflow.id}"
    payload["crew"] = origin | {key: value for key, value in besides.items() if value}
    payload["personas"] = {member.persona.id: member.persona.payload() for member in draft.members}
    return _node(payload, schemas, definition_of(draft.name, workflow.id), package)


def _node(payload: Any, schemas: Mapping[Hash, Any], text: bytes, package: Package) -> Compiled:
    payload = cbor.normalise(payload)
    data = json.loads(text)
    source = Source(CREW_DEFINITION, text, data, Document(CREW_DEFINITION, data, {}, {}, {}), package.files)
    return Compiled(
        payload, hash_of(workflow_type(payload), payload), schemas, parse_workflow(payload), source
    )


class _Graph:
    """A graph being compiled, collecting `schemas`."""

    def __init__(self, graph: GraphDraft, package: Package, schemas: dict[Hash, Any]) -> None:
        self._graph = graph
        self._package = package
        self._schemas = schemas
        self._leaving: dict[str, list[EdgeDraft]] = {name: [] for name in graph.nodes}
        for edge in graph.edges:
            self._leaving[edge.source].append(edge)
        self._conditions: dict[str, tuple[str, str]] = {
            COMPLETE_CONDITION: (f"{STATUS} is complete", f'steps[-1].output.variables.{STATUS} = "complete"')
        }
        self._answers: dict[tuple[tuple[tuple[str, str], ...], tuple[str, ...]], Hash] = {}
        self._variables = _variables(edge.expression for edge in graph.edges)

    def payload(self) -> dict[str, Any]:
        graph: dict[str, Any] = {START: [{"role": self._graph.first, "condition": None}]}
        for name, node in self._graph.nodes.items():
            graph[name] = self._edges(node)
        return {
            "description": self._graph.description or self._graph.title,
            "roles": {name: self._role(node) for name, node in self._graph.nodes.items()},
            "conditions": {
                name: {"description": description, "expression": expression}
                for name, (description, expression) in self._conditions.items()
            },
            "graph": graph,
        }

    def _role(self, node: NodeDraft) -> dict[str, Any]:
        made_of = {"title": node.title, "inputs": list(node.inputs), "outputs": list(node.outputs)}
        return {
            "description": node.description or node.title,
            "systemPrompt": node.text,
            "outputSchema": self._answer(
                tuple((edge.label, edge.text) for edge in self._choices(node)),
                tuple(dict.fromkeys(node.sets)),
            ),
            **({"persona": node.agent} if node.agent else {}),
            "node": {
                "type": node.type,
                "file": node.file,
                **{key: value for key, value in made_of.items() if value},
            },
        }

    def _choices(self, node: NodeDraft) -> list[EdgeDraft]:
        if node.type == "end":
            return []
        without = [edge for edge in self._leaving[node.id] if edge.expression is None]
        return sorted(without, key=lambda edge: edge.is_default)

    def _answer(self, choices: tuple[tuple[str, str], ...], sets: tuple[str, ...]) -> Hash:
        choices = choices if len(choices) > 1 else ()
        if (choices, sets) not in self._answers:
            schema = cbor.normalise(self._schema(choices, sets))
            name = self._answers[choices, sets] = hash_of(schemas.META, schema)
            self._schemas[name] = schema
        return self._answers[choices, sets]

    def _schema(self, choices: tuple[tuple[str, str], ...], sets: tuple[str, ...]) -> dict[str, Any]:
        properties: dict[str, Any] = {
            "summary": {"type": "string", "description": "What was done, in short."}
        }
        if choices:
            ways = "; ".join(f"{label}: {text}" if text else label for label, text in choices)
            labels = list(dict.fromkeys(label for label, _ in choices))
            properties["next"] = {"description": f"The way on. {ways}", "enum": labels}
        properties["artifacts"] = {
            "type": "array",
            "items": {"type": "string"},
            "description": "The files that were written, by their paths in the project.",
        }
        properties["variables"] = {
            "type": "object",
            "description": "What was found out or decided and matters later, by name. It replaces what had that name."
            + (f" Here: {', '.join(sets)}." if sets else ""),
            # Any step may say that the run is complete.
            "properties": {name: self._variables.get(name, {}) for name in (*sets, STATUS)}
            if sets
            else self._variables,
        }
        return {
            "type": "object",
            "properties": properties,
            "required": ["summary", *(["next"] if choices else [])],
            "additionalProperties": False,
        }

    def _edges(self, node: NodeDraft) -> list[dict[str, Any]]:
        if node.type == "end":
            return [{"role": END, "condition": None}]
        choices = self._choices(node)
        edges: list[dict[str, Any]] = [{"role": END, "condition": COMPLETE_CONDITION}]
        for edge in self._leaving[node.id]:
            if edge.expression is not None:
                edges.append(_edge(edge, self._condition(edge, self._expression(edge))))
        for edge in choices[:-1]:
            edges.append(_edge(edge, self._condition(edge, f"steps[-1].output.next = {_quoted(edge.label)}")))
        # The rest needs no condition: a default is always taken, and an answer names a label.
        return [*edges, *(_edge(edge, None) for edge in choices[-1:])]

    def _condition(self, edge: EdgeDraft, expression: str) -> str:
        description = edge.text or ("" if edge.expression is None else _quoted(edge.expression))
        meant = (description, expression)
        label = one_line(edge.label) or edge.target
        whole = f"{edge.source}: {label} → {edge.target}"
        numbered = (f"{whole} ({number})" for number in count(2))
        names = chain((label, f"{edge.source}: {label}", whole), numbered)
        return next(name for name in names if self._conditions.setdefault(name, meant) == meant)

    def _expression(self, edge: EdgeDraft) -> str:
        from uwf_git.ext.crews.jsonlogic import translated

        condition = translated(edge.expression)
        initial = _quoted(dict(self._graph.variables))
        state = {"variables": f"$merge([{initial}, steps.output.variables])", **_FOLDED}
        used = "".join(f"${name} := {value}; " for name, value in state.items() if f"${name}" in condition)
        return f"({used}{condition})" if used else condition


def _edge(edge: EdgeDraft, condition: str | None) -> dict[str, Any]:
    texts = {"label": edge.label, "text": edge.text}
    return {"role": edge.target, "condition": condition, **{key: text for key, text in texts.items() if text}}


def _quoted(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _variables(expressions: Iterable[Any]) -> dict[str, Any]:
    by_name: dict[str, list[Any]] = {STATUS: ["active", "complete"]}
    for expression in expressions:
        for name, values in _compared(expression):
            if name not in _STATE:
                by_name.setdefault(name, []).extend(values)
    return {
        name: {"examples": list({_quoted(value): value for value in values}.values())[:12]}
        for name, values in sorted(by_name.items())
    }


def _compared(expression: Any) -> Iterator[tuple[str, list[Any]]]:
    if isinstance(expression, list):
        for part in expression:
            yield from _compared(part)
    if not isinstance(expression, dict):
        return
    for operator, operands in expression.items():
        arguments = operands if isinstance(operands, list) else [operands]
        if operator == "var":
            if arguments and isinstance(arguments[0], str):
                yield from _named_by(arguments[0], [True, False])
            continue
        if operator in _COMPARED:
            names = [name for part in arguments if (name := _variable(part)) is not None]
            others = [part for part in arguments if not isinstance(part, dict)]
            for name in names:
                yield from _named_by(name, [value for part in others for value in _around(part)])
            arguments = [part for part in arguments if _variable(part) is None]
        yield from _compared(arguments)


def _variable(expression: Any) -> str | None:
    if not isinstance(expression, dict) or set(expression) != {"var"}:
        return None
    name = expression["var"]
    first = name[0] if isinstance(name, list) and name else name
    return first if isinstance(first, str) else None


def _named_by(path: str, values: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    first, *inner = path.removeprefix("variables.").split(".")
    for name in reversed(inner):
        values = [{name: value} for value in values]
    if first and first != "variables":
        yield first, values


def _around(value: Any) -> list[Any]:
    if isinstance(value, bool) or value is None:
        return [True, False]
    if isinstance(value, int | float):
        return [value, value - 1, value + 1]
    if isinstance(value, list):
        return [*value, ""]
    return [value, ""]
