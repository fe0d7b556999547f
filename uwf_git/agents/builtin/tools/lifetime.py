"""Knowing that a sandbox is gone, with every process in it.

bubblewrap is over when the command is; what that had started is killed a moment later, with the first
process of its namespace. That process is waited for here: the kernel reports its end when all the others
have ended. The sandbox does not begin before it is watched.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import threading
from types import TracebackType

from uwf_git.agents.builtin.tools.failure import ToolFailure

_LONGEST = 30.0  # seconds that a killed process takes to end, on a slow disk or network


class Lifetime:
    """A context manager around running one sandbox. Leaving it ends the sandbox and waits for its end;
    raises ToolFailure then, failed, where it doesn't end."""

    def __init__(self) -> None:
        self._told, self._info = os.pipe()
        self._block, self._go = os.pipe()
        self._process: int | None = None
        self._thread = threading.Thread(target=self._watch, daemon=True)

    @property
    def arguments(self) -> list[str]:
        """For bubblewrap."""
        return ["--info-fd", str(self._info), "--block-fd", str(self._block)]

    @property
    def descriptors(self) -> tuple[int, ...]:
        """To be handed to bubblewrap."""
        return (self._info, self._block)

    def __enter__(self) -> Lifetime:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._info)
        self._thread.join()
        for descriptor in (self._told, self._block, self._go):
            os.close(descriptor)
        if self._process is None:
            return  # it never began
        try:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(self._process, signal.SIGKILL)
            poll = select.poll()
            poll.register(self._process, select.POLLIN)
            if not poll.poll(_LONGEST * 1000):
                raise ToolFailure("failed", "what the command started does not end")
        finally:
            os.close(self._process)

    def _watch(self) -> None:
        """Reads which process is the sandbox's first, gets hold of it, and lets it begin."""
        said = b""
        while data := os.read(self._told, 4096):
            said += data
            with contextlib.suppress(ValueError, KeyError, OSError):
                self._process = os.pidfd_open(int(json.loads(said)["child-pid"]))
                os.write(self._go, b"x")
                return
