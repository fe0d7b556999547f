"""An agent that speaks the Agent Client Protocol and does what it is told on its command line, one scenario a
prompt:

    python acp_agent.py [--no-load] [--late] [--resume] [--folders] [--name NAME] [--modes ID,…] [--log FILE]
                        [--sessions FOLDER] SCENARIO…

A scenario is `name` or `name:argument`; the last one is repeated. `--sessions` keeps what was said to each
session, for a later process to load; with `--late` it answers the request to load one before it replays it. `--log`
is written a line of JSON for everything that comes in.

With one of the scenarios of BROKEN it doesn't load the SDK and breaks the protocol in that way.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ANSWER = "---\nsummary: It is done.\n---\n\nAll of it.\n"
BROKEN = ("version", "login", "nothing", "exit", "echo", "shout", "huge-frame", "odd-frames")


def main() -> None:
    arguments = sys.argv[1:]
    if arguments[-1] in BROKEN:
        _broken(arguments[-1])
        return
    from acp import run_agent

    asyncio.run(run_agent(_agent(arguments), use_unstable_protocol=True))


def _broken(how: str) -> None:
    def say(message: Any) -> None:
        print(message if isinstance(message, str) else json.dumps(message), flush=True)

    if how == "exit":
        print("first line", "fatal error: no such model", "at main.js:1", sep="\n", file=sys.stderr)
        sys.exit(3)
    if how == "shout":
        print("Welcome!\n" * 1000, flush=True)
        time.sleep(600)
    for line in sys.stdin:
        request = json.loads(line)
        answer = {"jsonrpc": "2.0", "id": request["id"]}
        if how == "nothing":
            print("usage: agent [--chat]", flush=True)
        elif how == "echo":
            say(line.strip())
        elif how == "huge-frame":
            sys.stdout.write('{"jsonrpc":"2.0","method":"session/update","params":{"x":"')
            for _ in range(40):
                sys.stdout.write("x" * 1024 * 1024)
        elif how == "version":
            say({**answer, "result": {"protocolVersion": 7}})
        elif how == "odd-frames":
            for odd in ("[]", "5", '{"id": {}}', '{"id": 0, "error": 3}', "[" * 5000, '{"method": 3}'):
                say(odd)
            say({"jsonrpc": "2.0", "method": "session/update", "params": {"update": []}})
            say(
                {
                    **answer,
                    "error": {
                        "code": -32603,
                        "message": "Internal\x1b[31m error",
                        "data": {"details": "no disk"},
                    },
                }
            )
        elif request["method"] == "initialize":
            ways = [
                {"id": "browser", "name": "Log in"},
                {"type": "env_var", "id": "key", "name": "Key", "description": "Needs AGENT_KEY", "vars": []},
            ]
            say({**answer, "result": {"protocolVersion": 1, "authMethods": ways}})
        elif request["method"] == "authenticate":
            say({**answer, "error": {"code": -32602, "message": "wrong key"}})
        else:
            say({**answer, "error": {"code": -32000, "message": "Authentication required"}})


def _agent(arguments: list[str]) -> Any:
    import acp
    from acp import RequestError, schema

    class Scripted(acp.Agent):
        """See the module's docstring."""

        def __init__(self) -> None:
            self._loads, self._resumes, self._log = True, False, Path(os.devnull)
            self._late: asyncio.Task[None] | None = None
            self._replays_late = False
            self._folders = False
            self._folder = Path(os.environ.get("TMPDIR", "/tmp"))
            self._name, self._modes = "scripted", ["ask", "plan"]
            rest = list(arguments)
            while rest[0].startswith("--"):
                option = rest.pop(0)
                if option == "--no-load":
                    self._loads = False
                elif option == "--late":
                    self._replays_late = True
                elif option == "--resume":
                    self._resumes = True
                elif option == "--folders":
                    self._folders = True
                elif option == "--name":
                    self._name = rest.pop(0)
                elif option == "--modes":
                    self._modes = rest.pop(0).split(",")
                elif option == "--log":
                    self._log = Path(rest.pop(0))
                else:
                    self._folder = Path(rest.pop(0))
            self._scenarios = rest
            self._cancelled = asyncio.Event()
            self._spent = 0.0

        def on_connect(self, conn: Any) -> None:
            self._client = conn

        async def initialize(self, protocol_version: int, client_capabilities: Any = None, **_: Any) -> Any:
            self._note(
                "initialize", client_capabilities.model_dump(mode="json", by_alias=True, exclude_none=True)
            )
            abilities = schema.SessionCapabilities(close=schema.SessionCloseCapabilities())
            if self._resumes:
                abilities.resume = schema.SessionResumeCapabilities()
            if self._folders:
                abilities.additional_directories = schema.SessionAdditionalDirectoriesCapabilities()
            return schema.InitializeResponse(
                protocol_version=protocol_version,
                agent_info=schema.Implementation(name=self._name, version="1"),
                agent_capabilities=schema.AgentCapabilities(
                    load_session=self._loads, session_capabilities=abilities
                ),
            )

        async def new_session(
            self, cwd: str, additional_directories: list[str] | None = None, **_: Any
        ) -> Any:
            self._note("new", cwd)
            if additional_directories:
                self._note("besides", additional_directories)
            session = f"session-{os.urandom(4).hex()}"
            self._file(session).write_text("")
            modes = [schema.SessionMode(id=each, name=each.upper()) for each in self._modes]
            return schema.NewSessionResponse(
                session_id=session,
                modes=schema.SessionModeState(current_mode_id=self._modes[0], available_modes=modes),
                config_options=[
                    schema.SessionConfigOptionSelect(
                        id="engine",
                        name="Model",
                        category="model",
                        type="select",
                        current_value="small",
                        options=[
                            schema.SessionConfigSelectOption(value=v, name=v) for v in ("small", "large")
                        ],
                    )
                ],
            )

        async def load_session(self, cwd: str, session_id: str, **_: Any) -> Any:
            self._note("load", session_id)
            if not self._file(session_id).exists():
                raise RequestError.resource_not_found(session_id)
            if self._replays_late:
                self._late = asyncio.create_task(self._replay(session_id, 0.05))
            else:
                await self._replay(session_id)
            return schema.LoadSessionResponse()

        async def _replay(self, session: str, after: float = 0) -> None:
            await asyncio.sleep(after)
            for line in self._file(session).read_text().splitlines():
                await self._update(session, acp.update_user_message_text(json.loads(line)))
                await self._update(session, acp.update_agent_message_text("Said before."))

        async def resume_session(self, session_id: str, **_: Any) -> Any:
            self._note("resume", session_id)
            return schema.ResumeSessionResponse()

        async def set_session_mode(self, session_id: str, mode_id: str, **_: Any) -> Any:
            self._note("mode", mode_id)

        async def set_config_option(self, session_id: str, config_id: str, value: Any, **_: Any) -> Any:
            self._note("option", [config_id, value])
            return schema.SetSessionConfigOptionResponse(config_options=[])

        async def close_session(self, session_id: str, **_: Any) -> Any:
            self._note("close", session_id)

        async def cancel(self, session_id: str, **_: Any) -> None:
            self._note("cancel", session_id)
            self._cancelled.set()

        async def prompt(self, session_id: str, prompt: Any, **_: Any) -> Any:
            text = "".join(block.text for block in prompt)
            self._note("prompt", text)
            with self._file(session_id).open("a") as file:
                file.write(json.dumps(text[:100]) + "\n")
            scenario = self._scenarios[0] if len(self._scenarios) == 1 else self._scenarios.pop(0)
            name, _, argument = scenario.partition(":")
            stop = await getattr(self, f"_{name}")(session_id, argument)
            self._spent += 0.25
            await self._update(
                session_id,
                schema.UsageUpdate(
                    session_update="usage_update",
                    used=1,
                    size=9,
                    cost=schema.Cost(amount=self._spent, currency="USD"),
                ),
            )
            if name == "explain":
                return schema.PromptResponse(stop_reason="end_turn")
            usage = schema.Usage(
                total_tokens=165,
                input_tokens=100,
                output_tokens=20,
                cached_read_tokens=40,
                cached_write_tokens=5,
            )
            return schema.PromptResponse.model_construct(stop_reason=stop or "end_turn", usage=usage)

        async def _answer(self, session: str, _: str) -> None:
            for piece in (ANSWER[:9], ANSWER[9:]):
                await self._update(session, acp.update_agent_message_text(piece))

        async def _say(self, session: str, text: str) -> None:
            await self._update(session, acp.update_agent_message_text(text))

        async def _work(self, session: str, _: str) -> None:
            """Everything that an agent can show on its way."""
            await self._update(session, acp.update_agent_thought_text("Hm. " * 2000))
            await self._say(session, "I look first.")
            await self._update(
                session,
                acp.start_tool_call("call-1", "Reading a.txt", kind="read", raw_input={"path": "a.txt"}),
            )
            entries = [acp.plan_entry("look", status="completed"), acp.plan_entry("write", status="pending")]
            await self._update(session, acp.update_plan(entries))
            content = [acp.tool_content(acp.text_block("hello"))]
            await self._update(session, acp.update_tool_call("call-1", status="completed", content=content))
            # Said after its end, this belongs to the call all the same.
            await self._update(session, acp.update_tool_call("call-1", raw_output={"lines": 1}))
            diff = [acp.tool_diff_content("/x/b.txt", "new", "old")]
            await self._update(session, acp.start_tool_call("call-2", "Editing", kind="edit", content=diff))
            await self._update(session, acp.update_tool_call("call-2", status="failed"))
            await self._update(session, acp.start_tool_call("call-3", "Waiting", kind="execute"))
            await self._answer(session, "")
            await self._client._conn.send_notification(
                "session/update",
                {"sessionId": session, "update": {"sessionUpdate": "of_the_future", "x": [1]}},
            )
            await self._say(session, " ")
            await self._update(session, acp.update_agent_thought_text("Was that all?"))
            await self._say(session, "That was all.")

        async def _explain(self, session: str, text: str) -> None:
            """Says what went wrong as codex-acp does: in messages without an id, and without counting tokens."""
            await self._say(session, "Warning: something is odd.\n\n")
            await self._say(session, text)

        async def _do(self, session: str, kind: str) -> None:
            """Does something of that kind without asking, and tells what it printed beside the call."""
            call, made = "call-1", {"command": "touch x"}
            start = acp.start_tool_call(call, "touch x", kind=kind, raw_input=made, status="in_progress")
            await self._update(session, start)
            printed = {"terminal_output_delta": {"data": "made", "terminal_id": call}}
            exited = {**printed, "terminal_exit": {"exit_code": 3, "terminal_id": call}}
            for status, meta in (("in_progress", printed), ("completed", exited)):
                update = acp.update_tool_call(call, status=status)
                await self._update(session, update.model_copy(update={"field_meta": meta}))
            await self._answer(session, "")

        async def _flood(self, session: str, status: str) -> None:
            """Calls of tools, in one go and without an end."""
            os.set_blocking(1, True)
            for serial in itertools.count():
                update = {"sessionUpdate": "tool_call", "toolCallId": str(serial), "status": status}
                params = {"sessionId": session, "update": update}
                frame = {"jsonrpc": "2.0", "method": "session/update", "params": params}
                os.write(1, json.dumps(frame).encode() + b"\n")

        async def _ask(self, session: str, argument: str) -> None:
            """Asks leave for KIND=INPUT, several separated by |, and says what came of it. KIND may be `title`, for a
            command that stands in the title alone, as gemini sends it."""
            for number, asked in enumerate(argument.split("|")):
                kind, _, what = asked.partition("=")
                call = f"call-{number}"
                key = "command" if kind == "execute" else "path"
                if kind == "title":
                    start = acp.start_tool_call(call, what, kind="execute")
                else:
                    start = acp.start_tool_call(call, f"{kind} {what}", kind=kind, raw_input={key: what})
                await self._update(session, start)
                options = [
                    schema.PermissionOption(option_id=each, name=each.replace("_", " "), kind=each)
                    for each in ("allow_always", "allow_once", "reject_once")
                ]
                answer = await self._client.request_permission(
                    session_id=session, tool_call=schema.ToolCallUpdate(tool_call_id=call), options=options
                )
                outcome = answer.outcome
                self._note("permission", [asked, getattr(outcome, "option_id", outcome.outcome)])
            await self._answer(session, "")

        async def _files(self, session: str, argument: str) -> None:
            """Tries `read PATH`, `lines PATH`, `many PATH` and `write PATH`, separated by |."""
            for each in argument.split("|"):
                how, _, path = each.partition(" ")
                try:
                    if how == "write":
                        await self._client.write_text_file(session_id=session, path=path, content="written\n")
                        self._note("file", [each, "ok"])
                        continue
                    more = {"lines": {"line": 2, "limit": 1}, "many": {"line": 3, "limit": 10**30}}.get(
                        how, {}
                    )
                    got = await self._client.read_text_file(session_id=session, path=path, **more)
                    self._note("file", [each, got.content])
                except RequestError as error:
                    self._note("file", [each, error.code])
            try:
                await self._client.create_terminal(session_id=session, command="ls")
            except RequestError as error:
                self._note("file", ["terminal", error.code])
            await self._answer(session, "")

        async def _hang(self, session: str, argument: str) -> str:
            """Until it is cancelled; with "deaf" for ever, with children in and out of its process group."""
            await self._say(session, "Half of it.")
            if argument:
                for apart in (False, True):
                    program = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
                    child = subprocess.Popen([sys.executable, "-c", program], start_new_session=apart)
                    self._note("child", child.pid)
                self._note("child", os.getpid())
                await asyncio.sleep(600)
            await self._cancelled.wait()
            await self._say(session, " And cancelled.")
            return "cancelled"

        async def _die(self, session: str, _: str) -> None:
            await self._say(session, "Half of it.")
            await asyncio.sleep(0.05)
            print("harmless\nError: the model is gone", file=sys.stderr, flush=True)
            os._exit(4)

        async def _endless(self, session: str, _: str) -> None:
            while True:
                await self._say(session, "and on " * 20_000)

        async def _stop(self, session: str, argument: str) -> str:
            reason, _, text = argument.partition("=")
            if text:
                await self._say(session, text)
            return reason

        async def _fail(self, session: str, argument: str) -> None:
            await self._say(session, "Half of it.")
            raise RequestError(-32603, "Internal error", {"details": argument})

        async def _update(self, session: str, update: Any) -> None:
            await self._client.session_update(session_id=session, update=update)

        def _file(self, session: str) -> Path:
            return self._folder / f"{session}.jsonl"

        def _note(self, what: str, value: Any) -> None:
            with self._log.open("a") as log:
                log.write(json.dumps([what, value]) + "\n")

    return Scripted()


if __name__ == "__main__":
    main()
