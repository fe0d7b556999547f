"""The SDK of the Agent Client Protocol: it reads the frames of the scripted agent, and an agent that is written with it
takes a step."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from acp_steps import AGENT, Steps

from uwf_git.store.instance import Instance

ASKING = """
import asyncio
import os
from typing import Any

import acp
from acp import schema


class Asking(acp.Agent):
    def on_connect(self, conn: Any) -> None:
        self.client = conn

    async def initialize(self, protocol_version: int, **_: Any) -> Any:
        abilities = schema.AgentCapabilities(load_session=True)
        return schema.InitializeResponse(protocol_version=protocol_version, agent_capabilities=abilities)

    async def new_session(self, cwd: str, **_: Any) -> Any:
        return schema.NewSessionResponse(session_id="the-only-one")

    async def load_session(self, cwd: str, session_id: str, **_: Any) -> Any:
        await self.client.session_update(session_id, acp.update_agent_message_text("Said before."))
        return schema.LoadSessionResponse()

    async def prompt(self, session_id: str, prompt: Any, **_: Any) -> Any:
        file = await self.client.read_text_file(session_id=session_id, path=os.path.abspath("a.txt"))
        start = acp.start_tool_call("call-1", "make", kind="execute", raw_input={"command": "make"})
        await self.client.session_update(session_id, start)
        option = schema.PermissionOption(option_id="yes", name="yes", kind="allow_once")
        call = schema.ToolCallUpdate(tool_call_id="call-1")
        answer = await self.client.request_permission(session_id=session_id, tool_call=call, options=[option])
        text = f"---\\nsummary: {file.content} {answer.outcome.outcome}\\n---\\n"
        await self.client.session_update(session_id, acp.update_agent_message_text(text))
        usage = schema.Usage(total_tokens=3, input_tokens=2, output_tokens=1)
        return schema.PromptResponse(stop_reason="end_turn", usage=usage)


asyncio.run(acp.run_agent(Asking(), use_unstable_protocol=True))
"""


def test_an_agent_that_is_written_with_the_sdk_takes_steps(
    instance: Instance, script: Callable[[str, str], Path], hermetic: Path
) -> None:
    (hermetic / "work" / "a.txt").write_text("hello")
    program = script("asking", ASKING)
    steps = Steps(instance.location.root, ["--", str(program)], "tools: {permissions: [execute, read]}\n")
    first, second = steps.step(), steps.step()
    assert (first.error, first.output) == ("", {"summary": "hello selected"})
    assert first.detail["usage"] == {"input": 2, "output": 1, "cached": 0}
    assert second.detail["session"] == first.detail["session"] == "the-only-one"
    assert second.said == first.said


@pytest.mark.parametrize(
    "scenario", ["work", "do:execute", "ask:execute=make|read=a.txt", "explain:no", "files:read /a"]
)
def test_the_sdk_reads_the_frames_of_the_scripted_agent(tmp_path: Path, scenario: str) -> None:
    from acp import schema

    options = ["--resume", "--folders", "--sessions", str(tmp_path)]
    words = [sys.executable, "-S", str(AGENT), *options, scenario]
    agent = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
    assert agent.stdin and agent.stdout
    requests: dict[str, type] = {
        "session/update": schema.SessionNotification,
        "session/request_permission": schema.RequestPermissionRequest,
        "fs/read_text_file": schema.ReadTextFileRequest,
        "terminal/create": schema.CreateTerminalRequest,
    }
    answers = {"session/request_permission": {"result": {"outcome": {"outcome": "cancelled"}}}}

    def send(**frame: Any) -> None:
        print(json.dumps({"jsonrpc": "2.0", **frame}), file=agent.stdin)

    def ask(method: str, model: type, **params: Any) -> Any:
        send(id=method, method=method, params=params)
        for line in agent.stdout or ():
            frame = json.loads(line)
            if "method" not in frame:
                assert frame["id"] == method
                return model.model_validate(frame["result"])  # type: ignore[attr-defined]
            if frame["params"].get("update", {}).get("sessionUpdate") != "of_the_future":
                requests[frame["method"]].model_validate(frame["params"])  # type: ignore[attr-defined]
            if "id" in frame:
                refused = {"error": {"code": -32601, "message": "no"}}
                send(id=frame["id"], **answers.get(frame["method"], refused))
        raise EOFError

    opened = {"cwd": str(tmp_path), "mcpServers": []}
    ask("initialize", schema.InitializeResponse, protocolVersion=1, clientCapabilities={})
    session = ask("session/new", schema.NewSessionResponse, **opened).session_id
    prompt = [{"type": "text", "text": "Do it"}]
    ask("session/prompt", schema.PromptResponse, sessionId=session, prompt=prompt)
    ask("session/load", schema.LoadSessionResponse, sessionId=session, **opened)
    ask("session/resume", schema.ResumeSessionResponse, sessionId=session, **opened)
    agent.communicate()
