"""`uwf workspace`: which worktrees and folders threads have here, where they are, and removing them."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from cli_samples import PAIR, write
from conftest import Uwf

WRITES = "uwf-exec sh -c 'cat >/dev/null; echo new >new.txt; echo {\\\"text\\\":1}'"


def git(*args: str) -> str:
    return subprocess.run(["git", *args], capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def project(hermetic: Path) -> Path:
    """The current folder as a project with a commit."""
    git("init", "-q", "-b", "main")
    write("pair.yaml", PAIR.replace("type: string", "type: integer"))
    write(".gitignore", "ignored\n")
    git("add", ".")
    git("commit", "-qm", "first")
    return Path.cwd()


def start(uwf: Uwf, kind: str = "worktree") -> str:
    return str(uwf("thread", "start", "pair.yaml", "-p", "Do it", "--workspace", kind).json["thread"])


def stepped(uwf: Uwf) -> str:
    thread = start(uwf)
    uwf("thread", "step", thread, "--agent", WRITES)
    return thread


def row(thread: str, **other: Any) -> dict[str, Any]:
    place = Path.home() / "root" / "workspaces" / thread
    return {
        "thread": thread,
        "status": "idle",
        "kind": "worktree",
        "path": str(place),
        "branch": f"uwf/work/{thread}",
        "exists": True,
        **other,
    }


def test_the_list_has_what_exists_and_on_request_the_rest(uwf: Uwf, project: Path) -> None:
    unused, used, shared = start(uwf), stepped(uwf), start(uwf, "shared")
    kept = start(uwf, f"folder:{project.parent}/folders")
    assert uwf("workspace", "list").json == [row(used)]
    folder = {"kind": "folder", "path": f"{project.parent}/folders/{kept}", "branch": None, "exists": False}
    assert uwf("workspace", "list", "--all").json == [
        row(kept, **folder),
        row(used),
        row(unused, exists=False),
    ]
    shown = uwf("workspace", "list", "--all", "--format", "text").out
    assert f"{unused} (does not exist)" in shown and f"uwf/work/{used}" in shown and shared not in shown


def test_an_empty_list_is_no_error(uwf: Uwf, project: Path) -> None:
    uwf("init")
    assert uwf("workspace", "list").json == []
    assert uwf("workspace", "list", "--format", "text").out == "no workspaces\n"


def test_the_worktree_of_a_removed_thread_can_be_removed(uwf: Uwf, project: Path) -> None:
    thread = stepped(uwf)
    uwf("thread", "rm", thread, "--yes")
    for each in uwf("workspace", "list").json:
        assert each == row(thread, status=None)
        assert "removed" in uwf("workspace", "list", "--format", "text").out
        uwf("workspace", "remove", thread[:12])
    assert uwf("workspace", "list").json == []


def test_path_is_for_the_shell(uwf: Uwf, project: Path) -> None:
    thread = stepped(uwf)
    done = subprocess.run(
        ["sh", "-ec", "cd $(uwf workspace path @); cat new.txt"], capture_output=True, text=True, check=True
    )
    assert done.stdout == "new\n"
    assert uwf("workspace", "path", thread).out == row(thread)["path"] + "\n"
    assert uwf("workspace", "path", thread, "--json").json == {"thread": thread, "path": row(thread)["path"]}


def test_path_of_a_folder_in_the_project_is_that_folder(uwf: Uwf, project: Path) -> None:
    write("inside/kept.txt", "kept\n")
    git("add", ".")
    git("commit", "-qm", "inside")
    made = uwf(
        "thread", "start", "../pair.yaml", "-p", "x", "--workspace", "worktree", cwd=project / "inside"
    )
    thread = made.json["thread"]
    uwf("thread", "step", thread, "--agent", WRITES, cwd=project / "inside")
    assert uwf("workspace", "path", thread).out == f"{row(thread)['path']}/inside\n"


def test_without_a_workspace_there_is_no_path(uwf: Uwf, project: Path) -> None:
    unused, shared = start(uwf), start(uwf, "shared")
    assert "does not exist now" in uwf("workspace", "path", unused, check=3).error["message"]
    assert "no workspace of its own" in uwf("workspace", "path", shared, check=3).error["message"]
    assert uwf("workspace", "path", "01ZZZ", check=3).error["code"] == "not_found"


def test_remove_keeps_commits_and_what_is_uncommitted(uwf: Uwf, project: Path) -> None:
    thread = stepped(uwf)
    place = Path(row(thread)["path"])
    (place / "by hand.txt").write_text("by hand\n")
    (place / "ignored").write_text("ignored\n")
    done = uwf("workspace", "remove", thread)
    removed = row(thread, exists=False)
    del removed["status"]
    assert done.json == {**removed, "warnings": done.json["warnings"]}
    assert "ignored; workspace.keepIgnored" in done.err and not place.exists()
    kept = done.err.split("is kept as ")[1].strip()
    assert git("show", f"{kept}:by hand.txt") == "by hand"
    assert git("show", f"uwf/work/{thread}:new.txt") == "new"
    assert git("worktree", "list").count("\n") == 0
    said = uwf("workspace", "remove", thread, "--format", "text").out
    assert said == f"removed {place}; its commits are at uwf/work/{thread}\n"
    uwf(
        "thread",
        "step",
        thread,
        "--agent",
        "uwf-exec sh -c 'cat >/dev/null; ls; echo {\\\"approved\\\":true}'",
    )
    assert git("ls-tree", "--name-only", f"uwf/work/{thread}").split()[-1] == "pair.yaml"


def test_several_are_removed_and_the_failures_told(uwf: Uwf, project: Path) -> None:
    one, other, shared = stepped(uwf), stepped(uwf), start(uwf, "shared")
    done = uwf("workspace", "remove", one, shared, other, check=3)
    assert [each["thread"] for each in done.json] == [one, other]
    assert shared in done.err
    assert uwf("workspace", "list").json == []


def test_a_folder_is_not_removed(uwf: Uwf, project: Path) -> None:
    thread = start(uwf, f"folder:{project.parent}/folders")
    uwf("thread", "step", thread, "--agent", WRITES)
    assert "no history" in uwf("workspace", "remove", thread, check=1).error["message"]
    assert uwf("workspace", "path", thread).out == f"{project.parent}/folders/{thread}\n"
