"""How an extra is installed: by a command that works for the way in which uwf-git itself was installed."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from conftest import REPOSITORY


@pytest.mark.parametrize(
    ("origin", "arguments"),
    [
        (None, ["uwf-git[fleet]"]),
        ({"url": "file:///src/a%20b", "dir_info": {}}, ["/src/a b[fleet]"]),
        ({"url": "file:///src/uwf", "dir_info": {"editable": True}}, ["-e", "/src/uwf[fleet]"]),
        (
            {"url": "https://git.example/uwf", "vcs_info": {"vcs": "git", "commit_id": "ab12"}},
            ["uwf-git[fleet] @ git+https://git.example/uwf@ab12"],
        ),
        (
            {"url": "file:///tmp/uwf_git-0.2.0-py3-none-any.whl", "archive_info": {}},
            ["uwf-git[fleet] @ file:///tmp/uwf_git-0.2.0-py3-none-any.whl"],
        ),
    ],
)
def test_an_extra_comes_from_where_the_package_came_from(
    tmp_path: Path, origin: Any, arguments: list[str]
) -> None:
    installed = tmp_path / "uwf_git-0.2.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: uwf-git\nVersion: 0.2.0\n")
    if origin is not None:
        (installed / "direct_url.json").write_text(json.dumps(origin))
    (tmp_path / "pip.py").touch()
    told = _hint(tmp_path)
    assert shlex.split(told) == [sys.executable, "-m", "pip", "install", *arguments]


def test_the_guide_names_every_extra_that_users_may_want() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = project["optional-dependencies"].keys() - {"bench", "dev", "docs", "fuzz", "interop"}
    guide = (REPOSITORY / "docs/guides/install.md").read_text("utf-8")
    assert set(re.findall(r"^\| `([a-z]+)` \|", guide, re.MULTILINE)) == wanted


UV_RECEIPT = """\
[tool]
requirements = [
    { name = "uwf-git", extras = ["web"], specifier = "==0.2.0" },
    { name = "uwf-clock", specifier = ">=1" },
]
[tool.options]
index = [{ url = "https://packages.example/simple", default = true }]
find-links = ["file:///wheels"]
"""
PIPX = {"package_or_url": "uwf-git[web]", "pip_args": ["--no-index", "--find-links", "/my wheels"]}


@pytest.mark.parametrize(
    ("file", "text", "arguments"),
    [
        (
            "uv-receipt.toml",
            UV_RECEIPT,
            "uv tool install --default-index https://packages.example/simple --find-links file:///wheels"
            " --with 'uwf-clock>=1' 'uwf-git[fleet,web]==0.2.0'",
        ),
        (
            "pipx_metadata.json",
            json.dumps({"main_package": PIPX}),
            "pipx install --force --pip-args='--no-index --find-links '\"'\"'/my wheels'\"'\"'' 'uwf-git[fleet,web]'",
        ),
        (
            "pyvenv.cfg",
            "home = /usr/bin\nuv = 0.13.9\n",
            f"uv pip install --python {sys.executable} 'uwf-git[fleet]'",
        ),
    ],
)
def test_the_tool_that_installed_it_installs_the_extra_and_keeps_the_rest(
    tmp_path: Path, file: str, text: str, arguments: str
) -> None:
    (tmp_path / file).write_text(text)
    (tmp_path / "uwf_git-0.2.0.dist-info").mkdir()
    (tmp_path / "uwf_git-0.2.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: uwf-git\n")
    assert shlex.split(_hint(tmp_path, f"sys.prefix = {str(tmp_path)!r}")) == shlex.split(arguments)


def test_without_pip_the_hint_says_what_to_install_and_where(tmp_path: Path) -> None:
    told = _hint(tmp_path)
    assert told.startswith("install ") and told.endswith(f"into the environment of {sys.executable}")
    assert "[fleet]" in told


def _hint(path: Path, before: str = "") -> str:
    program = f"""
import sys
{before}
from uwf_git.base.extras import install_hint
sys.path = [each for each in sys.path if not each.endswith("site-packages")]  # uwf-git is installed there too
print(install_hint("fleet"))
"""
    environ = {**os.environ, "PYTHONPATH": str(path)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()
