"""JSON Schema (draft 2020-12): validating payloads and finding their references.

Patterns are those of ECMA 262. Outputs that were accepted when they were Python's stay valid, as `recorded`.

References are strings whose schema has `"format": "cas_ref"` (or `ocas_ref`). They are found through
subschemas that the value satisfies, as JSON Schema defines annotations (core specification, section 7.7.1),
never by a string's look.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.base import lifetime
from uwf_git.base.errors import Invalid
from uwf_git.base.text import counted, one_line
from uwf_git.base.timelimit import MemoryExceeded, TimeExceeded, time_limit
from uwf_git.format.ids import DIALECT, REFERENCE_FORMATS, Hash, is_hash
from uwf_git.format.quick_schema import Check, plain_check

if TYPE_CHECKING:
    from jsonschema.protocols import Validator


SECONDS = 5.0

ValuePath = tuple[str | int, ...]
"""The keys and positions that lead from the top of a value to a part of it."""

_ONE = (
    "additionalProperties",
    "contains",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
)
_LIST = ("allOf", "anyOf", "oneOf", "prefixItems")
_NAMED = ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties")


class Problem(NamedTuple):
    """A violation. `path` is a JSON Pointer, "" for the root."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path or '(whole value)'}: {self.message}"


def _undecided(_value: Any) -> bool:
    return False


class Schema:
    """A schema, compiled on demand: most are only searched for references."""

    def __init__(self, payload: Any) -> None:
        self.payload = payload
        self._quick: Check | None = None
        self._validator: Validator | None = None
        self._resolver: Any = None
        self._text = json.dumps(payload)
        self._applied: Any = None
        self.has_references = any(f'"{name}"' in self._text for name in REFERENCE_FORMATS)

    @property
    def applied(self) -> Any:
        """The payload with its patterns as Python's `re` has them."""
        if self._applied is None:
            self._applied = _for_python(self.payload) if '"pattern' in self._text else self.payload
        return self._applied

    def plainly_fits(self, value: Any) -> bool:
        """Return whether the schema is plain and the value valid, which takes no validator; False decides nothing."""
        if self._quick is None:
            self._quick = plain_check(self.payload) or _undecided
        return self._quick(value)

    def problems(self, value: Any, at_most: int = 20, recorded: bool = False) -> list[Problem]:
        """Return a value's problems, most telling first; of a `recorded` value none if it is valid with the
        patterns read as Python's. Raises Invalid if the schema cannot be applied (an unknown $ref) or takes
        more than five seconds."""
        if self.plainly_fits(value):
            return []
        if not lifetime.limits_code():
            from uwf_git.base import helper_process

            try:
                problems = helper_process.call(
                    f"{__name__}:problems_of", self.payload, value, at_most, recorded
                )
            except (TimeExceeded, MemoryExceeded):
                raise _takes_long() from None
            return [Problem(*problem) for problem in problems]
        from referencing.exceptions import Unresolvable

        try:
            with time_limit(SECONDS):
                validator = self.validator()
                errors = list(islice(validator.iter_errors(value), at_most))
                if errors and recorded and self.applied != self.payload:
                    before = validator.evolve(schema=self.payload)
                    errors = list(islice(before.iter_errors(value), at_most))
        except Unresolvable as error:
            raise _leads_nowhere(error.ref) from None
        except TimeExceeded:
            raise _takes_long() from None
        except re.error as error:
            raise Invalid(f"schema has a pattern that is not a regular expression: {error}") from None
        except RecursionError:
            raise Invalid("schema recurses without end", "look for a $ref to itself") from None
        messages: list[Problem] = []
        for item in errors:
            for leaf in _leaves(item):
                messages.append(Problem(_pointer(leaf.absolute_path), _shorten(_message(leaf))))
        return list(dict.fromkeys(messages))[:at_most]

    def is_valid(self, value: Any) -> bool:
        return not self.problems(value, at_most=1)

    def references(self, value: Any) -> list[Hash]:
        """Return the hashes that a value references, in order, each once."""
        if not self.has_references:
            return []
        return list(dict.fromkeys(self._collect(self.applied, value, frozenset())))

    def resolve(self, target: str) -> Any:
        """Return the subschema of a `$ref`. Raises Invalid."""
        from jsonschema_specifications import REGISTRY
        from referencing.exceptions import Unresolvable
        from referencing.jsonschema import DRAFT202012

        if self._resolver is None:
            self._resolver = REGISTRY.resolver_with_root(DRAFT202012.create_resource(self.applied))
        try:
            return self._resolver.lookup(target).contents
        except Unresolvable:
            raise _leads_nowhere(target) from None

    def validator(self) -> Validator:
        """The jsonschema validator: no formats but references, nothing fetched."""
        if self._validator is None:
            from jsonschema import Draft202012Validator, FormatChecker
            from jsonschema.validators import extend
            from jsonschema_specifications import REGISTRY

            validator = Draft202012Validator
            if '"multipleOf"' in self._text:
                validator = extend(validator, {"multipleOf": _multiple_of})  # type: ignore[no-untyped-call]
            formats = FormatChecker(formats=())
            for name in REFERENCE_FORMATS:
                formats.checks(name)(_may_be_reference)
            # An explicit registry: the default one would fetch unknown $refs over the network.
            self._validator = validator(self.applied, format_checker=formats, registry=REGISTRY)
        return self._validator

    def _collect(self, schema: Any, value: Any, seen: frozenset[tuple[int, int]]) -> Iterator[Hash]:
        if not isinstance(schema, dict) or (id(schema), id(value)) in seen:
            return
        seen = seen | {(id(schema), id(value))}
        if schema.get("format") in REFERENCE_FORMATS and is_hash(value):
            yield Hash(value)
        yield from self._in_place(schema, value, seen)
        if isinstance(value, dict):
            yield from self._object(schema, value)
        elif isinstance(value, list):
            yield from self._array(schema, value)

    def _in_place(self, schema: Any, value: Any, seen: frozenset[tuple[int, int]]) -> Iterator[Hash]:
        for keyword in ("$ref", "$dynamicRef"):
            if isinstance(target := schema.get(keyword), str):
                yield from self._collect(self.resolve(target), value, seen)
        for keyword in ("allOf", "anyOf", "oneOf"):
            for branch in schema.get(keyword, ()):
                if keyword == "allOf" or self._fits(branch, value):
                    yield from self._collect(branch, value, seen)
        if "if" in schema:
            fits = self._fits(schema["if"], value)
            if fits:
                yield from self._collect(schema["if"], value, seen)
            yield from self._collect(schema.get("then" if fits else "else"), value, seen)
        if isinstance(value, dict):
            for name, branch in schema.get("dependentSchemas", {}).items():
                if name in value:
                    yield from self._collect(branch, value, seen)

    def _object(self, schema: Any, value: dict[str, Any]) -> Iterator[Hash]:
        others = [schema.get("additionalProperties"), schema.get("unevaluatedProperties")]
        for key, item in value.items():
            for branch in property_schemas(schema, key) or others:
                yield from self._collect(branch, item, frozenset())

    def _array(self, schema: Any, value: list[Any]) -> Iterator[Hash]:
        prefix = schema.get("prefixItems", ())
        for number, item in enumerate(value):
            if number < len(prefix):
                yield from self._collect(prefix[number], item, frozenset())
                continue
            for keyword in ("items", "unevaluatedItems"):
                yield from self._collect(schema.get(keyword), item, frozenset())
            if "contains" in schema and self._fits(schema["contains"], item):
                yield from self._collect(schema["contains"], item, frozenset())

    def _fits(self, branch: Any, value: Any) -> bool:
        if isinstance(branch, bool):
            return branch
        if set(branch) <= {"type", "format", "title", "description"} and isinstance(branch.get("type"), str):
            # The nullable reference, everywhere in practice: no need for the validator.
            kind = branch["type"]
            if kind == "null":
                return value is None
            if kind == "string":
                return isinstance(value, str) and (branch.get("format") is None or is_hash(value))
        return bool(self.validator().evolve(schema=branch).is_valid(value))


def _multiple_of(validator: Any, factor: Any, value: Any, schema: Any) -> Iterator[Any]:
    """Check multipleOf in decimal, as it is written: in binary 0.3 is no multiple of 0.1."""
    from decimal import Context, Decimal

    from jsonschema import Draft202012Validator

    binary = Draft202012Validator.VALIDATORS["multipleOf"]
    # What was valid in binary stays valid: outputs are stored with it.
    errors = list(binary(validator, factor, value, schema) or ())
    exact = Context(prec=700)
    if errors and exact.remainder(Decimal(repr(value)), Decimal(repr(factor))) != 0:
        yield from errors


def _for_python(schema: Any) -> Any:
    from uwf_git.format.ecma_pattern import translate_recorded

    if not isinstance(schema, dict):
        return schema
    applied: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _ONE:
            value = _for_python(value)
        elif key in _LIST and isinstance(value, list):
            value = [_for_python(item) for item in value]
        elif key in _NAMED and isinstance(value, dict):
            inner: dict[str, Any] = {}
            for name, item in value.items():
                if key == "patternProperties":
                    name = translate_recorded(name)
                    while name in inner:  # of two that say the same
                        name += "(?:)"
                inner[name] = _for_python(item)
            value = inner
        elif key == "pattern" and isinstance(value, str):
            value = translate_recorded(value)
        applied[key] = value
    return applied


def problems_of(payload: Any, value: Any, at_most: int, recorded: bool) -> list[Problem]:
    """As `Schema.problems`."""
    return Schema(payload).problems(value, at_most, recorded)


def _takes_long() -> Invalid:
    return Invalid(f"schema takes over {SECONDS:g} s to check", "simplify its patterns")


def check_schema(payload: Any, recorded: bool = False) -> list[Problem]:
    """Return why a payload isn't a JSON Schema; empty if it is. A `recorded` one may have other patterns than
    those of ECMA 262."""
    if plain_check(payload) is not None:
        return []
    from jsonschema import Draft202012Validator

    if isinstance(payload, dict) and payload.get("$schema", DIALECT).rstrip("#") != DIALECT:
        return [Problem("/$schema", f"only {DIALECT} is supported")]
    problems = Schema(Draft202012Validator.META_SCHEMA).problems(payload)
    return problems if problems or recorded else list(islice(refused_patterns(payload), 20))


def refused_patterns(payload: Any) -> Iterator[Problem]:
    """Yield the patterns of a schema that are not ECMA 262's, or that uwf does not support."""
    from uwf_git.format.ecma_pattern import PatternRefused, translate

    for path, schema in subschemas(payload):
        patterns: list[tuple[ValuePath, str]] = (
            [(("pattern",), schema["pattern"])] if "pattern" in schema else []
        )
        patterns += [(("patternProperties", name), name) for name in schema.get("patternProperties", ())]
        for keys, pattern in patterns:
            try:
                translate(pattern)
            except PatternRefused as error:
                yield Problem(_pointer((*path, *keys)), f'pattern "{one_line(pattern, 60)}": {error}')


def subschemas(schema: Any, path: ValuePath = ()) -> Iterator[tuple[ValuePath, dict[str, Any]]]:
    """Yield a schema and its subschemas with paths; not in const, enum or default, and without true and
    false."""
    if not isinstance(schema, dict):
        return
    yield path, schema
    for key, value in schema.items():
        if key in _ONE:
            yield from subschemas(value, (*path, key))
        elif key in _LIST and isinstance(value, list):
            for number, item in enumerate(value):
                yield from subschemas(item, (*path, key, number))
        elif key in _NAMED and isinstance(value, dict):
            for name, item in value.items():
                yield from subschemas(item, (*path, key, name))


def property_schemas(schema: dict[str, Any], name: str) -> list[Any]:
    """Return a property's subschemas in `properties` and `patternProperties`, else `additionalProperties`, of
    a schema as `Schema.applied` has it. Raises re.error for an invalid pattern."""
    schemas = [schema["properties"][name]] if name in schema.get("properties", ()) else []
    patterns = schema.get("patternProperties", {})
    return schemas + [inner for pattern, inner in patterns.items() if re.search(pattern, name)]


def path_of(root: Any, pointer: str) -> ValuePath:
    """Convert a JSON Pointer to a path in a value; list positions become numbers."""
    path: list[str | int] = []
    for part in pointer.split("/")[1:]:
        part = part.replace("~1", "/").replace("~0", "~")
        path.append(int(part) if isinstance(root, list) and part.isascii() and part.isdigit() else part)
        root = value_at(root, path[-1:])
    return tuple(path)


def value_at(root: Any, path: Sequence[str | int]) -> Any:
    """Return the value at a path, None if missing."""
    for step in path:
        in_list = isinstance(root, list) and isinstance(step, int) and step < len(root)
        if not in_list and not (isinstance(root, dict) and step in root):
            return None
        root = root[step]
    return root


def _leads_nowhere(target: str) -> Invalid:
    return Invalid(f"schema refers to {target!r}, which it does not hold", "use $defs")


def _may_be_reference(value: object) -> bool:
    return not isinstance(value, str) or is_hash(value)


def _leaves(error: Any) -> Iterator[Any]:
    if error.validator in ("anyOf", "oneOf") and error.context:
        branches: dict[int, list[Any]] = {}
        for inner in error.context:
            branches.setdefault(inner.schema_path[0], []).append(inner)
        closest = min(branches.values(), key=_distance)
        for inner in closest:
            yield from [together] if (together := _listed(inner, branches.values())) else _leaves(inner)
    else:
        yield error


def _listed(error: Any, branches: Iterable[list[Any]]) -> Any:
    from jsonschema.exceptions import ValidationError

    listed: list[Any] = []
    for errors in branches:
        same = [item for item in errors if item.absolute_path == error.absolute_path]
        lists = [item for item in same if item.validator in ("const", "enum")]
        if not lists:
            return None
        value = lists[0].validator_value
        listed += [value] if lists[0].validator == "const" else value
    known = list({json.dumps(item, sort_keys=True): item for item in listed}.values())
    if len(known) < 2:
        return None
    return ValidationError(
        f"{error.instance!r} is not one of {known!r}", validator="enum", path=error.absolute_path
    )


def _distance(errors: list[Any]) -> tuple[int, int]:
    return (sum(error.validator in ("const", "enum", "type") for error in errors), len(errors))


def _pointer(path: Iterable[str | int]) -> str:
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


_LARGE = r"(?a)[-+]?(?:[0-9]{16,}(?:\.[0-9]*)?|[0-9.]+[eE]\+?[0-9]{2,})"
_COUNTED = {"Items": "item", "Length": "character", "Properties": "field"}


def _message(error: Any) -> str:
    for ending, what in _COUNTED.items():
        if error.validator in (f"min{ending}", f"max{ending}"):
            limit = error.validator_value
            if error.validator.startswith("min"):
                return f"needs at least {counted(limit, what)}"
            return f"has {counted(len(error.instance), what)}, and at most {limit} are allowed"
    if error.validator == "type" and _is_large(error):
        return f"{error.instance} is outside ±(2^53-1), which JSON numbers are exact in; let the field be a string"
    return str(error.message)


def _is_large(error: Any) -> bool:
    """Return whether a number is wanted, and a reader of answers had to leave it as text."""
    kinds = error.validator_value if isinstance(error.validator_value, list) else [error.validator_value]
    text = error.instance
    if not {"integer", "number"} & set(kinds) or not isinstance(text, str):
        return False
    return re.fullmatch(_LARGE, text.strip()) is not None


def _shorten(message: str) -> str:
    return message if len(message) <= 300 else message[:200] + " … " + message[-90:]
