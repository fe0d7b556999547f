"""A run of a suite: a case is tried once and judged as often as anybody likes, and what broke off goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from commands import git
from conftest import Uwf
from suite_bench import AGENT, SOLVE, Bench
from two_machines import Machine
from workflows import opened

from uwf_git.ext.evaluation.records import UNKNOWN, Case, identified
from uwf_git.ext.evaluation.suite import Additions, Suites

Config = Callable[[str], Path]
LONG = "x" * 300_000  # more than is kept of an output


def test_a_case_is_tried_once_and_judged_anew_without_an_agent(bench: Bench) -> None:
    added = bench.imports(
        [
            {"name": "one", "prompt": "say a", "judges": ["exact:approved"], "expected": {"approved": True}},
            {"name": "two", "prompt": "say b", "judges": [{"jsonata": "steps[0].output.answer = 'SAY C'"}]},
        ]
    )
    assert [each["case"] for each in added["added"]] == ["one", "two"]
    assert bench.imports([{"name": "one", "prompt": "say a"}])["unchanged"] == 0  # it has no judges any more
    assert bench.results() == [("one", "passed", 1.0), ("two", "failed", 0.0)]
    assert bench.calls == 4

    first = bench.run().json
    assert (first["fresh"], bench.calls) == (0, 4)
    again = bench.run().json
    assert (again["commit"], again["run"]) == (first["commit"], first["run"])  # nothing new is no commit

    assert bench.results("--judge", "jsonata:{'score': 0.25, 'reason': 'meh'}") == [
        ("one", "failed", 0.25),
        ("two", "failed", 0.25),
    ]
    bench.run("--judge", "schema:text.json", check=3)
    Path("text.json").write_text('{"properties": {"approved": {"const": true}}}')
    assert bench.results("one", "--judge", "schema:text.json") == [("one", "passed", 1.0)]
    assert bench.calls == 4

    assert len(bench.results("one", "--repeat", "3")) == 3
    assert bench.calls == 8
    bench.results("one", "--label", "another day")
    assert bench.calls == 10
    changed = Path("solve.yaml").read_text().replace("Solve it.", "Solve it well.")
    Path("solve.yaml").write_text(changed)
    bench.results("one", "--workflow", "solve.yaml")
    assert bench.calls == 12
    bench.uwf("workflow", "put", "solve.yaml")
    assert bench.run("one").json["fresh"] == 0  # by now the newest, which was tried from its file
    old = bench.uwf("workflow", "history", "solve").json[-1]["hash"]
    assert bench.run("one", "--workflow", f"solve@{old[:6]}").json["fresh"] == 0
    assert bench.calls == 12
    bench.uwf("verify", "--all")


def test_agents_work_on_the_files_of_a_case_and_judges_see_what_they_left(
    bench: Bench, config: Config, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path("project")
    folder.mkdir()
    (folder / "notes.txt").write_text("todo\n")
    (folder / ".gitignore").write_text("*.log\n")
    (folder / "old.log").write_text("left out")
    (folder / "check").write_text(
        "#!/bin/sh\ngrep -q TODO notes.txt && ! test -e ignored.log && git diff --stat\n"
    )
    (folder / "check").chmod(0o755)
    (folder / "link").symlink_to("notes.txt")
    config(
        "judges:\n  left: {command: [sh, -c, 'test -x check && ./check']}\n"
        "  said: {command: [sh, -c, 'echo no; exit 3']}\n"
    )
    monkeypatch.setenv("LEAKED_API_KEY", "sk-live-4f9Qz81LmW07bTgX2cVd")
    Path("suite.yaml").write_text(
        "suite: bugs\nworkflow: solve\ncases:\n"
        "  - {name: one, prompt: fix it, fixture: project, judges: [left, said]}\n"
        "  - {name: two, prompt: leak it, files: {notes.txt: todo, src/a.txt: b}, judges: [left]}\n"
    )
    bench.uwf("eval", "import", "suite.yaml")
    one, two = bench.run().json["results"]
    assert [(each["judge"], each["passed"], each["reason"]) for each in one["scores"]] == [
        ("left", True, None),
        ("said", False, "no"),
    ]
    listed = git("--git-dir", root / "store.git", "ls-tree", "-r", one["work"]).splitlines()
    assert [line.split("\t")[1] for line in listed] == [".gitignore", "check", "link", "notes.txt"]
    assert [line.split()[0] for line in listed] == ["100644", "100755", "120000", "100644"]
    assert two["scores"][0]["passed"] is False  # it has no check
    assert two["notes"] and "key.txt" in two["notes"][0] and "sk-live" not in two["notes"][0]
    assert not list((root / "evaluation").iterdir())  # what is recorded needs no folder
    bench.uwf("verify", "--all")


def test_a_judge_has_the_files_of_a_case_that_the_case_itself_ignores(bench: Bench, root: Path) -> None:
    Path("outside").mkdir()
    Path("outside/c.txt").write_text("not of the case")
    files = {
        ".gitignore": "*.txt\nout/\n",
        "notes.txt": "todo",
        "out/b.txt": "b",
        "sub/c.txt": "c",
        "d.txt": "d",
    }
    bench.imports([{"name": "one", "prompt": "say a", "files": files}])
    agent = Path(bench.agent.partition(" ")[2])
    change = (
        "    import shutil\n    shutil.rmtree('sub', ignore_errors=True)\n"
        f"    os.path.islink('sub') or os.symlink({str(Path('outside').absolute())!r}, 'sub')\n"
        "    pathlib.Path('d.txt').unlink(missing_ok=True)\n    pathlib.Path('e.txt').write_text('e')\n"
    )
    marker = '    notes = pathlib.Path("notes.txt")\n'
    text = agent.read_text()
    assert marker in text
    agent.write_text(text.replace(marker, change + marker))
    judge = 'command:sh -c \'grep -q TODO notes.txt && git diff --name-only | tr "\\n" " " >&2; false\''
    (result,) = bench.run("--judge", judge).json["results"]
    listed = git("--git-dir", root / "store.git", "ls-tree", "-r", "--name-only", result["work"]).split()
    assert listed == [".gitignore", "ignored.log", "notes.txt", "out/b.txt"]
    assert result["scores"][0]["reason"] == "d.txt notes.txt sub/c.txt"
    assert len(result["notes"]) == 1 and "a link that leads out" in result["notes"][0]


def test_what_is_not_kept_of_a_folder_is_not_judged_by_what_it_began_with(
    bench: Bench, script: Callable[[str, str], Path]
) -> None:
    too_much = "[open(f'big{number}', 'wb').truncate(90 << 20) for number in range(3)]"
    gone = "context['role'] == 'checker' and __import__('shutil').rmtree(os.getcwd())"
    for leaves, state, hint in (
        (gone, "error", "(another --label has the case tried anew)"),
        (too_much, "error", "(have a .gitignore of the case leave out the rest)"),
        ("os.unlink('x')", "failed", ""),
    ):
        program = script("leaves", f"{AGENT}os.path.exists('x') and {leaves}\n")
        bench.agent = f"uwf-exec {program}"
        bench.imports([{"name": "one", "prompt": "say a", "files": {"x": "1"}}])
        label = leaves[:9]
        (result,) = bench.run("--judge", "command:test -e x", "--label", label, check=None).json["results"]
        assert result["state"] == state and "".join(result["errors"]).endswith(hint)
    (result,) = bench.run("--judge", "command:test ! -e x", "--label", label).json["results"]
    assert result["state"] == "passed"
    bench.uwf("verify", "--all")


def test_what_a_command_prints_last_is_its_score_or_none(bench: Bench) -> None:
    said = {
        "0.25": 0.25,
        "12 tests\n0.25": 0.25,
        "12 passed\nfalse": 0.0,
        "False": 0.0,
        ".5": 0.5,
        'log\n{"score": 0.75}': 0.75,
        '{"score":\n0.5}': 0.5,
        '{"approved": false}': 0.0,
        '"0.5"': 0.5,
        '"2"': None,
        "12 passed": 1.0,
        '{"passed": false}\nDone.': 0.0,
        "---\npassed: false\n---": 0.0,
        "```yaml\nscore: 0.5\n```": 0.5,
        '[{"passed": false}]': None,
        '{"Passed": false,}': None,
        "<passed>false</passed>": None,
        "passed: false": None,
        '{"passed": true}\n\n{"passed": false}\nDone.': None,
        "12 tests\n87": None,
        "2": None,
        "-1": None,
        "NaN": None,
        "nan": None,
        "1e999": None,
        "-1e999": None,
        '12 tests\n{"score": ' + "1" * 6000 + "}": None,
        '{"score":\n' + "1" * 6000 + "}": None,
        "{score: 1": None,
        '{"log": 1}\n{"log": 2}': 1.0,
        '{\n"log": 1\n}': 1.0,
        "{here\n12 passed": 1.0,
        f"{LONG}\n0.25": 0.25,
        f"{LONG}\n12 passed": 1.0,
        f'{{"score": 0.25, "reason": "{LONG}"}}': None,
        f'{{"reason": "{LONG}",\n"score": 0.25}}': None,
        f"0.25{'0' * len(LONG)}": None,
    }
    bench.imports([{"name": "one", "prompt": "say a"}])
    judges = []
    for number, text in enumerate(said):
        Path(f"{number}.txt").write_text(text)
        judges += ["--judge", f"j{number}=command:cat {Path(f'{number}.txt').absolute()}"]
    judges += ["--judge", "failed=command:sh -c 'echo 0.25; exit 1'"]
    (result,) = bench.run(*judges, check=6).json["results"]
    found = {each["judge"]: each["score"] for each in result["scores"]}
    assert found.pop("failed") == 0.0
    assert found == {f"j{n}": score for n, score in enumerate(said.values()) if score is not None}
    assert len(result["errors"]) == 19 and all("is not a judgement" in each for each in result["errors"])


def test_a_judge_that_cannot_judge_is_named_with_what_to_do(bench: Bench) -> None:
    bench.imports([{"name": "日本", "prompt": "say a", "expected": {"approved": True}}])
    for judge, said in {
        "exact:aproved": "judge 'exact': neither the output nor the expected output has a field 'aproved'"
        " (name the fields to compare)",
        "jsonata:1/0": "judge 'jsonata': expression \"1/0\": divides by zero",
        "x=command:no-such-program": "judge 'x': command 'no-such-program' is not on PATH"
        " (install it, or name it with its whole path)",
        "x=command:sh -c 'echo no tests here >&2; exit 127'": "judge 'x' could not be run (no tests here)",
        "x=command:sh -c 'sh -c \"kill -9 $$\"; exit'": "judge 'x' was ended by a signal",
    }.items():
        error = bench.run("--judge", judge, check=6).error
        assert error["message"] == f"1 trial of bugs has no score, such as 日本: {said}"
        assert error["hint"] == "mend that and run it again: what was tried is only judged again"
    told = bench.run("--repeat", "2", "--judge", "exact:approved", "--format", "text").out.splitlines()
    assert [line.index("1.00") for line in told[:2]] == [16, 16]
    shown = bench.uwf("eval", "show", "bugs", "--format", "text").out
    assert "judged by" in shown and bench.uwf("eval", "show", "bugs").json["runs"][-1]["judges"] == ["exact"]


def test_a_command_that_judges_is_given_no_secrets(
    bench: Bench, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / ".env").write_text("IN_THE_FILE=sk-live-4f9Qz81LmW07bTgX2cVd\n")
    monkeypatch.setenv("LEAKED_API_KEY", "sk-live-9f9Qz81LmW07bTgX2cVd")
    monkeypatch.setenv("OF_THE_USER", "yes")
    bench.imports([{"name": "one", "prompt": "say a"}])
    judge = 'command:sh -c \'echo "{\\"score\\":1,\\"reason\\":\\"$IN_THE_FILE-$LEAKED_API_KEY-$OF_THE_USER\\"}"\''
    (result,) = bench.run("--judge", judge).json["results"]
    assert [each["reason"] for each in result["scores"]] == ["--yes"]


def test_a_line_that_is_no_case_is_named(bench: Bench) -> None:
    def refused(line: bytes) -> str:
        Path("cases.jsonl").write_bytes(b'{"name": "one", "prompt": "say\xe2\x80\xa8a"}\r\n\n' + line)
        return bench.uwf("eval", "import", "cases.jsonl", "--to", "bugs", check=1).error["message"]

    assert refused(b'{"prompt": }').startswith("cases.jsonl:3: not JSON: Expecting value at column 12")
    for line in (b'{"expected": NaN}', b'{"prompt": "\\ud800"}', b"[" * 5000, b'{"prompt": "\xff"}'):
        assert refused(line).startswith("cases.jsonl:3: ")
    Path("cases.jsonl").write_text("\n")
    assert "no cases" in bench.uwf("eval", "import", "cases.jsonl", "--to", "bugs", check=1).error["message"]
    assert bench.uwf("eval", "list").json == []


def test_what_a_file_of_cases_can_name_is_never_a_command(bench: Bench) -> None:
    def refused(case: str) -> str:
        Path("bad.yaml").write_text(f"workflow: solve\ncases:\n  - {case}\n")
        return bench.uwf("eval", "import", "bad.yaml", check=1).error["message"]

    assert "names no command" in refused("{prompt: a, judges: ['command:rm -rf x']}")
    assert "names no command" in refused("{prompt: a, judges: [{command: rm}]}")
    assert refused("{prompt: a, judgs: []}").startswith("bad.yaml:3: there is no 'judgs'")
    assert refused("prompt: a\n    name: b\n    expect: |\n      c").startswith(
        "bad.yaml:5: there is no 'expect'"
    )
    assert refused("prompt: a\njugdes: []").startswith("bad.yaml:4: there is no 'jugdes'")
    Path("out").mkdir()
    Path("out/x").symlink_to("/etc")
    assert "leads out" in refused("{prompt: a, fixture: out}")
    Path("beside").mkdir()
    Path("beside/schema.json").write_text('{"const": 1}')
    Path("sub").mkdir()
    Path("sub/sc.json").write_text('{"const": 2}')
    Path("sub/good.yaml").write_text(
        "workflow: solve\ncases:\n  - {prompt: a, fixture: ../beside, judges: ['schema:sc.json']}\n"
    )
    taken = bench.uwf("eval", "import", "sub/good.yaml")
    assert "sub/good.yaml:3: took in sub/../beside, which isn't below the file's folder" in taken.err
    assert taken.json["added"][0]["judges"] == [{"name": "schema", "schema": {"const": 2}}]
    assert "not a path" in refused("{prompt: a, files: {../x: y}}")
    assert "not a path" in refused("{prompt: a, files: {.git/hooks/post-checkout: y}}")

    bench.imports([{"name": "one", "prompt": "say a", "judges": ["tests"]}])
    error = bench.run(check=2).error
    assert "'tests' is not configured here" in error["message"] and "judges.tests.command" in error["hint"]
    assert bench.calls == 0


def test_a_step_is_done_again_on_the_real_history_before_it(bench: Bench) -> None:
    uwf = bench.uwf
    thread = uwf("thread", "start", "solve", "-p", "say a").json["thread"]
    uwf("thread", "run", thread, "--agent", bench.agent)
    steps = uwf("thread", "steps", thread).json
    (added,) = uwf("eval", "add", f"{thread}@2", "--to", "checks", "--judge", "exact").json["added"]
    assert (added["kind"], added["role"], added["case"]) == ("step", "checker", "say-a-checker-2")
    uwf("eval", "add", thread, "--to", "checks", "--name", "whole", "--judge", "exact")
    uwf("eval", "add", f"{thread}@7", "--to", "checks", check=3)
    before = bench.calls
    step, whole = bench.run(suite="checks").json["results"]
    assert (step["state"], step["steps"], whole["state"], whole["steps"]) == ("passed", 1, "passed", 2)
    assert bench.calls == before + 3
    redone = uwf("thread", "steps", step["thread"]).json
    assert redone[0]["step"] == steps[0]["step"] and redone[1]["step"] == step["last"]

    # Another version stands on the same outputs, and must come to the same step.
    Path("solve.yaml").write_text(SOLVE.replace("Check it.", "Check it well."))
    uwf("workflow", "put", "solve.yaml")
    other = bench.run("say-a-checker-2", suite="checks").json["results"][0]
    assert (other["state"], other["steps"]) == ("passed", 1)
    replayed = uwf("thread", "steps", other["thread"]).json
    assert replayed[0]["step"] != steps[0]["step"]
    nodes = [uwf("cas", "get", each["step"]).json["payload"] for each in (replayed[0], steps[0])]
    assert nodes[0]["output"] == nodes[1]["output"]
    twice = SOLVE.replace(
        "solver: [{role: checker}]", "solver: [{role: checker, condition: twice}, {role: solver}]"
    )
    twice = twice.replace(
        "conditions:", "conditions:\n  twice: {description: Twice., expression: '$count(steps) > 1'}"
    )
    Path("solve.yaml").write_text(twice)
    lost = bench.run("say-a-checker-2", "--workflow", "solve.yaml", suite="checks").json["results"][0]
    assert (lost["status"], lost["score"]) == ("inapplicable", 0)
    assert "calls for solver where the step was checker's" in lost["error"]
    Path("solve.yaml").write_text(SOLVE.replace("$START: [{role: solver}]", "$START: [{role: checker}]"))
    lost = bench.run("say-a-checker-2", "--workflow", "solve.yaml", suite="checks").json["results"][0]
    assert "calls for checker where step 1 was solver's" in lost["error"]
    uwf("thread", "rm", thread, "--yes")
    uwf("cas", "reindex")
    assert bench.run("say-a-checker-2", suite="checks").json["fresh"] == 0
    uwf("verify", "--all")


def test_a_run_stops_at_its_limits_with_what_it_has(bench: Bench, script: Callable[[str, str], Path]) -> None:
    bench.imports([{"name": name, "prompt": f"say {name}"} for name in ("a", "b", "c")])
    stopped = bench.run("--max-time", "1ms", check=5)
    assert stopped.json["missing"] == 3 and "maxWallTime" in stopped.json["stopped"]
    assert "stopped with what it has, 3 trials missing" in stopped.error["message"]
    assert bench.results("a", "--max-steps", "1") == [("a", "failed", 0.0)]
    found = bench.run("a", "--max-steps", "1").json["results"][0]
    assert (found["status"], found["steps"], bench.calls) == ("limited", 1, 1)
    assert bench.results("a") == [("a", "passed", 1.0)]  # it goes on from there
    assert bench.calls == 2

    failing = bench.uwf("eval", "run", "bugs", "a", "--agent", "sh -c 'exit 1'", "--retries", "1", check=6)
    (result,) = failing.json["results"]
    assert (result["state"], result["attempts"], failing.json["errors"]) == ("error", 2, 1)
    asks = script("asks", """print('{"$status": "$SUSPEND", "question": "Why?"}')""")
    asked = bench.uwf("eval", "run", "bugs", "a", "--agent", f"uwf-exec {asks}").json["results"][0]
    assert (asked["status"], asked["score"]) == ("waiting", 0)


RATE = """\
name: rate
description: Rates.
roles:
  rater:
    description: Rates.
    systemPrompt: Rate.
    outputSchema: {type: object, properties: {points: {type: integer}}, required: [points]}
graph:
  $START: [{role: rater}]
  rater: [{role: $END}]
"""
RATER = """
import json, os, pathlib, sys
task = json.load(sys.stdin)["start"]["prompt"]
assert "say a" in task and "SAY A" in task and "was expected" in task
said = pathlib.Path(os.environ["CALLS"] + ".points")
points, *rest = said.read_text().split()
said.write_text(" ".join(rest))
print(json.dumps({"points": int(points)}) if points != "x" else "")
"""


@pytest.fixture
def stars(bench: Bench, config: Config, script: Callable[[str, str], Path], tmp_path: Path) -> Path:
    """A suite that a workflow judges, and the file of the points that it gives, one after another."""
    Path("rate.yaml").write_text(RATE)
    bench.uwf("workflow", "put", "rate.yaml")
    rater = script("rates", RATER)
    config(
        f"agentOverrides: {{rate: {{rater: mine}}}}\n"
        f"agents: {{mine: {{command: uwf-exec, args: ['{rater}']}}}}\n"
    )
    judge = {"name": "stars", "workflow": "rate", "output": "steps[-1].output.points / 10", "threshold": 0.8}
    bench.imports([{"name": "one", "prompt": "say a", "judges": [judge], "expected": {"approved": True}}])
    return tmp_path / "calls.points"


def test_a_workflow_judges_in_a_thread_of_its_own(bench: Bench, stars: Path) -> None:
    stars.write_text("7")
    (result,) = bench.run().json["results"]
    (score,) = result["scores"]
    assert (result["state"], score["score"], score["passed"]) == ("failed", 0.7, False)
    assert score["step"] is not None and bench.calls == 2
    assert bench.run().json["fresh"] == 0
    bench.uwf("verify", "--all")


def test_a_workflow_that_came_to_no_judgement_is_asked_anew_once_a_run(bench: Bench, stars: Path) -> None:
    stars.write_text("85 85 x 4")
    first = bench.run(check=6).error["message"]
    assert "returned 8.5, which is not a judgement, in thread 0" in first
    assert stars.read_text() == "85 x 4"
    assert first != bench.run(check=6).error["message"] and stars.read_text() == "x 4"
    (result,) = bench.run("--retries", "0", check=6).json["results"]
    thread = result["errors"][0].partition("thread ")[2][:26]
    bench.uwf("thread", "kill", thread)
    (result,) = bench.run().json["results"]
    assert (result["score"], stars.read_text(), bench.calls) == (0.4, "", 2)
    assert bench.run().json["fresh"] == 0
    bench.uwf("verify", "--all")


DEAR_RATER = """
import os
from uwf_git.kit import Reply, create_agent
def run(ctx):
    with open(os.environ["CALLS"] + ".rated", "a") as calls:
        calls.write("x")
    return Reply("", output={"points": 85}, cost=1.0)
create_agent("rates", run).main()
"""


def test_what_a_judge_spends_without_a_score_counts_for_the_limit_of_each_run(
    bench: Bench, stars: Path, config: Config, script: Callable[[str, str], Path]
) -> None:
    config(
        f"agentOverrides: {{rate: {{rater: mine}}}}\nagents: {{mine: {{command: '{script('dear', DEAR_RATER)}'}}}}\n"
    )
    judge = {"name": "dear", "workflow": "rate", "output": "steps[-1].output.points"}
    bench.imports([{"name": name, "prompt": f"say {name}", "judges": [judge]} for name in "abcd"], "dear")
    rated = stars.with_suffix(".rated")
    for most, jobs, spent, asked in (("2", "1", 2, 2), ("1", "1", 1, 3), ("1", "2", 2, 5)):
        stopped = bench.run("--max-cost", most, "-j", jobs, suite="dear", check=5)
        assert "maxCost is used up" in stopped.error["message"]
        assert (stopped.json["judging"]["cost"], len(rated.read_text())) == (spent, asked)


def test_a_secret_is_refused_before_anybody_is_asked_and_what_judges_say_has_none(
    bench: Bench, root: Path
) -> None:
    key = "sk-live-4f9Qz81LmW07bTgX2cVd"
    (root / ".env").write_text(f"MY_KEY={key}\n")
    bench.imports([{"name": "one", "prompt": "say a"}])
    for option, named in (("label", "--label"), ("judge", "judge 'command'"), ("agent", "--agent")):
        value = f"command:grep {key}" if option == "judge" else f"uwf-exec {key}"
        refused = bench.run(f"--{option}", value, check=1).error["message"]
        assert refused.startswith(f"{named} holds a secret (MY_KEY)") and key not in refused
    assert (bench.calls, bench.uwf("thread", "list", "--all").json) == (0, [])
    Path("said.json").write_text(f'{{"score": "{key}"}}')
    judge = f"command:cat {Path('said.json').absolute()}"
    told = bench.run("--judge", judge, "--format", "text", check=6)
    assert key not in told.out + told.err and "[redacted:MY_KEY]" in told.out
    assert len(bench.uwf("eval", "show", "bugs").json["runs"]) == 1
    bench.uwf("verify", "--all")


def test_cases_that_are_the_same_are_one_trial_and_count_once(bench: Bench) -> None:
    bench.imports([{"name": name, "prompt": "say a"} for name in "abc"])
    found = bench.run().json
    assert (found["passed"], bench.calls) == (3, 2)
    assert found["seconds"] == found["results"][0]["seconds"] > 0
    # Somebody else's suite may have a name that no case is given here.
    workflow = bench.uwf("workflow", "show", "solve").json["hash"]
    Suites(opened().store).add("theirs", Additions([identified(Case(UNKNOWN, "a\nb", "say a", workflow))]))
    told = bench.run("--format", "text", suite="theirs").out.splitlines()
    assert len(told) == 2 and told[0].startswith("passed  a b  1.00")


def test_two_machines_add_to_one_suite_and_use_what_the_other_tried(
    uwf: Uwf, bench: Bench, tmp_path: Path, root: Path
) -> None:
    git("init", "-q", "--bare", tmp_path / "hub")
    ada, bob = Machine(uwf, root), Machine(uwf, tmp_path / "bob")
    bench.imports([{"name": "a", "prompt": "say a"}])
    bob("init")
    for machine in (ada, bob):
        machine("remote", "add", "origin", tmp_path / "hub")
    ada("push")
    bob("pull")
    Path("more.jsonl").write_text('{"name": "b", "prompt": "say b"}\n')
    bob("eval", "import", "more.jsonl", "--to", "bugs", "--workflow", "solve")
    bob("eval", "run", "bugs", "--agent", bench.agent)
    assert bench.calls == 4
    bob("push")
    Path("more.jsonl").write_text('{"name": "c", "prompt": "say c"}\n')
    ada("eval", "import", "more.jsonl", "--to", "bugs", "--workflow", "solve")
    assert "united" in {each["case"] for each in ada("pull").json["adopted"]}
    found = ada("eval", "run", "bugs", "--agent", bench.agent).json
    assert ([each["case"] for each in found["results"]], found["fresh"]) == (["a", "b", "c"], 1)
    ada("push")
    bob("pull")
    assert bob("eval", "list").json == ada("eval", "list").json
    bob("verify", "--all")


def test_cases_are_named_replaced_and_taken_out(bench: Bench) -> None:
    uwf = bench.uwf
    assert uwf("eval", "list").json == []
    assert uwf("eval", "show", "bugs", check=3).error["message"] == "no suite 'bugs'"
    bench.imports(
        [{"name": "one", "prompt": "say a", "tags": ["slow"]}, {"prompt": "# Fix the login\n\nNow."}]
    )
    shown = uwf("eval", "show", "bugs").json
    assert [each["case"] for each in shown["cases"]] == ["fix-the-login", "one"]
    assert bench.results("--tag", "slow") == [("one", "passed", 1.0)]
    assert bench.run("--tag", "quick", check=3).error["hint"]
    assert "expression '(': " in bench.run("--judge", "jsonata:(", check=2).error["message"]
    bench.imports([{"name": "one", "prompt": "say b"}])
    assert uwf("eval", "show", "bugs", "one").json["prompt"] == "say b"
    assert uwf("eval", "remove", "bugs", "one").json["removed"] == ["one"]
    bench.imports([{"name": "one", "prompt": "say b"}])  # it is back
    assert len(uwf("eval", "show", "bugs").json["cases"]) == 2
    uwf("eval", "remove", "bugs", check=2)
    uwf("eval", "remove", "bugs", "--yes")
    assert uwf("eval", "list").json == []


@pytest.mark.extended
def test_a_fleet_steps_the_threads_of_a_run(bench: Bench) -> None:
    bench.imports(
        [{"name": name, "prompt": f"say {name}", "judges": [{"jsonata": "output.approved"}]} for name in "ab"]
    )
    done = bench.run("--fleet", "-j", "2").json
    assert [(each["case"], each["state"]) for each in done["results"]] == [("a", "passed"), ("b", "passed")]
    assert bench.calls == 4
    assert bench.run().json["run"] == done["run"]  # by which means it was stepped is no part of it
