"""The files by which uwf is run as a service: what linters and systemd say of them, and what they must not lack."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import Uwf
from packaging.requirements import Requirement
from programs import program

from uwf_git.ext.fleet import messages
from uwf_git.ext.fleet.client import attribute_types

REPOSITORY = Path(__file__).parent.parent.parent
DEPLOY = REPOSITORY / "uwf_git/ext/fleet/deploy"
UNITS = {"uwf-web.service": 15, "uwf-fleet-worker@.service": 35}
"""The units, and tenths of systemd's exposure that they may have at most, of 100."""


def services() -> dict[str, Any]:
    value = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
    return dict(value["services"])


def test_hadolint_finds_nothing_in_the_image() -> None:
    hadolint = str(Path(sys.executable).with_name("hadolint"))
    done = subprocess.run(
        [hadolint, "--format", "json", str(DEPLOY / "Containerfile")], capture_output=True, check=False
    )
    assert json.loads(done.stdout) == []


def test_what_the_image_is_built_of_is_there_and_nothing_else() -> None:
    lines = (REPOSITORY / ".containerignore").read_text("utf-8").splitlines()
    taken = [line.removeprefix("!") for line in lines if line.startswith("!")]
    assert lines[0] == "*" and all((REPOSITORY / name).exists() for name in taken)
    assert {"LICENSE", "README.md", "pyproject.toml", "hatch_build.py", "uwf_git", "cli"} <= set(taken)


@pytest.mark.parametrize(
    ("arguments", "installs"),
    [
        ({}, "uwf-git[fleet,web]"),
        ({"VERSION": "0.2.0"}, "uwf-git[fleet,web]==0.2.0"),
        ({"UWF": "."}, ".[web,fleet]"),
    ],
)
def test_the_image_installs_the_newest_a_version_or_a_checkout(
    arguments: dict[str, str], installs: str
) -> None:
    """As a shell and pip read its file."""
    text = (DEPLOY / "Containerfile").read_text("utf-8")
    values = dict(re.findall(r"^ARG (UWF|VERSION)=(.*)$", text, re.MULTILINE)) | arguments
    word = re.findall(r"pip install .* (\S+)$", text, re.MULTILINE)[0]
    shell = subprocess.run(
        ["sh", "-c", f"printf %s {word}"], env=values, capture_output=True, text=True, check=True
    )
    assert shell.stdout == installs or str(Requirement(shell.stdout)) == installs
    assert set(arguments) <= set(re.findall(r"--build-arg (\w+)=", text))


def test_secrets_beside_the_files_are_not_sent_to_the_build(uwf: Uwf, tmp_path: Path) -> None:
    uwf("fleet", "files", "service")
    kept_out = Path("service/.dockerignore").read_text("utf-8").splitlines()
    mounted = yaml.safe_load(Path("service/compose.yaml").read_text("utf-8"))["secrets"].values()
    assert {Path(secret["file"]).parts[0] for secret in mounted} <= set(kept_out)


def test_services_have_no_rights_and_secrets_in_files() -> None:
    text = (DEPLOY / "compose.yaml").read_text("utf-8")
    for name, service in services().items():
        assert service["read_only"] and service["cap_drop"] == ["ALL"] and service["init"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert "healthcheck" in service and "privileged" not in service and "user" not in service, name
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ())), name
    assert "ports" not in services()["temporal"]
    assert not re.search(r"(?i)(token|key|secret|password)\w*: *[\"']?[0-9a-f]{8}", text)


def test_the_server_of_the_services_has_the_search_attributes() -> None:
    named = [word.removeprefix("--search-attribute=") for word in services()["temporal"]["command"]]
    assert named[:-1] == [f"{name}={kind}" for name, kind in attribute_types()] and messages.ATTRIBUTES


@pytest.mark.needs("systemd-analyze")
@pytest.mark.parametrize("name", UNITS)
def test_systemd_accepts_a_unit_and_finds_little_exposed(name: str, tmp_path: Path) -> None:
    unit = tmp_path / name.replace("@", "@1")
    unit.write_text((DEPLOY / name).read_text("utf-8").replace("/opt/uwf/bin/uwf", "/bin/true"))
    analyze = program("systemd-analyze")
    verified = subprocess.run([analyze, "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (verified.returncode, verified.stderr) == (0, "")
    call = [analyze, "security", "--offline=true", f"--threshold={UNITS[name]}", "--no-pager", str(unit)]
    exposed = subprocess.run(call, capture_output=True, text=True, check=False)
    assert exposed.returncode == 0, exposed.stdout[-400:] + exposed.stderr
