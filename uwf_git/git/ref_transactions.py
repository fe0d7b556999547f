"""Ref transactions on files, under git's own locks.

libgit2 is not safe beside other processes: it deletes from a packed-refs read before locking, losing refs
packed in between, and overwrites a ref created concurrently. Here refs and packed-refs are read only under
their lock. Ctrl-C is deferred, since it would leave stale locks.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from uwf_git.base import system
from uwf_git.base.errors import Busy, HeadMoved, Invalid
from uwf_git.base.lifetime import deferred
from uwf_git.git.fsync import make_folders, require_folder, share, sync
from uwf_git.git.libgit2 import Oid, reference_is_valid_name
from uwf_git.git.lockfiles import LOCK, Lockfiles
from uwf_git.git.refs import (
    PACKED,
    PRIVATE,
    is_packed_under,
    note_packed,
    packed_with,
    packed_without,
    read_ref,
)

TRIES = 40
PACKING_TRIES = 120  # of which a packing of refs may need all: 13 seconds

_NEW = "packed-refs.new"
_NAMESPACED = 3  # folders of a name, refs/uwf/threads, that no ref is called


class RefFiles:
    """The refs of a repository. Raises HeadMoved if a ref isn't as expected, Busy for a persistent lock,
    StoreDamaged, OSError."""

    def __init__(self, git_dir: Path, lockfiles: Lockfiles) -> None:
        self._git_dir = git_dir
        self._lockfiles = lockfiles

    def put(self, name: str, old: Oid | None, new: Oid, store: Callable[[int, Path], object]) -> None:
        """Create a ref (`old` is None) or compare-and-swap it. `store` gets the descriptor of the new file
        and its folder, and must make it durable. Raises Invalid for an invalid name."""
        if not reference_is_valid_name(name):
            raise Invalid(f"{name!r} is not a valid ref name", "use letters, digits, dots and dashes")
        with deferred(), self._lockfiles.locking(name), self._locked(name) as lock:
            if (oid := read_ref(self._git_dir, name)) != old:
                require_folder(self._git_dir)
                if old is None:
                    raise HeadMoved(f"{name} was created by another process", "read it again and repeat")
                moved = f"is at {oid}" if oid else "is gone"
                raise HeadMoved(f"{name} {moved}, not at {old} any more", "read it again and repeat")
            if old is None:
                self._refuse_collision(name)
            path = self._git_dir / name
            folder = path.parent
            os.write(lock.descriptor, f"{new}\n".encode())
            store(lock.descriptor, folder)
            lock.become(path)
            try:
                sync(folder)
            except FileNotFoundError:  # a git has packed it already, and removed the folder
                sync(self._git_dir)

    def _refuse_collision(self, name: str) -> None:
        above = [str(parent) for parent in PurePosixPath(name).parents][: -_NAMESPACED - 1]
        beside = [item for item in above if read_ref(self._git_dir, item) is not None]
        if beside or is_packed_under(self._git_dir, f"{name}/"):
            raise HeadMoved(
                f"{name} conflicts with {beside[0] if beside else f'{name}/'}", "use another name"
            )

    def create_packed(self, refs: Mapping[str, Oid]) -> set[str]:
        """Create refs at commits in packed-refs, which waits for the disk twice, however many they are. Return those
        created; existing ones are skipped. No name may be a folder of others."""
        with deferred(), contextlib.ExitStack() as locks, self._lockfiles.locking(*refs, PACKED):
            for name in sorted(refs):
                locks.enter_context(self._locked(name))
            with self._locked(PACKED, PACKING_TRIES):
                absent = {
                    name: oid for name, oid in refs.items() if not os.path.lexists(self._git_dir / name)
                }
                data, created = packed_with(self._git_dir, absent)
                if created:
                    self._replace_packed(data)
        return created

    def delete(
        self, refs: Mapping[str, Oid], before: Callable[[Collection[str]], object] | None = None
    ) -> set[str]:
        """Delete refs that are at these objects; return them. Readers see each as before or not at all, and
        no packing restores it. `before` gets them once nothing can move; its exception cancels."""
        doomed = []
        with deferred(), contextlib.ExitStack() as locks, self._lockfiles.locking(*refs, PACKED):
            for name, old in sorted(refs.items()):
                lock = locks.enter_context(contextlib.ExitStack())
                lock.enter_context(self._locked(name))
                if read_ref(self._git_dir, name) == old:
                    doomed.append(name)
                else:
                    lock.close()
            if doomed or before is not None:
                self._delete(doomed, before)
        return set(doomed)

    def _delete(self, names: Sequence[str], before: Callable[[Collection[str]], object] | None) -> None:
        with self._locked(PACKED, PACKING_TRIES):
            if before is not None:
                before(names)
            # Until the lock is given back no git reads a file below in order to pack it.
            if (data := packed_without(self._git_dir, names)) is not None:
                self._replace_packed(data)
            folders = set()
            for name in names:
                for path in (self._git_dir / name, self._git_dir / "logs" / name):
                    with contextlib.suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
                        system.remove(path)
                        folders.add(path.parent)
            for folder in sorted(folders):  # else a power cut brings back what was reported as gone
                with contextlib.suppress(FileNotFoundError):  # a git has removed it, being empty
                    sync(folder)

    def _replace_packed(self, data: bytes) -> None:
        new = self._git_dir / PRIVATE / _NEW  # a killed holder may have left it
        make_folders(new.parent)
        new.write_bytes(data)
        share(new)
        sync(new)
        system.replace(new, self._git_dir / PACKED)
        sync(self._git_dir)
        note_packed(self._git_dir)

    @contextlib.contextmanager
    def _locked(self, name: str, tries: int = TRIES) -> Iterator[_Held]:
        path = self._git_dir / f"{name}{LOCK}"
        held = _Held(path, self._lock(name, path, tries))
        try:
            share(path)
            yield held
        finally:
            os.close(held.descriptor)
            if not held.is_given:
                with contextlib.suppress(FileNotFoundError):
                    system.remove(path)

    def _lock(self, name: str, path: Path, tries: int) -> int:
        for attempt in range(tries):
            try:
                return system.open_file(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | system.O_CLOEXEC, 0o666)
            except FileNotFoundError:  # the ref is in packed-refs, and git gc has removed the empty folder
                with contextlib.suppress(FileNotFoundError):  # and does so again at this moment
                    make_folders(path.parent)
            except NotADirectoryError:
                raise HeadMoved(f"{name} conflicts with another ref", "use another name") from None
            except FileExistsError:
                with self._lockfiles.waiting(name):
                    if attempt % 10 == 3:
                        self._lockfiles.remove_stale(thorough=attempt > 20)
                    time.sleep(_jitter() * (1 + min(attempt, TRIES) / 4))
        lock = self._lockfiles.lock_on(name)
        if lock is None:
            raise Busy(f"{name} is being changed by other processes", "repeat")
        raise Busy(f"{name} is locked by {lock.told}", lock.hint)


class _Held:
    """A lock file of ours, until it becomes a ref."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self.descriptor = descriptor
        self.is_given = False

    def become(self, path: Path) -> None:
        try:
            system.replace(self._path, path)
        except IsADirectoryError:
            try:
                for folder, _, _ in os.walk(path, topdown=False):
                    os.rmdir(folder)  # noqa: PTH106
            except OSError:
                raise HeadMoved(f"{path} is a folder of other refs", "use another name") from None
            system.replace(self._path, path)
        self.is_given = True


def _jitter() -> float:
    import random

    return random.uniform(0.002, 0.01)
