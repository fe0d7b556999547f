"""Tasks for many threads in a JSON Lines file. A line is the prompt as a string, or an object:

    {"prompt": TEXT, "budget": {"maxCost": 2.5}, "persona": NAME, "maxRounds": N, "cwd": DIR}

Everything but `prompt` is optional and defaults to the command's options.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from uwf_cli import resolve
from uwf_git.base.errors import Invalid, UwfError
from uwf_git.base.text import nearest
from uwf_git.format.amounts import parse_budget
from uwf_git.format.fields import kind_of
from uwf_git.format.node import parse_json
from uwf_git.format.types import MOST_ROUNDS

_KEYS = ("prompt", "budget", "persona", "maxRounds", "cwd")
_EXAMPLE = '"TEXT", or {"prompt": "TEXT", "budget": {"maxCost": 2.5}}'


class TaskLine(NamedTuple):
    """A task. `where` names its line: `tasks.jsonl:3`."""

    where: str
    prompt: str
    budget: Mapping[str, float]
    persona: str | None
    max_rounds: int | None
    cwd: Path | None


def read_tasks(file: str) -> list[TaskLine]:
    """Read a file's tasks; `-` is standard input. Raises Invalid with the first bad line, and as `read_file`."""
    tasks = list(_tasks(file))
    if not tasks:
        raise Invalid(f"{_name(file)} has no tasks", f"write one a line: {_EXAMPLE}")
    return tasks


@contextlib.contextmanager
def naming(where: str) -> Iterator[None]:
    try:
        yield
    except UwfError as error:
        error.message = f"{where}: {error.message}"
        raise


def _tasks(file: str) -> Iterator[TaskLine]:
    # Not splitlines: JSON strings may hold U+2028 and the like as they are.
    for number, text in enumerate(resolve.read_file(file, "tasks").split("\n"), 1):
        if not text.strip():
            continue
        where = f"{_name(file)}:{number}"
        with naming(where):
            task = _task(where, parse_json(text))
        yield task


def _name(file: str) -> str:
    return "standard input" if file == resolve.STDIN else file


def _task(where: str, value: Any) -> TaskLine:
    fields = {"prompt": value} if isinstance(value, str) else value
    if not isinstance(fields, dict):
        raise Invalid(f"a task is text or an object, not {kind_of(value)}", _EXAMPLE)
    for key in fields:
        if key not in _KEYS:
            raise Invalid(f'a task has no key "{key}"', nearest(key, _KEYS) or f"known: {', '.join(_KEYS)}")
    prompt = _text(fields, "prompt")
    if prompt is None:
        raise Invalid("the task has no prompt", _EXAMPLE)
    budget, problems = parse_budget(fields.get("budget"))
    for _, message, hint in problems:
        raise Invalid(message, hint)
    rounds = fields.get("maxRounds")
    if rounds is not None and (type(rounds) is not int or not 1 <= rounds <= MOST_ROUNDS):
        raise Invalid(f"maxRounds is not a whole number from 1 to {MOST_ROUNDS}", 'as in "maxRounds": 20')
    cwd = _text(fields, "cwd")
    return TaskLine(
        where, prompt, budget, _text(fields, "persona"), rounds, None if cwd is None else Path(cwd)
    )


def _text(given: Mapping[str, Any], key: str) -> str | None:
    value = given.get(key)
    if value is None:
        return None
    if not isinstance(value, str):
        raise Invalid(f"{key} must be text, not {kind_of(value)}", _EXAMPLE)
    if not value.strip():
        raise Invalid(f"{key} is empty", "describe the task" if key == "prompt" else "leave it out")
    return value
