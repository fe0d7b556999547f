"""JSON documents with the positions of values and duplicate keys. YAML is almost a superset of JSON, but not
with surrogate escapes, and the standard reader has no positions."""

from __future__ import annotations

import json.decoder
import re
from bisect import bisect_right
from json.decoder import JSONDecodeError
from typing import Any, NamedTuple, NoReturn

from uwf_git.base.text import one_line
from uwf_git.format.cbor import MAX_INTEGER
from uwf_git.format.document import Document, InvalidYaml, Mark, check_size, decode
from uwf_git.format.schema import ValuePath

MAX_VALUES = 100_000
MAX_DEPTH = 100

_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?", re.ASCII)
_WORDS = {"true": True, "false": False, "null": None}
_SURROGATE = re.compile("[\ud800-\udfff]")


class Repeated(NamedTuple):
    """A duplicate key: `mark` is its second position, `first` the line of the first."""

    key: str
    mark: Mark
    first: int


def read_json(data: str | bytes, name: str) -> tuple[Document, tuple[Repeated, ...]]:
    """Return the document and its duplicate keys, of which the first counts. `name` is for messages. Raises
    InvalidYaml with line and column, Invalid above 1 MiB."""
    check_size(data, name)
    parser = _Parser(decode(data, name), name)
    return parser.document(), tuple(parser.repeated)


class _Parser:
    def __init__(self, text: str, name: str) -> None:
        self._text = text
        self._name = name
        self._lines = [0, *(match.end() for match in re.finditer("\n", text))]
        self._escapes = "\\u" in text
        self.marks: dict[ValuePath, Mark] = {}
        self.keys: dict[ValuePath, Mark] = {}
        self.scalars: dict[ValuePath, str] = {}
        self.repeated: list[Repeated] = []

    def document(self) -> Document:
        value, at = self._value(self._skip(0), (), 0)
        if (at := self._skip(at)) < len(self._text):
            self._refuse(at, "something stands after the end of the value", "one file, one value")
        return Document(self._name, value, self.marks, self.keys, self.scalars)

    def _value(self, at: int, path: ValuePath, depth: int) -> tuple[Any, int]:
        if len(self.marks) >= MAX_VALUES:
            self._refuse(at, f"over {MAX_VALUES} values")
        if depth > MAX_DEPTH:
            self._refuse(at, f"nested deeper than {MAX_DEPTH} levels")
        self.marks[path] = self._mark(at)
        first = self._text[at : at + 1]
        if first == '"':
            text, end = self._string(at)
            self.scalars[path] = text
            return text, end
        if first == "{":
            return self._object(at + 1, path, depth)
        if first == "[":
            return self._array(at + 1, path, depth)
        return self._scalar(at, path)

    def _object(self, at: int, path: ValuePath, depth: int) -> tuple[dict[str, Any], int]:
        members: dict[str, Any] = {}
        at = self._skip(at)
        if self._text[at : at + 1] == "}":
            return members, at + 1
        while True:
            if self._text[at : at + 1] != '"':
                self._refuse(at, "a key in double quotes is wanted here", self._comma_hint(at))
            mark = self._mark(at)
            key, at = self._string(at)
            at = self._skip(at)
            if self._text[at : at + 1] != ":":
                self._refuse(at, "a colon is wanted here")
            below = (*path, key)
            if key in members:
                # Parsed for its own mistakes and kept separately, so that the first keeps its place.
                self.repeated.append(Repeated(key, mark, self.keys[below].line))
                _, at = self._value(self._skip(at + 1), (*path, f"{key}\0{len(self.repeated)}"), depth + 1)
            else:
                self.keys[below] = mark
                members[key], at = self._value(self._skip(at + 1), below, depth + 1)
            at, ended = self._next(at, "}")
            if ended:
                return members, at

    def _array(self, at: int, path: ValuePath, depth: int) -> tuple[list[Any], int]:
        items: list[Any] = []
        at = self._skip(at)
        if self._text[at : at + 1] == "]":
            return items, at + 1
        while True:
            item, at = self._value(at, (*path, len(items)), depth + 1)
            items.append(item)
            at, ended = self._next(at, "]")
            if ended:
                return items, at

    def _next(self, at: int, end: str) -> tuple[int, bool]:
        at = self._skip(at)
        sign = self._text[at : at + 1]
        if sign == end:
            return at + 1, True
        if sign != ",":
            self._refuse(at, f"a comma or {end} is wanted here")
        return self._skip(at + 1), False

    def _string(self, at: int) -> tuple[str, int]:
        try:
            text, end = json.decoder.scanstring(self._text, at + 1, True)  # type: ignore[attr-defined]
        except JSONDecodeError as error:
            line_end = "\n" in self._text[at + 1 : error.pos + 1]
            problem = (
                "a text has no closing quote on its line"
                if line_end
                else error.msg[:1].lower() + error.msg[1:]
            )
            hint = "write a line end in a text as \\n" if line_end else ""
            self._refuse(at if line_end else error.pos, one_line(problem), hint)
        if self._escapes and _SURROGATE.search(text):
            self._refuse(at, "text holds a lone surrogate", "it is not valid Unicode; replace it")
        return text, end

    def _scalar(self, at: int, path: ValuePath) -> tuple[Any, int]:
        for word, meant in _WORDS.items():
            if self._text.startswith(word, at):
                self.scalars[path] = word
                return meant, at + len(word)
        match = _NUMBER.match(self._text, at)
        if match is None:
            self._refuse(
                at,
                "a value is wanted here" if at < len(self._text) else "it ends too early",
                self._comma_hint(at),
            )
        written = match.group()
        self.scalars[path] = written
        number: int | float = float(written) if match[1] or match[2] or len(written) > 20 else int(written)
        if abs(number) == float("inf") or (isinstance(number, int) and abs(number) > MAX_INTEGER):
            self._refuse(at, "a number that JSON cannot hold everywhere", "quote it to make it text")
        return number, match.end()

    def _comma_hint(self, at: int) -> str:
        before = self._text[:at].rstrip(" \t\r\n")
        if before.endswith(",") and self._text[at : at + 1] in ("}", "]"):
            return "take the comma before it away"
        return "JSON has no comments" if self._text[at : at + 1] in ("/", "#") else ""

    def _skip(self, at: int) -> int:
        match = _SPACE.match(self._text, at)
        return match.end() if match else at

    def _mark(self, at: int) -> Mark:
        line = bisect_right(self._lines, at)
        return Mark(line, at - self._lines[line - 1] + 1)

    def _refuse(self, at: int, problem: str, hint: str = "") -> NoReturn:
        raise InvalidYaml(self._name, self._mark(at), f"not JSON: {problem}", hint)
