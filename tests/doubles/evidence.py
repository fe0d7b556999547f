"""A signed thread with code and a person's decision, and those who check what it left without uwf."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch

import pytest
from commands import git
from programs import need
from warm import interpreter_for

if TYPE_CHECKING:
    from conftest import Uwf

ADA = "ada@example.invalid"
SCRIPT = Path(__file__).parent.parent.parent / "docs" / "audit" / "verify.py"

CODING = """\
name: coding
description: One writes code, a person decides.
roles:
  writer:
    description: Writes code.
    systemPrompt: Write.
    outputSchema: {type: object, properties: {text: {type: string}}, required: [text]}
  gate:
    description: Decides whether it is merged.
    human: true
    outputSchema: {type: object, properties: {decision: {enum: [merge, change]}}, required: [decision]}
graph:
  $START: [{role: writer, prompt: "Write {{ prompt }}"}]
  writer: [{role: gate, prompt: "Merge {{ text }}?"}]
  gate: [{role: $END}]
"""

WRITER = """\
from uwf_git.kit import Context, Reply, create_agent
from uwf_git.format.kinds import Usage

def run(ctx: Context) -> Reply:
    (ctx.cwd / "new.py").write_text("one\\ntwo\\nthree\\n")
    (ctx.cwd / "shop.py").write_text("# first\\ndef total():\\n    return 2\\n++ b/odd\\n")
    return Reply('---\\ntext: "the total"\\n---\\n', "session-1", model="acme-1", usage=Usage(10, 2, 1), cost=0.25)

create_agent("uwf-writes", run).main()
"""


def configure(key: str, value: str | Path) -> None:
    git("config", "--file", os.environ["GIT_CONFIG_GLOBAL"], key, value)


def make_key(folder: Path, *kind: str, passphrase: str = "") -> Path:
    """A new SSH key that signs commits, and is Ada's by the file of allowed signers; its private half."""
    need("ssh-keygen")
    folder.mkdir(mode=0o700, exist_ok=True)
    key = folder / "id"
    words = ["ssh-keygen", "-q", "-t", *(kind or ("ed25519",)), "-N", passphrase, "-C", "ada", "-f", str(key)]
    subprocess.run(words, check=True)
    (folder / "allowed").write_text(f"{ADA} {key.with_suffix('.pub').read_text()}")
    configure("gpg.ssh.allowedSignersFile", folder / "allowed")
    configure("gpg.format", "ssh")
    configure("user.signingKey", key)
    configure("commit.gpgSign", "true")
    return key


def make_project(folder: Path) -> Path:
    """A project with a file, on its branch main."""
    git("init", "-q", "-b", "main", folder)
    (folder / "shop.py").write_text("def total():\n    return 1\n")
    git("-C", folder, "add", ".")
    git("-C", folder, "commit", "-q", "-m", "Add a shop")
    return folder


def coded_thread(uwf: Uwf, folder: Path, agent: str = WRITER) -> str:
    """A thread of CODING in a worktree of `folder/project` after a step by an agent: its command, or its source."""
    project = make_project(folder / "project")
    (folder / "coding.yaml").write_text(CODING)
    uwf("workflow", "put", folder / "coding.yaml")
    if "\n" in agent:
        (folder / "agent.py").write_text(agent)
        agent = shlex.join((*interpreter_for(agent), str(folder / "agent.py")))
    where = f"worktree:{project}"
    thread = str(uwf("thread", "start", "coding", "-p", "a shop", "--workspace", where).json["thread"])
    uwf("thread", "step", thread, "--agent", agent, cwd=project)
    return thread


def ended_thread(uwf: Uwf, folder: Path) -> str:
    """A thread of CODING in a worktree of `folder/project`, which a person has ended."""
    thread = coded_thread(uwf, folder)
    uwf("thread", "answer", thread, "-m", "merge", cwd=folder / "project")
    return thread


def cloned(store: Path, folder: Path) -> Path:
    """A clone with the threads of a store, each object in a file of its own."""
    git("init", "-q", folder)
    git("-C", folder, "fetch", "-q", store, "refs/uwf/*:refs/uwf/*")
    packs = [(pack, pack.read_bytes()) for pack in (folder / ".git/objects/pack").glob("*.pack")]
    for pack, data in packs:
        for each in pack.parent.glob(f"{pack.stem}.*"):
            each.unlink()
        subprocess.run(["git", "-C", folder, "unpack-objects", "-q"], input=data, check=True)
    return folder


def check_file(file: Path, clone: Path, *options: str | Path) -> subprocess.CompletedProcess[str]:
    """Run verify.py without the packages and the configuration of this environment."""
    need("openssl")
    words = [sys.executable, "-I", "-S", str(SCRIPT), str(file), str(clone), *map(str, options)]
    return subprocess.run(words, capture_output=True, text=True, env=_bare_environment(), check=False)


Answers = dict[tuple[object, ...], "subprocess.CompletedProcess[bytes]"]


def check_here(
    file: Path, clone: Path, *options: str | Path, answers: Answers | None = None
) -> tuple[int, str]:
    """Run verify.py in this process, for a test with many files: a start takes as long as the check. Returns its
    exit status and all that it says. `answers` are git's in earlier checks of clones that have not changed since."""
    need("openssl")
    printed, status = io.StringIO(), 0
    run = subprocess.run

    def remembered(words: list[str], **more: Any) -> subprocess.CompletedProcess[bytes]:
        if answers is None or words[0] != "git":
            return run(words, **more)
        key = (*words, more.get("input"))
        if key not in answers:
            answers[key] = run(words, **more)
        return answers[key]

    with (
        patch.object(subprocess, "run", remembered),
        patch.dict(os.environ, _bare_environment(), clear=True),
        patch.object(sys, "excepthook", sys.excepthook),
        patch.object(sys, "argv", [str(SCRIPT), str(file), str(clone), *map(str, options)]),
        contextlib.redirect_stdout(printed),
    ):
        try:
            exec(_script(), {"__name__": "__main__"})
        except SystemExit as end:
            if not isinstance(end.code, int):
                print(end.code or "")
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
        except Exception as error:
            with contextlib.redirect_stderr(printed):
                sys.excepthook(type(error), error, error.__traceback__)
            status = 1
    return status, printed.getvalue()


@cache
def _script() -> CodeType:
    return compile(SCRIPT.read_text(), SCRIPT, "exec")


def _bare_environment() -> dict[str, str]:
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    return environment | {name: os.environ[name] for name in ("GNUPGHOME",) if name in os.environ}


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The places of all values in a JSON value that are no lists or objects with something in them."""
    if isinstance(value, dict | list) and value:
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(each, (*path, key))
    else:
        yield path


def altered(value: Any, path: tuple[str | int, ...]) -> Any:
    """A copy of a JSON value with another value at a place."""
    copy = json.loads(json.dumps(value))
    at = copy
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = _other(at[path[-1]])
    return copy


def _other(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, str) and value:
        middle = len(value) // 2
        return value[:middle] + ("0" if value[middle] != "0" else "1") + value[middle + 1 :]
    return "something" if value is None or value == "" else [value]


class Evidence(NamedTuple):
    """A signed thread, the key of its signer, its project, and an auditor's clone."""

    thread: str
    key: Path
    project: Path
    clone: Path
    folder: Path

    @property
    def signers(self) -> Path:
        return self.key.with_name("allowed")


@pytest.fixture
def evidence(uwf: Uwf, root: Path, tmp_path: Path, lasting: Path) -> Evidence:
    """Evidence in the test's own folder, made by the first test of a worker and copied by the others."""
    kept, parts = lasting / "evidence", ("keys", "project", "clone", root.relative_to(tmp_path))
    configuration = Path(os.environ["GIT_CONFIG_GLOBAL"])
    if not kept.exists():
        make_key(tmp_path / "keys")
        thread = ended_thread(uwf, tmp_path)
        cloned(root / "store.git", tmp_path / "clone")
        for part in parts:
            shutil.copytree(tmp_path / part, kept / part, symlinks=True)
        shutil.copy(configuration, kept)
        (kept / "thread").write_text(thread)
        (kept / "folder").write_text(str(tmp_path))
    else:
        thread, made_in = (kept / "thread").read_text(), (kept / "folder").read_text()
        for part in parts:
            shutil.copytree(kept / part, tmp_path / part, symlinks=True)
        shutil.copy(kept / configuration.name, configuration)
        for file in (configuration, root / "store.git/uwf/workspaces" / thread):
            file.write_text(file.read_text().replace(made_in, str(tmp_path)))
    return Evidence(thread, tmp_path / "keys/id", tmp_path / "project", tmp_path / "clone", tmp_path)
