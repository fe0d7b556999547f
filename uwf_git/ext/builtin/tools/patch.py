"""apply_patch: changes to several files, all or none.

In the form on which models are trained:

    *** Begin Patch
    *** Update File: src/a.py
    *** Move to: src/b.py              (optional)
    @@ def greet():                    (optional: a line before the change)
     context
    -old
    +new
    *** Add File: notes.md
    +every line
    *** Delete File: old.py
    *** End Patch

Context is searched exactly, then ignoring trailing white space.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from uwf_git.ext.builtin.tools.files import EDITED, text_of
from uwf_git.ext.builtin.tools.tool import Tool, ToolContext, object_schema
from uwf_git.plugin import FileChange, ToolFailure, Workspace, tool_results

FILES = 40  # files in one patch
_HEADER = re.compile(r"\*\*\* (Add File|Update File|Delete File|Move to): (.+)")
_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+\d+(?:,\d+)? @@.*")


class Hunk(NamedTuple):
    """A change of `old` to `new` lines. `after` is a line before it or "". `at_end`: it ends the file."""

    after: str
    old: tuple[str, ...]
    new: tuple[str, ...]
    at_end: bool = False


class FilePatch(NamedTuple):
    """A file's change. `kind` is "add", "update" or "delete"; `content` is for "add"."""

    kind: str
    path: str
    hunks: tuple[Hunk, ...] = ()
    content: str = ""
    move_to: str = ""


def apply_patch(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
    changes: list[FileChange] = []
    for patch in parse_patch(arguments["patch"]):
        changes += _changes(patch, context.workspace)
    changed = context.workspace.change(changes)
    return {"changed": [{"path": item.path, "kind": item.kind} for item in changed]}


def parse_patch(text: str) -> list[FilePatch]:
    """Parse a patch. Raises ToolFailure, `invalid_arguments`."""
    lines = text.replace("\r\n", "\n").split("\n")
    while lines and not lines[-1].strip():
        lines.pop()
    patches = _PatchReader(lines).files()
    if not patches:
        raise _bad("it names no file: begin with *** Begin Patch and *** Update File: PATH")
    if len(patches) > FILES:
        raise _bad(f"it changes more than {FILES} files: make several of it")
    return patches


class _PatchReader:
    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = lines
        self.at = 0

    def peek(self) -> str | None:
        return self.lines[self.at] if self.at < len(self.lines) else None

    def take(self) -> str:
        self.at += 1
        return self.lines[self.at - 1]

    def take_hunk(self) -> tuple[list[str], list[str]]:
        old: list[str] = []
        new: list[str] = []
        while (line := self.peek()) is not None and not line.startswith(("@@", "*** ")):
            self.take()
            if line.startswith("\\"):
                continue  # \ No newline at end of file
            if line.startswith(("-", " ")) or not line:
                old.append(line[1:])
            if line.startswith(("+", " ")) or not line:
                new.append(line[1:])
            elif not line.startswith("-"):
                raise _bad(
                    f"line {self.at} begins with neither a blank, - nor +: {tool_results.shown(line, 80)}"
                )
        return old, new

    def files(self) -> list[FilePatch]:
        patches: list[FilePatch] = []
        while (line := self.peek()) is not None:
            header = _HEADER.fullmatch(line.rstrip())
            if line.strip() == "*** End Patch":
                break
            if header is None or header[1] == "Move to":
                if line.strip() and line.strip() != "*** Begin Patch":
                    raise _bad(f"line {self.at + 1} belongs to no file: {tool_results.shown(line, 80)}")
                self.take()
                continue
            self.take()
            patches.append(self._file(header[1], header[2].strip()))
        return patches

    def _file(self, kind: str, path: str) -> FilePatch:
        if kind == "Delete File":
            return FilePatch("delete", path)
        if kind == "Add File":
            return FilePatch("add", path, content=self._content())
        target = ""
        match = _HEADER.fullmatch((self.peek() or "").rstrip())
        if match is not None and match[1] == "Move to":
            target = match[2].strip()
            self.take()
        hunks = self._hunks()
        if not hunks and not target:
            raise _bad(f"{tool_results.shown(path)} has no change")
        return FilePatch("update", path, hunks, move_to=target)

    def _content(self) -> str:
        lines: list[str] = []
        while (line := self.peek()) is not None and not line.startswith("*** "):
            if not line.startswith("+"):
                raise _bad(f"line {self.at + 1}: every line of a new file begins with +")
            lines.append(self.take()[1:])
        return "".join(line + "\n" for line in lines)

    def _hunks(self) -> tuple[Hunk, ...]:
        hunks: list[Hunk] = []
        after = ""
        while (line := self.peek()) is not None:
            if line.startswith("*** ") and line.strip() != "*** End of File":
                break
            if line.startswith("@@"):
                # Of several such lines only the last is searched: the others locate it.
                after = "" if _HUNK.fullmatch(line) else line[2:].strip()
                self.take()
                continue
            old, new = self.take_hunk()
            at_end = (self.peek() or "").strip() == "*** End of File"
            if at_end:
                self.take()
            else:
                _trim(old, new)
            hunks.append(Hunk(after, tuple(old), tuple(new), at_end))
            after = ""
        return tuple(hunks)


def _trim(old: list[str], new: list[str]) -> None:
    while len(old) > 1 and len(new) > 1 and old[-1] == new[-1] == "":
        old.pop()
        new.pop()


def _changes(patch: FilePatch, workspace: Workspace) -> list[FileChange]:
    if patch.kind == "delete":
        return [FileChange(patch.path, None)]
    if patch.kind == "add":
        _refuse_existing(patch.path, workspace)
        return [FileChange(patch.path, patch.content.encode("utf-8"))]
    data, mode = workspace.read(patch.path, EDITED)
    text = text_of(data, patch.path)
    changed = updated(text, patch.hunks, patch.path).encode("utf-8")
    if not patch.move_to:
        return [FileChange(patch.path, changed)]
    _refuse_existing(patch.move_to, workspace)
    return [FileChange(patch.move_to, changed, mode), FileChange(patch.path, None)]


def _refuse_existing(path: str, workspace: Workspace) -> None:
    try:
        with workspace.open_file(path):
            pass
    except ToolFailure as failure:
        if failure.code == "not_found":
            return
        raise
    raise ToolFailure("no_match", f"{tool_results.shown(path)} already exists: update it, or delete it first")


def updated(text: str, hunks: Sequence[Hunk], path: str) -> str:
    """Apply hunks in order, keeping line ends. Raises ToolFailure, `no_match` or `not_unique`."""
    newline = "\r\n" if text.count("\r\n") == text.count("\n") > 0 else "\n"
    lines = text.split(newline)
    ended = lines[-1] == ""
    if ended:
        lines.pop()
    begin = 0
    for number, hunk in enumerate(hunks, 1):
        where = _place(lines, hunk, begin, f"{tool_results.shown(path)}, change {number}")
        lines[where : where + len(hunk.old)] = _with_kept_context(lines[where : where + len(hunk.old)], hunk)
        begin = where + len(hunk.new)
    return newline.join([*lines, ""] if (ended or not text) and lines else lines)


def _with_kept_context(lines: Sequence[str], hunk: Hunk) -> list[str]:
    kept = {wanted: there for wanted, there in zip(hunk.old, lines, strict=True) if wanted != there}
    return [kept.get(line, line) for line in hunk.new] if kept else list(hunk.new)


def _place(lines: Sequence[str], hunk: Hunk, begin: int, what: str) -> int:
    if hunk.after:
        begin = _after(lines, hunk.after, begin, what)
    if not hunk.old:
        return begin if hunk.after else len(lines)
    for alike in (lambda line: line, str.rstrip, str.strip):
        wanted = [alike(line) for line in hunk.old]
        have = [alike(line) for line in lines]
        places = [
            at
            for at in range(begin, len(lines) - len(wanted) + 1)
            if have[at] == wanted[0] and have[at : at + len(wanted)] == wanted
        ]
        if hunk.at_end:
            places = [at for at in places if at + len(wanted) == len(lines)] or places
        if places:
            return _one(places, hunk, what)
    first = next((line for line in hunk.old if line.strip()), "")
    raise ToolFailure(
        "no_match",
        f"{what}: its lines are not in the file, beginning with {tool_results.shown(first, 80)!r}; read it again",
    )


def _one(places_of_hunk: Sequence[int], hunk: Hunk, what: str) -> int:
    if len(places_of_hunk) > 1 and not hunk.after and not hunk.at_end:
        places = ", ".join(str(at + 1) for at in places_of_hunk[:10])
        raise ToolFailure(
            "not_unique",
            f"{what}: its lines are in the file {len(places_of_hunk)} times, at {places}: give more context",
        )
    return places_of_hunk[0]


def _after(lines: Sequence[str], wanted: str, begin: int, what: str) -> int:
    for at in range(begin, len(lines)):
        if lines[at].strip() == wanted:
            return at + 1
    for at in range(begin, len(lines)):
        if wanted in lines[at]:
            return at + 1
    raise ToolFailure("no_match", f"{what}: there is no line {tool_results.shown(wanted, 80)!r}")


def _bad(reason: str) -> ToolFailure:
    return ToolFailure("invalid_arguments", f"the patch cannot be read: {reason}")


PATCH = (
    Tool(
        "apply_patch",
        "Changes several text files, all or none. The patch is `*** Begin Patch`, then for each file "
        "`*** Update File: PATH` with lines that begin with a blank (context), - or +, in places divided by "
        "`@@`, or `*** Add File: PATH` with + lines, or `*** Delete File: PATH`, then `*** End Patch`.",
        object_schema(("patch",), patch={"type": "string", "minLength": 1}),
        apply_patch,
    ),
)
