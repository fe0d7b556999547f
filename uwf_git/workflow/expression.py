"""JSONata expressions with limits: workflow conditions over immutable values.

Expressions are untrusted: two seconds, 256 MB, 500 levels; no clock and no randomness, since a replay must
decide the same. The language has no access to files, environment or network.

The library has hidden state: a parsed expression keeps variables and the elapsed time, so each run gets a
copy; group-by can modify input arrays, so the input is copied too.
"""

from __future__ import annotations

import copy
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import Any, TypeVar

from uwf_git.base import lifetime
from uwf_git.base.errors import Invalid, LimitExceeded
from uwf_git.base.text import nearest, one_line
from uwf_git.base.timelimit import MemoryExceeded, TimeExceeded, time_limit

SECONDS = 2.0
MEMORY = 256 * 1024 * 1024
MAX_DEPTH = 500
MAX_LENGTH = 20_000
MAX_RANGE = 100_000

# One level of JSONata takes up to eleven calls of Python.
_FRAMES = 11 * MAX_DEPTH + 1_000
_WRAPPERS = ("Unexpected", "D3120", "D3121")
_IMPURE = ("now", "millis", "random", "shuffle")

_T = TypeVar("_T")


def check_expression(text: str) -> str | None:
    """Return what is wrong with an expression (syntax, unknown functions, clock or randomness), or None."""
    if not lifetime.limits_code():
        from uwf_git.base import helper_process

        try:
            problem: str | None = helper_process.call(f"{__name__}:check_expression", text)
        except (TimeExceeded, MemoryExceeded) as limit:
            return str(_beyond(limit))
        return problem
    try:
        _guarded(lambda: _parse(text))
    except _Unusable as error:
        return str(error)
    return None


def syntax_tree(text: str) -> Any:
    """Return a checked expression's tree, shared and read-only."""
    return _parse(text).ast


@cache
def function_names() -> frozenset[str]:
    return frozenset(_library().Jsonata.static_frame.bindings)


def evaluate(text: str, context: Any) -> Any:
    """Return an expression's value as JSON; None for undefined. Raises Invalid with the expression and the
    reason. The context, possibly Frozen, is unchanged."""
    if not lifetime.limits_code():
        return _evaluated_apart("evaluate", text, context)
    return _run(text, context, _plain)


def holds(text: str, context: Any) -> bool:
    """Return an expression's truth by JSONata's $boolean: false for no value, null, zero, and empty strings,
    arrays, objects, and arrays of only these. Raises Invalid."""

    if (question := _plain_question(text)) is not None and (
        known := _answered(question, context)
    ) is not None:
        return known
    if not lifetime.limits_code():
        return bool(_evaluated_apart("holds", text, context))

    def truth(value: Any) -> bool:
        return bool(_library().Jsonata.boolize(value))

    return _run(text, context, truth)


# Most conditions compare a field of the last output with a text. That is evaluated without the library, whose import
# takes longer than the rest of a step.
_PLAIN_QUESTION = r"""(?a)\s*steps\[-1\]\.output\.(?!\d)(\w+(?:\.(?!\d)\w+)*)\s*=\s*("[^"\\\x00-\x1f]*")\s*"""


@lru_cache(maxsize=1024)
def _plain_question(text: str) -> tuple[tuple[str, ...], str] | None:
    match = re.fullmatch(_PLAIN_QUESTION, text)
    if match is None or not {"and", "or", "in"}.isdisjoint(names := tuple(match[1].split("."))):
        return None
    return names, match[2][1:-1]


def _answered(asked: tuple[tuple[str, ...], str], context: Any) -> bool | None:
    names, text = asked
    whole = context.value if isinstance(context, Frozen) else context
    steps = whole.get("steps") if isinstance(whole, dict) else None
    value = steps[-1] if isinstance(steps, list) and steps and isinstance(steps[-1], dict) else None
    if value is None:
        return None
    for name in ("output", *names):
        if isinstance(value, list):
            return None
        value = value.get(name) if isinstance(value, dict) else None
    return None if isinstance(value, list) else isinstance(value, str) and value == text


def _evaluated_apart(function: str, text: str, context: Any) -> Any:
    from uwf_git.base import helper_process

    value = context.value if isinstance(context, Frozen) else context
    try:
        return helper_process.call(f"{__name__}:{function}", text, value)
    except (TimeExceeded, MemoryExceeded) as limit:
        raise _invalid(text, _beyond(limit)) from None


def _run(text: str, context: Any, use: Callable[[Any], _T]) -> _T:
    if isinstance(context, Frozen):
        guard = context.guard
        guard.touched = False
        try:
            t = _evaluated(text, lambda: context.value, use)
        except Invalid:
            if not guard.touched:
                raise
        else:
            if not guard.touched:
                return t
        return _evaluated(text, lambda: _copied(context.value), use)
    return _evaluated(text, lambda: _copied(context), use)


def _evaluated(text: str, given: Callable[[], Any], use: Callable[[Any], _T]) -> _T:
    def work() -> _T:
        jsonata = _library()
        parsed = copy.copy(_parse(text))
        parsed.environment = _environment(parsed)
        parsed.deadline = time.monotonic() + SECONDS
        parsed.set_validate_input(False)
        parsed.set_output_convert_nulls(False)
        # The evaluator looks itself up here: otherwise the last parsed expression would run.
        jsonata.Jsonata.CURRENT.jsonata = parsed
        try:
            return use(parsed.evaluate(given()))
        finally:
            del jsonata.Jsonata.CURRENT.jsonata

    try:
        return _guarded(work)
    except _Unusable as error:
        problem = error
    raise _invalid(text, problem)


def _invalid(text: str, problem: _Unusable) -> Invalid:
    kind = LimitExceeded if isinstance(problem, _TooMuch) else Invalid
    return kind(
        f'expression "{one_line(text, 100)}": {problem}',
        "see which step brings it about: uwf workflow rehearse NAME",
    )


class _Unusable(Exception):
    """An expression has no value."""


class _TooMuch(_Unusable):
    """A limit was exceeded."""


def _guarded(work: Callable[[], _T]) -> _T:
    _library()  # not on the expression's time
    try:
        with time_limit(SECONDS, MEMORY), _recursion_limit():
            return work()
    except (TimeExceeded, MemoryExceeded) as limit:
        problem = _beyond(limit)
    except Exception as error:
        problem = _problem(error)
    raise problem


def _beyond(limit: TimeExceeded | MemoryExceeded) -> _Unusable:
    return _too_long() if isinstance(limit, TimeExceeded) else _too_large()


def _too_long() -> _TooMuch:
    return _TooMuch(f"takes longer than {SECONDS:g} s")


def _too_large() -> _TooMuch:
    return _TooMuch(f"takes more than {MEMORY // 1024**2} MB")


def _too_deep() -> _TooMuch:
    return _TooMuch(f"recurses deeper than {MAX_DEPTH} levels")


def _problem(error: BaseException) -> _Unusable:
    # The evaluator wraps what happens inside `and`, `or` and $eval, and forgets what it was.
    causes = [error]
    while (before := causes[-1].__context__) is not None and len(causes) < 10_000:
        causes.append(before)
    for cause in causes:
        if isinstance(cause, RecursionError):
            return _too_deep()
        if isinstance(cause, MemoryError):
            return _too_large()
        if isinstance(cause, _Unusable):
            return cause
    last = next((cause for cause in causes if getattr(cause, "error", None) not in _WRAPPERS), error)
    if isinstance(last, ZeroDivisionError):
        return _Unusable("divides by zero")
    if not isinstance(last, _library().JException):
        return _Unusable(one_line(f"fails with {type(last).__name__}: {last}"))
    place = f" at character {last.location}" if last.location > 0 else ""
    if last.error in ("T1005", "T1006"):
        return _Unusable(f"calls something that is not a function{place}")
    return _Unusable(one_line(f"{last}{place}"))


@cache
def _library() -> Any:
    limit = sys.getrecursionlimit()
    import jsonata  # 50 ms
    import jsonata.jsonata as evaluator

    sys.setrecursionlimit(limit)  # the import raises it for the whole process
    # Standard output is data here, and the evaluator prints what it can't call.
    evaluator.print = lambda *_things: None
    return jsonata


@cache
def _evaluator() -> Any:
    parent: Any = _library().Jsonata

    class Evaluator(parent):  # type: ignore[misc]
        """The library's evaluator with our own limits: its own count from parsing, skip arrays, and can be
        disabled by an assignment. It would also build ranges of ten million numbers at once."""

        depth = 0
        deadline = float("inf")

        def _eval(self, expr: Any, input: Any, environment: Any) -> Any:
            if self.depth >= MAX_DEPTH:
                raise _too_deep()
            if time.monotonic() > self.deadline:
                raise _too_long()
            self.depth += 1
            try:
                return super()._eval(expr, input, environment)
            finally:
                self.depth -= 1

        def evaluate_range_expression(self, lhs: Any, rhs: Any) -> Any:
            if type(lhs) is int and type(rhs) is int and rhs - lhs >= MAX_RANGE:
                raise _Unusable(f"makes a range of over {MAX_RANGE:,} numbers")
            return super().evaluate_range_expression(lhs, rhs)

    return Evaluator


@contextmanager
def _recursion_limit() -> Iterator[None]:
    before = sys.getrecursionlimit()
    depth, frame = 0, sys._getframe()
    while (caller := frame.f_back) is not None:
        depth, frame = depth + 1, caller
    sys.setrecursionlimit(max(before, depth + _FRAMES))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


@lru_cache(maxsize=256)
def _parse(text: str) -> Any:
    if len(text) > MAX_LENGTH:
        raise _Unusable(f"is longer than {MAX_LENGTH:,} characters")
    try:
        parsed = _evaluator()(text)
    except (LookupError, TypeError, AttributeError, ValueError):
        # The tokenizer runs over the end of the text, or stumbles over an operator of no language.
        raise _Unusable("is not JSONata") from None
    _check_calls(parsed.ast)
    return parsed


def _environment(parsed: Any) -> Any:
    jsonata = _library()
    frame = parsed.create_frame(jsonata.Jsonata.static_frame)
    for name in _IMPURE:
        frame.bind(name, jsonata.Jsonata.JLambda(_refusal(name)))
    return frame


def _refusal(name: str) -> Callable[..., None]:
    def refuse(*_arguments: object) -> None:
        raise _Unusable(_impure(name))

    return refuse


def _impure(name: str) -> str:
    return f"${name} is not available, as the same history must always lead to the same decision"


def _check_calls(root: Any) -> None:
    nodes = list(_nodes(root))
    known = function_names()
    bound = {name for node in nodes for name in _bound(node)}
    for node in nodes:
        if node.type != "function" and node.type != "partial":
            continue
        procedure = node.procedure
        if procedure.type == "path" and len(procedure.steps) == 1 and procedure.steps[0].type == "name":
            name = procedure.steps[0].value
            raise _Unusable(f"{name}(…) calls no function; a function's name begins with $")
        if procedure.type != "variable" or procedure.value in bound:
            continue
        if procedure.value in _IMPURE:
            raise _Unusable(_impure(procedure.value))
        if procedure.value not in known:
            near = nearest(f"${procedure.value}", (f"${name}" for name in known))
            raise _Unusable(f"there is no function ${procedure.value}" + (f"; {near}" if near else ""))


def _bound(node: Any) -> Iterator[str]:
    if node.type == "bind":
        yield node.lhs.value
    elif node.type == "lambda":
        yield from (argument.value for argument in node.arguments)
    yield from (name for name in (node.focus, node.index) if isinstance(name, str))


def _nodes(root: Any) -> Iterator[Any]:
    kind = _library().Parser.Symbol
    waiting: list[Any] = [root]
    seen: set[int] = set()
    while waiting:
        item = waiting.pop()
        if isinstance(item, list | tuple):
            waiting.extend(item)
        elif isinstance(item, kind) and id(item) not in seen:
            seen.add(id(item))
            yield item
            waiting.extend(vars(item).values())


def _copied(value: Any) -> Any:
    null = _library().Utils.NULL_VALUE

    def walk(item: Any) -> Any:
        if item is None:
            return null
        if isinstance(item, dict):
            return {key: walk(entry) for key, entry in item.items()}
        if isinstance(item, list | tuple):
            return [walk(entry) for entry in item]
        return item

    return walk(value)


class _Guard:
    """Records attempts to modify the input."""

    touched = False


class Frozen:
    """A JSON value converted once for many expressions. An expression that modifies it is evaluated again on
    a copy, with the same result."""

    def __init__(self) -> None:
        self.guard = _Guard()
        self.value: Any = None

    def freeze(self, value: Any) -> Any:
        """Return a copy that can be part of `value`."""
        null = _library().Utils.NULL_VALUE
        array, mapping = _frozen_types()

        def walk(item: Any) -> Any:
            if item is None:
                return null
            frozen: Any
            if isinstance(item, dict):
                frozen = mapping((key, walk(entry)) for key, entry in item.items())
            elif isinstance(item, list | tuple):
                frozen = array(map(walk, item))
            else:
                return item
            frozen.guard = self.guard
            return frozen

        return walk(value)


@cache
def _frozen_types() -> tuple[type[list[Any]], type[dict[str, Any]]]:
    def refuse(self: Any, *_arguments: object, **_named: object) -> Any:
        self.guard.touched = True
        raise TypeError("the history cannot be altered")

    arrays = "append extend insert remove pop clear sort reverse __setitem__ __delitem__ __iadd__ __imul__"
    mappings = "pop popitem clear update setdefault __setitem__ __delitem__ __ior__"
    return (
        type("_Array", (list,), dict.fromkeys(arrays.split(), refuse) | {"guard": _Guard()}),
        type("_Mapping", (dict,), dict.fromkeys(mappings.split(), refuse) | {"guard": _Guard()}),
    )


def _plain(value: Any) -> Any:
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return None


_LAST = "$last := function(){ $$.steps[-1].output }"
_UNCALLED = r"\$last\b(?!\s*\()"


def items_expression(text: str) -> str:
    """Return an expression of `each:` as JSONata, in which `$last()` is the last step's output."""
    return f"({_LAST}; {text})" if "$last" in text else text


def check_items(text: str) -> str | None:
    """Return what is wrong with an expression of `each:`, or None."""
    if re.search(_UNCALLED, text):
        return "$last is a function: write $last()"
    return check_expression(items_expression(text))
