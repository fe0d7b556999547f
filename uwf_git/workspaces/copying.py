"""Copying files of the user's checkout into a worktree.

Each copy is a file of its own, which shares its blocks with the user's where the file system can (btrfs, XFS), so
nothing that an agent does to it changes the user's. What would lead an agent back to the user's files is left out: a
symbolic link out of the worktree, a virtual environment, whose scripts name the checkout, and the `.git` file of a
submodule or a worktree. No agent works in the worktree yet.
"""

# ruff: noqa: PTH101, PTH102, PTH112, PTH115, PTH108, PTH116, PTH120, PTH211
# Of thousands of files, paths as objects take several times as long as strings.

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from uwf_git.base import system
from uwf_git.base.errors import WorkspaceFailed
from uwf_git.git.fsync import write_all

VENV = "pyvenv.cfg"
"""The file of a Python virtual environment by which Python knows it."""

_UNABLE = (errno.EOPNOTSUPP, errno.EXDEV, errno.ENOTTY, errno.ENOSYS)
_OLD = os.O_RDONLY | system.O_NOFOLLOW | system.O_NONBLOCK | system.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | system.O_NOFOLLOW | system.O_CLOEXEC
_MODE = 0o777
_CHUNK = 1 << 20  # bytes


class Copier:
    """Copies files of a `checkout` to a worktree's `folder`, until a time of the monotonic clock. `omitted` are the
    paths in the worktree that were left out, each with the reason; `size` is how many bytes were not shared."""

    def __init__(self, checkout: Path, folder: Path, until: float) -> None:
        self.omitted: list[str] = []
        self.size = 0
        self._checkout, self._folder, self._until = str(checkout), str(folder), until
        self._real = os.path.realpath(folder)
        self._is_sharing = True
        self._links: list[str] = []

    def copy(self, source: Path, target: Path) -> None:
        """Copy a file, or a folder with all files in it. If `source` itself is a link, that is followed. Raises
        OSError, WorkspaceFailed if it takes too long."""
        real = os.path.realpath(source)
        if not os.path.isdir(real):
            self._file(real, str(target))
            return
        folders = [(real, str(target))]
        copied: list[tuple[str, os.stat_result]] = []
        while folders:
            old, new = folders.pop()
            try:
                status, inner = self._folder_alone(old, new)
            except (FileNotFoundError, PermissionError) as error:
                if not copied:
                    raise
                self._omit(new, error.strerror or "")
                continue
            if status is not None:
                copied.append((new, status))
                folders += inner
        for new, status in reversed(copied):  # its time is that of its last file
            os.chmod(new, status.st_mode & _MODE | stat.S_IRWXU)  # what removes the worktree has to empty it
            os.utime(new, ns=(status.st_atime_ns, status.st_mtime_ns))

    def remove_links_out(self) -> None:
        """Remove the copied links that lead out of the worktree, but those to a file that the user can't change."""
        for link in self._links:
            end = os.path.realpath(link)
            if end != self._real and not end.startswith(f"{self._real}/") and not _is_fixed(end):
                os.unlink(link)
                self._omit(link, "a link that leads out")

    def _folder_alone(self, old: str, new: str) -> tuple[os.stat_result | None, list[tuple[str, str]]]:
        """Copy a folder with its files; return its status, None if it was left out, and the folders in it."""
        if time.monotonic() > self._until:
            raise WorkspaceFailed(
                f"copying {old} to worktree {self._folder} takes too long",
                "to allow more: uwf config set workspace.timeout 30m",
            )
        status = os.stat(old)
        with os.scandir(old) as iterator:
            entries = list(iterator)
        if any(entry.name == VENV for entry in entries):
            self._omit(new, "a virtual environment, whose scripts lead to the checkout")
            return None, []
        os.mkdir(new, 0o700)
        folders = []
        for entry in entries:
            target = f"{new}/{entry.name}"
            try:
                if entry.is_symlink():
                    self._link(entry.path, target)
                elif entry.is_dir(follow_symlinks=False):
                    if entry.path != self._real:  # the storage root may be in the checkout
                        folders.append((entry.path, target))
                elif not entry.is_file(follow_symlinks=False):
                    self._omit(target, "a special file")
                elif entry.name != ".git":
                    self._file(entry.path, target)
            except (FileNotFoundError, PermissionError) as error:
                self._omit(target, error.strerror or "")
        return status, folders

    def _file(self, old: str, new: str) -> None:
        source = system.open_file(old, _OLD)
        try:
            status = os.fstat(source)
            if not stat.S_ISREG(status.st_mode):
                self._omit(new, "a special file")
                return
            mode = status.st_mode & _MODE
            target = system.open_file(new, _NEW, mode)
            try:
                if not self._share(source, target):
                    for data in _content(source, status.st_size):
                        write_all(target, data)
                    self.size += status.st_size
                system.set_mode(target, mode)  # whatever the umask is
                os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
            finally:
                os.close(target)
        finally:
            os.close(source)

    def _share(self, source: int, target: int) -> bool:
        if not self._is_sharing:
            return False
        try:
            system.share_content(source, target)
        except OSError as error:
            self._is_sharing = error.errno not in _UNABLE
            return False
        return True

    def _link(self, old: str, new: str) -> None:
        """Copy a link; one by an absolute path in the checkout leads to the same place in the worktree."""
        leads = os.readlink(old)
        if leads.startswith(f"{self._checkout}/"):
            place = f"{self._folder}/{os.path.relpath(leads, self._checkout)}"
            leads = os.path.relpath(place, os.path.dirname(new))
        os.symlink(leads, new)
        self._links.append(new)

    def _omit(self, new: str, why: str) -> None:
        self.omitted.append(f"{os.path.relpath(new, self._folder)} ({why})")


def _is_fixed(path: str) -> bool:
    """Return whether a path is a file that this user can neither write nor make writable."""
    try:
        status = os.stat(path)
    except OSError:
        return False
    is_ours = status.st_uid == system.user() or os.access(path, os.W_OK)
    return stat.S_ISREG(status.st_mode) and not is_ours


def _content(descriptor: int, size: int) -> Iterator[bytes]:
    """Yield a file's bytes, at most as many as it had when it was opened: it may grow."""
    while size > 0 and (data := os.read(descriptor, min(size, _CHUNK))):
        yield data
        size -= len(data)
