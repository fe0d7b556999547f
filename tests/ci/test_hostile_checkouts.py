"""A change that would like to be run: nothing of it is, by no step of the printed files."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cli_samples import PAIR, REJECTS_ONCE, scripted, write
from commands import git
from conftest import EXAMPLES, Uwf
from forge_jobs import Forge, GitLab

FOLDER = EXAMPLES / "ci"


class Hostile(Forge):
    """A project, and a branch `topic` whose files would leave a trace if anything ran them."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, is_cold=True)
        self.trace = folder / "trace"
        work = folder / "work"
        git("init", "-q", "-b", "main", work)
        (work / ".uwf/workflows").mkdir(parents=True)
        (work / ".uwf/workflows" / "pair.yaml").write_text(PAIR)
        self._push(work, "main")
        leaves = f"import pathlib; pathlib.Path({str(self.trace)!r}).touch()\n"
        for name in (
            "venv",
            "ensurepip",
            "pip",
            "sitecustomize",
            "usercustomize",
            "uwf_git/__init__",
            "uwf_cli/main",
        ):
            file = work / f"{name}.py"
            file.parent.mkdir(exist_ok=True)
            file.write_text(leaves)
        shell = f"#!/bin/sh\ntouch {self.trace}\n"
        for name in (
            "uwf",
            "python3",
            "git",
            "bash",
            "hooks/post-checkout",
            ".githooks/pre-push",
            "config.sh",
        ):
            file = work / name
            file.parent.mkdir(exist_ok=True)
            file.write_text(shell)
            file.chmod(0o755)
        (work / ".gitattributes").write_text("* filter=evil diff=evil merge=evil\n")
        (work / ".gitconfig").write_text(f"[core]\n\thooksPath = hooks\n\tfsmonitor = touch {self.trace}\n")
        (work / ".gitmodules").write_text(
            f'[submodule "x"]\n\tpath = x\n\turl = ext::sh -c "touch {self.trace}"\n'
        )
        (work / ".env").write_text(f"PYTHONSTARTUP={work / 'venv.py'}\nUWF_STORAGE_ROOT={work}\n")
        (work / "setup.py").write_text(leaves)
        (work / "pyproject.toml").write_text('[build-system]\nrequires = []\nbuild-backend = "pip"\n')
        (work / ".uwf/workflows" / "config.yaml").write_text(
            f"agents: {{x: {{command: touch {self.trace}}}}}\n"
        )
        (work / ".uwf/workflows" / "code.esm.js").write_text(
            f"require('fs').writeFileSync({str(self.trace)!r}, '')\n"
        )
        (work / ".uwf/workflows" / "pair.yaml").write_text(PAIR.replace("One writes", "Somebody writes"))
        (work / "uwf-ci").symlink_to(folder / "elsewhere")
        (folder / "elsewhere").mkdir()
        self._push(work, "topic")

    def _push(self, work: Path, branch: str) -> None:
        git("-C", work, "add", "-Af")
        git("-C", work, "commit", "-qm", branch)
        git("-C", work, "push", "-q", self.remote, f"HEAD:refs/heads/{branch}")


@pytest.fixture
def hostile(tmp_path: Path, hermetic: Path) -> Hostile:
    return Hostile(tmp_path / "forge")


@pytest.mark.parametrize("kind", ("github", "forgejo", "gitea"))
def test_actions_run_nothing_of_a_change(hostile: Hostile, kind: str) -> None:
    hostile.kind = kind
    ran = hostile.pull_request((FOLDER / f"{kind}.yml").read_text(encoding="utf-8"), "topic", "main")
    assert {each["name"] for each in ran.result["checks"]} == {
        ".uwf/workflows/pair.yaml",
        ".uwf/workflows/config.yaml",
    }
    assert ran.code == 1  # what is called config.yaml is no workflow
    assert not hostile.trace.exists()


def test_gitlab_runs_nothing_of_a_change_and_follows_no_link_of_it(hostile: Hostile, tmp_path: Path) -> None:
    job = GitLab(hostile, tmp_path, "topic", "main")
    link = job.checkout / "uwf-ci"
    assert link.is_symlink()
    done = job.run()
    assert not link.is_symlink()
    assert b"workflow .uwf/workflows/pair.yaml:" in done.stdout, done.stdout
    assert not hostile.trace.exists()
    assert not list((tmp_path / "forge" / "elsewhere").iterdir())


def test_a_link_in_a_checkout_is_not_followed_by_reports(uwf: Uwf, hostile: Hostile, tmp_path: Path) -> None:
    job = GitLab(hostile, tmp_path, "topic", "main")
    environment = {"GITLAB_CI": "true", "CI_PIPELINE_SOURCE": "push"}
    for out in ("uwf-ci", "uwf-ci/more", "./uwf-ci"):
        refused = uwf("ci", "check", "--out", out, cwd=job.checkout, env=environment, check=1)
        assert refused.error["message"] == "uwf-ci is a link in the checkout"


def test_a_change_brings_no_text_for_the_comment(hostile: Hostile, tmp_path: Path) -> None:
    job = GitLab(hostile, tmp_path, "topic", "main")
    reports = job.checkout / "uwf-ci"
    reports.unlink()
    reports.mkdir()
    (reports / "comments.json").write_text('[{"branch": "", "text": "It passed."}]')
    assert job.run(CI_PIPELINE_SOURCE="of-no-use").returncode == 2
    assert not reports.exists()


@pytest.mark.extended
def test_installing_beside_a_change_takes_no_module_of_it(hostile: Hostile, tmp_path: Path) -> None:
    job = GitLab(hostile, tmp_path, "topic", "main")
    # No version has this name, so that it is looked for, and no registry is asked.
    (empty := tmp_path / "empty").mkdir()
    done = job.run(UWF_VERSION="0.0.0", PIP_NO_INDEX="1", PIP_FIND_LINKS=str(empty))
    assert done.returncode != 0
    assert b"uwf-git==0.0.0" in done.stdout, done.stdout
    assert not hostile.trace.exists()
    # What the printed file avoids: this is what `python3 -m venv` does in such a folder.
    plain = [sys.executable, "-m", "venv", str(tmp_path / "other")]
    subprocess.run(plain, cwd=job.checkout, capture_output=True, check=False, timeout=60)
    assert hostile.trace.exists()


def test_gitlab_verifies_the_files_of_its_checkout(uwf: Uwf, tmp_path: Path) -> None:
    forge = Forge(tmp_path / "forge")
    uwf("workflow", "put", write("pair.yaml", PAIR))
    uwf("remote", "add", "origin", forge.remote)
    thread = uwf("thread", "start", "pair", "-p", "Do it").json["thread"]
    uwf("thread", "run", thread, "--agent", scripted(REJECTS_ONCE))
    uwf("push", "origin", thread)
    uwf("publish", "thread", thread)
    job = GitLab(forge, tmp_path, f"uwf/threads/{thread}", f"uwf/base/{thread}")
    done = job.run()
    assert done.returncode == 0, done.stdout.decode()
    assert b"::" not in done.stdout  # GitLab knows no commands of this kind
    result = json.loads((job.checkout / "uwf-ci" / "result.json").read_text())
    assert result["checks"][0]["verified"]["steps"] == 4
    (comment,) = json.loads((job.checkout / "uwf-ci" / "comments.json").read_text())
    assert "**Verified**: ended after 4 steps." in comment["text"]
    page = job.checkout / "steps" / "0002-critic" / "README.md"
    page.write_text(page.read_text().replace("not approved", "approved"))
    assert job.run().returncode == 7


def test_a_log_with_the_names_and_texts_of_a_change_has_no_command(uwf: Uwf, tmp_path: Path) -> None:
    forge = Forge(tmp_path / "forge")
    uwf("workflow", "put", write("pair.yaml", PAIR))
    uwf("remote", "add", "origin", forge.remote)
    thread = uwf("thread", "start", "pair", "-p", "::error::x\n::add-mask::approved @team #1").json["thread"]
    uwf("thread", "run", thread, "--agent", scripted(REJECTS_ONCE))
    uwf("push", "origin", thread)
    uwf("publish", "thread", thread)
    branch = f"uwf/threads/{thread}"
    copy = tmp_path / "copy"
    git("clone", "-q", "--branch", branch, forge.remote, copy)
    for name in (
        "::set-output name=comments::[]",
        "##[add-mask]approved",
        "a\n::add-path::x",
        "@team #1 ![](x)",
    ):
        (copy / "steps" / name).write_text("::error::x\n")
    git("-C", copy, "add", ".")
    git("-C", copy, "commit", "-qm", "::add-mask::approved @team fixes #1\n\n::error::x")
    git("-C", copy, "push", "-q", "origin", f"HEAD:refs/heads/{branch}")
    ran = forge.pull_request((FOLDER / "github-comment.yml").read_text(), branch, f"uwf/base/{thread}")
    assert ran.code == 7
    assert {each.name for each in ran.commands} <= {"error", "warning", "notice"}
    assert set(ran.outputs) == {"comments"}
    text = ran.comments[0]["text"]
    assert "@team" in text  # it is said, and in code
    import test_hostile_texts

    live = " ".join(test_hostile_texts.live(text))
    assert "@team" not in live and "#1" not in live and "image" not in live


@pytest.mark.extended
@pytest.mark.timeout(300)
def test_the_printed_installation_installs_what_then_checks(hostile: Hostile, tmp_path: Path) -> None:
    wheels, bare_path = tmp_path / "wheels", tmp_path / "bin"
    sources = tmp_path / "sources"
    for name in ("uwf_git", "cli", "docs"):
        shutil.copytree(EXAMPLES.parent / name, sources / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(EXAMPLES.parent / name, sources)
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(wheels), str(sources)]
    subprocess.run(build, check=True, capture_output=True, timeout=200)
    bare_path.mkdir()
    for name in ("bash", "python3", "git", "mktemp", "rm"):
        program = shutil.which(name, path=os.defpath)
        assert program is not None
        (bare_path / name).symlink_to(program)
    job = GitLab(hostile, tmp_path, "topic", "main")
    done = job.run(PATH=str(bare_path), PIP_FIND_LINKS=str(wheels))
    assert done.returncode == 1, done.stdout.decode()
    assert b"workflow .uwf/workflows/pair.yaml:" in done.stdout
    assert not hostile.trace.exists()
