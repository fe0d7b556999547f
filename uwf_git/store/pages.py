"""The pages people read in a thread: each a pure function of nodes, so `verify` can make it again."""

from __future__ import annotations

import json
from typing import Any

from uwf_git.text import fenced, one_line
from uwf_git.values.kinds import Attempt, parse_detail
from uwf_git.values.types import is_kind


def thread_readme(prompt: str, workflow_name: str) -> bytes:
    """The thread's front page: the prompt's first line, the workflow, how to read the folders."""
    first = next((line.strip("# \t") for line in prompt.splitlines() if line.strip("# \t")), "A thread")
    return (
        f"# {one_line(first, 100)}\n\n"
        f"A run of the workflow [{_plain(workflow_name)}](workflow/README.md). One commit is one step.\n\n"
        "| where | what |\n|---|---|\n"
        "| [start](start/README.md) | the task as it was given |\n"
        "| [workflow](workflow/README.md) | who can go next, and when |\n"
        "| steps | one folder a step, with the agent's answer as its page |\n"
        "| nodes | in each folder: the same as data, found by content hash |\n"
    ).encode()


def start_readme(prompt: str) -> bytes:
    """The task, verbatim."""
    return prompt.encode("utf-8")


def answer_of(output: Any, detail_type: str, detail: Any) -> str:
    """What an agent said, verbatim; where its detail holds no text, the output as JSON."""
    if is_kind(detail_type, "detail"):
        return parse_detail(detail).answer
    if is_kind(detail_type, "text") and isinstance(detail, str):
        return detail
    return f"```json\n{json.dumps(output, ensure_ascii=False, indent=2, sort_keys=True)}\n```\n"


def attempt_readme(attempt: Attempt, answer: str | None) -> bytes:
    """A failed attempt: what went wrong, then what the agent said, verbatim."""
    parts = [f"**{_plain(attempt.role)}** by {_plain(attempt.agent)} failed: {_plain(attempt.error)}\n"]
    if answer:
        parts.append(answer)
    for name, text in (("stdout", attempt.stdout), ("stderr", attempt.stderr)):
        if text:
            parts.append(f"The end of {name}:\n\n{fenced(text, 'text')}\n")
    return "\n".join(parts).encode("utf-8")


def _plain(text: str) -> str:
    """Text that no Markdown renderer takes for markup."""
    flat = one_line(text, 300)
    return "".join("\\" + c if c in "\\`*_[]<>|#" else c for c in flat)
