"""Declarative forms of third-party documents: the fields and kinds that their objects may have. Mistakes
become findings with positions.

"" and an empty YAML value both count as absent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from uwf_git.plugin import (
    Document,
    Findings,
    InvalidYaml,
    ValuePath,
    documents,
    kind_of,
    one_line,
    read_json,
    yaml12,
)

_FENCE = re.compile(r"---[ \t]*(?:\r?\n|\Z)")


class Part(NamedTuple):
    """A parsed file. `body` is the text below its frontmatter."""

    path: str
    document: Document
    findings: Findings
    body: str = ""


Kind = Callable[[Part, ValuePath, Any], Any]
"""Reads the value at a path, which isn't absent: as it counts, or None where it is wrong, which it reports."""


def json_part(path: str, data: bytes) -> Part:
    """Parse a JSON file. Raises InvalidYaml with line and column, Invalid above 1 MiB."""
    document, repeated = read_json(data, path)
    part = Part(path, document, Findings(document))
    for key, mark, first in repeated:
        message = f'key "{one_line(key, 80)}" is already in line {first}'
        part.findings.at(mark, "duplicate-key", message, "remove one of them")
    return part


def markdown_part(path: str, data: bytes) -> Part:
    r"""Parse a Markdown file with frontmatter, with \n line ends. Raises InvalidYaml, Invalid above 1 MiB."""
    document, body = read_frontmatter(data, path)
    return Part(path, document, Findings(document), body)


def read_frontmatter(data: str | bytes, name: str) -> tuple[Document, str]:
    """Return the frontmatter of a Markdown text, with positions in the whole text, and its body. Raises
    InvalidYaml, Invalid above 1 MiB."""
    documents.check_size(data, name)
    text = documents.decode(data, name).replace("\r\n", "\n")
    opening = _FENCE.match(text)
    if opening is None:
        hint = "no blank line before the ---" if text.lstrip().startswith("---") else "begin it with ---"
        raise InvalidYaml(
            name, documents.TOP, "it doesn't begin with frontmatter between two lines of ---", hint
        )
    at = opening.end()
    closing = next((match for match in re.finditer(r"^---[ \t]*$", text[at:], re.MULTILINE)), None)
    if closing is None:
        raise InvalidYaml(name, documents.TOP, "its frontmatter has no end", "end it with a line ---")
    # The blank line replaces the first ---, so that line numbers match the file.
    document = yaml12.load("\n" + text[at : at + closing.start()], name)
    if document.data is None:
        document = document._replace(data={})
    if not isinstance(document.data, dict):
        raise InvalidYaml(
            name, documents.TOP, "its frontmatter is not an object", "write key: value, a line each"
        )
    return document, text[at + closing.end() :].strip("\n")


def where(path: ValuePath) -> str:
    """Return a path as text: `agents[0].menu[2].trigger`; "it" for the root."""
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)
    return one_line(text.removeprefix("."), 120) or "it"


def is_absent(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def text(part: Part, path: ValuePath, value: Any) -> str | None:
    """A text; another YAML scalar is read as written."""
    if isinstance(value, str):
        return value
    if not isinstance(value, dict | list) and not part.path.endswith(".json"):
        return part.document.raw(path)
    wrong(part, path, value, "text")
    return None


def flag(part: Part, path: ValuePath, value: Any) -> bool | None:
    if isinstance(value, bool):
        return value
    wrong(part, path, value, "true or false")
    return None


def count(part: Part, path: ValuePath, value: Any) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    wrong(part, path, value, "a whole number above 0")
    return None


def anything(part: Part, path: ValuePath, value: Any) -> Any:
    return value


def mapping(part: Part, path: ValuePath, value: Any) -> dict[str, Any] | None:
    if isinstance(value, dict):
        return value
    wrong(part, path, value, "a mapping")
    return None


def matching(pattern: str, words: str, hint: str = "", code: str = "bad-value") -> Kind:
    """A text that matches a pattern, described by `words`."""
    compiled = re.compile(pattern, re.ASCII)

    def read(part: Part, path: ValuePath, value: Any) -> str | None:
        word = text(part, path, value)
        if word is None or compiled.fullmatch(word := word.strip()):
            return word
        part.findings.error(path, code, f'{where(path)} "{one_line(word, 60)}" is not {words}', hint)
        return None

    return read


def one_of(*choices: str) -> Kind:
    def read(part: Part, path: ValuePath, value: Any) -> str | None:
        word = text(part, path, value)
        if word is None or word in choices:
            return word
        hint = part.findings.nearest(word, choices)
        part.findings.error(path, "bad-value", f'{where(path)} "{one_line(word, 60)}" is not known', hint)
        return None

    return read


def list_of(kind: Kind, at_least: int = 0) -> Kind:
    """A list of a kind, as (path, value) pairs without absent items."""

    def read(part: Part, path: ValuePath, value: Any) -> list[tuple[ValuePath, Any]] | None:
        if not isinstance(value, list):
            wrong(part, path, value, "a list")
            return None
        if len(value) < at_least:
            part.findings.error(path, "bad-value", f"{where(path)} is empty", "it takes at least one")
        pairs = []
        for number, item in enumerate(value):
            below = (*path, number)
            if not is_absent(item) and (field_value := kind(part, below, item)) is not None:
                pairs.append((below, field_value))
        return pairs

    return read


def texts(part: Part, path: ValuePath, value: Any) -> tuple[str, ...] | None:
    """A list of non-blank texts."""
    pairs = _texts(part, path, value)
    return None if pairs is None else tuple(item for _, item in pairs)


_texts = list_of(text)


def object_of(
    required: Mapping[str, Kind],
    optional: Mapping[str, Kind],
    is_open: bool = False,
    may_be_blank: Collection[str] = (),
) -> Kind:
    """An object with these fields, and others only if open. Absent, wrong and unknown fields are dropped.
    Required fields that may be blank must be present, with a warning if blank."""
    known = {**required, **optional}

    def read(part: Part, path: ValuePath, value: Any) -> dict[str, Any] | None:
        if not isinstance(value, dict):
            wrong(part, path, value, "a mapping")
            return None
        fields: dict[str, Any] = {}
        for key, item in value.items():
            below = (*path, key)
            if key not in known:
                if not is_open:
                    shown = one_line(key, 60)
                    hint = part.findings.nearest(key, known)
                    part.findings.key_error(
                        below, "unknown-key", f'{where(path)} has no field "{shown}"', hint
                    )
            elif not is_absent(item) and (field_value := known[key](part, below, item)) is not None:
                fields[key] = field_value
        for key in required:
            if key not in value:
                part.findings.error(path, "missing-key", f"{where(path)} has no {key}", f'add "{key}"')
            elif is_absent(value[key]) and key in may_be_blank:
                part.findings.warning((*path, key), "blank", f"{where((*path, key))} is empty")
            elif is_absent(value[key]):
                part.findings.error(
                    (*path, key), "missing-key", f"{where((*path, key))} is empty", "fill it in"
                )
        return fields

    return read


def wrong(part: Part, path: ValuePath, value: Any, wanted: str) -> None:
    """Report a value of the wrong type."""
    part.findings.error(path, "wrong-type", f"{where(path)} is {kind_of(value)}, not {wanted}")
