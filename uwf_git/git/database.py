"""The object database: loose and packed objects by id.

pygit2 handles packs and writing. Packs are asked first, as in git, and by themselves: libgit2 1.9 never
returns from a truncated loose object (its inflate loop waits for more input), and a store must survive that.
So loose objects are read here, also if a pack fails to deliver the same object.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeVar

from uwf_git.base import system
from uwf_git.base.errors import StoreDamaged, StoreUnwritable
from uwf_git.git.fsync import require_folder, share
from uwf_git.git.libgit2 import GitError, Odb, OdbBackendPack, Repository, all_objects
from uwf_git.git.objects import KINDS, Oid, id_of
from uwf_git.git.refs import PRIVATE, common_dir
from uwf_git.git.writers import Writers

if TYPE_CHECKING:
    from uwf_git.git.bulk import Bulk
    from uwf_git.git.packing import PackJoin

    _Packs = OdbBackendPack | Odb

_T = TypeVar("_T")

WRITE_TRIES = 10
_FOLDER = r"(?a)[0-9a-f]{2}"
_OTHER_CONTENT = "its content is not what its id says"
# libgit2's messages for unreadable objects; the last is for a garbled size.
_UNREAD = (GitError, KeyError, ValueError, MemoryError)
_TRIED = 1 << 16  # bytes
_SPARE_SPACE = 1 << 20  # bytes; a write that doesn't fit may have failed for lack of space
_SLACK = 128  # bytes that zlib and an object's header may add


class TooLarge(StoreDamaged):
    """An object exceeds the caller's limit; it was not read."""

    code = "object_too_large"

    def __init__(self, name: str, size: int, at_most: int) -> None:
        super().__init__(
            f"object {name} has {size:,} bytes, over the limit of {at_most:,}",
            "what is that large is not a node",
        )


def files_of_loose_objects(objects: Path) -> Iterator[Path]:
    """Yield the loose objects' files in order, tolerating folders that git removes and writers make again."""
    for folder in sorted(objects.iterdir()):
        if re.fullmatch(_FOLDER, folder.name):
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                yield from [folder / name for name in sorted(os.listdir(folder))]  # noqa: PTH208


class ObjectDatabase:
    """The objects of an open repository at `path`. Raises StoreUnwritable."""

    def __init__(self, git: Repository) -> None:
        self._git = git
        self.path = common_dir(Path(str(git.path)))
        self._objects = str(self.path / "objects")
        self.variables: Mapping[str, str] = {}
        self._bulk: Bulk | None = None
        self._joining: PackJoin | None = None
        self.writers = Writers(self.path / PRIVATE)
        self._stored: Mapping[bytes, tuple[int, bytes]] = {}  # recently written, as one pack
        self._list_packs()

    def borrow(self, objects: Path) -> None:
        """Read the objects of another folder too, such as those of a push that a server has not taken yet. Calls of git
        take `variables`."""
        all_objects(self._git).add_disk_alternate(str(objects))
        self.variables = {"GIT_ALTERNATE_OBJECT_DIRECTORIES": str(objects)}

    def read(self, oid: Oid) -> tuple[int, bytes]:
        """Return an object's kind (COMMIT, TREE, BLOB, TAG) and content, checked against its id. Raises
        StoreDamaged."""
        if (self._bulk is not None or self._stored) and (new := self._new(oid)) is not None:
            return new
        return self._look(oid, self._read_packed, self._read_loose)

    def _look(
        self,
        oid: Oid,
        packed: Callable[[_Packs, Oid], _T],
        loose: Callable[[str, IO[bytes]], _T],
    ) -> _T:
        """Look an object up in packs, then in its own file, and again while packs come and go."""
        before: frozenset[str] | None = None
        while True:
            try:
                return self._look_once(oid, packed, loose)
            except TooLarge:
                raise
            except StoreDamaged:
                now = self._pack_names()
                if now == before:
                    raise
                before = now
                self._list_packs()

    def _look_once(
        self, oid: Oid, packed: Callable[[_Packs, Oid], _T], loose: Callable[[str, IO[bytes]], _T]
    ) -> _T:
        packs = self._packs
        if packs.backend.exists(oid):
            try:
                return packed(packs.backend, oid)
            except TooLarge:
                raise
            except StoreDamaged:
                self._list_packs()
        name = str(oid)
        try:
            with open(self._loose(name), "rb") as file:
                return loose(name, file)
        except OSError:
            require_folder(self.path)
            packs = self._newer_packs()
            return packed(packs.backend if packs.backend.exists(oid) else all_objects(self._git), oid)
        except zlib.error as error:
            is_cut = str(error).startswith("Error -5 ")
            raise damaged(name, "it is truncated" if is_cut else "it cannot be decompressed") from None

    def _read_loose(self, name: str, file: IO[bytes]) -> tuple[int, bytes]:
        return _checked(name, zlib.decompress(file.read()))

    def _new(self, oid: Oid) -> tuple[int, bytes] | None:
        if self._bulk is not None and (object_here := self._bulk.get(oid)) is not None:
            return object_here
        return self._stored.get(oid.raw)

    def _loose(self, name: str) -> int:
        flags = os.O_RDONLY | system.O_CLOEXEC | system.O_NONBLOCK
        descriptor = system.open_file(f"{self._objects}/{name[:2]}/{name[2:]}", flags)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise damaged(name, "what stands in its place is not a file")
        return descriptor

    def _list_packs(self) -> None:
        self._packs = _PackFolder(f"{self._objects}/pack", self._objects)

    def _newer_packs(self) -> _PackFolder:
        """Return the packs, listed again if any came or went: libgit2 looks for each that has gone whenever it doesn't
        find an object, and remembers it forever."""
        if self._packs.has_changed():
            self._list_packs()
        return self._packs

    def _pack_names(self) -> frozenset[str]:
        try:
            return frozenset(os.listdir(f"{self._objects}/pack"))  # noqa: PTH208
        except OSError:
            return frozenset()

    def _read_packed(self, packs: _Packs, oid: Oid) -> tuple[int, bytes]:
        try:
            kind, content = packs.read(oid)
        except _UNREAD as error:
            raise _unread(oid, error) from None
        if id_of(kind, content) != oid:
            raise damaged(str(oid), _OTHER_CONTENT)
        return int(kind), content

    def header(self, oid: Oid) -> tuple[int, int]:
        """Return an object's kind and size from its header. Raises StoreDamaged."""
        if (new := self._new(oid)) is not None:
            return new[0], len(new[1])
        return self._look(oid, self._header_packed, self._header_loose)

    def _header_loose(self, name: str, file: IO[bytes]) -> tuple[int, int]:
        head = zlib.decompressobj().decompress(file.read(128), 64)
        kind, _, size = head.partition(b"\0")[0].partition(b" ")
        if kind not in KINDS or not size.isdigit():
            raise damaged(name, "it has no header")
        return KINDS[kind], int(size)

    def size(self, oid: Oid) -> int:
        """Return an object's size without reading it. Raises StoreDamaged."""
        return self.header(oid)[1]

    def _header_packed(self, packs: _Packs, oid: Oid) -> tuple[int, int]:
        try:
            kind, size = packs.read_header(oid)
        except _UNREAD as error:
            raise _unread(oid, error) from None
        return int(kind), int(size)

    def read_within(self, oid: Oid, at_most: int) -> tuple[int, bytes]:
        """As `read`, for untrusted objects: larger ones are not read, and packed ones are checked too. Raises
        TooLarge, StoreDamaged."""
        if self._bulk is not None and oid in self._bulk:
            return self.read(oid)
        return self._look(
            oid,
            lambda packs, oid: self._read_packed_within(packs, oid, at_most),
            lambda name, file: self._read_loose_within(name, file, at_most),
        )

    def _read_loose_within(self, name: str, file: IO[bytes], at_most: int) -> tuple[int, bytes]:
        inflate = zlib.decompressobj()
        data = inflate.decompress(file.read(at_most + at_most // 1000 + _SLACK), at_most + _SLACK)
        length = data.partition(b"\0")[0].partition(b" ")[2]
        if length.isdigit() and len(length) < 20 and int(length) > at_most:
            raise TooLarge(name, int(length), at_most)
        if not inflate.eof:
            raise damaged(name, _OTHER_CONTENT)
        return _checked(name, data)

    def _read_packed_within(self, packs: _Packs, oid: Oid, at_most: int) -> tuple[int, bytes]:
        _, size = self._header_packed(packs, oid)
        if size > at_most:
            raise TooLarge(str(oid), size, at_most)
        return self._read_packed(packs, oid)

    def has(self, oid: Oid) -> bool:
        """Return whether an object exists, without checking it."""
        if (self._bulk is not None and oid in self._bulk) or self._packs.backend.exists(oid):
            return True
        name = str(oid)
        try:
            return (
                os.path.exists(f"{self._objects}/{name[:2]}/{name[2:]}")  # noqa: PTH110
                or self._newer_packs().backend.exists(oid)
                or self._git.odb.exists(oid)
            )
        except GitError:  # it is in a pack and cannot be read there
            return True

    @contextlib.contextmanager
    def in_bulk(self, keep: bool = True) -> Iterator[Bulk]:
        """Write packs instead of loose objects in the block. Readable here at once, elsewhere after
        `Bulk.store`, which also runs at the end; without `keep`, or on an exception, the rest is discarded.
        Inside `together`, that stores it."""
        if self._bulk is not None:
            yield self._bulk
            return
        from uwf_git.git.bulk import Bulk

        self.writers.begin()
        try:
            with Bulk(self.path, keep) as self._bulk:
                yield self._bulk
                self._bulk.store()
        except OSError as error:
            raise unwritable(self.path, error) from None
        finally:
            self._bulk = None

    @property
    def is_gathering(self) -> bool:
        return self._bulk is not None

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Collect the block's writes in one pack. Readable here at once; durable and visible when a ref
        moves, and at the end, also on an exception. Nested blocks and bulk writes change nothing. No git
        deletes the pack before the end, so refs to it move inside. Raises StoreUnwritable."""
        if self._bulk is not None:
            yield
            return
        from uwf_git.git.bulk import Bulk
        from uwf_git.git.packing import PackJoin, join, packs_of

        self.writers.begin()
        self._joining = self._joining or PackJoin()
        self._bulk = Bulk(self.path, joining=self._joining)
        try:
            with self._bulk:
                try:
                    yield
                finally:
                    self.store_gathered()
                    self._stored = self._bulk.recent
        finally:
            self._bulk = None
        if join(packs_of(self.path), self._joining):
            self._list_packs()

    def store_gathered(self) -> None:
        """Store the collected objects. Raises StoreUnwritable."""
        if self._bulk is not None:
            try:
                self._bulk.store()
            except OSError as error:
                raise unwritable(self.path, error) from None

    def _write(self, kind: int, data: bytes) -> Oid:
        if self._bulk is not None:
            return self._bulk.add(kind, data)
        self.writers.begin()
        for last_try in (False,) * WRITE_TRIES + (True,):
            try:
                oid = self._git.odb.write(kind, data)
                name = str(oid)
                for name_of_folder in (name[:2], f"{name[:2]}/{name[2:]}"):
                    share(f"{self._objects}/{name_of_folder}")
                return oid
            except (GitError, OSError) as error:
                # git gc removes a folder of objects that it has emptied, at times just before libgit2
                # puts the next one there.
                if last_try or "No such file or directory" not in str(error):
                    raise unwritable(self.path, error) from None
        raise AssertionError("the last try returns or raises")


class _PackFolder:
    """The packs that a folder has when this is made. They stay open as long as this is there, since pygit2 frees them
    only with the database that owns them."""

    def __init__(self, folder: str, objects: str) -> None:
        self._folder = folder
        self._changed = self._modified()
        self.backend = OdbBackendPack(objects)
        self._owner = Odb()
        self._owner.add_backend(self.backend, 1)

    def has_changed(self) -> bool:
        return self._modified() != self._changed

    def _modified(self) -> int:
        try:
            return os.stat(self._folder).st_mtime_ns  # noqa: PTH116
        except OSError:
            return 0


def _checked(name: str, data: bytes) -> tuple[int, bytes]:
    header, _, content = data.partition(b"\0")
    kind, _, size = header.partition(b" ")
    if hashlib.sha1(data).hexdigest() != name or kind not in KINDS or size != b"%d" % len(content):
        raise damaged(name, _OTHER_CONTENT)
    return KINDS[kind], content


def _unread(oid: Oid, error: Exception) -> StoreDamaged:
    return damaged(str(oid), "it is missing" if isinstance(error, KeyError) else str(error))


def damaged(name: str, reason: str) -> StoreDamaged:
    return StoreDamaged(f"object {name} is damaged: {reason}", "fetch it again with: uwf doctor --fix")


def unwritable(path: Path, error: Exception) -> StoreUnwritable:
    reason = (getattr(error, "strerror", None) or str(error)).strip().rstrip(":")
    if reason in ("", "no error") or reason.startswith("object not found"):  # of a look that came before
        reason = _refusal(path) or "libgit2 gives no reason"
    return StoreUnwritable(f"cannot write to {path}: {reason}", "check permissions and free space")


def _refusal(path: Path) -> str | None:
    import shutil
    import tempfile

    try:
        with tempfile.TemporaryFile(dir=path) as tried:
            tried.write(bytes(_TRIED))
        is_full = shutil.disk_usage(path).free < _SPARE_SPACE
    except OSError as error:
        return error.strerror or str(error)
    return os.strerror(errno.ENOSPC) if is_full else None
