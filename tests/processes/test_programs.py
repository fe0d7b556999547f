"""No program that uwf starts by itself is taken from where an agent may have put one."""

from __future__ import annotations

import ast
import os
import subprocess
from pathlib import Path

import pytest
from bundle_files import DEBATE
from cli_samples import PAIR, write
from conftest import REPOSITORY, Uwf

from uwf_git.sandbox.programs import find_program, trusted_path

LOOKED_UP = {
    "uwf_git/sandbox/child.py",  # commands that others have chosen
    "uwf_git/sandbox/programs.py",
    "uwf_git/ext/agents/roster.py",  # agents of the user
    "uwf_git/ext/agents/cli/calls.py",
    "uwf_git/ext/builtin/tools/mcp_client.py",  # servers of the user
    "uwf_git/sandbox/bubblewrap.py",  # a shell that runs in the sandbox
    "uwf_git/ext/code/confinement.py",  # of the system
    "uwf_git/ext/code/describe.py",  # a Node that config.yaml names by its path
    "uwf_git/config/resolve.py",  # agents of the user
    "uwf_git/engine/kit/agent.py",  # agents of the user, which may not be installed
    "uwf_git/api/doctor.py",
    "uwf_git/ext/mcp/command.py",  # what is printed for a client's configuration
    "cli/uwf_cli/commands/thread.py",
}
"""Modules that may look up a program on the PATH as it is, and what for."""


def plant(folder: Path, *names: str) -> Path:
    """Programs in a folder that leave a file `ran-NAME` in it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        planted = folder / name
        planted.write_text(f"#!/bin/sh\ntouch {folder}/ran-{name}\nexit 1\n")
        planted.chmod(0o755)
    return folder


def ran(folder: Path) -> list[str]:
    return [path.name for path in folder.glob("ran-*")]


@pytest.fixture
def project(monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with programs on PATH, of which the working folder is a part."""
    folder = Path("project").absolute()
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    planted = plant(
        folder / ".venv/bin", "git", "bwrap", "node", "ssh", "ssh-keygen", "temporal", "lsof", "bash"
    )
    (folder / "deep").mkdir()
    monkeypatch.chdir(folder / "deep")
    monkeypatch.setenv("PATH", f"{planted}{os.pathsep}{os.environ['PATH']}")
    return folder


def test_a_program_in_the_project_of_the_working_folder_or_of_another_is_none(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_program("git") not in (None, str(project / ".venv/bin/git"))
    assert find_program("git", environ={"PATH": str(project / ".venv/bin")}) is None
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert find_program("git") == str(project / ".venv/bin/git")
    assert find_program("git", project / "deep") != str(project / ".venv/bin/git")
    (elsewhere / "link").symlink_to(project / ".venv/bin")
    (tmp_path / "outside").symlink_to(elsewhere)
    for entry in ("", ".", "link", str(elsewhere), str(elsewhere / "link"), str(tmp_path / "outside")):
        assert trusted_path(environ={"PATH": entry}) == "", entry


def test_the_home_folder_is_no_project(hermetic: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = plant(hermetic / ".local/bin", "git")
    subprocess.run(["git", "init", "-q", str(hermetic)], check=True)
    for folder in (hermetic, hermetic / "work", hermetic.parent, Path("/")):
        monkeypatch.chdir(folder)
        assert find_program("git", environ={"PATH": str(own)}) == str(own / "git"), folder


def test_no_command_starts_a_program_of_the_project(uwf: Uwf, project: Path, tmp_path: Path) -> None:
    git = ["git", "init", "-q", "--bare", "--object-format=sha1", str(tmp_path / "shared.git")]
    subprocess.run(git, env={**os.environ, "PATH": os.defpath}, check=True)
    put = uwf("workflow", "put", write("pair.yaml", PAIR)).json["hash"]
    thread = uwf("thread", "start", put, "-p", "x").json["thread"]
    uwf("remote", "add", "origin", tmp_path / "shared.git")
    for command in (
        ["push"],
        ["pull"],
        ["gc"],
        ["grep", "x"],
        ["doctor"],
        ["publish", "thread", thread],
        ["workflow", "validate", write("debate.mjs", DEBATE)],
        ["fleet", "run", thread, "--agent", "uwf-rehearse"],
    ):
        uwf(*command, check=None, timeout=100)
        assert ran(project / ".venv/bin") == [], command
    uwf("remote", "add", "far", "ssh://127.0.0.1:1/x.git")
    uwf("pull", "far", check=8)
    assert ran(project / ".venv/bin") == []


@pytest.mark.needs("bwrap", "node", "ssh-keygen")
def test_a_step_of_code_and_a_signature_start_no_program_of_the_project(
    uwf: Uwf, project: Path, hermetic: Path
) -> None:
    put = uwf("workflow", "put", write("debate.mjs", DEBATE)).json["hash"]
    uwf("run", put, "-p", "x", "--agent", "uwf-rehearse", check=None, timeout=100)
    with (hermetic / ".gitconfig").open("a") as file:
        file.write(
            f"[commit]\n\tgpgSign = true\n[gpg]\n\tformat = ssh\n[user]\n\tsigningKey = {hermetic}/key.pub\n"
        )
    thread = uwf("thread", "start", write("pair.yaml", PAIR), "-p", "x", check=None)
    assert thread.code != 0 or thread.json["thread"]
    assert ran(project / ".venv/bin") == []


def test_a_repository_or_a_file_inside_of_a_project_does_not_end_it(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "deep/.git").touch()
    assert str(project) not in trusted_path()
    subprocess.run(["git", "init", "-q", "deep/er"], cwd=project, env={"PATH": os.defpath}, check=True)
    monkeypatch.chdir(project / "deep/er")
    assert find_program("git") not in (None, str(project / ".venv/bin/git"))


def test_the_main_checkout_of_a_worktree_is_a_project_too(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner, tree = project / "inner", tmp_path / "tree"
    for call in (
        ["init", "-q", str(inner)],
        ["-C", str(inner), "commit", "-q", "--allow-empty", "-m", "x"],
        ["-C", str(inner), "worktree", "add", "-q", str(tree)],
    ):
        subprocess.run(["git", *call], env={**os.environ, "PATH": os.defpath}, check=True)
    plant(inner / "bin", "git")
    (tree / "deep").mkdir()
    monkeypatch.chdir(tree / "deep")
    for entry in (tree / "bin", inner / "bin", project / ".venv/bin"):
        assert trusted_path(environ={"PATH": str(entry)}) == "", entry
    for text in ("gitdir: \0", "gitdir:", "x" * 100_000, "gitdir: ."):
        (tree / "deep/.git").write_text(text)
        assert trusted_path(environ={"PATH": str(inner / "bin")}) == "", text


def test_no_program_is_taken_by_a_link_that_leads_into_or_over_the_project(
    project: Path, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    real = find_program("git")
    assert real is not None
    (project / "links").mkdir()
    (project / "links/git").symlink_to(real)
    (project / "folder").symlink_to(Path(real).parent)
    (tmp_path / "over").symlink_to(project / "folder")
    assert find_program("git", environ={"PATH": str(tmp_path / "over")}) is None
    for target in (
        project / ".venv/bin/git",
        project / "links/git",
        Path(os.path.relpath(project / "links/git", own)),
    ):
        (own / "git").symlink_to(target)
        assert find_program("git", environ={"PATH": f"{own}:{os.defpath}"}) not in (None, str(own / "git"))
        assert trusted_path(environ={"PATH": f"{own}:/usr/bin"}) == "/usr/bin", target
        (own / "git").unlink()
    (own / "ssh").symlink_to(project / ".venv/bin/ssh")
    assert trusted_path(environ={"PATH": f"{own}:/usr/bin"}) == "/usr/bin", "git looks for ssh there"
    (own / "ssh").unlink()
    (own / "uwf").symlink_to(project / ".venv/bin/uwf")
    plant(own, "git")
    assert find_program("git", environ={"PATH": str(own)}) == str(own / "git")
    assert trusted_path(environ={"PATH": str(own)}) == str(own), "a link to the project's uwf may be there"


def test_no_program_is_taken_from_the_folder_of_a_thread(
    uwf: Uwf, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    git = ["git", "init", "-q", "--bare", str(tmp_path / "shared.git")]
    subprocess.run(git, env={**os.environ, "PATH": os.defpath}, check=True)
    uwf("remote", "add", "origin", tmp_path / "shared.git", env={"PATH": os.defpath})
    put = uwf("workflow", "put", write("pair.yaml", PAIR)).json["hash"]
    play = ("--agent", "uwf-rehearse", "--remote", "origin")
    first = uwf("thread", "start", put, "-p", "x", env={"PATH": os.defpath}).json["thread"]
    uwf("thread", "step", first, *play, "--cwd", project / "deep", check=None, timeout=100)
    assert ran(project / ".venv/bin") == [], "the folder that a call names counts in that call"
    second = uwf("thread", "start", put, "-p", "x", "--cwd", project / "deep").json["thread"]
    for command in (["thread", "step", second, *play], ["push"], ["gc"], ["doctor"], ["grep", "x"]):
        uwf(*command, check=None, timeout=100)
        assert ran(project / ".venv/bin") == [], command


def test_git_that_is_only_in_the_project_is_told_as_missing(uwf: Uwf, project: Path) -> None:
    uwf("init")
    refused = uwf("push", "x", env={"PATH": str(project / ".venv/bin")}, check=None).error
    assert refused["hint"] and ran(project / ".venv/bin") == []


def test_no_other_module_looks_up_or_starts_a_program_by_its_bare_name() -> None:
    for top in ("uwf_git", "cli"):
        for path in sorted((REPOSITORY / top).rglob("*.py")):
            name = str(path.relative_to(REPOSITORY))
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if not isinstance(node, ast.Call):
                    continue
                called = ast.unparse(node.func)
                assert called != "shutil.which" or name in LOOKED_UP, (
                    f"{name}:{node.lineno}: use find_program"
                )
                first = node.args[0] if node.args else None
                bare = (
                    isinstance(first, ast.List)
                    and first.elts
                    and isinstance(first.elts[0], ast.Constant)
                    and "/" not in str(first.elts[0].value)
                )
                started = called.rpartition(".")[2] in (
                    "run",
                    "Popen",
                    "spawn",
                    "run_command",
                    "check_output",
                )
                assert not (bare and started), f"{name}:{node.lineno}: use find_program"
