"""Compiling a source into its nodes: a Workflow node, and a schema node per role; with all warnings.

Equal definitions have equal hashes, whatever their layout, comments and anchors. The result is rehearsed, and
the findings become warnings, since generated outputs show only what may happen.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.base.errors import Invalid
from uwf_git.base.text import one_line
from uwf_git.format import cbor
from uwf_git.format.builtin import META
from uwf_git.format.findings import Findings
from uwf_git.format.ids import Hash
from uwf_git.format.kinds import Workflow, parse_workflow
from uwf_git.format.node import hash_of
from uwf_git.format.schema import ValuePath
from uwf_git.format.statuses import DEFAULT_STATUS
from uwf_git.format.types import END, workflow_type
from uwf_git.workflow.check import EFFECTS, Finding, check_path, examine
from uwf_git.workflow.draft import Draft, read_draft
from uwf_git.workflow.source import Source, read_source

if TYPE_CHECKING:
    from uwf_git.workflow.rehearsal import Problem, Report


SECONDS = 5.0
MAX_STEPS = 1_000
_SEEN = ("dead-end", "fails", "no-output")
"""What a rehearsal sees happen, rather than sees not happen."""
_HINTS = {
    "condition-never-true": "no answer that the schemas allow makes it true",
    "condition-never-false": "no answer that the schemas allow makes it false",
    "dead-end": "end its edges with one without a condition, or with _ for every other status",
    "no-way-out": f"let one of the edges lead to {END} on something that can come",
    "no-items": "no answer that the schema allows gives any",
    "no-output": "is there any answer that its schema allows?",
}


class Compiled(NamedTuple):
    """A compiled workflow: its node's payload and hash, the schema nodes' payloads, its value and source."""

    payload: dict[str, Any]
    hash: Hash
    schemas: Mapping[Hash, Any]
    workflow: Workflow
    source: Source
    warnings: tuple[Finding, ...] = ()


class InvalidWorkflow(Invalid):
    """A workflow's `file` has errors; `findings` include warnings."""

    def __init__(self, path: str, findings: Sequence[Finding]) -> None:
        errors = [finding for finding in findings if finding.severity == "error"]
        # A missing way to $END is often only the effect of another mistake, so that other one is named.
        first = next((finding for finding in errors if finding.code not in EFFECTS), errors[0])
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        hints = [first.hint, f"uwf workflow validate {shlex.quote(one_line(path))}"]
        super().__init__(
            f"{one_line(path)}:{first.line}:{first.column}: {first.message}{more}",
            " · ".join(hint for hint in hints if hint),
        )
        self.findings = tuple(findings)
        self.file = path


def compile_source(source: Source, recorded: bool = False) -> Compiled:
    """Return a workflow's nodes without storing them; `recorded`: it was stored before. Raises InvalidWorkflow."""
    draft, findings = examine(source, recorded)
    if any(finding.severity == "error" for finding in findings):
        raise InvalidWorkflow(source.path, findings)
    schemas: dict[Hash, Any] = {}
    payload = cbor.normalise(_payload(draft, schemas))
    return Compiled(
        payload,
        hash_of(workflow_type(payload), payload),
        schemas,
        parse_workflow(payload),
        source,
        tuple(findings),
    )


def foresee(compiled: Compiled, seconds: float = SECONDS) -> tuple[Finding, ...]:
    """Return all warnings: the check's, and those of a rehearsal of at most `seconds`."""
    from uwf_git.workflow.rehearsal import rehearse

    report = rehearse(compiled.workflow, compiled.schemas, MAX_STEPS, seconds)
    findings = Findings(compiled.source.marks)
    draft = read_draft(compiled.source.data, Findings(compiled.source.marks))
    anyway = _found_anyway(compiled, draft, report, seconds)
    for problem in likely(report):
        # Findings that appear once a condition is right follow from it.
        if problem.code in _SEEN or (problem.code, problem.where) in anyway:
            findings.warning(
                _place_of(problem, draft), problem.code, *finding_for(problem, compiled.workflow)
            )
    known = {(finding.line, finding.column) for finding in compiled.warnings}
    new = [finding for finding in findings.sorted() if (finding.line, finding.column) not in known]
    return tuple(sorted((*compiled.warnings, *new)))


def likely(report: Report) -> list[Problem]:
    """Return a rehearsal's problems that are neither consequences nor due to its limits."""
    gave_up = any(problem.code == "gave-up" for problem in report.problems)
    return [
        problem
        for problem in report.problems
        if not problem.follows and (problem.code in _SEEN or not gave_up)
    ]


def finding_for(problem: Problem, workflow: Workflow) -> tuple[str, str]:
    """Return the finding for a rehearsal's problem, and its hint."""
    message = problem.message.removeprefix(f"workflow {workflow.name}: ")
    return f"rehearsed: {message}", _HINTS.get(problem.code, "")


def _found_anyway(compiled: Compiled, draft: Draft, report: Report, seconds: float) -> set[tuple[str, str]]:
    from uwf_git.workflow.rehearsal import rehearse

    known = {(finding.line, finding.column) for finding in compiled.warnings}
    marks, conditions = compiled.source.marks, dict(compiled.workflow.conditions)
    doubtful = set()
    for name in conditions:
        if name in draft.conditions:
            mark = marks.key_mark((*draft.conditions[name].path, "expression"))
            if (mark.line, mark.column) in known:
                doubtful.add(name)
    if doubtful and any(not problem.follows and problem.code not in _SEEN for problem in report.problems):
        mended = {
            name: condition._replace(expression="true") if name in doubtful else condition
            for name, condition in conditions.items()
        }
        workflow = compiled.workflow._replace(conditions=mended)
        report = rehearse(workflow, compiled.schemas, MAX_STEPS, seconds)
    return {(problem.code, problem.where) for problem in report.problems}


def validate(path: Path) -> list[Finding]:
    """Return a file's findings, including a rehearsal's if it has no errors. Raises NotFound, Invalid."""
    findings = check_path(path)
    if any(finding.severity == "error" for finding in findings):
        return findings
    return list(foresee(compile_source(read_source(path))))


def _place_of(problem: Problem, draft: Draft) -> ValuePath:
    if problem.condition is not None:
        return ("conditions", problem.condition, "expression")
    source = problem.source if problem.source is not None else problem.where
    if (before := draft.joins.get(source)) is not None:
        at = problem.position
        place = before.join[at].path if at is not None else (*before.path, "join")
        return (*place, "prompt") if problem.code == "fails" else place
    if problem.position is not None and source in draft.graph:
        edge = draft.graph[source].tried[problem.position]
        if problem.code == "fails":
            if ": each: " in problem.message:
                return (*edge.path, "each")
            return (*edge.path, "location" if "the location of the edge" in problem.message else "prompt")
        return edge.path
    if problem.code in ("no-output", "unreachable-role"):
        return ("roles", source)
    return draft.graph[source].path if source in draft.graph else ("graph", source)


def _payload(draft: Draft, schemas: dict[Hash, Any]) -> dict[str, Any]:
    roles = {}
    for role in draft.roles.values():
        schema = cbor.normalise(role.schema)
        hash_ = hash_of(META, schema)
        schemas[hash_] = schema
        roles[role.name] = {**role.fields, role.schema_key: hash_}
    return {
        "name": draft.name,
        "description": draft.description,
        **({"budget": draft.budget} if draft.budget else {}),
        **({"workspace": draft.workspace} if draft.workspace else {}),
        "roles": roles,
        "conditions": {
            condition.name: {"description": condition.description, "expression": condition.expression}
            for condition in draft.conditions.values()
        },
        "graph": {
            source: {edge.status or DEFAULT_STATUS: edge.target for edge in edges.edges}
            if edges.by_status
            else [{**edge.target, "condition": edge.condition} for edge in edges.edges]
            for source, edges in draft.graph.items()
        },
    }
