"""Who plays is who was meant: `--agent` of a run, and what is checked before its first step."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cli_samples import on_terminal, write
from conftest import Uwf

import uwf_git as api

FIXED = """\
name: fix
description: A fix and its tests, and a person.
roles:
  fixer:
    description: f
    systemPrompt: f
    outputSchema: &done {type: object, properties: {passed: {type: boolean}}, required: [passed]}
  tests: {description: t, systemPrompt: t, outputSchema: *done}
  boss: {description: b, systemPrompt: b, outputSchema: *done}
graph:
  $START: [{role: fixer}]
  fixer: [{role: tests}]
  tests: [{role: boss}]
  boss: [{role: $END}]
"""
SAYS_YES = """uwf-exec echo '{"passed": true}'"""
COUNTS = 'uwf-exec sh -c \'echo asked >>asked; echo "{\\"passed\\": true}"\''


@pytest.fixture(autouse=True)
def fix(uwf: Uwf) -> None:
    write("fix.yaml", FIXED)
    uwf("workflow", "put", "fix.yaml")


def sets(uwf: Uwf, *settings: tuple[str, str]) -> None:
    for key, value in settings:
        uwf("config", "set", key, value)


def played() -> dict[str, tuple[str, bool]]:
    """The agents and verdicts of the newest thread's roles."""
    thread = max(api.open().threads(ended=True), key=lambda each: each.id)
    return {step.role: (step.agent, step.output.get("passed")) for step in thread.steps}


def test_an_agent_for_a_run_plays_no_commands_and_no_persons_role(uwf: Uwf) -> None:
    sets(
        uwf,
        ("agents.suite.command", "uwf-exec false"),
        ("agentOverrides.fix.tests", "suite"),
        ("agentOverrides.fix.boss", "uwf-human"),
    )
    result = uwf("run", "fix", "-p", "x", "--agent", SAYS_YES, check=None)
    assert uwf("thread", "show", "@").json["status"] == "waiting"
    assert played()["tests"] == ("uwf-exec", False)
    assert (
        "--agent leaves roles that no model plays as they are: tests (suite), boss (a person)" in result.err
    )


def gated(uwf: Uwf) -> None:
    """The workflow with a person's role."""
    write("fix.yaml", FIXED.replace("boss: {", "boss: {human: true, "))
    uwf("workflow", "put", "fix.yaml")


@pytest.mark.parametrize("command", ["run", "thread run"])
def test_no_agent_is_named_for_a_persons_role(uwf: Uwf, command: str) -> None:
    gated(uwf)
    sets(uwf, ("agents.codex.command", "uwf-codex"))
    thread = str(uwf("thread", "start", "fix", "-p", "x").json["thread"])
    words = ("run", "fix", "-p", "x") if command == "run" else ("thread", "run", thread)
    refused = uwf(*words, "--agent", SAYS_YES, "--agent", "boss=codex", check=2).error
    assert refused["message"] == "--agent boss=codex: a person plays role 'boss' of fix"
    assert "answer when the thread waits" in refused["hint"]
    assert len(api.open().thread(thread).steps) == 0
    uwf(*words, "--agent", SAYS_YES, "--agent", "boss=uwf-human", check=None)
    assert uwf("thread", "show", "@").json["status"] == "waiting"


def test_an_agent_that_plays_no_role_is_named_before_the_first_step(uwf: Uwf) -> None:
    gated(uwf)
    suite = "uwf-exec echo '{\"passed\": true}'"
    sets(uwf, ("agents.suite.command", suite))
    sets(uwf, *((f"agentOverrides.fix.{role}", "suite") for role in ("fixer", "tests")))
    result = uwf("run", "fix", "-p", "x", "--agent", SAYS_YES, check=None)
    line = (
        "--agent plays no role here, since no model plays one: fixer (suite), tests (suite), boss (a person)"
    )
    assert result.err.startswith(f"uwf: {line}")
    assert line in result.lines[0]["warnings"][0]


def test_a_plain_command_is_one_too(uwf: Uwf) -> None:
    Path("suite").write_text("#!/bin/sh\nuwf agent put-step '{\"passed\": false}'\n")
    Path("suite").chmod(0o755)
    sets(uwf, ("agents.suite.command", str(Path("suite").absolute())), ("agentOverrides.fix.tests", "suite"))
    uwf("run", "fix", "-p", "x", "--agent", SAYS_YES)
    assert played()["tests"][1] is False


def test_one_role_is_named_with_its_agent(uwf: Uwf) -> None:
    sets(uwf, ("agents.suite.command", "uwf-exec false"), ("agentOverrides.fix.tests", "suite"))
    uwf(
        "run",
        "fix",
        "-p",
        "x",
        "--agent",
        SAYS_YES,
        "--agent",
        f"tests={SAYS_YES}",
        "--agent",
        "boss=uwf-rehearse",
    )
    assert played()["tests"] == ("uwf-exec", True)
    assert played()["boss"][0] == "uwf-rehearse"
    assert "in place of suite" in str(uwf("thread", "step-details", "@@2").out)


def test_a_role_that_is_not_there_is_named_with_those_that_are(uwf: Uwf) -> None:
    refused = uwf("run", "fix", "-p", "x", "--agent", "judge=codex", check=2).error
    assert "has no role 'judge'" in refused["message"]
    assert refused["hint"] == "known: boss, fixer, tests"
    assert uwf("thread", "list", "--all").json == []


def test_in_python_too(uwf: Uwf) -> None:
    sets(uwf, ("agents.suite.command", "uwf-exec false"), ("agentOverrides.fix.tests", "suite"))
    store = api.open()
    thread = store.start("fix", "x")
    steps = list(thread.run(lambda turn: {"passed": True}))
    assert [step.output["passed"] for step in steps] == [True, False, True]
    other = store.start("fix", "x")
    for _ in range(3):
        step = other.step(lambda turn: {"passed": True})
        assert step is not None and step.output["passed"] is True


def test_a_step_overrides_whatever_plays_it_and_says_so(uwf: Uwf) -> None:
    sets(uwf, ("agents.suite.command", "uwf-exec false"), ("agentOverrides.fix.tests", "suite"))
    thread = uwf("thread", "start", "fix", "-p", "x").json["thread"]
    assert "in place of" not in uwf("thread", "step", thread, "--agent", SAYS_YES).err
    said = uwf("thread", "step", thread, "--agent", SAYS_YES).err
    assert "uwf-exec plays tests in place of suite, which config.yaml names" in said
    assert "uwf-exec played this role in place of suite" in uwf("thread", "step-details", f"{thread}@2").out
    assert uwf("verify").json["findings"] == []


def test_a_step_names_the_commands_where_one_program_plays_both(uwf: Uwf) -> None:
    sets(uwf, ("agents.uwf-exec.command", "uwf-exec false"), ("agentOverrides.fix.tests", "uwf-exec"))
    thread = uwf("thread", "start", "fix", "-p", "x").json["thread"]
    uwf("thread", "step", thread, "--agent", SAYS_YES)
    said = uwf("thread", "step", thread, "--agent", SAYS_YES).err
    assert f"{SAYS_YES} plays tests in place of uwf-exec false, which config.yaml names" in said


def test_a_rehearsal_rehearses_commands_as_well(uwf: Uwf) -> None:
    sets(uwf, ("agents.suite.command", "uwf-exec false"), ("agentOverrides.fix.tests", "suite"))
    uwf("run", "fix", "-p", "x", "--agent", "uwf-rehearse")
    assert {agent for agent, _ in played().values()} == {"uwf-rehearse"}


def test_a_run_whose_last_agent_is_missing_asks_nobody(uwf: Uwf) -> None:
    sets(
        uwf,
        ("agents.counts.command", COUNTS),
        ("defaultAgent", "counts"),
        ("agentOverrides.fix.tests", "uwf-gemini"),
        ("agents.gone.command", "uwf-exec no-such-program"),
        ("agentOverrides.fix.boss", "gone"),
    )
    bare = {
        "PATH": os.pathsep.join(
            each for each in os.environ["PATH"].split(":") if not Path(each, "gemini").exists()
        )
    }
    refused = uwf("run", "fix", "-p", "x", check=None, env=bare)
    assert refused.error["code"] == "invalid"
    assert "role tests: gemini is not installed" in refused.error["message"]
    assert "role boss: no-such-program is not installed" in refused.error["message"]
    assert not Path("asked").exists()
    assert uwf("thread", "list", "--all").json == []


def test_a_rehearsal_that_would_go_on_after_real_work_is_refused_with_a_hint_that_works(uwf: Uwf) -> None:
    sets(uwf, ("agents.counts.command", COUNTS), ("agentOverrides.fix.tests", "counts"))
    refused = uwf("run", "fix", "-p", "x", check=None).error
    assert "no agent is configured for boss, and" in refused["message"]
    assert refused["hint"].startswith("add --agent boss=uwf-rehearse")
    assert not Path("asked").exists()
    uwf("run", "fix", "-p", "x", "--agent", "boss=uwf-rehearse")
    assert uwf("thread", "show", "@").json["status"] == "completed"


def test_a_rehearsal_before_real_work_is_none_of_that(uwf: Uwf) -> None:
    sets(uwf, ("agents.counts.command", COUNTS), ("agentOverrides.fix.boss", "counts"))
    uwf("run", "fix", "-p", "x")
    assert uwf("thread", "show", "@").json["status"] == "completed"


def test_a_thread_that_goes_on_is_checked_from_where_it_is(uwf: Uwf) -> None:
    sets(uwf, ("agentOverrides.fix.fixer", "uwf-exec no-such-program"), ("defaultAgent", SAYS_YES))
    thread = uwf("thread", "start", "fix", "-p", "x").json["thread"]
    assert "role fixer" in uwf("thread", "run", thread, check=None).error["message"]
    uwf("thread", "step", thread, "--agent", SAYS_YES)
    uwf("thread", "run", thread)
    assert uwf("thread", "show", thread).json["status"] == "completed"


def test_a_login_that_seems_to_be_missing_is_told_and_not_refused(uwf: Uwf, hermetic: Path) -> None:
    Path("bin").mkdir()
    Path("bin/codex").write_text("#!/bin/sh\nexit 3\n")
    Path("bin/codex").chmod(0o755)
    path = {"PATH": f"{Path('bin').absolute()}:{os.environ['PATH']}"}
    told = uwf("run", "fix", "-p", "x", "--agent", "codex", env=path, check=None).err
    assert "codex seems not to be logged in: run: codex login" in told
    key = {**path, "OPENAI_API_KEY": "sk-" + "x" * 20}
    assert "seems not" not in uwf("run", "fix", "-p", "x", "--agent", "codex", env=key, check=None).err


def test_on_a_terminal_a_run_shows_who_plays_and_what_that_usually_takes(uwf: Uwf) -> None:
    sets(uwf, ("agentOverrides.fix.boss", SAYS_YES))
    uwf("run", "fix", "-p", "x")
    status, shown = on_terminal("run", "fix", "-p", "x", env={"NO_COLOR": "1"})
    assert status == 0
    rows = [line.split() for line in shown.splitlines()[:3]]
    assert rows == [["fixer", "uwf-rehearse"], ["tests", "uwf-rehearse"], ["boss", "uwf-exec"]]
    assert "usually 3 steps" in shown and "(1 thread before)" in shown


def test_setup_offers_the_agents_that_are_there(uwf: Uwf, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("bin").mkdir()
    Path("bin/codex").write_text("#!/bin/sh\nexit 3\n")
    Path("bin/codex").chmod(0o755)
    own = [each for each in os.environ["PATH"].split(":") if not Path(each, "claude").exists()]
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path("bin").absolute()), *own]))
    status, shown = on_terminal("setup", typed=[("Provider", "none"), ("Default agent", "")])
    assert status == 0 and "codex" in shown
    assert uwf("config", "get", "defaultAgent").json == "codex"


def test_a_suite_is_refused_before_its_first_trial(uwf: Uwf) -> None:
    write("cases.jsonl", '{"name": "one", "prompt": "x"}\n')
    uwf("eval", "import", "cases.jsonl", "--to", "fixes", "--workflow", "fix")
    sets(
        uwf,
        ("agents.counts.command", COUNTS.replace("asked;", f"{Path('asked').absolute()};")),
        ("agents.gone.command", "no-such-program"),
        ("defaultAgent", "counts"),
        ("agentOverrides.fix.boss", "gone"),
    )
    error = uwf("eval", "run", "fixes", check=1).error
    assert error["message"].startswith("workflow fix cannot run to its end here: role boss: no-such-program")
    assert not Path("asked").exists() and uwf("thread", "list", "--all").json == []
    uwf("eval", "run", "fixes", "--agent", "boss=counts", "--judge", "jsonata:true")
    uwf("config", "unset", "agentOverrides.fix.boss")
    write("judge.yaml", FIXED.replace("name: fix", "name: judge").replace("boss", "jury"))
    uwf("workflow", "put", "judge.yaml")
    sets(uwf, ("agentOverrides.judge.jury", "gone"))
    Path("asked").unlink()
    error = uwf("eval", "run", "fixes", "--judge", "workflow:judge", check=1).error
    assert error["message"].startswith("workflow judge cannot run to its end here: role jury")
    assert not Path("asked").exists()


def test_a_first_step_says_that_the_thread_cannot_reach_its_end_and_is_made(uwf: Uwf) -> None:
    sets(uwf, ("agentOverrides.fix.fixer", SAYS_YES), ("agentOverrides.fix.boss", "no-such-agent"))
    thread = uwf("thread", "start", "fix", "-p", "x").json["thread"]
    first = uwf("--format", "text", "thread", "step", thread)
    assert "workflow fix cannot run to its end here: role boss" in first.err
    other = uwf("thread", "start", "fix", "-p", "x").json["thread"]
    assert "cannot run to its end" not in uwf("thread", "step", other, "--agent", SAYS_YES).err


@pytest.mark.parametrize(
    "named",
    ["/nonexist/x", "uwf-exec /nonexist/x", "./gone/x", "./data"],
)
@pytest.mark.parametrize("place", ["option", "config"])
def test_a_program_whose_path_cannot_be_run_is_refused_before_there_is_a_thread(
    uwf: Uwf, named: str, place: str
) -> None:
    write("data", "not a program\n")
    sets(uwf, ("agents.counts.command", COUNTS), ("defaultAgent", "counts"))
    if place == "config":
        sets(uwf, ("agents.suite.command", named), ("agentOverrides.fix.boss", "suite"))
    words = ("--agent", f"boss={named}") if place == "option" else ()
    refused = uwf("run", "fix", "-p", "x", *words, check=None).error
    path = next(each for each in named.split() if "/" in each)
    assert f"{path} is not a file that can be run" in refused["message"]
    assert refused["hint"] == "correct its path"
    assert not Path("asked").exists()
    assert uwf("thread", "list", "--all").json == []


def test_a_program_of_a_relative_path_may_be_made_by_an_earlier_role(uwf: Uwf) -> None:
    write("says", """#!/bin/sh\necho '{"passed": true}'\n""")
    write("make.sh", """mv says later; chmod +x later; echo '{"passed": true}'\n""")
    agents = ("uwf-exec sh make.sh", "uwf-exec ./later", "uwf-exec ./later")
    named = (
        f"--agent={role}={agent}" for role, agent in zip(("fixer", "tests", "boss"), agents, strict=True)
    )
    uwf("run", "fix", "-p", "x", *named)
    assert uwf("thread", "show", "@").json["status"] == "completed"
