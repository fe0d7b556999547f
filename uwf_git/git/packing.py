"""Writing packs: objects and an index, durable before they are visible.

A step is one small pack: two files instead of ten. Every few packs are joined into a larger one. Slightly
changed trees and pages become deltas on their earlier version; entries of joined packs are copied unchanged.
Large packs and those of others are left to git's packing. Our packs are recognised by their name's prefix.

Format: gitformat-pack(5), version 2 of both files.

Why not libgit2 and git: `pygit2.PackBuilder` packs only existing objects, so a step's ten objects are written
twice, and it took 5.3 times as long; `git repack --geometric=2` on 15 packs took 3.3 times as long as `join`,
and its pack was as large (within 0.1 %).
"""

import contextlib
import hashlib
import os
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from uwf_git.base import log, system
from uwf_git.git.fsync import make_folders, share, sync, sync_all, write_all
from uwf_git.git.lockfiles import KEEP, is_packed_now, keeping, stale_keep_files
from uwf_git.git.objects import BLOB, COMMIT, TAG, TREE
from uwf_git.git.packs import DEPTH, delta_of, distance, distance_at

OURS = "pack-757766"  # which says uwf
# Next in a name: whether a pack is original or joined, and its size.
_NEW, _JOINED, _JOINED_MIDDLE, _JOINED_LARGE = (OURS + mark for mark in ("6e", "6a", "6d", "6c"))
_ONCE_JOINED = (_JOINED, _JOINED_MIDDLE, _JOINED_LARGE)
ASIDE = ".tmp-uwf-"  # how a file that is being written is named: `git prune` deletes what begins with tmp_
HEADER = 12  # bytes, before the first object
MANY = 16
"""As many packs of about one size are joined."""
LARGE = 4 << 20  # bytes, from which a pack is left to git

_MIDDLE = 256 << 10  # bytes, from which a pack is joined with its like
_AT_ONCE = 8 << 20  # bytes that are joined in one go
_CHECKSUM = 20
_SIGNED = b"\xfftOc\0\0\0\x02"
_FAR = 1 << 31
_TINY = 200  # bytes that aren't worth packing: mostly ids
_SMALL, _SMALL_LEVEL, _SMALL_WINDOW, _SMALL_MEMORY = 1024, 1, 10, 3
_DELTA = 6  # type of a delta on an earlier entry of its pack
_KINDS = (COMMIT, TREE, BLOB, TAG, _DELTA)
_STORED = 1 << 15  # bytes from which content is always packed; content stored as it is has less than 1 << 16
_AROUND = 11  # bytes around a content that is packed as it is
_MIN_DELTA_SIZE, _MAX_DELTA_SIZE = 160, 256 << 10  # size limits of delta candidates, in bytes
_BEGIN, _TYPE = 64, 28  # bytes that tell what is a version of what: a page's first, and the last of a node
_VERSIONS = 2  # of a thing, which are tried as the base of the next
_MAX_DELTA_RATIO = 0.75  # of the bytes that it takes without being one, at most, a delta may take


class ObjectLocation(NamedTuple):
    """An object in a pack: its CRC-32 and offset."""

    oid: bytes
    crc: int
    offset: int


class _Entry(NamedTuple):
    """A pack entry's header: kind, content size, distance to its base (0 without delta), end of the header."""

    kind: int
    size: int
    back: int
    end: int


class _Made(NamedTuple):
    """An entry of the new pack, and its delta depth."""

    place: ObjectLocation
    depth: int


def entry(kind: int, content: bytes, back: int = 0, for_now: bool = False) -> tuple[bytes, bytes]:
    """Return an entry's header and compressed content. `kind` as in `Repository.read`. A delta's base is
    `back` bytes before. `for_now`: the pack will be joined soon, so only long texts are compressed."""
    size = len(content)
    head = bytearray([(_DELTA if back else kind) << 4 | size & 15])
    size >>= 4
    while size:
        head[-1] |= 0x80
        head.append(size & 0x7F)
        size >>= 7
    if back:
        head += distance(back)
    length = len(content)
    if length <= _TINY or (for_now and length < _STORED and not _is_said(kind, length, content[:1])):
        parts = b"\x78\x01\x01", struct.pack("<HH", length, length ^ 0xFFFF), content
        return bytes(head), b"".join(parts) + struct.pack(">I", zlib.adler32(content))
    # Small packs use a small window: setting up a large one takes ten times as long as packing.
    if len(content) > _SMALL:
        return bytes(head), zlib.compress(content)
    packing = zlib.compressobj(_SMALL_LEVEL, zlib.DEFLATED, _SMALL_WINDOW, _SMALL_MEMORY)
    return bytes(head), packing.compress(content) + packing.flush()


@cache
def packs_of(git_dir: Path) -> Path:
    return git_dir / "objects" / "pack"


def header(number: int) -> bytes:
    """Return the header of a pack of N objects."""
    return struct.pack(">4sII", b"PACK", 2, number)


def index(places: Iterable[ObjectLocation], checksum: bytes) -> bytes:
    """Return the index of a pack with this checksum."""
    ordered = sorted(places)
    number = len(ordered)
    # How many ids begin with a byte up to each.
    counts, counter = bytearray(), struct.Struct(">I")
    for before, place in enumerate(ordered):
        counts += counter.pack(before) * (place.oid[0] - len(counts) // counter.size)
    counts += counter.pack(number) * (256 - len(counts) // counter.size)
    large = [place.offset for place in ordered if place.offset >= _FAR]
    known = iter(range(len(large)))
    offsets = [place.offset if place.offset < _FAR else _FAR | next(known) for place in ordered]
    data = b"".join(
        (
            _SIGNED,
            counts,
            *(place.oid for place in ordered),
            struct.pack(f">{number}I", *(place.crc for place in ordered)),
            struct.pack(f">{number}I", *offsets),
            struct.pack(f">{len(large)}Q", *large),
            checksum,
        )
    )
    return data + hashlib.sha1(data).digest()


def install(
    folder: Path,
    pack: bytes | Path,
    checksum: bytes,
    places: Iterable[ObjectLocation],
    beside: Sequence[int] = (),
    kept: contextlib.ExitStack | None = None,
    begin: str = _NEW,
    meanwhile: Callable[[str], object] | None = None,
) -> str:
    """Install a pack, given as bytes or as a file aside, with its index. Return its path without suffix.

    Both are durable, as are the files of `beside`; their names are once the caller syncs the folder. No git
    deletes the pack until `kept` is closed. `meanwhile` gets the path while waiting for the disk. Raises
    OSError.
    """
    # Never the name of another of the same content, which a git may be about to delete.
    name = f"{folder}/{begin}{os.urandom(20).hex()[: 40 - len(begin) + len('pack-')]}"
    aside: list[str] = []
    opened: list[int] = []
    try:
        if isinstance(pack, bytes):
            opened.append(_written(folder, f"{ASIDE}pack-", pack, aside))
        else:
            opened.append(system.open_file(pack, os.O_RDONLY | system.O_CLOEXEC))
            system.set_mode(opened[0], 0o444)
            share(pack)
            aside.append(str(pack))
        opened.append(_written(folder, f"{ASIDE}idx-", index(places, checksum), aside))
        sync_all((*opened, *beside), meanwhile and partial(meanwhile, name))
        if kept is not None:
            kept.enter_context(keeping(opened[0], aside[0], name))
        # A pack counts once its index is there.
        system.replace(aside[0], f"{name}.pack")
        system.replace(aside[1], f"{name}.idx")
        aside.clear()
        return name
    finally:
        for descriptor in opened:
            os.close(descriptor)
        for path in aside:
            Path(path).unlink(missing_ok=True)


def _written(folder: Path, begin: str, data: bytes, folders: list[str]) -> int:
    path = f"{folder}/{begin}{os.urandom(6).hex()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | system.O_CLOEXEC
    try:
        descriptor = system.open_file(path, flags, 0o444)
    except FileNotFoundError:
        make_folders(folder)
        descriptor = system.open_file(path, flags, 0o444)
    folders.append(path)
    try:
        share(path)
        write_all(descriptor, data)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def ours(folder: Path, joined: bool = True) -> list[tuple[int, Path]]:
    """Return our indexed packs with their sizes, oldest first; none if git has a multi-pack index. Without `joined`,
    those are left out whose names say that they are smaller than LARGE."""
    stems = _named(folder)
    if not joined:
        stems = [stem for stem in stems if not stem.startswith((_JOINED, _JOINED_MIDDLE))]
    return [(size, folder / f"{stem}.pack") for size, stem in _measured(folder, stems)]


def _named(folder: Path) -> list[str]:
    try:
        names = os.listdir(folder)  # noqa: PTH208
    except OSError:
        return []
    kept = {name[: -len(KEEP)] for name in names if name.endswith(KEEP)}
    stems = [name[:-4] for name in names if name.startswith(OURS) and name.endswith(".idx")]
    return [] if "multi-pack-index" in names else [stem for stem in stems if stem not in kept]


def _measured(folder: Path, stems: Iterable[str]) -> list[tuple[int, str]]:
    sizes = []
    for stem in stems:
        with contextlib.suppress(OSError):
            status = os.stat(f"{folder}/{stem}.pack")  # noqa: PTH116
            sizes.append((status.st_mtime_ns, status.st_size, stem))
    return [(size, stem) for _, size, stem in sorted(sizes)]


def join(folder: Path, prepared: "PackJoin | None" = None) -> bool:
    """Join our packs of similar size into larger ones; return whether there were enough. Concurrent readers find the
    objects in the new pack. Packs kept for objects without refs are skipped if their maker lives; all are skipped
    during a gc. `prepared` packs are not read again. Never raises."""
    if not any(_crowds(folder)) or is_packed_now(folder.parent.parent):
        return False
    try:
        with _alone(folder):
            for path in stale_keep_files(folder):
                log.warning("6RT2JW8K", "removes {keep}, whose maker is gone", keep=path)
                path.unlink(missing_ok=True)
            for crowd in _crowds(folder):  # packs joined by another process meanwhile are gone
                of_these = prepared is not None and prepared.packs and prepared.packs <= set(crowd)
                _join(folder, crowd, prepared if of_these and prepared else PackJoin())
            if prepared is not None and not all(os.path.exists(f"{path}.pack") for path in prepared.packs):  # noqa: PTH110
                prepared.begin()  # another process joined them
    except OSError as error:
        log.warning("9TZ4BX3V", "packs cannot be joined: {error}", error=repr(error))
    return True


def _crowds(folder: Path) -> Iterator[list[str]]:
    stems = [stem for stem in _named(folder) if not stem.startswith(_JOINED_LARGE)]
    middle = sum(stem.startswith(_JOINED_MIDDLE) for stem in stems)
    if max(middle, len(stems) - middle) < MANY:
        return
    packs = _measured(folder, stems)
    for least, most in ((0, _MIDDLE), (_MIDDLE, LARGE)):
        crowd = [stem for size, stem in packs if least <= size < most]
        if len(crowd) >= MANY:
            yield [f"{folder}/{stem}" for stem in crowd]


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    descriptor = system.lock_folder(folder)
    try:
        yield
    finally:
        os.close(descriptor)


def _join(folder: Path, packs: Sequence[str], making: "PackJoin") -> None:
    for path in packs:
        if path in making.packs or making.end > _AT_ONCE or (read := _read(path)) is None:
            continue
        if making.add(read, anew=not path.startswith(_ONCE_JOINED, len(str(folder)) + 1)):
            making.packs.add(path)
    joined = [path for path in packs if path in making.packs]
    if len(joined) < 2:
        return
    pack = making.pack()
    checksum = hashlib.sha1(pack).digest()
    places = (entry.place for entry in making.made.values())
    begin = _JOINED if len(pack) < _MIDDLE else _JOINED_MIDDLE if len(pack) < LARGE else _JOINED_LARGE
    new = install(folder, pack + checksum, checksum, places, begin=begin)
    sync(folder)
    making.packs = {new}
    if is_packed_now(folder.parent.parent):  # begun since then: it takes them away itself
        return
    for path in joined:
        # Only in this order does git gc remove leftovers of a kill.
        for suffix in (".pack", ".idx"):
            with contextlib.suppress(FileNotFoundError):
                system.remove(f"{path}{suffix}")
    log.debug("2C8JH6QN", "joined {number} packs into {pack}", number=len(joined), pack=f"{new}.pack")


class PackJoin:
    """A pack being joined from others. Makers of packs can add theirs in advance, while waiting for the disk."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self.end = HEADER
        self.packs: set[str] = set()
        """The packs that are in it, by their paths without a suffix."""
        self.made: dict[bytes, _Made] = {}
        self._parts: list[bytes] = []
        # The newest versions of each thing: id and content.
        self._versions: dict[object, list[tuple[bytes, bytes]]] = {}

    def pack(self) -> bytes:
        return b"".join((header(len(self.made)), *self._parts))

    def take(self, path: str, pack: bytes, places: Iterable[ObjectLocation]) -> None:
        """Add a pack about to be installed, unless it is large."""
        if self.end > (2 * _MIDDLE if len(self.packs) > 1 else _MIDDLE):
            self.begin()
        if len(pack) < _MIDDLE and (read := _parsed(places, pack)) and self.add(read, anew=True):
            self.packs.add(path)

    def add(self, read: "_Read", anew: bool) -> bool:
        """Add a pack's new objects; return False if delta chains would be too long. `anew`: look for more
        deltas."""
        here, entries, data = read
        ids = {place.offset: place.oid for place in here}
        depths: dict[bytes, int] = {}
        for place, entry in zip(here, entries, strict=True):
            known = self.made.get(place.oid)
            depth = depths[ids[place.offset - entry.back]] + 1 if entry.back else 0
            depths[place.oid] = depth if known is None else known.depth
        if max(depths.values()) > DEPTH:
            return False
        if not anew and self.made.keys().isdisjoint(depths):
            moved = self.end - HEADER
            for oid, crc, offset in here:
                self.made[oid] = _Made(ObjectLocation(oid, crc, offset + moved), depths[oid])
            self._parts.append(data[HEADER:-_CHECKSUM])
            self.end += len(data) - HEADER - _CHECKSUM
            return True
        ends = [*(place.offset for place in here[1:]), len(data) - _CHECKSUM]
        for (oid, crc, offset), entry, until in zip(here, entries, ends, strict=True):
            if oid in self.made:
                continue
            if entry.back:
                base = self.made[ids[offset - entry.back]]
                back = self.end - base.place.offset
                if back != entry.back:
                    head = data[offset : entry.end - len(distance(entry.back))] + distance(back)
                    self._put(oid, base.depth + 1, head, data[entry.end : until])
                else:
                    self._put(oid, base.depth + 1, data[offset:until], crc=crc)
            elif not (anew and self._put_anew(oid, entry, data[entry.end : until])):
                self._put(oid, 0, data[offset:until], crc=crc)
        return True

    def _put(self, oid: bytes, depth: int, *parts: bytes, crc: int | None = None) -> None:
        part = b"".join(parts)
        self.made[oid] = _Made(ObjectLocation(oid, zlib.crc32(part) if crc is None else crc, self.end), depth)
        self._parts.append(part)
        self.end += len(part)

    def _put_anew(self, oid: bytes, each: _Entry, packed: bytes) -> bool:
        if not _MIN_DELTA_SIZE <= each.size <= _MAX_DELTA_SIZE:
            return False
        stored = len(packed) == each.size + _AROUND
        begin = packed[_AROUND - 4 : _AROUND - 3] if stored else zlib.decompressobj().decompress(packed, 1)
        if _is_said(each.kind, each.size, begin):
            return False
        content = packed[_AROUND - 4 : -4] if stored else zlib.decompress(packed)
        versions = self._versions.setdefault(_thing(each.kind, content), [])
        put = False
        for name, before in reversed(versions):
            base = self.made[name]
            if base.depth >= DEPTH - 1:  # an entry added as another's base may become a delta now
                continue
            delta = delta_of(each.kind, before, content)
            if len(delta) < len(packed) * _MAX_DELTA_RATIO:
                self._put(oid, base.depth + 1, *entry(each.kind, delta, self.end - base.place.offset))
                put = True
                break
        versions.append((oid, content))
        del versions[:-_VERSIONS]
        if stored and not put and each.size > _TINY:
            self._put(oid, 0, *entry(each.kind, content))
            put = True
        return put


def _is_said(kind: int, size: int, begin: bytes) -> bool:
    return kind == BLOB and size > _SMALL and begin == b"{"


def _thing(kind: int, content: bytes) -> object:
    if kind == TREE:  # the first entry: trees stay the same, contents don't
        name, _, rest = content.partition(b"\0")
        return kind, name, rest[:20] if name.startswith(b"4") else b""
    if kind == BLOB:  # a node ends in its type, a page begins with its title
        is_node = content.startswith(b"{")
        return kind, content[-_TYPE:] if is_node else content[:_BEGIN].partition(b"\n")[0]
    return kind


def _entry(data: bytes, offset: int) -> _Entry:
    byte = data[offset]
    kind, size, shift, at = byte >> 4 & 7, byte & 15, 4, offset + 1
    while byte & 0x80:
        byte = data[at]
        size |= (byte & 0x7F) << shift
        shift, at = shift + 7, at + 1
    if kind not in _KINDS:
        raise ValueError(kind)
    back, at = distance_at(data, at) if kind == _DELTA else (0, at)
    return _Entry(kind, size, back, at)


class _Read(NamedTuple):
    """A parsed pack: places, headers, bytes."""

    places: list[ObjectLocation]
    entries: list[_Entry]
    data: bytes


def _read(path: str) -> _Read | None:
    try:
        data, listed = Path(f"{path}.pack").read_bytes(), Path(f"{path}.idx").read_bytes()
    except FileNotFoundError:  # git has packed it meanwhile
        return None
    try:
        (number,) = struct.unpack_from(">I", listed, 8 + 255 * 4)
        names = 8 + 256 * 4
        crcs, offsets = (struct.unpack_from(f">{number}I", listed, names + number * at) for at in (20, 24))
    except struct.error:
        return None
    if listed[:8] != _SIGNED or listed[-40:-20] != data[-20:]:
        return None
    if any(hashlib.sha1(content[:-20]).digest() != content[-20:] for content in (data, listed)):
        return None
    oids = [listed[at : at + 20] for at in range(names, names + 20 * number, 20)]
    return _parsed(map(ObjectLocation, oids, crcs, offsets), data)


def _parsed(places: Iterable[ObjectLocation], data: bytes) -> _Read | None:
    locations = sorted(places, key=lambda place: place.offset)
    begun: set[int] = set()
    entries = []
    try:
        for place in locations:
            entry = _entry(data, place.offset)
            if entry.back and place.offset - entry.back not in begun:
                return None
            begun.add(place.offset)
            entries.append(entry)
    except (IndexError, ValueError):
        return None
    return _Read(locations, entries, data) if locations else None
