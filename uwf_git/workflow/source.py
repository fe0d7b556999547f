"""A workflow's source: the YAML's bytes, its value with positions, and included files.

`!include PATH` reads a file in the YAML's folder or below: YAML and JSON as data, others as text. Hidden
files are refused, since a stranger's workflow must not send `.env` to a model.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from uwf_git.base.errors import Invalid, NotFound
from uwf_git.base.text import nearest_file, one_line
from uwf_git.format import yaml12
from uwf_git.format.document import Document, decode, read_bytes

DATA_SUFFIXES = (".yaml", ".yml", ".json")
MAX_INCLUDES = 64
MAX_INCLUDED_BYTES = 4 << 20
MAX_INCLUDE_DEPTH = 8


class Source(NamedTuple):
    """A source. `path` is for messages, `marks` has positions; `includes` maps relative paths to files."""

    path: str
    text: bytes
    data: Any
    marks: Document
    includes: Mapping[str, bytes]


def read_source(path: Path) -> Source:
    """Read a workflow file with includes, without checking it. Raises NotFound, Invalid."""
    try:
        text = read_bytes(path)
    except NotFound as error:
        raise NotFound(error.message, _neighbour(path) or error.hint) from None
    folder = path.parent.resolve()

    def include(relative: str) -> bytes:
        target = (folder / relative).resolve()
        if not target.is_relative_to(folder):
            raise Invalid(f"!include {relative} leads outside the folder", "copy the file beside the YAML")
        if target.exists() and not target.is_file():
            raise Invalid(f"!include {relative} is not a file")
        return read_bytes(target)

    return parse_source(text, str(path), include)


def parse_source(text: bytes, name: str, include: Callable[[str], bytes] | None = None) -> Source:
    """Parse a text. `include` returns a file by relative path (with `/`, never upwards) and may raise any
    UwfError. Raises Invalid."""
    loader = _Loader(include)
    document = yaml12.load(text, name, include=loader.relative_to("") if include else None)
    return Source(name, text, document.data, document, dict(loader.files))


class _Loader:
    """The included files of one source, each read and parsed once."""

    def __init__(self, include: Callable[[str], bytes] | None) -> None:
        self._include = include
        self._made: dict[str, Document | str] = {}
        self._open: list[str] = []
        self.files: dict[str, bytes] = {}

    def relative_to(self, including: str) -> yaml12.Include:
        folder = posixpath.dirname(including)
        return lambda path: self._get(_inside(folder, path))

    def _get(self, path: str) -> Document | str:
        if path in self._open or len(self._open) >= MAX_INCLUDE_DEPTH:
            chain = " → ".join([*self._open, path])
            raise Invalid(f"!include is circular or too deep: {chain}")
        if path not in self._made:
            self._open.append(path)
            self._made[path] = self._make(path, self._read(path))
            self._open.pop()
        return self._made[path]

    def _read(self, path: str) -> bytes:
        assert self._include is not None
        if len(self.files) >= MAX_INCLUDES:
            raise Invalid(f"over {MAX_INCLUDES} files are included")
        data = self._include(path)
        self.files[path] = data
        if sum(map(len, self.files.values())) > MAX_INCLUDED_BYTES:
            raise Invalid(f"included files are larger than {MAX_INCLUDED_BYTES >> 20} MiB together")
        return data

    def _make(self, path: str, data: bytes) -> Document | str:
        if path.lower().endswith(DATA_SUFFIXES):
            return yaml12.load(data, path, include=self.relative_to(path))
        # The same workflow has one hash wherever it was checked out.
        return decode(data, path).replace("\r\n", "\n")


def _inside(folder: str, path: str) -> str:
    shown = one_line(path, 80)
    if "\\" in path or "\0" in path or posixpath.isabs(path):
        raise Invalid(f"!include {shown} is not a relative path with /", "!include prompts/reviewer.md")
    joined = posixpath.normpath(posixpath.join(folder, path))
    parts = joined.split("/")
    if parts[0] == "..":
        raise Invalid(f"!include {shown} leads outside the folder", "copy the file beside the YAML")
    if any(part.startswith(".") for part in parts):
        raise Invalid(f"!include {shown} names a hidden file", "give the file a name without a leading dot")
    return joined


def _neighbour(path: Path) -> str:
    try:
        names = [entry.name for entry in path.parent.iterdir() if entry.suffix in DATA_SUFFIXES]
    except OSError:
        return ""
    return nearest_file(path.name, names)
