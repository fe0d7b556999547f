"""JSON-RPC over pipes, one JSON object per line, from untrusted agents.

A few lines that are not messages, such as a banner, are skipped; more, or an oversized one, end the
connection with a `fault`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from uwf_git.plugin import one_line, processes

LONGEST = 32 * 1024 * 1024  # bytes of a frame
NOISE = 200  # lines that are no frame
_SHOWN = 120
_MAX_QUOTED = 300

Notified = Callable[[str, Mapping[str, Any]], None]


class TooMuch(Exception):
    """Raised by a notification handler to end the connection."""


class Frames:
    """A transport for the SDK's Connection. Notifications go to `notified`, in order and before later
    answers. `fault` is why the connection ended, `noise` the first skipped lines."""

    def __init__(
        self, read: Callable[[], Awaitable[bytes]], write: Callable[[bytes], None], notified: Notified
    ) -> None:
        self._lines = processes.lines(read, LONGEST)
        self._write = write
        self._notified = notified
        self._noisy = 0
        self.noise: list[str] = []
        self.fault = ""
        self.heard = 0  # frames

    async def send(self, message: dict[str, Any]) -> None:
        """Write a message; lost if the pipe is closed."""
        text = json.dumps(message, ensure_ascii=True, separators=(",", ":"))
        self._write(text.encode("ascii") + b"\n")

    async def receive(self) -> dict[str, Any] | None:
        """Return the next request or answer; None at the end or after a fault."""
        while not self.fault:
            try:
                line = await anext(self._lines, None)
            except processes.LineTooLong:
                self.fault = f"sent a frame of more than {LONGEST // 1024 // 1024} MiB"
                return None
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
            # Buffered data is read without waiting; yield here so that deadlines run.
            await asyncio.sleep(0)
        return None

    async def close(self) -> None:
        """No-op: the owner closes the pipes."""

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
            self.fault = f"printed what is not a frame of the protocol: {self.noise[0]!r}"
        return None


def _is_message(message: Mapping[str, Any]) -> bool:
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


def printable(text: str) -> str:
    return one_line(text, _MAX_QUOTED + 1)[:_MAX_QUOTED]


def complaint(stderr: str, ended: bool) -> str:
    """Return the last stderr line about an error, or the last line if the agent has ended; else ""."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    telling = [line for line in lines if "error" in line.lower()]
    return printable((telling or (lines if ended else []) or [""])[-1])


def ending(code: int) -> str:
    return f"was ended by signal {-code}" if code < 0 else f"exited with {code}"


def reason(error: Any) -> str:
    """Return a JSON-RPC error in one line, with its data's message."""
    data = error.data
    if isinstance(data, Mapping):
        data = next((data[key] for key in ("details", "message", "error", "uri") if data.get(key)), None)
    text = str(error) if not isinstance(data, str) or data in str(error) else f"{error}: {data}"
    return printable(text) or f"error {error.code}"


def way(method: Mapping[str, Any]) -> str:
    about = method.get("description") or method.get("name") or ""
    way = f"{method.get('id')}"
    return printable(f"{way} ({printable(str(about))[:100]})" if about else way)
