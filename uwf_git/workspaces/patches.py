"""Patches of commits, as they are known again on another base: after a squash, a rebase or a cherry-pick."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from uwf_git.base.errors import RemoteFailed, WorkspaceFailed
from uwf_git.git.program import Git
from uwf_git.workspaces.changes import NO_FETCH, PATCH

if TYPE_CHECKING:
    from uwf_git.workspaces.project import Project

PATCH_BYTES = 64 << 20
"""Bytes of patches that are read at once. A larger one is not read."""

_WORDS = (*PATCH, "--stdin", "--root", "--always", "--cc", "--full-index")
_HUNK = re.compile(rb"(@@+) (?:-\d+(?:,\d+)? )+\+(\d+)(?:,(\d+))? @@")
_OLD = re.compile(rb"-\d+(?:,(\d+))?")
_SIGNS = bytes(byte for byte in range(0x80) if not chr(byte).isalnum())
_CHANGING = (b"index ", b"similarity index ", b"dissimilarity index ")


class Patch(NamedTuple):
    """What a commit changes. `key` is the same for the same changes between the same lines, `bare_key` between any:
    neither depends on line numbers, blanks and the ids of texts. Both are "" if nothing is changed. `added` has the
    numbers of added lines and their texts without blanks, by path; of a merge those that no parent has."""

    key: str
    bare_key: str
    added: dict[str, dict[int, bytes]]


def read_patches(project: Project, pairs: Sequence[tuple[str, ...]]) -> Iterator[Patch | None]:
    """Yield the patch of each commit against the parents that follow it in its pair, or against its own, in their
    order; None for one of more than PATCH_BYTES. Raises WorkspaceFailed if objects are not here."""
    done = 0
    while done < len(pairs):
        before = done
        for patch in _read(project, pairs[done:]):
            yield patch
            done += 1
        if done == before:
            yield None
            done += 1


def _read(project: Project, pairs: Sequence[tuple[str, ...]]) -> Iterator[Patch]:
    """Yield the patches of the first pairs, as many as have PATCH_BYTES together."""
    data = "".join(f"{' '.join(pair)}\n" for pair in pairs).encode("ascii")
    content = read_git(project, *_WORDS, stdin=data, at_most=PATCH_BYTES)
    is_cut = len(content) == PATCH_BYTES
    lines = iter(content.split(b"\n"))
    del content
    next(lines)  # the first commit's id
    for commit, *_ in pairs[1:]:
        reader = _Reader()
        if not reader.read(lines, commit.encode("ascii")):
            return
        yield reader.patch()
    reader = _Reader()
    reader.read(lines, b"")
    if not is_cut:
        yield reader.patch()


def read_git(
    project: Project, *words: str, stdin: bytes = b"", at_most: int = -1, seconds: float | None = None
) -> bytes:
    """Return what git prints of objects that are here, cut after `at_most` bytes. Raises WorkspaceFailed."""
    try:
        return (
            Git(project.common, variables=NO_FETCH, seconds=seconds)
            .run(*words, stdin=stdin, at_most=at_most)
            .out
        )
    except RemoteFailed as error:
        hint = error.hint
        if "promisor" in error.message:
            place = shlex.quote(str(project.common))
            hint = f"the clone leaves objects out: git -C {place} fetch --refetch --no-filter"
        raise WorkspaceFailed(f"project {project.common}: {error.message}", hint) from None


def without_blanks(line: bytes) -> bytes:
    return b"".join(line.split())


def path_of(name: bytes) -> str:
    """Return a path that git may have quoted."""
    if name.startswith(b'"'):
        name = name[1:-1].decode("unicode_escape").encode("latin-1", "replace")
    return name.decode("utf-8", "surrogateescape")


class _Reader:
    """Reads the patch of one commit."""

    def __init__(self) -> None:
        self._whole, self._bare = sha256(), sha256()
        self._is_empty = True
        self._added: dict[str, dict[int, bytes]] = {}
        self._path, self._index = "", b""

    def patch(self) -> Patch:
        if self._is_empty:
            return Patch("", "", {})
        added = {path: lines for path, lines in self._added.items() if lines}
        return Patch(self._whole.hexdigest(), self._bare.hexdigest(), added)

    def read(self, lines: Iterator[bytes], end: bytes) -> bool:
        """Read lines up to one that is `end`; return whether it came."""
        for line in lines:
            if end and line == end:
                return True
            if match := _HUNK.match(line):
                counts = [int(part or b"1") for part in _OLD.findall(line.partition(b"+")[0])]
                self._whole.update(b"@@\n")
                self._hunk(lines, counts, int(match[2]), int(match[3] or b"1"))
            elif line.startswith(b"+++ "):
                name = path_of(line[4:].removesuffix(b"\t"))
                self._path = name.removeprefix("b/") if name != "/dev/null" else ""
                self._update(line)
            elif line.startswith(_CHANGING):
                self._index = line
            elif line.startswith(b"Binary files "):
                self._update(self._index)
            elif line and not line.startswith(b"\\"):
                self._update(line)
        return False

    def _hunk(self, lines: Iterator[bytes], counts: list[int], number: int, count: int) -> None:
        added = self._added.setdefault(self._path, {})
        size = len(counts)
        while count > 0 or any(old > 0 for old in counts):
            line = next(lines, None)
            if line is None:
                return
            signs = line[:size]
            if signs.startswith(b"\\"):
                continue
            text = without_blanks(line[size:])
            is_removed = b"-" in signs
            for place, sign in enumerate(signs):
                counts[place] -= sign == b"-"[0] or (not is_removed and sign == b" "[0])
            self._whole.update(signs + text + b"\n")
            if is_removed or b"+" in signs:
                self._bare.update(signs + text + b"\n")
            if not is_removed:
                if signs == b"+" * size:
                    added[number] = text
                number, count = number + 1, count - 1

    def _update(self, line: bytes) -> None:
        self._is_empty = False
        self._whole.update(line + b"\n")
        self._bare.update(line + b"\n")


def letters(text: bytes) -> int:
    """Return the number of letters and digits of a text; bytes outside of ASCII count as such."""
    return len(text.translate(None, _SIGNS))
