"""Converting json-cas Workflow nodes to today's definitions, as `workflow put` would make them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from uwf_git.plugin import (
    Compiled,
    Hash,
    Invalid,
    compile_source,
    is_hash,
    name_problem,
    parse_source,
    yaml12,
)

_SCHEMAS = ("outputSchema", "frontmatter", "meta")
_GOAL_FORM = ("goal", "capabilities", "procedure", "output")
_KNOWN = {
    "Workflow": {"name", "description", "roles", "conditions", "graph", "version"},
    "role": {"description", "systemPrompt", *_SCHEMAS, *_GOAL_FORM},
    "edge": {"role", "condition", "prompt", "location"},
}


def is_workflow(payload: Any) -> bool:
    """Return whether a payload looks like a Workflow node."""
    return (
        isinstance(payload, dict)
        and isinstance(payload.get("name"), str)
        and isinstance(payload.get("roles"), dict)
        and isinstance(payload.get("graph"), dict)
    )


def compiled(payload: Any, schema_of: Callable[[Hash], Any], extras: Callable[[str], None]) -> Compiled:
    """Return a definition's nodes. `schema_of` reads schemas and may raise any UwfError; `extras` gets fields
    without a place, such as `role.color`. Raises Invalid."""
    data = _definition(payload, schema_of, extras)
    return compile_source(parse_source(yaml12.dump(data).encode("utf-8"), "workflow.yaml"))


def _definition(
    payload: Any, schema_of: Callable[[Hash], Any], extras: Callable[[str], None]
) -> dict[str, Any]:
    if not is_workflow(payload):
        raise Invalid("its node is not a Workflow")
    if problem := name_problem(payload["name"]):
        raise Invalid(f"its name {problem}")

    def note_extras(kind: str, value: Mapping[str, Any]) -> None:
        for key in sorted(value.keys() - _KNOWN[kind]):
            extras(f"{kind}.{key}")

    note_extras("Workflow", payload)
    data: dict[str, Any] = {
        "version": 1,
        "name": payload["name"],
        "description": payload.get("description", ""),
    }
    data["roles"] = {}
    for name, role in payload["roles"].items():
        if not isinstance(role, dict):
            raise Invalid(f"its role {name} is not an object")
        note_extras("role", role)
        data["roles"][name] = _role(name, role, schema_of)
    if payload.get("conditions"):
        data["conditions"] = payload["conditions"]
    data["graph"] = {}
    for source, edges in payload["graph"].items():
        values = edges.values() if isinstance(edges, dict) else edges
        if not isinstance(edges, dict | list) or not all(isinstance(edge, dict) for edge in values):
            raise Invalid(f"its edges from {source} are none")
        for edge in values:
            note_extras("edge", edge)
        if isinstance(edges, dict):
            data["graph"][source] = {status: _edge(edge) for status, edge in edges.items()}
        else:
            data["graph"][source] = [{**_edge(edge), "condition": edge.get("condition")} for edge in edges]
    return data


def _role(name: str, role: Mapping[str, Any], schema_of: Callable[[Hash], Any]) -> dict[str, Any]:
    key = next((key for key in _SCHEMAS if role.get(key) is not None), None)
    if key is None:
        raise Invalid(f"its role {name} has no schema")
    schema = role[key]
    if isinstance(schema, str) and is_hash(schema):
        schema = schema_of(Hash(schema))
    description = role.get("description", "")
    if "goal" in role:
        fields = {key: role[key] for key in _GOAL_FORM if role.get(key)}
        return {"description": description, **fields, "frontmatter": schema}
    prompt = str(role.get("systemPrompt") or "")
    return {"description": description, "systemPrompt": prompt, "outputSchema": schema}


def _edge(edge: Mapping[str, Any]) -> dict[str, Any]:
    texts = {key: edge.get(key) for key in ("role", "prompt", "location")}
    return {key: text for key, text in texts.items() if text not in (None, "")}
