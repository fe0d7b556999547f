"""`uwf thread`, the commands that write: every line of the command table, through the real process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_samples import ASKS, PAIR, REJECTS_ONCE, on_terminal, scripted, write
from commands import begin, git
from conftest import Uwf

from uwf_git.format.ids import is_hash, is_thread_id
from uwf_git.format.kinds import Start
from uwf_git.git.repository import Oid
from uwf_git.store.instance import Instance

HEADED = """
name: headed
roles:
  one:
    description: says two things
    systemPrompt: Say them.
    outputSchema:
      type: object
      properties: {audience: {type: string}, subject: {type: string}}
graph:
  $START: [{role: one}]
  one: [{role: $END}]
"""


@pytest.fixture
def pair(uwf: Uwf) -> str:
    """A registered workflow's hash."""
    hash_: str = uwf("workflow", "put", write("pair.yaml", PAIR)).json["hash"]
    return hash_


@pytest.fixture
def thread(uwf: Uwf, pair: str) -> str:
    """A fresh thread of it."""
    id_: str = uwf("thread", "start", "pair", "-p", "Write a line").json["thread"]
    return id_


def in_child(command: str) -> str:
    """The same agent as a process of its own: a path isn't taken for an embedded agent."""
    program, _, rest = command.partition(" ")
    return f"{Path(sys.executable).parent / program} {rest}"


@pytest.mark.parametrize("where", [str, in_child], ids=["in the engine", "as a process"])
def test_a_run_goes_from_start_to_end_one_line_a_step(
    uwf: Uwf, pair: str, where: Callable[[str], str]
) -> None:
    started = uwf("thread", "start", "pair", "-p", "Write a line").json
    assert started.keys() == {"workflow", "thread"}
    assert started["workflow"] == pair
    assert is_thread_id(started["thread"])

    agent = where(scripted(REJECTS_ONCE))
    step = uwf("thread", "step", started["thread"], "--agent", agent).json
    assert step.keys() == {"workflow", "thread", "head", "done", "status", "role", "agent"}
    assert step["agent"] == "uwf-rehearse"
    assert (step["done"], step["status"], step["role"]) == (False, "idle", "writer")
    assert is_hash(step["head"])

    lines = uwf("thread", "run", started["thread"], "--agent", agent).lines
    assert [(line["role"], line["done"]) for line in lines] == [
        ("critic", False),
        ("writer", False),
        ("critic", True),
    ]
    assert all(line.keys() == step.keys() for line in lines)
    assert lines[-1]["status"] == "completed"

    shown = uwf("thread", "show", started["thread"]).json
    assert shown == {**lines[-1], "rehearsed": 4, "extraction": "native", "next": "$END"}
    assert uwf("thread", "step", started["thread"], check=1).error["code"] == "invalid"


def test_a_thread_is_started_for_each_line_with_one_write(uwf: Uwf, root: Path, pair: str) -> None:
    lines = [json.dumps(f"Write line {number}") for number in range(30)]
    lines[2] = json.dumps({"prompt": "Write two", "budget": {"maxSteps": 2, "maxWallTime": "1h"}})
    write("tasks.jsonl", "\n".join([*lines[:20], "", *lines[20:]]) + "\n")
    packs = root / "store.git" / "objects" / "pack"
    before = len(list(packs.glob("*.pack")))
    started = uwf("thread", "start", "pair", "--each", "tasks.jsonl", "--max-steps", "5").json
    assert [each.keys() for each in started] == [{"workflow", "thread"}] * 30
    assert len(list(packs.glob("*.pack"))) <= before + 1
    listed = {each["thread"]: each for each in uwf("thread", "list").json}
    titles = [listed[each["thread"]]["title"] for each in started]
    assert titles == [f"Write line {number}" if number != 2 else "Write two" for number in range(30)]
    assert [each["thread"] for each in started] == sorted(listed)
    budgets = [uwf("thread", "budget", started[number]["thread"]).json for number in (1, 2)]
    limits = [{each["limit"]: each["most"] for each in budget["budget"]} for budget in budgets]
    assert limits == [{"maxSteps": 5}, {"maxSteps": 2, "maxWallTime": 3600}]
    assert uwf("verify", "--all").code == 0

    piped = uwf("thread", "start", "pair", "--each", "-", "--format", "text", input='"Write it"\n')
    thread, title = piped.out.split(maxsplit=1)
    assert is_thread_id(thread) and title == "Write it\n"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("Write it", "not JSON"),
        ("{}", "has no prompt"),
        ('{"prompt": " "}', "prompt is empty"),
        ('{"prompt": "p", "promt": "q"}', 'no key "promt"'),
        ('{"prompt": "p", "budget": {"maxSteps": 0}}', "maxSteps"),
        ('{"prompt": "p", "maxRounds": 3}', "is for code workflows"),
        ('{"prompt": "p", "persona": "ada"}', "is of none"),
        ('{"prompt": "p", "cwd": "nowhere"}', "no folder nowhere"),
        ("[]", "not a list"),
    ],
)
def test_an_invalid_line_is_named_and_nothing_is_started(uwf: Uwf, pair: str, line: str, said: str) -> None:
    write("tasks.jsonl", f'"Write a line"\n\n{line}\n')
    error = uwf("thread", "start", "pair", "--each", "tasks.jsonl", check=None).error
    assert error["message"].startswith("tasks.jsonl:3: ") and said in error["message"], error
    assert uwf("thread", "list").json == []


def test_a_file_that_is_missing_is_told_with_the_next_step_and_makes_no_store(
    uwf: Uwf, pair: str, tmp_path: Path
) -> None:
    for option in ("--prompt-file", "--each"):
        missing = uwf("thread", "start", "pair", option, "nope", check=3).error
        assert missing["message"] == "no file nope" and "standard input" in missing["hint"]
    fresh = tmp_path / "fresh"
    for command in (("run",), ("thread", "start")):
        uwf(*command, "nosuch.yaml", "-p", "x", "--root", fresh, check=3)
    uwf("thread", "start", "nosuch.yaml", "--each", write("tasks.jsonl", '"x"\n'), "--root", fresh, check=3)
    assert not (fresh / "store.git").exists()


def test_tasks_need_a_line_and_exclude_a_prompt(uwf: Uwf, pair: str) -> None:
    write("tasks.jsonl", "\n")
    assert "has no tasks" in uwf("thread", "start", "pair", "--each", "tasks.jsonl", check=1).error["message"]
    uwf("thread", "start", "pair", "--each", "tasks.jsonl", "-p", "Write it", check=2)


def test_run_stops_at_the_limit_and_refuses_limits_that_are_none(uwf: Uwf, thread: str) -> None:
    for limit in ("0", "-1", "1.5", "many"):
        refused = uwf("thread", "run", thread, "--max-steps", limit, check=2)
        assert refused.error["code"] == "usage"
        assert refused.out == ""
    assert uwf("thread", "show", thread).json["role"] is None
    limited = ("--max-steps", "2", "--agent", scripted(REJECTS_ONCE))
    two = uwf("thread", "run", thread, *limited, check=11).lines
    assert [line["role"] for line in two] == ["writer", "critic"]
    assert uwf("thread", "show", thread).json["next"] == "writer"


def test_a_question_stops_a_run_and_an_answer_lets_it_go_on(uwf: Uwf, thread: str) -> None:
    asked = uwf("thread", "run", thread, "--agent", scripted(ASKS), check=5)
    assert [line["status"] for line in asked.lines] == ["waiting"]
    assert asked.error["code"] == "waiting"
    assert uwf("thread", "step", thread, check=5).error["code"] == "waiting"

    shown = uwf("thread", "show", thread).json
    assert shown["next"] == "$USER"
    assert (shown["asks"], shown["question"]) == ("writer", "Which \x1b[31mcolour\u202e?")
    assert shown["options"] == ["red", "blue"]

    empty = uwf("thread", "answer", thread, check=2)
    assert empty.error["code"] == "usage"
    stale = uwf("thread", "answer", thread, "-m", "red", "--for", "0000000000001", check=3)
    assert stale.error["code"] == "not_found"
    answered = uwf("thread", "answer", thread, "--for", shown["head"][:8], "-m", "blue").json
    assert (answered["role"], answered["status"]) == ("$USER", "idle")
    assert uwf("thread", "show", thread).json["next"] == "writer"
    for late in ([], ["--for", answered["head"]]):
        assert uwf("thread", "answer", thread, "-m", "again", *late, check=1).error["code"] == "invalid"
    assert uwf("thread", "run", thread, "--agent", "uwf-rehearse").lines[-1]["status"] == "completed"
    assert [step["role"] for step in uwf("thread", "steps", thread).json][:3] == ["writer", "$USER", "writer"]


def test_an_answer_is_asked_for_on_a_terminal(uwf: Uwf, thread: str) -> None:
    uwf("thread", "step", thread, "--agent", scripted(ASKS))
    status, shown = on_terminal("thread", "answer", thread, typed=[("> ", "2")], env={"NO_COLOR": "1"})
    assert status == 0
    assert "writer asks: Which \\x1b[31mcolour\\u202e?\n  1  red\n  2  blue\n" in shown
    assert uwf("thread", "steps", thread).json[-1]["output"] == {"answer": "blue"}


def test_an_answer_for_a_step_that_no_longer_asks_is_refused(uwf: Uwf, thread: str) -> None:
    twice = scripted(ASKS * 3)
    first = uwf("thread", "step", thread, "--agent", twice).json
    assert uwf("thread", "answer", thread, input="Red\n").json["role"] == "$USER"
    second = uwf("thread", "step", thread, "--agent", twice).json
    assert second["status"] == "waiting"
    refused = uwf("thread", "answer", thread, "--for", first["head"], "-m", "late", check=1)
    assert second["head"] in refused.error["message"]
    assert uwf("thread", "show", thread).json["head"] == second["head"]


def test_a_fork_at_the_end_of_a_completed_thread_says_how_to_fork_it_earlier(uwf: Uwf, thread: str) -> None:
    steps = uwf("thread", "run", thread, "--agent", scripted(REJECTS_ONCE)).lines
    for origin in (thread, steps[-1]["head"]):
        made = uwf("thread", "fork", origin)
        assert made.err.count("\n") == 1 and f"nothing comes next in {made.json['thread']}" in made.err
        assert f"uwf thread fork {thread} --from-role critic" in made.err
    assert uwf("thread", "fork", thread, "--at", "1").err == ""


def test_a_fork_was_touched_when_it_was_forked(
    uwf: Uwf, thread: str, instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = instance.registry.current("pair")
    with monkeypatch.context() as then:
        then.setattr("time.time", lambda: 1_735_689_600.0)
        old = instance.threads.start(Oid(hex=version.commit), Start(version.hash, "Do it"))
    fork = uwf("thread", "fork", old).json["thread"]
    updated = {each["thread"]: each["updated"] for each in uwf("thread", "list").json}
    assert updated[old] == "2025-01-01T00:00:00Z" < updated[fork]
    assert [each["thread"] for each in uwf("thread", "list", "--older-than", "1d").json] == [old]
    uwf("thread", "kill", "--older-than", "1d", "--yes")
    assert uwf("thread", "show", fork).json["done"] is False


def test_a_fork_shares_the_past_and_goes_its_own_way(uwf: Uwf, thread: str, instance: Instance) -> None:
    agent = scripted(REJECTS_ONCE)
    heads = [line["head"] for line in uwf("thread", "run", thread, "--agent", agent).lines]

    def objects() -> list[str]:
        listed = ("cat-file", "--batch-all-objects", "--batch-check=%(objecttype)")
        return sorted(git("--git-dir", instance.location.git_dir, *listed).split())

    before = objects()
    cases = [
        ([heads[0]], heads[0], "critic"),
        ([heads[1][:6]], heads[1], "writer"),
        ([thread, "--at", "2"], heads[1], "writer"),
        ([thread, "--from-role", "critic"], heads[2], "critic"),
        ([thread[:20]], heads[3], "$END"),
    ]
    forks = []
    for arguments, step, following in cases:
        made = uwf("thread", "fork", *arguments).json
        assert made.keys() - {"warnings"} == {"thread", "forkedFrom"}
        assert ("warnings" in made) is (following == "$END")
        assert made["forkedFrom"] == {"step": step, "thread": thread}
        shown = uwf("thread", "show", made["thread"]).json
        assert (shown["head"], shown["next"], shown["done"]) == (step, following, False)
        forks.append(made["thread"])
    assert objects() == sorted([*before, *["tag"] * len(forks)])

    start = uwf("thread", "fork", thread, "--at", "0").json
    assert uwf("thread", "show", start["thread"]).json["next"] == "writer"

    for arguments, status in (
        ([thread, "--at", "9"], 3),
        ([thread, "--from-role", "editor"], 3),
        ([thread, "--at", "1", "--from-role", "critic"], 2),
        ([heads[0], "--at", "1"], 2),
        (["0000000000000"], 3),
    ):
        uwf("thread", "fork", *arguments, check=status)

    # Another output: a step that differs by its duration alone may have the same hash.
    uwf("thread", "step", forks[0], "--agent", scripted(REJECTS_ONCE.replace("false", "true")))
    found = uwf("thread", "diff", thread, forks[0][:20]).json
    assert found["workflow"]["same"] and found["start"]["same"]
    assert [step["step"] for step in found["shared"]] == heads[:1]
    assert [step["step"] for step in found["a"]["steps"]] == heads[1:]
    assert [step["role"] for step in found["b"]["steps"]] == ["critic"]


def test_a_killed_thread_stays_readable_and_a_removed_one_is_gone(uwf: Uwf, thread: str) -> None:
    uwf("thread", "step", thread)
    assert uwf("thread", "kill", thread, "--reason", "no longer\nwanted").json == {
        "thread": thread,
        "archived": True,
    }
    shown = uwf("thread", "show", thread).json
    assert (shown["status"], shown["done"], shown["reason"]) == ("killed", True, "no longer wanted")
    assert "Write a line" in uwf("thread", "read", thread).out
    assert uwf("thread", "list").json == []
    assert [each["status"] for each in uwf("thread", "list", "--all").json] == ["killed"]
    uwf("thread", "kill", thread, check=1)
    uwf("thread", "step", thread, check=1)

    kept = uwf("thread", "rm", thread, check=2)
    assert "--yes" in kept.error["hint"]
    removed = uwf("thread", "rm", thread, "--yes").json
    assert (removed["thread"], removed["removed"]) == (thread, True)
    assert uwf("thread", "show", thread, check=3).error["code"] == "not_found"


def test_the_working_folder_given_at_start_is_remembered(
    uwf: Uwf, pair: str, script: Callable[[str, str], Path]
) -> None:
    agent = script("where", "import os, sys\nprint(os.getcwd(), file=sys.stderr)\nsys.exit(3)\n")
    Path("project").mkdir()
    for folder, status in (("nowhere", 3), ("pair.yaml", 1)):
        uwf("thread", "start", "pair", "-p", "x", "--cwd", folder, check=status)
    thread = uwf("thread", "start", "pair", "-p", "x", "--cwd", "project").json["thread"]
    failed = uwf("thread", "step", thread, "--agent", agent, cwd=Path("/"), check=6)
    assert f"exited with 3: {Path('project').absolute()}" in failed.error["message"]


def test_the_prompt_comes_from_an_option_a_file_or_standard_input(uwf: Uwf, pair: str) -> None:
    text = "Zeile eins\n\nünïcode é e\u0301 🍊 & <b>markup</b> a\0b \u202e \x1b]0;owned\x07\n"
    write("task.md", "\ufeff" + text)
    for arguments, data in (
        (["-p", "-"], text),
        (["--prompt-file", "-"], text),
        (["--prompt-file", "task.md"], None),
    ):
        thread = uwf("thread", "start", "pair", *arguments, input=data).json["thread"]
        assert uwf("thread", "read", thread, "--format", "json").json["prompt"] == text


def test_a_thread_in_place_of_a_workflow_is_named_with_the_command_that_runs_it(uwf: Uwf, pair: str) -> None:
    assert uwf("run", "@", check=3).error["message"] == "no thread @: there are 0"
    thread = uwf("thread", "start", "pair", "-p", "x").json["thread"]
    for name in ("@", thread, thread[-6:]):
        error = uwf("run", name, check=2).error
        assert error["message"] == f"{name} is a thread, not a workflow"
        assert error["hint"] == f"uwf thread run {name}"
        assert uwf("thread", "start", name, check=2).error == error
    uwf(*error["hint"].split()[1:], "--agent", "uwf-rehearse")
    assert uwf("thread", "show", thread).json["done"]
    assert "uwf thread fork" in uwf("run", "@", check=2).error["hint"]
    assert "no prompt" in uwf("run", "pair", check=2).error["message"]
    assert "no prompt" in uwf("run", "nothing", check=2).error["message"]


def test_a_prompt_that_is_none_is_refused(uwf: Uwf, pair: str) -> None:
    Path("binary").write_bytes(b"\xff\xfe\x00")
    Path("surrogate").write_bytes(b"\xed\xa0\x80 lone")
    Path("huge").write_bytes(b"x" * ((32 << 20) + 1))
    for arguments, status in (
        (["-p", ""], 2),
        (["-p", " \n\t"], 2),
        ([], 2),
        (["-p", "x", "--prompt-file", "task.md"], 2),
        (["--prompt-file", "missing"], 3),
        (["--prompt-file", "."], 1),
        (["--prompt-file", "binary"], 1),
        (["--prompt-file", "surrogate"], 1),
        (["--prompt-file", "huge"], 1),
    ):
        uwf("thread", "start", "pair", *arguments, check=status)
    # A lone surrogate, as a shell passes on bytes that are no UTF-8.
    refused = subprocess.run(
        [sys.executable, "-m", "uwf_cli.main", "thread", "start", "pair", "-p", b"\xff\xfe"],
        capture_output=True,
        text=True,
    )
    assert refused.returncode == 1
    assert "surrogate" in json.loads(refused.stderr)["error"]["message"]
    assert uwf("thread", "list").json == []


def test_eight_starts_at_once_make_eight_threads_in_a_store_that_the_first_of_them_makes(
    uwf: Uwf, pair: str
) -> None:
    environ = {"UWF_STORAGE_ROOT": str(Path("fresh").absolute())}
    running = [begin("thread", "start", "pair.yaml", "-p", "x", env=environ) for _ in range(8)]
    outcomes = [(*process.communicate(timeout=60), process.returncode) for process in running]
    assert [status for _out, _err, status in outcomes] == [0] * 8, outcomes
    listed = uwf("thread", "list", env=environ).json
    assert {each["thread"] for each in listed} == {json.loads(out)["thread"] for out, _err, _ in outcomes}
    assert len(listed) == 8


def test_an_answer_without_any_standard_input_says_how_to_give_one(uwf: Uwf, thread: str) -> None:
    uwf("thread", "step", thread, "--agent", scripted(ASKS))
    command = f'"{sys.executable}" -m uwf_cli.main thread answer {thread} <&-'
    told = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert told.returncode == 2 and "standard input, which is closed" in told.stderr


def test_one_output_has_one_headline_whoever_wrote_its_fields_in_what_order(uwf: Uwf, pair: str) -> None:
    said = []
    for fields in ("subject: a, audience: b", "audience: b, subject: a"):
        write("said.yaml", f"- {{role: one, output: {{{fields}}}}}\n")
        flow = write("flow.yaml", HEADED)
        thread = uwf("thread", "start", flow, "-p", "x").json["thread"]
        uwf("thread", "step", thread, "--agent", "uwf-rehearse --script said.yaml")
        said.append(uwf("thread", "log", thread).json[0]["subject"])
    assert said == ["0001 one: b", "0001 one: b"]


def test_what_can_not_be_done_is_told_before_anything_is_made(uwf: Uwf, pair: str) -> None:
    for agent in ("", "nosuchagent", "uwf-exce true", "nosuchprogram --fast"):
        refused = uwf("run", "pair", "-p", "x", "--agent", agent, check=2)
        assert refused.error["message"] and refused.error["hint"]
    assert uwf("thread", "list").json == []
    hint = uwf("thread", "rm", "nope", "--yes", check=3).error["hint"]
    assert "without I, L, O, U" in hint and "uwf thread list --all" in hint
    resumed = uwf("thread", "resume", "--all", "--format", "text")
    assert (resumed.out, resumed.err) == ("", "uwf: nothing is paused here\n")
