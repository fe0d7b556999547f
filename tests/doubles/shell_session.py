"""Runs the shell examples of a Markdown document and compares what they print.

A fenced block marked `console` is a session: `$ ` begins a command, `> ` carries it on, every other line
is what is expected next, on standard output or standard error. All blocks of a document run in one shell,
in order. A fenced block with `file=NAME` after its language is written to that file first. One with
`needs=NAME,NAME` is left out if one of these programs is missing; then the test of the document is skipped at its end.

    …            anything within the line
    ...          alone on a line: any lines, or none
    an id        a thread id, node hash or commit id stands for whatever id was printed there the first
                 time; from then on for that very one, in commands too, where its beginning is enough
    a time       2025-01-31T12:00:00Z stands for any time; now and 9s ago for any age, blanks after it included
    a short id   the last six characters of a thread's id stand for those of the real one, in commands too

A command that exits with another status than 0 has to say so: `$ echo $?` must follow it.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, NamedTuple

import pyte
from programs import need, path_of

_CROCKFORD = "[0-9A-HJKMNP-TV-Z]"
# The letters of hexadecimal are all in Crockford's alphabet too, but ours is upper case, git's lower.
_KINDS = {
    "thread": re.compile(rf"\b0{_CROCKFORD}{{25}}\b"),
    "node": re.compile(rf"\b(?=[0-9]*[A-Z])[0-9A-F]{_CROCKFORD}{{12}}\b"),
    "commit": re.compile(r"\b(?=[a-f]*[0-9])(?=[0-9]*[a-f])(?:[0-9a-f]{40}|[0-9a-f]{10}|[0-9a-f]{7})\b"),
    "time": re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"),
    "age": re.compile(r"\b(?:now|\d+[smhd] ago)\b *"),
    "short": re.compile(rf"\b{_CROCKFORD}{{6}}\b"),
}
_TOKEN = re.compile("|".join(f"(?P<{kind}>{pattern.pattern})" for kind, pattern in _KINDS.items()))
_ACTUAL = {
    "thread": rf"0{_CROCKFORD}{{25}}",
    "node": rf"[0-9A-F]{_CROCKFORD}{{12}}",
    "time": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ",
    "age": r"(?:now|\d+[smhd] ago)\b *",
}
_BEGINNING = re.compile(rf"\b{_CROCKFORD}{{6,26}}\b")
_FENCE = re.compile(r"^(?P<fence>`{3,})(?P<language>\w*) *(?P<rest>.*)$")
_MARK = "\x1e"
_COLUMNS = 120
_ENDLESS = 4000, 2000  # columns and lines of a screen that wraps and scrolls nothing


class Example(NamedTuple):
    """A command with what it must print, and the line of the document it stands in."""

    line: int
    command: str
    expected: tuple[str, ...]
    needs: tuple[str, ...] = ()


class File(NamedTuple):
    """A file that a document shows."""

    line: int
    name: str
    text: str


class Mismatch(AssertionError):
    """A document says one thing and the command another."""


def parse(document: str) -> list[Example | File]:
    """The examples and files of a document, in order."""
    found: list[Example | File] = []
    for line, language, rest, body in _blocks(document):
        if language == "console":
            needs = tuple(rest.removeprefix("needs=").split(",")) if rest else ()
            found += [example._replace(needs=needs) for example in _examples(line, body)]
        elif rest.startswith("file="):
            found.append(File(line, rest.removeprefix("file="), "".join(each + "\n" for each in body)))
    return found


def _blocks(document: str) -> Iterator[tuple[int, str, str, list[str]]]:
    """Fenced blocks: the line their content begins in, language, rest of the first line, content."""
    lines = iter(enumerate(document.splitlines(), 1))
    for number, line in lines:
        if opened := _FENCE.match(line):
            body: list[str] = []
            for _, inner in lines:
                if inner.startswith(opened["fence"]) and not inner.strip("` "):
                    break
                body.append(inner)
            yield number + 1, opened["language"], opened["rest"].strip(), body


def _examples(first: int, body: list[str]) -> list[Example]:
    found: list[Example] = []
    expected: list[str] = []
    for number, line in enumerate(body, first):
        if line.startswith("$ "):
            expected = []
            found.append(Example(number, line[2:], ()))
        elif not found:
            raise Mismatch(f"line {number}: a console block must begin with a command")
        elif line.startswith("> ") and not expected:
            found[-1] = found[-1]._replace(command=f"{found[-1].command}\n{line[2:]}")
        else:
            expected.append(line)
            found[-1] = found[-1]._replace(expected=tuple(expected))
    return found


class Session:
    """One shell, and which real id each id of the document stands for. On a `terminal` it shows what a person sees
    there; otherwise what a pipe gets."""

    def __init__(self, folder: Path, environment: Mapping[str, str], terminal: bool = False) -> None:
        self._ids: dict[str, str] = {}
        self._missing: dict[str, None] = {}
        self._folder = folder
        self._terminal = terminal
        outer, inner = pty.openpty() if terminal else os.pipe()
        if terminal:
            environment = {**environment, "TERM": "xterm-256color", "PAGER": "cat"}
            fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 50, _COLUMNS, 0, 0))
        self._shell = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            stdin=subprocess.PIPE,
            stdout=inner,
            stderr=inner,
            cwd=folder,
            env=dict(environment),
            encoding="utf-8",
        )
        os.close(inner)
        self._printed: IO[str] = os.fdopen(outer, encoding="utf-8", errors="backslashreplace", newline="")

    def close(self) -> None:
        """Ends the shell."""
        assert self._shell.stdin
        self._shell.stdin.close()
        self._shell.wait(timeout=10)
        self._printed.close()

    def play(self, document: str) -> int:
        """Runs a whole document; returns how many commands it had. Raises Mismatch."""
        steps = [step for step in parse(document) if isinstance(step, File) or self._has(step.needs)]
        commands = 0
        for step, following in zip(steps, [*steps, None][1:], strict=True):
            if isinstance(step, File):
                (self._folder / step.name).parent.mkdir(parents=True, exist_ok=True)
                (self._folder / step.name).write_text(step.text, encoding="utf-8")
                continue
            commands += 1
            printed, status = self.run(self.translate(step.command))
            self.compare(step, printed)
            said = isinstance(following, Example) and following.command == "echo $?"
            if status and not said:
                raise Mismatch(
                    f"line {step.line}: $ {step.command}\nexited with {status}, which the document "
                    f"doesn't say; it printed:\n{printed}"
                )
        return commands

    def _has(self, needs: Iterable[str]) -> bool:
        missing = [name for name in needs if path_of(name) is None]
        self._missing.update(dict.fromkeys(missing))
        return not missing

    def need_all(self) -> None:
        """Skip the test if an example was left out; fail it in CI."""
        need(*self._missing)

    def run(self, command: str) -> tuple[str, int]:
        """What a command prints, and its exit status."""
        assert self._shell.stdin
        mark = f"printf '\\n{_MARK}%s\\n' $__status"
        self._shell.stdin.write(
            f"{{ (exit ${{__status:-0}})\n{command}\n}} </dev/null; __status=$?; {mark}\n"
        )
        self._shell.stdin.flush()
        lines: list[str] = []
        for line in self._printed:
            if line.startswith(_MARK):
                printed = "".join(lines)
                return (_shown(printed) if self._terminal else printed).removesuffix("\n"), int(line[1:])
            lines.append(line)
        raise Mismatch(f"the shell ended in: {command}\n{''.join(lines)}")

    def translate(self, command: str) -> str:
        """A command with the document's ids replaced by those they stand for."""

        def real(found: re.Match[str]) -> str:
            matching = {name for name in self._ids if name.startswith(found.group())}
            return self._ids[matching.pop()] if len(matching) == 1 else self._end_of(found.group())

        for name in self._ids:
            if name.islower():  # a commit: no part of another word
                command = re.sub(rf"\b{name}\b", self._ids[name], command)
        return _BEGINNING.sub(real, command)

    def _end_of(self, short: str) -> str:
        """The end of the real id whose name in the document ends so, if it has one."""
        ids = [real for name, real in self._ids.items() if len(name) == 26 and name.endswith(short)]
        return ids[0][-len(short) :] if len(ids) == 1 else short

    def compare(self, example: Example, printed: str) -> None:
        """Raises Mismatch where the output isn't what the document says."""
        expected = "\n".join(example.expected)
        actual = "\n".join(line.rstrip() for line in printed.rstrip("\n").split("\n"))
        new: dict[str, str] = {}
        pattern = "".join(self._pattern(line, new) for line in example.expected)
        found = re.fullmatch(pattern, actual + "\n" if actual else "")
        if not found:
            raise Mismatch(
                f"line {example.line}: $ {example.command}\n"
                f"--- the document says\n{expected}\n--- it printed\n{actual}"
            )
        for group, name in new.items():
            self._ids[name] = found[group]

    def _pattern(self, line: str, new: dict[str, str]) -> str:
        """A regular expression for a line of expected output; ids met for the first time become groups."""
        if line.strip() == "...":
            return r"(?:.*\n)*?"
        parts: list[str] = []
        end = 0
        for token in _TOKEN.finditer(line):
            parts += [_literal(line[end : token.start()]), self._id(token, new)]
            end = token.end()
        parts.append(_literal(line[end:].rstrip()))
        return "".join(parts) + r"\n"

    def _id(self, token: re.Match[str], new: dict[str, str]) -> str:
        name, kind = token.group(), str(token.lastgroup)
        if kind in ("time", "age"):
            return _ACTUAL[kind]
        if kind == "short":
            return re.escape(self._end_of(name))
        if name in self._ids:
            return re.escape(self._ids[name])
        for group, known in new.items():
            if known == name:
                return f"(?P={group})"
        group = f"id{len(new)}"
        new[group] = name
        return f"(?P<{group}>{_ACTUAL.get(kind, f'[0-9a-f]{{{len(name)}}}')})"


def _shown(printed: str) -> str:
    """What a terminal shows after these bytes, without colours."""
    screen = pyte.Screen(*_ENDLESS)
    pyte.Stream(screen).feed(printed)
    lines = [
        "".join(
            screen.buffer[row][column].data for column in range(max(screen.buffer[row], default=-1) + 1)
        ).rstrip()
        for row in range(screen.cursor.y + 1)
    ]
    return "\n".join(lines) + "\n"


def _literal(text: str) -> str:
    return ".*?".join(re.escape(part) for part in text.split("…"))
