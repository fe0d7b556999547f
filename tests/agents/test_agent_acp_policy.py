"""What a policy forbids doesn't happen by way of ACP either, whatever mode is asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from acp_steps import Scripted

from uwf_git.base.errors import AgentFailed
from uwf_git.config.policy import ToolPolicy
from uwf_git.ext.agents.acp.enforcement import ConfigChoice, environment, mode_for
from uwf_git.ext.agents.permissions import decide, parse_request
from uwf_git.store.instance import Instance

CLAUDE, CODEX = "@agentclientprotocol/claude-agent-acp", "@agentclientprotocol/codex-acp"
CLAUDES = {"default": "Manual", "acceptEdits": "Accept edits", "plan": "Plan", "auto": "Auto"}
CODEXES = {"read-only": "Read-only", "workspace-write": "", "agent": "", "agent-full-access": "Full access"}
GEMINIS = {"default": "Default", "autoEdit": "Auto Edit", "yolo": "YOLO", "plan": "Plan"}
HERMESES = {"default": "Default", "accept_edits": "Accept Edits", "dont_ask": "Don't Ask"}
OPENCODES = {"build": "build", "plan": "plan"}
NO_WRITING = frozenset(("edit", "delete", "move"))
NO_COMMANDS = frozenset(("execute",))


@pytest.fixture
def storage(instance: Instance) -> Path:
    """The storage root, with a store in it."""
    return instance.location.root


def _mode(agent: str, modes: dict[str, str], kinds: frozenset[str], wanted: str | None = None) -> str | None:
    current = "agent" if modes is CODEXES else next(iter(modes), None)
    choice = ConfigChoice(current, modes, "session/set_mode", {}, "modeId") if modes else None
    return mode_for("it", agent, choice, wanted, kinds)


@pytest.mark.parametrize(
    ("agent", "modes", "kinds", "mode"),
    [
        (CLAUDE, CLAUDES, NO_WRITING | NO_COMMANDS, None),
        (CODEX, CODEXES, NO_WRITING, "read-only"),
        (CODEX, CODEXES, NO_COMMANDS, "read-only"),
        ("gemini-cli", GEMINIS, NO_COMMANDS, None),
        ("hermes-agent", HERMESES, NO_WRITING, None),
        ("OpenCode", OPENCODES, NO_WRITING | NO_COMMANDS, None),
        ("unheard-of", {"code": "Code", "x": "Ask"}, NO_WRITING, "x"),
    ],
)
def test_the_session_is_put_into_a_mode_in_which_the_agent_asks(
    agent: str, modes: dict[str, str], kinds: frozenset[str], mode: str | None
) -> None:
    assert _mode(agent, modes, kinds) == mode
    assert _mode(agent, modes, frozenset()) is None


@pytest.mark.parametrize(
    ("agent", "modes", "kinds", "wanted"),
    [
        (CLAUDE, CLAUDES, NO_WRITING, "acceptEdits"),
        (CLAUDE, CLAUDES, NO_COMMANDS, "auto"),
        (CLAUDE, CLAUDES, NO_COMMANDS, "bypassPermissions"),
        (CODEX, CODEXES, NO_COMMANDS, "Full access"),
        (CODEX, CODEXES, NO_WRITING, "workspace-write"),
        ("gemini-cli", GEMINIS, NO_WRITING, "auto edit"),
        ("gemini-cli", GEMINIS, NO_COMMANDS, "YOLO"),
        ("hermes-agent", HERMESES, NO_WRITING, "accept_edits"),
        ("hermes-agent", HERMESES, NO_COMMANDS, None),
        ("unheard-of", {}, NO_WRITING, None),
        ("unheard-of", {"code": "Code"}, NO_COMMANDS, None),
    ],
)
def test_a_mode_that_does_what_is_forbidden_and_an_agent_that_cannot_be_kept_from_it_are_refused(
    agent: str, modes: dict[str, str], kinds: frozenset[str], wanted: str | None
) -> None:
    with pytest.raises(AgentFailed, match=r"may not (write files|run commands)") as failure:
        _mode(agent, modes, kinds, wanted)
    assert "tools in config.yaml" in failure.value.hint


def test_agents_are_told_in_their_own_words_and_what_the_user_told_them_stays() -> None:
    given = {"OPENCODE_PERMISSION": '{"bash": "allow", "skill": "deny"}', "A": "b"}
    told = environment(given, NO_WRITING | NO_COMMANDS)
    assert json.loads(told["OPENCODE_PERMISSION"]) == {"bash": "deny", "skill": "deny", "edit": "deny"}
    assert json.loads(told["CODEX_CONFIG"]) == {"features.shell_tool": False}
    assert environment(given, frozenset()) == given
    with pytest.raises(AgentFailed, match="CODEX_CONFIG in the environment is not a JSON object"):
        environment({"CODEX_CONFIG": "3"}, NO_COMMANDS)


def test_nothing_is_asked_of_an_agent_in_a_mode_that_the_role_forbids(storage: Path) -> None:
    flags = ["--modes", "yolo,default"]
    steps = Scripted(
        storage, "answer", options=["--mode", "yolo"], flags=flags, role_tools="{deny: [write_file]}"
    )
    came = steps.step()
    assert came.error.endswith("may not write files here, and in its mode 'yolo' it does so without asking")
    assert steps.noted("prompt") == []


LISTED = "tools: {permissions: [read, 'execute:python3 *'], maxReadBytes: 10, strict: %s}\n"


@pytest.mark.parametrize("modes", ["default", "build"])
def test_rules_that_an_agent_can_not_be_held_to_are_named_and_strictly_it_does_not_play(
    storage: Path, modes: str
) -> None:
    flags = ["--modes", modes]
    steps = Scripted(storage, "answer", flags=flags, more=LISTED % "false")
    (note,) = [note for note in steps.step().detail["notes"] if "cannot enforce" in note]
    asks = modes == "default"
    assert (
        ("permissions: execute:python3 *" in note) == ("permissions: nothing of edit" in note) == (not asks)
    )
    assert note.endswith("maxReadBytes")  # it may read by its own means
    steps = Scripted(storage, "answer", flags=flags, more=LISTED % "true")
    came = steps.step()
    assert "cannot enforce these rules of the policy" in came.error and "tools (strict)" in came.hint
    assert len(steps.noted("prompt")) == 1, "it is told nothing"


def test_a_policy_without_rules_for_what_is_asked_says_nothing_of_them(storage: Path) -> None:
    came = Scripted(
        storage, "answer", more="tools: {permissions: [read, edit, execute, fetch], strict: true}\n"
    ).step()
    assert not came.error and not came.detail.get("notes")


def test_a_forbidden_call_that_happened_all_the_same_fails_the_step(storage: Path) -> None:
    steps = Scripted(storage, "do:execute", "do:execute", flags=["--modes", "agent,read-only"])
    came = steps.step()
    call = came.tools("execute")[0]
    # What a command printed is told beside the call.
    assert (came.error, call["result"]) == ("", {"status": "completed", "exitCode": 3, "text": "mademade"})
    assert steps.noted("mode") == []
    steps.now("do:execute", more="tools: {runCommand: false}\n")
    came = steps.step()
    assert came.error.endswith("did what the tool policy forbids: execute: touch x")
    assert came.tools("execute")[0]["result"]["status"] == "completed"
    assert steps.noted("mode") == ["read-only"]
    assert came.detail["notes"][-1] == "its mode is read-only: it may not run commands"


@pytest.mark.parametrize(
    ("call", "granted"),
    [
        ({"title": "echo hi"}, True),
        ({"title": "`echo hi`", "rawInput": {}}, True),
        ({"title": "echo hi; touch pwned"}, False),
        ({"title": "echo hi\ntouch pwned"}, False),
        ({"title": "echo $(touch pwned)", "rawInput": {"description": "greets"}}, False),
        ({"title": "echo a very long text that is cut off here…"}, False),
        ({"title": "echo hi; touch pwned", "locations": [{"path": "a.txt"}]}, False),
        ({"title": "Greets", "rawInput": {"command": "echo hi"}}, True),
        ({"title": "echo hi", "rawInput": {"command": "touch pwned"}}, False),
    ],
)
def test_a_command_that_stands_in_the_title_alone_is_held_to_the_same_rules(
    call: dict[str, object], granted: bool, tmp_path: Path
) -> None:
    options = [{"optionId": "y", "name": "Yes", "kind": "allow_once"}]
    policy = ToolPolicy(permissions=(("read", "execute:echo *"),))
    decision = decide(parse_request({"kind": "execute", **call}, options, tmp_path), policy, tmp_path)
    assert (decision is not None and decision.granted) is granted


def granted(call: dict[str, object], folder: Path, *rules: str) -> bool:
    options = [{"optionId": "y", "name": "Yes", "kind": "allow_once"}]
    decision = decide(parse_request(call, options, folder), ToolPolicy(permissions=(rules,)), folder)
    return decision is not None and decision.granted


@pytest.mark.parametrize(
    "given",
    [
        {"cmd": "touch x"},
        {"script": "touch x; rm y"},
        {"command": ["touch", 1]},
        {"command": {"line": "touch x"}},
        {"command": "echo", "args": ["hi", {"then": "touch x"}]},
        {"command": "", "args": ["touch", "x"]},
        "touch x",
        ["touch", "x"],
    ],
)
def test_no_title_stands_for_an_input_in_which_no_command_is_found(given: object, tmp_path: Path) -> None:
    call = {"title": "echo hi", "rawInput": given}
    assert not granted({"kind": "execute", **call}, tmp_path, "execute:echo *")
    assert granted({"kind": "execute", **call}, tmp_path, "execute")
    shown = parse_request({"kind": "execute", **call}, [], tmp_path).shown
    assert "touch" in shown, "who is asked sees it"
    if isinstance(given, dict):
        assert not granted({"kind": "other", **call}, tmp_path, "*:echo *")


@pytest.mark.parametrize(
    ("beside", "is_granted"),
    [
        ({}, True),
        ({"description": "greets", "timeout": 3, "env": {}, "args": None}, True),
        ({"cwd": "@"}, True),
        ({"workingDirectory": "@/src", "call_id": "1", "parsed_cmd": [{"type": "unknown"}]}, True),
        ({"dir_path": "src"}, True),
        ({"cwd": "/"}, False),
        ({"workdir": ".."}, False),
        ({"directory": "@/../x"}, False),
        ({"cwd": ["@"]}, False),
        ({"env": {"PATH": "/evil"}}, False),
        ({"environment": ["LD_PRELOAD=/evil.so"]}, False),
        ({"shell": "/evil/sh"}, False),
        ({"stdin": "rm x"}, False),
        ({"new": True}, False),
    ],
)
def test_a_rule_for_a_command_grants_it_only_bare_and_in_the_working_directory(
    beside: dict[str, object], is_granted: bool, tmp_path: Path
) -> None:
    given = json.loads(json.dumps({"command": "make test", **beside}).replace("@", str(tmp_path)))
    for kind in ("execute", "other"):
        call = {"kind": kind, "title": "make test", "rawInput": given}
        assert granted(call, tmp_path, "*:make *") is is_granted
    words = {"kind": "execute", "title": "make test", "rawInput": given | {"command": ["make", "test"]}}
    assert granted(words, tmp_path, "execute:make test") is is_granted


def test_a_list_of_words_with_further_arguments_is_not_the_command_of_a_rule(tmp_path: Path) -> None:
    call = {"kind": "execute", "title": "ls", "rawInput": {"command": ["ls"], "args": ["/etc"]}}
    assert not granted(call, tmp_path, "execute:ls")


@pytest.mark.parametrize("kind", ["other", "execute", "execute ", " Execute", "", None, "new"])
def test_the_rules_for_commands_hold_for_titles_of_every_kind(kind: str | None, tmp_path: Path) -> None:
    rules = ("*:echo *", "other:echo *", "ex*:echo *")
    assert granted({"kind": kind, "title": "echo hi"}, tmp_path, *rules)
    assert not granted({"kind": kind, "title": "echo hi; touch x"}, tmp_path, *rules)
    assert granted({"kind": "fetch", "title": "https://a.org/?b&c"}, tmp_path, "fetch:*a.org*")


def test_a_kind_with_blanks_around_it_is_refused_as_well(tmp_path: Path) -> None:
    options = [{"optionId": word, "name": word, "kind": f"{word}_once"} for word in ("allow", "reject")]
    request = parse_request({"kind": "execute ", "title": "echo"}, options, tmp_path)
    decision = decide(request, ToolPolicy(run_command=False, permissions=(("*",),)), tmp_path)
    assert decision is not None and decision.option == "reject"


@pytest.mark.parametrize("kind", ["edit", "read", "delete", "move"])
@pytest.mark.parametrize(
    "given",
    [
        {"target_file": "/etc/passwd"},
        {"abs_path": "/etc/passwd"},
        {"absolutePath": "/etc/passwd"},
        {"edits": [{"path": "src/a"}, {"path": "/etc/passwd"}]},
        {"files": {"/etc/passwd": "x"}},
        {"paths": ["src/a", "/etc/passwd"]},
        {"from": "src/a", "to": "/etc/passwd"},
        {"path": {"absolute": "/etc/passwd"}},
        {"input": "*** Update File: /etc/passwd"},
        {"script": "cp x /etc/passwd"},
    ],
)
def test_files_are_found_wherever_an_input_names_them(
    kind: str, given: dict[str, object], tmp_path: Path
) -> None:
    call = {"kind": kind, "title": "src/a", "rawInput": given}
    assert not granted(call, tmp_path, kind, f"{kind}:src/*")


def test_a_glob_over_files_does_not_match_a_title(tmp_path: Path) -> None:
    assert not granted({"kind": "edit", "title": "src/a"}, tmp_path, "edit:src/*")
    call = {"kind": "edit", "title": "Edit", "rawInput": {"targetFile": "src/a", "profile": "/x"}}
    assert granted(call, tmp_path, "edit:src/*") and granted(call, tmp_path, "edit")
