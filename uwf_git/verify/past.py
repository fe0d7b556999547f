"""What a commit records, and the steps that led there: what the next one is held to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from uwf_git.store import layout
from uwf_git.store.index import CommitRow
from uwf_git.store.nodes import Store
from uwf_git.store.threads import Threads
from uwf_git.values.ids import Hash, ThreadId
from uwf_git.values.kinds import Start, StepContext, Workflow
from uwf_git.verify.objects import FOLDER, Objects
from uwf_git.verify.trees import row_of
from uwf_git.workflow.moderator import Decision, Replay, decide

_NO_THREAD = ThreadId("0" * 26)
_REDACTED = re.compile(r"\[redacted:[A-Za-z_][A-Za-z0-9_-]*\]")


class Record(NamedTuple):
    """What a commit records, as far as it could be read. `kind` as in layout.Trailers. `before` is the
    commit that it goes on from: of a step the step before or the start, of an attempt the attempt before.
    `head` is the head that an attempt was made on. `number` counts from 1. `decided` is False from where
    on the workflow can't say who is next; `row` is what an index keeps of the commit."""

    oid: bytes
    kind: str
    node: Hash
    tree: bytes
    before: bytes | None = None
    head: bytes | None = None
    number: int = 0
    start: Hash | None = None
    workflow: Hash | None = None
    step: StepContext | None = None
    trusted: bool = False
    decided: bool = True
    row: CommitRow | None = None


class Past:
    """The steps that lead to a head, oldest first: kept, as the next one to be checked goes on from it."""

    def __init__(self, store: Store) -> None:
        self._threads = Threads(store)
        self._at: bytes | None = None
        self._earlier: tuple[bytes, set[Hash]] | None = None
        self._replay: Replay | None = None
        self.steps: list[StepContext] = []
        self.hashes: set[Hash] = set()

    def decide(self, workflow: Workflow, start: Start) -> Decision:
        """Who is next after these steps. Raises as the moderator does."""
        if self._replay is None:
            self._replay = Replay(start, self.steps)
        return decide(workflow, start, self.steps, self._replay)

    def go_to(self, head: Record, known: Mapping[bytes, Record | None]) -> None:
        """Makes `steps` those that lead to a head, itself included."""
        if self._at == head.oid:
            return
        if head.before is not None and head.before == self._at and head.step is not None:
            self._append(head.step)
        else:
            self._rebuild(head, known)
        self._at = head.oid

    def _append(self, step: StepContext) -> None:
        self.steps.append(step)
        self.hashes.add(step.hash)

    def _rebuild(self, head: Record, known: Mapping[bytes, Record | None]) -> None:
        newest: list[StepContext] = []
        oldest: list[StepContext] = []
        at: Record | None = head
        while at is not None and at.step is not None:
            if at.trusted:
                # The id is for messages only, and these commits may belong to several threads.
                history = self._threads.history_at(_NO_THREAD, at.node)
                oldest = list(history.steps)
                break
            newest.append(at.step)
            at = known.get(at.before) if at.before else None
        self.steps = [*oldest, *reversed(newest)]
        self.hashes = {step.hash for step in self.steps}
        self._replay = None

    def earlier(self, head: Record, objects: Objects) -> set[Hash]:
        """The nodes in all step folders of a head's tree."""
        if self._earlier is None or self._earlier[0] != head.tree:
            row = row_of(objects, head.tree, "steps")
            found: set[Hash] = set()
            pending = [row[2]] if row is not None else []
            while pending:
                for mode, name, oid in objects.tree(pending.pop()):
                    if mode == FOLDER:
                        pending.append(oid)
                    elif node := layout.node_in_path(f"nodes/{name.decode('utf-8', 'replace')}"):
                        found.add(node)
            self._earlier = head.tree, found
        return self._earlier[1]


def is_instruction(said: str, expected: str | None, redacted: bool) -> bool:
    """Whether a detail's instruction is the one of the workflow, but for secrets that were taken out."""
    if said == expected:
        return True
    if expected is None or not redacted:
        return False
    at = 0
    pieces = _REDACTED.split(said)
    for number, piece in enumerate(pieces):
        found = expected.find(piece, at)
        if found < 0 or (number == 0 and found != 0):
            return False
        at = found + len(piece)
    return expected.endswith(pieces[-1])
