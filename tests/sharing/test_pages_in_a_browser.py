"""What people see of a published thread and workflow: real web front ends, looked at in a real browser.

Pictures of the pages are kept in the folder that UWF_TEST_ARTEFACTS names, else in the test's own.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from cli_samples import scripted, write
from conftest import EXAMPLES, Uwf
from git_servers import bare
from web_pages import Browser, cgit, klaus

pytestmark = pytest.mark.extended

# The hermetic fixture takes it out of the environment before a test runs.
_ARTEFACTS = os.environ.get("UWF_TEST_ARTEFACTS")

SCRIPT = """\
- role: planner
  output: { plan: Keep the name in the form., steps: [Find it, Keep it] }
- role: developer
  output: { filesChanged: [form.py], summary: The name is kept }
- role: reviewer
  answer: |
    ---
    approved: false
    comments: A test is missing.
    ---

    ## Not yet

    There is **no test** for it.
- role: developer
  output: { filesChanged: [form.py, test_form.py], summary: With a test }
- role: reviewer
  output: { approved: true, comments: Good. }
"""
FASTER = "Solves an issue, and faster."


class Published(NamedTuple):
    """A remote's bare repository with a finished thread, a workflow and a proposal for it."""

    repository: Path
    thread: str
    head: str
    version: str
    proposal: str


@pytest.fixture
def published(uwf: Uwf, tmp_path: Path) -> Published:
    repository = bare(tmp_path / "work.git")
    text = (EXAMPLES / "solve-issue.yaml").read_text(encoding="utf-8")
    version = uwf("workflow", "put", write("solve-issue.yaml", text)).json["commit"]
    uwf("remote", "add", "origin", repository)
    prompt = "Fix the login bug\n\nThe form forgets the *name* after an error."
    thread = uwf("thread", "start", "solve-issue", "-p", prompt).json["thread"]
    uwf("thread", "run", thread, "--agent", scripted(SCRIPT))
    head = uwf("publish", "thread", thread).json["commit"]
    uwf("publish", "workflow", "solve-issue")
    before = next(line for line in text.splitlines() if line.startswith("description:"))
    file = write("faster.yaml", text.replace(before, f"description: {FASTER}"))
    proposed = uwf("workflow", "propose", file, "--branch", "faster", "--remote", "origin").json
    return Published(repository, thread, head, version, proposed["commit"])


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    running = Browser(tmp_path / "profile")
    yield running
    running.close()


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    folder = Path(_ARTEFACTS or tmp_path / "pictures")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


SUBJECTS = [
    "0005 reviewer: approved",
    "0004 developer: With a test",
    "0003 reviewer: not approved",
    "0002 developer: The name is kept",
    "0001 planner: Keep the name in the form.",
    "start solve-issue: Fix the login bug",
]


STEPS = ["1 planner", "2 developer", "3 reviewer", "4 developer", "5 reviewer"]


def test_klaus_shows_a_thread_as_pages(published: Published, browser: Browser, pictures: Path) -> None:
    with klaus(published.repository) as address:
        branch = f"uwf/threads/{published.thread}"
        front = browser.open(f"{address}/tree/{branch}/")
        browser.shoot(pictures / "klaus-thread.png")
        assert browser.texts("h1")[:1] == ["Fix the login bug"]
        assert "Ended after 5 steps, with 5 reviewer: approved." in front
        assert "A run of the workflow solve-issue on this task. One commit is one step." in front
        steps = [each for each in browser.texts("td a") if each in STEPS]
        assert steps == STEPS
        at = [front.index(subject) for subject in SUBJECTS]
        assert at == sorted(at)

        step = browser.open(f"{address}/tree/{published.head}/steps/0003-reviewer/")
        browser.shoot(pictures / "klaus-step.png")
        assert browser.texts("h1")[:1] == ["3 reviewer: not approved"]
        assert "Not yet" in browser.texts("h3")
        assert "no test" in browser.texts("strong")
        assert step.count("A test is missing.") == 1
        assert step.index("There is no test for it") < step.index("0003 reviewer: not approved")

        browser.open(f"{address}/commit/{published.head}/")
        browser.shoot(pictures / "klaus-commit.png")
        files = [text for text in browser.texts("a") if text.startswith("steps/")]
        assert files[0] == "steps/0005-reviewer/README.md"
        assert all(name.startswith("steps/0005-reviewer/nodes/") for name in files[1:])


def test_klaus_shows_a_workflow_with_its_graph_and_roles(
    published: Published, browser: Browser, pictures: Path
) -> None:
    with klaus(published.repository) as address:
        browser.open(f"{address}/tree/{published.version}/workflow/")
        browser.shoot(pictures / "klaus-workflow.png")
        assert browser.texts("h1")[:1] == ["solve-issue"]
        (graph,) = [text for text in browser.texts("pre") if text.startswith("flowchart TD")]
        assert 'role3 -->|"notApproved"| role2' in graph
        table = browser.texts("td")
        assert table[:2] == [
            "planner",
            "Turns the issue into a plan that a developer can follow without asking back.",
        ]
        assert [cell for cell in table if cell in ("planner", "developer", "reviewer")] == [
            "planner",
            "developer",
            "reviewer",
        ]


def test_cgit_lists_a_step_as_a_commit_and_shows_its_page_first(
    published: Published, browser: Browser, pictures: Path
) -> None:
    with cgit(published.repository) as address:
        branch = f"uwf/threads/{published.thread}"
        browser.open(f"{address}/log/?h={branch}")
        browser.shoot(pictures / "cgit-log.png")
        rows = browser.texts("table.list tr td:nth-child(2) > a:first-child")
        assert rows[: len(SUBJECTS)] == SUBJECTS
        assert rows[len(SUBJECTS)].startswith("workflow solve-issue ")
        assert len(rows) == len(SUBJECTS) + 1

        browser.open(browser.link("0003 reviewer: not approved"))
        browser.shoot(pictures / "cgit-step.png")
        heads = browser.texts("table.diff div.head")
        assert heads[0].startswith("diff --git a/README.md")
        assert heads[1].startswith("diff --git a/steps/0003-reviewer/README.md")
        assert all("/nodes/" in head for head in heads[2:])
        added = browser.texts("table.diff div.add")
        assert "+### Not yet" in added
        gone = browser.texts("table.diff div.del")
        assert [line.split(" ")[0] for line in gone] == ["-**Under", "-*Made"], (
            "where the thread stood before"
        )


def test_cgit_shows_a_proposed_change_of_a_workflow_as_a_readable_diff(
    published: Published, browser: Browser, pictures: Path
) -> None:
    with cgit(published.repository) as address:
        browser.open(f"{address}/diff/?id={published.proposal}&id2={published.version}")
        browser.shoot(pictures / "cgit-proposal.png")
        heads = browser.texts("table.diff div.head")
        assert heads[0].startswith("diff --git a/workflow.yaml b/workflow.yaml")
        assert browser.texts("table.diff div.add")[0] == f"+description: {FASTER}"
        assert (
            len([line for line in browser.texts("table.diff div.del") if line.startswith("-description:")])
            == 1
        )
        browser.open(f"{address}/refs/heads")
        browser.shoot(pictures / "cgit-branches.png")
        assert {"uwf/proposals/faster", "uwf/workflows/solve-issue"} <= set(browser.texts("a"))


def test_the_generated_files_are_marked_as_such_and_the_pages_are_not(
    published: Published, tmp_path: Path
) -> None:
    def git(*args: str, stdin: str = "") -> str:
        return subprocess.run(
            ["git", f"--git-dir={published.repository}", *args],
            input=stdin,
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "GIT_INDEX_FILE": str(tmp_path / "an-index")},
        ).stdout

    git("read-tree", published.head)
    names = git("ls-files")
    assert any("/nodes/" in name for name in names.splitlines())
    for attribute in ("linguist-generated", "gitlab-generated"):
        for line in git("check-attr", "--cached", "--stdin", attribute, stdin=names).splitlines():
            assert line.endswith(": true") == ("/nodes/" in line)
