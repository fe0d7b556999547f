"""Workflow commands: annotations on the lines of a diff, in the output of a job of GitHub, Forgejo and Gitea.

A runner reads commands from every line that a job prints, so foreign text in it can set outputs or hide lines.
`guarded` switches them off around what is printed, with a random word.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable

from uwf_git.ext.ci.result import Problem
from uwf_git.plugin import one_line, printable

MOST = 50
"""Annotations that GitHub shows of a job."""

_COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}


def annotated(problems: Iterable[Problem]) -> str:
    """Return a command for each problem, errors first, at most MOST."""
    found = sorted(problems, key=lambda each: tuple(_COMMANDS).index(each.level))
    lines = [_annotation(each) for each in found[:MOST]]
    if len(found) > MOST:
        lines[-1] = f"::notice title=uwf::{len(found) - MOST + 1} more problems are in the log"
    return "".join(f"{line}\n" for line in lines)


def guarded(text: str) -> str:
    """Return a text for a log in which no runner finds a command."""
    word = secrets.token_hex(16)
    return f"::stop-commands::{word}\n{text.rstrip()}\n::{word}::\n"


def _annotation(problem: Problem) -> str:
    place = {"file": problem.path, "line": str(problem.line or 1)} if problem.path else {}
    properties = {**place, "title": f"uwf: {problem.code}"}
    named = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{_COMMANDS[problem.level]} {named}::{_data(one_line(problem.message, 1000))}"


def _data(text: str) -> str:
    # Runners also know an older form of command, anywhere in a line.
    return printable(text, " ").replace("%", "%25").replace("##[", "##\u200b[")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
