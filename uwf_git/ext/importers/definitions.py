"""Converting older Workflow nodes, of all versions, to today's definitions, as `workflow put` would make
them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from uwf_git.base.errors import Invalid
from uwf_git.format import yaml12
from uwf_git.format.ids import Hash, is_hash, name_problem
from uwf_git.workflow.compile import Compiled, compile_source
from uwf_git.workflow.source import parse_source

_SCHEMAS = ("outputSchema", "frontmatter", "meta")
_GOAL_FORM = ("goal", "capabilities", "procedure", "output")
_PHASES = ("identity", "prepare", "execute", "report")
_KNOWN = {
    "Workflow": {"name", "description", "roles", "conditions", "graph", "version", "budget"},
    "role": {"description", "systemPrompt", "tools", *_SCHEMAS, *_GOAL_FORM, *_PHASES},
    "edge": {"role", "condition", "prompt", "location"},
}


def is_workflow(payload: Any) -> bool:
    """Return whether a payload looks like a Workflow node of any version."""
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
    if isinstance(payload.get("crew"), dict):
        raise Invalid("it is a crew's, whose package no node holds: push and pull bring both")
    if problem := name_problem(payload["name"]):
        raise Invalid(f"its name {problem}")

    def look(what: str, value: Mapping[str, Any]) -> None:
        for key in sorted(value.keys() - _KNOWN[what]):
            extras(f"{what}.{key}")

    look("Workflow", payload)
    data: dict[str, Any] = {
        "version": 1,
        "name": payload["name"],
        "description": payload.get("description", ""),
    }
    if payload.get("budget"):
        data["budget"] = payload["budget"]
    data["roles"] = {}
    for name, role in payload["roles"].items():
        if not isinstance(role, dict):
            raise Invalid(f"its role {name} is not an object")
        look("role", role)
        data["roles"][name] = _role(name, role, schema_of)
    if payload.get("conditions"):
        data["conditions"] = payload["conditions"]
    data["graph"] = {}
    for source, edges in payload["graph"].items():
        of = edges.values() if isinstance(edges, dict) else edges
        if not isinstance(edges, dict | list) or not all(isinstance(edge, dict) for edge in of):
            raise Invalid(f"its edges from {source} are none")
        for edge in of:
            look("edge", edge)
        if isinstance(edges, dict):
            data["graph"][source] = {status: _edge(edge) for status, edge in edges.items()}
        else:
            data["graph"][source] = [{**_edge(edge), "condition": edge.get("condition")} for edge in edges]
    return data


def _role(name: str, role: Mapping[str, Any], schema_of: Callable[[Hash], Any]) -> dict[str, Any]:
    key = next((each for each in _SCHEMAS if role.get(each) is not None), None)
    if key is None:
        raise Invalid(f"its role {name} has no schema")
    schema = role[key]
    if isinstance(schema, str) and is_hash(schema):
        schema = schema_of(Hash(schema))
    made: dict[str, Any] = {"description": role.get("description", "")}
    if "goal" in role:
        made |= {each: role[each] for each in _GOAL_FORM if role.get(each)}
        made["frontmatter"] = schema
    else:
        made["systemPrompt"] = _prompt(role)
        made["outputSchema"] = schema
    if role.get("tools"):
        made["tools"] = role["tools"]
    return made


def _prompt(role: Mapping[str, Any]) -> str:
    parts = [str(role["systemPrompt"])] if role.get("systemPrompt") else []
    parts += [f"## {phase.capitalize()}\n\n{role[phase]}" for phase in _PHASES if role.get(phase)]
    return "\n\n".join(parts)


def _edge(edge: Mapping[str, Any]) -> dict[str, Any]:
    texts = {key: edge.get(key) for key in ("role", "prompt", "location")}
    return {key: text for key, text in texts.items() if text not in (None, "")}
