"""git, and the real `uwf` as a process of its own: what it is doing, and whether it has ended."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from warm import command as quick_uwf

UWF = [sys.executable, "-m", "uwf_cli.main"]


def git(
    *args: object, data: str | None = None, env: Mapping[str, str] | None = None, check: bool = True
) -> str:
    """What git prints, without the last newline. `data` is its standard input."""
    done = subprocess.run(
        ["git", *map(str, args)],
        input=(data or "").encode(),
        capture_output=True,
        env={**os.environ, **(env or {})},
        timeout=60,
        check=False,
    )
    assert not check or done.returncode == 0, f"git {args}: {done.stderr.decode('utf-8', 'replace')}"
    return done.stdout.decode("utf-8", "replace").removesuffix("\n")


def loosen(store: Path, packs_of: str = "") -> None:
    """Makes a file of its own of every object that is in a pack whose name begins so."""
    packs = [(pack, pack.read_bytes()) for pack in (store / "objects" / "pack").glob(f"{packs_of}*.pack")]
    for pack, data in packs:
        for each in (pack, *pack.parent.glob(f"{pack.stem}.*")):
            each.unlink(missing_ok=True)
        subprocess.run(
            ["git", "--git-dir", str(store), "unpack-objects", "-q"],
            input=data,
            capture_output=True,
            check=True,
        )


def loose(store: Path, revision: str) -> Path:
    """The file of an object that a revision leads to, which may have been in a pack."""
    loosen(store)
    oid = git("--git-dir", store, "rev-parse", revision)
    return store / "objects" / oid[:2] / oid[2:]


def begin(
    *args: object, env: Mapping[str, str] | None = None, as_fork: bool = False, **options: Any
) -> subprocess.Popen[str]:
    """`uwf` in the background; both of its streams can be read. `as_fork`: not by an interpreter of its own, for claims
    that are about no signals."""
    words = [*(quick_uwf() if as_fork else UWF), *map(str, args)]
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    environment = {**os.environ, **(env or {})}
    return subprocess.Popen(words, env=environment, text=True, **{**streams, **options})


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Returns once a condition holds; `what` says so of it."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, f"not within a minute: {what}"
        time.sleep(0.005)


def wait_for(path: Path) -> str:
    """What a file holds, once there is something in it."""
    wait_until(lambda: path.exists() and path.read_text().strip() != "", f"{path} appears")
    return path.read_text()


def alive(pid: int | str) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def parent_of(pid: int | str) -> int:
    """The process that started another."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def wait_until_gone(pid: int | str) -> None:
    """Returns once no such process is left."""
    wait_until(lambda: not alive(pid), f"process {pid} is gone")


def git_that_fails(folder: Path, command: str, said: str, times: int = 1) -> Path:
    """A git in a folder, for the PATH, of which the first so many calls of a command fail with this line. Returns the
    file that has a line for every call of that command."""
    folder.mkdir()
    calls, program = folder / "calls", folder / "git"
    program.write_text(
        f'#!/bin/sh\ncase " $* " in *" {command} "*) echo x >> {calls}\n'
        f'if [ "$(wc -l < {calls})" -le {times} ]; then echo "{said}" >&2; exit 128; fi;; esac\n'
        f'exec {shutil.which("git")} "$@"\n'
    )
    program.chmod(0o755)
    return calls
