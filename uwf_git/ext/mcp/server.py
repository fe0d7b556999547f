"""An MCP server on standard input and output.

A tool's result is the JSON of its command, called in a worker thread. Calls that are `apart` get a process:
steps and extractions, which are interrupted when the client cancels; and rehearsals, which may compute for
half a minute. Their output never reaches this process's standard output, which belongs to the protocol.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, unquote

import anyio
from mcp import types
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

from uwf_git import __version__
from uwf_git.ext.mcp.tools import QUOTA, WAIT, Call, ServedTool, offered
from uwf_git.plugin import (
    LARGEST_OUTPUT,
    CommandFailed,
    CommandResult,
    Instance,
    Location,
    OutputTooLarge,
    Transcript,
    UwfError,
    adopt_news,
    as_yaml,
    call_command,
    call_in_process,
    calling,
    find_head,
    find_thread,
    processes,
)

INSTRUCTIONS = """\
Workflows in which agents take turns, kept in git. Start a run with start_thread, then call step_thread until the
thread is completed; each step lets the agent of the next role work. A thread that is waiting asks the user something:
put the question to them and pass the answer on with answer_thread. Ids and hashes may be shortened."""

AT_ONCE = 8
TICK = 2.0
LISTED = 50
MARKDOWN, YAML = "text/markdown", "application/yaml"
# The tool whose command reads a kind of resource, and the resource's type.
_RESOURCES = {"thread": ("read_thread", MARKDOWN), "workflow": ("show_workflow", YAML)}

T = TypeVar("T")


class Step:
    """A step in progress, which may outlast its request."""

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self.done = anyio.Event()
        self.result: types.CallToolResult | None = None


def serve(location: Location, folder: Path, read_only: bool) -> None:
    """Serve until standard input closes. Threads work in `folder` or below."""
    anyio.run(Serving(location, folder, read_only).run)


class Serving:
    """One server with one client."""

    def __init__(self, location: Location, folder: Path, read_only: bool) -> None:
        self._location = location
        self._folder = folder.resolve()
        self._tools = offered(read_only)

    async def run(self) -> None:
        self._threads, self._processes = anyio.CapacityLimiter(AT_ONCE), anyio.CapacityLimiter(AT_ONCE)
        server: Server[Any] = Server(
            "uwf",
            version=__version__,
            title="uwf",
            instructions=INSTRUCTIONS,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
        )
        # The transport owns standard output: other prints go to stderr.
        incoming_lines: Any = processes.lines(read_input)
        async with (
            stdio_server(stdin=incoming_lines) as (incoming, outgoing),
            anyio.create_task_group() as self._steps,
        ):
            await server.run(incoming, outgoing, server.create_initialization_options())
            self._steps.cancel_scope.cancel()

    async def _list_tools(
        self, _context: ServerRequestContext[Any], _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_described(tool) for tool in self._tools.values()])

    async def _call_tool(
        self, context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        tool = self._tools.get(params.name)
        if tool is None:
            raise MCPError(types.INVALID_PARAMS, f"no tool {params.name!r}")
        arguments = params.arguments or {}
        try:
            call = tool.parse(arguments, self._folder)
            if tool.name == "step_thread":
                await self._in_thread(lambda: _require_ready(self._location, arguments["thread"]))
                return await self._step(context, call, arguments)
            async with self._processes if call.apart else contextlib.nullcontext():
                return await self._result(call)
        except CommandFailed as error:
            return _failure(error)
        except UwfError as error:
            return _failure(CommandFailed(error.code, error.message, error.hint, error.exit_status))

    async def _step(
        self, context: ServerRequestContext[Any], call: Call, arguments: Mapping[str, Any]
    ) -> types.CallToolResult:
        step = Step()
        role = await self._role(arguments) if (context.meta or {}).get("progress_token") is not None else ""
        self._steps.start_soon(self._do, call, step)
        try:
            with anyio.move_on_after(arguments.get(WAIT)):
                async with anyio.create_task_group() as watching:
                    if role:
                        watching.start_soon(_report, context, role)
                    await step.done.wait()
                    watching.cancel_scope.cancel()
        except BaseException:  # the client cancels, or goes
            step.scope.cancel()
            with anyio.CancelScope(shield=True):
                await step.done.wait()
            raise
        if step.result is not None:
            return step.result
        return await self._result(Call(("thread", "show", "--", arguments["thread"])))

    async def _do(self, call: Call, step: Step) -> None:
        try:
            with step.scope:
                step.result = await self._result(call)
        except CommandFailed as error:
            step.result = _failure(error)
        finally:
            step.done.set()

    async def _role(self, arguments: Mapping[str, Any]) -> str:
        try:
            shown = await self._value(Call(("thread", "show", "--", arguments["thread"])))
        except CommandFailed:
            return ""
        return str(shown[0].get("next") or "")

    async def _result(self, call: Call) -> types.CallToolResult:
        value, notes = await self._value(call)
        if call.wrap:
            value = {call.wrap: value}
        texts = [json.dumps(value, ensure_ascii=False, indent=1), *notes]
        if len(texts[0]) > LARGEST_OUTPUT:
            raise OutputTooLarge()
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=text) for text in texts], structured_content=value
        )

    async def _value(self, call: Call) -> CommandResult:
        if (value := call.value) is not None:
            return await self._in_thread(lambda: _read(self._location, value))
        if not call.apart:
            return await self._in_thread(lambda: call_command(self._location, call.argv, call.stdin or ""))
        with contextlib.ExitStack() as stack:
            folder = self._folder
            if call.source is not None:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="uwf-mcp-")))
                (folder / call.source_name).write_text(call.source, encoding="utf-8", errors="replace")
            return await call_in_process(self._location, call.argv, call.stdin, folder)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await anyio.to_thread.run_sync(work, limiter=self._threads)

    async def _list_resources(
        self, _context: ServerRequestContext[Any], _params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        resources: list[types.Resource] = []
        with contextlib.suppress(CommandFailed):  # no store yet
            workflows, _ = await self._value(Call(("workflow", "list")))
            for item in workflows:
                uri = f"uwf://workflow/{quote(item['name'], safe='')}"
                about = item.get("description") or item.get("problem")
                resources.append(
                    types.Resource(uri=uri, name=item["name"], description=about, mime_type=YAML)
                )
            threads, _ = await self._value(Call(("thread", "list", "--all", f"--limit={LISTED}")))
            for item in threads:
                about = f"{item['name']}, {item['status']}, {item['updated']}"
                uri = f"uwf://thread/{item['thread']}"
                resources.append(
                    types.Resource(uri=uri, name=item["thread"], description=about, mime_type=MARKDOWN)
                )
        return types.ListResourcesResult(resources=resources)

    async def _list_templates(
        self, _context: ServerRequestContext[Any], _params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(
            resource_templates=[
                types.ResourceTemplate(
                    uri_template="uwf://thread/{id}",
                    name="thread",
                    description="A thread's transcript: its prompt and its newest steps.",
                    mime_type=MARKDOWN,
                ),
                types.ResourceTemplate(
                    uri_template="uwf://workflow/{name}",
                    name="workflow",
                    description="A registered workflow.",
                    mime_type=YAML,
                ),
            ]
        )

    async def _read_resource(
        self, _context: ServerRequestContext[Any], params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        uri = str(params.uri)
        kind, _, rest = uri.removeprefix("uwf://").partition("/")
        try:
            if kind not in _RESOURCES:
                raise CommandFailed(
                    "not_found", f"no resource {uri!r}", "uwf://thread/ID or uwf://workflow/NAME", 3
                )
            tool, media = _RESOURCES[kind]
            call = self._tools[tool].parse({kind: unquote(rest)}, self._folder)
            if kind == "thread":
                text = await self._in_thread(lambda: _transcript(self._location, unquote(rest)))
            else:
                text = as_yaml((await self._value(call))[0])
            if len(text) > LARGEST_OUTPUT:
                raise OutputTooLarge()
        except CommandFailed as error:
            raise MCPError(types.INVALID_PARAMS, _text(error), {"uri": uri, **error.error}) from None
        except UwfError as error:
            raise MCPError(types.INVALID_PARAMS, error.message, {"uri": uri}) from None
        return types.ReadResourceResult(
            contents=[types.TextResourceContents(uri=uri, mime_type=media, text=text)]
        )


def _require_ready(location: Location, thread: str) -> None:
    """Raise Failed before the first step of a thread that cannot reach its end here: a client names no agents."""
    from uwf_git.plugin import require_ready_thread

    with calling(location) as invocation:
        thread_id = find_thread(invocation, thread)
        if invocation.instance.threads.head(thread_id).row.kind == "start":
            require_ready_thread(invocation.instance, thread_id)


def _read(location: Location, value: Callable[[Instance], Any]) -> CommandResult:
    with calling(location) as invocation:
        adopt_news(invocation)
        return CommandResult(value(invocation.instance), invocation.warnings)


def _transcript(location: Location, thread: str) -> str:
    with calling(location) as invocation:
        instance = invocation.instance
        head = find_head(invocation, thread)
        return "\n\n".join(Transcript(instance, head, QUOTA, None).parts()).rstrip("\n") + "\n"


async def read_input() -> bytes:
    """Read standard input (file, pipe or socket) without a blocking thread, which would prevent an
    interrupted process from ending."""
    with contextlib.suppress(PermissionError):  # a file is always readable, and can't be waited for
        await anyio.wait_readable(0)
    return os.read(0, 1 << 16)


async def _report(context: ServerRequestContext[Any], role: str) -> None:
    begun = anyio.current_time()
    while True:
        seconds = anyio.current_time() - begun
        await context.session.report_progress(seconds, message=f"{role} works, {seconds:.0f} s")
        await anyio.sleep(TICK)


def _described(tool: ServedTool) -> types.Tool:
    hints: dict[str, Any] = {"read_only_hint": not tool.writes, "open_world_hint": tool.open}
    if tool.writes:
        hints |= {"destructive_hint": tool.destroys, "idempotent_hint": tool.repeatable}
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.schema,
        annotations=types.ToolAnnotations(title=tool.title, **hints),
    )


def _text(error: CommandFailed) -> str:
    hint = f" — {error.hint}" if error.hint else ""
    return f"{error.message}{hint} ({error.error['code']}, exit status {error.status})"


def _failure(error: CommandFailed) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=_text(error))],
        structured_content={"error": error.error},
        is_error=True,
    )
