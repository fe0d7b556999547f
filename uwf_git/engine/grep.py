"""Searching prompts, answers and outputs of all threads with git grep. git gets each step's files by name,
not the cumulative trees, so a shared step is searched once.

A step's page shows its output as Markdown and a node has it as JSON; both are searched to find the steps. Their outputs
are searched again as plain texts, one for each field, which are the hits."""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from uwf_git.base import markdown
from uwf_git.base.errors import Invalid, StoreDamaged, Usage, UwfError
from uwf_git.base.text import harmless, shortened
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.kinds import reply_in
from uwf_git.git.program import SETTINGS, CallResult, environment, git_program
from uwf_git.git.repository import Oid
from uwf_git.sandbox.child import CommandResult, run_command
from uwf_git.store import layout
from uwf_git.store.history import Head
from uwf_git.store.index import CommitRow
from uwf_git.store.instance import Instance

SECONDS = 60.0
MOST_BYTES = 64 << 20
_AT_ONCE = 4000  # names on one command line; each has some eighty characters
_PROMPT, _ANSWER, _OUTPUT = "prompt", "answer", "output"
_WHERE = (_PROMPT, _ANSWER, _OUTPUT)
_TEXTS = "texts"
_CONTEXT = 500  # characters of a line around a match

# git's message for missing or damaged objects; its message for a bad pattern differs.
_UNREADABLE = re.compile(
    r"does not exist in|but not in|unable to (?:resolve|read|parse|unpack)|bad object|invalid object|is corrupt"
)


class StepLocation(NamedTuple):
    """A step, or a prompt with number 0, in the oldest thread that has it."""

    thread: ThreadId
    node: Hash
    number: int
    role: str | None


class Match(NamedTuple):
    """A matching line. `where` is prompt, answer or output; `line` and `column` count from 1, in an output's
    `output_lines`. The lines `before` and `after` it are cut."""

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
    `options` are git's -i, -F, -E, -P. Raises Usage for an invalid pattern, Invalid if the search takes too long or
    finds too much."""
    search = _Search(instance, pattern, [*options, *([f"-C{context}"] if context else [])])
    files = _files(instance, heads, role)
    unread: dict[str, StoreDamaged] = {}
    hits: dict[tuple[StepLocation, str, int], Match] = {}
    steps: dict[StepLocation, None] = {}
    for batch in search.matching(list(files), unread):
        lines = {(name, line): text for name, line, _, text in batch}
        for name, line, column, text in batch:
            for place, where in files[name] if column else ():
                if where != _PROMPT:
                    steps.setdefault(place)
                if where != _OUTPUT and (place, where, line) not in hits:
                    around = _around(lines, name, line, context)
                    hits[place, where, line] = Match(place, where, line, column, text, *around)
    outputs = _Outputs(instance, steps)
    matches = [hit for hit in hits.values() if hit.where == _PROMPT or not outputs.shows(hit)]
    answered = {hit.place for hit in matches if hit.where == _ANSWER}
    for hit in outputs.matches(search, context):
        if hit.place not in answered or not outputs.is_reply(hit.place):
            matches.append(hit)
    put_out = {hit.place for hit in matches if hit.where == _OUTPUT}
    # A page's heading has the verdict, which is a part of the output.
    matches = [hit for hit in matches if hit.where != _ANSWER or hit.line > 1 or hit.place not in put_out]
    matches.sort(key=lambda hit: (hit.place.number, _WHERE.index(hit.where), hit.line))
    matches.sort(key=lambda hit: hit.place.thread, reverse=True)
    lacking: dict[ThreadId, StoreDamaged] = {}
    for name, error in unread.items():
        for place, _where in files[name]:
            lacking.setdefault(place.thread, error)
    return Matches(matches, lacking)


def _around(
    lines: Mapping[tuple[str, int], str], name: str, line: int, context: int
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the lines before and after one of a file, cut."""
    before, after = (
        tuple(shortened(lines[name, number], _CONTEXT) for number in numbers if (name, number) in lines)
        for numbers in (range(line - context, line), range(line + 1, line + context + 1))
    )
    return before, after


def output_lines(value: Any, name: str = "") -> list[str]:
    """Return an output as lines: `field: text`, of values in others `field.0.inner: text`, and the further lines of a
    text as they are."""
    if isinstance(value, Mapping) and value:
        inner = [(str(key), item) for key, item in value.items()]
    elif isinstance(value, list | tuple) and value:
        inner = [(str(index), item) for index, item in enumerate(value)]
    else:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        return (f"{name}: {text}" if name else text).replace("\0", "\ufffd").split("\n")
    return [line for key, item in inner for line in output_lines(item, f"{name}.{key}" if name else key)]


class _Outputs:
    """The outputs of steps in which something matches."""

    def __init__(self, instance: Instance, steps: Iterable[StepLocation]) -> None:
        self._values: dict[StepLocation, Any] = {}
        for place in steps:
            with suppress(UwfError):  # damaged: doctor says so, and the rest can be searched
                self._values[place] = instance.store.get(instance.store.step(place.node).output).payload
        self._shown: dict[StepLocation, frozenset[str]] = {}

    def is_reply(self, place: StepLocation) -> bool:
        """Whether a step's answer is its output."""
        return reply_in(self._values.get(place)) is not None

    def shows(self, hit: Match) -> bool:
        """Whether a line of a step's page is of its output, as Markdown."""
        place = hit.place
        if place not in self._values or self.is_reply(place):
            return False
        if place not in self._shown:
            shown = harmless(markdown.output(self._values[place]))
            self._shown[place] = frozenset(shown.split("\n"))
        return hit.text in self._shown[place]

    def matches(self, search: _Search, context: int) -> Iterator[Match]:
        """Search the outputs as texts, in one file."""
        places: list[tuple[StepLocation, int]] = []
        texts: list[str] = []
        for place, value in self._values.items():
            lines = output_lines(value)
            places += [(place, len(texts))] * len(lines)
            texts += lines
        if not texts:
            return
        with tempfile.TemporaryDirectory(prefix="uwf-grep-") as folder:
            Path(folder, _TEXTS).write_bytes("\n".join(texts).encode("utf-8", "replace"))
            batch = search.texts(Path(folder))
        lines_of: dict[tuple[str, int], str] = {
            (places[line - 1][0].node, line): text for _, line, _, text in batch
        }
        for _, line, column, text in batch:
            if column:
                place, first = places[line - 1]
                around = _around(lines_of, place.node, line, context)
                yield Match(place, _OUTPUT, line - first, column, text, *around)


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


class _Search:
    """A pattern with git's options, searched for with one deadline."""

    def __init__(self, instance: Instance, pattern: str, options: Sequence[str]) -> None:
        self._instance, self._pattern = instance, pattern
        self._deadline = time.monotonic() + SECONDS
        plain = (
            f"grep.{name}" for name in ("fallbackToNoIndex=false", "patternType=default", "fullName=true")
        )
        self._settings = [*SETTINGS, *(word for setting in plain for word in ("-c", setting))]
        self._words = ["-z", "-n", "--column", "--no-color", *options, "-e", pattern]

    def matching(
        self, names: Sequence[str], unread: dict[str, StoreDamaged]
    ) -> Iterator[list[tuple[str, int, int, str]]]:
        """Yield git grep's files, lines, columns and texts, by batches of files; a line around a match has column 0.
        git stops at an unreadable file, so those go into `unread` and the search is repeated."""
        command = [f"--git-dir={self._instance.store.repository.path}", *self._settings, "grep", "-I"]
        batches = [names[begin : begin + _AT_ONCE] for begin in range(0, len(names), _AT_ONCE)]
        while batches:
            batch = batches.pop(0)
            done = self._run([*command, *self._words, *batch])
            if done.returncode not in (0, 1):
                result = _result(done)
                is_lost = _UNREADABLE.search(result.err)
                lost = _unreadable(self._instance, batch, self._deadline) if is_lost else {}
                if not lost:
                    raise _refused(self._pattern, result)
                unread.update(lost)
                if rest := [
                    name for name in batch if name not in lost
                ]:  # without a name git would search the index
                    batches.insert(0, rest)
                continue
            yield self._lines(done)

    def texts(self, folder: Path) -> list[tuple[str, int, int, str]]:
        """Search the file of texts in a folder."""
        words = [*self._settings, "grep", "--no-index", "--text", *self._words, "--", _TEXTS]
        done = self._run(["-C", str(folder), *words])
        if done.returncode not in (0, 1):
            raise _refused(self._pattern, _result(done))
        return self._lines(done)

    def _run(self, words: Sequence[str]) -> CommandResult:
        done = run_command(
            [git_program(), *words],
            env=environment(),
            timeout=max(self._deadline - time.monotonic(), 0.1),
            keep=MOST_BYTES,
        )
        if done.timed_out:
            raise _too_long()
        return done

    def _lines(self, done: CommandResult) -> list[tuple[str, int, int, str]]:
        if done.stdout_size > MOST_BYTES:
            raise Invalid(
                f"more than {MOST_BYTES >> 20} MiB match {self._pattern!r}", "give a longer pattern"
            )
        return [_parsed(line) for line in done.stdout_tail.split(b"\n") if b"\0" in line]


def _result(done: CommandResult) -> CallResult:
    return CallResult(done.returncode, b"", done.stderr_tail.decode("utf-8", "replace"))


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
