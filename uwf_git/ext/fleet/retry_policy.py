"""Retry policy: from a step's error to the fleet's next action. A step is identified by the head before it,
so it can be retried anywhere; if the head has moved, it is done. Pure, for Temporal's replays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from uwf_git.plugin import Declined, Rewritten, UwfError

DONE = "done"
"""Somebody else did the step: the thread is looked at, and goes on from there."""
WAIT = "wait"
"""Nothing can be done before somebody does something: answers, resumes, raises a budget, trusts code."""
LATER = "later"
"""Nothing is wrong with the step, and the moment isn't right: tried again without a bound."""
AGAIN = "again"
"""The step failed: tried again so many times."""
NEVER = "never"
"""It would fail the same way the next time."""

UNWRITABLE = "store_unwritable"
"""The code of a step that this machine couldn't keep, as on a full disk: another one makes it, or this one later."""
NEWER = "newer_version"
"""The code of a step whose thread has a node that a newer version wrote: a worker of that version can make it."""
LONGEST_ASKED = 24 * 60 * 60.0
"""Seconds that a step is put off at most, whatever a provider asks for."""

_BY_STATUS = {2: NEVER, 3: NEVER, 4: DONE, 5: WAIT, 6: AGAIN, 7: NEVER, 8: LATER, 130: LATER, 143: LATER}
# Codes that say more than their exit status.
_BY_CODE = {
    "busy": LATER,
    NEWER: LATER,
    Declined.code: AGAIN,
    UNWRITABLE: LATER,
    "signing_failed": AGAIN,
    "requirement_unmet": AGAIN,  # another worker may have the key
    "workspace": LATER,
    "failure": AGAIN,
    "internal": AGAIN,
}
_FIRST_BACKOFF = {LATER: 1.0, AGAIN: 1.0}  # seconds before the second try
_GROWS = {LATER: 2.0, AGAIN: 4.0}
_MAX_BACKOFF = {LATER: 30.0, AGAIN: 300.0}

# The codes whose messages are about the store, the remote and the machine, and quote nothing of an answer.
_OF_NO_ANSWER = (
    *("usage", "not_found", "head_moved", "busy", "waiting", "paused", "untrusted", "interrupted"),
    *(UNWRITABLE, "signing_failed", "remote", Declined.code, Rewritten.code, "unkept", "workspace", "lost"),
    *("requirement_unmet", "rolled_back", NEWER),
)

UNKEPT = "unkept"
"""The code of a step that was made, and whose workspace didn't get where others find it: they would go on without that,
so it isn't shared before it has."""
UNWANTED = "unwanted"
"""The code of a step that wasn't begun when it was its turn: its thread was held, or taken out of the queue."""
PASSED_ON = "passed_on"
"""The code of a step that its worker took ahead, and gave back since it isn't its turn soon."""
LOST = "lost"
"""The code of a step whose process, or worker, ended without a word."""


class Fault(NamedTuple):
    """A step's error. `by` is the rate-limiting provider, `after` its requested wait in seconds."""

    code: str
    status: int
    message: str
    hint: str = ""
    by: str | None = None
    after: float | None = None

    def as_json(self) -> dict[str, Any]:
        return self._asdict()

    def without_words(self, thread: str = "ID", role: str | None = None) -> Fault:
        """Return it without the message, which may quote an agent."""
        if self.code in _OF_NO_ANSWER:
            return self
        what = f"the step of role {role}" if role else "a step"
        return self._replace(
            message=f"{what} failed with {self.code}",
            hint=f"see what its worker said, or: uwf thread attempts {thread}",
        )


def parse_fault(value: Mapping[str, Any]) -> Fault:
    """Parse a Fault, also of later versions."""
    return Fault(**{name: value[name] for name in Fault._fields if name in value})


def fault_of(error: UwfError) -> Fault:
    return Fault(error.code, error.exit_status, error.message, error.hint)


def lost(message: str, hint: str = "") -> Fault:
    """Return the fault of a step process that died."""
    return Fault(LOST, 6, message, hint)


def way_on(fault: Fault) -> str:
    """Return DONE, WAIT, LATER, AGAIN or NEVER."""
    if fault.by is not None:
        return LATER
    return _BY_CODE.get(fault.code) or _BY_STATUS.get(fault.status, NEVER)


def pause_before(way: str, tries: int, after: float | None = None) -> float:
    """Return the seconds before the next try of LATER or AGAIN."""
    grown = _FIRST_BACKOFF[way] * _GROWS[way] ** min(max(tries, 1) - 1, 16)
    return max(min(grown, _MAX_BACKOFF[way]), min(after or 0.0, LONGEST_ASKED))
