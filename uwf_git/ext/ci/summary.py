"""The Markdown of a result: a job's summary, and the body of the comment.

Forges look for mentions, references, closing keywords, addresses and commands in the text that Markdown leaves, so
escaping Markdown isn't enough: `\\@team` still calls the team, and GitLab carries out a line that begins with
`/merge`. In code none of them does. So every text of a stranger is a code span, or a fenced block.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from uwf_git.ext.ci.result import Check, Problem, status_of
from uwf_git.plugin import NothingToVerify, Undecided, fenced, printable, shortened


def span(text: str, at_most: int = 120) -> str:
    """Return a text as a code span on one line."""
    flat = shortened(" ".join(printable(text, " ").split()), at_most) or " "
    longest = max(map(len, re.findall("`+", flat)), default=0)
    fence = "`" * (longest + 1)
    padding = " " if flat.startswith("`") or flat.endswith("`") else ""
    return f"{fence}{padding}{flat}{padding}{fence}"


def block(text: str) -> str:
    """Return a text as a fenced block, with its line breaks."""
    lines = [printable(line) for line in text.replace("\r\n", "\n").split("\n")]
    return fenced("\n".join(lines), "text")


LARGEST_SUMMARY = 900_000
"""Bytes; GitHub takes 1 MiB for each step."""

LARGEST_COMMENT = 60_000
"""Bytes; GitHub takes 65,536 characters, GitLab 1,000,000, and a variable of the environment holds 128 KiB."""

SHOWN_PROBLEMS = 30
_LEFT_OUT = "\n\n*The rest is in the job's log.*\n"
_RESULTS = {
    0: "passed",
    NothingToVerify.exit_status: "nothing to verify",
    Undecided.exit_status: "undecided",
}


def markdown(checks: Sequence[Check], at_most: int) -> str:
    """Return the page of a result, in whole sections of together at most N bytes."""
    parts = [f"### uwf: {_result(checks)}"]
    for check in checks:
        title = f"#### {check.kind.capitalize()} {span(check.name)}"
        parts.append("\n\n".join(filter(None, (title, check.page or span(check.summary, 300)))))
    text = ""
    for number, part in enumerate(parts):
        grown = f"{text}\n\n{part}" if number else part
        if len(grown.encode("utf-8", "replace")) > at_most - len(_LEFT_OUT.encode()):
            return text + _LEFT_OUT
        text = grown
    return f"{text}\n"


def listed(problems: Sequence[Problem]) -> str:
    """Return a list of problems, at most SHOWN_PROBLEMS."""
    lines = []
    for problem in problems[:SHOWN_PROBLEMS]:
        where = f" in {span(problem.place, 200)}" if problem.path else ""
        lines.append(f"- {span(problem.code)}{where}: {span(problem.message, 300)}")
    if len(problems) > SHOWN_PROBLEMS:
        lines.append(f"- and {len(problems) - SHOWN_PROBLEMS} more, in the log")
    return "\n".join(lines)


def _result(checks: Sequence[Check]) -> str:
    status = status_of(checks)
    return _RESULTS.get(status, "failed")
