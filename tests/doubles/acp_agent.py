"""An agent that speaks the Agent Client Protocol and does what it is told on its command line, one scenario a
prompt:

    python acp_agent.py [--no-load] [--late] [--resume] [--folders] [--name NAME] [--modes ID,…] [--log FILE]
                        [--sessions FOLDER] SCENARIO…

A scenario is `name` or `name:argument`; the last one is repeated. `--sessions` keeps what was said to each
session, for a later process to load; with `--late` it answers the request to load one before it replays it. `--log`
is written a line of JSON for everything that comes in.

With one of the scenarios of BROKEN it breaks the protocol in that way. It writes the frames itself, as the SDK of the
protocol takes a third of a second to load; tests/agents/test_acp_frames.py checks them by that SDK, and plays with it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path

ANSWER = "---\nsummary: It is done.\n---\n\nAll of it.\n"
BROKEN = ("version", "login", "nothing", "exit", "echo", "shout", "huge-frame", "odd-frames")


def main() -> None:
    arguments = sys.argv[1:]
    if arguments[-1] in BROKEN:
        _broken(arguments[-1])
        return
    Scripted(arguments).serve()


def _broken(how: str) -> None:
    def say(message: object) -> None:
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


class Refusal(Exception):
    """An error of the protocol, as an answer."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        self.error = {"code": code, "message": message, "data": data}


class Scripted:
    """See the module's docstring."""

    def __init__(self, arguments: list[str]) -> None:
        self._loads, self._resumes, self._log = True, False, Path(os.devnull)
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
        self._cancelled = threading.Event()
        self._spent = 0.0
        self._writing = threading.Lock()
        self._serials = itertools.count()
        self._requests: queue.SimpleQueue[dict] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[dict] = queue.SimpleQueue()

    def serve(self) -> None:
        """Answer one request after the other. The process ends with its input."""
        threading.Thread(target=self._read, daemon=True).start()
        methods = {
            "initialize": self._initialize,
            "session/new": self._new_session,
            "session/load": self._load_session,
            "session/resume": self._resume_session,
            "session/set_mode": self._set_mode,
            "session/set_config_option": self._set_option,
            "session/close": self._close_session,
            "session/prompt": self._prompt,
        }
        while True:
            request = self._requests.get()
            try:
                if request["method"] not in methods:
                    raise Refusal(-32601, "Method not found")
                answer = {"result": methods[request["method"]](request["params"])}
            except Refusal as refusal:
                answer = {"error": refusal.error}
            self._send({"id": request["id"], **answer})

    def _read(self) -> None:
        for line in sys.stdin:
            message = json.loads(line)
            if "method" not in message:
                self._answers.put(message)
            elif message["method"] == "session/cancel":
                self._note("cancel", message["params"]["sessionId"])
                self._cancelled.set()
            else:
                self._requests.put(message)
        os._exit(0)

    def _send(self, frame: dict) -> None:
        with self._writing:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", **frame}) + "\n")
            sys.stdout.flush()

    def _call(self, method: str, **params: object) -> dict:
        """Ask the client. Raises Refusal."""
        self._send({"id": next(self._serials), "method": method, "params": params})
        answer = self._answers.get()
        if "error" in answer:
            raise Refusal(answer["error"]["code"], answer["error"]["message"])
        return answer["result"]

    # What the client asks

    def _initialize(self, params: dict) -> dict:
        self._note("initialize", params["clientCapabilities"])
        abilities: dict[str, dict] = {"close": {}}
        if self._resumes:
            abilities["resume"] = {}
        if self._folders:
            abilities["additionalDirectories"] = {}
        return {
            "protocolVersion": params["protocolVersion"],
            "agentInfo": {"name": self._name, "version": "1"},
            "agentCapabilities": {"loadSession": self._loads, "sessionCapabilities": abilities},
        }

    def _new_session(self, params: dict) -> dict:
        self._note("new", params["cwd"])
        if params.get("additionalDirectories"):
            self._note("besides", params["additionalDirectories"])
        session = f"session-{os.urandom(4).hex()}"
        self._file(session).write_text("")
        modes = [{"id": mode, "name": mode.upper()} for mode in self._modes]
        engine = {
            "id": "engine",
            "name": "Model",
            "category": "model",
            "type": "select",
            "currentValue": "small",
            "options": [{"value": value, "name": value} for value in ("small", "large")],
        }
        return {
            "sessionId": session,
            "modes": {"currentModeId": self._modes[0], "availableModes": modes},
            "configOptions": [engine],
        }

    def _load_session(self, params: dict) -> dict:
        session = params["sessionId"]
        self._note("load", session)
        if not self._file(session).exists():
            raise Refusal(-32002, "Resource not found", {"uri": session})
        if self._replays_late:
            threading.Timer(0.05, self._replay, [session]).start()
        else:
            self._replay(session)
        return {}

    def _replay(self, session: str) -> None:
        for line in self._file(session).read_text().splitlines():
            self._update(session, "user_message_chunk", content=_text(json.loads(line)))
            self._say(session, "Said before.")

    def _resume_session(self, params: dict) -> dict:
        self._note("resume", params["sessionId"])
        return {}

    def _set_mode(self, params: dict) -> dict:
        self._note("mode", params["modeId"])
        return {}

    def _set_option(self, params: dict) -> dict:
        self._note("option", [params["configId"], params["value"]])
        return {"configOptions": []}

    def _close_session(self, params: dict) -> dict:
        self._note("close", params["sessionId"])
        return {}

    def _prompt(self, params: dict) -> dict:
        session = params["sessionId"]
        text = "".join(block["text"] for block in params["prompt"])
        self._note("prompt", text)
        with self._file(session).open("a") as file:
            file.write(json.dumps(text[:100]) + "\n")
        scenario = self._scenarios[0] if len(self._scenarios) == 1 else self._scenarios.pop(0)
        name, _, argument = scenario.partition(":")
        stop = getattr(self, f"_{name}")(session, argument)
        self._spent += 0.25
        self._update(session, "usage_update", used=1, size=9, cost={"amount": self._spent, "currency": "USD"})
        if name == "explain":
            return {"stopReason": "end_turn"}
        usage = {
            "totalTokens": 165,
            "inputTokens": 100,
            "outputTokens": 20,
            "cachedReadTokens": 40,
            "cachedWriteTokens": 5,
        }
        return {"stopReason": stop or "end_turn", "usage": usage}

    # Scenarios

    def _answer(self, session: str, _: str) -> None:
        for piece in (ANSWER[:9], ANSWER[9:]):
            self._say(session, piece)

    def _say(self, session: str, text: str) -> None:
        self._update(session, "agent_message_chunk", content=_text(text))

    def _think(self, session: str, text: str) -> None:
        self._update(session, "agent_thought_chunk", content=_text(text))

    def _work(self, session: str, _: str) -> None:
        """Everything that an agent can show on its way."""
        self._think(session, "Hm. " * 2000)
        self._say(session, "I look first.")
        self._start(session, "call-1", "Reading a.txt", "read", rawInput={"path": "a.txt"})
        entries = [("look", "completed"), ("write", "pending")]
        plan = [{"content": what, "priority": "medium", "status": status} for what, status in entries]
        self._update(session, "plan", entries=plan)
        content = [{"type": "content", "content": _text("hello")}]
        self._go_on(session, "call-1", status="completed", content=content)
        # Said after its end, this belongs to the call all the same.
        self._go_on(session, "call-1", rawOutput={"lines": 1})
        diff = [{"type": "diff", "path": "/x/b.txt", "newText": "new", "oldText": "old"}]
        self._start(session, "call-2", "Editing", "edit", content=diff)
        self._go_on(session, "call-2", status="failed")
        self._start(session, "call-3", "Waiting", "execute")
        self._answer(session, "")
        self._update(session, "of_the_future", x=[1])
        self._say(session, " ")
        self._think(session, "Was that all?")
        self._say(session, "That was all.")

    def _explain(self, session: str, text: str) -> None:
        """Says what went wrong as codex-acp does: in messages without an id, and without counting tokens."""
        self._say(session, "Warning: something is odd.\n\n")
        self._say(session, text)

    def _do(self, session: str, kind: str) -> None:
        """Does something of that kind without asking, and tells what it printed beside the call."""
        call = "call-1"
        self._start(session, call, "touch x", kind, rawInput={"command": "touch x"}, status="in_progress")
        printed = {"terminal_output_delta": {"data": "made", "terminal_id": call}}
        exited = {**printed, "terminal_exit": {"exit_code": 3, "terminal_id": call}}
        for status, meta in (("in_progress", printed), ("completed", exited)):
            self._go_on(session, call, status=status, _meta=meta)
        self._answer(session, "")

    def _flood(self, session: str, status: str) -> None:
        """Calls of tools, in one go and without an end."""
        for serial in itertools.count():
            update = {"sessionUpdate": "tool_call", "toolCallId": str(serial), "status": status}
            params = {"sessionId": session, "update": update}
            frame = {"jsonrpc": "2.0", "method": "session/update", "params": params}
            os.write(1, json.dumps(frame).encode() + b"\n")

    def _ask(self, session: str, argument: str) -> None:
        """Asks leave for KIND=INPUT, several separated by |, and says what came of it. KIND may be `title`, for a
        command that stands in the title alone, as gemini sends it, or `call`, with the JSON of a whole call."""
        for number, asked in enumerate(argument.split("|")):
            kind, _, what = asked.partition("=")
            call = f"call-{number}"
            key = "command" if kind == "execute" else "path"
            if kind == "call":
                self._start(session, call, **json.loads(what))
            elif kind == "title":
                self._start(session, call, what, "execute")
            else:
                self._start(session, call, f"{kind} {what}", kind, rawInput={key: what})
            options = [
                {"optionId": option, "name": option.replace("_", " "), "kind": option}
                for option in ("allow_always", "allow_once", "reject_once")
            ]
            answer = self._call(
                "session/request_permission",
                sessionId=session,
                toolCall={"toolCallId": call},
                options=options,
            )
            outcome = answer["outcome"]
            self._note("permission", [asked, outcome.get("optionId", outcome["outcome"])])
        self._answer(session, "")

    def _files(self, session: str, argument: str) -> None:
        """Tries `read PATH`, `lines PATH`, `many PATH` and `write PATH`, separated by |."""
        for tried in argument.split("|"):
            how, _, path = tried.partition(" ")
            try:
                if how == "write":
                    self._call("fs/write_text_file", sessionId=session, path=path, content="written\n")
                    self._note("file", [tried, "ok"])
                    continue
                more = {"lines": {"line": 2, "limit": 1}, "many": {"line": 3, "limit": 10**30}}.get(how, {})
                file = self._call("fs/read_text_file", sessionId=session, path=path, **more)
                self._note("file", [tried, file["content"]])
            except Refusal as refusal:
                self._note("file", [tried, refusal.error["code"]])
        try:
            self._call("terminal/create", sessionId=session, command="ls")
        except Refusal as refusal:
            self._note("file", ["terminal", refusal.error["code"]])
        self._answer(session, "")

    def _hang(self, session: str, argument: str) -> str:
        """Until it is cancelled; with "deaf" for ever, with children in and out of its process group."""
        self._say(session, "Half of it.")
        if argument:
            for apart in (False, True):
                program = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
                child = subprocess.Popen([sys.executable, "-c", program], start_new_session=apart)
                self._note("child", child.pid)
            self._note("child", os.getpid())
            time.sleep(600)
        self._cancelled.wait()
        self._say(session, " And cancelled.")
        return "cancelled"

    def _steer(self, session: str, how: str) -> str:
        """Makes calls until it is cancelled, and then says so; with "deaf" until `go` is there. With "open" the call
        goes on for ever, and with "fail" the cancelled turn ends with an error."""
        self._start(session, "call-0", "touch a", "execute", status="in_progress")
        self._note("steer", "begun")
        if how != "open":
            self._go_on(session, "call-0", status="completed")
        while not Path("go").exists():
            if self._cancelled.wait(0.01) and how != "deaf":
                self._cancelled.clear()
                self._say(session, "Interrupted.")
                if how == "fail":
                    raise Refusal(-32603, "Aborted")
                return "cancelled"
        self._answer(session, "")
        return "end_turn"

    def _die(self, session: str, _: str) -> None:
        self._say(session, "Half of it.")
        print("harmless\nError: the model is gone", file=sys.stderr, flush=True)
        os._exit(4)

    def _endless(self, session: str, _: str) -> None:
        with contextlib.suppress(BrokenPipeError):
            while True:
                self._say(session, "and on " * 20_000)

    def _stop(self, session: str, argument: str) -> str:
        reason, _, text = argument.partition("=")
        if text:
            self._say(session, text)
        return reason

    def _fail(self, session: str, argument: str) -> None:
        self._say(session, "Half of it.")
        raise Refusal(-32603, "Internal error", {"details": argument})

    def _start(self, session: str, call: str, title: str, kind: str, **more: object) -> None:
        self._update(session, "tool_call", toolCallId=call, title=title, kind=kind, **more)

    def _go_on(self, session: str, call: str, **more: object) -> None:
        self._update(session, "tool_call_update", toolCallId=call, **more)

    def _update(self, session: str, update: str, /, **fields: object) -> None:
        params = {"sessionId": session, "update": {"sessionUpdate": update, **fields}}
        self._send({"method": "session/update", "params": params})

    def _file(self, session: str) -> Path:
        return self._folder / f"{session}.jsonl"

    def _note(self, what: str, value: object) -> None:
        with self._log.open("a") as log:
            log.write(json.dumps([what, value]) + "\n")


def _text(text: str) -> dict:
    return {"type": "text", "text": text}


if __name__ == "__main__":
    main()
