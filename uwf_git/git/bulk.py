"""Writing many objects as one pack. Ten loose objects wait for the disk ten times, and 100,000 take minutes.

Small amounts are collected in memory, larger ones in a file with a name that `uwf gc` cleans up. `store`
syncs them and makes them visible; no git deletes the pack before the end. Small content is often repeated (a
step's page has the answer that is also in a node), so it becomes deltas; other objects are stored whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import zlib
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO

from uwf_git.base import system
from uwf_git.git.fsync import keeps_order, make_folders, sync
from uwf_git.git.libgit2 import Oid
from uwf_git.git.objects import BLOB, id_of
from uwf_git.git.packing import ASIDE, HEADER, ObjectLocation, PackJoin, entry, header, install, packs_of
from uwf_git.git.packs import applied, delta_of

FULL = 40_000
"""The objects after which a pack should be stored: what is known of each of them is in memory until then."""

_RECENT = 8 << 20  # bytes of contents that are read again soon
_BUFFER_SIZE = 1 << 20  # bytes that are gathered in memory
_BLOCK = 1 << 20
_MIN_SIMILAR_SIZE, _MAX_SIMILAR_SIZE = (
    1 << 10,
    256 << 10,
)  # bytes of a text that may say what another does, at least and at most
_BASES = 2
_SAMPLES, _SAMPLE = 8, 12  # places at which it is looked for that, and bytes that are


class Bulk:
    """Objects being written to the repository in `git_dir`, or temporary ones without `keep`. Raises OSError."""

    def __init__(self, git_dir: Path, keep: bool = True, joining: PackJoin | None = None) -> None:
        """Small packs are also added to `joining`."""
        self._keep = keep
        self._joining = joining
        self._folder = packs_of(git_dir)
        self.recent: OrderedDict[bytes, tuple[int, bytes]] = OrderedDict()
        self._size = 0
        self._file: IO[bytes] | None = None
        self._path: Path | None = None
        self._kept = contextlib.ExitStack()
        self._begin()

    def __enter__(self) -> Bulk:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._kept:
            self._drop()

    def _begin(self) -> None:
        self._places: dict[bytes, tuple[int, int, int, ObjectLocation, bytes]] = {}
        self._bases: list[bytes] = []  # the newest texts that aren't deltas
        self._little = bytearray()
        self._end = HEADER

    def _drop(self) -> None:
        if self._file is not None:
            # Discard unwritten data: no one needs it now.
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None
        if self._path is not None:
            self._path.unlink(missing_ok=True)
            self._path = None

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, oid: Oid) -> bool:
        return oid.raw in self._places

    def add(self, kind: int, content: bytes) -> Oid:
        """Add an object. `kind` as in `Repository.read`."""
        oid = id_of(kind, content)
        if oid.raw in self._places:
            return oid
        head, packed, base = self._entry(kind, content)
        begin, crc = self._end, zlib.crc32(packed, zlib.crc32(head))
        self._append(head, packed)
        place = ObjectLocation(oid.raw, crc, begin)
        self._places[oid.raw] = kind, begin + len(head), len(packed), place, base
        if kind == BLOB and not base and _MIN_SIMILAR_SIZE <= len(content) <= _MAX_SIMILAR_SIZE:
            self._bases = [*self._bases[1 - _BASES :], oid.raw]
        self._remember(oid.raw, kind, content)
        return oid

    def _entry(self, kind: int, content: bytes) -> tuple[bytes, bytes, bytes]:
        if kind == BLOB and self._file is None and _MIN_SIMILAR_SIZE <= len(content) <= _MAX_SIMILAR_SIZE:
            for base in self._bases:
                if (known := self.recent.get(base)) is not None and _repeats(content, known[1]):
                    delta = delta_of(kind, known[1], content)
                    if len(delta) < len(content) // 2:
                        *_, place, _ = self._places[base]
                        return *entry(kind, delta, self._end - place.offset), base
        return *entry(kind, content, for_now=self._file is None), b""

    def _append(self, head: bytes, packed: bytes) -> None:
        self._end += len(head) + len(packed)
        if self._file is None and self._end > _BUFFER_SIZE:
            self._spill()
        if self._file is not None:
            self._file.write(head)
            self._file.write(packed)
        else:
            self._little += head
            self._little += packed

    def _spill(self) -> None:
        import tempfile

        if self._keep:
            make_folders(self._folder)
            descriptor, name = tempfile.mkstemp(prefix=f"{ASIDE}pack-", dir=self._folder)
            self._path, self._file = Path(name), os.fdopen(descriptor, "w+b")
        else:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115
        self._file.write(header(0))
        self._file.write(self._little)
        self._little.clear()

    def _remember(self, oid: bytes, kind: int, content: bytes) -> None:
        self.recent[oid] = kind, content
        self._size += len(content)
        while self._size > _RECENT:
            _, (_, dropped) = self.recent.popitem(last=False)
            self._size -= len(dropped)

    def get(self, oid: Oid) -> tuple[int, bytes] | None:
        """Return an object that waits or was stored recently, else None."""
        if (recent := self.recent.get(oid.raw)) is not None:
            return recent
        place = self._places.get(oid.raw)
        if place is None:
            return None
        kind, begin, length, _, base = place
        if self._file is None:
            packed = bytes(self._little[begin - HEADER : begin - HEADER + length])
        else:
            self._file.flush()
            packed = system.read_at(self._file.fileno(), length, begin)
        content: bytes | None = zlib.decompress(packed)
        if base and (known := self.get(Oid(raw=base))) is not None and content is not None:
            content = applied(known[1], content, _MAX_SIMILAR_SIZE)
        assert content is not None
        return kind, content

    def store(self, beside: Sequence[int] = (), before: Path | None = None) -> None:
        """Make the objects so far durable and visible, if kept, together with the files of the descriptors in
        `beside`. If the caller will sync the folder `before` anyway, it isn't synced twice. Raises OSError.
        """
        if not self._keep:
            return
        if not self._places:
            for descriptor in beside:
                system.sync(descriptor)
            return
        places = [place for *_, place, _ in self._places.values()]
        if self._path is None:
            pack = header(len(places)) + self._little
            checksum = hashlib.sha1(pack).digest()
            pack += checksum

            def prepare(path: str) -> None:
                if self._joining is not None:
                    self._joining.take(path, pack, places)

            install(self._folder, pack, checksum, places, beside, self._kept, meanwhile=prepare)
        else:
            checksum = self._sealed()
            path, self._path = self._path, None
            install(self._folder, path, checksum, places, beside, self._kept)
        if before is None or not keeps_order(self._folder, before):
            sync(self._folder)
        self._drop()
        self._begin()

    def _sealed(self) -> bytes:
        assert self._file is not None
        self._file.seek(0)
        self._file.write(header(len(self._places)))
        self._file.seek(0)
        digest = hashlib.sha1()
        while block := self._file.read(_BLOCK):
            digest.update(block)
        self._file.seek(0, os.SEEK_END)
        self._file.write(digest.digest())
        self._file.flush()
        return digest.digest()


def _repeats(content: bytes, known: bytes) -> bool:
    places = range(0, len(content) - _SAMPLE, len(content) // _SAMPLES)
    return any(content[at : at + _SAMPLE] in known for at in places)
