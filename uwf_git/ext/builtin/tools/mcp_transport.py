"""MCP over a process's standard input and output, one JSON message per line. Other lines are skipped, lines
are bounded, and the process ends with its descendants."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
from mcp.shared.message import SessionMessage
from mcp.types import Tool, jsonrpc_message_adapter

from uwf_git.plugin import Descendants, processes

if TYPE_CHECKING:
    pass

LONGEST_LINE = 16 << 20
KEPT = 4000
POLITE = 1.0
GRACE = 1.0
DRAIN = 0.1
SETTLING = 1.0


class ServerProcess:
    """A server's process. `noise` is its first line that isn't a message; `trouble` why the connection ended.
    `misfits` are invalid tools, removed from lists."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], cwd: Path) -> None:
        self.argv = tuple(argv)
        self.noise = ""
        self.trouble = ""
        self.misfits: list[str] = []
        self._descendants = Descendants(env)
        self._cwd = cwd
        self._process: subprocess.Popen[bytes] | None = None
        self._pipes: processes.Pipes | None = None
        self._over = False

    @property
    def returncode(self) -> int | None:
        return self._process.poll() if self._process else None

    @property
    def stderr(self) -> str:
        return self._pipes.stderr if self._pipes else ""

    async def settle(self) -> None:
        """Wait briefly for the end of a process that closed its connection."""
        if self._pipes is not None:
            await self._pipes.exit_status(SETTLING, DRAIN)

    def kill(self) -> None:
        if self._process is not None and not self._over:  # its number may be a stranger's by then
            self._descendants.kill(self._process)

    @asynccontextmanager
    async def transport(self) -> AsyncIterator[Any]:
        """Start the process and yield the connection. Raises OSError, ValueError."""
        self._descendants.guard()
        process = self._process = processes.spawn(self.argv, env=self._descendants.env, cwd=self._cwd)
        self._descendants.started(process)
        pipes = self._pipes = processes.Pipes(process)
        into, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        outgoing, out_of = anyio.create_memory_object_stream[SessionMessage](0)
        try:
            await pipes.connect()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._read, pipes, into)
                tasks.start_soon(_write, pipes, out_of)
                tasks.start_soon(_watch, pipes, into)
                try:
                    yield incoming, outgoing
                finally:
                    tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                pipes.close_input()  # which asks it to end
                await pipes.exit_status(POLITE, 0)
                await anyio.to_thread.run_sync(self._descendants.end, process, GRACE)
                self._over = True
                await pipes.close()
                for stream in (incoming, outgoing, into, out_of):
                    stream.close()

    async def _read(self, pipes: processes.Pipes, into: Any) -> None:
        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async with into:
                try:
                    async for line in processes.lines(pipes.read, LONGEST_LINE):
                        if (message := self._parse(line)) is not None:
                            await into.send(message)
                except processes.LineTooLong:
                    self.trouble = f"sent a message of more than {LONGEST_LINE >> 20} MiB"

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
        listed = result.get("tools") if isinstance(result, dict) and "content" not in result else None
        if isinstance(listed, list):
            result["tools"] = [tool for tool in listed if _is_tool(tool)]
            names = (
                tool.get("name", "?") if isinstance(tool, dict) else "?"
                for tool in listed
                if not _is_tool(tool)
            )
            self.misfits += [str(name)[:KEPT] for name in names]


def _is_tool(value: Any) -> bool:
    try:
        tool = Tool.model_validate(value, by_name=False)
    except ValueError:
        return False
    schemas = (tool.input_schema, tool.output_schema)
    return all(schema is None or schema.get("type") == "object" for schema in schemas)


async def _write(pipes: processes.Pipes, out_of: Any) -> None:
    async with out_of:
        async for message in out_of:
            text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            pipes.write(text.encode() + b"\n")


async def _watch(pipes: processes.Pipes, into: Any) -> None:
    """Close the connection of an ended process, whose pipe may be held by a leftover."""
    await pipes.over
    await anyio.sleep(DRAIN)
    into.close()
