"""uwf on Windows' own Python and libgit2, by wine. `make test-wine` fetches the interpreter, and runs these.

wine is not Windows: it has the calls, not the disk, the console or the virus scanner.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from conftest import REPOSITORY
from git_relay import git_relay

from uwf_git.api.check import check
from uwf_git.store.instance import Instance
from uwf_git.store.location import locate

HOME = REPOSITORY / ".wine"
PYTHON = HOME / "python" / "python.exe"

pytestmark = [
    pytest.mark.extended,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not PYTHON.exists(), reason="Windows' Python is not there: make test-wine"),
]

WORKFLOW = """
name: one
description: A role that runs a command.
roles:
  writer:
    description: Writes.
    systemPrompt: Write a text.
    outputSchema: {type: object, properties: {text: {type: string}}, required: [text]}
graph:
  $START: [{role: writer}]
  writer: [{role: $END}]
"""

Run = Callable[..., subprocess.CompletedProcess[str]]


def wine(words: Sequence[str], folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {
        **os.environ,
        "WINEPREFIX": str(HOME / "prefix"),
        "WINEDEBUG": "-all",
        "PYTHONUTF8": "1",
        **variables,
    }
    argv = ["wine", str(PYTHON), "-B", *words]
    return subprocess.run(
        argv,
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@contextmanager
def served(words: Sequence[str], folder: Path) -> Iterator[dict[str, str]]:
    """What a server prints when it listens. It is ended with everything of the prefix."""
    env = {
        **os.environ,
        "WINEPREFIX": str(HOME / "prefix"),
        "WINEDEBUG": "-all",
        "PYTHONUTF8": "1",
        "USERPROFILE": f"Z:{folder}",
    }
    with subprocess.Popen(
        ["wine", str(PYTHON), "-B", *words],
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,  # Python there doesn't start with a file for it
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())
        finally:
            subprocess.run(["wineserver", "-k"], env=env, check=False)
            process.kill()


@pytest.fixture
def uwf(tmp_path: Path) -> Run:
    (tmp_path / "one.yaml").write_text(WORKFLOW)

    def run(
        *words: str, status: int = 0, root: str = "root", **variables: str
    ) -> subprocess.CompletedProcess[str]:
        where = f"Z:{tmp_path}/{root}".replace("/", "\\")
        argv = ["-m", "uwf_cli.main", "--root", where, *words]
        done = wine(argv, tmp_path, USERPROFILE=f"Z:{tmp_path}", **variables)
        assert done.returncode == status, done.stdout + done.stderr
        return done

    return run


def test_files_locks_and_processes_do_what_the_interface_says(tmp_path: Path) -> None:
    claims = Path(__file__).with_name("native_calls.py")
    names = re.findall(r"^def (\w+)\(folder: Path\)", claims.read_text(), re.MULTILINE)
    done = wine([str(claims)], tmp_path)
    assert done.stdout.split() == names, done.stdout + done.stderr


def test_a_thread_is_run_there_verified_here_and_continued_there(uwf: Run, tmp_path: Path) -> None:
    uwf("workflow", "put", "one.yaml")
    agent = f'uwf-exec {PYTHON.as_posix()} -c "print(\'{{\\"text\\": \\"Gr\\u00fc\\u00dfe\\"}}\')"'
    ended = json.loads(uwf("run", "one", "-p", "Say hello.", "--agent", agent).stdout.splitlines()[-1])
    assert ended["status"] == "completed"
    assert "nothing is wrong" in uwf("--format", "text", "verify").stdout
    page = tmp_path / "page.html"
    uwf("export", "@", "--html", f"Z:{page}")
    assert "Gr\u00fc\u00dfe" in page.read_text(encoding="utf-8")

    instance = Instance(locate(str(tmp_path / "root"), os.environ, tmp_path))
    result = check(instance)
    assert [finding.code for finding in result.findings if finding.code != "unwitnessed"] == []
    assert result.verified.steps == 1
    assert not list((tmp_path / "root" / "store.git").rglob("*.keep"))
    assert not list((tmp_path / "root" / "store.git" / "uwf" / "locks").glob("0*"))

    uwf("thread", "fork", "@", "--from-role", "writer")
    uwf("thread", "step", "@", "--agent", "uwf-rehearse")
    assert [row["status"] for row in json.loads(uwf("thread", "list", "--all").stdout)] == [
        "completed",
        "completed",
    ]


def test_threads_are_pushed_and_cloned_there_by_the_git_program(uwf: Run, tmp_path: Path) -> None:
    remote = tmp_path / "remote.git"
    subprocess.run(["git", "init", "-q", "--bare", str(remote)], check=True)
    # How Windows writes this machine's paths.
    (tmp_path / ".gitconfig").write_text('[url "/"]\n\tinsteadOf = Z:/\n\tinsteadOf = "Z:\\\\"\n')
    uwf("workflow", "put", "one.yaml")
    uwf("run", "one", "-p", "Say hello.", "--agent", "uwf-rehearse")
    with git_relay(tmp_path) as port:
        with_git = {"WINEPATH": f"Z:{HOME}/git", "UWF_TEST_GIT_RELAY": str(port)}
        uwf("remote", "add", "origin", f"Z:{remote}", **with_git)
        uwf("push", "origin", **with_git)
        uwf("clone", f"Z:{remote}", root="clone", **with_git)
    rows = [json.loads(uwf("thread", "list", "--all", root=root).stdout) for root in ("root", "clone")]
    assert rows[0][0]["thread"] == rows[1][0]["thread"] and rows[1][0]["status"] == "completed"


def test_pages_are_served_there_and_show_what_a_thread_did(uwf: Run, tmp_path: Path) -> None:
    uwf("workflow", "put", "one.yaml")
    thread = json.loads(
        uwf("run", "one", "-p", "Say hello.", "--agent", "uwf-rehearse").stdout.splitlines()[-1]
    )
    where = f"Z:{tmp_path}/root".replace("/", "\\")
    words = ["-m", "uwf_cli.main", "--root", where, "--format", "json", "web", "--no-open"]
    with served(words, tmp_path) as told, httpx.Client(base_url=told["address"], trust_env=False) as client:
        assert client.get("/").status_code == 401
        client.get(told["launch"])
        page = client.get(f"/thread/{thread['thread']}")
        assert page.status_code == 200 and "Say hello." in page.text and "writer" in page.text


def test_what_forks_there_is_refused_in_one_line(uwf: Run) -> None:
    uwf("workflow", "put", "one.yaml")
    done = uwf("--format", "text", "run", "one", "-p", "Hello", "--detach", status=1)
    assert done.stderr.splitlines()[-1].endswith("run uwf in WSL, with the store in its own file system")
