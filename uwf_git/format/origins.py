"""Threads that a step of another one began, as their StartNode says: branches, calls of code, runs of edited code."""

from __future__ import annotations

from typing import Any, NamedTuple

from uwf_git.base.errors import Invalid
from uwf_git.format.ids import Hash
from uwf_git.format.payloads import from_payload, to_payload

CALL, EDITED = "$call", "$edited"
"""The `name` of a call of code, and of a run of edited code; see `engine.calls`."""


class ThreadOrigin(NamedTuple):
    """The origin in a StartNode. Of a branch, `fork` is the StepNode of its fork, `item` its item, `name` what that is
    called in templates. It begins at `role`, "" for the start of its workflow, and ends at an edge to a role of
    `until`."""

    fork: Hash
    position: int
    name: str
    item: Any
    role: str = ""
    until: tuple[str, ...] = ()

    @property
    def is_call(self) -> bool:
        return self.name == CALL

    def payload(self) -> dict[str, Any]:
        payload = to_payload(self, always=("until",)) if self.role else to_payload(self._replace(until=()))
        payload["index"] = payload.pop("position")
        return payload


def parse_origin(payload: Any) -> ThreadOrigin:
    """Parse the origin in a StartNode. Raises Invalid."""
    try:
        return from_payload(ThreadOrigin, payload, position=payload["index"])
    except (KeyError, TypeError, AttributeError) as error:
        raise Invalid(f"a StartNode's branch has no valid {error}") from None
