"""Liquid templates with limits: edges' prompts and locations.

Variables are the last output's fields. A missing one prints nothing and is false, since a committed output
must not block its thread; `needs` finds such uses beforehand. Nothing is escaped: the text is for an agent.
Arrays and objects print as JSON. `{{{ x }}}` is `{{ x }}`. No access to files, clock or other templates; two
seconds, 256 MB, 10,000 loop iterations. Beyond a million characters the middle is omitted with a note.

Importing Liquid takes 170 ms, so plain text and simple variables are rendered here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache, partial
from itertools import pairwise
from typing import Any, TypeVar

from uwf_git.base import lifetime
from uwf_git.base.errors import Invalid, LimitExceeded
from uwf_git.base.text import closest, one_line
from uwf_git.base.timelimit import MemoryExceeded, TimeExceeded, time_limit

SECONDS = 2.0
MEMORY = 256 * 1024 * 1024
MAX_OUTPUT = 1_000_000
MAX_LOOPS = 10_000
MAX_LENGTH = 100_000

_LEFT_OUT = "\n[… {} characters left out …]\n"
_PLAIN = r"\{\{[ \t]*([A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*)[ \t]*\}\}"
# Words with another meaning in Liquid than the field of that name, anywhere in a path.
_WORDS = (
    "true|false|nil|null|empty|blank|and|or|not|in|contains|if|else|elsif|forloop|tablerowloop|with|as|for"
    "|required|reversed|limit|offset|continue|cols|size|first|last"
)

_FIELD = r"""[\w$.-]+[ ]*:(\s|$)|["'][^"']+["'][ ]*:|#"""
_FENCE = r"(`{3,})(?:ya?ml|json|markdown|md)?"

_THREE_BRACES = r"\{\{\{([ \t]*[A-Za-z_][\w.]*[ \t]*)\}\}\}"
_VERBATIM = "{% raw"

_T = TypeVar("_T")


def render(template: str, variables: Mapping[str, Any]) -> str:
    """Render a template. Raises Invalid for syntax errors and exceeded limits."""
    try:
        pieces = _pieces(template)
        if pieces is not None:
            values = {piece: _value(piece, variables) for piece in pieces}
            return _limited([values[piece] for piece in pieces])
        if not lifetime.limits_code():
            return _rendered_apart(template, variables)
        return _limited([_guarded(lambda: str(_parse(template).render(_printable(variables))))])
    except _Unusable as error:
        reason = str(error)
        kind = LimitExceeded if isinstance(error, _TooMuch) else Invalid
    raise kind(f'template "{one_line(template, 100)}": {reason}')


def _rendered_apart(template: str, variables: Mapping[str, Any]) -> str:
    from uwf_git.base import helper_process

    try:
        return str(helper_process.call(f"{__name__}:render", template, dict(variables)))
    except (TimeExceeded, MemoryExceeded) as limit:
        raise _beyond(limit) from None


def variables_of(template: str) -> set[tuple[str, ...]]:
    """Return the paths of a template's variables: `("author", "name")` for `{{ author.name }}`, ending before
    an index and `size`, `first`, `last`. Raises Invalid."""
    try:
        pieces = _pieces(template)
        if pieces is not None:
            return {piece for piece in pieces if isinstance(piece, tuple)}
        paths_of_globals = _guarded(lambda: _parse(template).analyze().globals.values())
    except _Unusable as error:
        raise Invalid(f'template "{one_line(template, 100)}": {error}') from None
    return {path for paths in paths_of_globals for item in paths if (path := _path(item.segments))}


def needs(template: str, path: tuple[str, ...]) -> bool:
    """Return whether a valid template prints a variable, so that it is incomplete without it; False if it is
    only tested or has a `default`."""
    if (pieces := _pieces(template)) is not None:
        return any(isinstance(piece, tuple) and piece[: len(path)] == path for piece in pieces)
    others: dict[str, Any] = {name[0]: _Anything() for name in variables_of(template)}
    others.pop(path[0], None)
    if len(path) > 1:
        others[path[0]] = _Anything(path[1:])
    for values in ({}, others) if len(path) == 1 else (others,):
        try:
            _guarded(partial(_parse(template, strict=True).render, values))
        except _Unusable as error:
            if str(error).split(" (line")[0] == _undefined(".".join(path)):
                return True
    return False


def check_template(template: str) -> str | None:
    """Return what is wrong with a template (syntax, unknown tag or filter), or None."""
    try:
        if _pieces(template) is None:
            _guarded(lambda: _check_filters(_parse(template)))
    except _Unusable as error:
        return str(error)
    return None


def body_of(answer: str) -> str:
    """Return an answer's text below its field block (between `---` lines, or in a fence at the top), trimmed;
    all of it without a block, "" for a JSON object. Decisions depend on it, so this never changes, however
    lenient parsing becomes elsewhere."""
    lines = answer.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").strip().split("\n")
    ends = [line.rstrip() for line in lines]
    rules = [place for place, line in enumerate(ends) if line in ("---", "...")]
    for first, last in pairwise(rules):
        inside = next((line for line in ends[first + 1 : last] if line), None)
        if ends[first] == "---" and (first == 0 if inside is None else re.match(_FIELD, inside)):
            fence = re.fullmatch(_FENCE, ends[first - 1]) if first else None
            return "\n".join(_unfenced(lines[last + 1 :], fence[1] if fence else "")).strip()
    if ends[0].startswith("{") and ends[-1].endswith("}"):
        return ""
    fence = re.fullmatch(_FENCE, ends[0])
    closing = ends.index(fence[1], 1) if fence and fence[1] in ends[1:] else -1
    return "\n".join(lines[closing + 1 :]).strip()


def _unfenced(below: list[str], fence: str) -> list[str]:
    closing = [place for place, line in enumerate(below) if fence and line.rstrip() == fence]
    if closing and not "".join(below[: closing[0]]).strip():
        return below[closing[0] + 1 :]
    return below[:-1] if closing and closing[-1] == len(below) - 1 else below


class _Unusable(Exception):
    """A template has no text."""


class _TooMuch(_Unusable):
    """A limit was exceeded."""


def _pieces(template: str) -> list[str | tuple[str, ...]] | None:
    if len(template) > MAX_LENGTH:
        raise _Unusable(f"is longer than {MAX_LENGTH:,} characters")
    template = _in_two_braces(template)
    if "{%" in template:
        return None
    pieces: list[str | tuple[str, ...]] = []
    done = 0
    while (start := template.find("{{", done)) >= 0:
        match = re.compile(_PLAIN).match(template, start)
        if match is None:
            return None
        path = tuple(match[1].split("."))
        if any(re.fullmatch(_WORDS, name) for name in path):
            return None
        pieces += [template[done:start], path]
        done = match.end()
    return [*pieces, template[done:]]


def _value(piece: str | tuple[str, ...], variables: Mapping[str, Any]) -> str:
    if isinstance(piece, str):
        return piece
    value: Any = variables
    for name in piece:
        if not isinstance(value, Mapping) or name not in value:
            return ""
        value = value[name]
    return _text(value)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list | tuple):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, range):
        return f"{value.start}..{value.stop - 1}"
    return str(value)


def _limited(parts: Sequence[str]) -> str:
    length = sum(map(len, parts))
    if length <= MAX_OUTPUT:
        return "".join(parts)
    half = MAX_OUTPUT // 2
    head = _beginning(parts, half)
    tail = _beginning((part[: -half - 1 : -1] for part in reversed(parts)), half)[::-1]
    return head + _LEFT_OUT.format(length - len(head) - len(tail)) + tail


def _beginning(parts: Iterable[str], room: int) -> str:
    taken: list[str] = []
    for part in parts:
        taken.append(part[:room])
        room -= len(taken[-1])
        if not room:
            break
    return "".join(taken)


def _undefined(path: str) -> str:
    return f"variable {path} is not defined"


def _path(segments: Any) -> tuple[str, ...]:
    path: list[str] = []
    for segment in segments:
        if not isinstance(segment, str) or (path and segment in ("size", "first", "last")):
            break
        path.append(segment)
    return tuple(path)


def _guarded(work: Callable[[], _T]) -> _T:
    from liquid.exceptions import (
        LiquidError,
        LocalNamespaceLimitError,
        LoopIterationLimitError,
        UnknownFilterError,
    )

    _environment()  # not on the template's time
    try:
        with time_limit(SECONDS, MEMORY):
            return work()
    except (TimeExceeded, MemoryExceeded, MemoryError, LocalNamespaceLimitError) as limit:
        raise _beyond(limit) from None
    except RecursionError:
        reason = "is nested too deeply"
    except LoopIterationLimitError:
        reason = f"takes over {MAX_LOOPS:,} turns of a loop"
    except _Unusable as error:
        reason = str(error)
    except UnknownFilterError as error:
        reason = str(error.message)
    except LiquidError as error:
        place = error.context()
        where = f" (line {place[0]}, column {place[1] + 1})" if place else ""
        reason = one_line(str(error.message)) + where
    except Exception as error:
        reason = f"fails with {type(error).__name__}: {one_line(str(error))}"
    raise _Unusable(reason)


def _beyond(limit: BaseException) -> _TooMuch:
    is_time = isinstance(limit, TimeExceeded)
    return _TooMuch(f"takes longer than {SECONDS:g} s" if is_time else "takes too much memory")


@lru_cache(maxsize=128)
def _parse(template: str, strict: bool = False) -> Any:
    return _environment(strict).from_string(_in_two_braces(template))


def _in_two_braces(template: str) -> str:
    return template if _VERBATIM in template else re.sub(_THREE_BRACES, r"{{\1}}", template)


class _Anything(dict[str, Any]):
    """A stand-in with every field except the one at `without`."""

    def __init__(self, without: tuple[str, ...] = ()) -> None:
        super().__init__()
        self._without = without

    def __missing__(self, key: str) -> Any:
        if self._without[:1] != (key,):
            return _Anything()
        if len(self._without) == 1:
            raise KeyError(key)
        return _Anything(self._without[1:])

    def __len__(self) -> int:
        return 1

    def items(self) -> Any:
        return [_Anything()]


def _check_filters(parsed: Any) -> None:
    for name in parsed.analyze().filters:
        if name not in _environment().filters:
            from uwf_git.workflow.common_mistakes import filter_mistake

            known = filter_mistake(name) or closest(name, _environment().filters)
            raise _Unusable(f"there is no filter {name!r}" + (f'; did you mean "{known}"?' if known else ""))


class _Object(dict[str, Any]):
    """An object that prints as JSON, also in filters."""

    def __str__(self) -> str:
        return _text(self)


class _Array(list[Any]):
    """An array that prints as JSON, also in filters."""

    def __str__(self) -> str:
        return _text(self)


def _printable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return _Object((key, _printable(item)) for key, item in value.items())
    if isinstance(value, list | tuple):
        return _Array(_printable(item) for item in value)
    return value


def _json(value: Any, indent: Any = None) -> str:
    if hasattr(value, "poke"):  # undefined: raises when read, if strict
        value.poke()
        return ""
    return json.dumps(value, ensure_ascii=False, indent=int(indent) if indent else None)


@cache
def _environment(strict: bool = False) -> Any:
    import liquid
    from liquid.builtin.output import Output, OutputNode
    from liquid.builtin.tags.echo_tag import EchoNode, EchoTag
    from liquid.context import RenderContext
    from liquid.exceptions import LiquidError
    from liquid.template import BoundTemplate
    from liquid.undefined import FalsyStrictUndefined, Undefined
    from liquid.utils import ReadOnlyChainMap

    class Strict(FalsyStrictUndefined):
        """False if tested, empty if looped over, replaced by `default`; otherwise an error."""

        force_liquid_default = True
        allowed_properties = FalsyStrictUndefined.allowed_properties | {"items"}

        def items(self) -> Any:
            return ()

        def __len__(self) -> int:
            return 0

        def __init__(self, name: str, *, token: Any, obj: object = None, hint: str | None = None) -> None:
            super().__init__(name, token=token, hint=hint)
            path = hint.removesuffix(" is undefined").strip("'") if hint else name
            self.msg = _undefined(path) if path.startswith(name) else f"variable {name}: {path}"

    class Context(RenderContext):
        """Without the library's variables `now` and `today`."""

        def __init__(self, template: Any, **options: Any) -> None:
            super().__init__(template, **options)
            self.scope = ReadOnlyChainMap(self.locals, self.globals, self.counters)

    class Template(BoundTemplate):
        context_class = Context

        def make_partial_namespace(self, partial: bool, render_args: Any) -> Any:
            return dict(render_args)  # and no `partial`, which would hide a field of that name

    absent: list[str] = []

    class Absent(Undefined):
        """Prints nothing."""

        def __init__(self, name: str, **told: Any) -> None:
            super().__init__(name, **told)
            absent.append(name)

    def write(node: Any, context: Any, buffer: Any) -> int:
        absent.clear()
        try:
            value = node.expression.evaluate(context)
        except LiquidError:
            if not absent:
                raise
            return 0  # a filter can't do without it
        return int(buffer.write(str(value) if isinstance(value, Undefined) else _text(value)))

    class Printed(OutputNode):
        render_to_output = write

    class Echoed(EchoNode):
        render_to_output = write

    class Printing(Output):
        node_class = Printed

    class Echoing(EchoTag):
        node_class = Echoed

    class Environment(liquid.Environment):
        template_class = Template
        loop_iteration_limit = MAX_LOOPS
        local_namespace_limit = 4 * MAX_OUTPUT
        # No limit of the library's on the output: its stream would change line ends.

    environment = Environment(undefined=Strict if strict else Absent, autoescape=False)
    environment.add_tag(Printing)
    environment.add_tag(Echoing)
    environment.add_filter("json", _json)
    for tag in ("include", "render"):
        del environment.tags[tag]
    del environment.filters["date"]  # reads the clock for parts missing in a date
    return environment
