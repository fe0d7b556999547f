"""The process: fast paths, signals, exit status.

0 ok · 1 failure · 2 usage · 3 not found · 4 head moved or busy · 5 waiting for a human · 6 agent failed · 7
store damaged · 8 remote · 9 done, output failed · 10 workflow failed · 11 not running · 124 timed out · 125
undecided · 130 interrupted · 141 output closed · 143 terminated
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from uwf_cli import streams
from uwf_git.base import lifetime
from uwf_git.base.lifetime import Terminated

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from uwf_cli.invocation import Invocation

INTERRUPTED = 130
NOBODY_READS = 141


def main() -> None:
    """The `uwf` command. Exits."""
    lifetime.begin()
    arguments = sys.argv[1:]
    if arguments in (["--version"], ["-V"]):
        from uwf_git.base.version import VERSION

        try:
            if sys.stdout is not None:  # it was closed
                sys.stdout.write(f"uwf {VERSION}\n")
                sys.stdout.flush()
            sys.exit(0)
        except OSError:
            pass  # the next line has the reason
    from uwf_cli.invocation import Invocation

    _heed_signals()
    lifetime.end(_run(Invocation(), arguments))


def run(arguments: Sequence[str]) -> int:
    """Run a command in a process that goes on, and return its exit status."""
    from uwf_cli.invocation import Invocation

    return _run(Invocation(stays=True), list(arguments))


def _run(invocation: Invocation, arguments: list[str]) -> int:
    streams.prepare()
    status = _guarded(_invoke, invocation, arguments)
    after = _guarded(_afterwards, invocation, arguments)
    return status or after


def _guarded(do: Callable[[Invocation, list[str]], int], invocation: Invocation, arguments: list[str]) -> int:
    from uwf_git.base import log

    try:
        return do(invocation, arguments)
    except BrokenPipeError:
        log.info("R059EEGS", "ends: nobody reads what it prints")
        streams.forget()
        return NOBODY_READS
    except Terminated as signal:
        return _interrupted(invocation, "terminated", 128 + signal.number, arguments)
    except KeyboardInterrupt:
        return _interrupted(invocation, "interrupted", INTERRUPTED, arguments)
    except Exception as error:
        from uwf_cli.failures import failed
        from uwf_git.base.errors import OutputFailed

        if isinstance(error, OutputFailed) and (ended := _ended_by(error)) is not None:
            return _interrupted(invocation, "terminated", 128 + ended.number, arguments)
        status = failed(invocation, error, arguments)
        streams.flush()
        return status


def _ended_by(error: BaseException) -> Terminated | None:
    before = error.__context__
    while before is not None and not isinstance(before, Terminated):
        before = before.__context__
    return before


def _interrupted(invocation: Invocation, message: str, status: int, arguments: list[str]) -> int:
    from uwf_cli.failures import print_error
    from uwf_git.base import log
    from uwf_git.base.errors import Failure

    streams.end_unheard(status)
    log.warning("0E1G7YJ1", "is {how}", how=message, going_on=invocation.going_on)
    print_error(invocation, Failure("interrupted", status, message, invocation.going_on), arguments)
    streams.flush()
    return status


def _afterwards(invocation: Invocation, _arguments: list[str]) -> int:
    invocation.afterwards()
    return 0


def _invoke(invocation: Invocation, arguments: list[str]) -> int:
    if "_UWF_COMPLETE" in os.environ:
        from uwf_cli.completers import complete

        return complete(invocation, os.environ["_UWF_COMPLETE"])
    from click.exceptions import Exit

    from uwf_cli.tree import uwf
    from uwf_git.base import log

    status = 0
    try:
        with uwf.make_context("uwf", arguments, obj=invocation) as context:
            uwf.invoke(context)
    except Exit as done:
        status = done.exit_code
    except SystemExit as end:  # a command never does so
        from uwf_git.base.errors import UwfError

        raise UwfError(f"code of an extension ended the process: exit {end.code or 0}") from None
    else:
        sys.stdout.flush()
    log.debug("J4YVCR7E", "has done its work, with status {status}", status=status)
    return status


def _heed_signals() -> None:
    import signal

    from uwf_git.base import system

    def end(number: int, _frame: Any) -> None:
        raise Terminated(number)

    for number in system.END_SIGNALS:
        if signal.getsignal(number) == signal.SIG_DFL:  # nohup ignores SIGHUP, and that has to last
            signal.signal(number, end)
    lifetime.heed_signals()


if __name__ == "__main__":
    main()
