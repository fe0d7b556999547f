"""Sample outputs from a role's schema: valid, deterministic, and covering every edge.

A value results from choices: status, `oneOf` branch, boolean. The plainest takes the first of each; others
differ in one choice, then two, and so on, routing choices first. Thorough ones also omit optional fields,
vary numbers and lengths, and use literals of conditions. Every value is validated.
"""

import heapq
import json
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from uwf_git.base.errors import Invalid
from uwf_git.base.timelimit import TimeExceeded, time_limit
from uwf_git.format.ids import REFERENCE_FORMATS, Hash
from uwf_git.format.kinds import Workflow
from uwf_git.format.schema import Schema, property_schemas
from uwf_git.format.shape import resolve

MOST_VARIANTS = 48
SECONDS = 5.0
_MOST_LITERALS = 12
_MOST_TRIES = 400
_DEEP = 6
_DEEPEST = 30
_MOST_ITEMS = 50
_MOST_TEXT = 5_000

# A choice's distance from the fields that routing depends on.
_ROUTING, _EXAMPLE, _LITERAL, _SIZE, _PRESENCE = 1, 3, 5, 6, 7

_TEXT_IN_EXPRESSION = r""""((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'"""
_NUMBER_IN_EXPRESSION = r"(?<![\w.$])\d{1,15}(?:\.\d{1,15})?(?![\w.])"

_FORMATS = {
    "date": "2025-01-01",
    "date-time": "2025-01-01T00:00:00Z",
    "time": "00:00:00Z",
    "duration": "P1D",
    "email": "somebody@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/",
    "uri-reference": "/",
    "iri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "json-pointer": "/",
    "regex": ".*",
}

_T = TypeVar("_T", bound=Hashable)
Place = tuple[str | int, ...]
"""Where in the value; names that begin with NUL are choices that have no place of their own."""


class Hints(NamedTuple):
    """Values that outputs are compared with: the edges' statuses and the conditions' literals."""

    statuses: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    numbers: tuple[int | float, ...] = ()


NO_HINTS = Hints()


def hints_of(workflow: Workflow, role: str) -> Hints:
    """Return the values that a role's outputs are compared with."""
    statuses = (edge.status for edge in workflow.graph.get(role, ()) if edge.status is not None)
    expressions = [condition.expression for condition in workflow.conditions.values()]
    expressions += workflow.item_expressions
    known = {"", *workflow.roles}
    texts = (text for expression in expressions for text in _texts_in(expression) if text not in known)
    numbers = (number for expression in expressions for number in _numbers_in(expression))
    return Hints(tuple(statuses), _first(texts), _first(numbers))


def _first(values: Iterable[_T]) -> tuple[_T, ...]:
    literals: dict[_T, None] = {}
    for value in values:
        literals[value] = None
        if len(literals) == _MOST_LITERALS:
            break
    return tuple(literals)


@lru_cache(maxsize=1024)
def _texts_in(expression: str) -> tuple[str, ...]:
    from uwf_git.workflow.pattern import matched_in

    written = (one or other for one, other in re.findall(_TEXT_IN_EXPRESSION, expression))
    return (*written, *matched_in(expression))


def _numbers_in(expression: str) -> Iterator[int | float]:
    rest = re.sub(_TEXT_IN_EXPRESSION, '""', expression)
    for item in map(float, re.findall(_NUMBER_IN_EXPRESSION, rest)):
        yield int(item) if item.is_integer() else item


def variants(
    schema: Schema,
    turn: int = 0,
    hints: Hints = NO_HINTS,
    reference: Hash | None = None,
    thorough: bool = False,
) -> Iterator[Any]:
    """Yield distinct valid values, plainest first, from 1 to 48. `turn` appears in texts; `reference` is used
    as a node's hash. Raises Invalid with the place if none could be made."""
    limit = _PRESENCE if thorough else _ROUTING
    waiting: list[tuple[int, int, dict[Place, int], Place | None]] = [(0, 0, {}, None)]
    seen: set[str] = set()
    reason = ""
    count = 0
    for _ in range(_MOST_TRIES):
        if not waiting or len(seen) >= MOST_VARIANTS:
            break
        cost, _, picks, last = heapq.heappop(waiting)
        maker = _Maker(schema.applied, turn, hints, reference, picks)
        try:
            value = maker.made()
        except _Impossible as error:
            reason = reason or str(error)
        else:
            key = json.dumps(value, sort_keys=True)
            if key not in seen:
                try:
                    problems = schema.problems(value, at_most=1)
                except Invalid as error:
                    raise _unmade(error.message) from None
                if problems:
                    reason = reason or f"at {problems[0]}"
                else:
                    seen.add(key)
                    yield value
        # Only choices after the last changed one: each combination occurs once.
        places = [point.place for point in maker.points]
        begin = places.index(last) + 1 if last in places else 0
        for point in maker.points[begin:]:
            # Until there is a valid value, everything is worth a try.
            if point.rank > limit and seen:
                continue
            for other in range(point.options):
                if other != point.chosen:
                    count += 1
                    heapq.heappush(
                        waiting, (cost + point.cost, count, {**picks, point.place: other}, point.place)
                    )
    if not seen:
        raise _unmade(reason or "it allows none")


def _unmade(reason: str) -> Invalid:
    return Invalid(
        f"no valid value could be generated for the schema: {reason}",
        "play the role by a script: uwf-rehearse --script replies.yaml",
    )


class _Impossible(Exception):
    """These choices lead to no value."""


class _Point(NamedTuple):
    """A choice."""

    place: Place
    options: int
    chosen: int
    rank: int
    cost: int


class _Maker:
    """Makes one value. Choices are points; `picks` decides some."""

    def __init__(
        self, root: Any, turn: int, hints: Hints, reference: Hash | None, picks: Mapping[Place, int]
    ) -> None:
        self.points: list[_Point] = []
        self._root = root
        self._turn = turn
        self._hints = hints
        self._reference = reference
        self._picks = picks

    def made(self) -> Any:
        try:
            with time_limit(SECONDS):
                return self._value(self._root, ())
        except TimeExceeded:
            raise _Impossible("its patterns take too long") from None
        except re.error as error:
            raise _Impossible(f"it has a pattern that is not a regular expression: {error}") from None
        except (RecursionError, MemoryError):
            raise _Impossible("it is nested without end") from None
        except (TypeError, ValueError, OverflowError, AttributeError) as error:
            raise _Impossible(f"a keyword in it has a value it cannot have: {error}") from None

    def _pick(self, place: Place, options: int, rank: int, default: int = 0) -> int:
        chosen = self._picks.get(place, default)
        fields = _fields(place)
        status = bool(fields) and fields[0] in ("$status", "status")
        cost = rank * 2 + 3 * max(0, len(fields) - 1) - (1 if status else 0)
        # Routing rarely depends on arrays and deeply nested values.
        if rank == _ROUTING and len(place) > 2:
            rank = _LITERAL
        self.points.append(_Point(place, options, chosen, rank, cost))
        return chosen

    def _value(self, schema: Any, place: Place) -> Any:
        if len(place) > _DEEPEST:
            raise _Impossible(f"at {_pointer(place)}: it is nested without end")
        flat = self._settled(schema, place)
        if "const" in flat:
            return flat["const"]
        item = place[-1] if place and isinstance(place[-1], int) else 0
        if isinstance(choices := flat.get("enum"), list):
            if not choices:
                raise _Impossible(f"at {_pointer(place)}: nothing is allowed")
            return choices[self._pick(place, len(choices), _ROUTING, item % len(choices))]
        examples = flat.get("examples")
        if isinstance(examples, list) and examples:
            return examples[self._pick((*place, "\0example"), len(examples), _EXAMPLE, item % len(examples))]
        kind = flat.get("type", _kind(flat))
        if isinstance(kind, list):
            # Nothing is the least interesting of values.
            kinds = sorted(kind, key=lambda entry: entry == "null")
            if not kinds:
                raise _Impossible(f"at {_pointer(place)}: nothing is allowed")
            kind = kinds[self._pick((*place, "\0type"), len(kinds), _ROUTING)]
        match kind:
            case "object":
                return self._object(flat, place)
            case "array":
                return self._array(flat, place)
            case "string":
                return self._text(flat, place)
            case "integer" | "number":
                return self._number(flat, place, kind == "integer")
            case "boolean":
                return self._pick(place, 2, _ROUTING, item % 2) == 0
            case "null":
                return None
        raise _Impossible(f"at {_pointer(place)}: {kind!r} is not a type")

    def _settled(self, schema: Any, place: Place) -> dict[str, Any]:
        flat: dict[str, Any] = {}
        pending = [schema]
        number = 0
        while pending:
            part = pending.pop(0)
            if part is False:
                raise _Impossible(f"at {_pointer(place)}: nothing is allowed")
            if not isinstance(part, dict):
                continue
            number += 1
            if number > 200:
                raise _Impossible(f"at {_pointer(place)}: it refers to itself without end")
            part = resolve(self._root, part)
            pending = [*part.pop("allOf", ()), *pending]
            for keyword in ("anyOf", "oneOf"):
                if branches := part.pop(keyword, None):
                    deep = len(branches) - 1 if len(place) > _DEEP else 0
                    chosen = self._pick((*place, f"\0{keyword}{number}"), len(branches), _ROUTING, deep)
                    pending.append(branches[chosen])
            if "if" in part:
                condition = part.pop("if")
                fits = self._pick((*place, f"\0if{number}"), 2, _ROUTING) == 0
                then, otherwise = part.pop("then", True), part.pop("else", True)
                pending += [condition, then] if fits else [otherwise]
            flat = _both(flat, part)
        return flat

    def _object(self, flat: dict[str, Any], place: Place) -> dict[str, Any]:
        properties = flat.get("properties", {})
        required = [name for name in flat.get("required", ()) if isinstance(name, str)]
        value: dict[str, Any] = {}
        for name in dict.fromkeys([*required, *properties]):
            inner = self._property(flat, name)
            if name in required:
                value[name] = self._value(inner, (*place, name))
                continue
            absent = 1 if len(place) > _DEEP else 0
            if inner is False or self._pick((*place, name, "\0there"), 2, _PRESENCE, absent) == 1:
                continue
            before = len(self.points)
            try:
                value[name] = self._value(inner, (*place, name))
            except _Impossible:
                del self.points[before:]
        for trigger, names in flat.get("dependentRequired", {}).items():
            if trigger in value:
                for name in names:
                    if name not in value:
                        value[name] = self._value(self._property(flat, name), (*place, name))
        for number in range(1, _MOST_ITEMS):
            if len(value) >= flat.get("minProperties", 0):
                break
            name = f"key{number}"
            if name not in value:
                value[name] = self._value(self._property(flat, name), (*place, name))
        return value

    def _property(self, flat: dict[str, Any], name: str) -> Any:
        schemas = property_schemas(flat, name)
        if not schemas:
            return flat.get("additionalProperties", flat.get("unevaluatedProperties", True))
        return schemas[0] if len(schemas) == 1 else {"allOf": schemas}

    def _array(self, flat: dict[str, Any], place: Place) -> list[Any]:
        low, high = int(flat.get("minItems", 0)), flat.get("maxItems")
        prefix = flat.get("prefixItems", [])
        contains = flat.get("contains")
        wanted = int(flat.get("minContains", 1)) if contains is not None else 0
        low = max(low, wanted)
        rest = flat.get("items", flat.get("unevaluatedItems", True))
        if rest is False:
            high = len(prefix) if high is None else min(high, len(prefix))
        most = _MOST_ITEMS if high is None else min(int(high), _MOST_ITEMS)
        if low > most:
            raise _Impossible(f"at {_pointer(place)}: it wants {low} items, and {most} are the most")
        usual = 0 if len(place) > _DEEP else max(len(prefix), 2 if len(place) <= 2 else 1)
        plain = max(low, min(most, usual))
        lengths = [plain, low, *(int(number) + 1 for number in self._hints.numbers)]
        if high is not None:
            lengths.append(most)
        lengths = list(dict.fromkeys(item for item in lengths if low <= item <= most))
        length = lengths[self._pick((*place, "\0length"), len(lengths), _SIZE)]
        items: list[Any] = []
        for index in range(length):
            inner = prefix[index] if index < len(prefix) else rest
            if len(prefix) <= index < len(prefix) + wanted:
                inner = {"allOf": [inner, contains]}
            items.append(self._value(inner, (*place, index)))
        if flat.get("uniqueItems"):
            unique = {json.dumps(item, sort_keys=True): item for item in items}
            items = list(unique.values())
        return items

    def _text(self, flat: dict[str, Any], place: Place) -> str:
        kind = flat.get("format")
        if kind in REFERENCE_FORMATS:
            if self._reference is None:
                raise _Impossible(f"at {_pointer(place)}: it wants the hash of a node, and there is none")
            return self._reference
        least, most = int(flat.get("minLength", 0)), int(flat.get("maxLength", _MOST_TEXT))
        if least > _MOST_TEXT:
            raise _Impossible(f"at {_pointer(place)}: it wants a text of {least} characters")
        literals = self._hints.texts if len(place) <= 3 else ()
        if (pattern := flat.get("pattern")) is not None:
            fitting = [text for text in literals if least <= len(text) <= most and re.search(pattern, text)]
            fitting = [*_found(pattern, least, most), *fitting]
            if not fitting:
                raise _Impossible(
                    f"at {_pointer(place)}: no text of {least} to {most} characters was found "
                    f"that matches /{getattr(pattern, 'written', pattern)}/"
                )
            return fitting[self._pick((*place, "\0text"), len(fitting), _LITERAL)]
        if kind in _FORMATS:
            return _FORMATS[kind]
        words = self._words(place)
        if place in (("$status",), ("status",)) and self._hints.statuses:
            # Any text is allowed, so one that matches no edge occurs too, among the last.
            free = self._pick((*place, "\0free"), 2, _LITERAL) == 1
            chosen = self._pick(place, len(self._hints.statuses), _ROUTING)
            return words if free else self._hints.statuses[chosen]
        options = [words, *literals]
        if len(place) == 1:
            options += [
                words + " …" * int(number) for number in self._hints.numbers if 1 < number <= _MOST_TEXT // 2
            ]
        options = list(dict.fromkeys(_fitted(text, least, most) for text in options))
        return options[self._pick((*place, "\0text"), len(options), _LITERAL)]

    def _words(self, place: Place) -> str:
        names = _fields(place)
        name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[_\-\s]+", " ", names[-1]).strip("$ ").lower() if names else ""
        numbers = [str(entry + 1) for entry in place if isinstance(entry, int)]
        item = " " + ".".join(numbers) if numbers else ""
        turn = f", turn {self._turn + 1}" if self._turn else ""
        return f"Rehearsed {name or 'text'}{item}{turn}"

    def _number(self, flat: dict[str, Any], place: Place, whole: bool) -> int | float:
        low, high = flat.get("minimum"), flat.get("maximum")
        above, below = flat.get("exclusiveMinimum"), flat.get("exclusiveMaximum")
        step = flat.get("multipleOf")
        unit = 1 if step is None else step

        def fits(value: float) -> bool:
            return (
                (not whole or float(value).is_integer())
                and (low is None or value >= low)
                and (high is None or value <= high)
                and (above is None or value > above)
                and (below is None or value < below)
                and (step is None or abs(value / step - round(value / step)) < 1e-9)
            )

        bounds = [item for item in (low, high, above, below) if item is not None]
        candidates: list[float] = [unit, 0]
        for bound in bounds:
            start = (bound // unit) * unit
            candidates += [bound, start, start + unit, start - unit]
        if len(bounds) > 1:
            candidates.append(sum(bounds) / len(bounds))
        plain = [_tidy(value) for value in candidates if fits(value)]
        compared = [
            _tidy(value)
            for number in (self._hints.numbers if len(place) <= 3 else ())
            for value in (number, number + unit, number - unit)
            if fits(value)
        ]
        # One plain number, then the ends of its range, then what it is compared with.
        ends = sorted(plain)
        options = list(dict.fromkeys([*plain[:1], *ends[-1:], *ends[:1], *compared]))
        if not options:
            raise _Impossible(f"at {_pointer(place)}: no number was found in its range")
        return options[self._pick((*place, "\0number"), len(options), _LITERAL)]


def _found(pattern: str, least: int, most: int) -> list[str]:
    from uwf_git.workflow.pattern import matching

    try:
        with time_limit(SECONDS / 5):
            text = matching(pattern, least, most)
    except TimeExceeded:
        return []
    return [] if text is None else [text]


def _kind(flat: Mapping[str, Any]) -> str:
    for kind, keywords in (
        ("object", ("properties", "required", "additionalProperties", "patternProperties", "minProperties")),
        ("array", ("items", "prefixItems", "minItems", "maxItems", "contains")),
        ("integer", ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")),
    ):
        if any(keyword in flat for keyword in keywords):
            return kind
    return "string"


def _both(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    merged = dict(one)
    for key, value in other.items():
        if key not in merged:
            merged[key] = value
        elif key in ("properties", "patternProperties"):
            mine = merged[key]
            merged[key] = {
                name: {"allOf": [mine[name], value[name]]}
                if name in mine and name in value
                else (mine if name in mine else value)[name]
                for name in dict.fromkeys([*mine, *value])
            }
        elif key == "required":
            merged[key] = list(dict.fromkeys([*merged[key], *value]))
        elif key == "enum":
            merged[key] = [item for item in merged[key] if item in value]
        elif key == "type":
            merged[key] = _common(merged[key], value)
        elif key in ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"):
            merged[key] = max(merged[key], value)
        elif key in ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"):
            merged[key] = min(merged[key], value)
        elif key in ("items", "contains", "additionalProperties"):
            merged[key] = {"allOf": [merged[key], value]}
        elif key == "const" and merged[key] != value:
            merged["enum"] = []
        else:
            merged[key] = value
    if "const" in merged and "enum" in merged and merged["const"] not in merged["enum"]:
        del merged["const"]
        merged["enum"] = []
    return merged


def _common(one: Any, other: Any) -> list[str]:
    ours = one if isinstance(one, list) else [one]
    right = other if isinstance(other, list) else [other]
    common = [kind for kind in ours if kind in right]
    if "integer" not in common and {"integer", "number"} <= {*ours, *right}:
        common.append("integer")
    return common


def _fitted(text: str, least: int, most: int) -> str:
    return (text + "." * max(0, least - len(text)))[:most]


def _tidy(value: float) -> int | float:
    return int(value) if float(value).is_integer() else value


def _fields(place: Place) -> list[str]:
    return [item for item in place if isinstance(item, str) and not item.startswith("\0")]


def _pointer(place: Place) -> str:
    names = [str(item) for item in place if not (isinstance(item, str) and item.startswith("\0"))]
    return "/" + "/".join(names) if names else "its root"
