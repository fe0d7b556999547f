"""The refs of a repository, read from its files as gitrepository-layout(5) has them: libgit2 skips a broken
ref without a word, and walks all refs of a shared repository for a few."""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from pathlib import Path

from pygit2 import Oid

_HEX = re.compile(r"[0-9a-f]{40}", re.ASCII)


def read_refs(git_dir: Path, prefix: str, read: bool = True, without: str = "") -> dict[str, Oid | None]:
    """Every ref under a prefix, except for those under `without`, with what it points at: None for a ref that
    holds no object id. Without `read`, refs in files of their own are not read, and None too."""
    packed = _packed(git_dir)
    first = bisect_left(packed, (prefix,))
    last = bisect_left(packed, (prefix + "\U0010ffff",), first)
    found: dict[str, Oid | None] = {
        name: _object_id(oid)
        for name, oid in packed[first:last]
        if not (without and name.startswith(without))
    }
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


_parsed: tuple[object, list[tuple[str, str]]] = (None, [])


def _packed(git_dir: Path) -> list[tuple[str, str]]:
    """The refs of packed-refs by name, with what stands there for an id. The file is replaced and never
    written into, so what was read of it holds while it is the same one."""
    global _parsed
    path = git_dir / "packed-refs"
    try:
        status = path.stat()
        key = (str(path), status.st_ino, status.st_mtime_ns, status.st_size)
        if _parsed[0] != key:
            text = path.read_text(encoding="utf-8", errors="surrogateescape")
            lines = (line.partition(" ") for line in text.splitlines() if line[:1] not in ("#", "^"))
            _parsed = key, sorted((name, oid) for oid, _, name in lines)
    except OSError:
        return []
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
