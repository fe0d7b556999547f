"""The refs of a repository, read from its files as gitrepository-layout(5) has them: libgit2 skips a broken
ref without a word, and walks all refs of a shared repository for a few."""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from pathlib import Path

from pygit2 import Oid

_HEX = re.compile(r"[0-9a-f]{40}", re.ASCII)
_HEADS = re.compile(r"(?:[0-9a-f]{40} )*+", re.ASCII)


def read_refs(git_dir: Path, prefix: str, read: bool = True, without: str = "") -> dict[str, Oid | None]:
    """Every ref under a prefix, except for those under `without`, with what it points at: None for a ref that
    holds no object id. Without `read`, refs in files of their own are not read, and None too."""
    found = _packed(git_dir).under(prefix, without)
    folders = [prefix.rstrip("/")]
    while folders:
        folder = folders.pop()
        try:
            entries = list(os.scandir(git_dir / folder))
        except OSError:
            continue
        for entry in entries:
            name = f"{folder}/{entry.name}"
            if not name.isascii() and name != name.encode("utf-8", "replace").decode("utf-8"):
                found[name.encode("utf-8", "backslashreplace").decode("ascii", "replace")] = None
                continue  # no text, so none of ours
            if entry.is_dir(follow_symlinks=False):
                if name + "/" != without:
                    folders.append(name)
            elif not name.endswith(".lock"):
                found[name] = _loose_ref(entry.path) if read else None
    return found


def may_have_refs(git_dir: Path, prefix: str) -> bool:
    """Whether there is or was a ref under a prefix that ends in a slash; without reading each ref."""
    if (git_dir / prefix).is_dir():
        return True
    try:
        return f" {prefix}" in (git_dir / "packed-refs").read_text(errors="replace")
    except OSError:
        return False


class _Packed:
    """The refs of packed-refs, with what stands there for an id."""

    def __init__(self, text: str = "") -> None:
        lines = [line for line in text.split("\n") if line and line[0] not in "#^"]
        if _HEADS.fullmatch("".join([line[:41] for line in lines])):
            # Each id once: what is tracked is mostly here too, and the same object needs no look to be compared.
            written = [line[:40] for line in lines]
            ids = {oid: Oid(hex=oid) for oid in set(written)}
            refs: dict[str, Oid | None] = dict(
                zip([line[41:] for line in lines], map(ids.__getitem__, written), strict=True)
            )
        else:
            refs = {name: _object_id(oid) for oid, _, name in (line.partition(" ") for line in lines)}
        self._names = sorted(refs)
        self._refs = refs
        self._found: dict[tuple[str, str], dict[str, Oid | None]] = {}

    def under(self, prefix: str, without: str) -> dict[str, Oid | None]:
        """Those under a prefix, except for those under `without`, by name; the caller's to change."""
        if (prefix, without) not in self._found:
            first, last = self._bounds(prefix)
            start, end = self._bounds(without) if without else (last, last)
            start, end = max(start, first), min(end, last)
            names = (
                self._names[first:start] + self._names[end:last] if start < end else self._names[first:last]
            )
            self._found[prefix, without] = {name: self._refs[name] for name in names}
        return self._found[prefix, without].copy()

    def _bounds(self, prefix: str) -> tuple[int, int]:
        first = bisect_left(self._names, prefix)
        return first, bisect_left(self._names, prefix + "\U0010ffff", first)


_parsed: tuple[object, _Packed] = (None, _Packed())


def _packed(git_dir: Path) -> _Packed:
    """The refs of packed-refs. The file is replaced and never written into, so what was read of it holds while it is
    the same one."""
    global _parsed
    path = git_dir / "packed-refs"
    try:
        status = path.stat()
        key = (str(path), status.st_ino, status.st_mtime_ns, status.st_size)
        if _parsed[0] != key:
            _parsed = key, _Packed(path.read_text(encoding="utf-8", errors="surrogateescape"))
    except OSError:
        return _Packed()
    return _parsed[1]


def common_dir(git_dir: Path) -> Path:
    """The repository a worktree's git dir belongs to: refs/uwf and the private folder are shared."""
    pointer = git_dir / "commondir"
    if pointer.is_file():
        return (git_dir / pointer.read_text().strip()).resolve()
    return git_dir.resolve()


def _object_id(text: str) -> Oid | None:
    return Oid(hex=text) if _HEX.fullmatch(text) else None


def _loose_ref(path: str) -> Oid | None:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return _object_id(file.read(64).strip())
    except OSError:
        return None
