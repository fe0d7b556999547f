"""Searching prompts, answers and outputs of all threads with git grep. git gets each step's files by name,
not the cumulative trees, so a shared step is searched once."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from uwf_git.base.errors import Invalid, StoreDamaged, Usage, UwfError
from uwf_git.base.text import shortened
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.git.program import SETTINGS, CallResult, environment, git_program
from uwf_git.git.repository import Oid
from uwf_git.sandbox.child import run_command
from uwf_git.store import layout
from uwf_git.store.history import Head
from uwf_git.store.index import CommitRow
from uwf_git.store.instance import Instance

SECONDS = 60.0
MOST_BYTES = 64 << 20
_AT_ONCE = 4000  # names on one command line; each has some eighty characters
_PROMPT, _ANSWER, _OUTPUT = "prompt", "answer", "output"
_WHERE = (_PROMPT, _ANSWER, _OUTPUT)
_CONTEXT = 500  # characters of a line around a match

# git's message for missing or damaged objects; its message for a bad pattern differs.
_UNREADABLE = re.compile(
    r"does not exist in|but not in|unable to (?:resolve|read|parse|unpack)|bad object|invalid object|is corrupt"
)

# A node's file is JSON with an indentation of two; texts are in its payload.
_NOT_PAYLOAD = re.compile(r'(?:[{}]|  "(?:type|timestamp|payload)": ?)')


class StepLocation(NamedTuple):
    """A step, or a prompt with number 0, in the oldest thread that has it."""

    thread: ThreadId
    node: Hash
    number: int
    role: str | None


class Match(NamedTuple):
    """A matching line. `where` is prompt, answer or output; `line` and `column` count from 1. The lines `before` and
    `after` it are cut."""

    place: StepLocation
    where: str
    line: int
    column: int
    text: str
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


class Matches(NamedTuple):
    hits: list[Match]
    unread: dict[ThreadId, StoreDamaged]


def grep(
    instance: Instance,
    heads: Iterable[Head],
    pattern: str,
    options: Sequence[str] = (),
    role: str | None = None,
    context: int = 0,
) -> Matches:
    """Return the lines that match a pattern, by thread (newest first), then by step, with `context` lines around each.
    `options` are git's -i, -F, -E, -P. An output is searched only if the step's answer doesn't match. Raises Usage for
    an invalid pattern, Invalid if the search takes too long or finds too much."""
    files = _files(instance, heads, role)
    deadline = time.monotonic() + SECONDS
    hits: dict[tuple[StepLocation, str, int], Match] = {}
    unread: dict[str, StoreDamaged] = {}
    options = [*options, *([f"-C{context}"] if context else [])]
    for batch in _matching(instance, list(files), pattern, options, deadline, unread):
        lines = {(name, line): text for name, line, _, text in batch}
        for name, line, column, text in batch:
            for place, where in files[name] if column else ():
                is_node = where == _OUTPUT
                shown, at = _payload(text, column) if is_node else (text, column)
                if at > 0 and (place, where, line) not in hits:
                    before, after = (
                        _around(lines, name, numbers, is_node)
                        for numbers in (range(line - context, line), range(line + 1, line + context + 1))
                    )
                    hits[place, where, line] = Match(place, where, line, at, shown, before, after)
    answered = {place for place, where, _ in hits if where == _ANSWER}
    matches = [hit for hit in hits.values() if hit.where != _OUTPUT or hit.place not in answered]
    matches.sort(key=lambda hit: (hit.place.number, _WHERE.index(hit.where), hit.line))
    matches.sort(key=lambda hit: hit.place.thread, reverse=True)
    lacking: dict[ThreadId, StoreDamaged] = {}
    for name, error in unread.items():
        for place, _where in files[name]:
            lacking.setdefault(place.thread, error)
    return Matches(matches, lacking)


def _around(
    lines: Mapping[tuple[str, int], str], name: str, numbers: Iterable[int], is_node: bool
) -> tuple[str, ...]:
    texts = [lines[name, number] for number in numbers if (name, number) in lines]
    kept = [_payload(text, len(text)) if is_node else (text, 1) for text in texts]
    return tuple(shortened(text, _CONTEXT) for text, at in kept if at > 0)


def _payload(text: str, column: int) -> tuple[str, int]:
    """Return the payload part of a node's line, and the column in it, below 1 if outside."""
    outside = _NOT_PAYLOAD.match(text)
    begin = outside.end() if outside else len(text) - len(text.lstrip())
    if outside and '"payload"' not in outside.group():
        return text, 0
    return text[begin:], column - begin


def _files(
    instance: Instance, heads: Iterable[Head], role: str | None
) -> dict[str, list[tuple[StepLocation, str]]]:
    files: dict[str, list[tuple[StepLocation, str]]] = {}
    seen: set[Hash] = set()
    for head in sorted(heads, key=lambda head: head.thread):
        for row in _unseen(instance, head, seen):
            place = StepLocation(head.thread, row.node, row.number, row.role if row.kind == "step" else None)
            if role is not None and place.role != role:
                continue
            if row.kind == "start":
                files.setdefault(f"{row.oid.hex()}:start/README.md", []).append((place, _PROMPT))
                continue
            folder = "/".join(layout.step_folder(row.number, row.role or ""))
            files.setdefault(f"{row.oid.hex()}:{folder}/README.md", []).append((place, _ANSWER))
            try:
                output = instance.store.blob_of(instance.store.step(row.node).output)
            except UwfError:  # damaged: doctor says so, and the rest can be searched
                continue
            files.setdefault(str(output), []).append((place, _OUTPUT))
    return files


def _unseen(instance: Instance, head: Head, seen: set[Hash]) -> Iterator[CommitRow]:
    row: CommitRow | None = head.row
    while row is not None and row.kind in ("step", "start") and row.node not in seen:
        seen.add(row.node)
        yield row
        row = instance.store.index.commit(row.parent) if row.parent else None


def _matching(
    instance: Instance,
    names: Sequence[str],
    pattern: str,
    options: Sequence[str],
    deadline: float,
    unread: dict[str, StoreDamaged],
) -> Iterator[list[tuple[str, int, int, str]]]:
    """Yield git grep's files, lines, columns and texts, by batches of files; a line around a match has column 0. git
    stops at an unreadable file, so those go into `unread` and the search is repeated."""
    repository = [git_program(), f"--git-dir={instance.store.repository.path}", *SETTINGS]
    plain = [
        "-c",
        "grep.fallbackToNoIndex=false",
        "-c",
        "grep.patternType=default",
        "-c",
        "grep.fullName=true",
    ]
    words = ["grep", "-I", "-z", "-n", "--column", "--no-color", *options, "-e", pattern]
    batches = [names[begin : begin + _AT_ONCE] for begin in range(0, len(names), _AT_ONCE)]
    while batches:
        batch = batches.pop(0)
        done = run_command(
            [*repository, *plain, *words, *batch],
            env=environment(),
            timeout=max(deadline - time.monotonic(), 0.1),
            keep=MOST_BYTES,
        )
        if done.timed_out:
            raise _too_long()
        if done.returncode not in (0, 1):
            result = CallResult(done.returncode, b"", done.stderr_tail.decode("utf-8", "replace"))
            lost = _unreadable(instance, batch, deadline) if _UNREADABLE.search(result.err) else {}
            if not lost:
                raise _refused(pattern, result)
            unread.update(lost)
            if rest := [
                name for name in batch if name not in lost
            ]:  # without a name git would search the index
                batches.insert(0, rest)
            continue
        if done.stdout_size > MOST_BYTES:
            raise Invalid(f"more than {MOST_BYTES >> 20} MiB match {pattern!r}", "give a longer pattern")
        yield [_parsed(line) for line in done.stdout_tail.split(b"\n") if b"\0" in line]


def _parsed(printed: bytes) -> tuple[str, int, int, str]:
    name, line, *column, text = printed.split(b"\0", 3)
    at = len(text[: int(column[0]) - 1].decode("utf-8", "replace")) + 1 if column else 0  # git counts bytes
    return name.decode(), int(line), at, text.decode("utf-8", "replace").rstrip("\r")


def _unreadable(instance: Instance, names: Iterable[str], deadline: float) -> dict[str, StoreDamaged]:
    repository, lost = instance.store.repository, dict[str, StoreDamaged]()
    for name in names:
        if time.monotonic() > deadline:
            raise _too_long()
        oid, colon, path = name.partition(":")
        try:
            object_ = Oid(hex=oid)
            blob = repository.file(repository.root(object_), path) if colon else object_
            if blob is None:
                raise StoreDamaged(f"commit {oid} has no {path}", "see: uwf doctor")
            repository.blob(blob)
        except StoreDamaged as error:
            lost[name] = error
    return lost


def _too_long() -> Invalid:
    return Invalid(f"the search took more than {SECONDS:.0f} seconds", "narrow it down with filters")


def _refused(pattern: str, done: CallResult) -> UwfError:
    reason = done.reason
    if _UNREADABLE.search(reason):
        return Invalid(f"git cannot read what is to be searched: {reason}", "see: uwf doctor")
    return Usage(f"git cannot search for {pattern!r}: {reason}", "-F searches for the text as it is")
