"""Checks that a thread of the demo came out as it is meant to:

    python examples/demo/expect.py THREAD STATUS ROLE=VERDICT...

A verdict is the `status`, `approved` or `verdict` of the role's output, `-` for any. Prints nothing if all is as
expected, else one line, and exits with 1.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any


def main() -> None:
    """Compare a thread with the arguments."""
    thread, *expected = sys.argv[1:]
    steps = _uwf("thread", "steps", thread)
    found = [_uwf("thread", "show", thread)["status"]]
    for step, wanted in zip(steps, expected[1:], strict=False):
        found.append(f"{step['role']}={'-' if wanted.endswith('=-') else _verdict(step['output'])}")
    found += [f"{step['role']}={_verdict(step['output'])}" for step in steps[len(expected) - 1 :]]
    if found != expected:
        sys.exit(f"demo: thread {thread} is not as expected: {' '.join(found)}, not {' '.join(expected)}")


def _verdict(output: dict[str, Any]) -> str:
    found = next((output[name] for name in ("status", "approved", "verdict") if name in output), "-")
    return str(found).lower()


def _uwf(*arguments: str) -> Any:
    command = ["uwf", *arguments, "--format", "json"]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)


if __name__ == "__main__":
    main()
