"""Power cuts: a file system in an image whose bytes are copied as they are on the disk at that moment, and the order
in which a process writes, syncs and installs files."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from programs import program

# Sizes are the least that each makes, options what keeps it from writing back by itself during a test.
FILE_SYSTEMS = {
    "ext4": (96, ["mkfs.ext4", "-q"], "loop,commit=300"),
    "xfs": (320, ["mkfs.xfs", "-q"], "loop"),
    "btrfs": (320, ["mkfs.btrfs", "-q"], "loop,commit=300"),
}


class Disk:
    """A mounted file system. Whatever it has not written to its image is lost by a cut."""

    def __init__(self, folder: Path, kind: str) -> None:
        size, make, self._options = FILE_SYSTEMS[kind]
        if os.geteuid() != 0:
            pytest.skip("only root mounts file systems; the order of writes is checked all the same")
        found = program(make[0])
        self._image = folder / f"{kind}.img"
        self.path = folder / kind
        self.path.mkdir()
        with self._image.open("wb") as file:
            file.truncate(size << 20)
        subprocess.run([found, *make[1:], str(self._image)], check=True, capture_output=True)
        self._mount(self._image, self.path, self._options)

    @staticmethod
    def _mount(image: Path, folder: Path, options: str) -> None:
        done = subprocess.run(
            ["mount", "-o", options, str(image), str(folder)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            pytest.skip(f"this machine mounts no images: {done.stderr.strip()}")

    @contextmanager
    def cut(self) -> Iterator[Path]:
        """What a machine finds that loses its power now and starts again."""
        copy, folder = self._image.with_suffix(".cut"), self.path.with_suffix(".cut.d")
        # cp leaves out what nothing was ever written to, which is most of it.
        subprocess.run(["cp", str(self._image), str(copy)], check=True)
        folder.mkdir(exist_ok=True)
        # XFS refuses two file systems of one id; it takes no other option here that matters.
        self._mount(copy, folder, "loop,nouuid" if self._image.stem == "xfs" else "loop")
        try:
            yield folder
        finally:
            subprocess.run(["umount", str(folder)], check=True)
            copy.unlink()

    def close(self) -> None:
        """Unmounts it."""
        subprocess.run(["umount", str(self.path)], check=True)


_CALL = re.compile(r"^(?:\d+ +)?(\w+)\((.*)\) += +(-?\d+)")
_FD = re.compile(r"^(?:-?\d+|AT_FDCWD)<([^>]*)>")
_NAME = re.compile(r'"((?:[^"\\]|\\.)*)"')
_AT = re.compile(r"(?:-?\d+|AT_FDCWD)<([^>]*)>, ")
_TRACED = (
    "write,pwrite64,writev,ftruncate,fsync,fdatasync,rename,renameat,renameat2,link,linkat,unlink,unlinkat"
)


def unsynced_installs(command: list[str], store: Path, log: Path) -> list[str]:
    """Runs a command under strace and returns what it did in the wrong order: a ref or packed-refs put in its place
    while the file itself, or objects that were written before, had not been synced."""
    traced = [
        program("strace"),
        "-f",
        "-y",
        "-qq",
        "-s",
        "300",
        "-e",
        f"trace={_TRACED}",
        "-o",
        str(log),
        *command,
    ]
    done = subprocess.run(traced, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return list(_violations(whole_lines(log.read_text(errors="replace")), store))


def whole_lines(text: str) -> Iterator[str]:
    """The calls in the order in which they ended: strace breaks one in two where another process is in between."""
    begun: dict[str, str] = {}
    for line in text.splitlines():
        pid = line.partition(" ")[0]
        if line.endswith("<unfinished ...>"):
            begun[pid] = line.removesuffix("<unfinished ...>")
        elif "resumed>" in line:
            yield begun.pop(pid, "") + line.partition("resumed>")[2]
        else:
            yield line


def _violations(lines: Iterator[str], store: Path) -> Iterator[str]:
    dirty: set[str] = set()
    objects, refs, packed = f"{store}/objects/", f"{store}/refs/", f"{store}/packed-refs"
    for line in lines:
        found = _CALL.match(line)
        if found is None or int(found[3]) < 0:
            continue
        call, arguments = found[1], found[2]
        if call in ("write", "pwrite64", "writev", "ftruncate"):
            if (named := _FD.match(arguments)) and named[1].startswith(f"{store}/"):
                dirty.add(named[1])
        elif call in ("fsync", "fdatasync"):
            if named := _FD.match(arguments):
                dirty.discard(named[1])
        elif call in ("unlink", "unlinkat"):
            dirty.discard(_paths(arguments)[0])
        elif call.startswith(("rename", "link")):
            old, new = _paths(arguments)
            if old in dirty:
                dirty.add(new)
                if call.startswith("rename"):
                    dirty.discard(old)
            else:
                dirty.discard(new)
            if new.startswith(refs) or new == packed:
                late = sorted(path for path in dirty if path == new or _is_object(path, objects))
                if late:
                    yield f"{os.path.relpath(new, store)} before {os.path.relpath(late[0], store)} was synced"


def _is_object(path: str, objects: str) -> bool:
    """Whether a file holds objects. What stands in objects/info can be made anew, and what keeps a pack from being
    packed anew isn't needed after a power cut."""
    return path.startswith(objects) and not path.startswith(f"{objects}info/") and not path.endswith(".keep")


def _paths(arguments: str) -> list[str]:
    """The paths of a call, made whole by the folders that they are relative to."""
    folders = _AT.findall(arguments)
    names = _NAME.findall(arguments)
    return [
        name if name.startswith("/") or not folders else f"{folders[min(at, len(folders) - 1)]}/{name}"
        for at, name in enumerate(names)
    ]
