"""The form of a document that others have defined, as a table: which fields its objects may hold, of what kind. Every
slip becomes a finding with its place, and what is left is plain to read.

People write "" where they mean that something isn't there, and YAML has nothing at all, so both count as absent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from uwf_git.base.text import one_line
from uwf_git.format import yaml12
from uwf_git.format.document import TOP, Document, InvalidYaml, check_size, decode
from uwf_git.format.fields import kind_of
from uwf_git.format.findings import Findings
from uwf_git.format.json_text import read_json
from uwf_git.format.schema import ValuePath

_FENCE = re.compile(r"---[ \t]*(?:\r?\n|\Z)")


class Part(NamedTuple):
    """A file that was read. `findings` is what is wrong with it; `body` stands below its frontmatter."""

    path: str
    document: Document
    findings: Findings
    body: str = ""


Kind = Callable[[Part, ValuePath, Any], Any]
"""Reads the value at a path, which isn't absent: as it counts, or None where it is wrong, which it reports."""


def json_part(path: str, data: bytes) -> Part:
    """A JSON file. Raises InvalidYaml, which has line and column, for what is no JSON (Invalid for over 1 MiB)."""
    document, repeated = read_json(data, path)
    part = Part(path, document, Findings(document))
    for key, mark, first in repeated:
        message = f'key "{one_line(key, 80)}" is already in line {first}'
        part.findings.at(mark, "duplicate-key", message, "remove one of them")
    return part


def markdown_part(path: str, data: bytes) -> Part:
    """A Markdown file that begins with frontmatter; its line ends are \\n. Raises InvalidYaml (Invalid for over
    1 MiB)."""
    document, body = read_frontmatter(data, path)
    return Part(path, document, Findings(document), body)


def read_frontmatter(data: str | bytes, name: str) -> tuple[Document, str]:
    """The frontmatter of a Markdown text, an object, with its positions in the whole text; and the body below it.
    Raises InvalidYaml (Invalid for over 1 MiB)."""
    check_size(data, name)
    text = decode(data, name).replace("\r\n", "\n")
    opening = _FENCE.match(text)
    if opening is None:
        hint = "no blank line before the ---" if text.lstrip().startswith("---") else "begin it with ---"
        raise InvalidYaml(name, TOP, "it doesn't begin with frontmatter between two lines of ---", hint)
    at = opening.end()
    closing = next((found for found in re.finditer(r"^---[ \t]*$", text[at:], re.MULTILINE)), None)
    if closing is None:
        raise InvalidYaml(name, TOP, "its frontmatter has no end", "end it with a line ---")
    # The blank line stands for the first ---, so that lines count as in the file.
    document = yaml12.load("\n" + text[at : at + closing.start()], name)
    if document.data is None:
        document = document._replace(data={})
    if not isinstance(document.data, dict):
        raise InvalidYaml(name, TOP, "its frontmatter is no object", "write key: value, a line each")
    return document, text[at + closing.end() :].strip("\n")


def where(path: ValuePath) -> str:
    """A place in words: `agents[0].menu[2].trigger`; "it" for the whole."""
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)
    return one_line(text.removeprefix("."), 120) or "it"


def is_absent(value: Any) -> bool:
    """Whether a value means that there is none."""
    return value is None or (isinstance(value, str) and not value.strip())


def text(part: Part, path: ValuePath, value: Any) -> str | None:
    """A text. Of another scalar in YAML it is what was written."""
    if isinstance(value, str):
        return value
    if not isinstance(value, dict | list) and not part.path.endswith(".json"):
        return part.document.raw(path)
    wrong(part, path, value, "text")
    return None


def flag(part: Part, path: ValuePath, value: Any) -> bool | None:
    """true or false."""
    if isinstance(value, bool):
        return value
    wrong(part, path, value, "true or false")
    return None


def count(part: Part, path: ValuePath, value: Any) -> int | None:
    """A whole number above zero."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    wrong(part, path, value, "a whole number above 0")
    return None


def anything(part: Part, path: ValuePath, value: Any) -> Any:
    """Any value."""
    return value


def mapping(part: Part, path: ValuePath, value: Any) -> dict[str, Any] | None:
    """An object of any fields."""
    if isinstance(value, dict):
        return value
    wrong(part, path, value, "a mapping")
    return None


def matching(pattern: str, words: str, hint: str = "", code: str = "bad-value") -> Kind:
    """A text of that pattern, described by `words`."""
    compiled = re.compile(pattern, re.ASCII)

    def read(part: Part, path: ValuePath, value: Any) -> str | None:
        said = text(part, path, value)
        if said is None or compiled.fullmatch(said := said.strip()):
            return said
        part.findings.error(path, code, f'{where(path)} "{one_line(said, 60)}" is not {words}', hint)
        return None

    return read


def one_of(*choices: str) -> Kind:
    """One of those texts."""

    def read(part: Part, path: ValuePath, value: Any) -> str | None:
        said = text(part, path, value)
        if said is None or said in choices:
            return said
        hint = part.findings.nearest(said, choices)
        part.findings.error(path, "bad-value", f'{where(path)} "{one_line(said, 60)}" is not known', hint)
        return None

    return read


def list_of(kind: Kind, at_least: int = 0) -> Kind:
    """A list of values of a kind, with absent ones left out. Its items are pairs of their path and their value."""

    def read(part: Part, path: ValuePath, value: Any) -> list[tuple[ValuePath, Any]] | None:
        if not isinstance(value, list):
            wrong(part, path, value, "a list")
            return None
        if len(value) < at_least:
            part.findings.error(path, "bad-value", f"{where(path)} is empty", "it takes at least one")
        made = []
        for number, item in enumerate(value):
            below = (*path, number)
            if not is_absent(item) and (found := kind(part, below, item)) is not None:
                made.append((below, found))
        return made

    return read


def texts(part: Part, path: ValuePath, value: Any) -> tuple[str, ...] | None:
    """A list of texts, with blank ones left out."""
    found = _texts(part, path, value)
    return None if found is None else tuple(item for _, item in found)


_texts = list_of(text)


def object_of(
    required: Mapping[str, Kind],
    optional: Mapping[str, Kind],
    is_open: bool = False,
    may_be_blank: Collection[str] = (),
) -> Kind:
    """An object with those fields, and no others where it isn't open. What is absent or wrong is left out of it, and
    so is what isn't known. Of the required ones those that may be blank have to be there, and are warned of."""
    known = {**required, **optional}

    def read(part: Part, path: ValuePath, value: Any) -> dict[str, Any] | None:
        if not isinstance(value, dict):
            wrong(part, path, value, "a mapping")
            return None
        made: dict[str, Any] = {}
        for key, item in value.items():
            below = (*path, key)
            if key not in known:
                if not is_open:
                    shown = one_line(key, 60)
                    hint = part.findings.nearest(key, known)
                    part.findings.key_error(
                        below, "unknown-key", f'{where(path)} has no field "{shown}"', hint
                    )
            elif not is_absent(item) and (found := known[key](part, below, item)) is not None:
                made[key] = found
        for key in required:
            if key not in value:
                part.findings.error(path, "missing-key", f"{where(path)} has no {key}", f'add "{key}"')
            elif is_absent(value[key]) and key in may_be_blank:
                part.findings.warning((*path, key), "blank", f"{where((*path, key))} is empty")
            elif is_absent(value[key]):
                part.findings.error(
                    (*path, key), "missing-key", f"{where((*path, key))} is empty", "fill it in"
                )
        return made

    return read


def wrong(part: Part, path: ValuePath, value: Any, wanted: str) -> None:
    """Reports a value of another type than the one wanted."""
    part.findings.error(path, "wrong-type", f"{where(path)} is {kind_of(value)}, not {wanted}")
