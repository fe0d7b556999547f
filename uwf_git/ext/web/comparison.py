"""`/diff/A/B`: two threads side by side after their last common step, and the difference of their code."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple

from uwf_git.ext.web.code import CodeView, code_of_step
from uwf_git.plugin import (
    COMPARED,
    Head,
    Instance,
    Page,
    PageRequest,
    ThreadState,
    code_of_both,
    compare_threads,
    thread_state,
)

OFFERED = 30


class Drop(NamedTuple):
    """A fork that is dropped if another is kept, at the head that is shown."""

    thread: str
    head: str
    said: str


class Keep(NamedTuple):
    """A fork that may be kept, the `other` that is killed then, and further ones that may be."""

    thread: str
    other: Drop
    further: Sequence[Drop]

    @property
    def reason(self) -> str:
        return f"another fork was kept: {self.thread}"

    @property
    def command(self) -> str:
        return shlex.join(["uwf", "thread", "kill", self.other.thread, "--reason", self.reason])


def page(instance: Instance, request: PageRequest) -> Page:
    """Show the comparison. Threads are in the path or `a` and `b` in the query; `from` skips rows. Raises
    NotFound, Usage."""
    names = [request.parts.get(side) or request.one(side) for side in ("a", "b")]
    if not all(names):
        return _choice(instance, next(filter(None, names), ""))
    heads = [instance.threads.head(instance.threads.find(name)) for name in names]
    view = compare_threads(instance, heads, request.number("from"))
    return Page(
        "comparison.html",
        f"{view['sides'][0]['title']} and {view['sides'][1]['title']}",
        {
            **view,
            **_code(instance, heads),
            "keeps": _keeps(instance, heads) if view["sameStart"] and not view["same"] else {},
            "asked": request,
            "size": COMPARED,
            "others": _others(instance, heads[0]),
        },
    )


def _code(instance: Instance, heads: list[Head]) -> dict[str, Any]:
    """Return the difference of the threads' code, read when it is shown, or the side that has none."""
    one, other = code_of_both(instance, heads)
    code: CodeView | None = None
    if one is not None and other is not None:
        code = code_of_step(instance, heads[1].thread, other)
    lacking = heads[1].thread if one is not None and other is None else ""
    return {
        "code": code,
        "lacking": lacking or (heads[0].thread if other is not None and one is None else ""),
    }


def _keeps(instance: Instance, heads: Sequence[Head]) -> dict[str, Keep]:
    """Return what keeping either fork drops, for those that may be kept: the other has not ended."""
    shown = [head.thread for head in heads]
    open_ones = (head for head in instance.threads.meant() if isinstance(head, Head) and not head.archive)
    further = (
        head for head in open_ones if head.row.start == heads[0].row.start and head.thread not in shown
    )
    drops = [_drop(head) for head in islice(further, OFFERED)]
    return {
        head.thread: Keep(head.thread, _drop(other), drops)
        for head, other in (heads, heads[::-1])
        if other.archive is None
        and (head.archive is None or thread_state(instance, head) is not ThreadState.KILLED)
    }


def _drop(head: Head) -> Drop:
    return Drop(head.thread, head.node, head.row.title or head.thread)


def _choice(instance: Instance, name: str) -> Page:
    head = instance.threads.head(instance.threads.find(name)) if name else None
    return Page(
        "comparison.html",
        "Compare threads",
        {"sides": [], "chosen": head, "others": _others(instance, head), "asked": PageRequest({})},
    )


def _others(instance: Instance, head: Head | None) -> list[dict[str, str]]:
    heads = [item for item in instance.threads.meant(archived=True) if isinstance(item, Head)]
    if head is not None:
        row, thread = head.row, head.thread
        heads = [item for item in heads if item.thread != thread]
        heads.sort(key=lambda entry: (entry.row.start != row.start, entry.row.name != row.name))
    return [
        {"thread": item.thread, "said": f"{item.row.title or item.thread} · {item.row.name}"}
        for item in heads[:OFFERED]
    ]
