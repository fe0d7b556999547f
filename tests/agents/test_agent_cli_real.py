"""Agent CLIs as their users have them, against a scripted model: steps, corrections, sessions, failures."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import agent_programs
import pytest
from loop_thread import AGAIN, DONE, TASK, detail, start_loop
from model_script import Asked, Call, Fail, Say, Turn
from model_server import ModelServer, serving

from uwf_git.engine.step import Outcome
from uwf_git.errors import AgentFailed
from uwf_git.store.opened import Instance
from uwf_git.values.kinds import Usage

PATCH = (
    "apply_patch <<'EOF'\n*** Begin Patch\n*** Update File: note.txt\n@@\n-old\n+new\n*** End Patch\nEOF\n"
)


class Client(NamedTuple):
    """A CLI: its program, its agent's command line, how its model changes note.txt from "old" to "new" (None
    where it has no tools), what the tool is called in the turns, what below its HOME holds its sessions, and the
    model that it names."""

    program: str
    agent: str
    edit: Callable[[Path], Turn] | None
    tool: str
    sessions: tuple[str, ...]
    model: str | None = agent_programs.MODEL


def _write(tool: str, path: str) -> Callable[[Path], Turn]:
    return lambda cwd: Call(tool, {path: str(cwd / "note.txt"), "content": "new\n"}, "I change it.")


CLIENTS = {
    # codex refuses to put its own sandbox's helpers below the folder of temporary files.
    "claude": Client(
        "claude",
        "uwf-claude-code",
        _write("Write", "file_path"),
        "Write",
        (".claude",),
    ),
    "codex": Client(
        "codex",
        "uwf-codex --sandbox danger-full-access",
        lambda _: Call("exec_command", {"cmd": PATCH}, "I change it."),
        "file_change",
        (".codex/sessions",),
    ),
    "llm": Client("llm", "uwf-llm-cli", None, "", (".llm/logs.db",)),
    "opencode": Client(
        "opencode",
        "uwf-opencode",
        _write("write", "filePath"),
        "write",
        (".local/share/opencode", ".local/state/opencode"),
        None,
    ),
    "gemini": Client(
        "gemini",
        "uwf-gemini",
        _write("write_file", "file_path"),
        "write_file",
        (".gemini/tmp",),
        "gemini-2.5-flash",
    ),
    "hermes": Client(
        "hermes",
        "uwf-hermes",
        _write("write_file", "path"),
        "write_file",
        (".hermes/state.db", ".hermes/sessions"),
    ),
}


# opencode asks its package registry for plugins, hermes looks for other models: both are refused.
CURIOUS = ("opencode", "hermes")


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with serving(key=agent_programs.KEY) as running:
        yield running


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "agent-home"


def begin(
    client: Client,
    instance: Instance,
    server: ModelServer,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    tools: str = "",
) -> Callable[[], Outcome]:
    """A thread of the loop, with `tools` as its role's policy; what is returned does a step of it by that CLI."""
    agent_programs.program(client.program)
    for name, value in agent_programs.environment(client.program, server, home).items():
        monkeypatch.setenv(name, value)
    work = start_loop(instance, tools)
    return lambda: work(client.agent)


def spent(server: ModelServer) -> dict[str, int]:
    return Usage(*server.usage)._asdict()


def texts(asked: Asked) -> list[str]:
    return [message.text for message in asked.messages if message.text]


@pytest.mark.parametrize("name", CLIENTS)
def test_a_role_is_corrected_and_comes_back_in_one_session_and_survives_its_loss(
    name: str,
    instance: Instance,
    server: ModelServer,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = CLIENTS[name]
    work = begin(client, instance, server, home, monkeypatch)
    note = Path("note.txt")
    note.write_text("old\n")

    # It calls a tool, and is corrected for an answer without its fields.
    edit = [client.edit(Path.cwd())] if client.edit else []
    server.play([*edit, Say("It is done, I think."), Say(AGAIN)])
    first, turns = detail(instance, work())
    if edit:
        assert note.read_text() == "new\n"
        said, tool = turns[:2]
        assert (said["role"], said["text"]) == ("assistant", "I change it.")
        assert (tool["role"], tool["tool"], tool.get("failed", False)) == ("tool", client.tool, False)
        assert "note.txt" in str(tool["arguments"])
    assert [turn["role"] for turn in turns[-3:]] == ["assistant", "user", "assistant"]
    assert turns[-3]["text"] == "It is done, I think."
    assert first["answer"].strip() == AGAIN.strip()
    assert (first["extraction"], first["model"]) == ("correction", client.model)
    assert first["usage"] == spent(server)
    assert first.get("notes", []) == []
    assert name in CURIOUS or server.strays == []
    assert "It is done, I think." in texts(server.asked[-1])

    # The role's next turn goes on there, and isn't told again what it knows.
    server.play([Say(AGAIN)])
    second, _ = detail(instance, work())
    assert second["session"] == first["session"]
    assert second["usage"] == spent(server)
    (asked,) = server.asked
    assert "It is done, I think." in texts(asked)
    assert TASK in asked.text

    # Its session is gone: it gets the whole context in a new one, and the detail says so.
    for folder in client.sessions:
        gone = home / folder
        shutil.rmtree(gone) if gone.is_dir() else gone.unlink(missing_ok=True)
    server.play([Say(DONE)])
    made = work()
    assert made.done
    third, _ = detail(instance, made)
    assert third["session"] != first["session"]
    assert third["usage"] == spent(server)
    (asked,) = server.asked
    assert "It is done, I think." not in texts(asked)
    assert "Not yet." in asked.prompt and TASK in asked.prompt
    assert name in CURIOUS or server.strays == []
    (told,) = third["notes"]
    assert first["session"] in told and "could not be resumed" in told


def test_a_roles_policy_reaches_the_cli_and_what_it_denied_is_noted(
    instance: Instance, server: ModelServer, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = CLIENTS["claude"]
    work = begin(client, instance, server, home, monkeypatch, "{deny: [write_file]}")
    server.play([Call("Bash", {"command": "curl http://127.0.0.1:1/", "description": "asks"}), Say(DONE)])
    made, turns = detail(instance, work())
    assert {"Read", "Bash"} <= set(server.asked[0].tools)
    assert {"Write", "Edit"}.isdisjoint(server.asked[0].tools)
    assert made["notes"] == ["claude was not allowed: Bash"]
    assert (turns[1]["tool"], turns[1]["failed"]) == ("Bash", True)


REFUSED = [
    *((name, 401, "not logged in, or its key is refused: ") for name in CLIENTS),
    # Others try for minutes.
    *((name, 429, "429") for name in ("claude", "codex", "llm")),
]


@pytest.mark.parametrize(("name", "status", "words"), REFUSED)
def test_what_the_service_refuses_is_one_line_with_the_clis_own_words(
    name: str,
    status: int,
    words: str,
    instance: Instance,
    server: ModelServer,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    work = begin(CLIENTS[name], instance, server, home, monkeypatch)
    server.play(lambda _: Fail(status, "the service says no"))
    with pytest.raises(AgentFailed) as caught:
        work()
    message = caught.value.message
    assert message.startswith(CLIENTS[name].program) and words in message and "\n" not in message
    assert str(status) in message
    assert caught.value.hint
