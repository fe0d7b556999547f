"""Output schemas of roles: their problems, and what a role can answer.

Problems are invalid schemas, dangling references, invalid patterns, and typos that JSON Schema accepts as
annotations. Possible answers are statuses and the variables available to an edge's template.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from functools import cache, lru_cache
from itertools import chain, islice
from typing import Any, NamedTuple

from uwf_git.base.errors import Invalid
from uwf_git.base.text import closest, nearest, one_line
from uwf_git.format import cbor
from uwf_git.format.ids import DIALECT
from uwf_git.format.schema import (
    Problem,
    Schema,
    ValuePath,
    check_schema,
    path_of,
    refused_patterns,
    subschemas,
    value_at,
)
from uwf_git.format.shape import MOST_VARIANTS, Field, Variant, choices, resolve, types, variants, variants_of
from uwf_git.format.statuses import SUSPEND

HUMAN = frozenset(("needs_input", SUSPEND))
"""The statuses of an output that asks a human."""

_MOST_PROBLEMS = 50
_TYPES = ("string", "number", "integer", "boolean", "object", "array", "null")
_VOCABULARIES = (
    "core",
    "applicator",
    "unevaluated",
    "validation",
    "meta-data",
    "format-annotation",
    "content",
)
_SPREADING = frozenset(("$ref", "allOf", "anyOf", "oneOf", "if", "then", "else", "not", "dependentSchemas"))
# Legal as annotations and in wide use, so no slip of a keyword they resemble.
_CUSTOM = frozenset(("example", "options", "title", "name", "label", "optional", "hint"))


class SchemaProblem(NamedTuple):
    """A problem at `path`; warnings allow registration. `is_pythons`: a pattern that only Python's `re` reads."""

    path: ValuePath
    is_error: bool
    message: str
    hint: str = ""
    is_pythons: bool = False


def schema_problems(schema: Any) -> list[SchemaProblem]:
    """Return at most 50 problems; empty if valid."""
    try:
        schema = cbor.normalise(schema)
        broken = check_schema(schema, recorded=True)  # patterns come with the rest
    except Invalid as error:
        return [SchemaProblem((), True, error.message, error.hint)]
    if broken:
        return [_explained(schema, path_of(schema, problem.path), problem.message) for problem in broken]
    each_problem = (problem for path, item in subschemas(schema) for problem in _in_one(schema, path, item))
    refused = (_of_pattern(schema, problem) for problem in refused_patterns(schema))
    problems = list(islice(chain(refused, each_problem), _MOST_PROBLEMS))
    if not any(problem.is_error for problem in problems):
        try:
            Schema(schema).problems({})  # the only way to notice references that go round in circles
        except Invalid as error:
            problems.append(SchemaProblem((), True, error.message, error.hint))
    return problems


def _in_one(root: Any, path: ValuePath, schema: dict[str, Any]) -> Iterator[SchemaProblem]:
    for keyword in ("$ref", "$dynamicRef"):
        if isinstance(target := schema.get(keyword), str) and not _resolves(root, target):
            shown = one_line(target, 80)
            if "://" in target or not target.startswith("#"):
                yield SchemaProblem(
                    (*path, keyword),
                    True,
                    f'{keyword} "{shown}" is another document, and none is fetched',
                    "put it under $defs, or !include it",
                )
            else:
                hint = nearest(target, [f"#/$defs/{name}" for name in root.get("$defs", ())])
                yield SchemaProblem((*path, keyword), True, f'{keyword} "{shown}" leads nowhere', hint)
    known = _keywords()
    for key in schema:
        if key not in known and key not in _CUSTOM and not key.startswith("x-"):
            meant = _suggest(key)
            if meant is not None:
                message = f'"{one_line(key, 40)}" is not a keyword of JSON Schema and has no effect'
                yield SchemaProblem((*path, key), False, message, f'did you mean "{meant}"?')
    yield from _required(root, path, schema)


def _required(root: Any, path: ValuePath, schema: dict[str, Any]) -> Iterator[SchemaProblem]:
    required, properties = schema.get("required"), schema.get("properties")
    if not required or properties is None or schema.get("patternProperties"):
        return
    is_closed = schema.get("additionalProperties") is False
    declared = set(properties)
    if any(part in _SPREADING for part in (*path, *schema)):
        # Parts that are combined may declare each other's fields.
        declared |= {name for _, item in subschemas(root) for name in item.get("properties", ())}
    for number, name in enumerate(required):
        shown, where = one_line(name, 40), (*path, "required", number)
        if is_closed and name not in properties:
            message = f'"{shown}" is required, yet neither declared nor allowed'
            yield SchemaProblem(where, True, message, nearest(name, properties))
        elif name not in declared:
            message = f'"{shown}" is required, and properties doesn\'t declare it'
            yield SchemaProblem(where, False, message, nearest(name, properties))


def _of_pattern(schema: Any, problem: Problem) -> SchemaProblem:
    path = path_of(schema, problem.path)
    pattern = path[-1] if len(path) > 1 and path[-2] == "patternProperties" else value_at(schema, path)
    try:
        re.compile(str(pattern))
    except (re.error, RecursionError, OverflowError):
        return SchemaProblem(path, True, problem.message)
    return SchemaProblem(path, True, problem.message, is_pythons=True)


@lru_cache(maxsize=1024)
def _suggest(key: str) -> str | None:
    return closest(key, _keywords())


@cache
def _keywords() -> tuple[str, ...]:
    from jsonschema_specifications import REGISTRY

    names = ["schema", *(f"meta/{name}" for name in _VOCABULARIES)]
    documents: list[Any] = [REGISTRY.contents(DIALECT.removesuffix("schema") + name) for name in names]
    return tuple(sorted({key for document in documents for key in document["properties"]}))


def _explained(schema: Any, path: ValuePath, message: str) -> SchemaProblem:
    value = value_at(schema, path)
    if path and path[-1] == "type" and isinstance(value, str):
        hint = nearest(value, _TYPES) or "types: " + ", ".join(_TYPES)
        return SchemaProblem(path, True, f'type "{one_line(value, 40)}" is unknown', hint)
    hint = ""
    if isinstance(value, str) and value in _TYPES:
        hint = f"write {{type: {value}}}"
    elif path and path[-1] == "required" and isinstance(value, bool):
        hint = "required is a list of names, beside properties"
    where = "/".join(str(part) for part in path)
    return SchemaProblem(path, True, f"{where}: {message}" if where else message, hint)


def _resolves(root: Any, target: str) -> bool:
    if target.startswith("#"):
        pointer = target[1:]
        if pointer == "" or pointer.startswith("/"):
            return value_at(root, path_of(root, pointer)) is not None
        anchors = ("$anchor", "$dynamicAnchor")
        return any(pointer == item.get(key) for _, item in subschemas(root) for key in anchors)
    document = target.split("#")[0]
    if document == DIALECT or document.startswith("https://json-schema.org/draft/2020-12/"):
        return True
    return any(document == item.get("$id") for _, item in subschemas(root))


class Answers(NamedTuple):
    """A role's possible outputs. `statuses` are those listed; `free`: other texts too; `silent`: possibly
    none. `known` is False if the schema is too complex."""

    schema: Any
    variants: tuple[Variant, ...]
    statuses: tuple[str, ...]
    free: bool
    silent: bool
    known: bool

    def has(self, variable: tuple[str, ...], status: str | None) -> bool:
        """Return whether an output, of a `status` if given, can have a variable."""
        if not self.known:
            return True
        return any(_holds(self.schema, variant, variable, 0) for variant in self._with(status))

    def may_lack(
        self, variable: tuple[str, ...], status: str | None, others: Collection[str] | None
    ) -> tuple[str, ...]:
        """Return the part of a variable that an output taking an edge may omit: an edge of this `status`, or
        of none of `others`; () if none. With `others` None, a condition chose the output, which is assumed to
        have what some output must have."""
        if not self.known:
            return ()
        lacking: list[tuple[str, ...]] = []
        for variant in self.variants:
            listed = _statuses(self.schema, variant)
            if others is not None and listed is not None:
                taken = {status} & {*listed} if status is not None else {*listed} - {*others}
                if not taken and (listed or status is not None):
                    continue
            lacking.append(_may_lack(self.schema, variant, variable))
        if others is None and not all(lacking):
            return ()
        return max(lacking, key=len, default=())

    def fields(self, status: str | None = None) -> tuple[str, ...]:
        """Return the field names of all variants, or those of a status."""
        return tuple(dict.fromkeys(field.name for variant in self._with(status) for field in variant.fields))

    def _with(self, status: str | None) -> Sequence[Variant]:
        fitting = [
            variant
            for variant in self.variants
            if status is None or (listed := _statuses(self.schema, variant)) is None or status in listed
        ]
        return fitting or self.variants


def answers_of(schema: Any) -> Answers:
    """Return the possible outputs of a valid schema."""
    alternatives = variants(schema)
    per_variant = [_statuses(schema, variant) for variant in alternatives]
    return Answers(
        schema,
        alternatives,
        tuple(dict.fromkeys(status for item in per_variant for status in item or ())),
        free=any(item is None for item in per_variant),
        silent=any(
            (field := _status_field(variant)) is None or not field.required for variant in alternatives
        ),
        # A variant that declares nothing may hold anything.
        known=len(alternatives) < MOST_VARIANTS
        and all(variant.fields or variant.closed for variant in alternatives),
    )


def _status_field(variant: Variant) -> Field | None:
    return variant.field("$status") or variant.field("status")


def _statuses(root: Any, variant: Variant) -> tuple[str, ...] | None:
    field = _status_field(variant)
    if field is None:
        return ()
    listed = choices(root, field.schema)
    if listed is not None:
        return tuple(value for value in listed if isinstance(value, str))
    kinds = types(field.schema)
    return () if kinds and "string" not in kinds else None


def _holds(root: Any, variant: Variant, variable: tuple[str, ...], depth: int) -> bool:
    field = variant.field(variable[0])
    if field is None:
        return not variant.fields and not variant.closed
    return _reaches(root, field.schema, variable[1:], depth)


def _may_lack(root: Any, variant: Variant, variable: tuple[str, ...], depth: int = 1) -> tuple[str, ...]:
    if depth > min(len(variable), 20):
        return ()
    field = variant.field(variable[depth - 1])
    if field is None or not field.required:
        return variable[:depth]
    schema = resolve(root, field.schema)
    if depth == len(variable) or "object" not in types(schema):
        return ()
    ways = variants_of(root, schema)
    if any(not way.fields and not way.closed for way in ways):
        return ()
    return next((lacking for way in ways if (lacking := _may_lack(root, way, variable, depth + 1))), ())


def _reaches(root: Any, schema: Any, rest: tuple[str, ...], depth: int) -> bool:
    if not rest or depth > 20:
        return True
    schema = resolve(root, schema)
    kinds = types(schema)
    if kinds and "object" not in kinds:
        return False
    return any(_holds(root, variant, rest, depth + 1) for variant in variants_of(root, schema))
