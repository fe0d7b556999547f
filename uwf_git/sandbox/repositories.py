"""Finding git repositories below a folder, and disabling those that a command made.

Git runs what a repository's configuration and hooks name, and uwf may use one as store, so a command must
neither change nor add one. The project is searched before the command and after all its processes have ended.
New repositories, by device and inode, are renamed, so nothing is lost. A note records the state before, in
case this process is killed in between.

    sub/.git    becomes sub/.git.taken-1a2b3c4d, and its HEAD HEAD.taken-1a2b3c4d
    bare/HEAD   becomes bare/HEAD.taken-1a2b3c4d
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from uwf_git.base import log, system
from uwf_git.sandbox.mounts import PROJECT
from uwf_git.sandbox.path import (
    DEEPEST,
    GIT_FOLDER,
    Identity,
    identity,
    is_git_folder,
    is_git_name,
    opened,
    opened_below,
)
from uwf_git.sandbox.results import ToolFailure, shown

ENTRIES = 1_000_000  # files and folders that are searched
REPOSITORIES = 1000  # in one project; each becomes a mount
_CLOCK = 0.1  # seconds by which the time of a file may be behind the clock
_ENDING = 10.0  # seconds that a command may take to end
_PLAIN = system.O_PATH | system.O_NOFOLLOW | system.O_CLOEXEC


class FoundRepository(NamedTuple):
    """A `.git` of any kind, or a bare repository's folder. `parts` are relative to the searched folder."""

    parts: tuple[str, ...]
    identity: Identity
    bare: bool


class RepositoriesBefore:
    """The repositories before a command of at most `seconds`, held open so that inodes are not reused.
    `called` is the folder's name in messages. With `notes`, leftovers of killed processes are disabled first;
    `left` describes them."""

    def __init__(
        self, project: Path, called: str = PROJECT, notes: Path | None = None, seconds: float = 0.0
    ) -> None:
        self.project = project
        self.left: list[str] = []
        self._notes = notes
        self._seconds = seconds
        self._called = called
        self._stack = contextlib.ExitStack()
        self.found: tuple[FoundRepository, ...] = ()
        self._closed: frozenset[Identity] = frozenset()

    def __enter__(self) -> RepositoriesBefore:
        """Raises ToolFailure, `too_large`."""
        with self._stack:
            if self._notes is not None:
                self._finish(self._notes)
            look = _Search(None, frozenset(), opens=False)
            self.found = tuple(_walk(self.project, look))
            self._closed = frozenset(look.closed)
            if len(self.found) > REPOSITORIES:
                raise ToolFailure(
                    "too_large", f"there are over {REPOSITORIES} repositories in {self._called}"
                )
            for repository in self.found:
                with contextlib.suppress(OSError):
                    self._stack.callback(
                        os.close, system.open_file(self.project.joinpath(*repository.parts), _PLAIN)
                    )
            if self._notes is not None:
                self._stack.enter_context(_noted(self._notes, self.project, self.found, look, self._seconds))
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def take_new(self) -> list[str]:
        """Disable new repositories. Return a sentence on each, and one more if the search was incomplete."""
        known = frozenset(repository.identity for repository in self.found)
        return self._take(_Search(known, self._closed, opens=True), lambda found: True)

    def _finish(self, notes: Path) -> None:
        for note in _left(notes, self.project):
            known = frozenset(map(_identity, note["found"]))
            look = _Search(known, frozenset(map(_identity, note["closed"])), opens=True)

            def is_of(repository: FoundRepository, note: Mapping[str, Any] = note) -> bool:
                return _was_made(self.project, repository, note["began"], note["until"])

            self.left += [
                f"{message}, made by a command whose uwf was killed" for message in self._take(look, is_of)
            ]

    def _take(self, look: _Search, wanted: Callable[[FoundRepository], bool]) -> list[str]:
        messages: list[str] = []
        known = look.known or frozenset()
        fresh: list[FoundRepository] = []
        try:
            for repository in _walk(self.project, look):
                if repository.identity not in known and wanted(repository):
                    fresh.append(repository)
        except ToolFailure as failure:
            messages.append(failure.message)
        # The innermost first, for their paths lead through the others.
        for repository in reversed(fresh):
            messages += _take(self.project, repository, shown("/".join((self._called, *repository.parts))))
        return messages


def nested(project: Path) -> list[tuple[str, ...]]:
    """Return the path of each `.git` below a folder. Raises ToolFailure: `too_large`, or `denied` for an
    unreadable folder."""
    look = _Search(None, frozenset(), opens=False)
    nested_repositories = [
        repository.parts
        for repository in _walk(project, look)
        if not repository.bare and len(repository.parts) > 1
    ]
    if look.closed:
        raise ToolFailure("denied", "it has folders that cannot be read, which may hide git repositories")
    return nested_repositories


@contextlib.contextmanager
def _noted(
    notes: Path, project: Path, repositories: Sequence[FoundRepository], look: _Search, seconds: float
) -> Iterator[None]:
    now = time.time()
    note = {
        "project": os.fspath(project),
        "began": now - _CLOCK,
        "until": now + seconds + _ENDING,
        "found": [repository.identity for repository in repositories],
        "closed": [*look.closed],
    }
    path = notes / secrets.token_hex(8)
    try:
        for folder in (notes.parent, notes):  # not that of the repository, which may have been moved away
            folder.mkdir(exist_ok=True)
        descriptor = system.open_file(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | system.O_CLOEXEC, 0o600)
    except OSError as error:
        log.warning("5HJ3T9QD", "no note of a command can be kept: {reason}", reason=str(error))
        yield
        return
    try:
        system.lock(descriptor, wait=True)
        os.write(descriptor, json.dumps(note).encode("ascii"))
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _left(notes: Path, project: Path) -> Iterator[Mapping[str, Any]]:
    for path in notes.iterdir() if notes.is_dir() else ():
        try:
            descriptor = system.open_file(
                path, os.O_RDONLY | system.O_CLOEXEC | system.O_NONBLOCK | system.O_NOFOLLOW
            )
        except OSError:
            continue
        try:
            system.lock(descriptor)
            with open(descriptor, "rb", closefd=False) as file:
                note = json.loads(file.read())
            if note["project"] == os.fspath(project):
                yield note
                path.unlink(missing_ok=True)
        except BlockingIOError:
            continue  # it runs
        except (ValueError, KeyError, TypeError):
            if os.fstat(descriptor).st_mtime < time.time() - _ENDING:
                path.unlink(missing_ok=True)  # it was cut off, before the command began
        finally:
            os.close(descriptor)


def _was_made(project: Path, repository: FoundRepository, began: float, until: float) -> bool:
    """Return whether a repository was made or changed in a period (Unix seconds), by times that cannot be
    set. Later ones may be someone else's."""
    place = project.joinpath(*repository.parts)
    for path in (place, place / "HEAD"):
        with contextlib.suppress(OSError):
            if began <= path.lstat().st_ctime <= until:
                return True
    return False


def _identity(value: Sequence[int]) -> Identity:
    device, inode = value
    return device, inode


class _Search:
    """How to search. Repositories in `known` are not entered; None: none is. `opens` makes unreadable folders
    readable, unless they were unreadable `before`."""

    def __init__(self, known: frozenset[Identity] | None, before: frozenset[Identity], opens: bool) -> None:
        self.known = known
        self.before = before
        self.opens = opens
        self.closed: set[Identity] = set()

    def enters(self, identity: Identity) -> bool:
        return self.known is not None and identity not in self.known


def _walk(project: Path, look: _Search) -> Iterator[FoundRepository]:
    budget = ENTRIES
    level: list[tuple[str, ...]] = [()]
    for _ in range(DEEPEST + 1):
        below: list[tuple[str, ...]] = []
        for parts in level:
            folder = project.joinpath(*parts)
            marked = False
            for entry in _listed(folder, look):
                budget -= 1
                if budget < 0:
                    raise _too_much()
                if _may_be_git(entry.name) and is_git_name(entry.name):
                    git = _found((*parts, entry.name), entry.path)
                    if git is not None:
                        yield git
                        if look.enters(git.identity) and entry.is_dir(follow_symlinks=False):
                            below.append(git.parts)
                    continue
                marked = marked or entry.name.lower() in GIT_FOLDER
                if entry.is_dir(follow_symlinks=False):
                    below.append((*parts, entry.name))
            if marked and _is_bare(folder):
                bare = _found(parts, str(folder), bare=True)
                if bare is not None and not (parts and is_git_name(parts[-1])):
                    yield bare
        if not below:
            return
        level = below
    raise _too_much()


def _listed(folder: Path, look: _Search) -> list[os.DirEntry[str]]:
    for again in (False, True):
        try:
            with os.scandir(folder) as entries:
                return list(entries)
        except PermissionError:
            if again or not _opened(folder, look):
                break
        except OSError as error:
            if isinstance(error, FileNotFoundError | NotADirectoryError):
                break
            raise _too_much() from None  # mostly a path that is too long
    return []


def _opened(folder: Path, look: _Search) -> bool:
    try:
        descriptor = system.open_file(folder, _PLAIN)
        try:
            status = os.fstat(descriptor)
            look.closed.add(identity(status))
            if not look.opens or identity(status) in look.before or not stat.S_ISDIR(status.st_mode):
                return False
            system.set_mode_unread(descriptor, stat.S_IMODE(status.st_mode) | 0o700)
            return True
        finally:
            os.close(descriptor)
    except OSError:
        return False


def _may_be_git(name: str) -> bool:
    return not name.isascii() or name[:4].lower() in (".git", "git~")


def _found(parts: tuple[str, ...], path: str, bare: bool = False) -> FoundRepository | None:
    try:
        status = os.lstat(path)
        # An empty folder is not a repository: `without_git` puts one there while a command runs.
        if not bare and stat.S_ISDIR(status.st_mode) and not os.listdir(path):  # noqa: PTH208
            return None
    except PermissionError:
        pass
    except OSError:
        return None
    return FoundRepository(parts, identity(status), bare)


def _is_bare(folder: Path) -> bool:
    try:
        with opened(folder) as descriptor:
            return is_git_folder(descriptor)
    except OSError:
        return False


def _take(project: Path, repository: FoundRepository, called: str) -> list[str]:
    mark = f".taken-{secrets.token_hex(4)}"
    parts = repository.parts if repository.bare else repository.parts[:-1]
    try:
        with opened_below(project, parts) as folder:
            if repository.bare:
                _rename(folder, "HEAD", mark)
                return [f"{called} had become a git repository: its HEAD is now HEAD{mark}"]
            name = repository.parts[-1]
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if identity(status) != repository.identity:
                return []  # it was replaced meanwhile
            if stat.S_ISDIR(status.st_mode):
                with contextlib.suppress(FileNotFoundError), opened_below(project, repository.parts) as inner:
                    _rename(inner, "HEAD", mark)
            _rename(folder, name, mark)
            return [f"{called} is now {shown(name + mark)}"]
    except FileNotFoundError:
        return []
    except OSError as error:
        return [f"{called} IS STILL THERE ({error.strerror}): it must be removed by hand"]


def _rename(folder: int, name: str, mark: str) -> None:
    try:
        os.rename(name, name + mark, src_dir_fd=folder, dst_dir_fd=folder)
    except PermissionError:
        os.fchmod(folder, stat.S_IMODE(os.fstat(folder).st_mode) | 0o700)
        os.rename(name, name + mark, src_dir_fd=folder, dst_dir_fd=folder)


def _too_much() -> ToolFailure:
    return ToolFailure(
        "too_large",
        f"it has over {ENTRIES} files, or folders more than {DEEPEST} deep: it cannot be looked through "
        "for git repositories, which commands must not change or make",
    )
