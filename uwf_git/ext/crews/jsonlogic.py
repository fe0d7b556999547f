"""Translating JSONLogic to equivalent JSONata.

JSONLogic follows JavaScript in truthiness, `==` and `<`; JSONata doesn't, so expressions carry the functions
they need. They use `$variables` (an object), `$currentNodeId`, `$stepsCompleted`, `$artifacts` and
`$decisionLog`, as needed.

Anything that would differ is refused: other operators, computed names and lists, and comparing a list or
object with possibly itself. If a value's JavaScript text is inexact (a number of over 15 digits against a
text), evaluation fails. Texts are ordered by code point, which differs only beyond U+FFFF.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from uwf_git.base.errors import Invalid
from uwf_git.base.text import closest, one_line
from uwf_git.format.schema import ValuePath

STATE_NAMES = ("variables", "currentNodeId", "stepsCompleted", "artifacts", "decisionLog")
"""What a `var` may name besides a variable."""
MAX_DEPTH = 40
MAX_LENGTH = 16_000

_ELSEWHERE = (
    "missing_some",
    "map",
    "reduce",
    "filter",
    "all",
    "some",
    "none",
    "merge",
    "cat",
    "substr",
    "log",
    "method",
)
_ARITHMETIC = ("+", "-", "*", "/", "%", "max", "min")
# Every object of JavaScript has these, whatever it holds.
_INBORN = frozenset(
    re.findall(
        r"\w+",
        "constructor hasOwnProperty isPrototypeOf propertyIsEnumerable toLocaleString toString valueOf __proto__"
        " __defineGetter__ __defineSetter__ __lookupGetter__ __lookupSetter__",
    )
)
# A text that equals only itself, alone or in a list: no number or list, nor their text form.
_WORD = re.compile(r"[^\W\d_][\w /-]*")
_NO_WORDS = ("true", "false", "null", "Infinity")
_INDEX = re.compile("0|[1-9][0-9]{0,8}", re.ASCII)
_SPACES = r"[\t-\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff]"

# The functions, each after those that it calls.
_FUNCTIONS = {
    "$kind": 'function($x) { $exists($x) ? $type($x) : "null" }',
    "$truthy": (
        'function($x) { ($t := $kind($x); $t = "boolean" ? $x : $t = "number" ? $x != 0 : $t = "string" ? $x != "" :'
        ' $t = "array" ? $count($x) > 0 : $t = "object") }'
    ),
    "$absent": 'function($x) { ($t := $kind($x); $t = "null" or ($t = "string" and $x = "")) }',
    "$key": 'function($x, $k) { $kind($x) = "object" ? $lookup($x, $k) }',
    "$size": (
        'function($x) { ($t := $kind($x); $t = "object" ? $lookup($x, "length") : $t = "array" ? $count($x) :'
        ' $t = "string" ? $length($replace($x, /[^\\u0000-\\uffff]/, "xx"))) }'
    ),
    "$item": (
        'function($x, $k, $n) { ($t := $kind($x); $t = "object" ? $lookup($x, $k) : $t = "array" ? $x[$n] :'
        ' $t = "string" and $n < $length($x) ? $substring($x, $n, 1)) }'
    ),
    "$digits": (
        "function($x) { ($s := $string($x); $n := $x < 0 ? -$x : $x;"
        " $number($s) = $x and ($n < 1e15 or $n >= 1e21) ? $s :"
        ' $error("a number has too many digits to be compared with a text")) }'
    ),
    "$text": (
        'function($x) { ($t := $kind($x); $t = "string" ? $x : $t = "number" ? $digits($x) :'
        ' $t = "boolean" ? ($x ? "true" : "false") : $t = "null" ? "null" : $t = "object" ? "[object Object]" :'
        ' $count($x) = 0 ? "" : $join($map($x, function($i) { $kind($i) = "null" ? "" : $text($i) }), ",")) }'
    ),
    "$parse": (
        f'function($x) {{ ($s := $replace($x, /^{_SPACES}+|{_SPACES}+$/, ""); $s = "" ? 0 :'
        " $contains($s, /^[-+]?([0-9]+\\.?[0-9]*|\\.[0-9]+)([eE][-+]?[0-9]+)?$/) ? $number($s) :"
        ' $contains($s, /^0[xX][0-9a-fA-F]{1,13}$/) ? $number("0x" & $substring($s, 2)) :'
        ' $contains($s, /^0[oO][0-7]{1,17}$/) ? $number("0O" & $substring($s, 2)) :'
        ' $contains($s, /^0[bB][01]{1,53}$/) ? $number("0B" & $substring($s, 2)) :'
        " $contains($s, /^([-+]?Infinity|0[xX][0-9a-fA-F]+|0[oO][0-7]+|0[bB][01]+)$/) ?"
        ' $error("a text is a number that is too large to be compared")) }'
    ),
    "$number_of": (
        'function($x) { ($t := $kind($x); $t = "number" ? $x : $t = "boolean" ? ($x ? 1 : 0) : $t = "null" ? 0 :'
        ' $t = "string" ? $parse($x) : $t = "array" and $count($x) = 0 ? 0 :'
        ' $t = "array" and $count($x) = 1 and $kind($x[0]) != "boolean" ? $number_of($x[0])) }'
    ),
    "$is": (
        'function($x, $c) { ($t := $kind($x); $t = "string" ? $x = $c :'
        ' $t = "array" ? ($count($x) = 1 ? $is($x[0], $c) : false) : false) }'
    ),
    "$plain": 'function($x) { $kind($x) in ["array", "object"] ? $text($x) : $x }',
    "$strict": (
        "function($a, $b) { ($t := $kind($a); $t = $kind($b) and"
        ' ($t = "null" or ($t in ["boolean", "number", "string"] and $a = $b))) }'
    ),
    "$loose": (
        'function($a, $b) { ($s := $kind($a); $t := $kind($b); $lists := ["array", "object"];'
        ' $s = "null" or $t = "null" ? $s = $t : $s in $lists and $t in $lists ? false :'
        " ($p := $plain($a); $q := $plain($b);"
        ' $kind($p) = "string" and $kind($q) = "string" ? $p = $q :'
        " ($m := $number_of($p); $n := $number_of($q); $exists($m) and $exists($n) and $m = $n))) }"
    ),
    "$less": (
        "function($a, $b) { ($p := $plain($a); $q := $plain($b);"
        ' $kind($p) = "string" and $kind($q) = "string" ? $p < $q :'
        " ($m := $number_of($p); $n := $number_of($q); $exists($m) and $exists($n) ? $m < $n : false)) }"
    ),
    "$at_most": (
        "function($a, $b) { ($p := $plain($a); $q := $plain($b);"
        ' $kind($p) = "string" and $kind($q) = "string" ? $p <= $q :'
        " ($m := $number_of($p); $n := $number_of($q); $exists($m) and $exists($n) ? $m <= $n : false)) }"
    ),
    "$within": (
        'function($a, $b) { ($t := $kind($b); $t = "string" ? $b != "" and $contains($b, $text($a)) :'
        ' $t = "array" ? true in $map($b, function($i) { $strict($a, $i) }) : false) }'
    ),
}
_CALLED = re.compile(r"\$[a-z_]+")


class Untranslatable(Invalid):
    """A rule without equivalent. `operator` is at fault, "" if none; `path` leads to it."""

    def __init__(self, operator: str, path: ValuePath, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.operator = operator
        self.path = path


def translated(rule: Any) -> str:
    """Return the JSONata expression of a rule's truth. Raises Untranslatable."""
    body = _Translation().test(rule, (), 0)
    needed: dict[str, None] = {}
    pending = [body]
    while pending:
        for name in _CALLED.findall(_without_texts(pending.pop())):
            if name in _FUNCTIONS and name not in needed:
                needed[name] = None
                pending.append(_FUNCTIONS[name])
    functions = "".join(f"{name} := {text}; " for name, text in _FUNCTIONS.items() if name in needed)
    made = f"({functions}{body})" if functions else body
    if len(made) > MAX_LENGTH:
        raise Untranslatable(
            "", (), f"the condition becomes longer than {MAX_LENGTH:,} characters", "split it"
        )
    return made


class _Value(NamedTuple):
    """An expression's value. `origins` are the data that it may be, unchanged."""

    text: str
    origins: frozenset[tuple[str, ...]] = frozenset()
    is_var: bool = False


class _Translation:
    """Translates a rule: `test` for its truth, `value` for its value."""

    def test(self, rule: Any, path: ValuePath, depth: int) -> str:
        operator, arguments, below = self._operation(rule, path, depth)
        if operator in ("and", "or"):
            self._at_least(operator, arguments, 1, path)
            parts = [self.test(each, (*below, number), depth + 1) for number, each in enumerate(arguments)]
            return f"({f' {operator} '.join(parts)})" if len(parts) > 1 else parts[0]
        if operator in ("!", "!!"):
            self._at_most(operator, arguments, 1, path)
            inner = self.test(arguments[0], (*below, 0), depth + 1) if arguments else "false"
            return f"$not({inner})" if operator == "!" else inner
        if operator == "if":
            return self._if(
                arguments, below, lambda each, place: self.test(each, place, depth + 1), "false", depth
            )
        if operator == "missing":
            absent = [f"$absent({value.text})" for _, value in self._missing(arguments, path)]
            return f"({' or '.join(absent)})" if absent else "false"
        if operator in _COMPARED:
            return self._comparison(operator, arguments, below, path, depth)
        if operator == "in":
            return self._in(arguments, below, path, depth)
        if operator == "" and not isinstance(rule, list):
            return "true" if rule else "false"
        if operator == "" and not rule:
            return "false"
        return f"$truthy({self.value(rule, path, depth).text})"

    def value(self, rule: Any, path: ValuePath, depth: int) -> _Value:
        operator, arguments, below = self._operation(rule, path, depth)
        if operator == "":
            return _Value(self._literal(rule, path))
        if operator == "var":
            return self._var(arguments, below, path, depth)
        if operator in ("and", "or"):
            self._at_least(operator, arguments, 1, path)
            values = [self.value(each, (*below, number), depth + 1) for number, each in enumerate(arguments)]
            text = values[-1].text
            for each in reversed(values[:-1]):
                ways = f"{text} : $v" if operator == "and" else f"$v : {text}"
                text = f"($v := {each.text}; $truthy($v) ? {ways})"
            return _Value(text, _origins(values))
        if operator == "if":
            values = []

            def way(each: Any, place: ValuePath) -> str:
                values.append(self.value(each, place, depth + 1))
                return values[-1].text

            return _Value(self._if(arguments, below, way, "null", depth), _origins(values))
        if operator == "missing":
            found = [f"$absent({value.text}) ? {_json(key)}" for key, value in self._missing(arguments, path)]
            return _Value(f"[{', '.join(found)}]")
        return _Value(self.test(rule, path, depth))

    def _operation(self, rule: Any, path: ValuePath, depth: int) -> tuple[str, list[Any], ValuePath]:
        if depth > MAX_DEPTH:
            raise Untranslatable("", path, f"the condition is nested deeper than {MAX_DEPTH} levels")
        if not isinstance(rule, dict):
            return "", [], path
        if len(rule) != 1:
            hint = 'an operation has one key, as in {"==": [{"var": "mode"}, "fast"]}'
            raise Untranslatable("", path, f"an object with {len(rule)} keys is not an operation", hint)
        [(operator, arguments)] = rule.items()
        if operator not in _KNOWN:
            raise Untranslatable(operator, (*path, operator), *_unknown(operator))
        given = arguments if isinstance(arguments, list) else [arguments]
        return operator, given, (*path, operator)

    def _if(
        self,
        arguments: Sequence[Any],
        path: ValuePath,
        way: Callable[[Any, ValuePath], str],
        otherwise: str,
        depth: int = 0,
    ) -> str:
        self._at_least("if", arguments, 1, path)
        text = otherwise
        at = len(arguments)
        if at % 2:
            at -= 1
            text = way(arguments[at], (*path, at))
        while at:
            at -= 2
            condition = self.test(arguments[at], (*path, at), depth + 1)
            text = f"({condition} ? {way(arguments[at + 1], (*path, at + 1))} : {text})"
        return text

    def _var(self, arguments: Sequence[Any], below: ValuePath, path: ValuePath, depth: int) -> _Value:
        self._at_most("var", arguments, 2, path)
        found = self._named(arguments[0] if arguments else "", path)
        if len(arguments) < 2:
            return found
        default = self.value(arguments[1], (*below, 1), depth + 1)
        text = f"($v := {found.text}; $exists($v) ? $v : {default.text})"
        return _Value(text, found.origins | default.origins)

    def _named(self, name: Any, path: ValuePath) -> _Value:
        if isinstance(name, dict | list):
            hint = "write the name itself, a text"
            raise Untranslatable("var", path, "var names what is worked out while deciding", hint)
        if isinstance(name, bool | float):
            raise Untranslatable("var", path, f"var names {json.dumps(name)}", "write a name, a text")
        if name is None or name == "":
            return _Value("$variables", frozenset([()]), True)
        parts = tuple(str(name).split("."))
        for part in parts:
            if part in _INBORN:
                message = f'"{part}" is in every object of JavaScript, whatever the variables are'
                raise Untranslatable("var", path, message, "call the variable otherwise")
        whole = parts if parts[0] in STATE_NAMES else ("variables", *parts)
        text = f"${whole[0]}"
        for number, part in enumerate(whole[1:]):
            if number == 0 and whole[0] == "variables":
                text = f"$lookup({text}, {_json(part)})"
            elif _INDEX.fullmatch(part):
                text = f"$item({text}, {_json(part)}, {part})"
            elif part == "length":
                text = f"$size({text})"
            else:
                text = f"$key({text}, {_json(part)})"
        return _Value(text, frozenset([whole]), True)

    def _missing(self, arguments: Sequence[Any], path: ValuePath) -> list[tuple[Any, _Value]]:
        names = arguments[0] if arguments and isinstance(arguments[0], list) else arguments
        for name in names:
            if isinstance(name, dict | list):
                message = "missing asks for what is worked out while deciding"
                raise Untranslatable("missing", path, message, "write the names themselves")
        return [(name, self._named(name, path)) for name in names]

    def _comparison(
        self, operator: str, arguments: Sequence[Any], below: ValuePath, path: ValuePath, depth: int
    ) -> str:
        most = 3 if operator in ("<", "<=") else 2
        if not 2 <= len(arguments) <= most:
            wanted = "2 or 3 values" if most == 3 else "2 values"
            raise Untranslatable(operator, path, f"{operator} takes {wanted}, not {len(arguments)}")
        values = [self.value(each, (*below, number), depth + 1) for number, each in enumerate(arguments)]
        name, swapped, negated = _COMPARED[operator]
        if operator in ("==", "===", "!=", "!=="):
            one, other = values
            if one.is_var and other.is_var and one.origins == other.origins:
                return "false" if negated else "true"
            self._not_the_same(operator, one.origins & other.origins, path)
        if operator in ("==", "!=") and (simpler := _with_constant(arguments, values)):
            return f"$not({simpler})" if negated else simpler
        if operator in ("<", "<=", ">", ">=") and (simpler := _with_number(operator, arguments, values)):
            return simpler
        texts = [each.text for each in (reversed(values) if swapped else values)]
        if len(texts) == 3:
            first, between, last = texts
            return f"($v := {between}; {name}({first}, $v) and {name}($v, {last}))"
        compared = f"{name}({', '.join(texts)})"
        return f"$not({compared})" if negated else compared

    def _in(self, arguments: Sequence[Any], below: ValuePath, path: ValuePath, depth: int) -> str:
        if len(arguments) != 2:
            raise Untranslatable("in", path, f"in takes 2 values, not {len(arguments)}")
        looked_for = self.value(arguments[0], (*below, 0), depth + 1)
        if isinstance(arguments[1], list):
            items = [
                self.value(each, (*below, 1, number), depth + 1) for number, each in enumerate(arguments[1])
            ]
            self._not_the_same("in", looked_for.origins & _origins(items), path)
            found = " or ".join(f"$strict($v, {item.text})" for item in items)
            return f"($v := {looked_for.text}; {found})" if items else "false"
        among = self.value(arguments[1], (*below, 1), depth + 1)
        inside = {origin for origin in looked_for.origins if origin and origin[:-1] in among.origins}
        self._not_the_same("in", inside, path)
        return f"$within({looked_for.text}, {among.text})"

    def _not_the_same(self, operator: str, origins: Iterable[tuple[str, ...]], path: ValuePath) -> None:
        for origin in origins:
            name = one_line(".".join(origin), 60)
            message = f'"{name}" may be compared with itself, which lists and objects cannot be'
            raise Untranslatable(operator, path, f"{operator}: {message}", "compare it with another value")

    def _literal(self, value: Any, path: ValuePath) -> str:
        if isinstance(value, list):
            for number, item in enumerate(value):
                if isinstance(item, dict):
                    message = "a list is worked out while deciding"
                    raise Untranslatable(
                        "", (*path, number), message, "lists of plain values can be compared"
                    )
            return f"[{', '.join(self._literal(item, (*path, number)) for number, item in enumerate(value))}]"
        return _json(value)

    def _at_least(self, operator: str, arguments: Sequence[Any], number: int, path: ValuePath) -> None:
        if len(arguments) < number:
            raise Untranslatable(operator, path, f"{operator} has no values")

    def _at_most(self, operator: str, arguments: Sequence[Any], number: int, path: ValuePath) -> None:
        if len(arguments) > number:
            raise Untranslatable(operator, path, f"{operator} takes at most {number}, not {len(arguments)}")


# By operator: the function, whether its arguments are swapped, whether what it says is negated.
_COMPARED = {
    "==": ("$loose", False, False),
    "!=": ("$loose", False, True),
    "===": ("$strict", False, False),
    "!==": ("$strict", False, True),
    "<": ("$less", False, False),
    "<=": ("$at_most", False, False),
    ">": ("$less", True, False),
    ">=": ("$at_most", True, False),
}
_KNOWN = (*_COMPARED, "var", "and", "or", "!", "!!", "in", "if", "missing")


def _with_constant(arguments: Sequence[Any], values: Sequence[_Value]) -> str | None:
    for constant, other in ((arguments[1], values[0]), (arguments[0], values[1])):
        if constant is None:
            return f'($kind({other.text}) = "null")'
        if isinstance(constant, str) and _WORD.fullmatch(constant) and constant not in _NO_WORDS:
            return f"$is({other.text}, {_json(constant)})"
        if isinstance(constant, bool | int | float):
            number = _json(int(constant) if isinstance(constant, bool) else constant)
            return f'($v := {other.text}; $kind($v) != "null" and $number_of($v) = {number})'
    return None


def _with_number(operator: str, arguments: Sequence[Any], values: Sequence[_Value]) -> str | None:
    if len(arguments) == 2:
        for place, constant in enumerate(arguments):
            if isinstance(constant, int | float) and not isinstance(constant, bool):
                sides = ["$n", _json(constant)] if place else [_json(constant), "$n"]
                order = f" {operator} ".join(sides)
                return f"($n := $number_of({values[1 - place].text}); $exists($n) ? {order} : false)"
    return None


def _unknown(operator: str) -> tuple[str, str]:
    shown = one_line(operator, 40)
    if operator in _ARITHMETIC or operator in _ELSEWHERE:
        return f'operator "{shown}" cannot be translated', "let a step set a variable to what it would give"
    near = closest(operator, _KNOWN)
    hint = f'did you mean "{near}"?' if near else f"known: {' '.join(_KNOWN)}"
    return f'there is no operator "{shown}"', hint


def _origins(values: Iterable[_Value]) -> frozenset[tuple[str, ...]]:
    return frozenset().union(*(value.origins for value in values))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _without_texts(text: str) -> str:
    return re.sub(r'"(?:[^"\\]|\\.)*"', '""', text)
