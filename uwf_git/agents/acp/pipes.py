"""What agents complain about, in one line each that is fit for a terminal.

The three pipes of an agent's process, and its exit, in an event loop.

Messages over pipes: one JSON object a line.

Nobody vouches for what comes: a line may be endless, no JSON, or JSON of the wrong shape. A few lines that
are no frames, such as a banner, are put up with and remembered; more of them, or a frame beyond the limit,
end the connection with a `fault`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import time
from collections.abc import Callable, Mapping
from typing import Any

_MOST = 300


def printable(text: str) -> str:
    """One line without what steers a terminal."""
    line = " ".join(text.split())
    return "".join(each if each.isprintable() else "�" for each in line[:_MOST])


def telling_line(stderr: str, of_a_dead_one: bool = False) -> str:
    """The last line of an error output that speaks of an error, or, of an agent that has ended, the last one; ""
    where there is none. What an agent that goes on prints besides is its log."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    telling = [line for line in lines if "error" in line.lower()]
    return printable((telling or (lines if of_a_dead_one else []) or [""])[-1])


def ending(code: int) -> str:
    """How a process with that exit status has ended."""
    return f"was ended by signal {-code}" if code < 0 else f"exited with {code}"


def reason(error: Any) -> str:
    """A JSON-RPC error in one line, with what stands in its data."""
    data = error.data
    if isinstance(data, Mapping):
        data = next((data[key] for key in ("details", "message", "error", "uri") if data.get(key)), None)
    said = str(error) if not isinstance(data, str) or data in str(error) else f"{error}: {data}"
    return printable(said) or f"error {error.code}"


def way(method: Mapping[str, Any]) -> str:
    """A way to log in: its id, and what it is."""
    about = method.get("description") or method.get("name") or ""
    way = f"{method.get('id')}"
    return printable(f"{way} ({printable(str(about))[:100]})" if about else way)


_KEPT = 64 * 1024  # bytes of stderr
_POLL = 0.05


class Pipes:
    """`reader` is the agent's output; `over` is done when nothing more can be said to the agent, because it
    has exited or closed its input."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._stderr = _Tail()
        self._transports: list[asyncio.BaseTransport] = []

    async def connect(self) -> None:
        """Takes the pipes into the running loop."""
        loop, process = asyncio.get_running_loop(), self._process
        self.reader = asyncio.StreamReader(limit=1 << 20)
        self._broken: asyncio.Future[None] = loop.create_future()
        reading = asyncio.StreamReaderProtocol(self.reader)
        out, _ = await loop.connect_read_pipe(lambda: reading, process.stdout)
        err, _ = await loop.connect_read_pipe(lambda: self._stderr, process.stderr)
        self._input, _ = await loop.connect_write_pipe(lambda: _Writing(self._broken), process.stdin)
        self._transports = [out, err, self._input]
        self.over = loop.create_task(self._wait())

    def write(self, data: bytes) -> None:
        """Sends; what nobody reads any more is lost."""
        if not self._input.is_closing():
            self._input.write(data)

    def close_input(self) -> None:
        """Says that no more will come."""
        if self._transports:
            self._input.close()

    async def close(self) -> None:
        """Lets go of the pipes."""
        for transport in self._transports:
            transport.close()
        await asyncio.sleep(0)
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def complaint(self) -> str:
        """The line of the agent's stderr that says most, "" where there is none."""
        ended = self._process.poll() is not None
        return telling_line(self._stderr.data.decode("utf-8", "replace"), ended)

    async def exit_status(self, patience: float) -> int | None:
        """How the process has ended, with all of its stderr read; None where it hasn't within so many
        seconds."""
        deadline = time.monotonic() + patience
        while (status := self._process.poll()) is None and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        while status is not None and not self._stderr.over and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        return status

    async def _wait(self) -> None:
        while self._process.poll() is None and not self._broken.done():
            await asyncio.wait({self._broken}, timeout=_POLL)


class _Tail(asyncio.Protocol):
    """The end of what comes."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.over = False

    def data_received(self, data: bytes) -> None:
        self.data += data
        if len(self.data) > 2 * _KEPT:
            del self.data[:-_KEPT]

    def connection_lost(self, exc: Exception | None) -> None:
        self.over = True


class _Writing(asyncio.BaseProtocol):
    """Notes when nobody reads any more."""

    def __init__(self, broken: asyncio.Future[None]) -> None:
        self._broken = broken

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._broken.done():
            self._broken.set_result(None)


LONGEST = 32 * 1024 * 1024  # bytes of a frame
NOISE = 200  # lines that are no frame
_SHOWN = 120

Notified = Callable[[str, Mapping[str, Any]], None]


class TooMuch(Exception):
    """What a handler of notifications raises to end the connection: the message says why."""


class Frames:
    """A transport of JSON-RPC messages, as the SDK's Connection wants one: nothing it calls raises.

    Requests and answers are handed on; notifications go to `notified`, in their order and before any
    answer that follows them. `fault` says why the connection was given up, "" where it wasn't; `noise` are
    the first lines that were no frames.
    """

    def __init__(
        self, reader: asyncio.StreamReader, write: Callable[[bytes], None], notified: Notified
    ) -> None:
        self._reader = reader
        self._write = write
        self._notified = notified
        self._buffer = bytearray()
        self._noisy = 0
        self.noise: list[str] = []
        self.fault = ""
        self.heard = 0  # frames

    async def send(self, message: dict[str, Any]) -> None:
        """Writes a message; one that nobody reads any more is lost."""
        text = json.dumps(message, ensure_ascii=True, separators=(",", ":"))
        self._write(text.encode("ascii") + b"\n")

    async def receive(self) -> dict[str, Any] | None:
        """The next request or answer; None at the end, or where there is a fault."""
        while not self.fault:
            line = await self._line()
            if line is None:
                return None
            message = self._parsed(line)
            if message is None:
                continue
            self.heard += 1
            if "method" not in message or "id" in message:
                return message
            params = message.get("params")
            try:
                self._notified(str(message["method"]), params if isinstance(params, dict) else {})
            except TooMuch as error:
                self.fault = str(error)
            # What is in the buffer already is read without waiting: others, such as a deadline, have a turn here.
            await asyncio.sleep(0)
        return None

    async def close(self) -> None:
        """Nothing to do: the pipes belong to whoever made them."""

    async def _line(self) -> bytes | None:
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > LONGEST:
                self.fault = f"sent a frame of more than {LONGEST // 1024 // 1024} MiB"
                return None
            try:
                data = await self._reader.read(1 << 18)
            except OSError:
                data = b""
            if not data:
                if not self._buffer:
                    return None
                end = searched  # the last line, without its end
                break
            self._buffer += data
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    def _parsed(self, line: bytes) -> dict[str, Any] | None:
        if not line.strip():
            return None
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if isinstance(message, dict) and _is_message(message):
            return message
        self._noisy += 1
        if len(self.noise) < 5:
            self.noise.append(printable(line[: 4 * _SHOWN].decode("utf-8", "replace"))[:_SHOWN])
        if self._noisy > NOISE:
            self.fault = f"printed what is no frame of the protocol: {self.noise[0]!r}"
        return None


def _is_message(message: Mapping[str, Any]) -> bool:
    """Whether the SDK can take it: a request, a notification, or an answer."""
    if "method" in message:
        return isinstance(message["method"], str)
    if not isinstance(message.get("id"), int | str):
        return False
    error = message.get("error")
    return "result" in message or (
        isinstance(error, dict)
        and isinstance(error.get("code", 0), int)
        and isinstance(error.get("message", ""), str)
    )
