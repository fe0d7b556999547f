"""A thread's work lands on the branch that it is for: made again there, checked there, and pushed, or told why not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import git
from conftest import Uwf

DONE = "{ type: object, properties: { change: { type: string } }, required: [change] }"
PASSED = "{ type: object, properties: { status: { enum: [passed, failed] } }, required: [status] }"
DECISION = "{ type: object, properties: { status: { enum: [merge, drop] } }, required: [status] }"
WORKFLOW = f"""\
name: mend
description: Mend it, test it, and have a person decide.
roles:
  fixer: {{ description: f, systemPrompt: f, outputSchema: {DONE} }}
  tests: {{ description: t, systemPrompt: t, outputSchema: {PASSED} }}
  gate: {{ description: g, human: true, outputSchema: {DECISION} }}
graph:
  $START: {{ new: fixer, resume: fixer }}
  fixer: {{ _: tests }}
  tests: {{ passed: gate, failed: fixer }}
  gate: {{ merge: $END, drop: {{ end: failed, reason: dropped }} }}
"""
CONFIG = """\
workspace: { kind: worktree }
agents:
  fixes:
    command: uwf-exec
    args: [sh, -c, 'cat $WHAT >> sum.txt; echo "{\\"change\\": \\"added it\\"}"']
  tries: { command: uwf-exec, args: [sh, tests.sh] }
agentOverrides:
  mend: { fixer: fixes, tests: tries }
"""

Start = Callable[[], str]


@pytest.fixture
def project(tmp_path: Path, config: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a check: no line of sum.txt comes twice."""
    config(CONFIG.replace("$WHAT", str(tmp_path / "what")))
    (tmp_path / "what").write_text("two\n")
    path = tmp_path / "shop"
    git("init", "-q", "-b", "main", path)
    (path / "sum.txt").write_text("one\n")
    (path / "tests.sh").write_text('echo tried; test "$(sort sum.txt | uniq -d)" = ""\n')
    commit(path, "first")
    monkeypatch.chdir(path)
    return path


@pytest.fixture
def remote(project: Path, tmp_path: Path) -> Path:
    path = tmp_path / "shop.git"
    git("clone", "-q", "--bare", project, path)
    git("-C", project, "remote", "add", "origin", path)
    return path


@pytest.fixture
def start(uwf: Uwf, project: Path, tmp_path: Path) -> Start:
    """A thread at its gate."""
    (tmp_path / "mend.yaml").write_text(WORKFLOW)
    uwf("workflow", "put", tmp_path / "mend.yaml")

    def begun() -> str:
        thread = str(uwf("thread", "start", "mend", "-p", "Add *two*\nIt is missing.").json["thread"])
        uwf("thread", "run", thread, check=5)
        return thread

    return begun


@pytest.fixture
def accepted(uwf: Uwf, start: Start) -> str:
    thread = start()
    uwf("thread", "answer", thread, "-m", "merge")
    return thread


def commit(project: Path, message: str) -> None:
    git("-C", project, "add", ".")
    git("-C", project, "commit", "-q", "-m", message)


def moves(project: Path, name: str, text: str) -> None:
    """The branch that is checked out gets a commit, and the remote, if there is one."""
    (project / name).write_text(text)
    commit(project, f"write {name}")
    if git("-C", project, "remote"):
        git("-C", project, "push", "-q", "origin", "main")


def test_work_lands_as_one_commit_on_what_the_remote_has_now(
    uwf: Uwf, project: Path, remote: Path, accepted: str, root: Path
) -> None:
    moves(project, "other.txt", "x\n")
    before = git("-C", remote, "rev-parse", "main").strip()
    landed = uwf("land", accepted).json
    assert (landed["onto"], landed["remote"], landed["base"], landed["commits"]) == (
        "main",
        "origin",
        before,
        1,
    )
    assert git("-C", remote, "rev-parse", "main", "main~1").split() == [landed["commit"], before]
    assert git("-C", remote, "show", "main:sum.txt").split() == ["one", "two"]
    assert [check["command"] for check in landed["checks"]] == [["sh", "tests.sh"]]
    message = git("-C", remote, "log", "-1", "--format=%B", "main")
    assert message.startswith(f"Add *two*\n\n- fixer: added it\n\nUwf-Thread: {accepted}\n")
    assert git("-C", project, "status", "--porcelain") == ""
    assert list((root / "landing").iterdir()) == []


def test_without_a_remote_the_branch_and_its_checkout_move(uwf: Uwf, project: Path, accepted: str) -> None:
    landed = uwf("land", accepted).json
    assert git("-C", project, "rev-parse", "main").strip() == landed["commit"]
    assert (project / "sum.txt").read_text() == "one\ntwo\n"
    again = uwf("land", accepted, check=1).error
    assert "is in main already" in again["message"]


def test_changes_in_the_way_are_left_as_they_are(uwf: Uwf, project: Path, accepted: str) -> None:
    (project / "sum.txt").write_text("mine\n")
    refused = uwf("land", accepted, check=1).error
    assert "branch main stays as it is" in refused["message"]
    assert (project / "sum.txt").read_text() == "mine\n"
    git("-C", project, "checkout", "-q", "sum.txt")
    hint = refused["hint"].partition("then: git -C ")[2].split(" ")
    git("-C", *hint)  # what the hint says works
    assert (project / "sum.txt").read_text() == "one\ntwo\n"


def test_a_conflict_goes_back_to_the_thread_and_what_it_makes_of_it_lands(
    uwf: Uwf, project: Path, remote: Path, accepted: str, tmp_path: Path, config: Callable[[str], Path]
) -> None:
    moves(project, "sum.txt", "one\nthree\n")
    base = git("-C", remote, "rev-parse", "main").strip()
    refused = uwf("land", accepted, check=1).error
    assert "conflicts with main in sum.txt" in refused["message"]
    assert git("-C", remote, "rev-parse", "main").strip() == base
    onward = refused["hint"].split()[-1]
    assert onward != accepted
    told = uwf("thread", "read", onward, "--format", "text").out
    assert f"git merge {base}" in told and "three" in told
    merges = f'git merge -q {base} || printf "one\\ntwo\\nthree\\n" > sum.txt; git commit -qam merged; '
    config(CONFIG.replace("cat $WHAT >> sum.txt; ", merges))
    uwf(*refused["hint"].removeprefix("it was told: uwf ").split(), check=5)
    uwf("thread", "answer", onward, "-m", "merge")
    landed = uwf("land", onward).json
    assert landed["base"] == base
    assert git("-C", remote, "show", "main:sum.txt").split() == ["one", "two", "three"]


def test_a_check_that_fails_on_the_sum_alone_stops_it_and_the_thread_is_told(
    uwf: Uwf, project: Path, remote: Path, accepted: str
) -> None:
    """Both sides pass, and merge without a conflict."""
    moves(project, "tests.sh", 'echo "is strict"; grep -q zero sum.txt\n')
    base = git("-C", remote, "rev-parse", "main").strip()
    refused = uwf("land", accepted, check=6).error
    assert "sh tests.sh exited with 1: is strict" in refused["message"]
    assert git("-C", remote, "rev-parse", "main").strip() == base
    assert "is strict" in uwf("thread", "read", refused["hint"].split()[-1], "--format", "text").out


def test_a_target_that_moves_while_its_checks_run_is_taken_as_it_is_then(
    uwf: Uwf, project: Path, remote: Path, start: Start, config: Callable[[str], Path], tmp_path: Path
) -> None:
    thread = start()
    uwf("thread", "answer", thread, "-m", "merge")
    other = tmp_path / "other"
    git("clone", "-q", remote, other)
    once = tmp_path / "once"
    pushes = (
        f"test -e {once} || {{ touch {once}; cd {other}; echo x > late.txt; git add .; git commit -qm late;"
        " git push -q; }"
    )
    (tmp_path / "moving.sh").write_text(pushes)
    config(CONFIG + f"land: {{ checks: ['sh {tmp_path / 'moving.sh'}', sh tests.sh] }}\n")
    landed = uwf("land", thread).json
    assert git("-C", remote, "log", "-3", "--format=%s", "main").splitlines()[:2] == ["Add *two*", "late"]
    assert landed["base"] == git("-C", remote, "rev-parse", "main~1").strip()


def test_commits_are_kept_as_they_are_if_so_configured(
    uwf: Uwf, project: Path, remote: Path, accepted: str
) -> None:
    moves(project, "other.txt", "x\n")
    landed = uwf("land", accepted, "--commits", "keep").json
    assert landed["commits"] == 1
    author, subject = git("-C", remote, "log", "-1", "--format=%an%n%s", "main").splitlines()
    assert (author, subject) == ("uwf-exec", "fixer: added it")


@pytest.mark.parametrize("answer", [None, "drop"])
def test_what_was_not_accepted_does_not_land(
    uwf: Uwf, project: Path, remote: Path, start: Start, answer: str | None
) -> None:
    thread = start()
    if answer is not None:
        uwf("thread", "answer", thread, "-m", answer, check=10)
    before = git("-C", remote, "rev-parse", "main")
    refused = uwf("land", thread, check=1).error
    assert ("has not ended" if answer is None else "nothing in it accepted") in refused["message"]
    assert git("-C", remote, "rev-parse", "main") == before


def test_a_request_has_claims_with_the_tree_and_the_log_behind_each(
    uwf: Uwf, project: Path, remote: Path, accepted: str
) -> None:
    moves(project, "other.txt", "x\n")
    landed = uwf("land", accepted).json
    body = landed["request"]["body"]
    assert landed["request"]["title"] == "Add *two*"
    tree = git("-C", remote, "rev-parse", "main^{tree}").strip()
    own = next(line for line in body.splitlines() if "exited with 0" in line)
    assert tree[:12] in own and landed["checks"][0]["sha256"] in own
    assert "`tests`: `passed`" in body and "`gate`: `merge`" in body
    assert json.loads(json.dumps(landed)) == landed
