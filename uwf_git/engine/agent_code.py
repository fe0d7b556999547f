"""Calling the code of an agent: whatever it raises, and if it ends the process, is that agent's failure."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from typing import NoReturn

from uwf_git.base import lifetime, log
from uwf_git.base.errors import AgentFailed, UwfError
from uwf_git.base.text import one_line


@contextlib.contextmanager
def ends_refused(agent: str) -> Iterator[None]:
    """Raise AgentFailed if the block's code, an agent's, ends this process by `sys.exit`, or in a process of our own by
    `os._exit`: in the main thread, and not in a process that it forks. In another thread that ends it as failed."""
    end, here, main = os._exit, os.getpid(), threading.current_thread()

    def refuse(status: int) -> NoReturn:
        if os.getpid() != here:
            end(status)
        if threading.current_thread() is not main:
            end(status or 1)
        raise SystemExit(status)

    try:
        if lifetime.is_own():
            os._exit = refuse
        yield
    except SystemExit as wanted:
        code = "exit 0" if wanted.code is None else wanted.code
        raise AgentFailed(
            f"agent {agent} ended the process: {f'exit {code}' if isinstance(code, int) else code}",
            "its code must return, or raise AgentFailed",
        ) from None
    finally:
        os._exit = end


@contextlib.contextmanager
def errors_caught(
    agent: str, failure: str = "failed", hint: str = "UWF_LOG=error shows where"
) -> Iterator[None]:
    """Raise AgentFailed for whatever the block's code, an agent's, raises: except for errors of ours, interrupts, and
    the end of the process, which `ends_refused` is for. Its traceback is in `printed` and in the log."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        import traceback

        kind = type(error)
        if isinstance(error, UwfError) or kind.__module__.startswith("uwf_git."):
            raise
        try:
            message = one_line(str(error), 400)
        except Exception:  # its own code again
            message = ""
        fault = f"{kind.__name__}: {message}" if message else kind.__name__
        trace = "".join(traceback.format_exception(error))
        log.error("3VXHQ8RN", "{agent} raised {fault}", agent=agent, fault=fault, traceback=trace)
        failed = AgentFailed(f"agent {agent} {failure}: {fault}", hint)
        failed.printed = "", trace
        raise failed from error
