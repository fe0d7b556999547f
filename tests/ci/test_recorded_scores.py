"""A changed workflow against the baseline of its suite: by recorded scores, without an agent."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest
from commands import git
from conftest import EXAMPLES, Uwf
from forge_jobs import Forge, Ran

from uwf_git.ext.ci import scores
from uwf_git.ext.ci.checkout import Checkout
from uwf_git.ext.ci.result import status_of
from uwf_git.workflow.compile import compile_source
from uwf_git.workflow.source import read_source

FOLDER = EXAMPLES / "evaluation"
CAREFUL = "not only the summary,\n      and run the tests."
PYTHON = shlex.quote(sys.executable)


class Project(Forge):
    """A project whose workflow has a suite, which was run, and whose scores are the baseline."""

    def __init__(self, uwf: Uwf, folder: Path) -> None:
        super().__init__(folder)
        self.uwf, self.work = uwf, folder / "project"
        self.file = self.work / ".uwf/workflows" / "solve-issue.yaml"
        self.file.parent.mkdir(parents=True)
        self.file.write_text((EXAMPLES / "solve-issue.yaml").read_text(encoding="utf-8"))
        git("init", "-q", "-b", "main", self.work)
        self.pushed("main")
        uwf("workflow", "put", self.file)
        uwf("eval", "import", FOLDER / "suite.yaml")
        uwf("config", "set", "judges.tests.command", f"{PYTHON} {FOLDER / 'passed.py'}")
        uwf("config", "set", "agents.scripted.command", f"uwf-exec {PYTHON} {FOLDER / 'scripted.py'}")
        uwf("config", "set", "defaultAgent", "scripted")
        uwf("eval", "run", "issues")
        uwf("eval", "baseline", "set", "issues")
        uwf("remote", "add", "origin", self.remote)
        uwf("push", "origin")

    def pushed(self, branch: str) -> None:
        git("-C", self.work, "add", ".")
        git("-C", self.work, "commit", "-qm", branch)
        git("-C", self.work, "push", "-qf", self.remote, f"HEAD:refs/heads/{branch}")

    def checked(self) -> Ran:
        text = (EXAMPLES / "ci" / "github.yml").read_text(encoding="utf-8")
        return self.pull_request(text, "topic", "main")


@pytest.fixture
def project(uwf: Uwf, tmp_path: Path) -> Project:
    return Project(uwf, tmp_path / "forge")


@pytest.mark.timeout(300)
def test_a_version_is_judged_by_what_was_recorded_of_it(project: Project) -> None:
    text = project.file.read_text(encoding="utf-8")
    assert CAREFUL in text
    project.file.write_text(text.replace(CAREFUL, "not only the summary."))
    project.pushed("topic")
    unknown = project.checked()
    assert unknown.code == 0, unknown.log
    suite = next(each for each in unknown.result["checks"] if each["kind"] == "suite")
    assert suite["summary"] == "not judged: suite issues has no recorded run of this version"
    assert "uwf eval run issues --workflow .uwf/workflows/solve-issue.yaml" in unknown.summary
    project.uwf("eval", "run", "issues", "--workflow", project.file)
    project.uwf("push", "origin")
    worse = project.checked()
    assert worse.code == 1, worse.log
    suite = next(each for each in worse.result["checks"] if each["kind"] == "suite")
    assert (suite["status"], suite["verdict"]) == (1, "worse")
    errors = [each for each in worse.commands if each.name == "error"]
    assert [each.properties["file"] for each in errors] == [".uwf/workflows/solve-issue.yaml"]


@pytest.mark.timeout(300)
def test_nothing_runs_for_recorded_scores(project: Project) -> None:
    project.uwf("config", "set", "agents.scripted.command", "uwf-exec false")
    known = project.uwf("eval", "check", "issues", "--workflow", project.file, "--recorded").json
    assert known["verdict"] == "passed"
    changed = project.work / "changed.yaml"
    text = project.file.read_text(encoding="utf-8")
    changed.write_text(text.replace("description: ", "description: Now: ", 1).replace("Now: ", "Now "))
    before = project.uwf("eval", "show", "issues").json["runs"]
    refused = project.uwf("eval", "check", "issues", "--workflow", changed, "--recorded", check=125)
    assert "uwf eval run issues" in refused.error["hint"]
    assert project.uwf("eval", "show", "issues").json["runs"] == before
    project.uwf(
        "eval", "check", "issues", "--workflow", project.file, "--recorded", "--agent", "other", check=125
    )


@pytest.mark.parametrize(
    ("failing", "code", "baselines", "status"),
    (
        ("clone", 7, 1, 1),
        ("baseline", 3, 1, 1),
        ("check", 124, 1, 1),
        ("", 0, 1, 0),
        ("", 0, scores.MOST + 1, 125),
    ),
)
def test_scores_that_were_not_looked_at_are_no_green_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str, code: int, baselines: int, status: int
) -> None:
    names = [f"suite{number}" for number in range(baselines)]

    def answers(_root: Path, *arguments: str) -> tuple[int, object, str]:
        if failing in arguments:
            return code, None, "it failed"
        listed = [{"suite": name, "said": "solve-issue X"} for name in names]
        return 0, listed if "list" in arguments else {"verdict": "passed"}, ""

    git("init", "-q", tmp_path)
    git("-C", tmp_path, "commit", "-q", "--allow-empty", "-m", "One")
    for name in names:
        for prefix in (scores.SUITES, scores.BASELINES):
            git("-C", tmp_path, "update-ref", prefix + name, "HEAD")
    monkeypatch.setattr(scores, "call_uwf", answers)
    compiled = compile_source(read_source(EXAMPLES / "solve-issue.yaml"))
    checks = list(scores.checked_scores(Checkout(tmp_path), {".uwf/workflows/solve-issue.yaml": compiled}))
    assert status_of(checks) == status and checks
