"""What breaks the contract of bundles, each with its place, as the findings that `validate` prints."""

from __future__ import annotations

from uwf_git.text import one_line
from uwf_git.values.documents import Mark
from uwf_git.values.findings import Finding

_MOST = 200  # breaches that are kept: nobody reads more


class Breaches:
    """A list of breaches that grows."""

    def __init__(self) -> None:
        self._found: dict[Finding, None] = {}

    def add(self, mark: Mark, code: str, message: str, hint: str = "") -> None:
        """Adds a breach. `code` is stable."""
        if len(self._found) < _MOST:
            self._found[Finding(mark.line, mark.column, "error", code, one_line(message, 400), hint)] = None

    def sorted(self) -> list[Finding]:
        """All of them, in the order of the text."""
        return sorted(self._found)
