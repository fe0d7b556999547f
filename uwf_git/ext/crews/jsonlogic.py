"""Translating the JSONLogic of packages to JSONata.

A `var` names a variable of the run, also in a list or object (`days.0`, `days.length`, `who.name`), or one of
STATE_NAMES; expressions read them from JSONata variables of the same names. As in JSONLogic, an empty list is
false, only null equals null, and a text that is a decimal number compares with a number. Lists and objects
equal nothing. Other operators and computed names are refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from uwf_git.plugin import Invalid, ValuePath, closest_names, one_line

STATE_NAMES = ("variables", "currentNodeId", "stepsCompleted", "artifacts")
"""The names that a `var` may have besides those of variables."""
MAX_DEPTH = 40
MAX_LENGTH = 16_000

_CONNECTIVES = ("and", "or")
# By operator: the function, whether its arguments are swapped, whether its result is negated.
_COMPARISONS = {
    "==": ("$equal", False, False),
    "!=": ("$equal", False, True),
    "===": ("$same", False, False),
    "!==": ("$same", False, True),
    "<": ("$less", False, False),
    "<=": ("$at_most", False, False),
    ">": ("$less", True, False),
    ">=": ("$at_most", True, False),
}
_OPERATORS = ("var", *_CONNECTIVES, "!", "!!", "if", "missing", "in", *_COMPARISONS)
_CALL = re.compile(r"\$[a-z_]+")
# A text that no number equals.
_WORD = re.compile(r"\s*[^\s\d.-].*", re.DOTALL)


class Untranslatable(Invalid):
    """A rule without equivalent. `operator` is at fault, "" if none; `path` leads to it."""

    def __init__(self, operator: str, path: ValuePath, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.operator = operator
        self.path = path


@cache
def _functions() -> dict[str, str]:
    """Return the functions of jsonlogic.jsonata by name, each on one line, in their order there."""
    text = Path(__file__).with_suffix(".jsonata").read_text("utf-8")
    listed = (" ".join(block.split()).removesuffix(";") for block in text.split("\n\n")[1:])
    return {name: function for name, _, function in (block.partition(" := ") for block in listed)}


def translated(rule: Any) -> str:
    """Return the JSONata expression of a rule's truth. Raises Untranslatable."""
    body, known = _truth(rule, (), 0), _functions()
    needed: set[str] = set()
    pending = [body]
    while pending:
        calls = set(_CALL.findall(_without_texts(pending.pop()))) & known.keys() - needed
        needed |= calls
        pending += (known[name] for name in calls)
    functions = "".join(f"{name} := {text}; " for name, text in known.items() if name in needed)
    expression = f"({functions}{body})" if functions else body
    if len(expression) > MAX_LENGTH:
        message = f"the condition becomes longer than {MAX_LENGTH:,} characters"
        raise Untranslatable("", (), message, "split it")
    return expression


def _truth(rule: Any, path: ValuePath, depth: int) -> str:
    operator, arguments, below = _operation(rule, path, depth)
    if operator in _CONNECTIVES:
        parts = [_truth(argument, (*below, number), depth + 1) for number, argument in enumerate(arguments)]
        return f"({f' {operator} '.join(parts)})" if len(parts) > 1 else parts[0]
    if operator in ("!", "!!"):
        inner = _truth(arguments[0], (*below, 0), depth + 1)
        return f"$not({inner})" if operator == "!" else inner
    if operator == "if":
        return _choice(arguments, below, depth, _truth, "false")
    if operator == "missing":
        absent = [f"$absent({_named(name, path)})" for name in _names(arguments)]
        return f"({' or '.join(absent)})" if absent else "false"
    if operator in _COMPARISONS:
        return _comparison(operator, arguments, below, depth)
    if operator == "in":
        needle, haystack = _values(arguments, below, depth)
        return f"$within({needle}, {haystack})"
    if operator == "var":
        return f"$true({_value(rule, path, depth)})"
    return "true" if rule else "false"


def _value(rule: Any, path: ValuePath, depth: int) -> str:
    operator, arguments, below = _operation(rule, path, depth)
    if operator == "":
        return _literal(rule, path)
    if operator == "var":
        value = _named(arguments[0], path)
        if len(arguments) < 2:
            return value
        return f"($v := {value}; $exists($v) ? $v : {_value(arguments[1], (*below, 1), depth + 1)})"
    if operator in _CONNECTIVES:
        *first, text = _values(arguments, below, depth)
        for value in reversed(first):
            ways = f"{text} : $v" if operator == "and" else f"$v : {text}"
            text = f"($v := {value}; $true($v) ? {ways})"
        return text
    if operator == "if":
        return _choice(arguments, below, depth, _value, "null")
    if operator == "missing":
        absent = [f"$absent({_named(name, path)}) ? {_json(name)}" for name in _names(arguments)]
        return f"[{', '.join(absent)}]"
    return _truth(rule, path, depth)


def _operation(rule: Any, path: ValuePath, depth: int) -> tuple[str, list[Any], ValuePath]:
    """Return a rule's operator, "" for a constant, its arguments, and the path of these."""
    if depth > MAX_DEPTH:
        raise Untranslatable("", path, f"the condition is nested deeper than {MAX_DEPTH} levels")
    if not isinstance(rule, dict):
        return "", [], path
    if len(rule) != 1:
        hint = 'an operation has one key, as in {"==": [{"var": "mode"}, "fast"]}'
        raise Untranslatable("", path, f"an object with {len(rule)} keys is not an operation", hint)
    [(operator, operands)] = rule.items()
    below = (*path, operator)
    if operator not in _OPERATORS:
        match = closest_names(operator, _OPERATORS)
        hint = f'did you mean "{match}"?' if match else f"known: {' '.join(_OPERATORS)}"
        raise Untranslatable(
            operator, below, f'operator "{one_line(operator, 40)}" cannot be translated', hint
        )
    arguments = operands if isinstance(operands, list) else [operands]
    least, most = _arity(operator)
    if not least <= len(arguments) <= most:
        takes = (
            str(least) if least == most else f"{least} or {most}" if most - least == 1 else f"{least} or more"
        )
        raise Untranslatable(operator, path, f"{operator} takes {takes} values, not {len(arguments)}")
    return operator, arguments, below


def _arity(operator: str) -> tuple[int, int]:
    """Return how many values an operator takes, at least and at most."""
    if operator in ("!", "!!"):
        return 1, 1
    if operator == "var":
        return 1, 2
    if operator in ("<", "<="):
        return 2, 3
    if operator == "in" or operator in _COMPARISONS:
        return 2, 2
    return 0 if operator == "missing" else 1, 1_000


def _values(arguments: Sequence[Any], below: ValuePath, depth: int) -> list[str]:
    return [_value(argument, (*below, number), depth + 1) for number, argument in enumerate(arguments)]


def _choice(
    arguments: Sequence[Any],
    below: ValuePath,
    depth: int,
    translate: Callable[[Any, ValuePath, int], str],
    otherwise: str,
) -> str:
    text, last = otherwise, len(arguments)
    if last % 2:
        last -= 1
        text = translate(arguments[last], (*below, last), depth + 1)
    for number in range(last - 2, -1, -2):
        condition = _truth(arguments[number], (*below, number), depth + 1)
        consequence = translate(arguments[number + 1], (*below, number + 1), depth + 1)
        text = f"({condition} ? {consequence} : {text})"
    return text


def _comparison(operator: str, arguments: Sequence[Any], below: ValuePath, depth: int) -> str:
    name, is_swapped, is_negated = _COMPARISONS[operator]
    values = _values(arguments, below, depth)
    if len(values) == 3:
        first, between, last = values
        return f"($v := {between}; {name}({first}, $v) and {name}($v, {last}))"
    if name in ("$equal", "$same") and any(
        isinstance(one, str) and _WORD.fullmatch(one) for one in arguments
    ):
        comparison = f"{values[0]} = {values[1]}"
    else:
        comparison = f"{name}({', '.join(reversed(values) if is_swapped else values)})"
    return f"$not({comparison})" if is_negated else f"({comparison})"


def _names(arguments: Sequence[Any]) -> Sequence[Any]:
    return arguments[0] if arguments and isinstance(arguments[0], list) else arguments


def _named(name: Any, path: ValuePath) -> str:
    if not isinstance(name, str | int) or isinstance(name, bool):
        message = "a variable's name is computed" if isinstance(name, dict) else f"{_json(name)} is no name"
        raise Untranslatable("var", path, message, "write the name itself, a text")
    first, *inner = str(name).split(".")
    if first == "decisionLog":
        message = "a condition cannot read decisionLog"
        raise Untranslatable("var", path, message, "let a step set a variable to the decision")
    if first in STATE_NAMES or not name:
        text = f"${first or 'variables'}"
    else:
        text = f"$lookup($variables, {_json(first)})"
    for part in inner:
        text = f"$item({text}, {_json(part)})"
    return text


def _literal(value: Any, path: ValuePath) -> str:
    if not isinstance(value, list):
        return _json(value)
    for number, item in enumerate(value):
        if isinstance(item, dict):
            message = "a list is worked out while deciding"
            raise Untranslatable("", (*path, number), message, "lists of plain values can be compared")
    return f"[{', '.join(_literal(item, (*path, number)) for number, item in enumerate(value))}]"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _without_texts(text: str) -> str:
    return re.sub(r'"(?:[^"\\]|\\.)*"', '""', text)
