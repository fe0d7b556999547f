"""Finding the fields in an answer: a YAML block between two `---` lines, then a report.

Agents garble it in known ways, each of which would cost a correction, such as a greeting before the block, a
code fence around it, `...` as the second line or no second line, an unquoted colon, or one JSON object. The
reader tries every place, most regular first; irregular places count only if their fields fit the role's
schema. The text between two horizontal rules must be a mapping.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from uwf_git.base.errors import Invalid
from uwf_git.engine.kit.coerce import Plain
from uwf_git.format.document import MAX_BYTES, InvalidYaml
from uwf_git.format.node import unique_keys
from uwf_git.format.schema import ValuePath
from uwf_git.format.yaml12 import load

_MOST_PLACES = 50

# Both for lines without trailing spaces, which would make matching them quadratic.
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*([\w.+-]*)")
_ENTRY = re.compile(r"([A-Za-z_$][\w$.-]*:[ ]+)(\S.*)")
_MEANT = re.compile(r"\s*[\w$.\"'-]+[ ]*:(\s|$)")  # prose between two rules is not a broken block
NO_BLOCK = "the answer does not begin with a block of fields between two lines of ---"


class Answer(NamedTuple):
    r"""`fields` may have `Plain` scalars, which `coerce` types; None if there are none, and `problem` says
    why. `body` is the report below the block, with \n line ends."""

    fields: dict[str, Any] | None
    body: str
    problem: str = ""


class _Place(NamedTuple):
    source: str
    line: int
    body: str
    read: Callable[[str, int], dict[str, Any] | None]
    regular: bool


class _Broken(Exception):
    pass


def parse_answer(text: str, fits: Callable[[dict[str, Any]], bool] | None = None) -> Answer:
    """Return the fields and the body of any answer: the first fields that `fits` accepts, otherwise the first
    in a regular place. Never raises."""
    if text.lstrip().startswith("\ufeff"):
        text = text.replace("\ufeff", "", 1)
    clean = text.replace("\r\n", "\n").replace("\r", "\n")
    if not clean.strip():
        return Answer(None, "", "the answer is empty")
    found: Answer | None = None
    problem = ""
    for place in _places(clean):
        try:
            fields = place.read(place.source, place.line)
        except _Broken as error:
            if place.regular and not problem and _MEANT.match(place.source):
                problem = str(error)
            continue
        if fields is None:
            continue
        answer = Answer(fields, place.body.strip("\n").rstrip())
        if fits is not None and fits(fields):
            return answer
        if place.regular and found is None:
            found = answer
            if fits is None:
                return answer
    return found or Answer(None, clean.strip("\n").rstrip(), problem or NO_BLOCK)


def _places(text: str) -> Iterator[_Place]:
    lines = text.split("\n")
    stripped = text.strip()
    if stripped.startswith("{") and stripped.endswith("}"):
        yield _Place(stripped, 1, "", _json, True)
    top = next(number for number, line in enumerate(lines) if line.strip())
    rules = [number for number, line in enumerate(lines) if line.rstrip() == "---"][:_MOST_PLACES]
    blocks = [(start, *_block(lines, start)) for start in rules]
    for start, end, body in blocks:
        if end is None:
            continue
        source = _joined(lines[start + 1 : end])
        if source.strip() or start == top:
            yield _Place(source, start + 2, body, _yaml, True)
    fences = [number for number, line in enumerate(lines) if _FENCE.fullmatch(line.rstrip())]
    if len(fences) == 2:
        inside = "\n".join(lines[fences[0] + 1 : fences[1]]).strip()
        around = "\n".join([*lines[: fences[0]], *lines[fences[1] + 1 :]])
        if inside.startswith("{"):
            yield _Place(inside, fences[0] + 2, around, _json, True)
    for start, end, body in blocks:
        if end is not None:
            yield _Place(_quoted(lines[start + 1 : end]), start + 2, body, _yaml, False)
    yield from _irregular(lines, top, rules, fences)
    opening = next((number for number, line in enumerate(lines) if line.startswith("{")), None)
    closing = next(
        (number for number in range(len(lines) - 1, -1, -1) if lines[number].rstrip().endswith("}")), -1
    )
    if opening is not None and opening <= closing:
        around = "\n".join([*lines[:opening], *lines[closing + 1 :]])
        yield _Place("\n".join(lines[opening : closing + 1]), opening + 1, around, _json, False)


def _irregular(lines: list[str], top: int, rules: list[int], fences: list[int]) -> Iterator[_Place]:
    """Yield blocks that lack one of their marks. Each must fit to count, so a wrong guess costs nothing."""
    if (
        len(fences) >= 2
        and (fence := _FENCE.fullmatch(lines[fences[0]].rstrip()))
        and fence[2] in ("", "yaml", "yml")
    ):
        rest = "\n".join([*lines[: fences[0]], *lines[fences[1] + 1 :]])
        for source in _as_written_and_quoted(lines[fences[0] + 1 : fences[1]]):
            yield _Place(source, fences[0] + 2, rest, _yaml, False)
    if rules and rules[0] > top:
        for source in _as_written_and_quoted(lines[top : rules[0]]):
            yield _Place(source, top + 1, "\n".join(lines[rules[0] + 1 :]), _yaml, False)
    if rules and rules[0] == top:
        blank = next(
            (number for number in range(top + 1, len(lines)) if not lines[number].strip()), len(lines)
        )
        for end in dict.fromkeys((len(lines), blank)):
            for source in _as_written_and_quoted(lines[top + 1 : end]):
                yield _Place(source, top + 2, "\n".join(lines[end:]), _yaml, False)


def _as_written_and_quoted(lines: list[str]) -> tuple[str, str]:
    return _joined(lines), _quoted(lines)


def _joined(lines: list[str]) -> str:
    # The last line end counts: a literal block at the end has it or not.
    return "".join(f"{line}\n" for line in lines)


def _block(lines: list[str], start: int) -> tuple[int | None, str]:
    """Return the end of the block opened at `start`, and the body. A fence right before the block either
    closes with it or wraps the whole answer."""
    before = next((line for line in reversed(lines[:start]) if line.strip()), "")
    opening = _FENCE.fullmatch(before.rstrip())
    for end in range(start + 1, len(lines)):
        line = lines[end].rstrip()
        if line in ("---", "..."):
            below = lines[end + 1 :]
            return end, "\n".join(_unfenced(below, opening[1]) if opening else below)
        if opening and _closes(line, opening[1]):
            return end, "\n".join(lines[end + 1 :])
    return None, ""


def _closes(line: str, fence: str) -> bool:
    line = line.rstrip()
    return len(line) >= len(fence) and line == fence[0] * len(line)


def _unfenced(lines: list[str], fence: str) -> list[str]:
    marks = [number for number, line in enumerate(lines) if _FENCE.fullmatch(line.rstrip())]
    filled = [number for number, line in enumerate(lines) if line.strip()]
    if not filled:
        return []
    closing = [number for number in marks if _closes(lines[number], fence)]
    if closing and closing[0] == filled[0]:
        return lines[: filled[0]] + lines[filled[0] + 1 :]
    if closing and closing[-1] == filled[-1] and len(marks) % 2:
        return lines[: closing[-1]]
    inside = False
    for number in marks:
        if not inside and number in closing:
            return lines[:number] + lines[number + 1 :]
        inside = not inside
    return lines


def _quoted(lines: list[str]) -> str:
    """Return the block with quotes around one-line values that YAML cannot read without them (a colon, a
    leading `@`, `*`, backtick or bracket, nested quotes), and tabs in indentation replaced."""
    return _joined([_quoted_line(line) for line in lines])


def _quoted_line(line: str) -> str:
    indent = len(line) - len(line.lstrip("\t"))
    line = "  " * indent + line[indent:].rstrip()
    if not (entry := _ENTRY.fullmatch(line)):
        return line
    key, value = entry[1], entry[2]
    first, last = value[0], value[-1]
    if first == '"' and last == '"' and len(value) > 1:
        inner = re.sub(r'(?<!\\)"', r"\\" + '"', value[1:-1])
        return f'{key}"{inner}"'
    broken = ": " in value or last == ":" or first in "@`%*"
    # "[WIP] add a test" is text. An unclosed block was cut off.
    unbalanced = any(
        first == opening and last != closing and value.count(opening) == value.count(closing)
        for opening, closing in ("[]", "{}")
    )
    if (broken and first not in "\"'|>[{&!") or unbalanced:
        return key + json.dumps(value, ensure_ascii=False)
    return line


def _json(source: str, _line: int) -> dict[str, Any] | None:
    if len(source) > MAX_BYTES:
        return None
    try:
        value = json.loads(
            source, parse_int=Plain, parse_float=Plain, parse_constant=Plain, object_pairs_hook=unique_keys
        )
    except (ValueError, RecursionError, Invalid):
        return None
    return value if isinstance(value, dict) else None


def _yaml(source: str, line: int) -> dict[str, Any] | None:
    if not source.strip():
        return {}
    try:
        document = load(source, "the block of fields", tolerant=True)
    except InvalidYaml as error:
        where = f"line {line + error.mark.line - 1} of the answer"
        hint = f" ({error.hint})" if error.hint else ""
        raise _Broken(f"the block of fields is not YAML: {where}: {error.problem}{hint}") from None
    except Invalid as error:
        raise _Broken(error.message) from None
    return _undecided(document.data, (), document.scalars) if isinstance(document.data, dict) else None


def _undecided(value: Any, path: ValuePath, scalars: Mapping[ValuePath, str]) -> Any:
    if isinstance(value, dict):
        return {key: _undecided(item, (*path, key), scalars) for key, item in value.items()}
    if isinstance(value, list):
        return [_undecided(item, (*path, number), scalars) for number, item in enumerate(value)]
    return value if isinstance(value, str) else Plain(scalars[path])
