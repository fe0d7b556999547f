"""Results of `uwf doctor`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from uwf_git.git.repository import Oid
from uwf_git.verify.damage import DamagedRef

OK, WARNING, ERROR = "ok", "warning", "error"
"""The statuses of a check."""


class Check(NamedTuple):
    """One result. `status` is ok, warning or error; `damaged` means that the store lost something; `more` is
    added to the JSON."""

    check: str
    status: str
    message: str
    hint: str = ""
    damaged: bool = False
    more: Mapping[str, Any] = MappingProxyType({})

    def as_json(self) -> dict[str, Any]:
        """Return the JSON object; `damaged` affects the exit status."""
        value = {"check": self.check, "status": self.status, "message": self.message, "hint": self.hint}
        return {**value, **self.more}


def hurt_check(check: str, hurt: DamagedRef, objects: Mapping[Oid, str], hint: str) -> Check:
    """Return a failed check for what a ref is missing."""
    lost = sorted((str(oid), reason) for oid, reason in objects.items() if oid.raw in hurt.objects)
    first = f"object {lost[0][0]} is damaged: {lost[0][1]}" if lost else "it cannot be read"
    others = f", and {len(lost) - 1} more" if len(lost) > 1 else ""
    more = {
        "ref": hurt.ref,
        "thread": hurt.thread,
        "title": hurt.title or None,
        "step": hurt.step,
        "objects": [oid for oid, _ in lost],
    }
    return Check(check, ERROR, f"{hurt.what} cannot be read: {first}{others}", hint, True, more)
