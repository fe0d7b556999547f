"""What the harnesses of faults have tried, told at the end of a run."""

from __future__ import annotations

from collections import defaultdict

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A table of the instants that were tried and what was violated."""
    table: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            for name, value in getattr(report, "user_properties", ()):
                if name == "fault" and report.when == "call":
                    what, how, tried, violated = value
                    table[what, how][0] += tried
                    table[what, how][1] += violated
    if table:
        terminalreporter.section("faults")
        for (what, how), (tried, violated) in sorted(table.items()):
            terminalreporter.write_line(f"{what:32} {how:22} {tried:6} tried  {violated:4} violations")
        total, violations = (sum(each[column] for each in table.values()) for column in (0, 1))
        terminalreporter.write_line(f"{'all':55} {total:6} tried  {violations:4} violations")
