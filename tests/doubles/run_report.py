"""How far a run of the tests is, what fails as soon as it does, and what was skipped and how to have it.

It replaces pytest's dots in a quiet run, which takes a quarter of an hour on two cores.
"""

from __future__ import annotations

import time
from collections import Counter

import pytest

EVERY = 15.0  # seconds between two lines


class RunReport:
    """One run, in the process that prints."""

    def __init__(self, config: pytest.Config) -> None:
        self._plugins = config.pluginmanager
        self._began = self._told = time.monotonic()
        self._total = 0
        self._done = self._failed = 0

    def _say(self, text: str, red: bool = False) -> None:
        terminal: pytest.TerminalReporter = self._plugins.getplugin("terminalreporter")
        terminal.write_line(text, red=red)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Without workers."""
        self._total = self._total or len(session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """Each worker collects all tests."""
        self._total = len(ids)

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Print no letters."""
        if report.failed:
            return ("failed", "", "FAILED") if report.when == "call" else ("error", "", "ERROR")
        if report.skipped or report.when == "call":
            return ("skipped" if report.skipped else "passed"), "", ""
        return None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a test when it is over, and say how far the run is now and then."""
        if report.failed:
            self._failed += 1
            self._say(f"FAILED {report.nodeid}", red=True)
        self._done += report.when == "teardown"
        now = time.monotonic()
        if now - self._told < EVERY:
            return
        self._told = now
        took = now - self._began
        left = took / self._done * (self._total - self._done) if self._done else 0.0
        self._say(
            f"{self._done:,} of {self._total:,} tests, {self._failed} failed; {_minutes(took)} so far, "
            f"about {_minutes(left)} left"
        )

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what was skipped, each reason once."""
        reasons = Counter(
            str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr).removeprefix(
                "Skipped: "
            )
            for report in terminalreporter.getreports("skipped")
        )
        if reasons:
            terminalreporter.section("skipped, and how to have it")
            for reason, count in reasons.most_common():
                terminalreporter.write_line(f"{count:4}  {reason}")


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
