"""git, and the real `uwf` as a process of its own: what it is doing, and whether it has ended."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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


def begin(*args: object, env: Mapping[str, str] | None = None, **options: Any) -> subprocess.Popen[str]:
    """`uwf` in the background; both of its streams can be read."""
    return subprocess.Popen(
        [*UWF, *map(str, args)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **(env or {})},
        text=True,
        **options,
    )


def wait_for(path: Path) -> str:
    """What a file holds, once there is something in it."""
    deadline = time.monotonic() + 30
    while not (path.exists() and path.read_text().strip()):
        assert time.monotonic() < deadline, f"{path} does not appear"
        time.sleep(0.01)
    return path.read_text()


def alive(pid: int | str) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def wait_until_gone(pid: int | str) -> None:
    """Returns once no such process is left."""
    deadline = time.monotonic() + 30
    while alive(pid):
        assert time.monotonic() < deadline, f"{pid} goes on"
        time.sleep(0.01)
