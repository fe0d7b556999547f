"""What is small as it is sent and large as it is unpacked: packs and bundles made by hand, byte by byte, since git
makes none of these."""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path

_COMMIT, _TREE, _BLOB, _REF_DELTA = 1, 2, 3, 7
_MOST_COPIED = 0xFFFFFF  # bytes that one instruction of a delta copies
EMPTY_BLOB = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"


def oid_of(kind: str, content: bytes) -> str:
    """The id of an object."""
    return hashlib.sha1(b"%s %d\0" % (kind.encode(), len(content)) + content).hexdigest()


def commit(tree: str, message: str = "Nothing\n") -> bytes:
    """The content of a commit without parents."""
    who = "Ada Example <ada@example.invalid> 0 +0000"
    return f"tree {tree}\nauthor {who}\ncommitter {who}\n\n{message}".encode()


class Pack:
    """A pack that is being made."""

    def __init__(self) -> None:
        self._objects: list[bytes] = []

    def add(self, kind: str, content: bytes) -> str:
        """An object as it is. Returns its id."""
        number = {"commit": _COMMIT, "tree": _TREE, "blob": _BLOB}[kind]
        self._objects.append(_header(number, len(content)) + zlib.compress(content, 9))
        return oid_of(kind, content)

    def add_repeated(self, base: str, size: int, times: int) -> None:
        """A blob that is another one, of so many bytes, so many times over. Nobody here knows its id."""
        assert 0x10000 < size <= _MOST_COPIED, "what one instruction copies, and from the beginning"
        copies = b"\xf0" + struct.pack("<I", size)[:3]
        delta = _number(size) + _number(size * times) + copies * times
        self._objects.append(_header(_REF_DELTA, len(delta)) + bytes.fromhex(base) + zlib.compress(delta, 9))

    def content(self) -> bytes:
        """The pack, with its checksum."""
        body = b"PACK" + struct.pack(">II", 2, len(self._objects)) + b"".join(self._objects)
        return body + hashlib.sha1(body).digest()


def delta_bomb(megabytes: int) -> tuple[str, Pack]:
    """A commit of nothing, and a pack of about 16 kB with a blob of so many megabytes in it."""
    pack = Pack()
    head = pack.add("commit", commit(pack.add("tree", b"")))
    size = 8_000_000
    base = pack.add("blob", bytes(size))
    pack.add_repeated(base, size, megabytes * 1_000_000 // size)
    return head, pack


def tree_bomb(width: int, depth: int, innermost: bytes = b"") -> tuple[str, list[tuple[str, bytes]]]:
    """Folders within folders, each of which has so many names for the next: the outermost one's id, and every tree."""
    made = [("tree", innermost)]
    for _ in range(depth):
        below = bytes.fromhex(oid_of(*made[-1]))
        made.append(("tree", b"".join(b"40000 %04d\0" % number + below for number in range(width))))
    return oid_of(*made[-1]), made


def bundle(path: Path, refs: Mapping[str, str], pack: Pack) -> Path:
    """A file as `git bundle` writes one. `refs` are names with ids."""
    lines = "".join(f"{oid} {name}\n" for name, oid in refs.items())
    path.write_bytes(f"# v2 git bundle\n{lines}\n".encode() + pack.content())
    return path


def _header(kind: int, size: int) -> bytes:
    first, size = kind << 4 | size & 15, size >> 4
    return bytes([first | 0x80 * bool(size)]) + (_number(size) if size else b"")


def _number(value: int) -> bytes:
    found = bytearray()
    while True:
        value, low = value >> 7, value & 0x7F
        found.append(low | 0x80 * bool(value))
        if not value:
            return bytes(found)
