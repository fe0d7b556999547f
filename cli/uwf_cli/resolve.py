"""Arguments: texts given directly, in a file or on standard input; workflows."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uwf_cli import terminal
from uwf_git.base.errors import (
    Invalid,
    NotFound,
    Usage,
    UwfError,
)
from uwf_git.base.text import nearest_file
from uwf_git.format.amounts import moment as moment
from uwf_git.format.node import parse_json

if TYPE_CHECKING:
    from uwf_cli.invocation import Invocation
    from uwf_git.api.workflows import Compiled, Finding, ResolvedWorkflow, Sources

STDIN = "-"
LARGEST = 32 << 20
_stdin: ContextVar[str | None] = ContextVar("stdin", default=None)


@contextmanager
def stdin(text: str) -> Iterator[None]:
    """Replace standard input in this thread or task."""
    before = _stdin.set(text)
    try:
        yield
    finally:
        _stdin.reset(before)


def read_stdin(what: str) -> str:
    """Read standard input. Raises Usage on a terminal, Invalid if not UTF-8."""
    if (text := _stdin.get()) is not None:
        return text
    if sys.stdin is None:
        raise Usage(f"the {what} is read from standard input, which is closed", "pipe it in")
    if terminal.is_terminal(sys.stdin):
        raise Usage(f"the {what} is read from standard input, which is a terminal", "pipe it in")
    return _text(sys.stdin.buffer.read(LARGEST + 1), what)


def read_file(name: str, what: str) -> str:
    """Read a file; `-` is standard input. Raises NotFound, Invalid."""
    if name == STDIN:
        return read_stdin(what)
    from uwf_git.format.document import open_file, unreadable

    path = Path(name)
    try:
        with open_file(path) as file:
            return _text(file.read(LARGEST + 1), f"{what} in {name}", "give a part of it")
    except FileNotFoundError:
        try:
            siblings = [entry.name for entry in path.parent.iterdir()]
        except OSError:
            siblings = []
        hint = nearest_file(path.name, siblings) or "give the path of a file, or - for standard input"
        raise NotFound(f"no file {name}", hint) from None
    except IsADirectoryError:
        raise Invalid(f"{name} is a folder, not a file", "") from None
    except OSError as error:
        raise unreadable(name, error) from None


def read_prompt(text: str | None, file: str | None, issue: str | None = None) -> str:
    """Return the prompt of -p or --prompt-file, "" without one for an issue. Raises Usage if missing, and what
    reading raises."""
    if text is not None and file is not None:
        raise Usage("-p and --prompt-file exclude each other", "give one of them")
    if text == STDIN:
        text = read_stdin("prompt")
    elif file is not None:
        text = read_file(file, "prompt")
    if text is None and issue is not None:
        return ""
    if text is None:
        raise Usage("there is no prompt", "give one with -p TEXT, --prompt-file FILE, or -p - to pipe it in")
    if not text.strip():
        raise Usage("the prompt is empty", "describe the task")
    return text


def task_for(
    invocation: Invocation, workflow: str, text: str | None, file: str | None, issue: str | None
) -> str:
    """As `read_prompt`, for a new thread of a workflow. Raises Usage with the command for a thread if one was named
    in its place."""
    if (text, file, issue) == (None, None, None) and (hint := _hint_for_thread(invocation, workflow)):
        raise Usage(f"{workflow} is a thread, not a workflow", hint)
    return read_prompt(text, file, issue)


def _hint_for_thread(invocation: Invocation, name: str) -> str:
    """Return how the thread that a text names goes on, "" if it names none, or a workflow. Raises NotFound for `@`
    without a thread."""
    from uwf_cli.invocation import find_head

    with suppress(UwfError):
        find_workflow(invocation, name)
        return ""
    with nullcontext() if name.startswith("@") else suppress(UwfError):
        head = find_head(invocation, name)
        return invocation.instance.threads.way_on(head) if head.archive else f"uwf thread run {name}"
    return ""


def json_value(text: str) -> Any:
    """Parse a JSON argument; `-` is standard input. Raises Invalid."""
    return parse_json(read_stdin("JSON") if text == STDIN else text)


def _text(
    data: bytes, what: str, hint: str = "give a part of it, or the name of a file that it is in"
) -> str:
    if len(data) > LARGEST:
        raise Invalid(f"the {what} is larger than {LARGEST >> 20} MiB", hint)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Invalid(f"the {what} is not UTF-8", "convert it: iconv -t utf-8") from None


def sources_of(invocation: Invocation) -> Sources:
    from uwf_git.api.workflows import Sources

    location = invocation.location
    return Sources(location.root, (lambda: invocation.instance) if location.git_dir.exists() else None)


def find_workflow(invocation: Invocation, text: str) -> ResolvedWorkflow:
    from uwf_git.api.workflows import find_workflow

    try:
        return find_workflow(sources_of(invocation), text)
    except NotFound as error:
        from uwf_cli.commands.texts import TEMPLATES

        if text in TEMPLATES:
            error.hint = f"it is a template: uwf init --template {text}"
        raise


def find_version(invocation: Invocation, text: str) -> ResolvedWorkflow:
    """As in the API, for NAME@VERSION too."""
    from uwf_git.api.workflows import find_version

    return find_version(invocation.instance, sources_of(invocation), text)


def compile_file(invocation: Invocation, file: Path, name: str | None = None) -> Compiled:
    """As in the API, with warnings printed."""
    from uwf_git.api.workflows import compile_file, warnings_here

    compiled = compile_file(invocation.location.root, file, name)
    more = warnings_here(invocation.location, compiled)
    compiled = compiled._replace(warnings=tuple(sorted((*compiled.warnings, *more))))
    for finding in compiled.warnings:
        hint = f" — {finding.hint}" if finding.hint else ""
        invocation.note(f"{file}:{finding.line}:{finding.column}: warning: {finding.message}{hint}")
    return compiled


def check_file(invocation: Invocation, file: Path) -> Sequence[Finding]:
    from uwf_git.api.workflows import check_file

    return check_file(invocation.location, file)
