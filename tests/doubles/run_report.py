"""Progress of a test run: how far it is, what failed, and at the end what was skipped and how to have it.

It replaces pytest's dots in a quiet run. With UWF_TEST_FAILED the ids of failed tests go into that file, a line each;
with UWF_TEST_SKIPPED those of skipped ones.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

EVERY = 15.0  # seconds between two lines
USUAL = 120.0  # seconds that a test is given

# Before anything is measured: seconds of a usual test and of a long one, and how many tests that counts for.
PRIOR = {False: (0.5, 100), True: (10.0, 5)}


def time_given(item: pytest.Item) -> float:
    """Return the time limit of a test in seconds, at least the usual one."""
    mark = item.get_closest_marker("timeout")
    return max(float(mark.args[0]), USUAL) if mark and mark.args else USUAL


def mark_long_tests(items: Sequence[pytest.Item]) -> None:
    """Let the reports of tests with a longer time limit say how many there are: these begin first, so that the first
    tests say little about the others."""
    long = [item for item in items if time_given(item) > USUAL]
    for item in long:
        item.user_properties.append(("long tests", len(long)))


class RunReport:
    """One run, in the process that prints."""

    def __init__(self, config: pytest.Config) -> None:
        self._plugins = config.pluginmanager
        self._began = self._last_line = time.monotonic()
        self._total = self._total_long = self._workers = 0
        self._failures: dict[str, None] = {}
        self._skips: dict[str, None] = {}
        self._done = {False: 0, True: 0}  # long tests: True
        self._seconds = {False: 0.0, True: 0.0}

    def _say(self, text: str, red: bool = False) -> None:
        terminal: pytest.TerminalReporter = self._plugins.getplugin("terminalreporter")
        terminal.write_line(text, red=red)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Say what takes the first seconds, before workers start."""
        self._say("collecting the tests")

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Without workers."""
        self._total = self._total or len(session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """Each worker collects all tests."""
        self._total = len(ids)
        self._workers += 1

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Print no letters."""
        if report.failed:
            return ("failed", "", "FAILED") if report.when == "call" else ("error", "", "ERROR")
        if report.skipped or report.when == "call":
            return ("skipped" if report.skipped else "passed"), "", ""
        return None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count finished tests and print a line now and then."""
        if report.failed:
            self._failures[report.nodeid] = None
            self._say(f"FAILED {report.nodeid}", red=True)
        if report.skipped:
            self._skips[report.nodeid] = None
        long = dict(report.user_properties).get("long tests", 0)
        self._total_long = self._total_long or long
        self._done[bool(long)] += report.when == "teardown"
        self._seconds[bool(long)] += report.duration
        now = time.monotonic()
        if now - self._last_line < EVERY:
            return
        self._last_line = now
        self._say(
            f"{sum(self._done.values()):,} of {self._total:,} tests, {len(self._failures)} failed; "
            f"{_minutes(now - self._began)} so far, about {_minutes(self._left())} left"
        )

    def _left(self) -> float:
        """Estimate the seconds to the end, from the mean of usual tests and that of long ones."""
        seconds = 0.0
        for long, total in ((False, self._total - self._total_long), (True, self._total_long)):
            mean, weight = PRIOR[long]
            mean = (mean * weight + self._seconds[long]) / (weight + self._done[long])
            seconds += mean * max(0, total - self._done[long])
        return seconds / max(1, self._workers)

    def pytest_sessionfinish(self) -> None:
        """Write the ids of failed tests, and of skipped ones."""
        for variable, ids in (("UWF_TEST_FAILED", self._failures), ("UWF_TEST_SKIPPED", self._skips)):
            if path := os.environ.get(variable):
                Path(path).write_text("".join(f"{nodeid}\n" for nodeid in ids), encoding="utf-8")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print each reason for skipped tests once, and the command that installs the packages they need."""
        reasons = Counter(
            str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr).removeprefix(
                "Skipped: "
            )
            for report in terminalreporter.getreports("skipped")
        )
        if not reasons:
            return
        terminalreporter.section("skipped, and how to have it")
        for reason, count in reasons.most_common():
            terminalreporter.write_line(f"{count:4}  {reason}")
        packages = sorted(set(re.findall(r"Debian package ([a-z0-9.+-]+)", " ".join(reasons))))
        if packages:
            terminalreporter.write_line(f"To install what is missing: apt-get install {' '.join(packages)}")


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
