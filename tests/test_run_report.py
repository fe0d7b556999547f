"""What `make test` prints: how far it is, how long it will take, and how to have what it skipped."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import REPOSITORY

CONFTEST = """
import run_report

run_report.EVERY = 0.0
run_report.PRIOR = {False: (0.001, 100), True: (0.001, 1)}

def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(run_report.RunReport(config))

def pytest_collection_finish(session):
    run_report.mark_long_tests(session.items)
"""
TESTS = """
import time
import pytest

@pytest.mark.timeout(300)
def test_long(): time.sleep(1)

@pytest.mark.parametrize("number", range(98))
def test_usual(number): pass

@pytest.mark.skip("needs strace (Debian package strace)")
@pytest.mark.parametrize("number", range(2))
def test_skipped(number): pass

@pytest.mark.skip("real agents: make test-agents")
def test_agents(): pass

def test_failing(): assert False
"""


def run(folder: Path, *options: str) -> list[str]:
    """Return the lines of a run of the tests in a folder."""
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_it.py").write_text(TESTS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, str(folder)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "tests" / "doubles")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("options", [("-n", "0"), ("-n", "2")], ids=["one process", "two workers"])
def test_a_run_says_how_far_it_is_what_it_skipped_and_writes_the_ids_of_failed_tests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    monkeypatch.setenv("UWF_TEST_FAILED", str(tmp_path / "failed"))
    lines = run(tmp_path, *options)
    assert (tmp_path / "failed").read_text() == "test_it.py::test_failing\n"
    assert any(line.startswith("103 of 103 tests, 1 failed; ") for line in lines)
    assert any(line.endswith("about 0 s left") for line in lines)
    assert "FAILED test_it.py::test_failing" in lines
    section = lines[next(number for number, line in enumerate(lines) if "skipped, and how" in line) :]
    assert section[1:4] == [
        "   2  needs strace (Debian package strace)",
        "   1  real agents: make test-agents",
        "To install what is missing: apt-get install strace",
    ]


def test_a_long_test_at_the_start_says_little_about_the_others(tmp_path: Path) -> None:
    lines = run(tmp_path, "-n", "0")
    first = next(line for line in lines if line.startswith("1 of 103 tests"))
    assert first.endswith("about 0 s left")  # a second times 102 would be two minutes


@pytest.mark.parametrize("order", ["random", "17"])
def test_a_random_order_says_how_to_repeat_it(tmp_path: Path, order: str) -> None:
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    (tmp_path / "venv" / "bin" / "python").symlink_to("/bin/echo")
    (tmp_path / "venv" / ".installed-dev").touch()
    printed = subprocess.run(
        ["make", "--no-print-directory", "test", f"VENV={tmp_path / 'venv'}", f"ORDER={order}"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    seed = printed[0].removeprefix("in random order; to repeat it: make test ORDER=")
    assert seed.isdigit() and (order == "random" or seed == order)
    assert f"--random-order-seed={seed}" in printed[1]
