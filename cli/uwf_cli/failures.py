"""What goes wrong becomes one line of standard error and an exit status; of several threads, a line each and the
highest status."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from uwf_git.base import log
from uwf_git.base.errors import Failure, Invalid, failure_of

if TYPE_CHECKING:
    from uwf_cli.invocation import Invocation


class Failures:
    """What went wrong with some of several threads. Each is told as it happens, and none stops the others."""

    def __init__(self, invocation: Invocation) -> None:
        self._invocation = invocation
        self._worst = 0

    def add(self, error: Exception) -> None:
        """Tells an error, whose message names its thread."""
        self._worst = max(self._worst, failed(self._invocation, error))

    def note(self, status: int) -> None:
        """Counts an exit status whose error was told already."""
        self._worst = max(self._worst, status)

    def damaged(self, some: bool) -> None:
        """Counts that `some` of what was listed can't be read, which the list says itself."""
        if some:
            from uwf_git.base.errors import StoreDamaged

            self.note(StoreDamaged.exit_status)

    def missing(self) -> None:
        """Warns where refs are gone that what was listed may have been in. What is here is listed all the same."""
        if missed := self._invocation.instance.store.missed():
            first, more = min(missed), len(missed) - 1
            are = f" and {more} more are" if more else " is"
            self._invocation.warn(
                f"{first}{are} gone, though no uwf deleted that — bring it back: uwf doctor --fix"
            )

    def end(self) -> None:
        """Ends the command with the highest exit status that there was; returns where nothing went wrong."""
        if self._worst:
            from click.exceptions import Exit

            raise Exit(self._worst)


def failed(invocation: Invocation, error: Exception, arguments: Sequence[str] = ()) -> int:
    """Tells an error; returns its exit status. `arguments` are those of the command, where they may hold the
    format that nothing has parsed yet."""
    if os.environ.get("UWF_DEBUG") == "1":
        import traceback

        traceback.print_exc()
    failure = failure_without_secrets(invocation, error)
    tell(invocation, failure, arguments)
    return invocation.exit_status(failure.code, failure.status)


def failure_without_secrets(invocation: Invocation, error: Exception) -> Failure:
    """Describe an error without the secrets that are known where a command works, and log it."""
    failure = _without_secrets(invocation, describe(error))
    if log.is_on():
        _log(error, failure)
    return failure


def _without_secrets(invocation: Invocation, failure: Failure) -> Failure:
    """A failure as it may be told: an error can repeat what was typed, and what stands in a file."""
    from uwf_git.store.opened import redactor_at

    try:
        clean = redactor_at(invocation.location).text
    except FileNotFoundError:  # the working folder is gone, which is what the failure says
        return failure

    def told(found: Any) -> Any:
        return found._replace(message=clean(found.message)[0], hint=clean(found.hint)[0])

    made: Failure = told(failure)._replace(file=clean(failure.file)[0])
    return made._replace(findings=tuple(map(told, failure.findings)))


def _log(error: Exception, failure: Failure) -> None:
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    log.error(
        "APCQYZ4W",
        "fails with {code}: {message}",
        code=failure.code,
        message=failure.message,
        hint=failure.hint,
        kind=type(error).__name__,
        raised=[f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames[:-13:-1]],
    )


def describe(error: Exception) -> Failure:
    """An error in the words that people are told it in."""
    import click

    from uwf_git.base.text import closest

    if isinstance(error, click.UsageError):
        hint = f"see: {error.ctx.command_path} --help" if error.ctx else ""
        if isinstance(error, click.NoSuchOption) and error.possibilities:
            typed, known = error.option_name, sorted(error.possibilities)
            begun = [option for option in known if option.startswith(typed)]
            hint = f"did you mean {(begun or [closest(typed, known) or known[0]])[0]}?"
            return Failure("usage", 2, f"no such option: {error.option_name}", hint)
        return Failure("usage", 2, error.format_message().rstrip("."), hint)
    if isinstance(error, click.Abort):  # Ctrl-C or the end of input at one of its questions
        return Failure("interrupted", 130, "interrupted")
    if isinstance(error, click.ClickException):
        return Failure("failure", 1, error.format_message())
    if isinstance(error, FileNotFoundError) and error.filename is None and _is_folder_gone():
        return failure_of(Invalid("the current folder is gone", "cd to one that exists"))
    return failure_of(error)


def _is_folder_gone() -> bool:
    try:
        os.getcwd()  # noqa: PTH109
    except FileNotFoundError:
        return True
    return False


def tell(
    invocation: Invocation,
    failure: Failure,
    arguments: Sequence[str] = (),
    thread: str | None = None,
    label: str = "",
) -> None:
    """Says on one line of standard error what went wrong; as JSON where results are JSON. Where several threads go on
    at once, with the one that it is about, for which `label` stands before the text."""
    from uwf_cli import output, terminal

    if _format(invocation, arguments) == "json":
        found = failure_value(failure)
        if thread is not None:
            found["thread"] = thread
        text = output.as_json({"error": found}, compact=True)
    else:
        hint = f" — {_one_line(failure.hint)}" if failure.hint else ""
        lines = [f"uwf: {_one_line(failure.message)}{hint}"]
        rest = (each for each in failure.findings if not _is_told(each, failure.message))
        lines += [_finding(each, failure.file) for each in rest]
        text = label + terminal.escape("\n".join(lines))
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def failure_value(failure: Failure) -> dict[str, Any]:
    """A failure as JSON, without its exit status."""
    value: dict[str, Any] = {"code": failure.code, "message": failure.message, "hint": failure.hint}
    if failure.findings:
        value["findings"] = [finding._asdict() for finding in failure.findings]
    if failure.throttled:
        value["throttled"] = failure.throttled._asdict()
    return value


def reported(stderr: str) -> dict[str, Any] | None:
    """The error in the last line of what a command with `--format json` says on standard error; None where that line
    holds none."""
    last = stderr.rstrip("\n").rpartition("\n")[2]
    if not last.startswith('{"error":'):
        return None
    try:
        return dict(json.loads(last)["error"])
    except (ValueError, TypeError, KeyError):
        return None


def _is_told(found: Any, message: str) -> bool:
    """Whether a message names a finding already, as that of an error does with the first of its findings."""
    path = getattr(found, "path", None)
    place = (
        f":{found.line}:{found.column}" if path is None else f"{path}:{found.line}" if found.line else path
    )
    return found.severity == "error" and _one_line(f"{place}: {found.message}") in _one_line(message)


def _finding(found: Any, file: str) -> str:
    hint = f" — {found.hint}" if found.hint else ""
    path = getattr(found, "path", None)  # of a package, which has many files
    places = [path or file] if path or file else []
    places += [found.line, found.column] if found.line or path is None else []
    where = "".join(f"{each}:" for each in places)
    return _one_line(f"{where} {found.severity}: {found.message}{hint}")


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _format(invocation: Invocation, arguments: Sequence[str]) -> str:
    """The format, also where the arguments could not be parsed to their end."""
    from uwf_cli.output import FORMATS
    from uwf_git.base.errors import Usage

    if invocation.format_option is None:
        for argument, following in zip(arguments, [*arguments[1:], ""], strict=False):
            name, equals, value = argument.partition("=")
            if argument == "--json":
                return "json"
            if name == "--format" and (wanted := value if equals else following) in FORMATS:
                return wanted
    try:
        return invocation.format
    except Usage:
        os.environ.pop("UWF_FORMAT")
        return invocation.format
