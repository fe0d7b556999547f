"""The process: what is fast without the rest, signals, the exit status.

0 ok · 1 failure · 2 usage · 3 not found · 4 head moved or busy · 5 waiting for a human
6 agent failed · 7 store damaged · 8 remote · 9 done, and not printed · 125 undecided · 130 interrupted
141 nobody reads · 143 terminated
"""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING, Any, TextIO

from uwf_git import lifetime

if TYPE_CHECKING:
    from collections.abc import Callable

    from uwf_cli.invocation import Invocation

INTERRUPTED = 130
NOBODY_READS = 141


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP: ends like Ctrl-C, so that agents end with the command."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


class _Output(io.FileIO):
    """Standard output. What it can't take, on a full disk, is no failure of what the command did."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except (BrokenPipeError, BlockingIOError):
            raise
        except OSError as error:
            from uwf_git.errors import OutputFailed

            raise OutputFailed(
                f"can't print the result: {error.strerror}",
                "what the command did until then is done: look with uwf thread show or uwf thread list",
            ) from None


class _Remarks(io.FileIO):
    """Standard error. What it can't take is left out: no step fails because nobody can be told how it goes."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except (BrokenPipeError, BlockingIOError):
            raise
        except OSError:
            return memoryview(data).nbytes


def main() -> None:
    """The `uwf` command. Exits."""
    lifetime.begin()
    arguments = sys.argv[1:]
    if arguments in (["--version"], ["-V"]):
        from uwf_git import __version__

        try:
            if sys.stdout is not None:  # it was closed
                sys.stdout.write(f"uwf {__version__}\n")
                sys.stdout.flush()
            sys.exit(0)
        except OSError:
            pass  # what follows says why
    lifetime.end(_run(arguments))


def _run(arguments: list[str]) -> int:
    from uwf_cli.invocation import Invocation

    invocation = Invocation()
    _prepare()
    status = _guarded(_invoke, invocation, arguments)
    after = _guarded(_afterwards, invocation, arguments)
    return status or after


def _guarded(do: Callable[[Invocation, list[str]], int], invocation: Invocation, arguments: list[str]) -> int:
    """The exit status of what is done; where that breaks off it says so."""
    from uwf_git import log

    try:
        return do(invocation, arguments)
    except BrokenPipeError:
        log.info("R059EEGS", "ends: nobody reads what it prints")
        _forget_output()
        return NOBODY_READS
    except Terminated as signal:
        return _interrupted(invocation, "terminated", 128 + signal.number, arguments)
    except KeyboardInterrupt:
        return _interrupted(invocation, "interrupted", INTERRUPTED, arguments)
    except Exception as error:
        from uwf_cli.failures import failed
        from uwf_git.errors import OutputFailed

        if isinstance(error, OutputFailed) and (ended := _ended_by(error)) is not None:
            return _interrupted(invocation, "terminated", 128 + ended.number, arguments)
        status = failed(invocation, error, arguments)
        _flush()
        return status


def _ended_by(error: BaseException) -> Terminated | None:
    """The signal that a command was ended by, which could not say so: its terminal was closed."""
    before = error.__context__
    while before is not None and not isinstance(before, Terminated):
        before = before.__context__
    return before


def _interrupted(invocation: Invocation, message: str, status: int, arguments: list[str]) -> int:
    from uwf_cli.failures import tell
    from uwf_git import log
    from uwf_git.errors import Failure

    log.warning("0E1G7YJ1", "is {how}", how=message, going_on=invocation.going_on)
    tell(invocation, Failure("interrupted", status, message, invocation.going_on), arguments)
    _flush()
    return status


def _flush() -> None:
    """Prints what is left of a command's output. Where that can't be, it was said already."""
    from uwf_git.errors import OutputFailed

    try:
        sys.stdout.flush()
    except (OSError, OutputFailed):
        _forget_output()


def _forget_output() -> None:
    """Gives up what could not be written, as Python would try again at its end and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _afterwards(invocation: Invocation, _arguments: list[str]) -> int:
    invocation.afterwards()
    return 0


def _invoke(invocation: Invocation, arguments: list[str]) -> int:
    if "_UWF_COMPLETE" in os.environ:
        from uwf_cli.completers import complete

        return complete(invocation, os.environ["_UWF_COMPLETE"])
    from click.exceptions import Exit

    from uwf_cli.tree import uwf
    from uwf_git import log

    status = 0
    try:
        with uwf.make_context("uwf", arguments, obj=invocation) as context:
            uwf.invoke(context)
    except Exit as done:
        status = done.exit_code
    else:
        sys.stdout.flush()
    log.debug("J4YVCR7E", "has done its work, with status {status}", status=status)
    return status


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
    sys.stdout, sys.stderr = _reopened(sys.stdout, _Output), _reopened(sys.stderr, _Remarks)


def _reopened(stream: TextIO, kind: type[io.FileIO]) -> TextIO:
    """A standard stream of that kind, which prints all texts there are, a line at a time on a terminal and on standard
    error."""
    is_terminal = stream.isatty()
    encoding = stream.encoding if is_terminal else "utf-8"
    raw = io.BufferedWriter(kind(stream.fileno(), "w", closefd=False))
    at_once = bool(getattr(stream, "line_buffering", True))
    return io.TextIOWrapper(raw, encoding, "backslashreplace", line_buffering=at_once)


if __name__ == "__main__":
    main()
