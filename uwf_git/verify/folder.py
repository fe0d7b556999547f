"""The folder and the index of a checkout, compared with the commit that is checked out: people read files, not
commits.

Files are read as they are, without filters, attributes or links followed; what the index says of a file's state is not
believed. git lists the index, which runs no program.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from typing import NamedTuple

from uwf_git.base import system
from uwf_git.base.text import counted, printable, shortened
from uwf_git.git.repository import Oid
from uwf_git.verify.checkout import OpenCheckout
from uwf_git.verify.findings import UNCHECKED, Bad, Finding
from uwf_git.verify.nodes import first_difference
from uwf_git.verify.objects import DEPTH_LIMIT, FILE, FOLDER, Objects
from uwf_git.verify.refs import MOST

_OPEN = os.O_RDONLY | system.O_NOFOLLOW | system.O_NONBLOCK | system.O_CLOEXEC
_MOST_INDEX = 256 << 20  # bytes of git's list of the index
_MOST_FILES = 300_000  # and folders
_MOST_NAMED = 5  # untracked files that a note names
_GIT = b".git"


class FolderCheck(NamedTuple):
    """The findings and notes of a folder, and the number of files that are as they were committed."""

    findings: tuple[Finding, ...]
    notes: tuple[Finding, ...]
    files: int


class _Folder(NamedTuple):
    """A folder of the commit: its folders, and the ids of its files, by name."""

    folders: dict[bytes, _Folder]
    files: dict[bytes, bytes]


class _Entry(NamedTuple):
    """A file in the index. `is_skipped` says that a sparse checkout leaves it out."""

    mode: bytes
    oid: bytes
    is_skipped: bool


def check_folder(
    checkout: OpenCheckout, commit: Oid, tree: bytes, mine: frozenset[str] | None
) -> FolderCheck:
    """Compare the folder of a checkout with a commit's tree. `mine` are the names in the root that are compared, None
    for all. Raises Bad for a tree that cannot be read."""
    return _FolderCheck(checkout, commit, mine).check(tree)


class _FolderCheck:
    def __init__(self, checkout: OpenCheckout, commit: Oid, mine: frozenset[str] | None) -> None:
        self._checkout = checkout
        self._limit = checkout.repository.config.max_blob
        self._objects = Objects(checkout.repository, self._limit)
        self._commit = commit
        self._mine = mine
        self._findings: list[Finding] = []
        self._index: dict[bytes, _Entry] = {}
        self._has_index = False
        self._untracked: list[str] = []
        self._absent = self._converted = self._same = 0

    def check(self, tree: bytes) -> FolderCheck:
        committed = self._read(tree)
        try:
            self._read_index()
        except Bad as bad:
            self._find(bad.code, bad.message)
        if self._has_index:
            self._check_index(committed)
        assert self._checkout.top is not None
        descriptor = system.open_file(self._checkout.top, os.O_RDONLY | system.O_DIRECTORY | system.O_CLOEXEC)
        try:
            self._check_folder(committed, descriptor, b"")
        finally:
            os.close(descriptor)
        return FolderCheck(tuple(self._findings[:MOST]), tuple(self._notes()), self._same)

    def _notes(self) -> Iterator[Finding]:
        def note(code: str, message: str) -> Finding:
            return Finding(code, None, None, str(self._commit), message)

        if self._absent:
            yield note("not-checked-out", f"{counted(self._absent, 'file')} left out of this sparse checkout")
        if self._converted:
            files = counted(self._converted, "file")
            yield note(
                "line-endings",
                f"git converted the line endings of {files} to CRLF; they were compared without",
            )
        if self._untracked:
            shown = ", ".join(self._untracked[:_MOST_NAMED])
            more = len(self._untracked) - _MOST_NAMED
            files = f"{shown} and {more} more" if more > 0 else shown
            yield note("untracked", f"beside the published files, in no commit and not verified: {files}")

    def _find(self, code: str, message: str, path: bytes = b"", line: int = 0) -> None:
        self._findings.append(Finding(code, None, None, str(self._commit), message, "", _shown(path), line))

    # What was committed

    def _read(self, tree: bytes) -> _Folder:
        root = _Folder({}, {})
        pending = [(root, tree, 0)]
        count = 0
        for folder, raw, depth in pending:  # grows while it is walked
            rows = self._objects.tree(raw)
            count += len(rows) + 1
            if count > _MOST_FILES or depth > DEPTH_LIMIT:
                raise Bad("tree-limit", "the commit has more files than are compared", self._commit)
            for mode, name, oid in rows:
                if (
                    depth == 0
                    and self._mine is not None
                    and name.decode("utf-8", "replace") not in self._mine
                ):
                    continue
                if mode == FOLDER:
                    inner = folder.folders[name] = _Folder({}, {})
                    pending.append((inner, oid, depth + 1))
                elif mode == FILE:
                    folder.files[name] = oid
        return root

    # The index

    def _read_index(self) -> None:
        if not os.path.lexists(self._checkout.git_dir / "index"):
            return
        done = self._checkout.git("ls-files", "-z", "-t", "--stage", "--full-name", at_most=_MOST_INDEX)
        if done.code != 0 or len(done.out) >= _MOST_INDEX:
            raise Bad(UNCHECKED, "the index was not compared: git cannot list it")
        self._has_index = True
        for line in done.out.split(b"\0")[:-1]:
            head, _, path = line.partition(b"\t")
            tag, mode, oid, stage = head.split(b" ")
            if self._mine is not None and path.split(b"/", 1)[0].decode("utf-8", "replace") not in self._mine:
                continue
            if stage != b"0":
                if len(self._findings) < MOST:
                    self._find("edited-file", f"{_shown(path)} has conflicts in the index", path)
                continue
            self._index[path] = _Entry(mode, bytes.fromhex(oid.decode("ascii")), tag == b"S")

    def _check_index(self, committed: _Folder) -> None:
        there: dict[bytes, bytes] = {}
        pending = [(b"", committed)]
        for prefix, folder in pending:  # grows while it is walked
            there |= {prefix + name: oid for name, oid in folder.files.items()}
            pending += [(b"%s%s/" % (prefix, name), inner) for name, inner in folder.folders.items()]
        for path in sorted(there.keys() | self._index.keys()):
            if len(self._findings) >= MOST:
                return
            staged, oid = self._index.get(path), there.get(path)
            if staged is not None and oid is None:
                if staged.mode == b"100644" or self._mine is None:
                    self._find(
                        "edited-file", f"{_shown(path)} was added to the index, and is not committed", path
                    )
            elif staged is None:
                self._find("edited-file", f"{_shown(path)} was taken out of the index", path)
            elif staged.oid != oid:
                self._find("edited-file", f"{_shown(path)} has other content in the index", path)
            elif staged.mode != b"100644":
                shown = staged.mode.decode("ascii", "replace")
                self._find("edited-file", f"{_shown(path)} is of mode {shown} in the index", path)

    # The folder

    def _check_folder(self, folder: _Folder, descriptor: int, prefix: bytes) -> None:
        names = {os.fsencode(name) for name in system.list_folder(descriptor)}
        for name in sorted(names - folder.folders.keys() - folder.files.keys()):
            if name == _GIT and not prefix:
                continue
            path = prefix + name
            if prefix:
                if path not in self._index and len(self._findings) < MOST:  # of what is staged it was said
                    self._find("extra-file", f"{_shown(path)} is in the folder, and in no commit", path)
            elif self._mine is None and path not in self._index:
                self._untracked.append(_shown(path))
        for name, oid in folder.files.items():
            if len(self._findings) >= MOST:
                return
            self._check_file(name, oid, descriptor, prefix + name)
        for name, inner in folder.folders.items():
            path = prefix + name
            try:
                below = system.open_file(name, _OPEN | system.O_DIRECTORY, dir_fd=descriptor)
            except FileNotFoundError:
                self._check_absent(inner, path)
                continue
            except OSError:
                self._find("edited-file", f"{_shown(path)} is not a folder any more", path)
                continue
            try:
                self._check_folder(inner, below, path + b"/")
            finally:
                os.close(below)

    def _check_absent(self, folder: _Folder, path: bytes) -> None:
        """Count the files of a folder that a sparse checkout leaves out; report it otherwise."""
        left_out = 0
        pending = [(path, folder)]
        for prefix, item in pending:  # grows while it is walked
            for name in item.files:
                entry = self._index.get(b"%s/%s" % (prefix, name))
                if entry is None or not entry.is_skipped:
                    self._find("edited-file", f"{_shown(path)} is not in the folder any more", path)
                    return
                left_out += 1
            pending += [(b"%s/%s" % (prefix, name), inner) for name, inner in item.folders.items()]
        self._absent += left_out

    def _check_file(self, name: bytes, oid: bytes, descriptor: int, path: bytes) -> None:
        shown = _shown(path)
        try:
            content = self._content(name, descriptor)
        except FileNotFoundError:
            entry = self._index.get(path)
            if entry is not None and entry.is_skipped:
                self._absent += 1
            else:
                self._find("edited-file", f"{shown} is not in the folder any more", path)
            return
        except OSError as error:
            reason = "it is a link" if error.errno == errno.ELOOP else error.strerror or str(error)
            self._find("edited-file", f"{shown} cannot be read in the folder: {reason}", path)
            return
        if content is None:
            self._find("edited-file", f"{shown} is not a plain file in the folder, or is too large", path)
        elif _id_of(content) == oid:
            self._same += 1
        elif b"\r\n" in content and _id_of(content.replace(b"\r\n", b"\n")) == oid:
            self._same += 1
            self._converted += 1
        else:
            try:
                line = first_difference(content, self._objects.blob(oid))
            except Bad:
                line = 0
            self._find(
                "edited-file", f"{shown} was edited in the folder, and is not committed so", path, line
            )

    def _content(self, name: bytes, descriptor: int) -> bytes | None:
        """Return what a file holds, None if it is none or too large. Raises OSError."""
        file = system.open_file(name, _OPEN, dir_fd=descriptor)
        try:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode) or status.st_size > 2 * self._limit:
                return None
            with os.fdopen(file, "rb", closefd=False) as opened:
                content = opened.read(2 * self._limit + 1)
        finally:
            os.close(file)
        return content if len(content) <= 2 * self._limit else None


def _id_of(content: bytes) -> bytes:
    digest = hashlib.sha1(b"blob %d\0" % len(content))
    digest.update(content)
    return digest.digest()


def _shown(path: bytes) -> str:
    return shortened(printable(path.decode("utf-8", "backslashreplace"), "?"), 200)
