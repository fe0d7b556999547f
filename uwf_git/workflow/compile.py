"""A source made into the nodes it is registered as: one Workflow node, and a schema node per role.

The same definition always gives the same hashes, whatever its layout, comments and anchors.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from uwf_git.errors import Invalid
from uwf_git.text import one_line
from uwf_git.values import cbor
from uwf_git.values.ids import Hash
from uwf_git.values.kinds import Workflow, parse_workflow
from uwf_git.values.node import hash_of
from uwf_git.values.types import DEFAULT_STATUS, META, workflow_type
from uwf_git.workflow.check import EFFECTS, Finding, examine
from uwf_git.workflow.draft import Draft, DraftEdge
from uwf_git.workflow.source import Source


class Compiled(NamedTuple):
    """A compiled workflow: the payload and the hash of its Workflow node, the payloads of the schema nodes that
    it refers to, its value, and its source. `warnings` are findings that are no errors."""

    payload: dict[str, Any]
    hash: Hash
    schemas: Mapping[Hash, Any]
    workflow: Workflow
    source: Source
    warnings: tuple[Finding, ...] = ()


class InvalidWorkflow(Invalid):
    """The workflow has errors. `findings` holds them all, and the warnings, by line."""

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


def compile_source(source: Source) -> Compiled:
    """The nodes of a workflow; nothing is stored. Raises InvalidWorkflow with every finding."""
    draft, findings = examine(source)
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
        "roles": roles,
        "conditions": {
            condition.name: {"description": condition.description, "expression": condition.expression}
            for condition in draft.conditions.values()
        },
        "graph": {
            source: {edge.status or DEFAULT_STATUS: _target(edge) for edge in edges.edges}
            if edges.by_status
            else [{**_target(edge), "condition": edge.condition} for edge in edges.edges]
            for source, edges in draft.graph.items()
        },
    }


def _target(edge: DraftEdge) -> dict[str, str]:
    texts = {"role": edge.role, "prompt": edge.prompt, "location": edge.location}
    return {key: text for key, text in texts.items() if text is not None}
