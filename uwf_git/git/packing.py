"""Packs as they are written here: whole objects, an index beside them, and both on the disk before anybody sees them.

A step is one small pack, which costs the disk two files instead of ten. So that readers don't have to look into
hundreds, every few of them are joined into a larger one: their objects are copied as they stand. Packs that are large
by then, and everybody else's, are left to git's own packing. A pack of ours is known by how its name begins.

gitformat-pack(5) is what is followed: version 2 of both files.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from uwf_git import log
from uwf_git.git.durable import make_folders, sync, sync_all
from uwf_git.git.lockfiles import KEEP, is_packed_now, keeping, left_keeps

OURS = "pack-757766"  # which says uwf
HEADER = 12  # bytes, before the first object
MANY = 16
"""As many packs of about one size are joined."""
LARGE = 4 << 20  # bytes, from which a pack is left to git

_MIDDLE = 256 << 10  # bytes, from which a pack is joined with its like
_AT_ONCE = 8 << 20  # bytes that are joined in one go
_CHECKSUM = 20
_SIGNED = b"\xfftOc\0\0\0\x02"
_FAR = 1 << 31
_LEVEL = 1
_TINY = 200  # bytes that aren't worth packing: mostly ids
_SMALL, _SMALL_WINDOW, _SMALL_MEMORY = 4096, 12, 5
_WHOLE = (1, 2, 3, 4)  # the kinds of objects that are no deltas


class Place(NamedTuple):
    """Where an object stands in a pack: the CRC-32 of its bytes, and where they begin."""

    oid: bytes
    crc: int
    offset: int


def entry(kind: int, content: bytes) -> tuple[bytes, bytes]:
    """An object as it stands in a pack: its header, and its content packed. `kind` as in `Repository.read`."""
    size = len(content)
    head = bytearray([kind << 4 | size & 15])
    size >>= 4
    while size:
        head[-1] |= 0x80
        head.append(size & 0x7F)
        size >>= 7
    if len(content) <= _TINY:
        length = len(content)
        parts = b"\x78\x01\x01", struct.pack("<HH", length, length ^ 0xFFFF), content
        return bytes(head), b"".join(parts) + struct.pack(">I", zlib.adler32(content))
    # What is small gets a small window: to make a large one takes ten times as long as packing does.
    small = len(content) <= _SMALL
    packing = zlib.compressobj(_LEVEL, zlib.DEFLATED, *((_SMALL_WINDOW, _SMALL_MEMORY) if small else ()))
    return bytes(head), packing.compress(content) + packing.flush()


def header(number: int) -> bytes:
    """How a pack of so many objects begins."""
    return struct.pack(">4sII", b"PACK", 2, number)


def index(places: Iterable[Place], checksum: bytes) -> bytes:
    """The index of a pack that ends in that checksum."""
    ordered = sorted(places)
    counts = [0] * 256
    for place in ordered:
        counts[place.oid[0]] += 1
    number = len(ordered)
    large = [place.offset for place in ordered if place.offset >= _FAR]
    known = iter(range(len(large)))
    offsets = [place.offset if place.offset < _FAR else _FAR | next(known) for place in ordered]
    data = b"".join(
        (
            _SIGNED,
            struct.pack(">256I", *accumulate(counts)),
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
    places: Iterable[Place],
    beside: Sequence[int] = (),
    kept: contextlib.ExitStack | None = None,
) -> Path:
    """Puts a pack, of which all is given or which stands aside in that folder, in its place there, with its index.
    What both hold is durable by then, and what the files behind the descriptors in `beside` hold; their names are once
    the caller has synced the folder. Until `kept` is closed no git deletes the pack. Returns its path. Raises
    OSError."""
    # Never the name of another of the same content, which a git may be about to delete.
    name = f"{folder}/{OURS}{os.urandom(20).hex()[: 40 - len(OURS) + len('pack-')]}"
    aside: list[str] = []
    opened: list[int] = []
    try:
        if isinstance(pack, bytes):
            opened.append(_written(folder, "tmp_pack_", pack, aside))
        else:
            opened.append(os.open(pack, os.O_RDONLY | os.O_CLOEXEC))
            os.fchmod(opened[0], 0o444)
            aside.append(str(pack))
        opened.append(_written(folder, "tmp_idx_", index(places, checksum), aside))
        sync_all((*opened, *beside))
        if kept is not None:
            kept.enter_context(keeping(aside[0], name))
        # A pack counts once its index is there.
        os.rename(aside[0], f"{name}.pack")  # noqa: PTH104
        os.rename(aside[1], f"{name}.idx")  # noqa: PTH104
        aside.clear()
        return Path(f"{name}.pack")
    finally:
        for descriptor in opened:
            os.close(descriptor)
        for path in aside:
            Path(path).unlink(missing_ok=True)


def _written(folder: Path, begin: str, data: bytes, made: list[str]) -> int:
    """A descriptor of a new file of that content, whose path joins those that were `made`."""
    path = f"{folder}/{begin}{os.urandom(6).hex()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o444)
    except FileNotFoundError:
        make_folders(folder)
        descriptor = os.open(path, flags, 0o444)
    made.append(path)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def ours(folder: Path) -> list[tuple[int, Path]]:
    """The packs of ours in a folder that have an index, with their bytes, smallest first. None are where git has an
    index over several packs: those belong to it."""
    return [(size, folder / f"{stem}.pack") for size, stem in _ours(folder)]


def _ours(folder: Path, at_least: int = 1) -> list[tuple[int, str]]:
    """As `ours`, by their names without a suffix; none where they are fewer than `at_least`."""
    try:
        names = os.listdir(folder)  # noqa: PTH208
    except OSError:
        return []
    stems = [name[:-4] for name in names if name.startswith(OURS) and name.endswith(".idx")]
    if len(stems) < at_least or "multi-pack-index" in names:
        return []
    kept = {name for name in names if name.endswith(KEEP)}
    found = []
    for stem in stems:
        if f"{stem}{KEEP}" not in kept:
            with contextlib.suppress(OSError):
                found.append((os.stat(f"{folder}/{stem}.pack").st_size, stem))  # noqa: PTH116
    return sorted(found)


def join(folder: Path) -> None:
    """Joins packs of ours into larger ones where there are many of about one size. Whoever reads the old ones at this
    moment finds their objects in the new one, as after git's own packing. What is kept for objects that no ref leads to
    yet is left for later, if its maker lives; and all is while a git packs everything, some of whose parts end over a
    pack that is gone. Never raises: there is a next time."""
    if not any(_crowds(folder)) or is_packed_now(folder.parent.parent):
        return
    try:
        with _alone(folder):
            for path in left_keeps(folder):
                log.warning("6RT2JW8K", "removes {keep}, whose maker is gone", keep=path)
                path.unlink(missing_ok=True)
            for crowd in _crowds(folder):  # what another process has joined meanwhile is none any more
                _join(folder, crowd)
    except OSError as error:
        log.warning("9TZ4BX3V", "packs can't be joined: {error}", error=repr(error))


def _crowds(folder: Path) -> Iterator[list[Path]]:
    packs = _ours(folder, MANY)
    for least, most in ((0, _MIDDLE), (_MIDDLE, LARGE)):
        crowd = [stem for size, stem in packs if least <= size < most]
        if len(crowd) >= MANY:
            yield [folder / f"{stem}.pack" for stem in crowd]


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Raises BlockingIOError while another process joins packs here."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _join(folder: Path, packs: Sequence[Path]) -> None:
    parts: list[bytes] = [b""]
    places: dict[bytes, Place] = {}
    end, joined = HEADER, []
    for path in packs:
        if end > _AT_ONCE or (found := _read(path)) is None:
            continue
        here, data = found
        joined.append(path)
        if places.keys().isdisjoint([place.oid for place in here]):
            moved = end - HEADER
            places.update((oid, Place(oid, crc, offset + moved)) for oid, crc, offset in here)
            parts.append(data[HEADER:-_CHECKSUM])
            end += len(data) - HEADER - _CHECKSUM
            continue
        ends = [*(place.offset for place in here[1:]), len(data) - _CHECKSUM]
        for (oid, crc, offset), until in zip(here, ends, strict=True):
            if oid not in places:
                places[oid] = Place(oid, crc, end)
                parts.append(data[offset:until])
                end += until - offset
    if len(joined) < 2:
        return
    parts[0] = header(len(places))
    pack = b"".join(parts)
    checksum = hashlib.sha1(pack).digest()
    new = install(folder, pack + checksum, checksum, places.values())
    sync(folder)
    if is_packed_now(folder.parent.parent):  # begun since then: it takes them away itself
        return
    for path in joined:
        if path != new:
            # What is left of a pack after a kill in between, git gc tidies up in this order alone.
            for old in (path, path.with_suffix(".idx")):
                old.unlink(missing_ok=True)
    log.debug("2C8JH6QN", "joined {number} packs into {pack}", number=len(joined), pack=new.name)


def _read(path: Path) -> tuple[list[Place], bytes] | None:
    """The objects in a pack of ours, in its order, and the whole of it; None where it isn't what it was when it was
    written, which is no business of a join."""
    try:
        data, listed = path.read_bytes(), path.with_suffix(".idx").read_bytes()
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
    if any(hashlib.sha1(each[:-20]).digest() != each[-20:] for each in (data, listed)):
        return None
    oids = [listed[at : at + 20] for at in range(names, names + 20 * number, 20)]
    found = sorted(map(Place, oids, crcs, offsets), key=lambda place: place.offset)
    if not found or any(data[place.offset] >> 4 & 7 not in _WHOLE for place in found):
        return None
    return found, data
