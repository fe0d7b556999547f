"""Who the commits in a worktree are by, as a project's rules ask, and what the record of the thread says beside it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import git
from conftest import Uwf
from two_machines import RELAY

ADA = "Ada <ada@example.org>"
WRITES = """uwf-exec sh -c 'echo made >> made.txt; echo "{\\"text\\": \\"done\\"}"'"""


@pytest.fixture
def work(uwf: Uwf, root: Path, tmp_path: Path) -> Callable[[str], str]:
    """Makes a thread whose worktree gets commits of a setup, of a step, by hand and of a second step; returns its
    branch."""
    project = tmp_path / "project"
    git("init", "-q", "-b", "main", project)
    (project / "relay.yaml").write_text(RELAY)
    git("-C", project, "add", ".")
    git("-C", project, "commit", "-q", "-m", "first")
    root.mkdir(exist_ok=True)

    def work(settings: str) -> str:
        lines = f"{{kind: worktree, setup: touch set-up.txt{settings}}}"
        (root / "config.yaml").write_text(f"workspace: {{projects: {{{project}: {lines}}}}}\n")
        words = ("thread", "start", project / "relay.yaml", "-p", "x", "--cwd", project)
        thread = uwf(*words).json["thread"]
        uwf("thread", "step", thread, "--agent", WRITES)
        (root / "workspaces" / thread / "by-hand.txt").write_text("x")
        uwf("thread", "step", thread, "--agent", WRITES)
        assert uwf("verify", thread).code == 0
        return f"uwf/work/{thread}"

    return work


def commits(project: Path, branch: str) -> list[tuple[str, str, str, list[str]]]:
    """Subject, author, committer and trailers, as git reads them, of each commit of a branch, the first one first."""
    rows = git("-C", project, "log", "--reverse", "--format=%H", f"main..{branch}").split()
    form = "%s%n%an <%ae>%n%cn <%ce>"
    return [
        (*git("-C", project, "log", "-1", f"--format={form}", row).split("\n"), trailers(project, row))  # type: ignore[misc]
        for row in rows
    ]


def trailers(project: Path, commit: str) -> list[str]:
    message = git("-C", project, "log", "-1", "--format=%B", commit)
    words = ["git", "interpret-trailers", "--parse"]
    done = subprocess.run(words, input=message, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_a_step_is_by_its_agent_and_nobody_signs_it_unasked(
    work: Callable[[str], str], tmp_path: Path
) -> None:
    set_up, first, by_hand, second = commits(tmp_path / "project", work(""))
    user = set_up[1]
    assert first[1] == second[1] == "uwf-exec <uwf-exec@agents.invalid>"
    assert [row[2] for row in (set_up, first, by_hand, second)] == [user] * 4
    assert by_hand[1] == user
    assert [line.partition(":")[0] for line in first[3]] == ["Uwf-Thread", "Uwf-Number"]
    assert set_up[3] == by_hand[3] == []


def test_all_commits_are_by_the_author_and_name_the_agent(work: Callable[[str], str], tmp_path: Path) -> None:
    rows = commits(tmp_path / "project", work(f", author: {ADA}, signOff: true"))
    assert [row[1] for row in rows] == [ADA] * 4
    assert ADA not in {row[2] for row in rows}
    set_up, first, by_hand, second = (row[3] for row in rows)
    signed = f"Signed-off-by: {ADA}"
    assert set_up == by_hand == [signed]
    assert first[2:] == second[2:] == ["Assisted-by: uwf-exec", signed]
    assert first[0].startswith("Uwf-Thread: ")


def test_without_an_author_the_committer_signs_off(work: Callable[[str], str], tmp_path: Path) -> None:
    rows = commits(tmp_path / "project", work(", signOff: true"))
    user = rows[0][1]
    assert [row[3][-1] for row in rows] == [f"Signed-off-by: {user}"] * 4
    assert {row[2] for row in rows} == {user}
    assert rows[1][1] == "uwf-exec <uwf-exec@agents.invalid>"
