"""The workspace that a thread gets when it is started, by option, workflow, configuration or default."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import git
from conftest import Uwf
from two_machines import RELAY

from uwf_git.base.errors import Invalid
from uwf_git.config.read import load_config

WRITES = """uwf-exec sh -c 'echo made > made.txt; echo "{\\"text\\": \\"done\\"}"'"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a commit, in whose folder the commands run."""
    path = tmp_path / "project"
    git("init", "-q", "-b", "main", path)
    (path / "one.txt").write_text("one")
    (path / "sub").mkdir()
    (path / "sub/two.txt").write_text("two")
    git("-C", path, "add", ".")
    git("-C", path, "commit", "-q", "-m", "first")
    (path / ".git/info/exclude").write_text("relay.yaml\n")
    (path / "relay.yaml").write_text(RELAY)
    monkeypatch.chdir(path)
    return path


def fake_codex(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent program of a known name, which writes."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "codex"
    program.write_text("#!/bin/sh\ncat >/dev/null\necho mine >> one.txt\necho '{}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)


def start(uwf: Uwf, *args: str) -> dict[str, object]:
    return dict(uwf("thread", "start", "relay.yaml", "-p", "Do it", *args).json)


def test_the_agent_that_a_persons_role_would_have_makes_no_worktree(uwf: Uwf, project: Path) -> None:
    (project / "relay.yaml").write_text(RELAY.replace("    systemPrompt: Read.", "    human: true"))
    uwf("config", "set", "agentOverrides.relay.writer", "uwf-rehearse")
    uwf("config", "set", "defaultAgent", "uwf-codex")
    assert "workspace" not in start(uwf)
    (project / "relay.yaml").write_text(RELAY)
    assert "workspace" in start(uwf)


def test_agents_that_may_write_get_a_worktree_and_commands_the_folder(
    uwf: Uwf, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "workspace" not in start(uwf)
    fake_codex(tmp_path, monkeypatch)
    uwf("config", "set", "agentOverrides.relay.reader", "codex")
    uwf("config", "set", "agents.codex.command", "uwf-codex")
    (project / "one.txt").write_text("changed")
    begun = uwf("thread", "start", "relay.yaml", "-p", "Do it", "--format", "text")
    base = git("-C", project, "rev-parse", "HEAD")
    assert begun.err.splitlines() == [
        f"uwf: works in a git worktree that begins at main ({base[:7]}); the uncommitted changes here are not in it;"
        " --include-changes begins with them; --workspace shared works in this folder"
    ]
    value = start(uwf)
    thread = value["thread"]
    assert value["workspace"] == {"kind": "worktree", "branch": f"uwf/work/{thread}", "base": base}
    assert git("-C", project, "rev-parse", f"uwf/work/{thread}") == base
    assert start(uwf, "--workspace", "shared")["workspace"] == {"kind": "shared"}
    uwf("config", "set", "workspace.kind", "shared")
    assert start(uwf)["workspace"] == {"kind": "shared"}


def test_an_agent_that_is_named_later_gets_its_worktree_then(
    uwf: Uwf, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_codex(tmp_path, monkeypatch)
    uwf("config", "set", "agents.codex.command", "uwf-codex")
    thread = str(start(uwf)["thread"])
    done = uwf("thread", "step", thread, "--agent", "codex", check=None)
    assert f"thread {thread} works in a git worktree that begins at main" in done.err
    assert (project / "one.txt").read_text() == "one"
    shared = str(start(uwf, "--workspace", "shared")["thread"])
    done = uwf("thread", "step", shared, "--agent", "codex", check=None)
    assert f"thread {shared} works in the checkout itself, {project}; " in done.err
    assert (project / "one.txt").read_text().startswith("onemine")


def test_a_thread_whose_steps_are_in_the_folder_stays_there_and_says_so(
    uwf: Uwf, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_codex(tmp_path, monkeypatch)
    uwf("config", "set", "agents.codex.command", "uwf-codex")
    thread = str(start(uwf)["thread"])
    assert "works in the checkout itself" in uwf("thread", "step", thread, "--agent", WRITES).err
    done = uwf("thread", "step", thread, "--agent", "codex", check=None)
    assert "works in the checkout itself" in done.err
    assert (project / "one.txt").read_text().startswith("onemine")


def test_where_no_worktree_can_be_the_folder_is_taken_and_who_asks_for_one_is_told(
    uwf: Uwf, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_codex(tmp_path, monkeypatch)
    uwf("config", "set", "defaultAgent", "codex")
    text = (project / "relay.yaml").read_text()
    bare, empty, none = tmp_path / "bare.git", tmp_path / "empty", tmp_path / "none"
    git("init", "-q", "--bare", bare)
    git("init", "-q", empty)
    none.mkdir()
    for folder, says in (
        (none, "is not a git repository"),
        (empty, "has no commits yet"),
        (bare, "has no commits yet"),
    ):
        monkeypatch.chdir(folder)
        Path("relay.yaml").write_text(text)
        assert "workspace" not in start(uwf)
        error = uwf("thread", "start", "relay.yaml", "-p", "x", "--workspace", "worktree", check=3).error
        assert says in error["message"] and error["hint"]
    error = uwf(
        "thread",
        "start",
        "relay.yaml",
        "-p",
        "x",
        "--workspace",
        f"worktree:{bare}",
        "--include-changes",
        check=3,
    ).error
    assert "no commits yet" in error["message"]


def test_a_workflow_says_where_its_agents_work(uwf: Uwf, project: Path) -> None:
    (project / "relay.yaml").write_text(RELAY.replace("roles:", "workspace: worktree\nroles:"))
    found = start(uwf)["workspace"]
    assert isinstance(found, dict) and found["kind"] == "worktree"
    (project / "relay.yaml").write_text(RELAY.replace("roles:", "workspace: cloud\nroles:"))
    (finding,) = uwf("workflow", "validate", "relay.yaml", check=1).json["findings"]
    assert (finding["code"], finding["line"]) == ("bad-workspace", 3)


def test_uncommitted_changes_come_along_and_nothing_of_the_users_is_touched(uwf: Uwf, project: Path) -> None:
    (project / ".gitignore").write_text("secret.txt\n")
    (project / "secret.txt").write_text("secret")
    (project / "one.txt").write_text("changed")
    (project / "new.txt").write_text("new")
    (project / "staged.txt").write_text("staged")
    git("-C", project, "add", "staged.txt")
    index = (project / ".git/index").read_bytes()
    before = git("-C", project, "status", "--short"), git("-C", project, "stash", "list")
    begun = start(uwf, "--workspace", "worktree", "--include-changes")
    assert (project / ".git/index").read_bytes() == index
    assert (git("-C", project, "status", "--short"), git("-C", project, "stash", "list")) == before
    branch = f"uwf/work/{begun['thread']}"
    assert git("-C", project, "rev-parse", f"{branch}^") == git("-C", project, "rev-parse", "main")
    listed = git("-C", project, "diff", "--name-only", "main", branch).split()
    assert listed == [".gitignore", "new.txt", "one.txt", "staged.txt"]
    assert git("-C", project, "show", f"{branch}:one.txt") == "changed"


def test_a_thread_that_is_started_in_a_subfolder_works_there(uwf: Uwf, project: Path) -> None:
    thread = str(start(uwf, "--workspace", "worktree", "--cwd", "sub")["thread"])
    uwf("thread", "step", thread, "--agent", WRITES)
    assert git("-C", project, "diff", "--name-only", "main", f"uwf/work/{thread}") == "sub/made.txt"


def test_a_run_says_where_its_code_is(uwf: Uwf, project: Path) -> None:
    done = uwf(
        "run", "relay.yaml", "-p", "x", "--workspace", "worktree", "--agent", WRITES, "--format", "text"
    )
    thread = done.out.split()[1]
    assert f"uwf: its code is at uwf/work/{thread}: uwf land {thread}" in done.err
    git("-C", project, "merge", "-q", f"uwf/work/{thread}")
    assert (project / "made.txt").exists() and git("-C", project, "status", "--short") == ""


def test_each_of_several_threads_has_a_worktree_and_none_sees_what_another_writes(
    uwf: Uwf, project: Path, tmp_path: Path
) -> None:
    (tmp_path / "tasks.jsonl").write_text('"one"\n"two"\n"three"\n')
    begun = uwf(
        "thread", "start", "relay.yaml", "--each", tmp_path / "tasks.jsonl", "--workspace", "worktree"
    ).json
    threads = [each["thread"] for each in begun]
    writes = "test ! -e mine || exit 9; sleep .2; echo $UWF_THREAD > mine"
    agent = f"""uwf-exec sh -c '{writes}; echo "{{\\"text\\": \\"x\\"}}"'"""
    uwf("thread", "run", *threads, "-j", "3", "--max-steps", "1", "--agent", agent, check=11)
    for thread in threads:
        assert git("-C", project, "show", f"uwf/work/{thread}:mine") == thread
    assert git("-C", project, "status", "--short") == ""


def test_a_new_worktree_has_what_makes_it_usable_and_nothing_of_that_is_committed(
    uwf: Uwf, root: Path, project: Path
) -> None:
    (project / ".gitignore").write_text("node_modules/\nbuilt\n")
    (project / ".env").write_text("SECRET=1")
    (project / "node_modules").mkdir()
    (project / "node_modules/a.js").write_text("a")
    git("-C", project, "add", ".gitignore")
    git("-C", project, "commit", "-q", "-m", "ignores")
    root.mkdir(exist_ok=True)
    (root / "config.yaml").write_text(
        "workspace:\n"
        "  copy: [.env, absent, node_modules]\n"
        '  setup: sh -c \'touch built generated; test "$UWF_CHECKOUT" && test "$UWF_THREAD"\'\n'
    )
    thread = str(start(uwf, "--workspace", "worktree")["thread"])
    checks = "cat .env node_modules/a.js built && echo x > made.txt && echo"
    uwf("thread", "step", thread, "--agent", f'uwf-exec sh -c \'{checks}; echo "{{\\"text\\": \\"x\\"}}"\'')
    branch = f"uwf/work/{thread}"
    assert (
        git("-C", project, "log", "--format=%s", f"main..{branch}").splitlines()[1].startswith("set up: sh")
    )
    assert git("-C", project, "diff", "--name-only", "main", branch).split() == ["generated", "made.txt"]
    assert git("-C", project, "diff", "--name-only", f"{branch}~", branch) == "made.txt"
    (root / "config.yaml").write_text("workspace: {setup: sh -c 'echo no; exit 3'}\n")
    thread = str(start(uwf, "--workspace", "worktree")["thread"])
    error = uwf("thread", "step", thread, "--agent", WRITES, check=1).error
    assert error["code"] == "workspace" and "it exited with 3: no" in error["message"]
    assert not (root / "workspaces" / thread).exists()


def test_a_project_has_settings_of_its_own(uwf: Uwf, root: Path, project: Path) -> None:
    root.mkdir(exist_ok=True)
    (root / "config.yaml").write_text(
        f"workspace:\n  setup: 'false'\n  projects:\n    {project}: {{kind: worktree, setup: touch mine}}\n"
    )
    thread = str(start(uwf)["thread"])
    uwf("thread", "step", thread, "--agent", WRITES)
    assert git("-C", project, "show", f"uwf/work/{thread}:mine") == ""


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{kind: cloud}", "one of worktree, folder, shared"),
        ("{copy: [../x]}", "no path in the project"),
        ("{copy: [/etc]}", "no path in the project"),
        ("{link: [node_modules]}", "unknown key"),
        ("{author: Ada}", "a name and an address"),
        ("{author: <ada@example.org>}", "a name and an address"),
        ("{author: 'Ada <ada@x> <y@z>'}", "a name and an address"),
        ("{signOff: always}", "true or false"),
        ("{keep: 0}", "whole number"),
        ("{keeps: 1}", "unknown key"),
        ("{projects: {/x: {keep: 1}}}", "unknown key"),
    ],
)
def test_settings_that_are_wrong_are_told_with_their_place(root: Path, text: str, says: str) -> None:
    root.mkdir()
    (root / "config.yaml").write_text(f"workspace: {text}\n")
    with pytest.raises(Invalid) as refused:
        load_config(root)
    assert says in refused.value.message and ":1:" in refused.value.message


def test_worktrees_beyond_the_limit_give_way_and_come_back(uwf: Uwf, root: Path, project: Path) -> None:
    uwf("config", "set", "workspace.keep", "1")
    one, two = (str(start(uwf, "--workspace", "worktree")["thread"]) for _ in range(2))
    uwf("thread", "step", one, "--agent", WRITES)
    (root / "workspaces" / one / "hand.txt").write_text("by hand")
    done = uwf("thread", "step", two, "--agent", WRITES)
    assert [path.name for path in (root / "workspaces").iterdir()] == [two]
    (kept,) = git("-C", project, "for-each-ref", "--format=%(refname)", "refs/uwf/local/work").split()
    assert kept in done.err and git("-C", project, "show", f"{kept}:hand.txt") == "by hand"
    agent = WRITES.replace("echo made > made.txt", "cat made.txt || exit 9")
    uwf("thread", "step", one, "--agent", agent)


def test_threads_that_share_a_folder_at_the_same_time_are_told_of_each_other(
    uwf: Uwf, project: Path, begin: Callable[..., object]
) -> None:
    one, two = (str(start(uwf)["thread"]) for _ in range(2))
    waits = (
        'uwf-exec sh -c \'touch began; while test ! -e go; do sleep .05; done; echo "{\\"text\\": \\"x\\"}"\''
    )
    running = begin("thread", "step", one, "--agent", waits)

    for _ in range(600):
        if Path("began").exists():
            break
        time.sleep(0.05)
    done = uwf("thread", "step", two, "--agent", "uwf-rehearse")
    assert f"thread {two} works in {project}, and so does {one}" in done.err
    assert "--workspace worktree" in done.err
    Path("go").touch()
    assert running.wait(60) == 0  # type: ignore[attr-defined]


def test_a_thread_gets_another_workspace_and_keeps_what_it_made(uwf: Uwf, root: Path, project: Path) -> None:
    thread = str(start(uwf, "--workspace", "worktree")["thread"])
    uwf("thread", "step", thread, "--agent", WRITES)
    error = uwf("thread", "step", thread, "--cwd", "/", "--agent", WRITES, check=1).error
    assert "is outside of the project" in error["message"]
    uwf("thread", "step", thread, "--workspace", "shared", "--agent", WRITES)
    assert not (root / "workspaces" / thread).exists() and (project / "made.txt").exists()
    assert git("-C", project, "show", f"uwf/work/{thread}:made.txt") == "made"


def test_a_sub_workflow_works_in_the_worktree_of_its_parent(uwf: Uwf, root: Path, project: Path) -> None:
    uwf("workflow", "put", "relay.yaml")
    (project / "outer.yaml").write_text(
        RELAY.replace("name: relay", "name: outer")
        .replace("writer: [{role: reader}]", "writer: [{role: $END}]")
        .replace("  reader: [{role: $END}]\n", "")
        .split("  reader:\n")[0]
        + "graph:\n  $START: [{role: writer}]\n  writer: [{role: $END}]\n"
    )
    uwf("config", "set", "agentOverrides.outer.writer", "uwf-workflow relay")
    uwf("config", "set", "defaultAgent", WRITES.replace("> made.txt", ">> made.txt"))
    begun = uwf("thread", "start", "outer.yaml", "-p", "x", "--workspace", "worktree").json
    thread = begun["thread"]
    assert uwf("thread", "run", thread).code == 0
    assert git("-C", project, "show", f"uwf/work/{thread}:made.txt").split() == ["made", "made"]
    assert git("-C", project, "rev-list", "--count", f"main..uwf/work/{thread}") == "2"
    assert git("-C", project, "for-each-ref", "--format=%(refname)", "refs/uwf/work").split() == [
        f"refs/uwf/work/{thread}"
    ]
    assert list((root / "workspaces").iterdir()) == []
    fork = uwf("thread", "fork", thread).json["thread"]
    assert json.loads(uwf("verify").out)["findings"] == [] and fork
