"""A running code workflow: its process and protocol.

The process is a harness, `harness.mjs` or `harness.py`. Both sides send JSON lines over a socket, whose
descriptor is `UWF_CHANNEL`; the code's output is separate. Each line has a `type`. To the harness:

    {type: start, name, source, modules, input: {prompt, steps}, options: {threadId, maxRounds, …}}
                                  the first line. `source` is the file, `name` its name, `modules` what it may
                                  import. A step is {role, content, meta, timestamp}; `maxRounds` is null without
                                  a limit. The harness calls run(input, options) and asks the generator. With
                                  `script`, it runs the file as a workflow script, with options {args, spent, total}.
    {type: next}                  after a yield: asks the generator for what comes next
    {type: answer, id, value}     to a call; with `error`, a text, instead of `value` if it failed. A call without
                                  an answer when its step is over gets an error with the next `next`. A script's
                                  answers also have `spent`, the tokens of its thread so far.

and from it:

    {type: yield, value}          the generator's yield; it waits for `next`
    {type: return, value}         its return value, the last line
    {type: error, message, line}  its exception, and the line of the file, 0 if unknown; also the last line
    {type: idle, open}            of a script: it can do nothing before one of its `open` calls is answered; of answers
                                  that are known, the one that came first in the earlier run is given then
    {type: call, id, what, …}     a request to the engine, see calls.py; asynchronous; ids are unique integers

The harness is untrusted: lines are bounded and checked, calls per step are limited, and the code's own time
is limited, not counting unanswered calls. When the socket closes the harness exits.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.plugin import (
    AgentFailed,
    Descendants,
    NotFound,
    OutOfRounds,
    Untrusted,
    last_line,
    log,
    one_line,
    processes,
    signals_deferred,
    system,
)

if TYPE_CHECKING:
    from uwf_git.ext.code.calls import Calls
    from uwf_git.ext.code.confinement import ConfinedCommand

CHANNEL = "UWF_CHANNEL"
LONGEST = 16 << 20  # bytes of a line from the harness
MOST_CALLS = 1000  # in one step
MOST_ASKED = 64 << 20  # bytes of all calls of one step: they are kept while it runs
_PIECE = 1 << 16
_PIECES = 1000  # remaining output of an exited process
_POLL = 0.05
_QUIET = 0.5  # seconds without a word, after which code is taken to wait for an answer
_PATIENCE = 1.0  # seconds between the end of output and of the process
_CHANNEL, _EXIT, _ANSWERS = "channel", "exit", "answers"
_STREAMS = (_CHANNEL, "stdout", "stderr")
_SHOWN = 300  # characters of an exception's message
_TAKEN = 20  # repositories that a note names

Show = Callable[..., None]
"""Is handed what the bundle prints, in pieces, and of which `stream`."""


class Yielded(NamedTuple):
    """A yield, or the return value if `ended`."""

    value: Any
    ended: bool


class Live:
    """A running harness, started at once; must be closed. The code may use `timeout` seconds per step. Raises
    AgentFailed."""

    def __init__(self, confined: ConfinedCommand, begin: Mapping[str, Any], timeout: float) -> None:
        self._confined = confined
        self.is_script = bool(begin.get("script"))
        self._idle = -1  # answers that a script waits for, unable to do anything without one
        self._timeout = timeout
        self._open: set[int] = set()  # calls without an answer
        self._tails = {"stdout": processes.Tail(processes.KEEP), "stderr": processes.Tail(processes.KEEP)}
        self._to_send = bytearray(_line(begin))
        self._heard = bytearray()
        self._searched = 0
        self._is_closed = False
        self._process: subprocess.Popen[bytes] | None = None
        system.require("workflows that are code")
        self._descendants = Descendants(confined.env)
        self._stack = contextlib.ExitStack()
        self._stack.callback(confined.close)
        self._selector = self._stack.enter_context(selectors.DefaultSelector())
        self._channel, theirs = socket.socketpair()
        self._stack.enter_context(self._channel)
        try:
            with theirs, signals_deferred():
                self._start(theirs.fileno())
        except BaseException:
            self.close()
            raise

    def _start(self, channel: int) -> None:
        confined = self._confined
        self._descendants.env[CHANNEL] = str(channel)
        process = self._process = processes.start(
            confined.argv,
            self._descendants,
            stdin=subprocess.DEVNULL,
            cwd=confined.folder,
            pass_fds=(channel, *confined.descriptors),
        )
        for stream, name in ((process.stdout, "stdout"), (process.stderr, "stderr")):
            assert stream is not None
            self._stack.enter_context(stream)
            os.set_blocking(stream.fileno(), False)
            self._selector.register(stream, selectors.EVENT_READ, name)
        self._channel.setblocking(False)
        self._selector.register(self._channel, selectors.EVENT_READ, _CHANNEL)
        if hasattr(os, "pidfd_open"):
            descriptor = os.pidfd_open(process.pid)
            self._stack.callback(os.close, descriptor)
            self._selector.register(descriptor, selectors.EVENT_READ, _EXIT)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on how it runs, and once closed on its leftovers."""
        note, taken = self._confined.note, self._confined.taken
        repositories = (
            f"no bundle may leave a git repository behind: {'; '.join(taken[:_TAKEN])}" if taken else ""
        )
        return tuple(item for item in (note, repositories) if item)

    @property
    def is_kept(self) -> bool:
        """Whether it may be kept between steps: not if it writes user folders, whose leftovers are searched
        at its end."""
        return not self._confined.writes

    @property
    def printed(self) -> tuple[str, str]:
        out, err = (tail.end().decode("utf-8", "replace") for tail in self._tails.values())
        return out, err

    def go_on(self) -> None:
        """Ask the generator to continue after a yield."""
        for number in sorted(self._open):
            self._notify(number, {"error": "the step that asked for it is over"})
        self._to_send += _line({"type": "next"})

    def hear(self, calls: Calls | None, show: Show) -> Yielded:
        """Return what comes next, answering calls. Raises AgentFailed if it throws, ends, violates the
        protocol or times out, OutOfRounds if it calls without `calls`, and what they raise."""
        numbers: set[int] = set()
        size = 0
        with self._listening(calls):
            remaining = self._timeout
            while True:
                line, remaining = self._next_line(calls, show, remaining)
                message = _parsed(line)
                kind = message.get("type")
                log.debug(
                    "J2E7ZCAH",
                    "the code says {kind}",
                    kind=kind,
                    call=message.get("what"),
                    number=message.get("id"),
                    size=len(line),
                    seconds_left=round(remaining, 2),
                )
                if kind in ("yield", "return"):
                    return Yielded(message.get("value"), kind == "return")
                if kind == "error":
                    raise _thrown(message)
                if kind == "idle" and self.is_script and calls is not None:
                    self._idle = message.get("open", -1)
                    calls.release()
                    self._raise_if_stuck(calls)
                    continue
                number = message.get("id")
                if kind != "call" or not isinstance(number, int) or number in numbers | self._open:
                    raise _tampered()
                if calls is None:
                    raise OutOfRounds("the code did not finish")
                numbers.add(number)
                self._idle = -1
                most = MOST_CALLS * (1 + self.is_script)  # a script counts its agents itself
                if len(numbers) > most:
                    raise AgentFailed(f"the code made over {most} calls in one step", "does it ever yield?")
                size += len(line)
                if size > MOST_ASKED:
                    raise AgentFailed(
                        f"the calls of the code in one step have over {MOST_ASKED >> 20} MiB",
                        "put large texts into files",
                    )
                self._call(calls, number, message)

    def _raise_if_stuck(self, calls: Calls) -> None:
        """Raise Absent if a script waits for persons alone."""
        if calls.absence is not None and calls.pending == calls.absent == self._idle == len(self._open):
            raise calls.absence

    def _call(self, calls: Calls, number: int, message: Mapping[str, Any]) -> None:
        self._open.add(number)
        try:
            calls.put(number, message)
        except (AgentFailed, NotFound, Untrusted) as error:  # its code may catch it
            problem = f"{error.message} — {error.hint}" if error.hint else error.message
            self._notify(number, {"error": problem})

    def _next_line(self, calls: Calls | None, show: Show, left: float) -> tuple[bytes, float]:
        while (line := self._line()) is None:
            began = time.monotonic()
            is_own = calls is None or not calls.pending
            is_held = calls is not None and calls.has_known
            is_over = self._turn(_QUIET if is_held else left if is_own else None, show)
            if calls is not None and is_held and time.monotonic() - began >= _QUIET:
                calls.release()
            if is_own:
                left -= time.monotonic() - began
            for answered, answer in calls.answered() if calls is not None else ():
                self._notify(answered, answer)
            if calls is not None and self.is_script:
                self._raise_if_stuck(calls)
            if is_over and b"\n" not in self._heard:
                raise self._gone()
            if left <= 0:
                raise AgentFailed(
                    f"the code's own code took over {self._timeout:g} s",
                    "does it end? else raise bundles.<name>.timeout in config.yaml",
                )
        return line, left

    @contextlib.contextmanager
    def _listening(self, calls: Calls | None) -> Iterator[None]:
        if calls is None:
            yield
            return
        self._selector.register(calls, selectors.EVENT_READ, _ANSWERS)
        try:
            yield
        finally:
            self._selector.unregister(calls)

    def _notify(self, number: int, answer: Mapping[str, Any]) -> None:
        self._open.discard(number)
        self._idle = -1
        self._to_send += _line({"type": "answer", "id": number, **answer})

    def close(self) -> None:
        """End the process with its descendants. Idempotent."""
        process, self._process = self._process, None
        with self._stack:
            if process is not None:
                self._descendants.end(process, processes.GRACE)

    def _line(self) -> bytes | None:
        end = self._heard.find(b"\n", self._searched)
        if end < 0:
            self._searched = len(self._heard)
            return None
        line = bytes(self._heard[:end])
        del self._heard[: end + 1]
        self._searched = 0
        return line

    def _turn(self, wait: float | None, show: Show) -> bool:
        process = self._process
        assert process is not None
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._to_send else 0)
        if self._is_closed:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_PATIENCE)
            if process.poll() is None:
                raise _tampered()
        else:
            self._selector.modify(self._channel, wanted, _CHANNEL)
        if not hasattr(os, "pidfd_open"):
            wait = _POLL
        for key, events in self._selector.select(wait):
            if key.data == _CHANNEL and events & selectors.EVENT_WRITE:
                with contextlib.suppress(OSError):
                    del self._to_send[: self._channel.send(self._to_send)]
            if key.data in _STREAMS and events & selectors.EVENT_READ:
                self._read(key, show)
        if process.poll() is None:
            return False
        for key in [key for key in self._selector.get_map().values() if key.data in _STREAMS]:
            for _ in range(_PIECES):  # its children may write forever
                if not self._read(key, show):
                    break
        return True

    def _read(self, key: selectors.SelectorKey, show: Show) -> bool:
        try:
            data = os.read(key.fd, _PIECE)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._selector.unregister(key.fileobj)
            self._is_closed |= key.data == _CHANNEL
        elif key.data != _CHANNEL:
            self._tails[key.data].add(data)
            show(data, stream=key.data)
        else:
            self._heard += data
            if len(self._heard) > LONGEST:
                raise AgentFailed(
                    f"the code said more than {LONGEST >> 20} MiB at once",
                    "large files are no part of a step",
                )
        return bool(data)

    def _gone(self) -> AgentFailed:
        assert self._process is not None
        status = self._process.wait()
        errors = self.printed[1]
        number = -status if status < 0 else status - 128
        if "out of memory" in errors or "Array buffer allocation failed" in errors:
            return AgentFailed("the code ran out of memory", "does it keep all its input?")
        if 0 < number < 65:
            hint = "somebody ended it, or the machine ran out of memory: step again"
            return AgentFailed(f"the code's process was ended by signal {number}", last_line(errors) or hint)
        complaint = last_line(errors)
        return AgentFailed(
            f"the code's process exited with {status} before it yielded"
            + (f": {complaint}" if complaint else "")
        )


def _parsed(line: bytes) -> Mapping[str, Any]:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        raise _tampered() from None
    if not isinstance(message, dict):
        raise _tampered()
    return message


def _tampered() -> AgentFailed:
    return AgentFailed(
        "the code's process sent a message that its harness doesn't know",
        "does its code write to descriptors that are not its own?",
    )


def _thrown(message: Mapping[str, Any]) -> AgentFailed:
    line = message.get("line")
    where = f" in line {line}" if isinstance(line, int) and line > 0 else ""
    return AgentFailed(f"the code failed{where}: {one_line(str(message.get('message')), _SHOWN)}")


def _line(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message).encode("ascii") + b"\n"
