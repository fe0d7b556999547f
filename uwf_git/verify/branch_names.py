"""Branches by their names: what uwf keeps on a branch so called."""

from __future__ import annotations

from typing import NamedTuple

from uwf_git.format.ids import ThreadId, is_thread_id
from uwf_git.store import layout, ref_kinds

HEADS = "refs/heads/"


class Branch(NamedTuple):
    """What is verified: a `name` for messages, and the branch's full name, "" for a commit of none. With `merged`, the
    commit may be what a forge would make of the branch, as in a checkout for a pull request. `at` is the ref here that
    leads to it, "" for none. `target` is the full name of the branch that it is to be merged into, "" if unknown."""

    name: str
    ref: str = ""
    merged: bool = False
    at: str = ""
    target: str = ""

    @property
    def purpose(self) -> str:
        """What uwf keeps on branches so named: "threads", "base", "proposals", "workflows", …; "" for others."""
        return self.ref.removeprefix(layout.BRANCHES).split("/", 1)[0] if self._is_ours else ""

    @property
    def named_after(self) -> str:
        """The thread or definition that the branch is called after, "" for none."""
        return self.ref.removeprefix(layout.BRANCHES).partition("/")[2] if self._is_ours else ""

    @property
    def thread(self) -> ThreadId | None:
        """The thread that the branch shows."""
        return (
            ThreadId(self.named_after)
            if self.purpose == "threads" and is_thread_id(self.named_after)
            else None
        )

    @property
    def shown_ref(self) -> str:
        """The ref of a store that the branch shows: that of its thread or definition, else a branch's name."""
        kind = next(
            (kind for kind in ref_kinds.versioned().values() if self.ref.startswith(kind.branches)), None
        )
        if kind is not None:
            return kind.prefix + self.ref.removeprefix(kind.branches)
        return layout.THREADS + self.thread if self.thread is not None else self.ref or f"{HEADS}{self.name}"

    @property
    def is_into_ours(self) -> bool:
        """Whether it is to be merged into a branch of a thread or definition."""
        return self.target.startswith(layout.BRANCHES)

    @property
    def _is_ours(self) -> bool:
        return self.ref.startswith(layout.BRANCHES)
