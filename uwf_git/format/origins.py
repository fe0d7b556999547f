"""Threads that a step of another one began, as their StartNode says: branches, calls of code, runs of edited code."""

from __future__ import annotations

from typing import Any, NamedTuple

from uwf_git.base.errors import Invalid
from uwf_git.format.ids import Hash

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
        payload: dict[str, Any] = {
            "fork": self.fork, "index": self.position, "name": self.name, "item": self.item,
        }  # fmt: skip
        if self.role:
            payload |= {"role": self.role, "until": list(self.until)}
        return payload


def parse_origin(payload: Any) -> ThreadOrigin:
    """Parse the origin in a StartNode. Raises Invalid."""
    try:
        return ThreadOrigin(
            Hash(payload["fork"]),
            payload["index"],
            payload["name"],
            payload["item"],
            payload.get("role", ""),
            tuple(payload.get("until", ())),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise Invalid(f"a StartNode's branch has no valid {error}") from None
