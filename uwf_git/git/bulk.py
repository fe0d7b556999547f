"""Many new objects at once, in packs: a file for each of 100,000 takes minutes, and as many calls of fsync.

A pack is begun aside under a name that `git gc` tidies up. Once it is stored, git has checked it and made its index, it
is synced, and others see it. Its objects stand in it as they are, without deltas; packing them anew is for maintenance.
gitformat-pack(5) is what is followed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import zlib
from collections import OrderedDict
from pathlib import Path
from types import TracebackType
from typing import IO

from pygit2 import Oid

from uwf_git.git.durable import sync
from uwf_git.git.objects import id_of

FULL = 40_000
"""The objects after which a pack should be stored: what is known of each of them is in memory until then."""

_RECENT = 8 << 20  # bytes of contents that are read again soon
_LEVEL = 1
_SMALL, _SMALL_WINDOW, _SMALL_MEMORY = 4096, 12, 5
_BLOCK = 1 << 20


class Bulk:
    """The pack that is being written into the repository in `git_dir`, or, where nothing is to be kept, into a file
    without a name. Raises OSError."""

    def __init__(self, git_dir: Path, keep: bool = True) -> None:
        self._git_dir = git_dir
        self._keep = keep
        self._folder = git_dir / "objects" / "pack"
        self._recent: OrderedDict[bytes, tuple[int, bytes]] = OrderedDict()
        self._size = 0
        self._begin()

    def __enter__(self) -> Bulk:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):  # no room for what was still to be written, which nobody wants now
            self._file.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def _begin(self) -> None:
        import tempfile

        self._places: dict[bytes, tuple[int, int, int]] = {}
        self._path: Path | None = None
        self._file: IO[bytes]
        if self._keep:
            self._folder.mkdir(parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(prefix="tmp_pack_", dir=self._folder)
            self._path, self._file = Path(name), os.fdopen(descriptor, "w+b")
        else:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115
        self._end = self._file.write(struct.pack(">4sII", b"PACK", 2, 0))

    def __len__(self) -> int:
        """How many objects wait to be stored."""
        return len(self._places)

    def __contains__(self, oid: Oid) -> bool:
        return oid.raw in self._places

    def add(self, kind: int, content: bytes) -> Oid:
        """Takes an object in. `kind` as in `Repository.read`."""
        oid = id_of(kind, content)
        if oid.raw in self._places:
            return oid
        packed = _packed(content)
        size = len(content)
        head = bytearray([kind << 4 | size & 15])
        size >>= 4
        while size:
            head[-1] |= 0x80
            head.append(size & 0x7F)
            size >>= 7
        self._file.write(head)
        self._file.write(packed)
        self._places[oid.raw] = kind, self._end + len(head), len(packed)
        self._end += len(head) + len(packed)
        self._remember(oid.raw, kind, content)
        return oid

    def _remember(self, oid: bytes, kind: int, content: bytes) -> None:
        self._recent[oid] = kind, content
        self._size += len(content)
        while self._size > _RECENT:
            _, (_, dropped) = self._recent.popitem(last=False)
            self._size -= len(dropped)

    def get(self, oid: Oid) -> tuple[int, bytes] | None:
        """The kind and content of an object that waits to be stored; None for any other."""
        if (recent := self._recent.get(oid.raw)) is not None:
            return recent
        place = self._places.get(oid.raw)
        if place is None:
            return None
        self._file.flush()
        kind, begin, length = place
        return kind, zlib.decompress(os.pread(self._file.fileno(), length, begin))

    def store(self) -> None:
        """Makes all that was taken in so far durable and visible to others, if it is to be kept. Raises OSError, and
        RemoteFailed where git isn't installed."""
        if not self._places or self._path is None:
            return
        from uwf_git.git.program import Git, telling_line

        self._seal()
        path = self._path
        index = path.with_name(path.name + ".idx")
        try:
            done = Git(self._git_dir).run("index-pack", "-o", str(index), str(path), check=False)
            if done.code != 0:
                raise OSError(telling_line(done.err) or f"git index-pack exited with {done.code}")
            name = f"pack-{done.out.decode('ascii').split()[-1]}"
            sync(index)
            path.chmod(0o444)
            # A pack counts once its index is there.
            path.rename(self._folder / f"{name}.pack")
            index.rename(self._folder / f"{name}.idx")
            sync(self._folder)
        finally:
            with contextlib.suppress(OSError):
                index.unlink(missing_ok=True)
        self._file.close()
        self._begin()

    def _seal(self) -> None:
        """Writes the number of objects, and the checksum over all of it."""
        self._file.flush()
        os.pwrite(self._file.fileno(), struct.pack(">I", len(self._places)), 8)
        self._file.seek(0)
        digest = hashlib.sha1()
        while block := self._file.read(_BLOCK):
            digest.update(block)
        self._file.seek(0, os.SEEK_END)
        self._file.write(digest.digest())
        self._file.flush()
        os.fsync(self._file.fileno())


def _packed(content: bytes) -> bytes:
    """A content as zlib packs it. What is small gets a small window: to make a large one takes ten times as long as
    packing does."""
    small = len(content) <= _SMALL
    packing = zlib.compressobj(_LEVEL, zlib.DEFLATED, *((_SMALL_WINDOW, _SMALL_MEMORY) if small else ()))
    return packing.compress(content) + packing.flush()
