"""glob and grep over the files below a folder, without links, git's files and ignored files."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

from uwf_git.ext.builtin.tools.files import Room, is_binary
from uwf_git.ext.builtin.tools.tool import Tool, ToolContext, counted, object_schema
from uwf_git.plugin import (
    PROJECT_MOUNT,
    MountedPath,
    TimeExceeded,
    ToolFailure,
    confined_paths,
    open_regular,
    system,
    time_limit,
    tool_results,
)

SECONDS = 20.0  # of one search; like every `time_limit`, it holds in the main thread alone
FOUND = 200  # paths or lines in one result
SEARCHED = 10_000_000  # bytes of a file that grep searches
_ENTRIES = 200_000  # files and folders below the folder of a search
_LINE = 300  # characters shown of a line that matches


class _Found(NamedTuple):
    """A regular file: its open folder and name, and its relative path."""

    folder: int
    name: str
    path: str


def glob(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
    mount, pattern = context.workspace.split_pattern(arguments["pattern"])
    fits = _matcher(pattern)
    paths: list[str] = []
    first = arguments.get("offset", 1)
    with _below({"path": mount, **arguments}, context) as (files, spot), _limited(context):
        for file in files:
            if fits(file.path):
                paths.append(f"{spot.shown}/{file.path}")
                if len(paths) == first - 1 + FOUND + 1:
                    break
    wanted, more = tool_results.page(len(paths), first, FOUND)
    return {"paths": paths[wanted], **more}


def grep(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
    pattern = _pattern(arguments)
    fits = _matcher(arguments.get("glob", "**"))
    first = arguments.get("offset", 1)
    seen, size, skipped = 0, 0, 0
    room = Room(context.workspace.limits.read)
    lines: list[str] = []
    with _files(arguments, context) as (files, spot), _limited(context):
        for file in files:
            if not fits(file.path):
                continue
            text = _text(file)
            if text is None:
                skipped += 1
                continue
            name = f"{spot.shown}/{file.path}" if file.path else spot.shown
            for number, line in enumerate(text.split("\n"), 1):
                match = pattern.search(line)
                if match is None:
                    continue
                seen += 1
                if seen < first:
                    continue
                at = match.start()
                if len(line) > _LINE or not room.could_hold(line):
                    line = context.outputs.clean(line)
                    at = found_at.start() if (found_at := pattern.search(line)) else min(at, len(line))
                part = _around(line.rstrip(), at)
                fitting = part if room.could_hold(part) else room.fitting(part)
                lines.append(f"{name}:{number}: {fitting}")
                size += len(lines[-1])
                if (
                    len(lines) > FOUND
                    or size > tool_results.SHOWN
                    or (room.fitting(fitting) != fitting and len(lines) > 1)
                ):
                    lines.pop()
                    return {"matches": lines, **tool_results.truncated(f"use offset={first + len(lines)}")}
                room.take(fitting)
    result: dict[str, Any] = {"matches": lines}
    if skipped:
        result["skipped"] = f"{skipped} files that are no text or over {SEARCHED} bytes"
    return result


@contextmanager
def _limited(context: ToolContext) -> Iterator[None]:
    seconds = context.seconds(SECONDS)
    try:
        with time_limit(seconds):
            yield
    except TimeExceeded:
        raise ToolFailure(
            "timeout", f"the search took over {seconds:.3g} s: name a smaller folder or a simpler pattern"
        ) from None


@contextmanager
def _files(arguments: dict[str, Any], context: ToolContext) -> Iterator[tuple[Iterator[_Found], MountedPath]]:
    path = arguments.get("path", "@project")
    with context.workspace.locate(path) as spot:
        status = spot.status()
        if status is not None and not stat.S_ISDIR(status.st_mode):
            with open_regular(spot):  # raises what is wrong with it
                yield iter([_Found(spot.folder, spot.name, "")]), spot
            return
    with _below(arguments, context) as below:
        yield below


@contextmanager
def _below(arguments: dict[str, Any], context: ToolContext) -> Iterator[tuple[Iterator[_Found], MountedPath]]:
    with context.workspace.open_folder(arguments.get("path", "@project")) as (folder, spot):
        ignored = None
        if spot.mount.name == PROJECT_MOUNT and not arguments.get("ignored", False):
            from uwf_git.plugin import ignored_below

            ignored = ignored_below(spot.mount.path.joinpath(*spot.parts))
        yield _Below(context, ignored).files(folder, ()), spot


class _Below:
    """A walk by descriptors that follows no links; `ignored` is git's test, None for a walk through all files."""

    def __init__(self, context: ToolContext, ignored: Callable[[str], bool] | None) -> None:
        self._context = context
        self._ignored = ignored
        self._left = _ENTRIES

    def files(self, folder: int, parts: tuple[str, ...]) -> Iterator[_Found]:
        if len(parts) > confined_paths.DEEPEST:
            return
        with os.scandir(folder) as entries:
            listed = sorted(entries, key=lambda entry: entry.name)
        for entry in listed:
            self._left -= 1
            if self._left < 0:
                raise ToolFailure("too_large", f"there are over {_ENTRIES} files: name a smaller folder")
            path = "/".join((*parts, entry.name))
            if self._skipped(entry, path):
                continue
            if entry.is_file(follow_symlinks=False):
                yield _Found(folder, entry.name, path)
            elif entry.is_dir(follow_symlinks=False):
                yield from self._inside(folder, entry.name, parts)

    def _skipped(self, entry: os.DirEntry[str], path: str) -> bool:
        if confined_paths.is_git_name(entry.name):
            return True
        workspace = self._context.workspace
        if workspace.hidden and workspace.is_hidden(entry.stat(follow_symlinks=False)):
            return True
        is_folder = entry.is_dir(follow_symlinks=False)
        return self._ignored is not None and self._ignored(path + "/" if is_folder else path)

    def _inside(self, folder: int, name: str, parts: tuple[str, ...]) -> Iterator[_Found]:
        try:
            inside = system.open_file(name, confined_paths.FOLDER, dir_fd=folder)
        except OSError:
            return  # it is gone, or may not be read
        try:
            yield from self.files(inside, (*parts, name))
        finally:
            os.close(inside)


def _text(found: _Found) -> str | None:
    try:
        with open(system.open_file(found.name, confined_paths.FILE, dir_fd=found.folder), "rb") as file:
            if os.fstat(file.fileno()).st_size > SEARCHED:
                return None
            data = file.read(SEARCHED)
    except OSError:
        return None
    return None if is_binary(data) else data.decode("utf-8", "replace")


def _pattern(arguments: dict[str, Any]) -> re.Pattern[str]:
    text = arguments["pattern"]
    try:
        flags = re.IGNORECASE if arguments.get("ignoreCase") else 0
        return _compiled(re.escape(text) if arguments.get("literal") else text, flags)
    except (re.error, RecursionError, OverflowError) as error:
        raise ToolFailure(
            "invalid_arguments",
            f"no regular expression: {tool_results.shown(str(error))}; literal: true takes it as text",
        ) from None


def _compiled(pattern: str, flags: int = 0) -> re.Pattern[str]:
    import warnings

    with warnings.catch_warnings():
        # Python warns of patterns that a later version may read differently; the terminal is the user's.
        warnings.simplefilter("ignore")
        return re.compile(pattern, flags)


def _around(line: str, position: int) -> str:
    if len(line) <= _LINE:
        return line
    begin = max(0, min(position - _LINE // 3, len(line) - _LINE))
    end = begin + _LINE
    return ("…" if begin else "") + line[begin:end] + ("…" if end < len(line) else "")


@lru_cache(maxsize=64)
def _matcher(pattern: str) -> Callable[[str], bool]:
    """Return a glob test: `*` and `?` within a name, `**` over folders, `[…]`, `{a,b}`. Without a slash it
    matches the name alone."""
    for mount in (f"{PROJECT_MOUNT}/", "./"):
        pattern = pattern.removeprefix(mount)
    try:
        compiled = _compiled(_translated(pattern), re.DOTALL)
    except (re.error, RecursionError, OverflowError):
        raise ToolFailure("invalid_arguments", f"{tool_results.shown(pattern)} is not a glob") from None
    if "/" in pattern or pattern == "**":
        return lambda path: compiled.fullmatch(path) is not None
    return lambda path: compiled.fullmatch(path.rsplit("/", 1)[-1]) is not None


def _translated(pattern: str) -> str:
    result: list[str] = []
    position = open_braces = 0
    while position < len(pattern):
        rest = pattern[position:]
        sign = rest[0]
        step = 1
        if rest.startswith("**/"):
            result.append("(?:[^/]+/)*")
            step = 3
        elif rest.startswith("**"):
            result.append(".*")
            step = 2
        elif sign == "*":
            result.append("[^/]*")
        elif sign == "?":
            result.append("[^/]")
        elif sign == "[" and (match := re.match(r"\[([!^]?)(\]?[^\]/]*)\]", rest)):
            inside = re.sub(r"([\\\[&~|])", r"\\\1", match[2])
            result.append(f"(?!/)[{'^' if match[1] else ''}{inside}]")
            step = match.end()
        elif sign == "{" and "}" in rest:
            result.append("(?:")
            open_braces += 1
        elif sign == "," and open_braces:
            result.append("|")
        elif sign == "}" and open_braces:
            result.append(")")
            open_braces -= 1
        else:
            result.append(re.escape(sign))
        position += step
    return "".join(result) + ")" * open_braces


_BELOW = {"type": "string", "minLength": 1, "description": "a folder; @project if nothing is said"}
_IGNORED = {"type": "boolean", "description": "also what git ignores"}
_FIRST = counted("the first result, counted from 1")

SEARCH = (
    Tool(
        "glob",
        "Finds files by a pattern such as *.py, src/**/*.{ts,tsx}. Links, git's own files and what git "
        "ignores are left out.",
        object_schema(
            ("pattern",),
            pattern={"type": "string", "minLength": 1, "maxLength": 500},
            path=_BELOW,
            ignored=_IGNORED,
            offset=_FIRST,
        ),
        glob,
    ),
    Tool(
        "grep",
        "Searches text files for a regular expression (Python's), line by line. Answers path:line: text.",
        object_schema(
            ("pattern",),
            pattern={"type": "string", "minLength": 1, "maxLength": 1000},
            path={**_BELOW, "description": "a folder or a file; @project if nothing is said"},
            glob={"type": "string", "minLength": 1, "maxLength": 500, "description": "only these files"},
            ignoreCase={"type": "boolean"},
            literal={"type": "boolean", "description": "the pattern is a plain text"},
            ignored=_IGNORED,
            offset=_FIRST,
        ),
        grep,
    ),
)
