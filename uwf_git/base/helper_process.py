"""Evaluating workflow code in a helper process, when this process cannot be limited.

A backtracking regular expression, or a text repeated a billion times, is one C call that no other thread can
interrupt. Signals and memory limits can, but belong to the whole process. A helper has both (see `timelimit`)
and can be killed. Starting one costs an interpreter once, then calls take less than a millisecond: helpers
are kept, one per evaluating thread, and end with this process.

Requests and replies are one JSON line each.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from uwf_git.base import lifetime, system
from uwf_git.base.errors import UwfError, error_of
from uwf_git.base.timelimit import MemoryExceeded, TimeExceeded, charge

_PATIENCE = 30.0
"""Seconds that a helper has for a reply. It keeps to the function's own limits; this ends one that can't."""
_KEPT = 4
"""Helpers that are kept while nobody needs them."""


def call(function: str, *arguments: Any) -> Any:
    """Call "module:attribute" in a helper. Raises its UwfError, TimeExceeded, and MemoryExceeded if the
    helper dies."""
    try:
        helper = _idle.pop()
    except IndexError:
        helper = _Helper()
    try:
        reply = helper.ask({"function": function, "arguments": arguments})
    except BaseException:
        helper.kill()
        raise
    if len(_idle) < _KEPT:
        _idle.append(helper)
    else:
        helper.kill()
    charge(reply["seconds"])
    if (error := reply.get("error")) is None:
        return reply["value"]
    raise error_of(*error)


class _Helper:
    """A helper process."""

    def __init__(self) -> None:
        package = str(Path(__file__).parent.parent.parent)
        code = (
            f"import sys; sys.path.append({package!r}); from uwf_git.base.helper_process import main; main()"
        )
        self._child = system.AskedChild([sys.executable, "-P", "-c", code])
        self.forget, self.kill = self._child.forget, self._child.kill

    def ask(self, request: Any) -> Any:
        deadline = time.monotonic() + _PATIENCE
        reply = bytearray()
        try:
            self._child.send(json.dumps(request, default=lambda _null: None).encode() + b"\n")
            while not reply.endswith(b"\n"):
                piece = self._child.receive(max(deadline - time.monotonic(), 0))
                if not piece:
                    raise MemoryExceeded
                reply += piece
        except BrokenPipeError:
            raise MemoryExceeded from None
        except TimeoutError:
            raise TimeExceeded from None
        return json.loads(reply)


_idle: list[_Helper] = []


def _end_all() -> None:
    while _idle:
        _idle.pop().kill()


def _forget_all() -> None:
    while _idle:
        _idle.pop().forget()


atexit.register(_end_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


def main() -> None:
    """Run a helper until its input ends."""
    lifetime.help_another()
    sys.stdout = sys.stderr  # a reply is all that goes to standard output
    with open(0, "rb") as requests, open(1, "wb") as replies:
        for line in requests:
            begun = time.thread_time()
            reply = _reply(json.loads(line))
            reply["seconds"] = time.thread_time() - begun
            replies.write(json.dumps(reply).encode() + b"\n")
            replies.flush()


def _reply(request: Any) -> dict[str, Any]:
    module, _, name = request["function"].partition(":")
    try:
        return {"value": getattr(import_module(module), name)(*request["arguments"])}
    except UwfError as error:
        return {"error": (type(error).__name__, error.message, error.hint)}
