"""`/diff/A/B`: two threads side by side after their last common step, with the code that each changed since, or the
difference of both."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from uwf_git.ext.web.code import CodeView, NumberedPatch, PatchedFile, code_of_step
from uwf_git.plugin import (
    COMPARED,
    Head,
    Instance,
    Page,
    PageRequest,
    ThreadState,
    code_of_both,
    code_since,
    compare_threads,
    thread_state,
)

OFFERED = 30


class PairedFile(NamedTuple):
    """A file that the first thread changed, the second, or both: None for one that didn't."""

    path: str
    sides: tuple[PatchedFile | None, PatchedFile | None]

    @property
    def is_open(self) -> bool:
        return all(file is None or file.is_open for file in self.sides)


class CodePair(NamedTuple):
    """The code of two threads, read when it is shown: what each changed since their last common step, None for one
    without code, and the difference from the first to the second, None if one has none."""

    sides: Sequence[CodeView | None]
    between: CodeView | None

    @property
    def is_same(self) -> bool:
        """Whether both have the same commit."""
        return len({side and side.revision.commit for side in self.sides}) == 1

    def patches(self, whole: bool) -> list[NumberedPatch]:
        """Return the numbered lines of either side, whose anchors differ."""
        patches = [side.numbered(whole) if side else NumberedPatch((), 0, "") for side in self.sides]
        return [patch._replace(name=f"{patch.name}{side}") for side, patch in zip("ab", patches, strict=True)]

    @staticmethod
    def files(patches: Sequence[NumberedPatch]) -> list[PairedFile]:
        """Return the files of either side by path."""
        one, other = ({file.path: file for file in patch.files} for patch in patches)
        return [PairedFile(path, (one.get(path), other.get(path))) for path in sorted({*one, *other})]


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
    titles = dict.fromkeys(side["title"] for side in view["sides"])
    return Page(
        "comparison.html",
        f"{' and '.join(titles)}, side by side",
        {
            **view,
            "code": _code(instance, heads),
            "keeps": _keeps(instance, heads) if view["sameStart"] and not view["same"] else {},
            "asked": request,
            "size": COMPARED,
            "others": _others(instance, heads[0]),
        },
    )


def _code(instance: Instance, heads: Sequence[Head]) -> CodePair:
    one, other = code_of_both(instance, heads)
    is_both = one is not None and other is not None
    return CodePair(
        [
            code_of_step(instance, head.thread, code)
            for head, code in zip(heads, code_since(instance, heads), strict=True)
        ],
        code_of_step(instance, heads[1].thread, other) if is_both else None,
    )


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
