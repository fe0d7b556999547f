"""A step before it is in its thread: the value, and the rules that hold when it is recorded and when it is verified."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.format.ids import Hash
from uwf_git.format.kinds import Detail, Revision, Step
from uwf_git.format.types import (
    DETAIL,
    STEPNODE,
    UWF,
    is_kind,
)
from uwf_git.git.repository import Oid

if TYPE_CHECKING:
    from uwf_git.store.history import History
    from uwf_git.store.instance import Instance


class NewStep(NamedTuple):
    """A StepNode that isn't in its thread yet: its hash, and its payload. `merged` are the further parents of its
    commit."""

    node: Hash
    step: Step
    merged: tuple[Oid, ...] = ()

    def with_detail(self, instance: Instance, detail: Detail) -> NewStep:
        """Return the step with another detail. Both nodes become drafts of the store."""
        store = instance.store
        with store.registering():
            step = self.step._replace(detail=store.draft(DETAIL, detail.payload()))
            return self._replace(node=store.draft(STEPNODE, step.payload()), step=step)


def engines_step(
    instance: Instance,
    history: History,
    role: str,
    type_hash: Hash,
    output: Any,
    code: Revision | None,
    when: int | None = None,
) -> NewStep:
    """Store a StepNode of the engine's own that is the same on every machine; given `when`, Unix milliseconds, its
    file is so too."""
    store = instance.store
    with store.registering():
        said = Detail("", context=history.head, code=code)
        step = Step(
            history.start_hash,
            history.prev,
            role,
            store.draft(type_hash, output, when),
            store.draft(DETAIL, said.payload(), when),
            UWF,
        )
        return NewStep(store.draft(STEPNODE, step.payload(), when), step)


def detail_problems(
    detail: Detail, head: Hash, instruction: str | None, type_of: Callable[[Hash], Hash]
) -> Iterator[str]:
    """Yield what is wrong with the detail of a step or an attempt that was made on a head, for which the workflow has
    an `instruction`, if any."""
    for turn in detail.turns:
        if not is_kind(type_of(turn), "turn"):
            yield f"the detail names node {turn} as a turn, which is none"
    if detail.kept is not None and not is_kind(type_of(detail.kept), "session"):
        yield f"the detail names node {detail.kept} as a session, which is none"
    said = detail.instruction
    if said is not None and not _is_instruction(said, instruction, bool(detail.redactions)):
        yield "the detail's instruction is not the one of the workflow"
    if detail.context is not None and detail.context != head:
        yield f"the detail's context is {detail.context}, the head was {head}"


def _is_instruction(text: str, expected: str | None, is_redacted: bool) -> bool:
    """Return whether a detail's instruction is the workflow's, except for redacted secrets."""
    if text == expected:
        return True
    if expected is None or not is_redacted:
        return False
    from uwf_git.config.secrets import REDACTED  # whose patterns take time to compile

    at = 0
    pieces = REDACTED.split(text)
    for number, piece in enumerate(pieces):
        place = expected.find(piece, at)
        if place < 0 or (number == 0 and place != 0):
            return False
        at = place + len(piece)
    return expected.endswith(pieces[-1])
