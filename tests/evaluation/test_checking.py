"""A suite is held against what was accepted as good, by CI and by `git bisect run`."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import commands
import pytest
from conftest import EXAMPLES, Result, Uwf
from uwf_cli.page.addresses import PageRequest
from warm import command as quick_uwf
from workflows import opened

from uwf_git.ext.evaluation import pages

FOLDER = EXAMPLES / "evaluation"
CAREFUL = "not only the summary,\n      and run the tests."
PYTHON = shlex.quote(sys.executable)
Edit = Callable[[str], str]
ONE_ROLE = """\
name: tasks
description: One does a task.
roles:
  doer:
    description: Does it.
    systemPrompt: Do it.
    outputSchema: {type: object, properties: {said: {type: string}}, required: [said]}
graph:
  $START: [{role: doer}]
  doer: [{role: $END}]
"""


@pytest.fixture
def issues(uwf: Uwf) -> str:
    """The example's suite, with the example's script for all roles."""
    uwf("workflow", "put", EXAMPLES / "solve-issue.yaml")
    uwf("eval", "import", FOLDER / "suite.yaml")
    uwf("config", "set", "judges.tests.command", f"{PYTHON} {FOLDER / 'passed.py'}")
    uwf("config", "set", "agents.scripted.command", f"uwf-exec {PYTHON} {FOLDER / 'scripted.py'}")
    uwf("config", "set", "defaultAgent", "scripted")
    return "issues"


DOES = """
import sys
sys.exit(7) if "Break it" in sys.stdin.read() else print('{"said": "done"}')
"""


class Tasks:
    """A suite of tasks, and an agent that fails at some."""

    def __init__(self, uwf: Uwf, agent: Path) -> None:
        self._uwf, self.agent = uwf, f"uwf-exec {agent}"
        write(ONE_ROLE, Path("tasks.yaml"))
        uwf("workflow", "put", "tasks.yaml")

    def are(self, **prompts: str) -> None:
        """Imports cases by their names; one that is there already is changed."""
        cases = [json.dumps({"name": name, "prompt": prompt}) for name, prompt in prompts.items()]
        write("\n".join(cases) + "\n", Path("tasks.jsonl"))
        self._uwf("eval", "import", "tasks.jsonl", "--to", "tasks", "--workflow", "tasks")

    def __call__(self, command: str, *args: str | Path, check: int = 0) -> Result:
        return self._uwf(
            "eval", command, "tasks", *args, "--agent", self.agent, "--retries", "0", check=check
        )


@pytest.fixture
def tasks(uwf: Uwf, script: Callable[[str, str], Path]) -> Tasks:
    return Tasks(uwf, script("does", DOES))


def write(text: str, path: Path = Path("solve-issue.yaml")) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def solve_issue(edit: Edit = lambda text: text) -> str:
    """The example's workflow, changed."""
    return edit((EXAMPLES / "solve-issue.yaml").read_text(encoding="utf-8"))


def hasty(text: str) -> str:
    """Its reviewer believes what it is told."""
    assert CAREFUL in text
    return text.replace(CAREFUL, "not only the summary.")


@pytest.mark.extended
@pytest.mark.timeout(300)
def test_git_bisect_finds_the_version_that_broke_it(uwf: Uwf, issues: str) -> None:
    project = Path("project").absolute()
    commands.git("init", "-q", "-b", "main", project)
    file = project / "solve-issue.yaml"
    edits: list[tuple[str, Edit]] = [
        ("first", lambda text: text),
        ("a comment", lambda text: "# Of ours.\n" + text),
        ("shorter plans", lambda text: text.replace("Write a plan of small steps", "Write a short plan")),
        ("a typo that nothing can be made of", lambda text: text.replace("graph:", "grahp:")),
        ("the typo mended", lambda text: text.replace("grahp:", "graph:")),
        ("reviews take too long", hasty),
        (
            "another description",
            lambda text: text.replace("until the reviewer approves it", "until approved"),
        ),
        ("a last comment", lambda text: text + "# The end.\n"),
    ]
    text, made = solve_issue(), []
    for said, edit in edits:
        text = edit(text)
        write(text, file)
        commands.git("-C", project, "add", "solve-issue.yaml")
        commands.git("-C", project, "commit", "-q", "-m", said)
        made.append(commands.git("-C", project, "rev-parse", "HEAD"))
    commands.git("-C", project, "checkout", "-q", made[0])
    uwf("eval", "run", issues, "--workflow", file)
    uwf("eval", "baseline", "set", issues)
    commands.git("-C", project, "bisect", "start", made[-1], made[0])
    check = [*quick_uwf(), "eval", "check", issues, "--workflow", "solve-issue.yaml", "--quiet"]
    told = commands.git("-C", project, "bisect", "run", *check)
    assert f"{made[5]} is the first bad commit" in told
    assert commands.git("-C", project, "rev-parse", "refs/bisect/bad") == made[5]


def test_a_check_fails_for_what_is_worse_and_junit_names_the_cases(uwf: Uwf, issues: str) -> None:
    uwf("eval", "run", issues)
    uwf("eval", "baseline", "set", issues)
    worse = write(solve_issue(hasty))
    done = uwf("eval", "check", issues, "--workflow", worse, "--junit", "report.xml", check=1)
    assert (done.json["verdict"], done.error["code"]) == ("worse", "worse")
    assert done.json["drop"]["least"] == done.json["drop"]["most"] == pytest.approx(1 / 6, abs=1e-6)
    assert [each["case"] for each in done.json["cases"]] == ["shelf", "slug", "median"]
    (suite,) = ElementTree.parse("report.xml").getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "2", "0")
    failed = {case.get("name"): case.findtext("failure") for case in suite.findall("testcase")}
    assert "3 of 4 tests pass" in str(failed["slug"]) and failed["median"] is None
    near = uwf("eval", "check", issues, "--workflow", worse, "--max-drop", "0.1666", check=1).error
    assert "its score is lower by 0.1667, and 0.1666 is allowed" in near["message"]
    passed = uwf("eval", "check", issues, "--workflow", worse, "--max-drop", "0.2").json
    assert passed["verdict"] == "passed" and uwf("eval", "check", issues).json["drop"]["most"] == 0
    against = uwf("eval", "check", issues, "--against", worse).json
    assert (against["verdict"], against["wins"]) == ("passed", 2)


def test_what_nobody_can_tell_is_no_drop_and_an_error_of_the_call_ends_a_bisection(
    uwf: Uwf, issues: str
) -> None:
    assert "baseline" in uwf("eval", "check", issues, check=128 + 3).error["message"]
    uwf("eval", "run", issues)
    uwf("eval", "baseline", "set", issues)
    broken = write(solve_issue().replace("graph:", "grahp:"))
    assert uwf("eval", "check", issues, "--workflow", broken, check=125).error["code"] == "undecided"
    uwf("eval", "check", issues, "--workflow", "nowhere.yaml", check=125)
    plays_none = uwf("eval", "check", issues, "--agent", "uwf-exec no-such-program", check=128 + 2).error
    assert "plays no role of workflow solve-issue" in plays_none["message"]
    absent = ("eval", "check", issues, "--agent", "developer=uwf-exec no-such-program", "--label", "x")
    assert "no-such-program is not installed" in uwf(*absent, check=128 + 1).error["message"]
    fails = ("eval", "check", issues, "--agent", "developer=uwf-exec cat /nowhere", "--retries", "0")
    done = uwf(*fails, "--junit", "report.xml", check=125)
    assert done.json["missing"] == ["median", "shelf", "slug"]
    (suite,) = ElementTree.parse("report.xml").getroot()
    assert (suite.get("failures"), suite.get("errors")) == ("0", "3")
    uwf("eval", "check", "nothing", check=128 + 3)
    nowhere = uwf("eval", "check", issues, "--label", "x", "--junit", "no/report.xml", check=128 + 1)
    assert "cannot write no/report.xml" in nowhere.error["message"]
    assert all(each["label"] != "x" for each in uwf("eval", "show", issues).json["runs"])  # nobody was asked
    uwf("eval", "check", issues, "--max-dorp", "1", check=128 + 2)
    for drop in ("2", "nan", "inf"):
        assert (
            "--max-drop" in uwf("eval", "check", issues, "--max-drop", drop, check=128 + 2).error["message"]
        )


def test_nothing_is_passed_of_which_nothing_is_known(uwf: Uwf, tasks: Tasks) -> None:
    tasks.are(a="Do a.", b="Do b.", c="Do c.")
    tasks("run")
    uwf("eval", "baseline", "set", "tasks")
    tasks.are(b="Break it, b.", new="Break it.")
    unsure = tasks("check", "--junit", "report.xml", check=125)
    assert (unsure.json["verdict"], unsure.json["missing"]) == ("undecided", ["b"])
    assert {case: found.tag for case, found in junit().items()} == {"b": "error", "new": "error"}
    # A new case has no like in the baseline: it can't make the difference.
    uwf("eval", "remove", "tasks", "b")
    passed = tasks("check", "--junit", "report.xml")
    assert (passed.json["verdict"], passed.json["gone"]) == ("passed", ["b"])
    assert "1 case of the baseline, changed or taken out since, such as b" in passed.err
    assert "1 case without a score, new since the baseline, such as new" in passed.err
    assert {case: found.tag for case, found in junit().items()} == {"b": "skipped", "new": "skipped"}
    uwf("eval", "remove", "tasks", "a", "c")
    nothing = tasks("check", "--max-drop", "1", "--junit", "report.xml", check=125)
    assert "no case has a score now and in" in nothing.error["message"]
    assert {case: found.tag for case, found in junit().items()} == dict.fromkeys("abc", "skipped") | {
        "new": "error"
    }


KILLED = """
import os, pathlib, re, sys, time
WORKER = re.compile("evaluation.workers|warm_process")
def parent(pid):
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
task = sys.stdin.read()
if "KILLS" in os.environ and "Do b" in task:
    pid = os.getpid()
    # The interpreter that was started for a worker, or the fork in its place.
    while not WORKER.search(pathlib.Path(f"/proc/{pid}/cmdline").read_text()):
        pid = parent(pid)
    os.kill(pid, 9)
elif "SLOW" in os.environ:
    time.sleep(1.1)
print('{"said": "done"}')
"""


def test_nothing_is_passed_by_leaving_trials_out(
    uwf: Uwf, tasks: Tasks, script: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks.agent = f"uwf-exec {script('killed', KILLED)}"
    tasks.are(a="Do a.", b="Do b.")
    tasks("run", "--repeat", "3")
    uwf("eval", "baseline", "set", "tasks")
    monkeypatch.setenv("KILLS", "1")
    killed = tasks("check", "--repeat", "3", "-j", "2", "--label", "x", "--junit", "report.xml", check=125)
    assert (killed.json["verdict"], killed.json["missing"]) == ("undecided", ["b"])
    assert "b, 3 of 3 repeats are missing: the process of a trial ended with -9" in killed.error["message"]
    assert "repeats are missing" in str(junit()["b"].get("message"))
    known = tasks("check", "--repeat", "3", "-j", "2", "--label", "x", "--max-drop", "0.5")
    assert known.json["verdict"] == "passed" and "3 of 3 repeats are missing" in known.err
    monkeypatch.delenv("KILLS")
    monkeypatch.setenv("SLOW", "1")
    stopped = tasks("check", "--repeat", "3", "--max-time", "1s", "--label", "y", check=125)
    assert "of 3 repeats are missing: maxWallTime is used up" in stopped.error["message"]
    assert stopped.json["missing"] == ["a", "b"]
    assert "repeats" in uwf("eval", "baseline", "set", "tasks", "--agent", "y", check=2).error["message"]


def test_a_check_says_where_another_judge_judged_the_baseline(uwf: Uwf, tasks: Tasks) -> None:
    tasks.are(a="Do a.", b="Do b.")
    uwf("config", "set", "judges.tests.command", "sh -c 'echo 0.5'")
    by = ("--judge", "tests")
    tasks("run", *by)
    uwf("eval", "baseline", "set", "tasks")
    same = tasks("check", *by, "--same-judges")
    assert (same.json["sameJudges"], same.err) == (True, "")
    uwf("config", "set", "judges.tests.command", "true")
    said = "tests is not the same judge for the baseline and for this run"
    other = tasks("check", *by)
    assert (other.json["verdict"], other.json["sameJudges"]) == ("passed", False) and said in other.err
    refused = tasks("check", *by, "--same-judges", "--junit", "report.xml", check=125)
    assert said in refused.error["message"] and refused.json["verdict"] == "undecided"
    assert {case: found.get("message") for case, found in junit().items()} == dict.fromkeys("ab", said)
    assert "exact" in tasks("check", "--judge", "exact=jsonata:1").err
    # A new case may have whatever judge: it isn't compared.
    uwf("config", "set", "judges.tests.command", "sh -c 'echo 0.5'")
    tasks.are(a="Do a.", b="Do b.", c="Do c.")
    new = tasks("check", *by)
    assert (new.json["sameJudges"], new.json["onlyB"]) == (True, ["c"])
    assert new.err.strip() == "uwf: not compared: 1 case new since the baseline, such as c"
    # Where the baseline's run isn't here, nothing but names is known of its judges.
    uwf("eval", "remove", "tasks", "--yes")
    tasks.are(a="Do a.", b="Do b.")
    named = tasks("check", *by, "--label", "anew")
    assert named.json["sameJudges"] is None and "nobody knows more of its judges" in named.err
    tasks("check", *by, "--label", "anew", "--same-judges", check=125)


def junit() -> dict[str, ElementTree.Element]:
    """What is said of each case of report.xml that isn't well."""
    (suite,) = ElementTree.parse("report.xml").getroot()
    found = {str(case.get("name")): case[0] for case in suite.findall("testcase") if len(case)}
    counts = {kind: sum(each.tag == kind for each in found.values()) for kind in ("error", "skipped")}
    assert (suite.get("errors"), suite.get("skipped")) == tuple(map(str, counts.values()))
    return {case: each for case, each in found.items() if each.tag != "system-out"}


def test_a_part_of_a_suite_is_a_baseline_only_where_that_is_meant(uwf: Uwf, tasks: Tasks) -> None:
    tasks.are(a="Do a.", b="Do b.", broken="Break it.")
    tasks("run", "a")
    for command in (("set", "tasks"), ("propose", "tasks", "--branch", "less")):
        refused = uwf("eval", "baseline", *command, check=2).error
        assert "no score of 2 of 3 cases, such as b: it was not run" in refused["message"]
        assert "--partial" in refused["hint"]
    tasks("run", check=6)
    assert "broken" in uwf("eval", "baseline", "set", "tasks", check=2).error["message"]
    part = uwf("eval", "baseline", "set", "tasks", "--partial").json
    assert [case["case"] for case in part["cases"]] == ["a", "b"]
    tasks.are(a="Break it, a.", b="Break it, b.")
    tasks("run", check=6)
    assert "3 of 3" in uwf("eval", "baseline", "set", "tasks", "--partial", check=2).error["message"]


def test_the_issues_of_the_example_are_open_and_its_script_closes_them(uwf: Uwf, issues: str) -> None:
    for repository in sorted((FOLDER / "repositories").iterdir()):
        left = shutil.copytree(repository, repository.name)
        tests = commands.subprocess.run(
            [sys.executable, "-B", "-m", "unittest"], cwd=left, capture_output=True, check=False
        )
        assert tests.returncode == 1, repository.name
    found = uwf("eval", "run", issues).json
    assert (found["passed"], found["score"]) == (3, 1.0)
    assert {result["case"]: result["steps"] for result in found["results"]} == {
        "median": 3,
        "shelf": 5,
        "slug": 5,
    }
    shown = pages.suite(opened(), PageRequest({"name": issues})).values["shown"]
    assert {case["case"]: case["threads"] for case in shown["cases"]} == {
        result["case"]: [result["thread"]] for result in found["results"]
    }


def test_an_error_is_counted_and_is_no_score(uwf: Uwf, tasks: Tasks) -> None:
    tasks.are(a="Do a.", b="Do b.", broken="Break it.")
    done = tasks("run", "--judge", "jsonata:0.5", check=6)
    assert (done.json["score"], done.json["errors"]) == (0.5, 1)
    assert {each["case"]: each["score"] for each in done.json["results"]}["broken"] is None
    (last,) = uwf("eval", "show", "tasks").json["runs"]
    assert (last["score"], last["errors"]) == (0.5, 1)
    assert "1 in error, without a score; score 0.50" in uwf("eval", "show", "tasks", "--format", "text").out
    judges = tasks("run", "--judge", "jsonata:2", check=6)
    assert (judges.json["score"], judges.json["errors"]) == (None, 3)
    assert "3 trials of tasks have no score, such as broken: " in judges.error["message"]
    assert "it goes on where it was" in judges.error["hint"]
    assert "score –" in uwf("eval", "show", "tasks", "--format", "text").out
    uwf("eval", "baseline", "set", "tasks", last["run"], "--partial")
    compared = uwf("eval", "compare", "baseline", judges.json["run"], "--format", "text").out
    checked = tasks("check", "--judge", "jsonata:2", "--format", "text", check=125).out
    for told in (compared, checked):
        assert "3 cases of b without a score" in told
