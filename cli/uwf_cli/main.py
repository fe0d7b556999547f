"""The process: what is fast without the rest, signals, errors in one place, the exit status.

0 ok · 1 failure · 2 usage · 3 not found · 4 head moved or busy · 5 waiting for a human
6 agent failed · 7 store damaged · 8 remote · 130 interrupted · 141 nobody reads · 143 terminated
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from uwf_cli.invocation import Invocation

INTERRUPTED = 130
NOBODY_READS = 141


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP: ends like Ctrl-C, so that agents end with the command."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def main() -> None:
    """The `uwf` command. Exits."""
    arguments = sys.argv[1:]
    if arguments in (["--version"], ["-V"]):
        from uwf_git import __version__

        if sys.stdout is not None:  # it was closed
            sys.stdout.write(f"uwf {__version__}\n")
        sys.exit(0)
    sys.exit(_run(arguments))


def _run(arguments: list[str]) -> int:
    from uwf_cli.invocation import Invocation

    invocation = Invocation()
    _prepare()
    try:
        if "_UWF_COMPLETE" in os.environ:
            from uwf_cli.completers import complete

            return complete(invocation, os.environ["_UWF_COMPLETE"])
        return _invoke(invocation, arguments)
    except BrokenPipeError:
        _forget_output()
        return NOBODY_READS
    except Terminated as signal:
        _report(invocation, arguments, "interrupted", "terminated", "")
        return 128 + signal.number
    except KeyboardInterrupt:
        _report(invocation, arguments, "interrupted", "interrupted", "")
        return INTERRUPTED
    except Exception as error:
        status = _failed(invocation, arguments, error)
        try:
            sys.stdout.flush()
        except OSError:  # a full disk: said already
            _forget_output()
        return status


def _forget_output() -> None:
    """Gives up what could not be written, as Python would try again at its end and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _invoke(invocation: Invocation, arguments: list[str]) -> int:
    from click.exceptions import Exit

    from uwf_cli.tree import uwf

    try:
        with uwf.make_context("uwf", arguments, obj=invocation) as context:
            uwf.invoke(context)
    except Exit as done:
        return done.exit_code
    sys.stdout.flush()
    return 0


def _prepare() -> None:
    import signal

    if sys.stdout is None or sys.stderr is None:  # closed by who called, as in >&-
        nowhere = open(os.devnull, "w")  # noqa: SIM115
        sys.stdout, sys.stderr = sys.stdout or nowhere, sys.stderr or nowhere

    def end(number: int, _frame: Any) -> None:
        raise Terminated(number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:  # nohup ignores SIGHUP, and that has to last
            signal.signal(number, end)
    for stream in (sys.stdout, sys.stderr):
        encoding = None if stream.isatty() else "utf-8"
        stream.reconfigure(encoding=encoding, errors="backslashreplace")  # type: ignore[union-attr]


def _failed(invocation: Invocation, arguments: list[str], error: Exception) -> int:
    """Reports an exception; returns its exit status."""
    code, status, message, hint = _describe(error)
    if os.environ.get("UWF_DEBUG") == "1":
        import traceback

        traceback.print_exc()
    _report(invocation, arguments, code, message, hint, getattr(error, "findings", ()))
    return status


def _describe(error: Exception) -> tuple[str, int, str, str]:
    """An exception's code, exit status, message and hint."""
    from uwf_git.errors import UwfError

    if isinstance(error, UwfError):
        return error.code, error.exit_status, error.message, error.hint
    import click

    if isinstance(error, click.UsageError):
        hint = f"see: {error.ctx.command_path} --help" if error.ctx else ""
        if isinstance(error, click.NoSuchOption) and error.possibilities:
            hint = f"did you mean {sorted(error.possibilities)[0]}?"
            return "usage", 2, f"no such option: {error.option_name}", hint
        return "usage", 2, error.format_message().rstrip("."), hint
    if isinstance(error, click.Abort):  # Ctrl-C or the end of input at one of its questions
        return "interrupted", INTERRUPTED, "interrupted", ""
    if isinstance(error, click.ClickException):
        return "failure", 1, error.format_message(), ""
    if type(error).__module__ == "sqlite3" and "locked" in str(error):
        return "busy", 4, "the store's index is locked by another process", "repeat"
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return "failure", 1, f"{where}{error.strerror or error}", ""
    return "internal", 1, f"internal error: {type(error).__name__}: {error}", "UWF_DEBUG=1 shows where"


def _report(
    invocation: Invocation, arguments: list[str], code: str, message: str, hint: str, findings: Any = ()
) -> None:
    """Says on one line of standard error what went wrong; as JSON where results are JSON."""
    from uwf_cli import output, terminal

    if _format(invocation, arguments) == "json":
        found: dict[str, Any] = {"code": code, "message": message, "hint": hint}
        if findings:
            found["findings"] = [finding._asdict() for finding in findings]
        text = output.as_json({"error": found}, compact=True)
    else:
        lines = [f"uwf: {_one_line(message)}" + (f" — {_one_line(hint)}" if hint else "")]
        if len(findings) > 1:  # one alone is in the message
            lines += [_finding(each) for each in findings]
        text = terminal.escape("\n".join(lines))
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _finding(found: Any) -> str:
    hint = f" — {found.hint}" if found.hint else ""
    return _one_line(f"{found.line}:{found.column}: {found.severity}: {found.message}{hint}")


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _format(invocation: Invocation, arguments: list[str]) -> str:
    """The format, also where the arguments could not be parsed to their end."""
    from uwf_cli.output import FORMATS
    from uwf_git.errors import Usage

    if invocation.format_option is None:
        for argument, following in zip(arguments, [*arguments[1:], ""], strict=False):
            name, equals, value = argument.partition("=")
            if name == "--format" and (wanted := value if equals else following) in FORMATS:
                return wanted
    try:
        return invocation.format
    except Usage:
        os.environ.pop("UWF_FORMAT")
        return invocation.format


if __name__ == "__main__":
    main()
