"""Configured MCP servers as tools.

    with McpServers(servers_of(config).values(), policy, environ, cwd, ctx.deadline) as servers:
        toolbox.add(servers.tools())

A server starts when its tools are first needed, if the policy could permit any, and ends with the block. A
tool is `mcp/SERVER/TOOL` in policies and `mcp__SERVER__TOOL` for models. Tools announced later aren't
offered, since the tool list begins a cached conversation.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from fnmatch import fnmatchcase
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uwf_git.ext.builtin.tools.tool import Tool, ToolContext
from uwf_git.plugin import (
    NONCE_VARIABLE,
    WITHHELD_NONCE,
    AgentFailed,
    ToolFailure,
    install_hint,
    log,
    tool_results,
)

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal
    from mcp import Client
    from mcp import types as mcp_types
    from mcp.types import CallToolResult

    from uwf_git.ext.builtin.mcp_servers import McpServer
    from uwf_git.ext.builtin.tools.mcp_transport import ServerProcess
    from uwf_git.plugin import ToolOutputs, ToolPolicy

START_SECONDS = 30.0
CALL_SECONDS = 60.0
PROBE_SECONDS = 10.0
STOP_SECONDS = 10.0
MOST_TOOLS = 100
LONGEST_NAME = 64
LONGEST_DESCRIPTION = 4000
LARGEST_SCHEMA = 60_000
_PASSED_ON = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "LC_ALL", "TZ", "TMPDIR")
_VARIABLE = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)", re.ASCII)


class McpServers:
    """A step's servers. `notes` list tools not offered."""

    def __init__(
        self,
        servers: Iterable[McpServer],
        policy: ToolPolicy,
        environ: Mapping[str, str],
        cwd: Path,
        deadline: float | None = None,
    ) -> None:
        self._servers = [server for server in servers if could_permit(policy, f"mcp/{server.name}/")]
        self._policy = policy
        self._environ = environ
        self._cwd = cwd
        self._deadline = deadline
        self._stack = contextlib.ExitStack()
        self._connections: dict[str, _Connection] = {}
        self._tools: list[Tool] | None = None
        self.notes: list[str] = []

    def __enter__(self) -> McpServers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: Any, trace: Any) -> None:
        if kind is not None and not issubclass(kind, Exception):
            self._kill()  # a Ctrl-C doesn't wait for servers to end by themselves
        try:
            self._stack.__exit__(kind, error, trace)
        finally:
            self._kill()

    def tools(self) -> list[Tool]:
        """Start the servers and return the permitted tools. Raises AgentFailed with the server."""
        if self._tools is None:
            self._tools = self._start() if self._servers else []
        return self._tools

    def _kill(self) -> None:
        for connection in self._connections.values():
            connection.kill()

    def _start(self) -> list[Tool]:
        if find_spec("mcp") is None:
            raise AgentFailed(
                "config.yaml names MCP servers, and the package mcp is not installed",
                install_hint("mcp"),
            )
        from anyio.from_thread import start_blocking_portal

        portal = self._stack.enter_context(start_blocking_portal())
        listed: dict[str, list[mcp_types.Tool]] = {}
        for server in self._servers:
            self._connections[server.name] = _Connection(server, self._environ, self._cwd)
        # All at once: most of the time is theirs.
        waiting = {
            name: connection.start(portal, self._stack) for name, connection in self._connections.items()
        }
        for name, future in waiting.items():
            tools = listed[name] = self._connections[name].listed(future, self._left(START_SECONDS))
            log.debug(
                "REA5ZCCG", "the MCP server {server} lists {tools} tools", server=name, tools=len(tools)
            )
        return self._named(listed)

    def _named(self, listed: Mapping[str, Sequence[mcp_types.Tool]]) -> list[Tool]:
        tools_by_name: dict[str, tuple[_Connection, mcp_types.Tool]] = {}
        for name, connection in self._connections.items():
            tools = [tool for tool in listed[name] if self._wanted(connection.server, tool.name)]
            if len(tools) > MOST_TOOLS:
                self.notes.append(f'MCP server "{name}": {MOST_TOOLS} of its {len(tools)} tools were offered')
            for misfit in connection.misfits:
                whole = f"mcp/{name}/{misfit}"
                self.notes.append(
                    f"{tool_results.shown(whole)} was left out: its description is none of a tool"
                )
            for tool in tools[:MOST_TOOLS]:
                whole = f"mcp/{name}/{tool.name}"
                if _is_broken(tool.input_schema):
                    self.notes.append(
                        f"{tool_results.shown(whole)} was left out: the schema of its arguments is none"
                    )
                elif len(json.dumps(tool.input_schema)) > LARGEST_SCHEMA:
                    self.notes.append(
                        f"{tool_results.shown(whole)} was left out: the schema of its arguments is too large"
                    )
                else:
                    tools_by_name.setdefault(whole, (connection, tool))
        wire = wire_names(tools_by_name)
        return [
            Tool(
                wire[whole],
                (tool.description or tool.title or "")[:LONGEST_DESCRIPTION],
                tool.input_schema,
                partial(connection.call, tool.name),
                known_as=whole,
            )
            for whole, (connection, tool) in tools_by_name.items()
        ]

    def _wanted(self, server: McpServer, tool: str) -> bool:
        named = server.tools is None or any(fnmatchcase(tool, glob) for glob in server.tools)
        return named and self._policy.permits(f"mcp/{server.name}/{tool}")

    def _left(self, seconds: float) -> float:
        if self._deadline is None:
            return seconds
        return max(0.01, min(seconds, self._deadline - time.monotonic()))


class _Connection:
    """A server's connection, used from one thread and living in the portal's."""

    def __init__(self, server: McpServer, environ: Mapping[str, str], cwd: Path) -> None:
        self.server = server
        self._environ = environ
        self._cwd = cwd
        self._process: ServerProcess | None = None
        self._client: Client | None = None
        self._portal: BlockingPortal | None = None
        self._lost = ""

    def start(self, portal: BlockingPortal, stack: contextlib.ExitStack) -> Future[list[mcp_types.Tool]]:
        import anyio

        self._portal = portal
        stopped: Future[None] = Future()
        ready, stop = Future[list[Any]](), portal.call(anyio.Event)

        async def connected(mode: str) -> None:
            async with self._connect(mode) as client:
                self._client = client
                ready.set_result(await self._list(client))
                await stop.wait()

        async def live() -> None:
            try:
                # Servers that don't know a new request may not answer it until a timeout.
                try:
                    await connected("legacy")
                except Exception as error:
                    if ready.done() or not _knows_no_handshake(error):
                        raise
                    await connected("auto")
            except BaseException as error:
                if not ready.done():
                    ready.set_exception(error)
                if isinstance(error, Exception):
                    self._lost = self._lost or _leaf(error)
                else:
                    raise
            finally:
                self._client = None
                stopped.set_result(None)

        task = portal.start_task_soon(live)

        def end() -> None:
            portal.call(stop.set)
            if not ready.done():
                task.cancel()
            with contextlib.suppress(TimeoutError):
                stopped.result(timeout=STOP_SECONDS)

        stack.callback(end)
        return ready

    def listed(self, ready: Future[list[mcp_types.Tool]], seconds: float) -> list[mcp_types.Tool]:
        try:
            return ready.result(timeout=seconds)
        except TimeoutError:
            problem = f"did not answer within {round(seconds, 1):g} s"
        except CancelledError:
            problem = "was ended"
        except AgentFailed:
            raise
        except Exception as error:
            problem = f"{'cannot be reached' if self.server.url else 'does not start'}: {_leaf(error)}"
        raise AgentFailed(
            f'MCP server "{self.server.name}" {self._trouble() or problem}',
            f"see mcpServers.{self.server.name} in config.yaml, and try it by hand",
        )

    def call(self, tool: str, arguments: Mapping[str, Any], context: ToolContext) -> dict[str, Any]:
        who = f'MCP server "{self.server.name}"'
        seconds = context.seconds(self.server.timeout or CALL_SECONDS)
        if self._client is None or self._portal is None:
            raise ToolFailure("failed", f"{who} {self._trouble() or self._lost or 'is gone'}")
        call = partial(self._client.call_tool, tool, dict(arguments), read_timeout_seconds=seconds)
        future = self._portal.start_task_soon(call)
        try:
            result = future.result(timeout=seconds + PROBE_SECONDS)
        except TimeoutError:
            raise ToolFailure("timeout", f"{who} did not answer within {round(seconds, 1):g} s") from None
        except CancelledError:
            raise ToolFailure("failed", f"{who} is gone") from None
        except Exception as error:
            raise self._failure(who, error, seconds) from None
        finally:
            future.cancel()
        if result.is_error:
            raise ToolFailure("failed", _error_text(result))
        return _to_json(result, context.outputs)

    @property
    def misfits(self) -> Sequence[str]:
        return self._process.misfits if self._process else ()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    def _connect(self, mode: str) -> Client:
        from mcp import Client

        return Client(
            self.server.url or self._command().transport(),
            mode=mode,
            read_timeout_seconds=START_SECONDS,
            cache=None,
        )

    def _command(self) -> ServerProcess:
        from uwf_git.ext.builtin.tools.mcp_transport import ServerProcess

        name, *rest = self.server.command
        environ = self._environment()
        program = shutil.which(name, path=environ.get("PATH"))
        if program is None:
            raise AgentFailed(
                f'MCP server "{self.server.name}": command {tool_results.shown(name)!r} is not on PATH',
                "install it, or name it with its whole path in mcpServers",
            )
        self._process = ServerProcess([program, *rest], environ, self._cwd)
        return self._process

    def _environment(self) -> dict[str, str]:
        environ = {name: self._environ[name] for name in _PASSED_ON if name in self._environ}
        for name, value in self.server.env.items():
            variable = _VARIABLE.fullmatch(value)
            try:
                environ[name] = self._environ[variable[1]] if variable else value
            except KeyError as error:
                raise AgentFailed(
                    f'MCP server "{self.server.name}": the variable {error.args[0]} is not set',
                    "put it into .env or the environment, or name its place in secrets",
                ) from None
        return {**environ, NONCE_VARIABLE: WITHHELD_NONCE}

    async def _list(self, client: Client) -> list[mcp_types.Tool]:
        tools: list[mcp_types.Tool] = []
        cursor: str | None = None
        for _page in range(50):
            page = await client.list_tools(cursor=cursor)
            tools += page.tools
            cursor = page.next_cursor
            if cursor is None:
                break
        return tools

    def _failure(self, who: str, error: Exception, seconds: float) -> ToolFailure:
        from mcp import MCPError
        from mcp.types import CONNECTION_CLOSED, REQUEST_TIMEOUT

        if isinstance(error, MCPError) and error.code == REQUEST_TIMEOUT:
            return ToolFailure("timeout", f"{who} did not answer within {round(seconds, 1):g} s")
        if isinstance(error, MCPError) and error.code == CONNECTION_CLOSED:
            self._client, self._lost = None, "closed the connection"
            if self._process is not None and self._portal is not None:
                self._portal.call(self._process.settle)
            return ToolFailure("failed", f"{who} {self._trouble() or self._lost}")
        return ToolFailure("failed", f"{who}: {_leaf(error)}")

    def _trouble(self) -> str:
        process = self._process
        if process is None:
            return ""
        complaint = next((line.strip() for line in reversed(process.stderr.splitlines()) if line.strip()), "")
        if process.trouble:
            return process.trouble
        if process.returncode is not None:
            how = f"exited with {process.returncode}" if process.returncode >= 0 else "was killed"
            return f"{how}: {tool_results.shown(complaint)}" if complaint else how
        if process.noise:
            return f"printed what is not a message: {tool_results.shown(process.noise)}"
        return ""


def could_permit(policy: ToolPolicy, prefix: str) -> bool:
    if any(glob.endswith("*") and fnmatchcase(prefix, glob) for glob in policy.deny):
        return False
    if not policy.serves(prefix.split("/")[1]):
        return False
    return all(any(_could_match(glob, prefix) for glob in globs) for globs in policy.allow)


def _could_match(glob: str, prefix: str) -> bool:
    literal = re.split(r"[*?\[]", glob, maxsplit=1)[0]
    return literal.startswith(prefix) or (prefix.startswith(literal) and literal != glob)


def wire_names(names: Iterable[str]) -> dict[str, str]:
    """Return models' names for tools: at most 64 letters, digits, `_` and `-`, with a hash if changed or
    ambiguous."""
    plain = {name: re.sub(r"[^A-Za-z0-9_-]", "_", "__".join(name.split("/", 2))) for name in names}
    taken = Counter(plain.values())
    wires = {}
    for name, wire in plain.items():
        if wire != "__".join(name.split("/", 2)) or len(wire) > LONGEST_NAME or taken[wire] > 1:
            digest = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:8]
            wire = f"{wire[: LONGEST_NAME - 9]}_{digest}"
        wires[name] = wire
    return wires


def _is_broken(schema: Mapping[str, Any]) -> bool:
    from uwf_git.plugin import check_schema

    return bool(check_schema({key: value for key, value in schema.items() if key != "$schema"}))


def _knows_no_handshake(error: BaseException) -> bool:
    from mcp import MCPError
    from mcp.types import METHOD_NOT_FOUND, UNSUPPORTED_PROTOCOL_VERSION

    error = _first(error)
    return isinstance(error, MCPError) and error.code in (METHOD_NOT_FOUND, UNSUPPORTED_PROTOCOL_VERSION)


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _leaf(error: BaseException) -> str:
    error = _first(error)
    return tool_results.shown(" ".join(str(error).split())) or type(error).__name__


def _to_json(result: CallToolResult, outputs: ToolOutputs) -> dict[str, Any]:
    """Return a tool's answer for a model: `result`, a structured value, or `text`, shortened; `omitted` names
    unreadable parts such as images."""
    texts, omitted = _parts(result)
    text = "\n".join(texts)
    value: dict[str, Any] = {}
    structured = result.structured_content
    if structured is not None and structured != {"result": text}:
        dumped = json.dumps(structured, ensure_ascii=False)
        if len(dumped) <= tool_results.SHOWN:
            value["result"] = structured
            text = "" if _repeats(text, structured) else text
        else:
            text = dumped
    if text or not value:
        text, more = outputs.shorten(text)
        value |= {"text": text, **more}
    if omitted:
        value["omitted"] = omitted
    return value


def _error_text(result: CallToolResult) -> str:
    texts, _omitted = _parts(result)
    return "\n".join(texts).strip()[:4000] or "it failed and didn't say why"


def _parts(result: CallToolResult) -> tuple[list[str], list[str]]:
    texts, omitted = [], []
    for block in result.content:
        if block.type == "text":
            texts.append(block.text)
        elif block.type == "resource_link":
            texts.append(f"{block.name}: {block.uri}")
        elif block.type == "resource":
            text = getattr(block.resource, "text", None)
            if text is not None:
                texts.append(text)
            else:
                omitted.append(f"resource {block.resource.uri}, no text")
        else:
            omitted.append(f"{block.type}, {block.mime_type}, {len(block.data) * 3 // 4} bytes")
    return texts, omitted


def _repeats(text: str, value: Any) -> bool:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return bool(data == value or value == {"result": data})
