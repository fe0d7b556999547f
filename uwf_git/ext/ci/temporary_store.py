"""Calls of `uwf` on a temporary store of a job, into which a pull from the checkout brings what it has verified."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from uwf_git.plugin import TimedOut, itself, one_line

_SECONDS = 300.0


def call_uwf(root: Path, *arguments: str) -> tuple[int, Any, str]:
    """Return the exit status, the JSON and the error of a call of `uwf` on a store."""
    call = [*itself("json", *arguments), "--root", str(root)]
    try:
        done = subprocess.run(
            call,
            cwd=root.parent,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        # Not undecided, which would pass as a version without a recorded run.
        return TimedOut.exit_status, None, f"uwf {arguments[0]} took over {_SECONDS:g} s"
    return done.returncode, _json(done.stdout), _error(done.stderr)


def _json(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _error(text: bytes) -> str:
    for line in reversed(text.splitlines()):
        value = _json(line)
        if isinstance(value, dict) and isinstance(value.get("error"), dict):
            return one_line(str(value["error"].get("message", "")), 500)
    return ""
