"""Whose turn is next at a head, as a value."""

from __future__ import annotations

from typing import NamedTuple

from uwf_git.format.types import FAIL


class Outlook(NamedTuple):
    """The next turn at a head: a role, `$END`, `$USER` for a question, `$BUNDLE` for a code workflow, or None
    with the problem if no edge applies. `instruction` and `location` belong to a role; `question`, `options`,
    `reason` and the asking role `asks` to `$USER`. At `$END`, `failed` says that the workflow ended at `$FAIL`, for
    the `reason`."""

    next: str | None
    instruction: str | None = None
    location: str | None = None
    asks: str | None = None
    question: str | None = None
    options: tuple[str, ...] = ()
    reason: str | None = None
    problem: str | None = None
    hint: str = ""
    failed: bool = False

    @property
    def shown(self) -> str | None:
        """What the pages show as next: a role, $END or $FAIL."""
        return FAIL if self.failed else self.next
