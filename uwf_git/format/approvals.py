"""Nodes of approvals and revocations, with the parts of what a person was shown, and its digest.

    part      a name, and the SHA-256 of the part's bytes
    digest    the SHA-256 of a line `<name> <sha256>` for each part, in the order of SHOWN_PARTS

`approvals.shown` makes the bytes.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any, NamedTuple

from uwf_git.format.ids import Hash
from uwf_git.format.kinds import Identity
from uwf_git.format.node import Node
from uwf_git.format.payloads import from_payload, to_payload
from uwf_git.format.types import is_kind

UNSEEN = "without having seen the code"
"""Said of an approval that `is_unseen`."""


class Part(NamedTuple):
    """A part of what was shown. `commit` is that of code."""

    name: str
    sha256: str
    commit: str = ""


class Shown(NamedTuple):
    """What was shown, by its parts."""

    parts: tuple[Part, ...]

    @property
    def digest(self) -> str:
        lines = "".join(f"{part.name} {part.sha256}\n" for part in self.parts)
        return sha256(lines.encode("ascii")).hexdigest()

    @property
    def without_diff(self) -> tuple[Part, ...]:
        """The parts that follow from the thread alone."""
        return tuple(part for part in self.parts if part.name != "diff")

    def payload(self) -> dict[str, Any]:
        return {"digest": self.digest, "of": list(map(to_payload, self.parts))}


class Approval(NamedTuple):
    """An Approval node. `prev` is the step that was the head, None at the start; `at` is in Unix seconds. The
    `digest` is the one that the node has."""

    start: Hash
    prev: Hash | None
    role: str
    output: Hash
    by: Identity
    shown: Shown
    at: int
    reason: str = ""
    digest: str = ""

    @property
    def is_unseen(self) -> bool:
        """Whether the code that it is about was not shown, since it was not on the person's machine."""
        names = {part.name for part in self.shown.parts}
        return "code" in names and "diff" not in names

    def payload(self) -> dict[str, Any]:
        return to_payload(self._replace(digest=""))


class Revocation(NamedTuple):
    """A Revocation node: its person takes an approval back. `at` is in Unix seconds."""

    approval: Hash
    by: Identity
    at: int
    reason: str = ""

    def payload(self) -> dict[str, Any]:
        return to_payload(self)


def parse_approval(payload: Any) -> Approval:
    """Parse a valid Approval payload."""
    shown = payload["shown"]
    parts = tuple(from_payload(Part, part) for part in shown["of"])
    by = from_payload(Identity, payload["by"])
    return from_payload(Approval, payload, by=by, shown=Shown(parts), digest=shown["digest"])


def parse_revocation(payload: Any) -> Revocation:
    """Parse a valid Revocation payload."""
    return from_payload(Revocation, payload, by=from_payload(Identity, payload["by"]))


def parse_record(content: Node) -> Approval | Revocation:
    """Parse an Approval or Revocation node."""
    is_approval = is_kind(content.type, "approval")
    return parse_approval(content.payload) if is_approval else parse_revocation(content.payload)
