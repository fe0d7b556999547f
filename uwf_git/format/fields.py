"""Reading the fields of a document: problems are reported with their position, and the rest is read. Keys
beginning with `x-` are free for anchors and notes."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from uwf_git.base.text import one_line
from uwf_git.format.findings import Findings
from uwf_git.format.schema import ValuePath


class Fields:
    """Reads the fields of one document into values and findings."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings

    def meant(self, kind: str, key: str, given: Collection[str]) -> str | None:
        """Return the key that an unknown one usually stands for, unless it is `given`."""
        return None

    def hint(self, kind: str, key: str, meant: str | None, known: Collection[str]) -> str:
        """Return the hint for an unknown key, usually ""."""
        return ""

    def mapping(
        self,
        value: Any,
        path: ValuePath,
        what: str,
        known: tuple[str, ...],
        kind: str = "",
        wanted: str = "a mapping",
        hint: str = "",
    ) -> dict[str, Any] | None:
        """Return the mapping at a path. An unknown key that probably means a missing one is read as that, so
        one typo is one finding."""
        if not isinstance(value, dict):
            self.wrong_type(path, what, wanted, value, hint)
            return None
        read = dict(value)
        for key, item in own_items(value):
            if key in known:
                continue
            habit = self.meant(kind, key, read)
            unread = [name for name in known if name not in read]
            meant = (
                habit if habit in known else self._findings.closest(key, unread) if habit is None else None
            )
            if meant is not None and meant not in read:
                read[meant] = item
                self._findings.reads((*path, meant), (*path, key))
            renamed = f"here it is {meant}:" if meant is not None and meant == habit else ""
            self._findings.key_error(
                (*path, key),
                "unknown-key",
                f'{what} has no key "{key}"',
                renamed
                or self.hint(kind, key, habit, known)
                or self._findings.nearest(key, known)
                or "known: " + ", ".join(known),
            )
        return read

    def text(
        self,
        data: dict[str, Any],
        path: ValuePath,
        key: str,
        what: str,
        hint: str = "",
        may_be_empty: bool = False,
    ) -> str | None:
        """Return a required text; None with a finding if it is missing."""
        if key not in data:
            self._findings.key_error(path, "missing-key", f"{what} has no {key}", hint or f"add {key}:")
            return None
        value = data[key]
        if not isinstance(value, str):
            self.wrong_type((*path, key), f"{what}: {key}", "text", value)
            return None
        if not value.strip() and not may_be_empty:
            self._findings.error((*path, key), "empty-text", f"{what}: {key} is empty", hint)
            return None
        return value

    def texts(self, data: dict[str, Any], path: ValuePath, key: str, what: str) -> list[str]:
        value = data[key]
        if not isinstance(value, list):
            self.wrong_type((*path, key), f"{what}: {key}", "a list of texts", value)
            return []
        for number, item in enumerate(value):
            if not isinstance(item, str):
                self.wrong_type((*path, key, number), f"{what}: an item of {key}", "text", item)
        return value

    def wrong_type(self, path: ValuePath, what: str, wanted: str, value: Any, hint: str = "") -> None:
        raw = self._findings.raw(path)
        if wanted == "text" and raw:
            hint = hint or f'quote it: "{one_line(raw, 60)}"'
        message = f"{what} must be {wanted}, not {kind_of(value)}"
        # Nothing has no useful position: point at the key.
        (self._findings.key_error if value is None else self._findings.error)(
            path, "wrong-type", message, hint
        )


def kind_of(value: Any) -> str:
    """Return a value's kind in YAML terms: "nothing", "a mapping", …"""
    if value is None:
        return "nothing"
    for kind, word in ((bool, "a boolean"), (str, "text"), (dict, "a mapping"), (list, "a list")):
        if isinstance(value, kind):
            return word
    return "a number"


def own_items(mapping: dict[str, Any]) -> Iterable[tuple[str, Any]]:
    """Yield a mapping's items without `x-` keys."""
    return [(key, value) for key, value in mapping.items() if not key.startswith("x-")]
