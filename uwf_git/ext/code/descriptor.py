"""Parsing a descriptor into a Bundle node and its roles' schemas.

    {name, description, roles: {<role>: {description, schema, systemPrompt, extractPrompt}},
     graph: {edges: [{from, to, condition, conditionDescription}]}, maxRounds, budget}

Required are `description` and `roles`, and a role's `description` and `schema`. `graph` is for people; its
ends may be `__start__` and `__end__`, and a condition `FALLBACK` is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from uwf_git.plugin import (
    END,
    MOST_ROUNDS,
    START,
    Document,
    Findings,
    Hash,
    ValuePath,
    cbor,
    check_role_schema,
    hash_of,
    kind_of,
    means_end,
    means_start,
    name_problem,
    one_line,
    parse_budget,
    schemas,
)

_TOP = ("name", "description", "roles", "graph", "maxRounds", "budget")
_ROLE = ("description", "schema", "systemPrompt", "extractPrompt")
_EDGE = ("from", "to", "condition", "conditionDescription")
_OTHERWISE = ("FALLBACK", "")


class Descriptor(NamedTuple):
    """The Bundle's payload, possibly without `name`, and the schemas' payloads."""

    payload: dict[str, Any]
    schemas: Mapping[Hash, Any]


def parse_descriptor(document: Document, findings: Findings) -> Descriptor:
    """Parse a descriptor; problems are reported and skipped."""
    return _Reader(findings).descriptor(document.data)


class _Reader:
    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._schemas: dict[Hash, Any] = {}

    def descriptor(self, data: Any) -> Descriptor:
        top = self._mapping(data, (), "the descriptor", _TOP)
        payload: dict[str, Any] = {"description": self._text(top, (), "description", "the descriptor")}
        if top.get("name") is not None:
            payload["name"] = self._text(top, (), "name", "the descriptor")
            if payload["name"] and (problem := name_problem(payload["name"])):
                message = f'workflow name "{one_line(payload["name"], 60)}" {problem}'
                self._findings.error(("name",), "bad-name", message)
        payload["roles"] = self._roles(top)
        payload["graph"] = self._graph(top.get("graph"), payload["roles"])
        rounds = top.get("maxRounds")
        if rounds is not None:
            if isinstance(rounds, bool) or rounds not in range(1, MOST_ROUNDS + 1):
                message = f"the descriptor: maxRounds is a number from 1 to {MOST_ROUNDS:,}"
                self._findings.error(("maxRounds",), "wrong-type", message)
            payload["maxRounds"] = rounds
        limits, problems = parse_budget(top.get("budget"))
        for key, message, hint in problems:
            path: ValuePath = ("budget",) if key is None else ("budget", key)
            self._findings.error(path, "bad-budget", message, hint)
        if limits:
            payload["budget"] = limits
        return Descriptor(payload, self._schemas)

    def _roles(self, top: Mapping[str, Any]) -> dict[str, Any]:
        if "roles" not in top:
            hint = "roles: { writer: { description, schema } }"
            self._findings.error((), "missing-key", "the descriptor has no roles", hint)
            return {}
        mapping = self._mapping(top["roles"], ("roles",), "roles", None)
        if not mapping and isinstance(top["roles"], dict):
            self._findings.error(("roles",), "missing-key", "roles is empty")
        return {name: self._role(name, value) for name, value in mapping.items()}

    def _role(self, name: str, value: Any) -> dict[str, Any]:
        path: ValuePath = ("roles", name)
        what = f'role "{one_line(name, 60)}"'
        if name.startswith(("$", "__")):
            message = f"{what}: names with $ and __ are reserved"
            self._findings.key_error(path, "reserved-name", message, "rename the role")
        elif problem := name_problem(name):
            self._findings.key_error(path, "bad-name", f"role name {what.removeprefix('role ')} {problem}")
        mapping = self._mapping(value, path, what, _ROLE)
        role = {"description": self._text(mapping, path, "description", what)}
        for key in ("systemPrompt", "extractPrompt"):
            if mapping.get(key) is not None:
                role[key] = self._text(mapping, path, key, what)
        role.setdefault("systemPrompt", "")
        schema = mapping.get("schema")
        if "schema" not in mapping and isinstance(value, dict):
            hint = "give the JSON Schema of its meta"
            self._findings.key_error(path, "missing-key", f"{what} has no schema", hint)
        elif isinstance(value, dict) and not isinstance(schema, dict):
            self._wrong_type((*path, "schema"), f"{what}: schema", "a JSON Schema", schema)
        elif isinstance(schema, dict) and check_role_schema(name, schema, (*path, "schema"), self._findings):
            schema = cbor.normalise(schema)
            role["outputSchema"] = hash_of(schemas.META, schema)
            self._schemas[Hash(role["outputSchema"])] = schema
        return role

    def _graph(self, value: Any, roles: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
        graph: dict[str, list[dict[str, Any]]] = {}
        if value is None:
            return graph
        mapping = self._mapping(value, ("graph",), "graph", ("edges",))
        edges = mapping.get("edges", [])
        if not isinstance(edges, list):
            self._wrong_type(("graph", "edges"), "graph: edges", "a list", edges)
            return graph
        for number, item in enumerate(edges):
            path: ValuePath = ("graph", "edges", number)
            edge = self._mapping(item, path, f"edge {number}", _EDGE)
            source = self._end(edge, path, "from", roles)
            target = self._end(edge, path, "to", roles)
            condition = edge.get("condition")
            if condition is not None and not isinstance(condition, str):
                self._wrong_type((*path, "condition"), f"edge {number}: condition", "text", condition)
            elif source and target:
                condition = None if condition in _OTHERWISE else condition
                graph.setdefault(source, []).append({"role": target, "condition": condition})
        return graph

    def _end(self, edge: Mapping[str, Any], path: ValuePath, key: str, roles: Mapping[str, Any]) -> str:
        what = f"edge {path[-1]}"
        name = edge.get(key)
        if not isinstance(name, str):
            if key in edge:
                self._wrong_type((*path, key), f"{what}: {key}", "text", name)
            elif edge:
                self._findings.error(path, "missing-key", f"{what} has no {key}")
            return ""
        if name in roles:
            return name
        if (means_start if key == "from" else means_end)(name):
            return START if key == "from" else END
        message = f'{what}: role "{one_line(name, 60)}" is not defined'
        self._findings.error((*path, key), "unknown-role", message, self._findings.nearest(name, roles))
        return ""

    def _mapping(
        self, value: Any, path: ValuePath, what: str, known: tuple[str, ...] | None
    ) -> dict[str, Any]:
        """Return the mapping at a path; {} with a finding if invalid. `known` None allows all keys."""
        if not isinstance(value, dict):
            self._wrong_type(path, what, "a mapping", value)
            return {}
        own = {key: item for key, item in value.items() if known is None or not key.startswith("x-")}
        for key in own.keys() - set(known or own):
            message = f'{what} has no key "{one_line(key, 60)}"'
            hint = self._findings.nearest(key, known or ()) or "known: " + ", ".join(known or ())
            self._findings.key_error((*path, key), "unknown-key", message, hint)
        return own

    def _text(self, data: Mapping[str, Any], path: ValuePath, key: str, what: str) -> str:
        if key not in data:
            if data:
                self._findings.key_error(path, "missing-key", f"{what} has no {key}")
            return ""
        value = data[key]
        if not isinstance(value, str):
            self._wrong_type((*path, key), f"{what}: {key}", "text", value)
            return ""
        return value

    def _wrong_type(self, path: ValuePath, what: str, wanted: str, value: Any) -> None:
        self._findings.error(path, "wrong-type", f"{what} must be {wanted}, not {kind_of(value)}")
