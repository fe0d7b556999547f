"""The workflows to start from: what `uwf init --template` writes is whole, and nothing else is touched."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import uwf_cli
from commands import git
from conftest import EXAMPLES, Uwf

from uwf_git.config.read import load_config
from uwf_git.format import yaml12

FOLDER = Path(uwf_cli.__file__).parent / "templates"
NAMES = sorted(path.name for path in FOLDER.iterdir())


def test_every_template_is_listed_with_what_it_does(uwf: Uwf) -> None:
    listed = uwf("templates").json
    assert [each["template"] for each in listed] == NAMES and all(each["about"] for each in listed)
    assert re.findall(r"^\w+", uwf("templates", "--format", "text").out, flags=re.MULTILINE) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_template_is_written_checked_rehearsed_and_runs_by_its_name(
    uwf: Uwf, root: Path, name: str
) -> None:
    value = uwf("init", "--template", name).json
    source, readme = map(Path, value["files"])
    assert (value["template"], source, readme) == (
        name,
        Path.cwd() / f".uwf/workflows/{name}.yaml",
        Path.cwd() / f".uwf/workflows/{name}.md",
    )
    assert value["store"] == str(root / "store.git") and Path(value["store"]).is_dir()
    assert uwf("workflow", "validate", source).json["findings"] == []
    assert uwf("workflow", "rehearse", source).json["problems"] == []
    git("init", "-q", ".")
    git("commit", "-q", "--allow-empty", "-m", "Begin")
    ran = uwf("run", name, "-p", "a task", "--max-steps", "40", "--agent", "uwf-rehearse")
    assert ran.lines[-1]["status"] == "completed"


@pytest.mark.parametrize("name", NAMES)
def test_the_settings_of_a_template_name_an_agent_for_each_role(uwf: Uwf, root: Path, name: str) -> None:
    readme = (FOLDER / name / "README.md").read_text(encoding="utf-8")
    (settings,) = re.findall(r"^```yaml\n(.*?)^```", readme, flags=re.MULTILINE | re.DOTALL)
    root.mkdir()
    (root / "config.yaml").write_text(settings, encoding="utf-8")
    source = yaml12.load((FOLDER / name / f"{name}.yaml").read_bytes(), name).data
    for_agents = [role for role, each in source["roles"].items() if not each.get("human")]
    assert [*load_config(root).agent_overrides[name]] == for_agents
    table = re.findall(r"^\| `(\w+)` \|", readme, flags=re.MULTILINE)
    assert table == [*source["roles"]]
    uwf("workflow", "put", FOLDER / name / f"{name}.yaml")
    assert "config.yaml" not in uwf("doctor", check=None).err


def test_a_failed_check_ends_a_template_with_its_own_exit_status(uwf: Uwf) -> None:
    git("init", "-q", ".")
    git("commit", "-q", "--allow-empty", "-m", "Begin")
    uwf("init", "--template", "release")
    replies = Path("replies.yaml")
    replies.write_text(
        "- { role: preparer, output: { status: prepared, version: 1.2.0, changelog: Faster. } }\n"
        "- { role: tests, output: { status: failed, report: 3 of 40 fail } }\n"
    )
    error = uwf(
        "run", "release", "-p", "x", "--agent", f"uwf-rehearse --script {replies.absolute()}", check=10
    )
    assert "tests: 3 of 40 fail" in error.error["message"]


def test_a_file_that_is_there_is_never_overwritten(uwf: Uwf, root: Path) -> None:
    mine = Path(".uwf/workflows/bugfix.md")
    mine.parent.mkdir(parents=True)
    mine.write_text("my own words\n")
    error = uwf("init", "--template", "bugfix", check=1).error
    assert str(mine.absolute()) in error["message"]
    assert mine.read_text() == "my own words\n" and not Path(".uwf/workflows/bugfix.yaml").exists()
    assert not root.exists(), "nothing was begun"
    mine.unlink()
    mine.symlink_to("nowhere")
    assert uwf("init", "--template", "bugfix", check=1).error["code"] == "invalid"
    mine.unlink()
    first = uwf("init", "--template", "bugfix").json
    assert uwf("init", "--template", "bugfix").json == first


def test_a_template_that_was_not_written_is_named_by_who_runs_it(uwf: Uwf) -> None:
    hint = uwf("run", "bugfix", "-p", "x", check=3).error["hint"]
    uwf(*hint.partition(": uwf ")[2].split())
    assert Path(".uwf/workflows/bugfix.yaml").exists()


def test_a_template_that_cannot_be_written_or_found_is_one_line(uwf: Uwf) -> None:
    assert "bugfix" in uwf("init", "--template", "bugfx", check=2).error["message"]
    Path(".uwf").write_text("")
    assert "cannot write" in uwf("init", "--template", "bugfix", check=1).error["message"]


def test_a_template_in_a_subfolder_of_a_project_is_found_there(uwf: Uwf) -> None:
    git("init", "-q")
    uwf("init", "--here", "--template", "triage", env={"UWF_STORAGE_ROOT": ""})
    Path("below").mkdir()
    assert uwf("workflow", "show", "triage", cwd=Path("below")).json["name"] == "triage"


def test_a_full_disk_leaves_no_half_of_a_template(uwf: Uwf) -> None:
    uwf("init")
    limited = (
        f"ulimit -f 1; PYTHONDONTWRITEBYTECODE=1 exec {sys.executable} -m uwf_cli.main init --template bugfix"
    )
    done = subprocess.run(["bash", "-c", limited], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "cannot write" in done.stderr, done.stderr
    assert not Path(".uwf/workflows/bugfix.yaml").exists()
    uwf("init", "--template", "bugfix")


@pytest.mark.parametrize("name", ["bugfix", "release"])
def test_commands_of_a_template_work_in_a_worktree(uwf: Uwf, name: str) -> None:
    git("init", "-q", "-b", "main", ".")
    git("commit", "-q", "--allow-empty", "-m", "Begin")
    uwf("init", "--template", name)
    agent = "uwf-exec sh -c 'echo x > made.txt; echo status: prepared; echo status: reproduced'"
    uwf("run", name, "-p", "x", "--max-steps", "1", "--agent", agent, check=None)
    assert not Path("made.txt").exists()
    assert git("for-each-ref", "refs/uwf/work/") and git("branch", "--format=%(refname:short)") == "main"


def test_a_commit_that_git_refused_fails_the_development(uwf: Uwf) -> None:
    replies = Path("replies.yaml")
    phases = "[{ id: one, title: One, details: x }]"
    replies.write_text(
        f"- {{ role: planner, output: {{ phases: {phases} }} }}\n"
        "- { role: coder, output: { completedPhase: one, summary: x, filesChanged: [] } }\n"
        "- { role: reviewer, output: { status: approved, issues: [] } }\n"
        "- { role: tester, output: { status: passed, report: fine } }\n"
        "- { role: committer, output: { status: failed, error: git refuses } }\n"
    )
    agent = f"uwf-rehearse --script {replies.absolute()}"
    source = FOLDER / "develop" / "develop.yaml"
    failed = uwf("run", source, "-p", "x", "--agent", agent, check=10).error
    assert "not committed: git refuses" in failed["message"]


def test_the_example_is_the_template(uwf: Uwf) -> None:
    example = EXAMPLES / "templates" / "develop.yaml"
    assert example.resolve() == (FOLDER / "develop" / "develop.yaml").resolve()
