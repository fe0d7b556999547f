"""uwf as others have it: its wheel, installed by each tool outside of the checkout, from a folder, an index or a file,
with the oldest and the newest packages that it allows.

The packages come from the index that pip and uv are configured for here, as for `make venv`; what is then installed
comes from a folder of wheels alone.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

import pytest
from agent_programs import program
from distributions import SOURCES, build

pytestmark = [pytest.mark.extended, pytest.mark.timeout(300)]

# Read when the module is, since the tests' environment is emptied: it says where packages come from.
_INDEX = {
    name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_", "SSL_", "HTTP"))
}
_HOME = os.environ.get("HOME", "/")

QUICK_START = SOURCES / "tests/release/quick_start.sh"


class Wheels(NamedTuple):
    """A folder with the wheel and the newest packages for it, and the wheel."""

    folder: Path
    wheel: Path


def call(*arguments: str | Path, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> str:
    """Run a command, and return what it prints. It sees the index if `env` names none."""
    environ = {"PATH": os.environ["PATH"], "HOME": _HOME, **_INDEX} if env is None else env
    done = subprocess.run([*map(str, arguments)], env=environ, cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Wheels:
    folder = tmp_path_factory.mktemp("wheels")
    wheel = build("wheel", SOURCES, folder)
    call(
        sys.executable, "-m", "pip", "download", "-q", "--only-binary", ":all:", "-d", folder, f"{wheel}[web]"
    )
    return Wheels(folder, wheel)


@pytest.fixture
def bare(tmp_path: Path, hermetic: Path) -> dict[str, str]:
    """The environment of a machine with Python, git, a shell and the tools that install: no index, no checkout."""
    links = tmp_path / "links"
    links.mkdir()
    for name in ("git", "sh"):
        (links / name).symlink_to(shutil.which(name) or "")
    (links / "python3").symlink_to(sys.executable)
    for name in ("uv", "pipx"):
        (links / name).symlink_to(program(name))
    places = {"UV_TOOL_BIN_DIR": "bin", "PIPX_BIN_DIR": "bin", "UV_TOOL_DIR": "tools", "PIPX_HOME": "pipx"}
    return {
        "HOME": str(hermetic),
        "PATH": f"{tmp_path / 'bin'}:{links}",
        "PIPX_MAN_DIR": str(tmp_path / "man"),
        "PIPX_COMPLETION_DIR": str(tmp_path / "completions"),
        "UV_CACHE_DIR": str(tmp_path / "cache"),
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_NO_CONFIG": "1",
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "UV_OFFLINE": "1",
        "GIT_CONFIG_GLOBAL": os.environ["GIT_CONFIG_GLOBAL"],
        **{name: str(tmp_path / place) for name, place in places.items()},
    }


@pytest.mark.parametrize("resolution", ["lowest-direct", "highest"])
def test_the_quick_start_runs_with_the_packages_of_each_end(
    wheels: Wheels, bare: dict[str, str], resolution: str, tmp_path: Path
) -> None:
    uv, venv = program("uv"), tmp_path / "venv"
    call(uv, "venv", "-q", "--python", sys.executable, venv)
    pins = tmp_path / "pins.txt"
    python = ["--python", str(venv / "bin/python")]
    call(
        uv,
        "pip",
        "compile",
        "-q",
        "--resolution",
        resolution,
        *python,
        SOURCES / "pyproject.toml",
        "-o",
        pins,
    )
    call(uv, "pip", "install", "-q", *python, "-r", pins, wheels.wheel)
    bare["PATH"] = f"{venv / 'bin'}:{bare['PATH']}"
    call("sh", QUICK_START, env=bare, cwd=tmp_path)
    where = call(
        venv / "bin/python", "-P", "-c", "import uwf_git; print(uwf_git.__file__)", env=bare, cwd=tmp_path
    )
    assert where.startswith(str(venv))


@pytest.fixture
def index(wheels: Wheels, tmp_path: Path) -> Iterator[str]:
    """The wheels as a private index on loopback (PEP 503)."""
    root = tmp_path / "simple"
    for wheel in wheels.folder.glob("*.whl"):
        project = root / wheel.name.split("-")[0].replace("_", "-").lower()
        project.mkdir(parents=True, exist_ok=True)
        (project / wheel.name).symlink_to(wheel)
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(root))
    handler.log_message = lambda *_: None  # type: ignore[attr-defined]
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


INSTALLATIONS = {
    "uv tool, from a folder": "uv tool install --no-index --find-links WHEELS uwf-git",
    "uv tool, from a file": "uv tool install --no-index --find-links WHEELS WHEEL",
    "uv tool, from an index": "env -u UV_OFFLINE uv tool install --default-index INDEX uwf-git",
    "pipx, from a folder": "pipx install --pip-args='--no-index --find-links WHEELS' uwf-git",
    "pipx, from an index": "env -u UV_OFFLINE -u PIP_NO_INDEX pipx install --index-url INDEX uwf-git",
    "pip, from a file": "python3 -m venv venv && venv/bin/python -m pip install --find-links WHEELS WHEEL"
    " && ln -s $PWD/venv/bin $PWD/bin",
    "uv pip, from a folder": "uv venv venv && uv pip install --python venv --no-index --find-links WHEELS uwf-git"
    " && ln -s $PWD/venv/bin $PWD/bin",
}


@pytest.mark.parametrize("way", INSTALLATIONS)
def test_what_a_hint_for_an_extra_says_installs_it(
    way: str, wheels: Wheels, bare: dict[str, str], index: str, tmp_path: Path
) -> None:
    def fill(command: str) -> str:
        for word, value in (("WHEELS", wheels.folder), ("WHEEL", wheels.wheel), ("INDEX", index)):
            command = command.replace(word, str(value))
        return command

    bare |= (
        {"PIP_FIND_LINKS": str(wheels.folder), "UV_FIND_LINKS": str(wheels.folder)} if "pip," in way else {}
    )
    for name in ("env", "ln", "dirname"):
        (tmp_path / "links" / name).symlink_to(shutil.which(name) or "")
    call("sh", "-c", fill(INSTALLATIONS[way]), env=bare, cwd=tmp_path)
    refused = subprocess.run(
        ["sh", "-c", "uwf --json web --no-open"], env=bare, cwd=tmp_path, capture_output=True, text=True
    )
    hint = json.loads(refused.stderr)["error"]["hint"]
    assert hint.startswith({"uv": "uv ", "pi": ("pipx ", str(tmp_path))}[way[:2]])
    if "index" in way:
        bare = {name: value for name, value in bare.items() if name not in ("UV_OFFLINE", "PIP_NO_INDEX")}
    call("sh", "-c", hint, env=bare, cwd=tmp_path)
    interpreter = (tmp_path / "bin/uwf").resolve().with_name("python")
    call(interpreter, "-c", "import starlette, uvicorn, jinja2", env=bare)
    assert call("sh", "-c", "uwf --version", env=bare).startswith("uwf ")


def test_pipx_links_man_pages_and_completions(wheels: Wheels, bare: dict[str, str], tmp_path: Path) -> None:
    call("pipx", "install", f"--pip-args=--no-index --find-links {wheels.folder}", "uwf-git", env=bare)
    assert (tmp_path / "man/man1/uwf-thread.1").read_text().startswith(".TH UWF-THREAD 1")
    (script,) = (path for path in (tmp_path / "completions").rglob("*") if path.name == "uwf")
    assert "_UWF_COMPLETE=bash_complete" in script.read_text()


def test_other_programs_find_nothing_wrong_with_the_wheel_and_the_sdist(
    wheels: Wheels, tmp_path: Path
) -> None:
    sdist = build("sdist", SOURCES, tmp_path)
    call(program("twine"), "check", "--strict", wheels.wheel, sdist)
    call(program("check-wheel-contents"), "--toplevel", "uwf_git,uwf_cli", wheels.wheel)


def test_the_bill_of_materials_names_the_licence_and_every_package(wheels: Wheels, tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    call(program("uv"), "venv", "-q", "--python", sys.executable, venv)
    install = ["--no-index", "--find-links", wheels.folder, wheels.wheel]
    call(program("uv"), "pip", "install", "-q", "--python", venv, *install)
    options = ("--pyproject", SOURCES / "pyproject.toml", "--output-reproducible", "--validate", "-o", "-")
    bill = json.loads(call(program("cyclonedx-py"), "environment", *options, venv))
    assert bill["metadata"]["component"]["name"] == "uwf-git"
    names = {component["name"].lower() for component in bill["components"]}
    assert {"click", "pygit2", "python-liquid", "httpx", "jsonata-python", "pyyaml"} <= names
    assert bill["specVersion"] == "1.6"
