"""Agent CLIs as their users have them, against a scripted model: steps, corrections, sessions, failures."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import agent_programs
import pytest
from conftest import REPOSITORY
from loop_thread import AGAIN, DONE, TASK, detail, start_loop
from model_script import Asked, Call, Fail, Hang, Say, Several, Turn
from model_server import ModelServer, serving
from process_tree import killed

from uwf_git.base.errors import AgentFailed, Waiting
from uwf_git.engine.outcome import Outcome
from uwf_git.engine.step import step
from uwf_git.format.kinds import Usage
from uwf_git.store.instance import Instance

pytestmark = [pytest.mark.extended, pytest.mark.timeout(400 if agent_programs.SLOW_WANTED else 120)]

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


def _read_and_write(cwd: Path) -> Turn:
    """For a program that writes over no file which it hasn't read."""
    path = str(cwd / "note.txt")
    write = Call("write_file", {"file_path": path, "content": "new\n"})
    return Several((Call("read_file", {"file_path": path}), write), "I change it.")


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
    "qwen": Client("qwen", "uwf-qwen", _read_and_write, "read_file", (".qwen/projects",)),
    "copilot": Client(
        "copilot",
        "uwf-copilot",
        lambda cwd: Call(
            "edit", {"path": str(cwd / "note.txt"), "old_str": "old", "new_str": "new"}, "I change it."
        ),
        "edit",
        (".copilot/session-state", ".copilot/session-store.db"),
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
    return Usage(*server.usage).payload()


def texts(asked: Asked) -> list[str]:
    return [message.text for message in asked.messages if message.text]


SHELLS = {
    "claude": ("Bash", {"command": "pwd > where.txt", "description": "asks"}),
    "codex": ("exec_command", {"cmd": "pwd > where.txt"}),
    "opencode": ("bash", {"command": "pwd > where.txt", "description": "asks"}),
    "gemini": ("run_shell_command", {"command": "pwd > where.txt", "description": "asks"}),
    "hermes": ("terminal", {"command": "pwd > where.txt"}),
    "qwen": (
        "run_shell_command",
        {"command": "pwd > where.txt", "description": "asks", "is_background": False},
    ),
    "copilot": ("bash", {"command": "pwd > where.txt", "description": "asks"}),
}
"""The tool by which each program runs a command, and its arguments."""


@pytest.mark.parametrize("name", SHELLS)
def test_a_cli_works_in_the_folder_of_its_step(
    name: str,
    instance: Instance,
    server: ModelServer,
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client, work = CLIENTS[name], tmp_path / "work"
    begin(client, instance, server, home, monkeypatch)
    work.mkdir()
    # As in a shell of the caller's folder.
    monkeypatch.setenv("PWD", str(Path.cwd()))
    server.play([Call(*SHELLS[name], "I look."), Say(DONE)])
    (thread,) = instance.threads.ids()
    may = " --approval-mode yolo" if name in ("gemini", "qwen") else ""
    assert step(instance, thread, client.agent + may, work).done
    assert (work / "where.txt").read_text().strip() == str(work)
    assert list(Path.cwd().iterdir()) == []


@pytest.mark.parametrize(
    ("args", "answer"),
    [
        ("--include-partial-messages", Say(DONE)),
        (
            """--json-schema '{"type":"object","properties":{"status":{"type":"string"}}}'""",
            Call("StructuredOutput", {"status": "done"}),
        ),
    ],
)
def test_an_answer_of_claude_is_taken_in_pieces_or_by_its_schema(
    args: str,
    answer: Turn,
    instance: Instance,
    server: ModelServer,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begin(CLIENTS["claude"], instance, server, home, monkeypatch)
    server.play([Call(*SHELLS["claude"], "I look."), answer])
    (thread,) = instance.threads.ids()
    assert step(instance, thread, f"uwf-claude-code {args}").done


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


def test_a_role_that_only_reads_reaches_gemini_with_no_other_tools(
    instance: Instance, server: ModelServer, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = CLIENTS["gemini"]
    only = "{allow: [read_file, list_dir, glob, grep]}"
    work = begin(client, instance, server, home, monkeypatch, only)
    policies = home / ".gemini" / "policies"
    policies.mkdir()
    (policies / "mine.toml").write_text(
        '[[rule]]\ntoolName = "web_fetch"\ndecision = "allow"\npriority = 999\n\n'
        '[[rule]]\ntoolName = "glob"\ndecision = "deny"\npriority = 999\n'
    )
    Path("note.txt").write_text("old\n")
    assert client.edit is not None
    server.play([client.edit(Path.cwd()), Call("run_shell_command", {"command": "touch no.txt"}), Say(DONE)])
    _, turns = detail(instance, work())
    tools = set(server.asked[0].tools)
    assert {"read_file", "list_directory"} <= tools
    # The user's own rules hold beside it, as far as they forbid.
    assert {"web_fetch", "google_web_search", "glob"}.isdisjoint(tools)
    assert [turn.get("failed", False) for turn in turns if turn["role"] == "tool"] == [True, True]
    assert Path("note.txt").read_text() == "old\n" and not Path("no.txt").exists()


def test_opencodes_tokens_are_priced_by_the_model_that_it_was_told_and_a_budget_binds(
    instance: Instance, server: ModelServer, home: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = CLIENTS["opencode"]
    begin(client, instance, server, home, monkeypatch)
    (root / "config.yaml").write_text(
        "providers: {local: {baseUrl: 'http://127.0.0.1:9'}}\n"
        "models: {small: {provider: local, name: scripted, price: {input: 100, output: 100}}}\n"
        "budgets: {default: {maxCost: 0.01}}\n"
    )
    instance = Instance.open()
    server.play(lambda _: Say(AGAIN))
    (thread,) = instance.threads.ids()
    made, _ = detail(instance, step(instance, thread, f"{client.agent} -m loopback/scripted", Path.cwd()))
    assert made["model"] == "loopback/scripted"
    assert sum(server.usage[:2]) * 100 / 1e6 > 0.01
    with pytest.raises(Waiting, match=r"maxCost|budget"):
        step(instance, thread, f"{client.agent} -m loopback/scripted", Path.cwd())


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


TROUBLE = [  # with the retries that each has of its own, which take minutes
    (
        "claude",
        401,
        "is not logged in, or its key is refused: authentication_failed (HTTP 401), attempt 2 of 10",
    ),
    ("claude", 429, "was ended by signal 9: rate_limit (HTTP 429), attempt "),
    ("claude", 500, "was ended by signal 9: server_error (HTTP 500), attempt "),
    ("claude", None, "was ended by signal 9: the API cannot be reached or breaks off (unknown), attempt "),
    ("codex", 401, "is not logged in, or its key is refused: Reconnecting... 2/5 (unexpected status 401"),
    ("codex", 500, "was ended by signal 9: Reconnecting... 1/5 (We’re currently experiencing high demand"),
    ("codex", None, "was ended by signal 9: Reconnecting... waiting for network (Connection failed"),
    (
        "gemini",
        401,
        "is not logged in, or its key is refused: API Error: the service says no (401 UNAUTHENTICATED)",
    ),
    ("gemini", 429, "failed with status 429. Retrying with backoff... _ApiError: the service says no (429 "),
    ("gemini", 500, "failed with status 500. Retrying with backoff... _ApiError: the service says no (500 "),
    ("gemini", None, "failed. Retrying with backoff... Error: exception TypeError: fetch failed"),
    ("opencode", 429, "was ended by signal 9: AI_APICallError: the service says no"),
    ("opencode", None, "was ended by signal 9: AI_APICallError: Cannot connect to API"),
]
OFTEN = (("claude", 401), ("claude", None), ("codex", 401), ("codex", None))


@pytest.mark.parametrize(("name", "status", "words"), TROUBLE)
def test_a_cli_that_tries_again_and_again_is_told_with_what_it_has_trouble_with(
    name: str,
    status: int | None,
    words: str,
    instance: Instance,
    server: ModelServer,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if (name, status) not in OFTEN and not agent_programs.SLOW_WANTED:
        pytest.skip("the slow tier tries the others")
    client = CLIENTS[name]
    work = begin(client, instance, server, home, monkeypatch)
    agent_programs.with_its_own_retries(home, monkeypatch, server.url if status is None else "")
    server.play(lambda _: Fail(status or 500, "the service says no"))
    (thread,) = instance.threads.ids()

    def shown() -> bool:
        now = instance.runs.now(thread)
        return now is not None and now.line.startswith(f"{client.program}: ") and status != 401

    with killed(home, shown), pytest.raises(AgentFailed) as caught:
        work()
    assert words in caught.value.message and "\n" not in caught.value.message
    (attempt,) = instance.attempts.all(thread)
    assert (attempt.stdout or attempt.stderr) and attempt.detail
    kept = instance.store.detail(attempt.detail)
    assert kept.session or name == "opencode"
    if status == 401:
        assert len(server.asked) <= 3
    else:
        assert all(note.startswith(f"{client.program}: ") for note in kept.notes) and kept.notes


RECIPES = dict(
    re.findall(
        r"(?ms)^```sh recipe=(\w+)\n(.*?)^```$",
        (REPOSITORY / "docs/guides/agents.md").read_text(encoding="utf-8"),
    )
)


@pytest.mark.parametrize("name", [name for name in CLIENTS if name != "cursor"])
def test_the_recipe_for_a_gateway_of_ones_own_is_all_that_it_takes(
    name: str, server: ModelServer, home: Path, hermetic: Path, tmp_path: Path
) -> None:
    if not agent_programs.SLOW_WANTED:
        pytest.skip("the slow tier runs the recipes")
    agent_programs.program(CLIENTS[name].program)
    recipe = RECIPES[name].replace("https://models.example.com", server.url)
    recipe = recipe.replace("the-key", agent_programs.KEY)
    server.play(lambda _: Say("---\nnumber: seven\n---\n"))
    env = {**os.environ, **agent_programs.surroundings(server, home)}
    env.pop("UWF_STORAGE_ROOT", None)  # it has the default, below its HOME
    env["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), env["PATH"]))
    done = subprocess.run(
        ["sh", "-eu"], input=recipe, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    value = json.loads(done.stdout[done.stdout.rindex("\n{") :])
    assert value["ready"] and value["agent"] == "there"
    assert {asked.model for asked in server.asked} == {"the-model"}


@pytest.mark.parametrize("name", ["claude", "codex", "gemini"])
def test_a_cli_that_is_killed_is_told_in_one_line_and_what_it_had_spent_counts(
    name: str, instance: Instance, server: ModelServer, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = CLIENTS[name]
    work = begin(client, instance, server, home, monkeypatch)
    Path("note.txt").write_text("old\n")
    assert client.edit is not None
    server.play([client.edit(Path.cwd()), Hang(60)])
    with killed(home, lambda: len(server.asked) > 1), pytest.raises(AgentFailed) as caught:
        work()
    assert caught.value.message == f"{client.program} was ended by signal 9 and didn't say why"
    (attempt,) = instance.attempts.all(*instance.threads.ids())
    kept = instance.store.detail(attempt.detail)
    assert kept.usage is not None and kept.usage.input == server.asked[0].usage.input
    assert kept.model == client.model
