"""A thread that ends at `$FAIL` has failed: its status, its exit status, its pages and its verification say so."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from conftest import Uwf

import uwf_git
from uwf_git.base.errors import WorkflowFailed

CHECK = """
name: gate
description: One check.
roles:
  check:
    description: Checks.
    systemPrompt: Check.
    outputSchema:
      type: object
      properties: { ok: { type: boolean }, status: { enum: [passed, failed] }, why: { type: string } }
      required: [ok, status, why]
"""
GATE = (
    CHECK
    + """
conditions:
  ok: { description: It is fine., expression: "steps[-1].output.ok" }
graph:
  $START: [{ role: check }]
  check: [{ role: $END, condition: ok }, %s]
"""
)
BY_STATUS = (
    CHECK
    + """
graph:
  $START: { _: check }
  check: { passed: $END, failed: %s }
"""
)
ENDS = [
    (GATE, '{ end: failed, reason: "not ok: {{ why }}" }', "not ok: no tests"),
    (GATE, '{ role: $FAIL, prompt: "not ok: {{ why }}" }', "not ok: no tests"),
    (GATE, "{ end: failed }", ""),
    (BY_STATUS, '{ end: failed, reason: "not ok: {{ why }}" }', "not ok: no tests"),
    (BY_STATUS, "$FAIL", ""),
]


def agent(**output: object) -> str:
    """An agent with this output."""
    return f"uwf-exec echo '{json.dumps(output)}'"


FAILS = agent(ok=False, status="failed", why="no tests")
PASSES = agent(ok=True, status="passed", why="")


@pytest.fixture
def gate(hermetic: Path) -> Path:
    path = hermetic / "gate.yaml"
    path.write_text(GATE % ENDS[0][1])
    return path


def failed(uwf: Uwf, path: Path) -> str:
    """A thread of that workflow that has failed."""
    thread = str(uwf("thread", "start", path, "-p", "Ship it").json["thread"])
    uwf("thread", "run", thread, "--agent", FAILS, check=WorkflowFailed.exit_status)
    return thread


@pytest.mark.parametrize(("workflow", "edge", "reason"), ENDS)
def test_an_edge_to_a_failed_end_ends_the_thread_as_failed_for_its_reason(
    uwf: Uwf, hermetic: Path, workflow: str, edge: str, reason: str
) -> None:
    (hermetic / "gate.yaml").write_text(workflow % edge)
    assert uwf("workflow", "validate", hermetic / "gate.yaml").json["findings"] == []
    done = uwf("run", hermetic / "gate.yaml", "-p", "Ship it", "--agent", FAILS, check=10)
    assert done.error["code"] == "workflow_failed" and done.error["message"].endswith(reason)
    shown = uwf("thread", "show", "@").json
    assert (shown["status"], shown["done"], shown["reason"]) == ("failed", True, reason)
    assert uwf("verify").json["findings"] == []


def test_the_same_workflow_completes_if_the_check_passes(uwf: Uwf, gate: Path) -> None:
    uwf("run", gate, "-p", "Ship it", "--agent", PASSES)
    assert uwf("thread", "show", "@").json["status"] == "completed"


def test_a_failed_thread_is_listed_as_ended_and_not_run_again(uwf: Uwf, gate: Path) -> None:
    thread = failed(uwf, gate)
    assert uwf("thread", "list").json == []
    for options in (["--all"], ["--ended"], ["--status", "failed"]):
        assert [each["thread"] for each in uwf("thread", "list", *options).json] == [thread]
    uwf("thread", "run", "--status", "failed")
    assert uwf("thread", "show", thread).json["head"] == uwf("thread", "steps", thread).json[-1]["step"]
    assert "is failed" in uwf("thread", "step", thread, check=1).error["message"]


def test_a_fork_before_the_last_step_can_still_complete(uwf: Uwf, gate: Path) -> None:
    thread = failed(uwf, gate)
    hint = uwf("thread", "start", gate, "-p", "Ship it").json["thread"]
    told = uwf("thread", "run", hint, "--agent", FAILS, check=10).error["hint"]
    assert told.endswith(f"uwf thread fork {hint} --from-role check")
    fork = uwf("thread", "fork", thread, "--at", "0").json["thread"]
    uwf("thread", "run", fork, "--agent", PASSES)
    assert uwf("thread", "show", fork).json["status"] == "completed"


def test_the_page_of_a_failed_thread_and_its_graph_say_so(uwf: Uwf, gate: Path, root: Path) -> None:
    uwf("workflow", "put", gate)
    thread = failed(uwf, gate)
    git = ["git", "--git-dir", root / "store.git"]
    page = subprocess.run(
        [*git, "show", f"refs/uwf/archive/{thread}:README.md"], capture_output=True, text=True
    )
    assert page.stdout.splitlines()[2].startswith("**Failed** after 1 step, with [1 check: failed]")
    tag = subprocess.run(
        [*git, "cat-file", "tag", f"refs/uwf/archive/{thread}"], capture_output=True, text=True
    )
    assert tag.stdout.rstrip().endswith("failed: not ok: no tests")
    assert '(["$FAIL"])' in uwf("workflow", "graph", "gate", "--format", "text").out


@pytest.mark.parametrize(
    ("message", "finding"),
    [
        ("completed", "completed, but the workflow ends as failed there"),
        ("failed: it rained", "the reason of the failure is not the workflow's"),
    ],
)
def test_verify_finds_an_end_that_is_not_the_workflows(
    uwf: Uwf, gate: Path, root: Path, message: str, finding: str
) -> None:
    thread = failed(uwf, gate)
    git = ["git", "--git-dir", str(root / "store.git")]
    read = ["cat-file", "tag", f"refs/uwf/archive/{thread}"]
    tag = subprocess.run([*git, *read], capture_output=True, text=True, check=True).stdout
    forged = subprocess.run(
        [*git, "mktag"],
        input=tag.replace("failed: not ok: no tests", message),
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    subprocess.run([*git, "update-ref", f"refs/uwf/archive/{thread}", forged], check=True)
    found = uwf("verify", check=7).json["findings"]
    assert [each["message"] for each in found if each["code"] == "wrong-tag"] == [finding]


def test_a_failed_end_survives_folding_and_sharing(uwf: Uwf, gate: Path, hermetic: Path) -> None:
    thread = failed(uwf, gate)
    assert list(uwf("gc", "--fold-before", "2999-01-01").json["folded"].values()) == [1]
    subprocess.run(["git", "init", "-q", "--bare", hermetic / "there.git"], check=True)
    uwf("remote", "add", "origin", hermetic / "there.git")
    uwf("push")
    uwf("clone", hermetic / "there.git", "--root", hermetic / "other")
    shown = uwf("thread", "show", thread, "--root", hermetic / "other").json
    assert (shown["status"], shown["reason"]) == ("failed", "not ok: no tests")


def test_the_hook_for_failures_gets_the_reason(uwf: Uwf, gate: Path, hermetic: Path, root: Path) -> None:
    root.mkdir(exist_ok=True)
    (root / "config.yaml").write_text(f"hooks: {{ failed: [sh, -c, 'cat > {hermetic}/told'] }}\n")
    thread = failed(uwf, gate)
    told = json.loads((hermetic / "told").read_text())
    assert (told["event"], told["thread"], told["done"], told["error"]) == (
        "failed",
        thread,
        True,
        "not ok: no tests",
    )


def test_the_library_has_a_state_for_it(uwf: Uwf, gate: Path) -> None:
    id_ = failed(uwf, gate)
    assert uwf_git.open().thread(id_).state == uwf_git.Failed("not ok: no tests", ended=True)


@pytest.mark.parametrize(
    ("edge", "message"),
    [
        ("{ end: lost }", "end is one of completed, failed"),
        ("{ end: failed, role: check }", "role does not go with end"),
        ("{ end: completed, reason: why }", "only a failed end has a reason"),
        ("{ reason: why }", "end is one of completed, failed"),
        ('{ end: failed, reason: "{{ reasn }}" }', "reason uses {{ reasn }}, which the schema"),
        ("{ role: $FAILED }", 'an edge cannot lead to "$FAILED"'),
    ],
)
def test_a_wrong_end_is_named_with_its_line(uwf: Uwf, hermetic: Path, edge: str, message: str) -> None:
    (hermetic / "gate.yaml").write_text(GATE % edge)
    findings = uwf("workflow", "validate", hermetic / "gate.yaml", check=1).json["findings"]
    assert any(message in each["message"] and each["line"] == 17 for each in findings), findings


def test_the_shipped_checklist_fails_at_the_first_failure(uwf: Uwf) -> None:
    checklist = Path(__file__).parents[2] / "examples" / "release-checklist.yaml"
    done = uwf("run", checklist, "-p", "Ship it", "--agent", "uwf-exec sh -c 'echo no; exit 1'", check=10)
    assert done.error["message"].endswith("has failed: version: no")


def test_its_pages_say_that_it_has_failed_and_offer_no_further_step(
    uwf: Uwf, gate: Path, hermetic: Path
) -> None:
    pytest.importorskip("starlette")
    thread = failed(uwf, gate)
    uwf("web", "--export", hermetic / "site")
    page = next(path for path in (hermetic / "site").rglob("*.html") if path.stem == thread).read_text()
    assert "It has failed" in page and "not ok: no tests" in page
    assert f"uwf thread step {thread}" not in page
    uwf("export", thread, "--html", hermetic / "one.html")
    assert "not ok: no tests" in (hermetic / "one.html").read_text()


def test_a_suite_judges_a_failed_thread_by_its_output(uwf: Uwf, gate: Path, hermetic: Path) -> None:
    uwf("workflow", "put", gate)
    case = "{ name: bad, prompt: Ship it, expected: { ok: false } }"
    (hermetic / "cases.yaml").write_text(
        f"suite: gates\nworkflow: gate\njudges: ['exact:ok']\ncases:\n  - {case}\n"
    )
    uwf("eval", "import", hermetic / "cases.yaml")
    (result,) = uwf("eval", "run", "gates", "--agent", FAILS).json["results"]
    assert (result["state"], result["score"]) == ("passed", 1.0)


@pytest.mark.parametrize(("edge", "why"), [(ENDS[0][1], ": not ok: no tests"), ("{ end: failed }", "")])
@pytest.mark.parametrize("step", ["", "@1"])
def test_without_judges_a_thread_that_ended_as_failed_does_not_pass(
    uwf: Uwf, gate: Path, edge: str, why: str, step: str
) -> None:
    gate.write_text(GATE % edge)
    uwf("workflow", "put", gate)
    uwf("eval", "add", f"{failed(uwf, gate)}{step}", "--to", "gates")
    for _ in ("tried", "known"):
        value = uwf("eval", "run", "gates", "--agent", FAILS).json
        (result,) = value["results"]
        assert (result["state"], result["score"], value["failed"]) == ("failed", 0.0, 1)
        assert (result["status"], result["error"]) == ("completed", f"the thread ended as failed{why}")
    judged = uwf("eval", "run", "gates", "--agent", FAILS, "--judge", "exact:ok", "--format", "text").out
    assert judged.startswith("passed") and f"the thread ended as failed{why}" in judged


def test_an_agent_is_told_that_the_workflow_may_end_as_failed(uwf: Uwf, gate: Path) -> None:
    thread = uwf("thread", "start", gate, "-p", "Ship it").json["thread"]
    prompt = uwf("thread", "prompt", thread, "--format", "text").out
    assert "the end of the workflow, as failed" in prompt and "$FAIL" not in prompt


def test_who_watches_a_thread_is_told_by_the_exit_status(uwf: Uwf, gate: Path) -> None:
    thread = failed(uwf, gate)
    assert "not ok: no tests" in uwf("watch", thread, check=10).err
