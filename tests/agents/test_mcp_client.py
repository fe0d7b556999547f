"""Servers of the Model Context Protocol as tools of an agent: a real server, written with the `mcp` package,
is used through the Toolbox; others that are broken are started for real as well."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import alive, wait_until_gone
from late_import import imported_late

from uwf_git.base.errors import AgentFailed
from uwf_git.config.policy import ToolPolicy, parse_policy
from uwf_git.ext.builtin.mcp_servers import McpServer
from uwf_git.ext.builtin.tools.files import FILES
from uwf_git.ext.builtin.tools.mcp_client import McpServers, could_permit, wire_names
from uwf_git.ext.builtin.tools.tool import Toolbox, ToolContext, ToolResult
from uwf_git.sandbox.path import Mount
from uwf_git.sandbox.results import Outputs
from uwf_git.sandbox.workspace import Workspace

mcp = imported_late("mcp", "pip install '.[mcp]'")


@pytest.fixture(scope="module", autouse=True)
def loaded() -> None:
    """Loads the library before a test gives a server little time."""
    assert mcp.ClientSession


SERVER = """\
import os, pathlib, subprocess, sys, time
from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Image
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("scripted")
child = subprocess.Popen(["sleep", "300"], stdin=subprocess.DEVNULL)
away = subprocess.Popen(["sleep", "300"], stdin=subprocess.DEVNULL, start_new_session=True)
pathlib.Path("pids").write_text(f"{os.getpid()} {child.pid} {away.pid}")
wire = os.dup(1)
os.write(wire, b"Welcome to this server!\\n")


@server.tool()
def add(a: int, b: int) -> int:
    "Adds."
    return a + b


@server.tool(name="environment.of")
def environment() -> dict[str, str]:
    return dict(os.environ)


@server.tool()
def big(size: int) -> str:
    return "x" * size


@server.tool()
def picture() -> Image:
    return Image(data=b"12345", format="png")


@server.tool()
def fails() -> str:
    raise ToolError("the file is locked")


@server.tool()
def hangs() -> str:
    time.sleep(300)
    return ""


@server.tool()
async def changes(context: Context) -> str:
    await context.session.send_tool_list_changed()
    return "done"


@server.tool()
def dies() -> str:
    print("out of luck", file=sys.stderr, flush=True)
    os._exit(7)


@server.tool()
def floods() -> str:
    block = b"x" * (1 << 20)
    for _ in range(64):
        os.write(wire, block)
    return ""


@server.tool()
def forbidden() -> str:
    return ""


server.run("stdio")
"""

WEB = """\
import sys
import uvicorn
from mcp.server import MCPServer

server = MCPServer("web")


@server.tool()
def greet(whom: str) -> str:
    return f"Hello, {whom}"


uvicorn.run(server.streamable_http_app(), fd=int(sys.argv[1]), log_level="critical")
"""

Use = Callable[..., ToolResult]


def scripted(**more: Any) -> McpServer:
    Path("server.py").write_text(SERVER)
    given = {"tools": None, "timeout": 30.0, "env": {}, **more}
    return McpServer("my files", (sys.executable, "server.py"), "", **given)


def policy(**said: Any) -> ToolPolicy:
    parsed, problems = parse_policy(said)
    assert not problems
    return parsed


def boxed(servers: McpServers, allowed: ToolPolicy, deadline: float | None = None) -> Toolbox:
    outputs = Outputs()
    context = ToolContext(Workspace(Path.cwd(), [Mount("@output", outputs.path)]), allowed, outputs, deadline)
    return Toolbox((*FILES, *servers.tools()), context)


@pytest.fixture
def use() -> Iterator[Use]:
    """Calls a tool of the scripted server by what a policy calls it."""
    allowed = policy(allow=["mcp/*"], deny=["mcp/*/forbidden"])
    environ = {**os.environ, "OPENAI_API_KEY": "sk-1", "TOKEN_OF_MINE": "t-1"}
    server = scripted(env={"TOKEN": "$TOKEN_OF_MINE", "PLAIN": "a $x"}, tools=("[!b]*", "big"))
    with McpServers([server], allowed, environ, Path.cwd()) as servers, boxed(servers, allowed) as box:
        names = {tool.known_as: tool.name for tool in servers.tools()}

        def call(tool: str, **arguments: Any) -> ToolResult:
            return box.call(names[f"mcp/my files/{tool}"], json.dumps(arguments))

        call.names, call.box, call.servers = names, box, servers  # type: ignore[attr-defined]
        yield call
    assert_gone()


def assert_gone(at_once: bool = False) -> None:
    """The server has ended, and so has what it started, in its own group and outside."""
    for pid in Path("pids").read_text().split():
        if at_once:
            assert not alive(pid)
        wait_until_gone(pid)


def message(result: ToolResult) -> str:
    assert not result.ok
    return f"{result.value['error']['code']}: {result.value['error']['message']}"


def test_a_server_s_tools_are_called_through_the_toolbox_and_whatever_they_answer_is_json(use: Use) -> None:
    box, names = use.box, use.names  # type: ignore[attr-defined]
    assert "mcp/my files/forbidden" not in names
    offered = {each["function"]["name"]: each["function"] for each in box.offered()}
    assert set(names.values()) == set(offered)  # the policy leaves none of the standard ones
    assert offered[names["mcp/my files/add"]]["description"] == "Adds."
    assert set(offered[names["mcp/my files/add"]]["parameters"]["properties"]) == {"a", "b"}

    assert use("add", a=2, b=3).value == {"ok": True, "result": {"result": 5}}
    assert message(use("add", a="2", b=3)).startswith("invalid_arguments: ")
    assert "the file is locked" in message(use("fails"))
    assert use("picture").value == {"ok": True, "text": "", "omitted": ["image, image/png, 6 bytes"]}
    large = use("big", size=300_000).value
    assert large["truncated"] is True and len(json.dumps(large)) < 50_000
    assert box.call("read_file", {"path": "@output/1.txt"}).value["error"]["code"] == "denied"
    environ = use("environment.of").value["result"]
    assert (environ["TOKEN"], environ["PLAIN"]) == ("t-1", "a $x")
    assert "OPENAI_API_KEY" not in environ and "TOKEN_OF_MINE" not in environ
    assert use("changes").value["ok"]
    assert use("add", a=1, b=1).ok
    # In the end it dies within a call, which costs that call and those that follow.
    assert message(use("dies")) == 'failed: MCP server "my files" exited with 7: out of luck'
    assert message(use("add", a=1, b=1)) == 'failed: MCP server "my files" exited with 7: out of luck'


def test_a_call_that_hangs_or_floods_is_an_error_and_the_server_ends_with_the_block() -> None:
    with McpServers([scripted()], policy(), os.environ, Path.cwd()) as servers:
        names = {tool.known_as: tool.name for tool in servers.tools()}
        with boxed(servers, policy(), time.monotonic() + 0.5) as box:
            hung = message(box.call(names["mcp/my files/hangs"], "{}"))
            assert hung.startswith('timeout: MCP server "my files" did not answer within 0.')
        with boxed(servers, policy()) as box:
            flooded = message(box.call(names["mcp/my files/floods"], "{}"))
            assert flooded == 'failed: MCP server "my files" sent a message of more than 16 MiB'
    assert_gone()


@pytest.mark.parametrize("broken", [AgentFailed("no"), KeyboardInterrupt()], ids=["fails", "is interrupted"])
def test_what_a_server_has_started_ends_with_it_though_the_agent(broken: BaseException) -> None:
    with (
        pytest.raises(type(broken)),
        McpServers([scripted()], policy(), os.environ, Path.cwd()) as servers,
    ):
        servers.tools()
        raise broken
    assert_gone(at_once=True)


def test_a_server_may_be_reached_by_its_address() -> None:
    Path("web.py").write_text(WEB)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
        number = listening.fileno()
        running = subprocess.Popen([sys.executable, "web.py", str(number)], pass_fds=[number])
    server = McpServer("web", (), url, {}, None, None)
    try:
        with (
            McpServers([server], policy(), os.environ, Path.cwd()) as servers,
            boxed(servers, policy()) as box,
        ):
            assert box.call("mcp__web__greet", {"whom": "you"}).value == {"ok": True, "text": "Hello, you"}
    finally:
        running.kill()
        running.wait()
    with (
        pytest.raises(AgentFailed, match='MCP server "web" cannot be reached'),
        McpServers([server], policy(), os.environ, Path.cwd()) as servers,
    ):
        servers.tools()


@pytest.mark.parametrize(
    ("command", "env", "problem"),
    [
        (("no-such-server",), {}, "command 'no-such-server' is not on PATH"),
        (("sh", "-c", "echo not logged in >&2; exit 3"), {}, "exited with 3: not logged in"),
        (
            ("sh", "-c", "echo usage: server; exec sleep 300"),
            {},
            "printed what is not a message: usage: server",
        ),
        (("sleep", "300"), {}, "did not answer within"),
        (("sleep", "300"), {"KEY": "$NOT_SET"}, "the variable NOT_SET is not set"),
    ],
)
def test_a_server_that_does_not_start_fails_the_agent_by_its_name(
    command: tuple[str, ...], env: dict[str, str], problem: str
) -> None:
    server = McpServer("broken", command, "", env, None, None)
    soon = time.monotonic() + 0.5
    with (
        pytest.raises(AgentFailed, match='MCP server "broken"') as caught,
        McpServers([server], policy(), os.environ, Path.cwd(), soon) as servers,
    ):
        servers.tools()
    assert problem in caught.value.message and caught.value.hint


def test_a_server_none_of_whose_tools_may_be_used_is_not_started() -> None:
    server = McpServer("files", ("no-such-server",), "", {}, None, None)
    for said in ({"allow": ["read_file", "mcp/other/*"]}, {"deny": ["mcp/*"]}, {"deny": ["mcp/files/*"]}):
        with McpServers([server], policy(**said), os.environ, Path.cwd()) as servers:
            assert servers.tools() == []
    for said in ({}, {"allow": ["mcp/*/read*"]}, {"allow": ["mcp/files/read"]}, {"deny": ["mcp/files/rm*"]}):
        assert could_permit(policy(**said), "mcp/files/"), said


def test_names_for_models_are_short_plain_and_never_the_same() -> None:
    long = "mcp/files/" + "x" * 100
    found = wire_names(["mcp/files/read", "mcp/a b/c", "mcp/a.b/c", "mcp/a/b__c", "mcp/a__b/c", long])
    assert found["mcp/files/read"] == "mcp__files__read"
    assert len(set(found.values())) == len(found)
    assert all(
        len(name) <= 64 and name.replace("_", "").replace("-", "").isalnum() for name in found.values()
    )
    assert wire_names([long])[long] == found[long]


SPARSE = """\
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    print(asked["method"], file=open("asked", "a"))
    result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "", "version": ""}}
    if asked["method"] == "tools/list":
        schemas = {"good": {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}, "none": 5,
            "array": {"type": "array"}, "odd": {"type": "object", "properties": {"a": {"type": "nonsense"}}}}
        result = {"tools": [7, *({"name": name, "inputSchema": each} for name, each in schemas.items())]}
    if asked["method"] in ("initialize", "tools/list"):
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


def test_a_server_is_asked_nothing_that_it_may_not_know_and_only_its_bad_tools_are_left_out() -> None:
    Path("sparse.py").write_text(SPARSE)
    server = McpServer("sparse", (sys.executable, "sparse.py"), "", {}, None, None)
    with McpServers([server], policy(), os.environ, Path.cwd()) as servers:
        assert [tool.known_as for tool in servers.tools()] == ["mcp/sparse/good"]
        assert [note.split(" was left out")[0] for note in servers.notes] == [
            f"mcp/sparse/{name}" for name in ("?", "none", "array", "odd")
        ]
    asked = Path("asked").read_text().split()
    assert asked == ["initialize", "notifications/initialized", "tools/list"]
