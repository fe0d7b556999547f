"""What steps changed in the project: files, counts and patches, as the commands and the library show them."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cli_samples import on_terminal, write
from conftest import Uwf
from workflows import opened

from uwf_git.api.workspaces import code_of_node
from uwf_git.format.ids import ThreadId
from uwf_git.format.kinds import Revision
from uwf_git.workspaces.changes import PATCH_BYTES, changes, step_code, thread_code
from uwf_git.workspaces.notes import Notes

TWO = """\
name: two
description: One writes, another writes on.
roles:
  first: {description: F, systemPrompt: Do., outputSchema: {type: object}}
  second: {description: S, systemPrompt: Do., outputSchema: {type: object}}
graph:
  $START: [{role: first}]
  first: [{role: second}]
  second: [{role: $END}]
"""


def git(*args: str, cwd: Path | None = None) -> str:
    done = subprocess.run(["git", *args], cwd=cwd, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def project(hermetic: Path) -> Path:
    """The current folder as a project with a commit."""
    git("init", "-q", "-b", "main")
    write("kept.txt", "one\ntwo\n")
    write("moved.txt", "".join(f"line {number}\n" for number in range(30)))
    write("gone.txt", "bye\n")
    write("two.yaml", TWO)
    git("add", ".")
    git("commit", "-qm", "first")
    return Path.cwd()


def start(uwf: Uwf) -> str:
    return str(uwf("thread", "start", "two.yaml", "-p", "Do it", "--workspace", "worktree").json["thread"])


def step(uwf: Uwf, thread: str, shell: str, check: int = 0) -> Any:
    """Makes a step by an agent that runs these commands."""
    script = write(f"../{thread}.sh", f"cat >/dev/null\n{shell}\necho '{{}}'\n").resolve()
    agent = f"sh {script}" if check else f"uwf-exec sh {script}"
    return uwf("thread", "step", thread, "--agent", agent, check=check)


EDITS = (
    "echo three >>kept.txt; git mv moved.txt 'here now.txt'; rm gone.txt; printf 'a\\000b' >bin; ln -s x link"
)


def test_a_step_shows_the_files_that_it_changed(uwf: Uwf, project: Path) -> None:
    thread = start(uwf)
    step(uwf, thread, EDITS)
    code = uwf("thread", "step-details", f"{thread}@1", "--json").json["code"]
    assert code["here"] is True
    assert code["base"] == git("rev-parse", "main")
    assert code["commit"] == git("rev-parse", f"uwf/work/{thread}")
    assert "patch" not in code
    plain = {"added": 1, "deleted": 0, "binary": False}
    assert sorted(code["files"], key=lambda each: each["path"]) == [
        {"path": "bin", "status": "A", "added": None, "deleted": None, "binary": True},
        {"path": "gone.txt", "status": "D", "added": 0, "deleted": 1, "binary": False},
        {"path": "here now.txt", "status": "R", **plain, "added": 0, "from": "moved.txt"},
        {"path": "kept.txt", "status": "M", **plain},
        {"path": "link", "status": "A", **plain},
    ]


def test_a_patch_is_shown_on_request_and_applies(uwf: Uwf, project: Path) -> None:
    thread = start(uwf)
    step(uwf, thread, "echo three >>kept.txt; echo new >'n\u00e4w \"file\".txt'")
    code = uwf("thread", "step-details", f"{thread}@1", "--patch", "--json").json["code"]
    subprocess.run(["git", "apply", "-"], input=code["patch"].encode(), check=True)
    assert Path("kept.txt").read_text() == "one\ntwo\nthree\n"
    assert Path('n\u00e4w "file".txt').read_text() == "new\n"


def test_people_see_files_and_patch_with_all_invisible_characters(uwf: Uwf, project: Path) -> None:
    thread = start(uwf)
    step(
        uwf, thread, "printf 'red \\033[31m \\342\\200\\256 \\342\\200\\214\\n' >>kept.txt; echo >'a\nb\033c'"
    )
    code, shown = on_terminal("thread", "step-details", f"{thread}@1", "--patch")
    assert code == 0
    assert "2 files changed, +2 -0" in shown
    assert "+red \\x1b[31m \\u202e \\u200c" in shown
    assert "a b\\x1bc" in shown and "\x1bc" not in shown


def test_the_thread_has_the_changes_of_all_its_steps(uwf: Uwf, project: Path) -> None:
    thread = start(uwf)
    shown = uwf("thread", "show", thread).json
    assert "code" not in shown and shown["workspace"]["exists"] is False
    step(uwf, thread, "echo three >>kept.txt")
    step(uwf, thread, "echo more >more.txt")
    shown = uwf("thread", "show", thread).json
    branch = f"uwf/work/{thread}"
    assert shown["workspace"] == {
        "kind": "worktree",
        "path": str(Path.home() / "root" / "workspaces" / thread),
        "branch": branch,
        "exists": False,
    }
    assert shown["code"] == {
        "commit": git("rev-parse", branch),
        "base": git("rev-parse", "main"),
        "branch": branch.removeprefix("refs/heads/"),
        "merge": f"git merge {branch.removeprefix('refs/heads/')}",
        "merged": False,
        "warnings": [],
    }
    assert "2 files changed, +2 -0" in uwf("thread", "show", thread, "--format", "text").out
    rows = uwf("thread", "steps", thread).json
    assert [each["code"] for each in rows] == [git("rev-parse", f"{branch}~1"), git("rev-parse", branch)]


def test_a_thread_without_a_workspace_shows_none(uwf: Uwf, project: Path) -> None:
    thread = uwf("thread", "start", "two.yaml", "-p", "Do it", "--workspace", "shared").json["thread"]
    step(uwf, thread, "true")
    assert not {"workspace", "code"} & uwf("thread", "show", thread).json.keys()
    assert "code" not in uwf("thread", "step-details", f"{thread}@1", "--patch", "--json").json
    assert "code" not in uwf("thread", "steps", thread).json[0]
    assert "code" not in uwf("thread", "diff", thread, thread).json


def test_a_failed_attempt_shows_what_it_left(uwf: Uwf, project: Path) -> None:
    thread = start(uwf)
    step(uwf, thread, "echo half >half.txt; exit 3", check=6)
    step(uwf, uwf("thread", "start", "two.yaml", "-p", "x", "--workspace", "shared").json["thread"], "true")
    (attempt,) = uwf("thread", "attempts", thread).json
    assert attempt["code"].keys() >= {"commit", "base", "tree"}
    code = uwf("thread", "step-details", attempt["attempt"], "--patch", "--json").json["code"]
    assert (code["commit"], code["base"]) == (attempt["code"]["commit"], git("rev-parse", "main"))
    assert [each["path"] for each in code["files"]] == ["half.txt"]
    assert "+half" in code["patch"]


def test_an_attempt_without_code_has_no_key_for_it(uwf: Uwf, project: Path) -> None:
    thread = start(uwf)
    step(uwf, thread, "exit 3", check=6)
    (attempt,) = uwf("thread", "attempts", thread).json
    assert "code" not in attempt


def test_two_threads_differ_in_their_code(uwf: Uwf, project: Path) -> None:
    one, other, bare = start(uwf), start(uwf), start(uwf)
    step(uwf, one, "echo one >same.txt; echo one >own.txt")
    step(uwf, other, "echo one >same.txt; echo other >own.txt")
    code = uwf("thread", "diff", one, other, "--patch").json["code"]
    assert code["a"] == git("rev-parse", f"uwf/work/{one}")
    assert code["b"] == git("rev-parse", f"uwf/work/{other}")
    assert [each["path"] for each in code["files"]] == ["own.txt"]
    assert "-one\n+other\n" in code["patch"]
    code = uwf("thread", "diff", one, bare).json["code"]
    assert (code["b"], code["files"]) == (None, None)
    said = uwf("thread", "diff", one, other, "--format", "text").out
    assert "1 file changed, +1 -1" in said and "own.txt" in said
    assert "the same files" in uwf("thread", "diff", one, one, "--format", "text").out
    assert "has no code" in uwf("thread", "diff", one, bare, "--format", "text").out


def test_code_that_is_not_here_is_an_ordinary_result(uwf: Uwf, project: Path) -> None:
    git("remote", "add", "origin", "https://git.example/project.git")
    one, other = start(uwf), start(uwf)
    step(uwf, one, "echo one >one.txt")
    step(uwf, other, "echo other >other.txt")
    commit = git("rev-parse", f"uwf/work/{one}")
    shutil.rmtree(project / ".git")
    code = uwf("thread", "step-details", f"{one}@1", "--patch", "--json").json["code"]
    assert code["commit"] == commit
    assert (code["here"], code["files"]) == (False, []) and "patch" not in code
    shown = on_terminal("thread", "step-details", f"{one}@1")[1]
    address = "https://git.example/project.git"
    assert f"commit {commit[:12]} is not on this machine, and not known to be at {address}" in shown
    assert "is not on this machine" in uwf("thread", "show", one, "--format", "text").out
    assert uwf("thread", "diff", one, other).json["code"]["files"] is None
    assert "not in one repository" in uwf("thread", "diff", one, other, "--format", "text").out


def test_a_thread_without_a_note_finds_its_code_in_another_threads_project(uwf: Uwf, project: Path) -> None:
    one, other = start(uwf), start(uwf)
    step(uwf, one, "echo one >one.txt")
    instance = opened()
    Notes(instance.store.repository.private).forget(ThreadId(one))
    assert uwf("thread", "step-details", f"{one}@1", "--json").json["code"]["here"] is True
    Notes(instance.store.repository.private).forget(ThreadId(other))
    assert uwf("thread", "step-details", f"{one}@1", "--json").json["code"]["here"] is True
    elsewhere = project.parent
    assert uwf("thread", "step-details", f"{one}@1", "--json", cwd=elsewhere).json["code"]["here"] is False


@pytest.mark.parametrize("name", ["main", "HEAD", "--output=told", "0" * 40, "0" * 7, ""])
def test_only_whole_object_ids_are_looked_up(uwf: Uwf, project: Path, name: str) -> None:
    thread = ThreadId(start(uwf))
    head = git("rev-parse", "main")
    for code in (Revision(name, "", head), Revision(head, "", name)):
        assert not changes(opened(), thread, code, True).here
    assert not Path("told").exists()


def test_reading_code_runs_no_program_of_the_repository(uwf: Uwf, project: Path) -> None:
    thread = start(uwf)
    step(uwf, thread, "echo '* diff=evil filter=evil' >.gitattributes; echo three >>kept.txt")
    write(".gitattributes", "* diff=evil\n")
    for key in ("diff.evil.textconv", "diff.evil.command", "diff.external", "core.fsmonitor", "core.pager"):
        git("config", key, f"touch {project}/ran; cat")
    git("config", "color.diff", "always")
    code = uwf("thread", "step-details", f"{thread}@1", "--patch", "--json").json["code"]
    assert "+three\n" in code["patch"] and "\x1b" not in code["patch"]
    assert not Path("ran").exists()


def test_a_long_patch_is_cut_and_says_so(uwf: Uwf, project: Path) -> None:
    thread = start(uwf)
    step(uwf, thread, "yes 'a line of some length' | head -n 100000 >long.txt")
    code = uwf("thread", "step-details", f"{thread}@1", "--patch", "--json").json["code"]
    assert code["files"][0]["added"] == 100_000
    *lines, last, end = code["patch"].split("\n")
    assert (lines[-1], end) == ("+a line of some length", "")
    assert last.startswith("\\ cut after 1 MiB; all of it: git diff ")
    assert PATCH_BYTES - 200 < len(code["patch"]) < PATCH_BYTES + 200
    assert git(*last.partition("all of it: git ")[2].split(), "--stat").endswith("100000 insertions(+)")


def test_a_file_that_is_too_large_to_compare_counts_as_binary(uwf: Uwf, project: Path) -> None:
    thread = start(uwf)
    step(uwf, thread, "yes | head -c 20000000 >large.txt")
    (file,) = uwf("thread", "step-details", f"{thread}@1", "--json").json["code"]["files"]
    assert file["binary"] is True


def test_a_step_of_a_sub_workflow_has_the_changes_of_all_its_steps(uwf: Uwf, project: Path) -> None:
    thread = start(uwf)
    step(uwf, thread, "echo one >one.txt")
    step(uwf, thread, "echo more >more.txt")
    instance = opened()
    last = instance.threads.head(ThreadId(thread)).node  # such a step has it as its detail
    code = step_code(instance, last)
    assert code is not None and code.base == git("rev-parse", "main")
    assert [each.path for each in changes(instance, None, code).files] == ["more.txt", "one.txt"]


def test_the_newest_steps_without_code_are_passed_over(uwf: Uwf, project: Path) -> None:
    thread = start(uwf)
    step(uwf, thread, "echo one >one.txt")
    commit = git("rev-parse", f"uwf/work/{thread}")
    uwf("thread", "say", thread, "-m", "Well done")
    instance = opened()
    head = instance.threads.head(ThreadId(thread))
    found = thread_code(instance, head.node)
    assert found is not None and found.commit == commit
    assert code_of_node(instance, None, head.node) is None
    assert json.loads(uwf("thread", "steps", thread).out)[1].get("code") is None
