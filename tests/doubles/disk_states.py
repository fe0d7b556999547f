"""What a crash leaves on the disk. One run of a command is traced; from its calls follows the content of every file at
each instant of it, and what of that a power cut may leave.

A kill of all processes before a call leaves what the calls before it have written. A power cut leaves less: names are
kept in the order in which they were made, up to some moment after the last sync of anything, as the journals of file
systems do it; of what was written into a file since its own sync each block is there or not.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

from power import whole_lines
from programs import program

BLOCK = 4096
CHANGING = (
    "openat,open,creat,write,pwrite64,writev,rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,rmdir,link,linkat,"
    "symlink,symlinkat,fsync,fdatasync,ftruncate,truncate,fallocate"
)
"""The calls that change what is on a disk, or wait for it."""

_LINE = re.compile(r"^(\d+) +(\w+)\((.*)\) += +(-?\d+)")
_PART = re.compile(
    r'"((?:\\x[0-9a-f]{2})*)"(?:\.\.\.)?|(-?\d+|AT_FDCWD)<((?:\\x[0-9a-f]{2}|[^>\\])*)>|([A-Z_|]+)|(-?\d+)'
)


class Call(NamedTuple):
    """A call that changed something, or waited for the disk. `path` is below the traced folder; `other` is the new name
    of a rename or link; `data` was written at `offset`, or `offset` is a size."""

    kind: str
    path: str
    other: str = ""
    offset: int = 0
    data: bytes = b""

    def __str__(self) -> str:
        shown = f"{self.kind} {self.path}" + (f" -> {self.other}" if self.other else "")
        return f"{shown} ({len(self.data)} bytes at {self.offset})" if self.data else shown


def trace(command: Sequence[str], folder: Path, log: Path) -> list[Call]:
    """Runs a command and returns what it did below a folder, its children included."""
    traced = f"trace={CHANGING},lseek"
    strace = [
        program("strace"),
        "-f",
        "-y",
        "-xx",
        "-qq",
        "-s",
        "16777216",
        "-e",
        traced,
        "-o",
        str(log),
    ]
    done = subprocess.run([*strace, *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return list(_calls(whole_lines(log.read_text(errors="replace")), f"{folder}/"))


class _Arguments(NamedTuple):
    """The arguments of a call by their kinds. A descriptor is its number, or AT_FDCWD, with the path behind it."""

    texts: list[str]
    descriptors: list[tuple[str, str]]
    flags: str
    numbers: list[int]


def _calls(lines: Iterable[str], below: str) -> Iterator[Call]:
    places: dict[tuple[str, str], int] = {}  # where the next write of a descriptor to a file goes
    appends: set[tuple[str, str]] = set()
    current: dict[str, tuple[str, str]] = {}  # the folder that each process is in

    def inner(path: str) -> str | None:
        return path[len(below) :] if path.startswith(below) else None

    for line in lines:
        found = _LINE.match(line)
        if found is None or int(found[4]) < 0:
            continue
        process, kind, result = found[1], found[2], int(found[4])
        texts, descriptors, flags, numbers = _arguments(found[3])
        for each in descriptors:
            if each[0] == "AT_FDCWD":
                current[process] = each
        if not descriptors and process in current:
            descriptors = [current[process]]
        if kind in ("open", "openat", "creat"):
            whole = _whole(texts[0], descriptors)
            place = str(result), whole
            places[place] = 0
            appends.discard(place)
            if "O_APPEND" in flags:
                appends.add(place)
            path = inner(whole)
            if path is not None and "O_TMPFILE" not in flags:
                if "O_CREAT" in flags or kind == "creat":
                    yield Call("create", path)
                if "O_TRUNC" in flags:
                    yield Call("truncate", path)
        elif kind.startswith(("rename", "link")):
            old, new = inner(_whole(texts[0], descriptors[:1])), inner(_whole(texts[1], descriptors[-1:]))
            if old is not None and new is not None:
                yield Call("rename" if "rename" in kind else "link", old, new)
        elif kind in ("unlink", "unlinkat", "mkdir", "mkdirat", "rmdir", "truncate"):
            path = inner(_whole(texts[0], descriptors))
            if path is not None:
                what = "rmdir" if "AT_REMOVEDIR" in found[3] else kind.removesuffix("at")
                yield Call(what, path, offset=numbers[0] if kind == "truncate" else 0)
        elif descriptors and not kind.startswith("symlink"):
            place = descriptors[0]
            if kind == "lseek":
                places[place] = result
            if (path := inner(place[1])) is None:
                continue
            if kind in ("fsync", "fdatasync"):
                yield Call("sync", path)
            elif kind in ("write", "writev"):
                data = b"".join(map(os.fsencode, texts))[:result]
                at = -1 if place in appends else places.get(place, -1)
                yield Call("write", path, offset=at, data=data)
                if at >= 0:
                    places[place] = at + result
            elif kind == "pwrite64":
                yield Call("write", path, offset=numbers[-1], data=os.fsencode(texts[0])[:result])
            elif kind == "ftruncate":
                yield Call("truncate", path, offset=numbers[-1])
            elif kind == "fallocate":
                yield Call("reserve", path, offset=numbers[-2] + numbers[-1])


def _arguments(text: str) -> _Arguments:
    found = _Arguments([], [], "", [])
    for name, number, path, flags, plain in _PART.findall(text):
        if number:
            found.descriptors.append((number, _text(path)))
        elif flags:
            found = found._replace(flags=found.flags + flags)
        elif plain:
            found.numbers.append(int(plain))
        else:
            found.texts.append(_text(name))
    return found


def paths_in(call: str) -> list[str]:
    """The paths in a line of a trace, as it has them."""
    found = _arguments(call)
    return [
        *(_whole(text, found.descriptors) for text in found.texts[:2]),
        *(path for _, path in found.descriptors),
    ]


def _text(escaped: str) -> str:
    return os.fsdecode(bytes.fromhex(escaped.replace("\\x", ""))) if "\\x" in escaped else escaped


def _whole(name: str, folders: list[tuple[str, str]]) -> str:
    return os.path.normpath(name if name.startswith("/") or not folders else f"{folders[0][1]}/{name}")


class File:
    """What a file holds: `data` for who reads it now, `synced` on the disk for certain."""

    def __init__(self, data: bytes = b"", synced: bytes | None = None, mode: int = 0o644) -> None:
        self.data = bytearray(data)
        self.synced = synced
        self.mode = mode

    def write(self, offset: int, data: bytes) -> None:
        at = len(self.data) if offset < 0 else offset
        self.data.extend(bytes(max(0, at - len(self.data))))
        self.data[at : at + len(data)] = data

    def resize(self, size: int) -> None:
        del self.data[size:]
        self.data.extend(bytes(size - len(self.data)))

    def left(self, chance: Random) -> bytes:
        """What a power cut leaves of it: all that was synced, and of what was written since, block by block, the new
        content, the old one, or nothing."""
        old, new = self.synced or b"", bytes(self.data)
        if self.synced == new:
            return new
        how = chance.choice(("lost", "torn", "cut off", "all"))
        if how == "lost":
            return old
        if how == "all":
            return new
        if how == "cut off":
            return new[: max(len(old) if new.startswith(old) else 0, chance.randrange(len(new) + 1))]
        blocks = []
        for at in range(0, len(new), BLOCK):
            there = new[at : at + BLOCK]
            before = old[at : at + BLOCK].ljust(len(there), b"\0")
            blocks.append(there if chance.random() < 0.5 else before)
        return b"".join(blocks)


class Disk:
    """A folder, as it was and as calls have changed it since."""

    def __init__(self, folder: Path) -> None:
        self.names: dict[str, File | None] = {}  # None for a folder
        for place, folders, files in os.walk(folder):
            for name in folders:
                self.names[os.path.relpath(Path(place, name), folder)] = None
            for name in files:
                path = Path(place, name)
                content = path.read_bytes()
                self.names[os.path.relpath(path, folder)] = File(
                    content, content, path.stat().st_mode & 0o777
                )

    def do(self, call: Call) -> None:
        """What a call does to names and contents."""
        names, path = self.names, call.path
        found = names.get(path)
        if call.kind == "create":
            if path not in names:
                names[path] = File()
        elif call.kind == "mkdir":
            names.setdefault(path, None)
        elif call.kind in ("unlink", "rmdir"):
            names.pop(path, None)
        elif call.kind == "link":
            names[call.other] = found
        elif call.kind == "rename":
            self._rename(path, call.other)
        elif call.kind == "sync" and found is not None:
            found.synced = bytes(found.data)
        elif found is None:
            pass  # a folder, or a file that had lost its name before
        elif call.kind == "write":
            found.write(call.offset, call.data)
        elif call.kind == "truncate":
            found.resize(call.offset)
        elif call.kind == "reserve":
            found.resize(max(call.offset, len(found.data)))

    def _rename(self, old: str, new: str) -> None:
        if old not in self.names:
            return
        for name in [each for each in self.names if each.startswith(f"{new}/")]:
            del self.names[name]
        for name in [each for each in self.names if each.startswith(f"{old}/")]:
            self.names[new + name[len(old) :]] = self.names.pop(name)
        self.names[new] = self.names.pop(old)

    def make(self, folder: Path, chance: Random | None = None) -> None:
        """Writes it into a folder, in place of what is there; with a `chance`, what a power cut leaves of it."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name in sorted(self.names):
            file = self.names[name]
            if file is None:
                (folder / name).mkdir(exist_ok=True)
        made: dict[int, Path] = {}
        for name, file in self.names.items():
            if file is None:
                continue
            path = folder / name
            if id(file) in made:
                os.link(made[id(file)], path)
                continue
            path.write_bytes(file.data if chance is None else file.left(chance))
            path.chmod(file.mode | 0o200)
            made[id(file)] = path

    def differs(self, folder: Path) -> list[str]:
        """The names below a folder that aren't there, or not as here. Left out is what SQLite maps into memory."""
        there = Disk(folder).names
        return [
            name
            for name in sorted({*there, *self.names})
            if not name.endswith("-shm") and _content(there, name) != _content(self.names, name)
        ]


def _content(names: dict[str, File | None], name: str) -> object:
    if name not in names:
        return "absent"
    file = names[name]
    return None if file is None else bytes(file.data)


def killed(before: Path, calls: Sequence[Call], at: int) -> Disk:
    """What is there where all processes are killed before call number `at`. `before` is the folder as it was."""
    disk = Disk(before)
    for call in calls[:at]:
        disk.do(call)
    return disk


def cut(before: Path, calls: Sequence[Call], at: int, chance: Random) -> Disk:
    """What is there where the power fails before call number `at`: names as they were at some moment after the last
    sync of anything. What `make` writes of it with a chance are the contents."""
    last = max((number + 1 for number, call in enumerate(calls[:at]) if call.kind == "sync"), default=0)
    kept = chance.randint(last, at)
    disk = Disk(before)
    for call in calls[:kept]:
        disk.do(call)
    return disk
