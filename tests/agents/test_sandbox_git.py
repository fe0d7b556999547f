"""No command changes a git repository or leaves one behind, and nothing that a model writes widens what it
sees: what stands in a repository or a store is run or trusted outside of the sandbox."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from uwf_git.config.policy import ToolPolicy
from uwf_git.ext.builtin.environment import standard_tools
from uwf_git.ext.builtin.tools.tool import Toolbox
from uwf_git.sandbox.bubblewrap import toolchains
from uwf_git.sandbox.repositories import RepositoriesBefore

KEY = "sk-test-0123456789abcdef"
ALLOWED = ToolPolicy(run_command=True)
STORE = "mkdir -p {0}/uwf {0}/hooks {0}/objects {0}/refs; echo ref: refs/heads/x > {0}/HEAD; echo 1 > {0}/uwf/format"


pytestmark = pytest.mark.needs("bwrap")


@pytest.fixture
def project(tmp_path: Path, hermetic: Path) -> Path:
    """A folder that is no repository, with repositories in it; a repository with a secret outside."""
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    private = hermetic / "private"
    for place in (folder / "sub", private):
        _git("init", "-q", str(place))
    _git("init", "-q", "--bare", str(folder / "bare"))
    (private / ".git" / "config").write_text(f"[remote]\n\turl = {KEY}\n")
    return folder


@pytest.fixture
def box(project: Path) -> Iterator[Toolbox]:
    with standard_tools(project, ALLOWED) as tools:
        yield tools


def _git(*words: str) -> None:
    subprocess.run(["git", *words], check=True, capture_output=True)


def run(box: Toolbox, command: str) -> dict[str, Any]:
    result = box.call("run_command", {"command": command})
    assert result.ok, result.value
    return result.value


def _tree(folder: Path) -> dict[str, bytes]:
    return {str(each): each.read_bytes() for each in folder.rglob("*") if each.is_file()}


def test_repositories_below_the_project_cannot_be_changed(box: Toolbox, project: Path) -> None:
    before = _tree(project / "sub" / ".git"), _tree(project / "bare")
    output = run(
        box,
        "echo x > sub/.git/hooks/post-commit; echo x > bare/hooks/update; rm -rf sub/.git bare; "
        "mv sub/.git sub/g; mv bare b; ln sub/.git/config src/c; git -C sub status --short",
    )
    assert "Read-only" in output["output"] and "taken" not in output
    assert (_tree(project / "sub" / ".git"), _tree(project / "bare")) == before
    moved = run(box, "mv sub there && echo x > there/.git/config; mkdir sub")
    assert "taken" not in moved and (project / "there" / ".git" / "HEAD").exists()


@pytest.mark.parametrize(
    ("command", "gone", "kept"),
    [
        (STORE.format("src/.git"), "src/.git", "src/.git.taken-*/hooks"),
        (STORE.format("src/.GIT"), "src/.GIT", "src/.GIT.taken-*/hooks"),
        (STORE.format("src"), "src/HEAD", "src/HEAD.taken-*"),
        ("echo gitdir: ../bare > src/.git", "src/.git", "src/.git.taken-*"),
        ("ln -s ../bare src/.git", "src/.git", "src/.git.taken-*"),
        (
            STORE.format("src/.git/modules/a") + "; " + STORE.format("src/.git"),
            "src/.git",
            "src/.git.taken-*",
        ),
        ("mv sub there; " + STORE.format("sub/.git"), "sub/.git", "sub/.git.taken-*"),
        (STORE.format("src/.git") + "; chmod 500 src", "src/.git", "src/.git.taken-*"),
    ],
)
def test_a_repository_that_a_command_makes_is_none_afterwards(
    box: Toolbox, project: Path, command: str, gone: str, kept: str
) -> None:
    done = run(box, command)
    assert not os.path.lexists(project / gone)
    assert f"@project/{gone[:3]}" in done["taken"] and list(project.glob(kept))
    known = {"sub/.git", "there/.git", "bare"}
    with RepositoriesBefore(project) as before:
        assert {"/".join(each.parts) for each in before.found} <= known


def test_a_repository_of_a_command_whose_engine_was_killed_is_none_after_the_next_and_the_users_stay(
    project: Path, tmp_path: Path
) -> None:
    store = tmp_path / "store.git"
    store.mkdir()
    code = (
        "import sys; from pathlib import Path; from uwf_git.config.policy import ToolPolicy\n"
        "from uwf_git.ext.builtin.environment import standard_tools\n"
        "box = standard_tools(Path(sys.argv[1]), ToolPolicy(run_command=True), store=Path(sys.argv[2]))\n"
        "box.call('run_command', {'command': sys.argv[3] + '; touch begun; sleep 600'})"
    )
    planting = [sys.executable, "-c", code, str(project), str(store), STORE.format("src/.git")]
    with subprocess.Popen(planting) as engine:
        while not (project / "begun").exists():
            assert engine.poll() is None
            time.sleep(0.01)
        engine.kill()
    (note,) = (store / "uwf" / "commands").iterdir()
    note.write_text(json.dumps({**json.loads(note.read_text()), "until": time.time()}))
    time.sleep(0.3)
    subprocess.run(["git", "init", "-q", str(project / "mine")], check=True)
    with standard_tools(project, ALLOWED, store=store) as box:
        done = run(box, "ls -A src")
        assert "src/.git is now .git.taken-" in done["taken"] and "whose uwf was killed" in done["taken"]
        assert ".git\n" not in done["output"] and (project / "mine" / ".git" / "HEAD").exists()
        assert "taken" not in run(box, "true") and not list(note.parent.iterdir())


def test_a_project_gets_no_repository_even_while_a_command_runs(box: Toolbox, project: Path) -> None:
    done = run(box, "git init -q .; ls -A .git; echo 'gitdir: bare' > .git; rmdir .git; mv .git g")
    assert "Read-only" in done["output"] and "taken" not in done
    assert sorted(os.listdir(project)) == ["bare", "src", "sub"]  # noqa: PTH208


def test_no_process_of_a_command_is_left_when_its_repositories_are_looked_for(box: Toolbox) -> None:
    mark = f"600.{secrets.randbelow(10**9):09}"
    run(box, f"for i in $(seq 200); do setsid sleep {mark} & done; sleep 0.1")
    left = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            left += [each] if mark.encode() in each.read_bytes() else []
    assert left == []


def test_a_planted_pointer_shows_no_repository_of_another_s(project: Path, hermetic: Path) -> None:
    """As an engine that was killed may leave one behind."""
    private = hermetic / "private" / ".git"
    fake = project / "fake"
    (fake / "worktrees" / "w").mkdir(parents=True)
    (fake / "worktrees" / "w" / "commondir").write_text(str(private))
    (fake / "worktrees" / "w" / "gitdir").write_text(str(project / ".git"))
    for target in (private, fake / "worktrees" / "w"):
        (project / ".git").write_text(f"gitdir: {target}\n")
        with standard_tools(project, ALLOWED) as box:
            assert KEY not in run(box, f"git config -l; cat {private}/config")["output"]


def test_a_submodule_s_repository_can_be_read(project: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    _git("init", "-q", str(whole))
    _git("-C", str(project / "sub"), "commit", "-q", "--allow-empty", "-m", "inner")
    _git("-C", str(whole), "-c", "protocol.file.allow=always", "submodule", "add", str(project / "sub"), "m")
    with standard_tools(whole / "m", ALLOWED) as box:
        assert run(box, "git log --format=%s")["output"] == "inner\n"


def test_a_virtual_environment_shows_an_installation_of_python_and_nothing_beside_it(
    project: Path, tmp_path: Path, hermetic: Path
) -> None:
    local = hermetic / ".local"
    (local / "share").mkdir(parents=True)
    (local / "share" / "auth.json").write_text(KEY)
    (local / "bin").mkdir()
    environment = project / ".venv"
    (environment / "bin").mkdir(parents=True)
    (environment / "pyvenv.cfg").write_text(f"home = {local}/bin\n")
    (local / "bin" / "python3").write_text("#!/bin/sh\n")
    (environment / "bin" / "python").symlink_to(local / "bin" / "python3")
    path = f"{environment}/bin:{local}/bin:/usr/bin:/bin"
    (local / "lib" / "python3.11").mkdir(parents=True)
    assert toolchains(project, "/usr/bin:/bin") == ()
    (local / "lib" / "python3.11" / "os.py").touch()
    shown = toolchains(project, "/usr/bin:/bin")
    assert shown == (local / "bin", local / "lib")
    assert toolchains(project, path) == shown
    with standard_tools(project, ALLOWED, environ={**os.environ, "PATH": path}) as box:
        assert KEY not in run(box, f"cat {local}/share/auth.json; ls {local}")["output"]
    (environment / "bin" / "python").unlink()
    (environment / "bin").rmdir()
    environment.joinpath("bin").symlink_to(hermetic / "private")
    assert toolchains(project, f"{environment}/bin") == ()


def test_no_bubblewrap_is_taken_from_the_project(project: Path) -> None:
    planted = project / "bin" / "bwrap"
    planted.parent.mkdir()
    planted.write_text(f"#!/bin/sh\ntouch {project}/ran\n")
    planted.chmod(0o755)
    with standard_tools(project, ALLOWED, environ={"PATH": f"{planted.parent}:{os.environ['PATH']}"}) as box:
        assert run(box, "echo fine")["output"] == "fine\n" and "sandbox" in box.describe()
    assert not (project / "ran").exists()


@pytest.mark.parametrize("linked", ["", "in", "out"])
def test_a_storage_root_in_the_project_is_closed_and_keeps_commands_from_running(
    project: Path, tmp_path: Path, linked: str
) -> None:
    root = project / ".uwf"
    if linked == "in":
        (tmp_path / "link").symlink_to(project / ".uwf")
        root = tmp_path / "link"
    elif linked == "out":
        (tmp_path / "elsewhere").mkdir()
        root.symlink_to(tmp_path / "elsewhere")
    for made in (False, True):
        if made and linked != "out":
            (project / ".uwf").mkdir()
        with standard_tools(project, ALLOWED, root=root, store=root / "store.git") as box:
            refused = box.call("run_command", {"command": "true"}).value["error"]
            assert refused["code"] == "denied" and "UWF_STORAGE_ROOT" in refused["message"]
            for path in (".uwf/.env", ".UWF/config.yaml", "src/../.uwf/new/x"):
                assert (
                    box.call("write_file", {"path": path, "content": "x"}).value["error"]["code"] == "denied"
                )
    with standard_tools(project, ALLOWED, root=project, store=tmp_path / "s") as box:
        assert box.call("write_file", {"path": ".env", "content": "x"}).value["error"]["code"] == "denied"
        assert box.call("write_file", {"path": "src/x", "content": "x"}).ok
        assert not box.call("run_command", {"command": "true"}).ok


def test_a_project_s_own_store_keeps_no_command_from_running(project: Path, tmp_path: Path) -> None:
    _git("init", "-q", str(project))
    with standard_tools(project, ALLOWED, root=tmp_path / "root", store=project / ".git") as box:
        assert run(box, "echo fine; touch .git/x; true")["output"].startswith("fine\n")
    with standard_tools(project, ALLOWED, root=tmp_path / "root", store=project / "sub" / ".git") as box:
        assert not box.call("run_command", {"command": "true"}).ok


def test_files_do_not_make_a_bare_repository_of_a_folder(box: Toolbox, project: Path) -> None:
    for path in ("src/objects/x", "src/refs/x", "src/config"):
        assert box.call("write_file", {"path": path, "content": "x"}).ok
    refused = box.call("write_file", {"path": "src/HEAD", "content": "x"}).value["error"]
    assert refused["code"] == "denied"
    patch = "*** Begin Patch\n*** Add File: new/HEAD\n+x\n*** Add File: new/commondir\n+x\n*** End Patch\n"
    assert not box.call("apply_patch", {"patch": patch}).ok
    assert not (project / "new").exists() and not (project / "src" / "HEAD").exists()


def test_a_project_too_large_to_look_through_runs_no_command(
    box: Toolbox, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = run(
        box, f"{sys.executable or 'python3'} -V; mkdir -p src/{'d/' * 120}; {STORE.format('src/.git')}"
    )
    assert "deep" in deep["taken"] and "src/.git is now" in deep["taken"]
    refused = box.call("run_command", {"command": "true"}).value["error"]
    assert refused["code"] == "too_large"
