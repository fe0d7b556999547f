"""A server of the Model Context Protocol as a process: JSON on its standard input and output, a line a
message. What isn't a message is skipped and remembered, a line has a limit, and the process's whole group
ends with the connection.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.abc
from mcp.shared.message import SessionMessage
from mcp.types import Tool, jsonrpc_message_adapter

if TYPE_CHECKING:
    from mcp.client import Transport

LONGEST_LINE = 16 << 20
KEPT = 4000
POLITE = 1.0
GRACE = 1.0
DRAIN = 0.1
SETTLING = 1.0
POLL = 0.02
_GONE = (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream)


class ServerProcess:
    """A server's process and what is known of it. `noise` is the first line it printed that is no message,
    `stderr` the end of what it said there; `trouble` is why the connection was given up, "" if it wasn't. `misfits`
    are tools it listed that are none by the protocol, by name: one of them would spoil the list."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], cwd: Path) -> None:
        self.argv = tuple(argv)
        self.noise = ""
        self.stderr = ""
        self.trouble = ""
        self.misfits: list[str] = []
        self._env = dict(env)
        self._cwd = cwd
        self._process: anyio.abc.Process | None = None
        self._over = False

    @property
    def returncode(self) -> int | None:
        """How it ended; None while it runs."""
        return self._process.returncode if self._process else None

    def transport(self) -> Transport:
        """The connection, which starts the process and ends it. Raises OSError, ValueError."""
        return self._connected()

    async def settle(self) -> None:
        """Waits a moment for what a process that has closed the connection still has to say, and its end."""
        if self._process is not None:
            with anyio.move_on_after(SETTLING):
                await _exited(self._process)
                await anyio.sleep(DRAIN)

    def kill(self) -> None:
        """Ends what is left of its group, at once."""
        if self._process is not None and not self._over:  # its number may be a stranger's by then
            _signal(self._process.pid, signal.SIGKILL)

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Any]:
        process = await anyio.open_process(
            self.argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self._env,
            cwd=self._cwd,
            start_new_session=True,
        )
        self._process = process
        into, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        outgoing, out_of = anyio.create_memory_object_stream[SessionMessage](0)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._read, process, into)
            tasks.start_soon(self._listen, process)
            tasks.start_soon(self._write, process, out_of, into)
            tasks.start_soon(_watch, process, into)
            try:
                yield incoming, outgoing
            finally:
                with anyio.CancelScope(shield=True):
                    await _end(process)
                    self._over = True
                    for stream in (incoming, outgoing, into, out_of):
                        stream.close()
                tasks.cancel_scope.cancel()

    async def _read(self, process: anyio.abc.Process, into: Any) -> None:
        assert process.stdout is not None
        data = bytearray()
        with contextlib.suppress(*_GONE):
            async with into:
                async for chunk in process.stdout:
                    *lines, rest = chunk.split(b"\n")
                    for line in lines:
                        data += line
                        if (message := self._parse(bytes(data))) is not None:
                            await into.send(message)
                        data.clear()
                    data += rest
                    if len(data) > LONGEST_LINE:
                        self.trouble = f"sent a message of more than {LONGEST_LINE >> 20} MiB"
                        return

    def _parse(self, line: bytes) -> SessionMessage | None:
        try:
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
            self._drop_misfits(getattr(message, "result", None))
            return SessionMessage(message)
        except ValueError:
            text = line.decode("utf-8", "replace").strip()
            self.noise = self.noise or text[:KEPT]
            return None

    def _drop_misfits(self, result: Any) -> None:
        """Takes the tools out of a list of tools that are none."""
        listed = result.get("tools") if isinstance(result, dict) and "content" not in result else None
        if isinstance(listed, list):
            result["tools"] = [tool for tool in listed if _is_tool(tool)]
            names = (
                tool.get("name", "?") if isinstance(tool, dict) else "?"
                for tool in listed
                if not _is_tool(tool)
            )
            self.misfits += [str(name)[:KEPT] for name in names]

    async def _listen(self, process: anyio.abc.Process) -> None:
        assert process.stderr is not None
        with contextlib.suppress(*_GONE):
            async for chunk in process.stderr:
                self.stderr = (self.stderr + chunk.decode("utf-8", "replace"))[-KEPT:]

    async def _write(self, process: anyio.abc.Process, out_of: Any, into: Any) -> None:
        assert process.stdin is not None
        try:
            async with out_of:
                async for message in out_of:
                    text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                    await process.stdin.send(text.encode() + b"\n")
        except _GONE:
            into.close()  # so that nobody waits for an answer


def _is_tool(value: Any) -> bool:
    try:
        tool = Tool.model_validate(value, by_name=False)
    except ValueError:
        return False
    schemas = (tool.input_schema, tool.output_schema)
    return all(schema is None or schema.get("type") == "object" for schema in schemas)


async def _watch(process: anyio.abc.Process, into: Any) -> None:
    """Closes the connection of a process that is gone, though something it left behind holds the pipe."""
    await _exited(process)
    await anyio.sleep(DRAIN)
    into.close()


async def _end(process: anyio.abc.Process) -> None:
    """Closes the process's input, which asks it to end, and then ends its group."""
    if process.stdin is not None:
        with contextlib.suppress(*_GONE):
            await process.stdin.aclose()
    with anyio.move_on_after(POLITE):
        await _exited(process)
    if _signal(process.pid, signal.SIGTERM):
        with anyio.move_on_after(GRACE):
            while _signal(process.pid, 0):
                await anyio.sleep(POLL)
        _signal(process.pid, signal.SIGKILL)
    await _exited(process)
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            with contextlib.suppress(*_GONE):
                await stream.aclose()
    # Where something escaped the group with a pipe, asyncio would hold on to its side of it, and complain
    # when the loop is gone.
    transport = getattr(getattr(process, "_process", None), "_transport", None)
    if transport is not None:
        transport.close()
        await anyio.sleep(0)


async def _exited(process: anyio.abc.Process) -> None:
    # Waiting for the process would also wait for its pipes, which something it left behind may hold.
    while process.returncode is None:
        await anyio.sleep(POLL)


def _signal(group: int, number: int) -> bool:
    """Whether there was something in the group to signal."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True
