"""The process: what is fast without the rest, signals, the exit status.

0 ok · 1 failure · 2 usage · 3 not found · 4 head moved or busy · 5 waiting for a human
6 agent failed · 7 store damaged · 8 remote · 130 interrupted · 141 nobody reads · 143 terminated
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

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

        status = failed(invocation, error, arguments)
        try:
            sys.stdout.flush()
        except OSError:  # a full disk: said already
            _forget_output()
        return status


def _interrupted(invocation: Invocation, message: str, status: int, arguments: list[str]) -> int:
    from uwf_cli.failures import Failure, tell
    from uwf_git import log

    log.warning("0E1G7YJ1", "is {how}", how=message, going_on=invocation.going_on)
    tell(invocation, Failure("interrupted", status, message, invocation.going_on), arguments)
    return status


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
    for stream in (sys.stdout, sys.stderr):
        encoding = None if stream.isatty() else "utf-8"
        stream.reconfigure(encoding=encoding, errors="backslashreplace")  # type: ignore[union-attr]


if __name__ == "__main__":
    main()
