"""uwf-acp with real ACP agents, whose model is the scripted server."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import agent_programs
import pytest
from acp_steps import Steps
from model_server import Asked, Call, Fail, ModelServer, Say, Turn, aside, serving

from uwf_git.store.instance import Instance

pytestmark = [pytest.mark.extended, pytest.mark.timeout(400 if agent_programs.SLOW_WANTED else 120)]

DONE = "---\nsummary: {}\n---\n\nAs asked.\n"


class Real(NamedTuple):
    """An ACP agent: its program, its arguments, uwf-acp's options, and how its model edits a file and runs a
    command (None where the program asks no leave for that)."""

    program: str
    args: tuple[str, ...]
    options: tuple[str, ...]
    edit: Turn
    execute: Turn | None
    counts: tuple[str, ...] = ("input", "output", "cached")  # which tokens of each prompt it tells
    loses: bool = False  # a session that is loaded within the minute in which it was opened


_PATCH = "apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: made.txt\n+made\n*** End Patch\nEOF"
AGENTS = (
    Real("claude-agent-acp", (), (), Call("Write", {"file_path": "@/made.txt", "content": "made\n"}),
         Call("Bash", {"command": "touch no.txt"})),
    Real("codex-acp", (), ("--mode", "workspace-write"), Call("exec_command", {"cmd": _PATCH}), None),
    Real("opencode", ("acp",), (), Call("write", {"filePath": "@/made.txt", "content": "made\n"}), None, ()),
    Real("gemini", ("--acp",), ("--no-files",), Call("write_file", {"file_path": "@/made.txt", "content": "made\n"}),
         Call("run_shell_command", {"command": "touch no.txt"}), ("input", "output"), True),
    Real("hermes", ("acp",), (), Call("write_file", {"path": "@/made.txt", "content": "made\n"}), None),
)  # fmt: skip


def _in(folder: Path, turn: Turn) -> Turn:
    """A call with its paths in a folder."""
    assert isinstance(turn, Call) and not isinstance(turn.arguments, str)
    arguments = {key: value.replace("@/", f"{folder}/") for key, value in turn.arguments.items()}
    return turn._replace(arguments=arguments)


@pytest.mark.parametrize("real", AGENTS, ids=[each.program for each in AGENTS])
def test_a_real_agent_works_is_corrected_and_goes_on(
    instance: Instance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, real: Real
) -> None:
    agent_programs.program(real.program)
    script: list[Any] = [
        _in(Path.cwd(), real.edit),
        *([real.execute] if real.execute else []),
        Say("Forgot it."),
    ]
    script += [Say(DONE.format("first")), Say(DONE.format("second"))]
    with serving(script, aside=_aside) as server:
        program = _set_up(real.program, server, tmp_path, monkeypatch)
        # By itself claude-agent-acp asks for a next prompt after each, and offers root in such a sandbox a mode with
        # which its claude doesn't start.
        monkeypatch.delenv("CLAUDE_CODE_ENABLE_PROMPT_SUGGESTION", raising=False)
        monkeypatch.setenv("IS_SANDBOX", "yes")
        steps = Steps(
            instance.location.root,
            [*real.options, "--", program, *real.args],
            "tools: {permissions: [edit, other]}\n",
        )
        first, second = steps.step(), steps.step()
    assert (first.error, second.error) == ("", "")
    assert (first.output, second.output) == ({"summary": "first"}, {"summary": "second"})
    assert first.detail["extraction"] == "correction"
    assert not any("suggest" in asked.prompt.casefold() for asked in (*server.asked, *server.asides))
    assert "Forgot it." not in [turn["text"] for turn in second.turns]
    assert Path("made.txt").read_text() == "made\n"
    assert [turn for turn in first.turns if turn.get("tool") == "edit" and not turn.get("failed")]
    if real.execute is not None:
        assert not Path("no.txt").exists()
        assert any(turn.get("failed") for turn in first.tools("permission"))
    # The second step goes on in the first one's session, or is told everything anew.
    remembered = any("Forgot it." in message.text for message in server.asked[-1].messages)
    told = any("a fresh one was told everything" in note for note in second.detail.get("notes", []))
    if not real.loses:
        assert not told
    assert remembered != told
    assert remembered == (second.detail["session"] == first.detail["session"])
    for what in real.counts:
        told = sum(came.detail["usage"][what] for came in (first, second))
        assert told == getattr(server.usage, what), what
    _nobody_is_left()


@pytest.mark.parametrize("real", AGENTS[:2], ids=[each.program for each in AGENTS[:2]])
def test_a_real_agent_does_nothing_that_its_role_forbids(
    instance: Instance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, real: Real
) -> None:
    command = real.execute or Call("exec_command", {"cmd": "touch no.txt"})
    script = [_in(Path.cwd(), real.edit), command, Say(DONE.format("idle"))]
    with serving(script, aside=_aside) as server:
        program = _set_up(real.program, server, tmp_path, monkeypatch)
        denied = "{deny: [write_file, edit_file, apply_patch, run_command]}"
        more = "tools: {permissions: [edit, execute, other]}\n"
        came = Steps(instance.location.root, [program], more, denied).step()
    # codex takes the tool away, or has it and asks; told no, it ends the turn.
    ended = ("codex-acp cancelled its turn", None)
    assert (came.error, came.output) in [("", {"summary": "idle"})] + [ended] * (real.program == "codex-acp")
    assert not Path("made.txt").exists() and not Path("no.txt").exists()
    if real.program == "claude-agent-acp":
        assert not {"Write", "Edit", "Bash"} & set(server.asked[-1].tools)


def test_a_command_that_only_begins_as_a_rule_permits_is_denied_to_gemini(
    instance: Instance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = ("echo hi", "echo hi; touch pwned.txt", "touch pwned.txt")
    script = [*(Call("run_shell_command", {"command": each}) for each in commands), Say(DONE.format("said"))]
    with serving(script, aside=_aside) as server:
        program = _set_up("gemini", server, tmp_path, monkeypatch)
        rules = "tools: {permissions: [read, 'execute:echo *']}\n"
        came = Steps(instance.location.root, ["--no-files", "--", program, "--acp"], rules).step()
    assert (came.error, came.output) == ("", {"summary": "said"})
    assert not Path("pwned.txt").exists()
    asked = came.tools("permission")  # it runs `echo hi` without asking
    assert asked and all(turn["failed"] for turn in asked) and "echo hi; touch" in asked[0]["text"]


def test_what_codex_says_of_a_failure_is_no_answer_to_be_corrected(
    instance: Instance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(Fail(429), aside=_aside) as server:
        came = Steps(instance.location.root, [_set_up("codex-acp", server, tmp_path, monkeypatch)]).step()
    assert came.error == "codex-acp failed: exceeded retry limit, last status: 429 Too Many Requests"
    assert len(server.asked) == 1


def _set_up(name: str, server: ModelServer, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where the program is; its environment is set."""
    path = agent_programs.program(name)
    for variable, value in agent_programs.environment(name, server, folder / "agent").items():
        monkeypatch.setenv(variable, value)
    return str(path)


def _aside(asked: Asked) -> Turn | None:
    """Whatever is asked without tools is no part of the work, such as a title for the session."""
    return aside(asked) or (None if asked.tools else Say("A task"))


def _nobody_is_left() -> None:
    """No process of an agent's has outlived its step."""
    left = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and b"UWF_AGENT_MARK=" in (entry / "environ").read_bytes():
                mine = os.environ["HOME"].encode() in (entry / "environ").read_bytes()
                left += [(entry / "cmdline").read_bytes()] if mine else []
        except OSError:
            continue
    assert left == []
