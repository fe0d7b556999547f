"""Replacing damaged files of a repository: a sound copy is made aside, synced and renamed over it, after the
damaged one got a second name.

An interruption leaves either file, and nothing damaged is lost. Refs are changed under git's lock files
(gitrepository-layout(5)).
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from uwf_git.base.errors import Busy, StoreDamaged, StoreUnwritable
from uwf_git.git.fsync import make_folders, sync
from uwf_git.git.lockfiles import LOCK
from uwf_git.git.objects import id_of
from uwf_git.git.refs import HEADER, PACKED, PackedDamage, note_packed, packed_damage, read_file, sound_lines
from uwf_git.git.repository import PRIVATE, Oid, Repository, missing_folders

FOLDER = "damaged"
_KINDS = {1: b"commit", 2: b"tree", 3: b"blob", 4: b"tag"}
_HEAD = re.compile(rb"(?:ref: refs/[!-~]+|[0-9a-f]{40})\s*")
_BESIDE = (".idx", ".rev", ".bitmap", ".keep", ".mtimes", ".promisor")


class FileRepair:
    """The repair of one repository's files. Damaged ones are kept in `folder`, `<git
    dir>/uwf/damaged/<time>`. Methods raise StoreUnwritable."""

    def __init__(self, repository: Repository) -> None:
        self._path = repository.path
        self._lockfiles = repository.lockfiles
        self._objects = repository.path / "objects"
        stamp = time.strftime("%Y-%m-%dT%H%M%SZ", time.gmtime())
        parent = repository.private / FOLDER
        self.folder = next(
            path
            for number in range(1, 1000)
            if not (path := parent / (stamp if number == 1 else f"{stamp}-{number}")).exists()
        )
        self.kept: list[Path] = []

    def loose_path(self, oid: Oid) -> Path:
        name = str(oid)
        return self._objects / name[:2] / name[2:]

    def loose_oid(self, path: Path) -> Oid:
        """The inverse of `loose_path`."""
        return Oid(hex=path.parent.name + path.name)

    def put(self, oid: Oid, kind: int, content: bytes) -> None:
        """Write a sound object; a damaged file is kept. Raises ValueError if the content doesn't match the
        id."""
        data = b"%s %d\0" % (_KINDS[kind], len(content)) + content
        if id_of(kind, content) != oid:
            raise ValueError(f"the content is not that of {oid}")
        path = self.loose_path(oid)
        self._replace(path, lambda new: new.write_bytes(zlib.compress(data, 1)), mode=0o444)

    def put_index(self, pack: Path, make: Callable[[Path], None]) -> None:
        """Replace a pack's index, written by `make`. Old derived files are kept."""
        self._replace(pack.with_suffix(".idx"), make, mode=0o444)
        self.remove([pack.with_suffix(suffix) for suffix in (".rev", ".bitmap")])

    def remove_pack(self, pack: Path) -> None:
        """Set a pack aside, index first, since git ignores the rest without it. Wanted objects must be
        elsewhere."""
        self.remove([pack.with_suffix(suffix) for suffix in _BESIDE] + [pack])

    def remove(self, paths: Iterable[Path]) -> None:
        with _writing(self._path):
            for path in paths:
                if self._keep(path):
                    path.unlink()
                    sync(path.parent)

    def put_ref(self, name: str, oid: Oid) -> None:
        """Set an empty ref; its file is kept. Raises Busy."""
        path = self._path / name
        with self._locked(path) as lock, _writing(self._path):
            lock.write_bytes(f"{oid}\n".encode())
            sync(lock)
            if not path.is_dir():  # a folder of other refs conflicts with a ref of this name
                self._keep(path)
            lock.replace(path)
            sync(path.parent)

    def remove_ref(self, name: str) -> None:
        """Set an empty ref's file aside. Raises Busy."""
        path = self._path / name
        with self._locked(path):
            if not path.is_dir():  # which holds other refs
                self.remove([path])

    def mend_packed_refs(self) -> PackedDamage | None:
        """Drop unreadable lines from packed-refs, which make git ignore the rest, and replace a missing or
        invalid file by an empty one; the old one is kept. Returns what was wrong. Raises Busy, StoreDamaged.
        """
        path = self._path / PACKED
        damage = packed_damage(self._path)
        if damage is None:
            return None
        with self._locked(path) as lock, _writing(self._path):
            data = b""
            if path.is_file():
                try:
                    data = path.read_bytes()
                except OSError as error:
                    raise StoreDamaged(
                        f"{path} cannot be read: {error.strerror}", "check its owner and permissions"
                    ) from None
            lock.write_bytes(HEADER + b"".join(line + b"\n" for line in sound_lines(data)))
            sync(lock)
            self._keep(path)
            lock.replace(path)
            sync(path.parent)
        note_packed(self._path)
        return damage

    def _replace(self, path: Path, make: Callable[[Path], object], mode: int) -> None:
        new = path.with_name(f"tmp_obj_{os.urandom(6).hex()}")
        with _writing(self._path):
            make_folders(path.parent)
            try:
                make(new)
                new.chmod(mode)
                sync(new)
                self._keep(path)
                new.replace(path)
                sync(path.parent)
            finally:
                new.unlink(missing_ok=True)

    def _keep(self, path: Path) -> bool:
        if not os.path.lexists(path):
            return False
        target = self.folder / path.relative_to(self._path)
        make_folders(target.parent)
        is_file = stat.S_ISREG(path.lstat().st_mode)
        try:
            if is_file:
                os.link(path, target)
            else:
                path.rename(target)
                sync(path.parent)
        except FileExistsError:
            pass
        except OSError:  # a file system without links
            if not is_file:
                raise
            shutil.copy2(path, target)
            sync(target)
        sync(target.parent)
        self.kept.append(target)
        return is_file

    @contextlib.contextmanager
    def _locked(self, path: Path) -> Iterator[Path]:
        lock = path.with_name(path.name + LOCK)
        name = path.relative_to(self._path).as_posix()
        with self._lockfiles.locking(name):
            with _writing(self._path):
                make_folders(path.parent)
                try:
                    lock.touch(exist_ok=False)
                except FileExistsError:
                    held = self._lockfiles.lock_on(name)
                    holder, hint = (held.told, held.hint) if held else (str(lock), "repeat")
                    raise Busy(f"{path.name} is locked by {holder}", hint) from None
            try:
                yield lock
            finally:
                lock.unlink(missing_ok=True)


def has_head(git_dir: Path) -> bool:
    try:
        return _HEAD.fullmatch(read_file(git_dir / "HEAD") or b"") is not None
    except OSError:
        return False


def mend_folders(git_dir: Path) -> list[str]:
    """Make missing folders without which git opens no repository. Return their names. Raises StoreUnwritable."""
    missing = missing_folders(git_dir)
    with _writing(git_dir):
        for name in missing:
            make_folders(git_dir / name)
    return missing


def mend_head(git_dir: Path) -> bool:
    """Write a bare store's invalid HEAD anew; nothing depends on its value. The old one is kept. Returns
    whether it was invalid. Raises StoreUnwritable."""
    if has_head(git_dir) or not (git_dir / "objects").is_dir() or not (git_dir / "refs").is_dir():
        return False
    head = git_dir / "HEAD"
    new = git_dir / f"HEAD.{os.urandom(4).hex()}"
    with _writing(git_dir):
        try:
            if head.is_file():
                kept = git_dir / PRIVATE / FOLDER / new.name
                make_folders(kept.parent)
                shutil.copy2(head, kept)
                sync(kept)
            new.write_bytes(b"ref: refs/heads/main\n")
            sync(new)
            new.replace(head)
            sync(git_dir)
        finally:
            new.unlink(missing_ok=True)
    return True


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreUnwritable(
            f"cannot write to {path}: {error.strerror or error}", "check permissions and free space"
        ) from None
