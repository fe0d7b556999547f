"""A call that fails in the middle of a step: one clear error, no half state, and the next command does the job.

By default a few are tried; UWF_TEST_FAULTS=all has each file call of a step fail in each way, as `make faults` does.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from conftest import Uwf
from crash_scenarios import SCENARIOS, Run
from programs import program

ALL = os.environ.get("UWF_TEST_FAULTS") == "all"
SAMPLE = 2
ERRORS = ("ENOSPC", "EIO", "EACCES", "EMFILE", "EINTR")
# What the manual of each call doesn't know isn't tried.
_ONLY_OPENING = ("EMFILE",)
_NOT_OF_DESCRIPTORS = ("EACCES",)


@pytest.mark.timeout(7200 if ALL else 300)
@pytest.mark.parametrize("error", ERRORS)
def test_a_step_whose_file_call_fails_says_so_in_a_line_and_is_done_by_the_next(
    error: str,
    uwf: Uwf,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    program("strace")
    monkeypatch.setenv(
        "XDG_STATE_HOME", str(tmp_path / "world/state")
    )  # each trial finds it as old as the store
    run = Run(SCENARIOS["thread step"], tmp_path, uwf)
    every = [each for each in run.numbered() if _can(each[0], error)]
    chosen = every if ALL else Random(error).sample(every, SAMPLE)
    violations = []
    for kind, number, path in chosen:
        done = run.again("-e", f"trace={kind}", "-e", f"inject={kind}:error={error}:when={number}")
        wrong = _describe(done.returncode, done.stderr) + run.wrong_otherwise()
        violations += [f"{kind} {number} {path}: {each}" for each in wrong]
    record_property("fault", ["thread step", f"{error} from a call", len(chosen), len(violations)])
    assert not violations, f"{len(violations)} violations:\n" + "\n".join(violations[:60])


def _can(kind: str, error: str) -> bool:
    is_opening = kind.startswith(("open", "creat"))
    has_descriptor = kind in ("write", "pwrite64", "writev", "fsync", "fdatasync", "ftruncate", "fallocate")
    if error in _ONLY_OPENING:
        return is_opening
    return not (has_descriptor and error in _NOT_OF_DESCRIPTORS)


def _describe(status: int, stderr: str) -> list[str]:
    """What is wrong with how a command ended."""
    found = []
    errors = [line for line in stderr.splitlines() if line.startswith("{")]
    # One open more or less than in the traced run, and the call is that for a module of Python's own.
    if "ModuleNotFoundError: No module named" in stderr or "/lib-dynload/" in stderr:
        return found
    if "Traceback" in stderr or '"internal"' in stderr:
        found.append(f"no error for people: {stderr[-1500:]}")
    if status == 0:
        return found
    if status not in (1, 4, 7):
        found.append(f"exit status {status}: {stderr[-500:]}")
    if len(errors) != 1:
        found.append(f"{len(errors)} errors: {stderr[-500:]}")
    return found
