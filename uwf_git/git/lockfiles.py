"""Lock files of a repository, and stale ones of killed processes.

git and libgit2 leave a `.lock` when killed. So our processes record in `<git dir>/uwf/locking/` which locks
they are about to take, holding that file by flock; git children inherit the descriptor. A record that nobody
holds is a killed process's, and the locks it names are stale. So is a lock from before the boot. Other
programs' locks are never touched.

A pack without refs yet has a `.keep`, which makes `git repack -ad` spare it. Ours are held the same way.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from uwf_git.base import log, system
from uwf_git.base.text import counted
from uwf_git.git.fsync import share
from uwf_git.git.refs import PRIVATE, read_file

FOLDER = "locking"
LOCK = ".lock"
KEEP = ".keep"
_KEEPS = b"uwf ", b"PACK"  # how a .keep of ours begins
_NO_LINKS = errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK
_ANY = "*"  # git manages its own locks
_NEW = "."  # prefix of files that no process holds yet
_OURS = ("refs/uwf/", "packed-refs.", "config.", "shallow.", "gc.pid.", "objects/")
_SLACK = 50_000_000  # nanoseconds: the clock of files is behind that of processes
_WHERE = ("", "objects/info", "objects/info/commit-graphs", "objects/pack")
_GIT_BELIEVES = 12 * 60 * 60  # seconds in which a gc.pid keeps others from packing
_NAMED = 3  # of the locks that a kill left


class Lock(NamedTuple):
    """A lock file, its age in seconds, and whether it is stale."""

    path: Path
    age: float
    is_left: bool

    @property
    def told(self) -> str:
        for unit, size in (("day", 86_400), ("hour", 3600), ("minute", 60)):
            if self.age >= size:
                return f"{self.path}, {counted(int(self.age // size), unit)} old"
        return f"{self.path}, {counted(int(self.age), 'second')} old"

    @property
    def hint(self) -> str:
        """The hint for another program's lock."""
        import shlex

        return f"if no git is at work there, which may need it: rm {shlex.quote(str(self.path))}"


class _Left(NamedTuple):
    """Stale locks, and whether they are all of their maker's."""

    locks: list[Path]
    is_all: bool


class Lockfiles:
    """The lock files of one repository. Best effort: if records cannot be written, the change itself reports
    why."""

    def __init__(self, git_dir: Path) -> None:
        self._git_dir = git_dir
        self._folder = git_dir / PRIVATE / FOLDER
        self._process = 0
        self._mine: _Record | None = None
        self._active: list[str] = []
        self._since = 0
        self._turn = threading.Lock()
        self.told: Callable[[str], None] = lambda text: None
        """Takes a line about what was removed."""

    @contextlib.contextmanager
    def locking(self, *names: str) -> Iterator[None]:
        """Record for the block that this process locks these files. The first call removes stale locks."""
        with self._turn:
            if self._process != os.getpid():
                self._process, self._mine, self._active = os.getpid(), None, []
            if self._mine is None:  # in an outer block its file may not have come to be
                self.remove_stale()
                self._mine = self._begun(str(os.getpid()))
                if self._mine is not None:
                    weakref.finalize(self, self._mine.end)  # at the latest when the process ends
            if not self._active:
                self._since = time.time_ns()
            self._active += names
            self._say()
        try:
            yield
        finally:
            with self._turn:
                for name in names:
                    self._active.remove(name)
                self._say()

    @contextlib.contextmanager
    def waiting(self, name: str) -> Iterator[None]:
        """Within `locking`, withdraw a record while waiting for another holder, so that a waiter isn't taken
        for the owner."""
        with self._turn:
            self._active.remove(name)
            self._say()
        try:
            yield
        finally:
            with self._turn:
                if not self._active:
                    self._since = time.time_ns()
                self._active.append(name)
                self._say()

    def _say(self) -> None:
        if self._mine is not None:
            self._mine.say(self._active, self._since)

    @contextlib.contextmanager
    def git(self) -> Iterator[tuple[int, ...]]:
        """The descriptors for a git child that may lock anything. It may outlive the block."""
        self.remove_stale()
        record = self._begun(f"git-{os.getpid()}")
        if record is None:
            yield ()
            return
        try:
            record.say([_ANY], time.time_ns())
            yield (record.descriptor,)
        finally:
            os.close(record.descriptor)
            with contextlib.suppress(OSError), _held(record.path) as free:
                if free and self._left_by(record.path) == _Left([], True):
                    record.path.unlink()

    def remove_stale(self, thorough: bool = False) -> list[Path]:
        """Remove and return stale locks. If `thorough`, or on the first use after a boot, also those from
        before the boot, which may have lost their record."""
        records = self._others()
        removed: list[Path] = []
        thorough = thorough or self._is_first()
        if not records and not thorough:
            return removed
        with contextlib.suppress(OSError):
            self._folder.mkdir(exist_ok=True)
            share(self._folder)
            with _held(self._folder) as alone:  # of two, one is at it
                for record in records if alone else ():
                    with contextlib.suppress(OSError), _held(record) as free:
                        if free:
                            remains = self._left_by(record)
                            removed += _removed(remains.locks)
                            if remains.is_all:
                                record.unlink()
                if alone and thorough:
                    removed += _removed([lock.path for lock in self.locks() if lock.is_left])
        for path in removed:
            log.warning("7W0HQ3XT", "removes {lock}, whose maker is gone", lock=path)
        if removed:
            names = ", ".join(map(str, removed[:_NAMED]))
            if len(removed) > _NAMED:
                names += f" and {counted(len(removed) - _NAMED, 'more lock')}"
            self.told(f"removed {names}: who made {'it' if len(removed) == 1 else 'them'} was killed")
        return removed

    def _is_first(self) -> bool:
        try:
            return self._folder.stat().st_mtime < system.booted_at()
        except OSError:
            return True

    def locks(self) -> list[Lock]:
        """Return all remaining locks and stale keeps, except a running gc's."""
        paths: set[Path] = set()
        for record in self._others():
            with contextlib.suppress(OSError), _held(record) as free:
                paths.update(self._left_by(record).locks if free else ())
        keeps = stale_keep_files(self._git_dir / "objects" / "pack")
        paths.update(keeps)
        now, boot = time.time(), system.booted_at()
        live = self._said()  # a clock set forward makes a live lock look older than the boot
        locks = []
        for path in [*self._all(), *keeps, self._git_dir / "gc.pid"]:
            with contextlib.suppress(OSError):
                modified = path.lstat().st_mtime
                if path.name != "gc.pid" or _is_over(path):
                    gone = path in paths or path.name == "gc.pid" or (modified < boot and path not in live)
                    locks.append(Lock(path, max(0.0, now - modified), gone))
        return locks

    def lock_on(self, *names: str) -> Lock | None:
        """Return the lock on one of these files, if any."""
        wanted = {self._git_dir / f"{name}{LOCK}" for name in names}
        return next((lock for lock in self.locks() if lock.path in wanted), None)

    def _all(self) -> list[Path]:
        paths: list[Path] = []
        for folder in _WHERE:
            with contextlib.suppress(OSError):
                paths += _locks_among(self._git_dir / folder, os.listdir(self._git_dir / folder))  # noqa: PTH208
        for folder, folders, files in os.walk(self._git_dir / "refs"):
            paths += _locks_among(Path(folder), [*folders, *files])
        return sorted(paths)

    def _others(self) -> list[Path]:
        try:
            names = os.listdir(self._folder)  # noqa: PTH208
        except OSError:
            return []
        mine = self._mine.path.name if self._mine else ""
        return [self._folder / name for name in names if name != mine and not name.startswith(_NEW)]

    def _begun(self, name: str) -> _Record | None:
        path = self._folder / f"{name}-{os.urandom(4).hex()}"
        new = path.with_name(f"{_NEW}{path.name}")
        try:
            self._folder.mkdir(exist_ok=True)
            share(self._folder)
            descriptor = system.open_file(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | system.O_CLOEXEC, 0o644)
            try:
                share(new)
                system.lock(descriptor)
                new.rename(path)  # locked already: not taken for a stale one
            except OSError:
                os.close(descriptor)
                new.unlink(missing_ok=True)
                raise
        except OSError:
            return None
        return _Record(os.getpid(), descriptor, path)

    def _left_by(self, record: Path) -> _Left:
        when, *names = (read_file(record) or b"").decode("utf-8", "surrogateescape").split() or ["0"]
        since = int(when) - _SLACK if when.isascii() and when.isdigit() else 0
        if names == [_ANY]:
            paths = [path for path in self._all() if self._is_ours(path)]
        else:
            paths = [self._git_dir / f"{name}{LOCK}" for name in names]
        written: list[tuple[Path, int]] = []
        for path in paths:
            with contextlib.suppress(OSError):
                written.append((path, path.lstat().st_mtime_ns))
        # A live process records itself before it makes a lock: an unrecorded lock that stays the same is stale. A
        # recorded one may be stale too; its live owner is about to notice.
        recorded = self._said(without=record)
        remains, is_all = [], True
        for path, modified in written:
            with contextlib.suppress(OSError):
                if modified >= since and path.lstat().st_mtime_ns == modified:
                    if path in recorded:
                        is_all = False
                    else:
                        remains.append(path)
        return (
            _Left([], False)
            if remains and names == [_ANY] and is_git_at_work(self._git_dir)
            else _Left(remains, is_all)
        )

    def _said(self, without: Path | None = None) -> set[Path]:
        names = list(self._active)
        for record in self._others():
            if record == without:
                continue
            with contextlib.suppress(OSError), _held(record) as free:
                if not free:
                    names += (read_file(record) or b"").decode("utf-8", "surrogateescape").split()[1:]
        return {self._git_dir / f"{name}{LOCK}" for name in names}

    def _is_ours(self, lock: Path) -> bool:
        return lock.relative_to(self._git_dir).as_posix().startswith(_OURS)


def _locks_among(folder: Path, names: Iterable[str]) -> list[Path]:
    return [folder / name for name in names if name.endswith(LOCK)]


@cache
def lockfiles_of(git_dir: Path) -> Lockfiles:
    """Return a repository's lock files, one record per process."""
    return Lockfiles(git_dir)


@contextlib.contextmanager
def keeping(opened: int, aside: str, pack: str) -> Iterator[None]:
    """Protect a pack about to be installed from any git during the block. `opened` is its file aside, `pack`
    its path without suffix. Raises OSError."""
    path = pack + KEEP
    descriptor = _keep(os.dup(opened), aside, path)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # the next process finds it unheld
            system.remove_held(path, descriptor)


def _keep(descriptor: int, pack: str, path: str) -> int:
    try:
        if system.LINKS_OPEN_FILES:
            _hold(descriptor)
            os.link(pack, path)  # which costs less than a file of its own
            return descriptor
        os.close(descriptor)
    except OSError as error:
        os.close(descriptor)
        if error.errno not in _NO_LINKS:
            raise
    descriptor = system.open_file(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | system.O_CLOEXEC, 0o644)
    try:
        share(path)
        _hold(descriptor)
        os.write(descriptor, _KEEPS[0])
    except OSError:
        os.unlink(path)  # noqa: PTH108
        os.close(descriptor)
        raise
    return descriptor


def _hold(descriptor: int) -> None:
    with contextlib.suppress(OSError):  # a file system without locks, on which stale files cannot be detected
        system.lock(descriptor)


def stale_keep_files(packs: Path) -> list[Path]:
    paths = []
    for path in packs.glob(f"*{KEEP}"):
        with contextlib.suppress(OSError):
            if (read_file(path, 4) or b"").startswith(_KEEPS):
                with _held(path) as free:
                    if free:
                        paths.append(path)
    return paths


def is_packed_now(git_dir: Path) -> bool:
    """Return whether a gc is running, by its gc.pid."""
    note = git_dir / "gc.pid"
    try:
        return time.time() - note.lstat().st_mtime < _GIT_BELIEVES and not _is_over(note)
    except OSError:
        return False


class _Record:
    """A process's record, which it holds."""

    def __init__(self, process: int, descriptor: int, path: Path) -> None:
        self.process = process
        self.descriptor = descriptor
        self.path = path
        self._size = 0

    def say(self, names: Sequence[str], since: int) -> None:
        data = f"{since} {' '.join(names)}\n".encode("utf-8", "surrogateescape") if names else b""
        with contextlib.suppress(OSError):
            # Blanks replace removed records: truncating is slower, and no process finds the file empty while a lock
            # is held.
            self._size = max(self._size, system.write_at(self.descriptor, data.ljust(self._size), 0))

    def end(self) -> None:
        if os.getpid() != self.process:
            os.close(self.descriptor)
            return
        with contextlib.suppress(OSError):  # the next process finds it unheld
            system.remove_held(self.path, self.descriptor)


@contextlib.contextmanager
def _held(path: Path) -> Iterator[bool]:
    descriptor = system.open_file(path, os.O_RDONLY | system.O_CLOEXEC | system.O_NONBLOCK)
    try:
        try:
            system.lock(descriptor)
            free = os.path.samestat(path.stat(), os.fstat(descriptor))
        except OSError:
            free = False
        yield free
    finally:
        os.close(descriptor)


def _removed(paths: Iterable[Path]) -> list[Path]:
    removed = []
    for path in paths:
        with contextlib.suppress(OSError):
            path.unlink()
            removed.append(path)
    return removed


def _is_over(pid_file: Path) -> bool:
    import socket

    try:
        pid, host = (read_file(pid_file) or b"").decode("ascii", "replace").split()[:2]
        if host != socket.gethostname():
            return False
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except (OSError, ValueError, OverflowError):
        return False
    return False


def is_git_at_work(git_dir: Path) -> bool:
    """Return whether a git process works on a repository, as far as the system tells."""
    return system.works_below("git", git_dir.parent if git_dir.name == ".git" else git_dir, git_dir)
