"""Abstract values of expressions, by schemas: the history, outputs' fields, list items. A value is a tuple of
possible schemas, None if unknown."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from uwf_git.format.endings import AT_JOIN
from uwf_git.format.kinds import CONTENT, ISSUE_FIELDS, TIMESTAMP
from uwf_git.format.shape import MOST_VARIANTS, choices, resolve, types, variants_of
from uwf_git.format.statuses import SUSPEND
from uwf_git.format.types import FORK, JOIN, USER

_ANSWER = "\0answer"  # in a schema: it is that of a role's answer, in a pair with the role
_STEPS = "\0steps"  # in a schema: it is that of the list of steps
_BRANCH = "\0branch"  # in a schema: it is that of a branch at its join
_LAST = "\0last"  # in a schema: a step that may be the last one
_MAX_ALTERNATIVES = 200
_DEEPEST = 20

HISTORY, STEP, BRANCH, START_OF, SCHEMA_OF = "the history", "a step", "a branch", "start", "the schema of "
"""Whose something is, for messages; the last is followed by a role in quotes."""


class Alternative(NamedTuple):
    """A possible schema, None if unknown. `whose` is its owner or ""; `root` resolves its references."""

    root: Any
    schema: Any
    whose: str = ""


Value = tuple[Alternative, ...] | None


class Constant(NamedTuple):
    """An enum value or a literal."""

    value: Any


Atom = Constant | frozenset[str]
"""A constant, or the types that something may have; an integer's is number."""


def of_schema(schema: Any) -> Value:
    return (Alternative(schema, schema),)


_A_TEXT = {"type": "string"}
TEXT, NUMBER, BOOLEAN = of_schema(_A_TEXT), of_schema({"type": "number"}), of_schema({"type": "boolean"})


def history(
    roles: Collection[str],
    schemas: Mapping[str, Any],
    last: Collection[str],
    joins: Mapping[str, Collection[str]] = {},
) -> Value:
    """Return the value that conditions see after a step of one of the roles or joins `last`. `schemas` are the known
    ones of roles' outputs; `joins` the roles that branches end with, "" for any, by the name of their join."""
    question = {"status": {"const": "needs_input"}, "$status": {"const": SUSPEND}, "question": _A_TEXT}
    question |= {"options": {"type": "array"}, "reason": _A_TEXT}
    steps = [_step(role, {_ANSWER: (role, schemas.get(role))}, role in last) for role in roles]
    steps += [_step(role, {"type": "object", "properties": question}) for role in roles]
    steps.append(_step(USER, {"type": "object", "properties": {"answer": _A_TEXT}}))
    own = {"workflow": _A_TEXT, "prompt": _A_TEXT, "index": {"type": "integer"}, "item": {}}
    issue: dict[str, Any] = {**dict.fromkeys(ISSUE_FIELDS, _A_TEXT), "number": {"type": "integer"}}
    issue["labels"] = {"type": "array", "items": _A_TEXT}
    seen: dict[str, Any] = {"start": {"type": "object", "properties": own}}
    seen["issue"] = {"type": "object", "properties": issue}
    joined: list[Any] = []
    for name, ending in joins.items():
        branches = [
            _branch({_ANSWER: (role, schemas.get(role))} if role else {}) for role in sorted(ending or ("",))
        ]
        output = {"summary": _A_TEXT, "branches": {"type": "array", _STEPS: branches}}
        steps += [_step(FORK, {}), _step(JOIN, {"type": "object", "properties": output}, name in last)]
        joined += branches if name in last else []
    if joined:
        seen["branches"] = {"type": "array", _STEPS: joined}
    seen["steps"] = {"type": "array", _STEPS: steps}
    schema = {"type": "object", "properties": seen}
    return (Alternative(schema, schema, HISTORY),)


def _step(role: str, output: Any, may_be_last: bool = False) -> dict[str, Any]:
    properties = {"role": {"const": role}, "output": output, "detail": _A_TEXT, "agent": _A_TEXT}
    properties |= {CONTENT: _A_TEXT, TIMESTAMP: {"type": "integer"}}
    return {"type": "object", "properties": properties, **({_LAST: True} if may_be_last else {})}


def _branch(output: Any) -> dict[str, Any]:
    status = {"enum": [*AT_JOIN]}
    step = {"type": ["string", "null"]}
    properties = {"status": status, "thread": _A_TEXT, "step": step, "output": output, "reason": _A_TEXT}
    return {"type": "object", "properties": properties, _BRANCH: True}


def either(values: Iterable[Value]) -> Value:
    alternatives: list[Alternative] = []
    for value in values:
        if value is None:
            return None
        alternatives += value
    return tuple(alternatives)


def items(value: Value, depth: int = 0) -> Value:
    """Return the items of lists, other values unchanged, as JSONata paths do."""
    if value is None or depth > _DEEPEST:
        return None
    alternatives: list[Alternative] = []
    for alternative in map(_settled, value):
        schema = alternative.schema
        if schema is None:
            return None
        if (steps := schema.get(_STEPS)) is not None:
            alternatives += [Alternative(step, step, BRANCH if _BRANCH in step else STEP) for step in steps]
            continue
        if "array" not in types(schema):
            alternatives.append(alternative)
            continue
        parts = [*schema.get("prefixItems", ()), *([schema["items"]] if "items" in schema else ())]
        if not parts or any(not isinstance(part, Mapping) for part in parts):
            return None
        inner = items(tuple(alternative._replace(schema=part) for part in parts), depth + 1)
        if inner is None:
            return None
        alternatives += inner
    return tuple(alternatives)


def last_of(value: Value) -> Value:
    """Return a list's last item; of the steps, those that may be last."""
    items_here = items(value)
    if items_here and value and isinstance(value[0].schema, Mapping) and _STEPS in value[0].schema:
        return tuple(item for item in items_here if item.schema.get(_LAST)) or None
    return value


def may_be_list(value: Value) -> bool:
    """Return whether a value may be a list."""
    if value is None:
        return True
    known = [
        () if alternative.schema is None else types(alternative.schema)
        for alternative in map(_settled, value)
    ]
    return any(not kinds or "array" in kinds for kinds in known)


def of_role(value: Value, role: str) -> Value:
    """Return the items that may be steps of a role."""
    kept = tuple(
        item
        for item in items(value) or ()
        if item.schema.get("properties", {}).get("role", {}).get("const", role) == role
    )
    return kept or None


class Field(NamedTuple):
    """A looked-up field: its `value`, () if missing, and the existing names with their owners."""

    value: Value
    known: Mapping[str, str]
    owners: tuple[str, ...]


def field_of(value: Value, name: str) -> Field:
    """Return a field of a value, or of each item."""
    reached: list[Alternative] = []
    known: dict[str, str] = {}
    within = items(value)
    if within is None:
        return Field(None, known, ())
    for root, schema, whose in within:
        kinds = types(schema)
        if kinds and "object" not in kinds:
            continue
        ways = variants_of(root, schema)
        if len(ways) >= MOST_VARIANTS or any(not way.fields and not way.closed for way in ways):
            return Field(None, known, ())
        for way in ways:
            for field in way.fields:
                if not known.get(field.name, "").startswith(SCHEMA_OF):
                    known[field.name] = whose
            if (inner := way.field(name)) is not None:
                below = (START_OF if name == "start" else STEP) if whose == HISTORY else whose
                reached.append(Alternative(root, inner.schema, below))
    owners = tuple(dict.fromkeys(alternative.whose for alternative in within if alternative.whose))
    return Field(tuple(reached) if len(reached) <= _MAX_ALTERNATIVES else None, known, owners)


def _settled(alternative: Alternative) -> Alternative:
    schema = alternative.schema
    if isinstance(schema, Mapping) and (answer := schema.get(_ANSWER)) is not None:
        role, own = answer
        return Alternative(own, None if own is None else resolve(own, own), f'{SCHEMA_OF}"{role}"')
    return alternative._replace(schema=resolve(alternative.root, schema))


def atoms(value: Value) -> list[Atom] | None:
    """Return everything a value may be, including list items; None if unknown."""
    if value is None:
        return None
    atoms_here: list[Atom] = []
    waiting = [(alternative, 0) for alternative in value]
    while waiting:
        alternative, depth = waiting.pop()
        alternative = _settled(alternative)
        root, schema, _ = alternative
        if schema is None or depth > _DEEPEST or len(atoms_here) > _MAX_ALTERNATIVES:
            return None
        if (listed := choices(root, schema)) is not None:
            atoms_here += [Constant(item) for item in listed]
            continue
        kinds = types(schema)
        if not kinds or any(word in schema for word in ("allOf", "anyOf", "oneOf", "if")):
            return None
        atoms_here.append(frozenset("number" if kind == "integer" else kind for kind in kinds))
        if "array" in kinds:
            inner = items((alternative,))
            if inner is None:
                return None
            waiting += [(item, depth + 1) for item in inner]
    return atoms_here


def kinds_of(atom: Atom) -> frozenset[str]:
    if isinstance(atom, frozenset):
        return atom
    value = atom.value
    if value is None:
        return frozenset(("null",))
    for kind, word in ((bool, "boolean"), (int | float, "number"), (str, "string"), (list, "array")):
        if isinstance(value, kind):
            return frozenset((word,))
    return frozenset(("object",))


def may_equal(one: Atom, other: Atom) -> bool:
    if isinstance(one, Constant) and isinstance(other, Constant):
        # In Python a boolean is a number.
        return one == other and kinds_of(one) == kinds_of(other)
    return bool(kinds_of(one) & kinds_of(other))
