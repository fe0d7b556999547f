"""A person's role in a thread with code: the changes stand above the form, and an answer is given anywhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_samples import GATE, on_terminal, write
from commands import git
from conftest import Uwf
from playwright.sync_api import Page, expect
from site_serving import Serve
from two_machines import Machine

CODES = """uwf-exec sh -c 'echo "added by $UWF_ROLE" >> made.txt; echo "{\\"text\\": \\"first\\"}"'"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    git("init", "-q", "-b", "main", path)
    (path / "one.txt").write_text("one")
    git("-C", path, "add", ".")
    git("-C", path, "commit", "-q", "-m", "one")
    return path


@pytest.fixture
def coded(uwf: Uwf, project: Path) -> str:
    """A thread in a worktree whose writer has left code, so that its gate is next."""
    uwf("workflow", "put", write("gated.yaml", GATE))
    place = ("--workspace", "worktree", "--cwd", project)
    thread = uwf("thread", "start", "gated", "-p", "Announce it", *place).json["thread"]
    uwf("thread", "step", thread, "--agent", CODES)
    return str(thread)


def test_a_terminal_shows_the_changes_above_the_fields(uwf: Uwf, coded: str) -> None:
    code, shown = on_terminal(
        "thread", "answer", coded,
        typed=[("decision [1-3]: ", "send"), ("note (", ""), ("  - ", ""), ("> ", ".")],
    )  # fmt: skip
    assert code == 0, shown
    assert shown.index("+added by writer") < shown.index("Send first?") < shown.index("decision [1-3]")


def test_a_page_shows_the_changes_above_the_form(serve: Serve, browser_page: Page, coded: str) -> None:
    browser_page.goto(serve("--write").launch)
    browser_page.get_by_role("link", name="Announce it").click()
    browser_page.get_by_text("The patch").click()
    added = browser_page.get_by_text("+added by writer")
    expect(added).to_be_visible()
    above, below = added.bounding_box(), browser_page.get_by_role("button", name="send").bounding_box()
    assert above is not None and below is not None and above["y"] < below["y"]


def test_what_a_person_changed_in_the_worktree_is_kept_with_the_answer(
    uwf: Uwf, coded: str, project: Path
) -> None:
    folder = Path(uwf("workspace", "path", coded).out.strip())
    (folder / "made.txt").write_text("corrected by hand\n")
    uwf("thread", "answer", coded, "-m", "send")
    assert git("-C", project, "show", f"uwf/work/{coded}:made.txt") == "corrected by hand"
    assert uwf("verify").json["findings"] == []


def test_a_worktree_that_cannot_be_used_keeps_nobody_from_answering(
    uwf: Uwf, coded: str, project: Path
) -> None:
    folder = Path(uwf("workspace", "path", coded).out.strip())
    (folder / ".git").unlink()
    git("init", "-q", folder)
    answered = uwf("thread", "answer", coded, "-m", "change")
    assert answered.json["role"] == "gate" and "the worktree is left as it is" in answered.err


def test_an_answer_is_given_on_a_machine_without_the_project(uwf: Uwf, coded: str, tmp_path: Path) -> None:
    git("init", "-q", "--bare", tmp_path / "hub.git")
    uwf("remote", "add", "hub", tmp_path / "hub.git")
    uwf("push", "hub")
    there = Machine(uwf, tmp_path / "there")
    there("init")
    there("remote", "add", "hub", tmp_path / "hub.git")
    there("pull", "hub")
    (waits,) = there("inbox").json
    assert (waits["thread"], waits["role"]) == (coded, "gate")
    (tmp_path / "elsewhere").mkdir()
    there("thread", "answer", coded, "-m", "change", cwd=tmp_path / "elsewhere")
    there("push", "hub")
    uwf("pull", "hub")
    assert uwf("thread", "show", coded).json["next"] == "writer"
    made = uwf("thread", "step", coded, "--agent", CODES).json
    assert (made["role"], made["status"]) == ("writer", "waiting")
    assert uwf("verify").json["findings"] == []
