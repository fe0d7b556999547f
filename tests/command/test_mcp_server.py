"""`uwf mcp`: the client of the `mcp` package drives the real server over its standard input and output."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from approvers import Colleague, at_gate
from cli_samples import GATE, ONE, PAIR, write
from commands import alive
from conftest import Uwf
from late_import import imported_late
from warm import shared as warm_uwf

from uwf_git.base.extras import install_hint
from uwf_git.ext.mcp.tools import TOOLS

if TYPE_CHECKING:
    import mcp
    from mcp import Client
    from mcp.client import stdio
else:
    mcp = imported_late("mcp", "pip install '.[mcp]'")
    stdio = imported_late("mcp.client.stdio")

ASKS_ONCE = """\
- { role: writer, output: { status: needs_input, question: Which colour?, options: [red, blue] } }
- { role: writer, output: { text: "a red text, token is hunter2hunter2" } }
- { role: critic, output: { approved: true } }
"""
SLEEPS = """\
import os, pathlib, subprocess, time
print("this is not a hash", flush=True)
child = subprocess.Popen(["sh", "-c", "echo noise; exec sleep 300"])
pathlib.Path("pids").write_text(f"{os.getpid()} {child.pid}\\n")
time.sleep(300)
"""
CONFIG = """\
agents:
  player: {{ command: uwf-rehearse, args: [--script, {script}] }}
  sleeper: {{ command: {sleeper} }}
defaultAgent: player
agentOverrides: {{ slow: {{ writer: sleeper }} }}
"""

Scenario = Callable[["Client"], Awaitable[None]]


def drive(scenario: Scenario, *options: str, mode: str = "legacy") -> None:
    """Runs a scenario against a server of its own, and looks at what that said on stderr."""
    warm = warm_uwf()
    server = "uwf"
    if warm is not None and warm.can(os.environ):
        server = str(warm.program(Path(os.environ["HOME"]) / "server", again=False))
    with Path("stderr").open("w+") as said:

        async def run() -> None:
            started = mcp.StdioServerParameters(command=server, args=["mcp", *options], env=dict(os.environ))
            with anyio.fail_after(90):
                async with mcp.Client(stdio.stdio_client(started, errlog=said), mode=mode) as client:
                    await scenario(client)

        anyio.run(run)
        said.seek(0)
        assert said.read() == ""


async def call(client: Client, tool: str, **arguments: Any) -> Any:
    """The result of a tool that does its work."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    assert json.loads(result.content[0].text) == result.structured_content  # type: ignore[union-attr]
    return result.structured_content


async def refused(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """The error of a tool that doesn't."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error
    assert result.structured_content["error"]["message"] in result.content[0].text  # type: ignore[union-attr]
    return dict(result.structured_content["error"])


@pytest.fixture
def configured(config: Callable[[str], Path], script: Callable[[str, str], Path]) -> None:
    write("pair.yaml", PAIR)
    write("slow.yaml", PAIR.replace("name: pair", "name: slow"))
    replies = write("replies.yaml", ASKS_ONCE).absolute()
    config(CONFIG.format(script=replies, sleeper=script("sleeper", SLEEPS)))


def test_a_client_takes_a_thread_from_its_start_to_its_end(configured: None, uwf: Uwf) -> None:
    async def scenario(client: Client) -> None:
        assert (await client.list_resources()).resources == []
        hints = {tool.name: tool.annotations for tool in (await client.list_tools()).tools}
        writing = {name: hint for name, hint in hints.items() if hint and not hint.read_only_hint}
        assert {name for name, hint in writing.items() if hint.destructive_hint} == {
            "step_thread",
            "retry_thread",
            "kill_thread",
        }
        assert {name for name, hint in hints.items() if hint and hint.open_world_hint} == {
            "step_thread",
            "retry_thread",
            "extract",
        }
        await call(client, "rehearse_workflow", workflow="pair.yaml")
        made = await call(client, "start_thread", workflow="pair.yaml", prompt="-")
        thread = made["thread"]
        assert uwf("thread", "read", thread, "--format", "json").json["prompt"] == "-"
        assert (await call(client, "step_thread", thread=thread[:12]))["status"] == "waiting"
        asked = await call(client, "show_thread", thread=thread)
        assert (asked["question"], asked["options"]) == ("Which colour?", ["red", "blue"])
        assert (await refused(client, "step_thread", thread=thread))["code"] == "waiting"
        assert [each["thread"] for each in (await call(client, "inbox"))["waiting"]] == [thread]
        answer = {"thread": thread, "answer": "--red", "step": asked["head"]}
        assert (await refused(client, "answer_thread", **answer))["code"] == "usage"
        await call(client, "answer_thread", **answer, other=True)
        await call(client, "step_thread", thread=thread)
        done = await call(client, "step_thread", thread=thread)
        assert (done["status"], done["role"]) == ("completed", "critic")

        steps = await call(client, "thread_steps", thread=thread)
        assert steps["steps"] == uwf("thread", "steps", thread).json
        assert [step["output"] for step in steps["steps"]][1] == {"answer": "--red"}
        read = await call(client, "read_thread", thread=thread)
        assert read == uwf("thread", "read", thread, "--format", "json").json
        newest = await call(client, "read_thread", thread=thread, quota=1)
        assert (len(newest["steps"]), newest["omitted"]) == (1, 3)
        details = await call(client, "step_details", step=steps["steps"][0]["step"])
        assert details["role"] == "writer"
        turns = await call(client, "thread_turns", thread=thread, step=steps["steps"][0]["step"])
        assert "Which colour?" in turns["turns"][0]["text"]
        forked = await call(client, "fork_thread", origin=thread, at=2)
        said = await call(client, "say_to_thread", thread=forked["thread"], message="--gently")
        assert (said["status"], said["role"]) == ("idle", "$USER")
        listed = (await call(client, "list_threads", all=True))["threads"]
        assert {each["thread"] for each in listed} == {thread, forked["thread"]}

        resources = {each.name: each for each in (await client.list_resources()).resources}
        page = (await client.read_resource(resources[thread].uri)).contents[0]
        assert page.text == uwf("thread", "read", thread).out  # type: ignore[union-attr]
        with pytest.raises(mcp.MCPError, match="no thread"):
            await client.read_resource("uwf://thread/01ARZ3NDEKTSV4RRFFQ69G5FAV")

    drive(scenario)


def test_a_client_sees_what_the_pages_show(configured: None, uwf: Uwf) -> None:
    uwf("workflow", "put", write("gated.yaml", GATE))
    uwf("config", "set", "agentOverrides.gated.writer", "uwf-rehearse")

    async def scenario(client: Client) -> None:
        thread = (await call(client, "start_thread", workflow="gated", prompt="Announce it"))["thread"]
        await call(client, "step_thread", thread=thread)
        shown = await call(client, "board", filter="--status waiting announce")
        assert (shown["counts"]["waiting"], shown["total"]) == (1, 1)
        (item,) = shown["items"]
        assert (item["now"], item["lineKind"], item["steps"]) == ("gate", "question", 1)
        assert (await call(client, "board", view="last-night", group="failed"))["items"] == []
        wrong = await refused(client, "board", filter="--odd")
        assert wrong["message"] == "no filter '--odd'"
        assert (await refused(client, "board", view="odd"))["code"] == "not_found"
        (waits,) = (await call(client, "inbox", group="asks"))["waiting"]
        assert (waits["group"], waits["thread"]) == ("asks", thread)
        assert (await call(client, "inbox", group="failed"))["waiting"] == []
        bars = (await call(client, "thread_timeline", thread=thread[:20]))["bars"]
        assert bars[0]["role"] == "writer"
        step = await call(client, "show_step", thread=thread, number=1)
        assert (step["role"], "result" in step, "prompt" in step) == ("writer", True, False)
        assert (await refused(client, "show_step", thread=thread, number=7))["code"] == "not_found"

    drive(scenario)


def test_the_turns_of_a_step_that_printed_much_are_bounded(configured: None, uwf: Uwf) -> None:
    uwf("workflow", "put", write("one.yaml", ONE))
    thread = uwf("thread", "start", "one", "-p", "x").json["thread"]
    many = """uwf-exec --tail 900000 sh -c 'seq -f "line %06.0f" 100000 >&2; echo "{\\"n\\": 1}"'"""
    uwf("thread", "step", thread, "--agent", many)

    async def scenario(client: Client) -> None:
        step = await call(client, "show_step", thread=thread, number=1, parts=["turns"])
        (turn,) = step["turns"]["items"]
        assert "line 0" in turn["text"]
        assert "more characters are left out" in turn["text"]
        assert len(json.dumps(step)) < 60_000

    drive(scenario)


def test_a_persons_role_is_played_with_its_fields(configured: None, uwf: Uwf) -> None:
    uwf("workflow", "put", write("gated.yaml", GATE))
    uwf("config", "set", "agentOverrides.gated.writer", "uwf-rehearse")

    async def scenario(client: Client) -> None:
        thread = (await call(client, "start_thread", workflow="gated", prompt="Announce it"))["thread"]
        assert (await call(client, "step_thread", thread=thread))["status"] == "waiting"
        (waits,) = (await call(client, "inbox"))["waiting"]
        assert [each["name"] for each in waits["fields"]] == ["decision", "note", "readers"]
        wrong = await refused(client, "answer_thread", thread=thread, fields={"decision": "--other"})
        assert wrong["code"] == "usage"
        fields = {"decision": "send", "readers": ["a", "b"]}
        done = await call(client, "answer_thread", thread=thread, step=waits["step"], fields=fields)
        assert (done["status"], done["role"]) == ("completed", "gate")
        steps = (await call(client, "thread_steps", thread=thread))["steps"]
        assert steps[-1]["output"] == {"decision": "send", "readers": ["a", "b"]}

    drive(scenario)


def test_what_goes_wrong_is_an_error_with_a_code_a_hint_and_an_exit_status(configured: None) -> None:
    write("click.py", "raise SystemExit('code of the folder was run')")
    write("../outside.yaml", PAIR)
    Path("link.yaml").symlink_to("../outside.yaml")

    async def scenario(client: Client) -> None:
        assert (await refused(client, "list_threads"))["hint"] == "make one with: uwf init"
        missing = await refused(client, "start_thread", workflow="pear", prompt="x")
        assert (missing["code"], missing["exitStatus"]) == ("not_found", 3)
        made = await call(client, "start_thread", workflow="pair.yaml", prompt="x")
        assert (await refused(client, "show_thread", thread="--help"))["code"] == "not_found"
        for wrong in ({}, {"thread": 7}, {"thraed": "x"}, {"thread": "x\0"}, {"thread": "x" * 9999}):
            assert (await refused(client, "show_thread", **wrong))["code"] == "usage", wrong
        for file in ("../outside.yaml", "link.yaml", "/etc/passwd"):
            assert "outside of" in (await refused(client, "validate_workflow", file=file))["message"]
            assert (await refused(client, "start_thread", workflow=file, prompt="x"))["code"] == "usage"
        assert (await refused(client, "start_thread", workflow="pair.yaml", prompt="x", cwd=".."))[
            "exitStatus"
        ] == 2
        assert (
            "no argument 'agent'"
            in (await refused(client, "step_thread", thread=made["thread"], agent="sh -c id"))["message"]
        )

        report = await call(client, "validate_workflow", source="name: [x\n")
        assert (report["valid"], report["file"]) == (False, "workflow.yaml")
        broken = await refused(
            client, "rehearse_workflow", source=PAIR.replace("{ role: critic }", "{ role: c }")
        )
        assert broken["code"] == "invalid" and broken["findings"]
        write("replies.yaml", "- { role: critic, output: {} }\n")
        failed = await refused(client, "step_thread", thread=made["thread"])
        assert (failed["code"], failed["exitStatus"]) == ("agent_failed", 6)
        attempts = await call(client, "thread_attempts", thread=made["thread"])
        assert [each["error"] for each in attempts["attempts"]] == [failed["message"]]
        write("replies.yaml", ASKS_ONCE)
        tried = await call(client, "retry_thread", thread=made["thread"][:12])
        assert (tried["thread"], tried["detached"]) == (made["thread"], True)
        while (await call(client, "show_thread", thread=made["thread"]))["status"] != "completed":
            await anyio.sleep(0.05)
        assert (await refused(client, "retry_thread", thread=made["thread"]))["code"] == "invalid"
        with pytest.raises(mcp.MCPError, match="no tool"):
            await client.call_tool("rm_thread", {})

    drive(scenario, mode="auto")


def test_a_long_step_reports_progress_holds_nobody_up_and_ends_when_cancelled(configured: None) -> None:
    told: list[str | None] = []

    async def heard(_progress: float, _total: float | None, message: str | None) -> None:
        told.append(message)

    async def scenario(client: Client) -> None:
        thread = (await call(client, "start_thread", workflow="slow.yaml", prompt="x"))["thread"]
        async with anyio.create_task_group() as group:
            group.start_soon(
                partial(client.call_tool, "step_thread", {"thread": thread}, progress_callback=heard)
            )
            pids = await agents()
            assert (await call(client, "show_thread", thread=thread))["status"] == "running"
            assert (await refused(client, "step_thread", thread=thread))["code"] == "busy"
            assert told[0] == "writer works, 0 s"
            group.cancel_scope.cancel()
        await gone(pids)
        while (await call(client, "show_thread", thread=thread))["status"] == "running":
            await anyio.sleep(0.05)
        attempts = await call(client, "thread_attempts", thread=thread)
        assert [each["role"] for each in attempts["attempts"]] == ["writer"]

        shown = await call(client, "step_thread", thread=thread, wait=0.5)
        assert shown["thread"] == thread  # it was asked to wait, and goes on
        pids = await agents()
        paused = await call(client, "pause_thread", thread=thread, now=True, reason="-m")
        assert (paused["status"], paused["paused"]["reason"]) == ("paused", "-m")
        await gone(pids)
        assert (await refused(client, "step_thread", thread=thread))["code"] == "paused"
        assert (await call(client, "resume_thread", thread=thread))["status"] == "idle"

        shown = await call(client, "step_thread", thread=thread, wait=0.5)
        pids = await agents()
        killed = await call(client, "kill_thread", thread=thread, reason="enough")
        assert killed["archived"]
        assert (
            "defines no `resume`"
            in (await refused(client, "resume_thread", thread=thread, message="-m"))["message"]
        )
        await gone(pids)

    drive(scenario)


async def agents() -> list[int]:
    """The processes of the agent that works, as soon as it does."""
    path = Path("pids")
    while not (path.exists() and path.read_text().endswith("\n")):
        await anyio.sleep(0.02)
    pids = [int(word) for word in path.read_text().split()]
    path.unlink()
    return pids


async def gone(pids: list[int]) -> None:
    while any(alive(pid) for pid in pids):
        await anyio.sleep(0.02)


def test_standard_output_holds_frames_only_and_a_client_that_goes_ends_the_step(
    configured: None, uwf: Uwf, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Every step prints, in the process of the step and in a process below it.
    write(
        "noise/sitecustomize.py", 'import os, sys\nif "step" in sys.orig_argv: os.system("echo a; echo {")\n'
    )
    monkeypatch.setenv("PYTHONPATH", str(Path("noise").absolute()))
    quick = uwf("thread", "start", "pair.yaml", "-p", "x").json["thread"]
    slow = uwf("thread", "start", "slow.yaml", "-p", "x").json["thread"]
    server = subprocess.Popen(
        ["uwf", "mcp"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert server.stdin is not None and server.stdout is not None and server.stderr is not None
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}}
    step = {"name": "step_thread", "arguments": {"thread": quick}}
    for number, method, params in (
        (1, "initialize", hello),
        (None, "notifications/initialized", {}),
        (2, "tools/call", step),
        (3, "tools/call", {"name": "step_thread", "arguments": {"thread": slow}}),
    ):
        frame = {"jsonrpc": "2.0", "method": method, "params": params}
        server.stdin.write(json.dumps(frame if number is None else {**frame, "id": number}) + "\nno frame\n")
        server.stdin.flush()
    first = [json.loads(server.stdout.readline()) for _ in range(2)]
    assert [each["id"] for each in first] == [1, 2]
    assert first[1]["result"]["structuredContent"]["status"] == "waiting"
    pids = anyio.run(agents)
    server.stdin.close()
    rest = server.stdout.read()
    assert all(json.loads(line)["jsonrpc"] == "2.0" for line in rest.splitlines())
    assert server.wait(30) == 0
    assert not any(alive(pid) for pid in pids)
    assert uwf("thread", "show", slow).json["status"] == "idle"


def test_no_command_is_started_for_what_runs_no_agent_and_rehearses_nothing(
    configured: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(
        "seen/sitecustomize.py",
        f"import sys\nprint(*sys.orig_argv[-3:], file=open({str(Path('started').absolute())!r}, 'a'))\n",
    )
    monkeypatch.setenv("PYTHONPATH", str(Path("seen").absolute()))

    async def scenario(client: Client) -> None:
        thread = (await call(client, "start_thread", workflow="pair.yaml", prompt="x"))["thread"]
        for tool in ("show_thread", "thread_steps", "fork_thread", "pause_thread", "kill_thread"):
            await call(client, tool, **{"origin" if tool == "fork_thread" else "thread": thread})
        last = [line.split()[-1] for line in Path("started").read_text().splitlines()]
        assert [word for word in last if word != "main()"] == ["mcp"]  # which is base/helper_process
        await refused(client, "step_thread", thread=thread)
        assert Path("started").read_text().splitlines()[-1].endswith("uwf_cli.main:run")

    drive(scenario)


def test_data_is_extracted_out_of_a_text_and_a_file_of_the_folder(configured: None) -> None:
    schema = {"type": "object", "properties": {"size": {"type": "integer"}}, "additionalProperties": False}
    write("note.md", "---\nsize: 3\nmood: good\n---\n")
    write("size.yaml", json.dumps(schema))

    async def scenario(client: Client) -> None:
        for given in (schema, "size.yaml"):
            assert await call(client, "extract", schema=given, file="note.md") == {"data": {"size": 3}}
        assert await call(client, "extract", schema={"type": "array"}, text="[1]") == {"data": [1]}
        error = await refused(client, "extract", schema=schema, text="It has three.")
        assert error["hint"] == "no model is configured to read it: uwf setup"
        for outside in ({"schema": "../x.yaml", "text": "a"}, {"schema": schema, "file": "/etc/hosts"}):
            assert "is outside of" in (await refused(client, "extract", **outside))["message"]

    drive(scenario, "--read-only")


def test_read_only_offers_only_what_reads(configured: None) -> None:
    async def scenario(client: Client) -> None:
        tools = (await client.list_tools()).tools
        assert {tool.name for tool in tools} == {tool.name for tool in TOOLS if not tool.writes}
        assert all(tool.annotations and tool.annotations.read_only_hint for tool in tools)
        with pytest.raises(mcp.MCPError, match="no tool"):
            await client.call_tool("start_thread", {"workflow": "pair.yaml", "prompt": "x"})

    drive(scenario, "--read-only")


def test_without_the_package_one_line_says_what_to_install(uwf: Uwf, monkeypatch: pytest.MonkeyPatch) -> None:
    write("hidden/sitecustomize.py", "import sys\nsys.modules['mcp'] = None\n")
    monkeypatch.setenv("PYTHONPATH", str(Path("hidden").absolute()))
    result = uwf("mcp", check=1, env={"UWF_FORMAT": "text"})
    assert result.err == f"uwf: uwf mcp needs the package mcp — {install_hint('mcp')}\n"
    entry = uwf("mcp", "--print-config", "--read-only", "--cwd", ".").json["mcpServers"]["uwf"]
    root = os.environ["UWF_STORAGE_ROOT"]
    assert entry["args"] == ["mcp", "--read-only", "--root", root, "--cwd", str(Path.cwd())]
    assert Path(entry["command"]).is_absolute()


def test_no_tool_approves_whoever_the_server_runs_as(
    configured: None, uwf: Uwf, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = at_gate(uwf)
    for name, value in Colleague(uwf, "ann").environment.items():
        monkeypatch.setenv(name, value)

    async def scenario(client: Client) -> None:
        for tool, given in (
            ("answer_thread", {"fields": {"decision": "ship"}}),
            ("answer_thread", {"answer": "ship"}),
            ("resume_thread", {"message": "ship"}),
        ):
            wrong = await refused(client, tool, thread=thread, **given)
            assert wrong["code"] == "requirement_unmet" and "an agent cannot approve" in wrong["message"]
        (waits,) = (await call(client, "inbox"))["waiting"]
        assert waits["approvals"]["given"] == []

    drive(scenario)


SCRIPT = """\
export const meta = { name: "vote", description: "Asks two." };
return (await parallel([1, 2].map((each) => () => agent(`Vote ${each}`)))).length + args.more;
"""


@pytest.mark.needs("bwrap", "node")
def test_a_script_that_a_client_writes_runs_once_the_user_trusts_it_and_no_sooner(
    config: Callable[[str], Path], uwf: Uwf
) -> None:
    config("defaultAgent: uwf-rehearse\n")
    write("mine.js", SCRIPT.replace("vote", "mine"))

    async def scenario(client: Client) -> None:
        guide = await call(client, "guide", topic="scripts")
        assert "export const meta" in guide["text"]
        wrong = await refused(client, "start_thread", source=SCRIPT + 'import fs from "fs";\n', prompt="1")
        assert "cannot import" in wrong["message"]
        assert (await call(client, "validate_workflow", source=SCRIPT))["valid"]
        proposed = await client.call_tool("start_thread", {"source": SCRIPT, "prompt": '{"more": 1}'})
        thread = proposed.structured_content["thread"]
        note = proposed.content[1].text  # type: ignore[union-attr]
        assert (await refused(client, "step_thread", thread=thread))["code"] == "untrusted"
        named = await call(client, "start_thread", workflow="mine.js", prompt='{"more": 1}')
        assert (await refused(client, "step_thread", thread=named["thread"]))["code"] == "untrusted"
        uwf(*note.partition("uwf ")[2].split(), "--yes")
        assert (await call(client, "step_thread", thread=thread))["status"] == "completed"
        assert (await call(client, "read_thread", thread=thread))["steps"][-1]["output"] == 3

    drive(scenario)


def test_a_step_is_refused_if_its_thread_cannot_reach_its_end(config: Callable[[str], Path]) -> None:
    config(
        "agents:\n  one: {command: uwf-exec, args: [touch, asked]}\nagentOverrides: {pair: {critic: gone}}\n"
    )
    write("pair.yaml", PAIR)

    async def scenario(client: Client) -> None:
        thread = (await call(client, "start_thread", workflow="pair.yaml", prompt="x"))["thread"]
        error = await refused(client, "step_thread", thread=thread)
        assert error["message"].startswith("workflow pair cannot run to its end here: role critic")
        assert (await call(client, "thread_steps", thread=thread))["steps"] == []

    drive(scenario)


@pytest.mark.needs("bwrap", "node")
def test_an_end_with_failures_has_its_census_beside_the_error(
    config: Callable[[str], Path], uwf: Uwf
) -> None:
    config("defaultAgent: fails\nagents: {fails: {command: uwf-exec, args: [sh, -c, 'exit 3']}}\n")
    write("mine.js", SCRIPT.replace("vote", "mine"))
    uwf("workflow", "put", "mine.js")

    async def scenario(client: Client) -> None:
        thread = (await call(client, "start_thread", workflow="mine", prompt='{"more": 1}'))["thread"]
        ended = await refused(client, "step_thread", thread=thread)
        assert ended["code"] == "completed_with_failures" and "in 2 of 2 calls" in ended["message"]
        assert ended["result"]["census"] == {
            "of": "calls",
            "asked": 2,
            "answered": 0,
            "failed": 2,
            "dropped": 0,
        }
        assert ended["result"]["status"] == "completed-with-failures"

    drive(scenario)
