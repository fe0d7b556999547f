"""read_file, write_file, edit_file, list_dir."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from uwf_git.ext.builtin.tools.tool import Tool, ToolContext, counted, object_schema
from uwf_git.plugin import FileChange, MountedPath, ToolFailure, tool_results

READ = 64_000_000  # bytes of a file that is read in ranges
EDITED = 10_000_000  # bytes of a file that is edited
LINES = 2000
ENTRIES = 500
_PATH = {
    "type": "string",
    "minLength": 1,
    "description": "as in src/a.py or @project/src/a.py",
}


def is_binary(data: bytes) -> bool:
    return b"\0" in data[:8192]


def text_of(data: bytes, where: str) -> str:
    """Return a file's text. Raises ToolFailure, `binary`."""
    try:
        if b"\0" not in data:
            return data.decode("utf-8")
    except UnicodeDecodeError:
        pass
    raise ToolFailure("binary", f"{tool_results.shown(where)} is not UTF-8 text")


def read_file(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
    first = arguments.get("offset", 1)
    column = arguments.get("column", 1)
    most = arguments.get("limit", LINES)
    with context.workspace.open_file(arguments["path"]) as (file, spot):
        size = os.fstat(file.fileno()).st_size
        if size > READ:
            raise ToolFailure(
                "too_large", f"{tool_results.shown(spot.shown)} has {size} bytes, over {READ}; use grep"
            )
        if is_binary(file.read(8192)):
            raise ToolFailure("binary", f"{tool_results.shown(spot.shown)} is a binary file of {size} bytes")
        file.seek(0)
        room = Room(context.workspace.limits.read)
        lines = _range(file, first, column, most, room, context.outputs.clean)
        return {"path": spot.shown, "bytes": size, **lines}


class Room:
    """The room of a result: characters, and bytes of files, None for no limit."""

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._characters = tool_results.SHOWN
        self._bytes = most

    @property
    def full(self) -> bool:
        return self._characters == 0 or self._bytes == 0

    def fitting(self, text: str) -> str:
        return _beginning(text[: self._characters], self._bytes)

    def could_hold(self, text: str) -> bool:
        return len(text) <= tool_results.SHOWN and _beginning(text, self._most) == text

    def take(self, text: str) -> None:
        self._characters -= len(text)
        if self._bytes is not None:
            self._bytes -= len(text.encode("utf-8", "replace"))


def _beginning(text: str, most: int | None) -> str:
    if most is None:
        return text
    return text.encode("utf-8", "replace")[:most].decode("utf-8", "ignore")


def _range(
    file: BinaryIO, first: int, column: int, most: int, room: Room, clean: Callable[[str], str]
) -> dict[str, Any]:
    taken: list[str] = []
    total = 0
    lossy = False
    rest = ""
    for line in file:
        total += 1
        if total < first or rest:
            continue
        if len(taken) == most:
            rest = f"use offset={total}"
            continue
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError:
            text, lossy = line.decode("utf-8", "replace"), True
        begin = column - 1 if total == first else 0
        text = clean(text)[begin:] if begin or room.fitting(text) != text else text
        if (fitting := room.fitting(text)) != text:
            # A line that fits into a result of its own is left to the next one; a longer line is cut.
            if taken and room.could_hold(text):
                rest = f"use offset={total}"
                continue
            if not taken and not fitting:
                raise ToolFailure("too_large", "not a character of a file may be given here")
            rest = f"use offset={total} column={begin + len(fitting) + 1}"
            text = fitting
        taken.append(text)
        room.take(text)
        if room.full and not rest:
            rest = f"use offset={total + 1}"
    if first > max(total, 1):
        raise ToolFailure("invalid_arguments", f"offset {first} is after the last line, {total}")
    result: dict[str, Any] = {
        "content": "".join(taken),
        "lines": [first, first + max(len(taken), 1) - 1],
        "totalLines": total,
    }
    if rest and rest != f"use offset={total + 1}":
        result |= tool_results.truncated(rest)
    if lossy:
        result["lossy"] = "not all of it is UTF-8: � stands for what isn't"
    return result


def write_file(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
    data = arguments["content"].encode("utf-8")
    (changed,) = context.workspace.change([FileChange(arguments["path"], data)])
    return {"path": changed.path, "bytes": len(data), "created": changed.kind == "created"}


def edit_file(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
    path, old, new = arguments["path"], arguments["old"], arguments["new"]
    if old == new:
        raise ToolFailure("invalid_arguments", "old and new are the same")
    text = text_of(context.workspace.read(path, EDITED)[0], path)
    if old not in text and "\r\n" in text:
        old, new = _crlf(old), _crlf(new)
    count = text.count(old)
    if count == 0:
        raise ToolFailure("no_match", f"{tool_results.shown(path)} does not hold that text{_hint(text, old)}")
    if count > 1 and not arguments.get("all", False):
        lines = ", ".join(str(line) for line in _lines_of(text, old, 10))
        raise ToolFailure(
            "not_unique",
            f"{tool_results.shown(path)} holds that text {count} times, in lines {lines}: "
            "give more of what is around it, or all: true",
        )
    line = text.count("\n", 0, text.index(old)) + 1
    (changed,) = context.workspace.change([FileChange(path, text.replace(old, new).encode("utf-8"))])
    return {"path": changed.path, "replaced": count, "line": line}


def _crlf(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\n", "\r\n")


def _hint(text: str, old: str) -> str:
    wanted = [line.strip() for line in old.strip().splitlines()]
    lines = [line.strip() for line in text.splitlines()]
    for number in range(len(lines) - len(wanted) + 1) if wanted else ():
        if lines[number : number + len(wanted)] == wanted:
            return f"; in line {number + 1} something differs from it in white space alone"
    return "; read the file again"


def _lines_of(text: str, part: str, most: int) -> Iterator[int]:
    position = line = 0
    begin = text.find(part)
    while begin >= 0 and most > 0:
        line += text.count("\n", position, begin)
        yield line + 1
        position, most = begin, most - 1
        begin = text.find(part, begin + len(part))


def list_dir(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
    with context.workspace.open_folder(arguments.get("path", "@project")) as (folder, spot):
        names = sorted(os.listdir(folder))  # noqa: PTH208 -- of a descriptor
        wanted, more = tool_results.page(len(names), arguments.get("offset", 1), ENTRIES)
        entries = [_entry(folder, name, spot, context) for name in names[wanted]]
    return {"path": spot.shown, "entries": entries, "total": len(names), **more}


def _entry(folder: int, name: str, inside: MountedPath, context: ToolContext) -> dict[str, Any]:
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            target = context.workspace.told_link(f"{inside.shown}/{name}", os.readlink(name, dir_fd=folder))
            return {"name": name, "type": "link", "target": target}
    except OSError:
        return {"name": name, "type": "gone"}
    if stat.S_ISDIR(status.st_mode):
        return {"name": name, "type": "folder"}
    if stat.S_ISREG(status.st_mode):
        return {"name": name, "type": "file", "bytes": status.st_size}
    return {"name": name, "type": "special"}


FILES = (
    Tool(
        "read_file",
        f"Reads a text file, at most {LINES} lines and {tool_results.SHOWN} characters at a time. "
        "`rest` says how to read on.",
        object_schema(
            ("path",),
            path=_PATH,
            offset=counted("the first line, counted from 1"),
            limit=counted("how many lines", most=LINES),
            column=counted("the first character of the first line, for very long lines"),
        ),
        read_file,
    ),
    Tool(
        "write_file",
        "Writes a whole text file, and makes the folders it stands in. What was in it is gone.",
        object_schema(("path", "content"), path=_PATH, content={"type": "string"}),
        write_file,
    ),
    Tool(
        "edit_file",
        "Replaces a text in a file by another one. `old` must be in the file exactly once, white space and "
        "all, unless `all` is true.",
        object_schema(
            ("path", "old", "new"),
            path=_PATH,
            old={"type": "string", "minLength": 1},
            new={"type": "string"},
            all={"type": "boolean", "description": "replace every occurrence"},
        ),
        edit_file,
    ),
    Tool(
        "list_dir",
        f"Lists a folder, {ENTRIES} entries at a time.",
        object_schema((), path=_PATH, offset=counted("the first entry, counted from 1")),
        list_dir,
    ),
)
