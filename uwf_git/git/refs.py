"""Reading refs from files (gitrepository-layout(5)), strictly: unreadable ones are errors or named, never
taken for missing.

libgit2 silently skips broken refs, takes an empty packed-refs for one without refs, parses all of it for one
ref, and blocks on FIFOs. The last state of a valid packed-refs is recorded in the private folder: it isn't
checked again for one ref, and its absence is noticed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import time
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from uwf_git.base import system
from uwf_git.base.errors import StoreDamaged
from uwf_git.git.fsync import share
from uwf_git.git.libgit2 import Oid

PRIVATE = "uwf"
"""The folder in the git directory for uwf's files that are not shared."""
PACKED = "packed-refs"
SEEN = "packed-refs.seen"
FIX = "uwf doctor --fix"
HEADER = b"# pack-refs with: sorted \n"
_PEELED = b"# pack-refs with: peeled fully-peeled sorted \n"
_NO_FILE = "it is not a regular file"
_GONE = "it is gone"

_HEX = re.compile(r"[0-9a-f]{40}", re.ASCII)
_LINE = rb"[0-9a-f]{40} refs/[^\x00-\x20\x7f~^:?*\[\\]+"
_SOUND_LINE = _LINE + rb"|\^[0-9a-f]{40}"
_SOUND = rb"(?:# pack-refs with:[^\n]*\n)?(?:" + _LINE + rb"\n(?:\^[0-9a-f]{40}\n)?+)*+"
_ENTRY = rb"(?m)^[0-9a-f]{40} (\S+)\n(?:\^[0-9a-f]{40}\n)?"
_BLOCK = 4096
_SMALL = 32 << 10  # bytes of a packed-refs that is read at once, and known until it is replaced
_MAX_PARTIAL_READS = 8  # packed-refs with more parts than this are read whole
_RACY = 2_000_000_000  # nanoseconds for which a file may change again and have the same time
_MOST_LOOSE = 20_000  # loose refs that are known until their files change
_PROBE = 1024  # bytes in which a line of packed-refs and its peeled one have room


class Key(NamedTuple):
    """A file's identity: git replaces packed-refs and never modifies it."""

    inode: int
    modified: int
    size: int


class PackedDamage(NamedTuple):
    """Damage of packed-refs: a problem of the file, or invalid lines."""

    problem: str
    lines: tuple[str, ...] = ()


def read_file(path: str | Path, most: int | None = None, at_most: int | None = None) -> bytes | None:
    """Read a small file, or its first bytes; None if missing or a folder. Raises OSError for anything but a
    regular file, since a FIFO would block, and for a file of more than `at_most` bytes."""
    try:
        descriptor = system.open_file(path, os.O_RDONLY | system.O_CLOEXEC | system.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            return None
        if not stat.S_ISREG(status.st_mode):
            raise OSError(_NO_FILE)
        if at_most is not None and status.st_size > at_most:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
        if most is not None:
            return _read(descriptor, most, 0)
        data = system.read_at(descriptor, status.st_size + 1, 0)
        return data if len(data) == status.st_size else _read(descriptor, status.st_size + 1, 0)
    finally:
        os.close(descriptor)


def read_ref(git_dir: Path, name: str) -> Oid | None:
    """Return a ref's object, or None. Raises StoreDamaged for an invalid ref, or if a damaged packed-refs may
    have it."""
    if ".." in name or "\0" in name:
        return None  # no ref is named so
    return _unpacked_ref(git_dir, name) or _packed_ref(git_dir, name)


def read_refs_named(git_dir: Path, names: Sequence[str]) -> dict[str, Oid]:
    """Return the objects of those of many refs that are there, which best have names next to each other. Raises
    StoreDamaged."""
    loose = {name: _unpacked_ref(git_dir, name) for name in names}
    rest = [name for name, oid in loose.items() if oid is None]
    packed: dict[str, Oid | None] = {}
    if rest and (known := _known_packed(git_dir)) is not None:
        packed = {name: known.ref(name) for name in rest}
    elif rest:
        packed = _packed_under(git_dir, os.path.commonprefix(rest))  # noqa: RUF071
    oids = {name: oid or packed.get(name) for name, oid in loose.items()}
    return {name: oid for name, oid in oids.items() if oid is not None}


def _unpacked_ref(git_dir: Path, name: str) -> Oid | None:
    try:
        data = read_file(f"{git_dir}/{name}")
    except OSError as error:
        raise _damaged_ref(name, error.strerror or str(error)) from None
    if data is None:
        return None
    text = data[:100].decode("ascii", "replace").strip()
    if text.startswith("ref:"):
        raise StoreDamaged(f"ref {name} points at another ref, {text[4:].strip()}", "delete it with git")
    oid = _object_id(text) if len(data) < 100 else None
    if oid is None:
        raise _damaged_ref(name, "it holds no object id")
    return oid


def _damaged_folder(folder: Path, error: OSError) -> StoreDamaged:
    reason = error.strerror or str(error)
    return StoreDamaged(f"the refs in {folder} cannot be read: {reason}", "check its owner and permissions")


def _damaged_ref(name: str, reason: str) -> StoreDamaged:
    return StoreDamaged(f"ref {name} cannot be read: {reason}", f"restore it with: {FIX}")


def read_refs(git_dir: Path, prefix: str, read: bool = True, without: str = "") -> dict[str, Oid | None]:
    """Return the refs under a prefix, except under `without`; None for one without object id. Without `read`,
    loose refs are None too. Raises StoreDamaged."""
    # In this order: a ref that is packed between the two looks is seen by the second.
    loose = _loose_refs(git_dir, prefix, read, without)
    return _packed_under(git_dir, prefix, without) | loose


def read_ref_ids(git_dir: Path, prefix: str, without: str) -> dict[str, str]:
    """Return the ids of the refs that `read_refs` returns, except of unreadable ones: much faster, for thousands.
    Raises StoreDamaged."""
    loose = _loose_refs(git_dir, prefix, True, without)  # first, as in `read_refs`
    with _opened(git_dir, anew=True) as (source, key):
        data = b"" if key is None else _read_whole(git_dir, source, key)
    lines = [
        line
        for line in data.decode("utf-8", "surrogateescape").split("\n")
        if line.startswith(prefix, 41) and not line.startswith(without, 41)
    ]
    ids = dict(zip([line[41:] for line in lines], [line[:40] for line in lines], strict=True))
    for name, oid in loose.items():
        if oid is None:
            ids.pop(name, None)
        else:
            ids[name] = str(oid)
    return ids


def _loose_refs(git_dir: Path, prefix: str, read: bool, without: str) -> dict[str, Oid | None]:
    oids: dict[str, Oid | None] = {}
    folders = [prefix.rstrip("/")]
    while folders:
        folder = folders.pop()
        try:
            entries = list(os.scandir(f"{git_dir}/{folder}"))
        except FileNotFoundError:
            continue
        except OSError as error:
            raise _damaged_folder(git_dir / folder, error) from None
        for entry in entries:
            name = f"{folder}/{entry.name}"
            if not name.isascii() and name != name.encode("utf-8", "replace").decode("utf-8"):
                oids[name.encode("utf-8", "backslashreplace").decode("ascii", "replace")] = None
                continue  # no text, so none of ours
            if entry.is_dir(follow_symlinks=False):
                if name + "/" != without:
                    folders.append(name)
            elif not name.endswith(".lock"):
                oids[name] = _loose_ref(entry) if read else None
                if read and oids[name] is None and not os.path.lexists(entry.path):
                    del oids[name]  # it was deleted meanwhile, or packed
    return oids


def may_have_refs(git_dir: Path, prefix: str) -> bool:
    """Return whether there are or were refs under a prefix (ending in a slash), without reading them."""
    try:
        if stat.S_ISDIR(os.stat(f"{git_dir}/{prefix}").st_mode):  # noqa: PTH116
            return True
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        raise _damaged_folder(git_dir / prefix, error) from None
    return is_packed_under(git_dir, prefix)


def is_packed_under(git_dir: Path, prefix: str) -> bool:
    """Return whether packed-refs has a ref under a prefix, without reading all of it. Raises StoreDamaged."""
    if (known := _known_packed(git_dir)) is not None:
        return known.has_under(prefix)
    wanted = prefix.encode("utf-8", "surrogateescape")
    with _opened(git_dir) as (descriptor, key):
        if key is None:
            return False
        low, high = _around(descriptor, key.size, wanted)
        return b" " + wanted in _read(descriptor, high - low + _PROBE, low)


def packed_damage(git_dir: Path) -> PackedDamage | None:
    """Return the damage of packed-refs, if any."""
    try:
        data = read_file(git_dir / PACKED)
    except OSError as error:
        return PackedDamage(error.strerror or str(error))
    if data is None:
        there = os.path.lexists(git_dir / PACKED)
        return PackedDamage(_NO_FILE) if there else PackedDamage(_GONE) if _seen(git_dir) else None
    return None if data and re.fullmatch(_SOUND, data) else _damage_in(data)


def packed_without(git_dir: Path, names: Collection[str]) -> bytes | None:
    """Return packed-refs without some refs, None if it has none of them. Raises StoreDamaged."""
    wanted = {name.encode("utf-8", "surrogateescape") for name in names}
    with _opened(git_dir, anew=True) as (descriptor, key):
        if key is None:
            return None
        data = _read(descriptor, key.size, 0)
        _check(git_dir, key, data)
    kept, is_kept = [], True
    lines = data.split(b"\n")
    for line in lines:
        if not line.startswith(b"^"):  # the peeled id of the tag in the line above
            is_kept = line[41:] not in wanted
        if is_kept:
            kept.append(line)
    return b"\n".join(kept) if len(kept) < len(lines) else None


def packed_with(git_dir: Path, refs: Mapping[str, Oid]) -> tuple[bytes, set[str]]:
    """Return packed-refs with more refs, at commits, and those of them that it did not have; it keeps what it has.
    Raises StoreDamaged."""
    with _opened(git_dir, anew=True) as (descriptor, key):
        data = b"" if key is None else _read(descriptor, key.size, 0)
        if key is not None:
            _check(git_dir, key, data)
    head = data[: data.index(b"\n") + 1] if data.startswith(b"#") else b"" if data else _PEELED
    blocks = {match[1]: match[0] for match in re.finditer(_ENTRY, data)}
    new = {name: oid for name, oid in refs.items() if name.encode() not in blocks}
    blocks.update({name.encode(): f"{oid} {name}\n".encode() for name, oid in new.items()})
    if b" sorted" not in head:
        head = HEADER
    return head + b"".join(blocks[name] for name in sorted(blocks)), set(new)


def sound_lines(data: bytes) -> list[bytes]:
    """Return the valid ref lines, sorted, without peeled ones, which git makes again."""
    lines = data.split(b"\n")[:-1]
    return sorted((line for line in lines if _is_ref(line)), key=lambda line: line[41:])


def _is_ref(line: bytes) -> bool:
    return not line.startswith(b"^") and re.fullmatch(_SOUND_LINE, line) is not None


def _damage_in(data: bytes) -> PackedDamage:
    if not data:
        return PackedDamage("it is empty")
    *lines, rest = data.split(b"\n")
    if lines and lines[0].startswith(b"# pack-refs with:"):
        del lines[0]
    bad = [line for line in lines if not re.fullmatch(_SOUND_LINE, line)]
    bad += [rest] if rest else []
    shown = tuple(line.decode("utf-8", "replace") for line in bad)
    return PackedDamage(
        "its last line is cut off" if bad == [rest] else "it has lines that are no refs", shown
    )


class _Packed:
    """The refs of packed-refs."""

    def __init__(self, data: bytes = b"") -> None:
        text = data.decode("utf-8", "surrogateescape")
        lines = [line for line in text.split("\n") if line and line[0] not in "#^"]
        # Each id once: most tracked refs are here too, and equal ids need no lookup.
        written = [line[:40] for line in lines]
        ids = {oid: Oid(hex=oid) for oid in set(written)}
        self._refs = dict(zip([line[41:] for line in lines], map(ids.__getitem__, written), strict=True))
        self._names = sorted(self._refs)
        self._found: dict[tuple[str, str], dict[str, Oid | None]] = {}

    def ref(self, name: str) -> Oid | None:
        return self._refs.get(name)

    def under(self, prefix: str, without: str) -> dict[str, Oid | None]:
        if (prefix, without) not in self._found:
            first, last = self._bounds(prefix)
            start, end = self._bounds(without) if without else (last, last)
            start, end = max(start, first), min(end, last)
            names = (
                self._names[first:start] + self._names[end:last] if start < end else self._names[first:last]
            )
            self._found[prefix, without] = {name: self._refs[name] for name in names}
        return self._found[prefix, without].copy()

    def has_under(self, prefix: str) -> bool:
        first, last = self._bounds(prefix)
        return first < last

    def _bounds(self, prefix: str) -> tuple[int, int]:
        first = bisect_left(self._names, prefix)
        return first, bisect_left(self._names, prefix + "\U0010ffff", first)


_NO_REFS = _Packed()
_whole: tuple[object, bytes] = (None, b"")
"""packed-refs as it was last read whole, by its git directory and key, and sound."""
_parsed: tuple[object, _Packed] = (None, _NO_REFS)
"""The same, parsed."""
# While the file that was read is open no other gets its inode, by which it is known.
_whole_file = -1
_loose: dict[str, tuple[tuple[int, ...], Oid]] = {}
"""Loose refs by path, with what their files were known by when they were read."""


def _known_packed(git_dir: Path) -> _Packed | None:
    """Return the refs of packed-refs, None if it has to be read. Raises StoreDamaged if it is gone."""
    try:
        status = os.stat(f"{git_dir}/{PACKED}", follow_symlinks=False)  # noqa: PTH116
    except FileNotFoundError:
        if _seen(git_dir):
            raise _damaged_packed(git_dir, _GONE) from None
        return _NO_REFS
    except OSError as error:
        raise _damaged_packed(git_dir, error.strerror or str(error)) from None
    key = Key(status.st_ino, status.st_mtime_ns, status.st_size)
    return _parsed[1] if _parsed[0] == (git_dir, key) else None


def _packed_under(git_dir: Path, prefix: str, without: str = "") -> dict[str, Oid | None]:
    """Return the refs of packed-refs under a prefix. Reads all of it only if needed. Raises StoreDamaged."""
    if (known := _known_packed(git_dir)) is not None:
        return known.under(prefix, without)
    with _opened(git_dir) as (source, key):
        if key is None:
            return {}
        if key.size > _SMALL and _is_sound(git_dir, source, key):
            wanted = prefix.encode("utf-8", "surrogateescape")
            low = _around(source, key.size, wanted)[0]
            high = _around(source, key.size, wanted + b"\xff")[1]
            if high - low < key.size // _MAX_PARTIAL_READS + _BLOCK:
                return _Packed(_read(source, high - low, low)).under(prefix, without)
        return _parse(git_dir, source, key).under(prefix, without)


def _packed_ref(git_dir: Path, name: str) -> Oid | None:
    if (known := _known_packed(git_dir)) is not None:
        return known.ref(name)
    with _opened(git_dir) as (source, key):
        if key is None:
            return None
        if key.size <= _SMALL:
            return _parse(git_dir, source, key).ref(name)
        wanted = name.encode("utf-8", "surrogateescape")
        if _is_sound(git_dir, source, key):
            low, high = _around(source, key.size, wanted)
            data = _read(source, high - low, low)
        else:
            data = _read_whole(git_dir, source, key)
    at = data.find(b" %b\n" % wanted)
    return _object_id(data[max(at - 40, 0) : at].decode("ascii", "replace")) if at >= 0 else None


def _parse(git_dir: Path, source: int | bytes, key: Key) -> _Packed:
    global _parsed
    packed = _Packed(_read_whole(git_dir, source, key))
    _parsed = (git_dir, key), packed
    return packed


def _read_whole(git_dir: Path, source: int | bytes, key: Key) -> bytes:
    global _whole, _whole_file, _parsed
    if isinstance(source, bytes):
        return source
    data = _read(source, key.size, 0)
    if _seen(git_dir) != key:
        _check(git_dir, key, data)
    if _whole_file >= 0:
        os.close(_whole_file)
    _whole, _whole_file, _parsed = ((git_dir, key), data), os.dup(source), (None, _NO_REFS)
    return data


def _key_of(path: str) -> Key | None:
    try:
        status = os.stat(path, follow_symlinks=False)  # noqa: PTH116
    except OSError:
        return None
    return Key(status.st_ino, status.st_mtime_ns, status.st_size)


def _is_sound(git_dir: Path, source: int | bytes, key: Key) -> bool:
    return isinstance(source, bytes) or _seen(git_dir) == key


def _around(source: int | bytes, size: int, wanted: bytes) -> tuple[int, int]:
    low, high = 0, size
    if b" sorted" not in _read(source, _PROBE, 0).partition(b"\n")[0]:
        return low, high
    while high - low > _BLOCK:
        middle = (low + high) // 2
        chunk = _read(source, _PROBE, middle)
        begin = chunk.find(b"\n") + 1
        if chunk[begin : begin + 1] == b"^":
            begin = chunk.find(b"\n", begin) + 1
        end = chunk.find(b"\n", begin)
        if not begin or end < 0:
            break  # names longer than any of ours: the rest is read
        if chunk[begin + 41 : end] <= wanted:
            low = middle + begin
        else:
            high = middle + begin
    return low, high


@contextlib.contextmanager
def _opened(git_dir: Path, anew: bool = False) -> Iterator[tuple[int | bytes, Key | None]]:
    """Yield packed-refs' descriptor, or its content if that is known and not wanted `anew`; and its key, None without
    a file."""
    known, content = _whole
    if not anew and known == (git_dir, key := _key_of(f"{git_dir}/{PACKED}")):
        yield content, key
        return
    try:
        descriptor = system.open_file(
            f"{git_dir}/{PACKED}", os.O_RDONLY | system.O_CLOEXEC | system.O_NONBLOCK
        )
    except FileNotFoundError:
        if _seen(git_dir):
            raise _damaged_packed(git_dir, _GONE) from None
        yield -1, None
        return
    except OSError as error:
        raise _damaged_packed(git_dir, error.strerror or str(error)) from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise _damaged_packed(git_dir, _NO_FILE)
        yield descriptor, Key(status.st_ino, status.st_mtime_ns, status.st_size)
    except OSError as error:
        raise _damaged_packed(git_dir, error.strerror or str(error)) from None
    finally:
        os.close(descriptor)


def _check(git_dir: Path, key: Key, data: bytes) -> None:
    if not data or not re.fullmatch(_SOUND, data):
        damage = _damage_in(data)
        shown = f": {damage.lines[0][:60]!r}" if damage.lines else ""
        raise _damaged_packed(git_dir, damage.problem + shown)
    note_packed(git_dir, key)


def note_packed(git_dir: Path, key: Key | None = None) -> None:
    """Record the current packed-refs as valid; best effort."""
    path = git_dir / PRIVATE / SEEN
    temporary = f"{path}.{os.getpid()}"
    with contextlib.suppress(OSError):
        if key is None:
            status = (git_dir / PACKED).stat()
            key = Key(status.st_ino, status.st_mtime_ns, status.st_size)
        if _seen(git_dir) != key and path.parent.is_dir():
            with open(temporary, "w", encoding="ascii") as file:
                share(temporary)
                file.write(" ".join(map(str, key)))
            system.replace(temporary, path)


def _seen(git_dir: Path) -> Key | None:
    try:
        numbers = (read_file(f"{git_dir}/{PRIVATE}/{SEEN}") or b"").split()
        return Key(*map(int, numbers)) if len(numbers) == 3 else None
    except (OSError, ValueError):
        return None


def _damaged_packed(git_dir: Path, problem: str) -> StoreDamaged:
    return StoreDamaged(f"{git_dir / PACKED} cannot be read: {problem}", FIX)


def is_waited_for(git_dir: Path) -> Path | None:
    """Return a FIFO or device among the files that git reads to open a repository, on which it would block."""
    for name in ("HEAD", "config", "commondir", "objects/info/alternates"):
        with contextlib.suppress(OSError):
            mode = os.stat(f"{git_dir}/{name}").st_mode  # noqa: PTH116
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                return git_dir / name
    return None


def common_dir(git_dir: Path) -> Path:
    """Return the main repository of a worktree's git dir, which has refs/uwf and the private folder."""
    pointer = git_dir / "commondir"
    if pointer.is_file():
        return (git_dir / pointer.read_text().strip()).resolve()
    return git_dir.resolve()


def _object_id(text: str) -> Oid | None:
    return Oid(hex=text) if _HEX.fullmatch(text) else None


def _loose_ref(entry: os.DirEntry[str]) -> Oid | None:
    try:
        status = entry.stat(follow_symlinks=False)
        times = status.st_mtime_ns, status.st_ctime_ns
        key = status.st_ino, status.st_size, *times
        known = _loose.get(entry.path)
        if known is not None and known[0] == key:
            return known[1]
        # Of thousands each call counts: anything but a regular file refuses the read at a place.
        descriptor = system.open_file(entry.path, os.O_RDONLY | system.O_CLOEXEC | system.O_NONBLOCK)
        try:
            data = system.read_at(descriptor, 101, 0)
        finally:
            os.close(descriptor)
    except OSError:
        return None
    oid = None if len(data) > 100 else _object_id(data.decode("ascii", "replace").strip())
    if oid is not None and stat.S_ISREG(status.st_mode) and abs(time.time_ns() - max(times)) > _RACY:
        if len(_loose) >= _MOST_LOOSE:
            _loose.clear()
        _loose[entry.path] = key, oid
    return oid


def _read(source: int | bytes, size: int, at: int) -> bytes:
    if isinstance(source, bytes):
        return source[at : at + size]
    parts = []
    while size > 0 and (part := system.read_at(source, size, at)):
        parts.append(part)
        size -= len(part)
        at += len(part)
    return b"".join(parts)
