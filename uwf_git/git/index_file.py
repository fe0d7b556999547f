"""The trees of an index file (gitformat-index(5)), which git has just written: read here, since a call of git for that
takes as long as a small `git add`.

Folders whose trees the index caches are passed over, so the work is that of the folders that have changed.
"""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path
from typing import NamedTuple

from uwf_git.git.objects import TREE_MODE

_HEADER = struct.Struct(">4sII")
_VERSIONS = (2, 3)  # 4 compresses names
_ID = 20  # bytes
_END = 32  # bytes of the extension that says where the entries end
_TREE = TREE_MODE.encode()
_MORE, _STAGE, _INTENT = 0x40, 0x30, 0x20  # flags of an entry, of which more follow, and among these
_LONG = 0x0FFF  # the length of a name that is as long or longer


class IndexTrees(NamedTuple):
    """The root tree of an index; `trees` are those it did not cache, by id, and `blobs` the ids of what is in them,
    submodules included."""

    root: bytes
    trees: dict[bytes, bytes]
    blobs: set[bytes]


class _Cached(NamedTuple):
    """A tree of the cache: the number of its entries, -1 if it has changed, its id, and those in it by name."""

    entries: int
    oid: bytes
    inner: dict[bytes, _Cached]


_UNKNOWN = _Cached(-1, b"", {})


def index_trees(data: bytes) -> IndexTrees:
    """Return the trees of an index. Raises ValueError for one that git itself has to read."""
    try:
        return _Trees(data).all()
    except (struct.error, IndexError, RecursionError):
        raise ValueError("it is not a plain index") from None


def entries_in(path: Path) -> int:
    """Return the number of an index file's entries. Raises OSError."""
    with path.open("rb") as file:
        return int.from_bytes(file.read(_HEADER.size)[8:])


def blobs_in(data: bytes) -> set[bytes]:
    """Return the ids of all entries of an index. Raises ValueError."""
    try:
        count = _count(data)
        at, blobs = _HEADER.size, set()
        for _ in range(count):
            blobs.add(data[at + 40 : at + 60])
            at = _after(data, at, 1)
        return blobs
    except (struct.error, IndexError):
        raise ValueError("it is not a plain index") from None


def _count(data: bytes) -> int:
    mark, version, count = _HEADER.unpack_from(data)
    if mark != b"DIRC" or version not in _VERSIONS:
        raise ValueError("it has another version")
    return int(count)


def _after(data: bytes, at: int, count: int) -> int:
    """Return the end of a number of entries."""
    for _ in range(count):
        high = data[at + 60]
        length = (high & 0x0F) << 8 | data[at + 61]
        more = 72 if high & _MORE else 70
        if length == _LONG:
            length = data.index(b"\0", at + more - 8) - at - more + 8
        at += more + length & ~7
    return at


class _Trees:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._left = _count(data)
        self._at = _HEADER.size
        self._trees: dict[bytes, bytes] = {}
        self._blobs: set[bytes] = set()

    def all(self) -> IndexTrees:
        root = self._tree(b"", self._cache())
        return IndexTrees(root, self._trees, self._blobs)

    def _tree(self, prefix: bytes, cached: _Cached) -> bytes:
        if cached.entries >= 0:
            self._at = _after(self._data, self._at, cached.entries)
            self._left -= cached.entries
            return cached.oid
        data, length, rows, blobs = self._data, len(prefix), [], self._blobs
        while self._left:
            at = self._at
            flags = data[at + 60]
            begin = at + 62
            if flags & _MORE:
                if data[begin] & _INTENT:
                    raise ValueError("it has files that are only intended")
                begin += 2
            if flags & _STAGE:
                raise ValueError("it has conflicts")
            if data[begin : begin + length] != prefix:
                break
            end = data.index(b"\0", begin)
            name = data[begin + length : end]
            if b"/" in name:
                name = name[: name.index(b"/")]
                inner = self._tree(prefix + name + b"/", cached.inner.get(name, _UNKNOWN))
                rows.append(b"%b %b\0%b" % (_TREE, name, inner))
            else:
                oid = data[at + 40 : at + 60]
                rows.append(b"%o %b\0%b" % (int.from_bytes(data[at + 24 : at + 28]), name, oid))
                blobs.add(oid)
                self._at = at + (end - at + 8 & ~7)
                self._left -= 1
        content = b"".join(rows)
        tree = hashlib.sha1(b"tree %d\0%b" % (len(content), content)).digest()
        self._trees[tree] = content
        return tree

    def _cache(self) -> _Cached:
        end = len(self._data) - _ID
        mark, _, at = struct.unpack_from(">4sII", self._data, end - _END)
        if mark != b"EOIE":
            at = _after(self._data, self._at, self._left)
        while at < end:
            mark, size = struct.unpack_from(">4sI", self._data, at)
            at += 8
            if mark[:1].islower():  # it changes what the entries mean
                raise ValueError("it is split or sparse")
            if mark == b"TREE":
                return self._cached(at)[1]
            at += size
        return _UNKNOWN

    def _cached(self, at: int) -> tuple[int, _Cached]:
        """Return the end of a cached tree, and that tree."""
        line = self._data.index(b"\0", at) + 1
        end = self._data.index(b"\n", line)
        entries, count = map(int, self._data[line:end].split(b" "))
        at, oid, inner = end + 1, b"", {}
        if entries >= 0:
            oid = self._data[at : at + _ID]
            at += _ID
        for _ in range(count):
            name = self._data[at : self._data.index(b"\0", at)]
            at, inner[name] = self._cached(at)
        return at, _Cached(entries, oid, inner)
