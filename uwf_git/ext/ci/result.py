"""Results of a check: one `Check` for each branch, workflow and suite, with its problems."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from uwf_git.plugin import NothingToVerify, RequirementUnmet, Rewritten, StoreDamaged, Undecided, UwfError

Level = Literal["error", "warning", "note"]

# The most serious first: of several checks it is the exit status.
_STATUSES = (
    StoreDamaged.exit_status,
    Rewritten.exit_status,
    RequirementUnmet.exit_status,
    UwfError.exit_status,
    NothingToVerify.exit_status,
    Undecided.exit_status,
)


class Problem(NamedTuple):
    """A problem. `code` is stable. `path` is relative to the checkout, "" if it is in no file of it; `line`
    counts from 1, 0 if unknown."""

    level: Level
    code: str
    message: str
    path: str = ""
    line: int = 0

    @property
    def place(self) -> str:
        """`path:line`, the path alone if the line is unknown, "" without a path."""
        return f"{self.path}:{self.line}" if self.path and self.line else self.path

    @property
    def text(self) -> str:
        """One line for logs: place, level, code and message."""
        where = f"{self.place}: " if self.path else ""
        return f"{where}{self.level}: {self.code}: {self.message}"


class Check(NamedTuple):
    """A checked thing. `kind` is `branch`, `workflow`, `suite` or `claims`; `status` is its exit status; `summary` one
    line; `page` its Markdown, in which nothing of a stranger is live."""

    kind: str
    name: str
    status: int
    summary: str
    problems: tuple[Problem, ...] = ()
    page: str = ""
    value: Mapping[str, Any] = {}

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "name": self.name,
            "status": self.status,
            "summary": self.summary,
            "problems": [problem._asdict() for problem in self.problems],
            **self.value,
        }


def status_of(checks: Iterable[Check]) -> int:
    """Return the most serious status, 0 if all passed."""
    statuses = {check.status for check in checks} - {0}
    known = next((status for status in _STATUSES if status in statuses), 0)
    return known or max(statuses, default=0)
