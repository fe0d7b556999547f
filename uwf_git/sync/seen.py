"""The newest position of each ref of a remote that this store has verified there, or pushed.

    private/seen/<remote>   lines of `<object id> <ref>`; the last line of a ref counts

Tracking refs cannot say it: a plain `git fetch` moves them before anything is checked. The file only grows at an
exchange, and is written anew when most of its lines are old. Without it, tracking refs that lead to adopted history
are used.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from uwf_git.base.errors import StoreDamaged, StoreUnwritable
from uwf_git.git.libgit2 import Oid
from uwf_git.store.private_files import write_private

_LINE = re.compile(rb"^([0-9a-f]{40}) (refs/\S+)$", re.MULTILINE)
_SLACK = 1_000  # old lines that are kept before the file is written anew


class Seen:
    """The positions seen on one remote. Its writers hold the lock of the exchange."""

    def __init__(self, private: Path, remote: str) -> None:
        self._path = private / "seen" / remote
        self._refs: dict[str, Oid] | None = None
        self._lines = 0

    def get(self, ref: str) -> Oid | None:
        """Return where a ref was seen, by the remote's name of it."""
        return self._read().get(ref)

    def _read(self) -> dict[str, Oid]:
        if self._refs is None:
            data = b""
            with suppress(FileNotFoundError):
                data = _read_regular(self._path)
            rows = _LINE.findall(data)
            self._lines = len(rows)
            self._refs = {
                ref.decode("utf-8", "surrogateescape"): Oid(hex=oid.decode("ascii")) for oid, ref in rows
            }
        return self._refs

    def note(self, refs: Mapping[str, Oid]) -> None:
        """Record positions. Raises StoreUnwritable: without the record, the next exchange could take anything."""
        known = self._read()
        new = {ref: oid for ref, oid in refs.items() if known.get(ref) != oid}
        if not new:
            return
        known.update(new)
        self._lines += len(new)
        if self._lines > 2 * len(known) + _SLACK or not self._path.exists():
            write_private(self._path, _text(known))
            self._lines = len(known)
            return
        try:
            with open(self._path, "ab") as file:
                file.write(b"\n" + _text(new))  # a torn line of a killed process ends here
        except OSError as error:
            raise StoreUnwritable(
                f"cannot write {self._path}: {error}", "check permissions and free space"
            ) from None


def _read_regular(path: Path) -> bytes:
    if not stat.S_ISREG(path.stat().st_mode):
        raise StoreDamaged(
            f"{path} is not a file", "it says what was seen on a remote: restore it, or delete it"
        )
    try:
        return path.read_bytes()
    except OSError as error:
        raise StoreDamaged(f"{path} cannot be read: {error.strerror}", "check permissions") from None


def _text(refs: Mapping[str, Oid]) -> bytes:
    return "".join(f"{oid} {ref}\n" for ref, oid in sorted(refs.items())).encode("utf-8", "surrogateescape")


def every(private: Path) -> Iterator[Seen]:
    """Yield what was seen on each remote."""
    folder = private / "seen"
    with suppress(OSError):
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not re.fullmatch(r".*\.\d+", path.name):
                yield Seen(private, os.fspath(path.relative_to(folder)))
