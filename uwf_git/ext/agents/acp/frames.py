"""Messages of an agent over its pipes, one JSON object a line; and what it complains about, in one line that is fit
for a terminal.

A line may be endless, no JSON, or JSON of the wrong shape. A few lines that are no frames, such as a banner, are
skipped and remembered; more of them, or a frame beyond the limit, end the connection with a `fault`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from uwf_git.base.text import one_line
from uwf_git.sandbox.child import LineTooLong, lines

LONGEST = 32 * 1024 * 1024  # bytes of a frame
NOISE = 200  # lines that are no frame
_SHOWN = 120
_MOST = 300

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
        self, read: Callable[[], Awaitable[bytes]], write: Callable[[bytes], None], notified: Notified
    ) -> None:
        self._lines = lines(read, LONGEST)
        self._write = write
        self._notified = notified
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
            try:
                line = await anext(self._lines, None)
            except LineTooLong:
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
            # What is in the buffer already is read without waiting: others, such as a deadline, have a turn here.
            await asyncio.sleep(0)
        return None

    async def close(self) -> None:
        """Does nothing: who made the pipes closes them."""

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


def printable(text: str) -> str:
    """One line without what steers a terminal."""
    return one_line(text, _MOST + 1)[:_MOST]


def complaint(stderr: str, ended: bool) -> str:
    """The last line of an agent's stderr that speaks of an error, or the last one if the agent has ended; "" where
    there is no such line. All else that a running agent prints there is its log."""
    said = [line.strip() for line in stderr.splitlines() if line.strip()]
    telling = [line for line in said if "error" in line.lower()]
    return printable((telling or (said if ended else []) or [""])[-1])


def ending(code: int) -> str:
    """How a process with that exit status has ended."""
    return f"was ended by signal {-code}" if code < 0 else f"exited with {code}"


def reason(error: Any) -> str:
    """A JSON-RPC error in one line, with the message in its data."""
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
