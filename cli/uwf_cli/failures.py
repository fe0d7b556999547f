"""Errors as one line of standard error and an exit status; for several threads one line each and the worst
status."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from uwf_git.base import log
from uwf_git.base.errors import Failure, Invalid, failure_of
from uwf_git.base.thread_states import worst

if TYPE_CHECKING:
    from uwf_cli.invocation import Invocation


class Failures:
    """Errors of some of several threads, reported as they happen."""

    def __init__(self, invocation: Invocation) -> None:
        self._invocation = invocation
        self._statuses: set[int] = set()

    def add(self, error: Exception) -> None:
        """Report an error, whose message names its thread."""
        self.note(failed(self._invocation, error))

    def note(self, status: int) -> None:
        """Count the status of an error already reported."""
        self._statuses.add(status)

    def damaged(self, some: bool) -> None:
        """Count damage that the list itself reports."""
        if some:
            from uwf_git.base.errors import StoreDamaged

            self.note(StoreDamaged.exit_status)

    def missing(self) -> None:
        """Warn of missing refs that may have held more; what is here is listed."""
        if missed := self._invocation.instance.store.missed():
            first, more = min(missed), len(missed) - 1
            are = f" and {more} more are" if more else " is"
            self._invocation.warn(
                f"{first}{are} gone, though no uwf deleted that — restore it: uwf doctor --fix"
            )

    def end_list(self, has_damaged: bool) -> None:
        """End a list, which reports what is damaged itself, as `damaged`, `missing` and `end`."""
        self.damaged(has_damaged)
        self.missing()
        self.end()

    def end(self) -> None:
        """Exit with the worst status; return if there were no errors."""
        if status := worst(self._statuses):
            from click.exceptions import Exit

            raise Exit(status)


def failed(invocation: Invocation, error: Exception, arguments: Sequence[str] = ()) -> int:
    """Report an error; return its exit status. `arguments` may have a format option that was not parsed."""
    if os.environ.get("UWF_DEBUG") == "1":
        import traceback

        traceback.print_exc()
    failure = failure_without_secrets(invocation, error)
    print_error(invocation, failure, arguments)
    return invocation.exit_status(failure.code, failure.status)


def failure_without_secrets(invocation: Invocation, error: Exception) -> Failure:
    """Return an error without known secrets, and log it."""
    failure = _without_secrets(invocation, describe(error))
    if log.is_on():
        _log(error, failure)
    return failure


def _without_secrets(invocation: Invocation, failure: Failure) -> Failure:
    from uwf_git.store.instance import redactor_at

    try:
        clean = redactor_at(invocation.location).text
    except FileNotFoundError:  # the failure already says that the working folder is gone
        return failure

    def told(finding: Any) -> Any:
        return finding._replace(message=clean(finding.message)[0], hint=clean(finding.hint)[0])

    cleaned: Failure = told(failure)._replace(file=clean(failure.file)[0])
    return cleaned._replace(findings=tuple(map(told, failure.findings)))


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
    """Return the failure for any exception of a command."""
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


def print_error(
    invocation: Invocation,
    failure: Failure,
    arguments: Sequence[str] = (),
    thread: str | None = None,
    label: str = "",
) -> None:
    """Print an error as one line, as JSON if results are. With several threads, name the one it is about,
    with `label` before the text."""
    from uwf_cli import output, terminal
    from uwf_cli.invocation import with_warnings

    findings = [item._replace(hint=invocation.at_root(item.hint)) for item in failure.findings]
    failure = failure._replace(hint=invocation.at_root(failure.hint), findings=findings)
    if _format(invocation, arguments) == "json":
        value = failure_value(failure)
        if thread is not None:
            value["thread"] = thread
        text = output.as_json(with_warnings({"error": value}, invocation.warnings), compact=True)
    else:
        hint = f" — {_one_line(failure.hint)}" if failure.hint else ""
        lines = [f"uwf: {_one_line(failure.message)}{hint}"]
        rest = (finding for finding in failure.findings if not _is_told(finding, failure.message))
        lines += [_finding(item, failure.file) for item in rest]
        text = label + terminal.escape("\n".join(lines))
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def failure_value(failure: Failure) -> dict[str, Any]:
    """Return a failure as JSON without exit status."""
    value: dict[str, Any] = {"code": failure.code, "message": failure.message, "hint": failure.hint}
    if failure.findings:
        value["findings"] = [finding._asdict() for finding in failure.findings]
    if failure.throttled:
        value["throttled"] = failure.throttled._asdict()
    return value


def reported(stderr: str) -> dict[str, Any] | None:
    """Return the error in the last line of a `--format json` command's standard error, else None."""
    last = stderr.rstrip("\n").rpartition("\n")[2]
    if not last.startswith('{"error":'):
        return None
    try:
        return dict(json.loads(last)["error"])
    except (ValueError, TypeError, KeyError):
        return None


def _is_told(finding: Any, message: str) -> bool:
    path = getattr(finding, "path", None)
    place = (
        f":{finding.line}:{finding.column}"
        if path is None
        else f"{path}:{finding.line}"
        if finding.line
        else path
    )
    return finding.severity == "error" and _one_line(f"{place}: {finding.message}") in _one_line(message)


def _finding(finding: Any, file: str) -> str:
    hint = f" — {finding.hint}" if finding.hint else ""
    path = getattr(finding, "path", None)  # of a package, which has many files
    places = [path or file] if path or file else []
    places += [finding.line, finding.column] if finding.line or path is None else []
    where = "".join(f"{place}:" for place in places)
    return _one_line(f"{where} {finding.severity}: {finding.message}{hint}")


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _format(invocation: Invocation, arguments: Sequence[str]) -> str:
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
