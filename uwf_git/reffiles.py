"""The refs of a repository, read from its files as gitrepository-layout(5) has them: libgit2 skips a broken
ref without a word, and walks all refs of a shared repository for a few."""

from __future__ import annotations

import os
from pathlib import Path

from pygit2 import Oid


def read_refs(git_dir: Path, prefix: str, read: bool = True, without: str = "") -> dict[str, Oid | None]:
    """Every ref under a prefix, but those under `without`, with what it points at; None for one that
    holds no object id, or for all that stand in files of their own unless they are to be `read`."""
    found: dict[str, Oid | None] = {}
    try:
        packed = (git_dir / "packed-refs").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        packed = ""
    if f" {prefix}" in packed:  # often none is there of tens of thousands
        for line in packed.splitlines():
            oid, _, name = line.partition(" ")
            if name.startswith(prefix) and not (without and name.startswith(without)):
                found[name] = _object_id(oid)
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


def common_dir(git_dir: Path) -> Path:
    """The repository a worktree's git dir belongs to: refs/uwf and the private folder are shared."""
    pointer = git_dir / "commondir"
    if pointer.is_file():
        return (git_dir / pointer.read_text().strip()).resolve()
    return git_dir.resolve()


def _object_id(text: str) -> Oid | None:
    return Oid(hex=text) if len(text) == 40 and all(c in "0123456789abcdef" for c in text) else None


def _loose_ref(path: str) -> Oid | None:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return _object_id(file.read(64).strip())
    except OSError:
        return None
