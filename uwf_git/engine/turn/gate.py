"""A gate's turn: a role with approvers, whose step is made once a quorum of them agrees. The engine makes it of their
approvals; no agent does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uwf_git.base.errors import Absent
from uwf_git.engine import budget
from uwf_git.engine.kit.format import render_frontmatter
from uwf_git.engine.new_step import NewStep
from uwf_git.engine.performer import performer_of
from uwf_git.engine.turn.hooks import Room, Turn, Work
from uwf_git.engine.turn.parts import Budget
from uwf_git.format.ids import ThreadId
from uwf_git.format.kinds import HUMAN, REHEARSE, Detail, Step
from uwf_git.format.types import DETAIL, PERSON, STEPNODE
from uwf_git.store.history import Head, History, Position
from uwf_git.workflow.turn import Outlook, TurnKind, turn_of

if TYPE_CHECKING:
    from uwf_git.approvals.judgement import Standing
    from uwf_git.store.instance import Instance


class GateRoom(Room):
    """Records the vote of a turn that has one, and makes the step of the approvals."""

    parts = (Budget(),)

    def decide(self, turn: Turn) -> None:
        raise_if_made_up(turn)
        if turn.vote is None:
            _standing(turn).raise_if_unmet(turn.thread)

    def complete(self, work: Work) -> NewStep | None:
        """Moves `refs/uwf/approvals/<ULID>` for a vote. Raises as `approvals.gate.approve`."""
        from uwf_git.approvals.gate import approve

        standing, vote = _standing(work.turn), work.turn.vote
        if vote is not None:
            standing = approve(work.instance, work.at, work.turn.ahead, standing, vote.output, vote.words)
            if not standing.is_met:
                return None
        return _step_of(work.instance, work.at, work.turn.ahead, standing)

    def remark(self, thread: ThreadId) -> None:
        """Anything may be said before."""


def is_rehearsed(turn: Turn) -> bool:
    """Return whether a rehearsal plays a gate: all steps before are made up too, or people's. Raises Usage for one
    that was to go on from real steps."""
    config, _ = performer_of(turn.instance, turn.at, turn.role, turn.agent)
    return config.command == REHEARSE and all(
        step.agent in (REHEARSE, PERSON) for step in turn.at.history.steps
    )


def raise_if_made_up(turn: Turn) -> None:
    """Raise Absent if a rehearsal made approvals up, and something real would go on from them."""
    history = turn.at.history
    approvals = (step for step in history.steps if step.agent == REHEARSE and _is_gate(history, step.role))
    step = next(approvals, None)
    if step is None or turn.role not in history.workflow.roles or history.workflow.is_persons(turn.role):
        return
    if performer_of(turn.instance, turn.at, turn.role, turn.agent)[0].command != REHEARSE:
        raise Absent(
            f"thread {turn.thread} is a rehearsal: the approvals of {step.role} are made up",
            "start another thread, or go on with --agent uwf-rehearse",
        )


def ballot_at(instance: Instance, at: Position, ahead: Outlook) -> Standing | None:
    """Return how the answer at a position stands, None if it isn't a gate's turn."""
    if ahead.next is None or not _is_gate(at.history, ahead.next):
        return None
    from uwf_git.approvals.gate import standing_at

    return standing_at(instance, at, ahead)


def is_met(instance: Instance, head: Head, ahead: Outlook) -> bool:
    """Return whether a gate at a head has its approvals."""
    from uwf_git.approvals.records import Approvals

    if Approvals(instance.store).tip(head.thread) is None:
        return False
    ballot = ballot_at(instance, instance.threads.position(head), ahead)
    return ballot is not None and ballot.is_met


def revoke(turn: Turn, reason: str) -> Standing:
    """Take the user's vote at a gate back, and return how it stands then. Moves and raises as `take_back`."""
    from uwf_git.approvals.gate import take_back

    return take_back(turn.instance, turn.at, ballot_at(turn.instance, turn.at, turn.ahead), reason)


def _is_gate(history: History, role: str) -> bool:
    return turn_of(history.workflow, role) is TurnKind.GATE


def _standing(turn: Turn) -> Standing:
    standing = ballot_at(turn.instance, turn.at, turn.ahead)
    assert standing is not None
    return standing


def _step_of(instance: Instance, at: Position, outlook: Outlook, standing: Standing) -> NewStep:
    """Return the step that a quorum agrees on. Its commit stands on the newest of the thread's approvals."""
    from uwf_git.approvals.records import Approvals

    side = standing.met
    assert side is not None
    thread, store, first = at.head.thread, instance.store, side.approvals[0].approval
    tip = Approvals(store).tip(thread)
    assert tip is not None
    draft = Detail(
        answer=render_frontmatter(standing.payload_of(first.output), first.reason),
        instruction=outlook.instruction,
        context=at.head.node,
        budget=budget.pending(instance, thread) or None,
        approvals=tuple(approval.record.hash for approval in side.approvals),
    )
    instruction, secrets = instance.redactor.text(draft.instruction or "")
    if secrets:
        draft = draft._replace(instruction=instruction, redactions=(("instruction", secrets),))
    with store.registering():
        detail = store.put(DETAIL, draft.payload())
        step = Step(
            at.history.start_hash, at.history.prev, standing.gate.role.name, first.output, detail, HUMAN
        )
        return NewStep(store.put(STEPNODE, step.payload()), step, (tip,))


ROOM = GateRoom()
