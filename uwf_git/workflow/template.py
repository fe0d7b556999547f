"""Liquid, bounded: the prompts and locations on the edges of a workflow.

Variables are the fields of the last output. An undefined variable is an error where it would be printed,
and false where it is only tested (`{% if reason %}`), so templates can test optional fields. Nothing is
escaped: the text goes to an agent, not into a page. Arrays and objects are printed as JSON. Templates
have no way to files, to the clock or to each other, and get two seconds, 256 MB, 10,000 turns of a loop
and 1 MB of output.

Liquid takes 170 ms to import, so text without markup, and markup that only names variables, are
rendered here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from typing import Any, TypeVar

from uwf_git.errors import Invalid, LimitExceeded
from uwf_git.text import one_line
from uwf_git.timelimit import MemoryExceeded, TimeExceeded, time_limit

SECONDS = 2.0
MEMORY = 256 * 1024 * 1024
MAX_OUTPUT = 1_000_000
MAX_LOOPS = 10_000
MAX_LENGTH = 100_000

_HINT = "see the templates of its edges with: uwf workflow show NAME"
_PLAIN = re.compile(r"\{\{[ \t]*([A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*)[ \t]*\}\}")
# Words that mean something else to Liquid than the field of that name, wherever they stand in a path.
_WORDS = re.compile(
    "true|false|nil|null|empty|blank|and|or|not|in|contains|if|else|elsif|forloop|tablerowloop|with|as|for"
    "|required|reversed|limit|offset|continue|cols|size|first|last"
)

_T = TypeVar("_T")


def render(template: str, variables: Mapping[str, Any]) -> str:
    """The text of a template over JSON values. Raises Invalid, naming the variable, for one that is
    printed but not there, and for syntax errors and exceeded limits."""
    try:
        pieces = _pieces(template)
        if pieces is not None:
            return _limited("".join(_value(piece, variables) for piece in pieces))
        return _guarded(lambda: _limited(_parse(template).render(_printable(variables))))
    except _Unusable as error:
        reason = str(error)
        kind = LimitExceeded if isinstance(error, _TooMuch) else Invalid
    raise kind(f'template "{one_line(template, 100)}": {reason}', _HINT)


def variables_of(template: str) -> set[tuple[str, ...]]:
    """The paths of the variables that a template expects from outside: `("author", "name")` for
    `{{ author.name }}`. A path ends before an index and before `size`, `first` and `last`, which Liquid
    has for every value. Raises Invalid as `render`."""
    try:
        pieces = _pieces(template)
        if pieces is not None:
            return {piece for piece in pieces if isinstance(piece, tuple)}
        found = _guarded(lambda: _parse(template).analyze().globals.values())
    except _Unusable as error:
        raise Invalid(f'template "{one_line(template, 100)}": {error}', _HINT) from None
    return {path for paths in found for each in paths if (path := _path(each.segments))}


def check_template(template: str) -> str | None:
    """None for a template that can be rendered, else what is wrong with it: syntax, or a tag or filter
    that doesn't exist."""
    try:
        if _pieces(template) is None:
            _guarded(lambda: _check_filters(_parse(template)))
    except _Unusable as error:
        return str(error)
    return None


class _Unusable(Exception):
    """Why a template has no text."""


class _TooMuch(_Unusable):
    """A limit of time or memory."""


def _pieces(template: str) -> list[str | tuple[str, ...]] | None:
    """Literal text and paths of variables in turn, or None where that isn't all there is."""
    if len(template) > MAX_LENGTH:
        raise _Unusable(f"is longer than {MAX_LENGTH:,} characters")
    if "{%" in template:
        return None
    pieces: list[str | tuple[str, ...]] = []
    done = 0
    while (start := template.find("{{", done)) >= 0:
        match = _PLAIN.match(template, start)
        if match is None:
            return None
        path = tuple(match[1].split("."))
        if any(_WORDS.fullmatch(name) for name in path):
            return None
        pieces += [template[done:start], path]
        done = match.end()
    return [*pieces, template[done:]]


def _value(piece: str | tuple[str, ...], variables: Mapping[str, Any]) -> str:
    if isinstance(piece, str):
        return piece
    value: Any = variables
    for depth, name in enumerate(piece, start=1):
        if not isinstance(value, Mapping) or name not in value:
            raise _Unusable(_undefined(".".join(piece[:depth])))
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


def _limited(text: str) -> str:
    if len(text) > MAX_OUTPUT:
        raise _Unusable(f"makes a text of over {MAX_OUTPUT:,} characters")
    return text


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
    """What `work` returns, within the limits. Whatever it raises becomes _Unusable."""
    from liquid.exceptions import (
        LiquidError,
        LocalNamespaceLimitError,
        LoopIterationLimitError,
        UnknownFilterError,
    )

    _environment()  # not on the template's time
    kind: type[_Unusable] = _Unusable
    try:
        with time_limit(SECONDS, MEMORY):
            return work()
    except TimeExceeded:
        kind, reason = _TooMuch, f"takes longer than {SECONDS:g} s"
    except (MemoryExceeded, MemoryError, LocalNamespaceLimitError):
        kind, reason = _TooMuch, "takes too much memory"
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
    raise kind(reason)


@lru_cache(maxsize=128)
def _parse(template: str) -> Any:
    return _environment().from_string(template)


def _check_filters(parsed: Any) -> None:
    for name in parsed.analyze().filters:
        if name not in _environment().filters:
            raise _Unusable(f"there is no filter {name!r}")


class _Object(dict[str, Any]):
    """An object that prints as JSON, also inside the library's filters."""

    def __str__(self) -> str:
        return _text(self)


class _Array(list[Any]):
    """An array that prints as JSON, also inside the library's filters."""

    def __str__(self) -> str:
        return _text(self)


def _printable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return _Object((key, _printable(item)) for key, item in value.items())
    if isinstance(value, list | tuple):
        return _Array(_printable(item) for item in value)
    return value


def _json(value: Any, indent: Any = None) -> str:
    if hasattr(value, "poke"):  # undefined: raises when asked
        value.poke()
    return json.dumps(value, ensure_ascii=False, indent=int(indent) if indent else None)


@cache
def _environment() -> Any:
    import liquid
    from liquid.builtin.output import Output, OutputNode
    from liquid.builtin.tags.echo_tag import EchoNode, EchoTag
    from liquid.context import RenderContext
    from liquid.template import BoundTemplate
    from liquid.undefined import FalsyStrictUndefined
    from liquid.utils import ReadOnlyChainMap

    class Undefined(FalsyStrictUndefined):
        """False where it is tested; `default` replaces it; everything else is an error."""

        force_liquid_default = True

        def __init__(self, name: str, *, token: Any, obj: object = None, hint: str | None = None) -> None:
            super().__init__(name, token=token, hint=hint)
            path = hint.removesuffix(" is undefined").strip("'") if hint else name
            self.msg = _undefined(path) if path.startswith(name) else f"variable {name}: {path}"

    class Context(RenderContext):
        """Without the variables `now` and `today`, which the library adds to every template."""

        def __init__(self, template: Any, **options: Any) -> None:
            super().__init__(template, **options)
            self.scope = ReadOnlyChainMap(self.locals, self.globals, self.counters)

    class Template(BoundTemplate):
        context_class = Context

        def make_partial_namespace(self, partial: bool, render_args: Any) -> Any:
            return dict(render_args)  # and no `partial`, which would hide a field of that name

    def write(node: Any, context: Any, buffer: Any) -> int:
        value = node.expression.evaluate(context)
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

    environment = Environment(undefined=Undefined, autoescape=False)
    environment.add_tag(Printing)
    environment.add_tag(Echoing)
    environment.add_filter("json", _json)
    for tag in ("include", "render"):
        del environment.tags[tag]
    del environment.filters["date"]  # reads the clock for what a date leaves out
    return environment
