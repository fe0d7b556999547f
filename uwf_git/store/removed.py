"""Removed threads, kept as git bundles `<git dir>/uwf/removed/<ULID>.bundle`, which no push sends.

A bundle's heads are the thread's refs.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from uwf_git.base.errors import UwfError
from uwf_git.format.ids import ThreadId, is_thread_id
from uwf_git.git.fsync import sync
from uwf_git.git.repository import Oid, Repository
from uwf_git.store import layout
from uwf_git.store.private_files import write_private

_SIGNATURE = b"# v2 git bundle\n"
_SUFFIX = ".bundle"


def keep(
    repository: Repository, thread: ThreadId, refs: Mapping[str, Oid], warn: Callable[[str], None]
) -> None:
    """Write a thread's bundle. Calls `warn` if a damaged thread cannot be kept. Raises StoreUnwritable."""
    # A removal that was broken off may have deleted some of the refs.
    known = {**kept_refs(repository, thread), **refs}
    there = {name: oid for name, oid in known.items() if repository.has(oid)}
    if not there:
        return
    repository.store_gathered()
    tips = "".join(f"{oid}\n" for oid in there.values())
    try:
        from uwf_git.git.program import Git

        done = Git(repository.path).run(
            *("pack-objects", "--revs", "--stdout", "--quiet", "--missing=allow-any"), stdin=tips.encode()
        )
    except UwfError as error:
        warn(f"thread {thread} cannot be restored: {error.message}")
        return
    heads = "".join(f"{oid} {name}\n" for name, oid in sorted(there.items()))
    write_private(_path(repository, thread), _SIGNATURE + heads.encode() + b"\n" + done.out, synced=True)


def kept_refs(repository: Repository, thread: ThreadId) -> dict[str, Oid]:
    """Return a removed thread's refs, {} if nothing is kept. Their objects may exist only in the bundle."""
    return _heads(_path(repository, thread))


def unpack(repository: Repository, thread: ThreadId) -> dict[str, Oid]:
    """Restore a removed thread's objects and return its refs. Raises RemoteFailed for an unreadable bundle."""
    path = _path(repository, thread)
    if path.is_file():
        from uwf_git.git.program import Git

        Git(repository.path).run("bundle", "unbundle", str(path))
    return {name: oid for name, oid in kept_refs(repository, thread).items() if repository.has(oid)}


def forget(repository: Repository, thread: ThreadId) -> None:
    """Delete a removed thread's bundles, half-written ones too."""
    if paths := _files(repository).get(thread):
        for path in paths:
            path.unlink(missing_ok=True)
        sync(_folder(repository))


def was_squatter(repository: Repository, mark: Oid) -> bool:
    """Return whether a removed thread, by the blob of its removal, had the id of a branch that it was not."""
    with contextlib.suppress(UwfError, ValueError, RecursionError, AttributeError):
        return json.loads(repository.blob(mark)).get("squatter") is True
    return False


def expired(repository: Repository) -> dict[ThreadId, dict[str, Any]]:
    """Return the records of threads that were removed because a rule says so, for good."""
    threads = {}
    for name, mark in repository.refs(layout.REMOVED).items():
        with contextlib.suppress(UwfError, ValueError, RecursionError, AttributeError):
            record = json.loads(repository.blob(mark))
            if record.get("rule"):
                threads[layout.thread_of(name)] = record
    return threads


def kept_threads(repository: Repository) -> set[ThreadId]:
    """Return the threads with bundles, including unfinished removals."""
    return set(_files(repository))


def _folder(repository: Repository) -> Path:
    return repository.private / "removed"


def _files(repository: Repository) -> dict[ThreadId, list[Path]]:
    files: dict[ThreadId, list[Path]] = {}
    for path in _folder(repository).iterdir() if _folder(repository).is_dir() else ():
        thread, _, rest = path.name.partition(".")
        if is_thread_id(thread) and f".{rest}.".startswith(f"{_SUFFIX}."):
            files.setdefault(ThreadId(thread), []).append(path)
    return files


def _path(repository: Repository, thread: ThreadId) -> Path:
    return _folder(repository) / f"{thread}{_SUFFIX}"


def _heads(path: Path) -> dict[str, Oid]:
    oids: dict[str, Oid] = {}
    try:
        with path.open("rb") as file:
            if file.readline() != _SIGNATURE:
                return {}
            while (line := file.readline()) not in (b"\n", b""):
                oid, _, name = line.decode("utf-8", "replace").rstrip("\n").partition(" ")
                oids[name] = Oid(hex=oid)
    except (OSError, ValueError):
        return {}
    return oids
