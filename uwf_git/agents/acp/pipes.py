"""The three pipes of an agent's process, and its exit, in an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import time

from uwf_git.agents.acp.complaints import telling_line

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
