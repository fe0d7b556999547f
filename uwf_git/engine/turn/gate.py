"""A gate's turn: a role with approvers, whose step is made once a quorum of them agrees. The engine makes it of their
approvals; no agent does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uwf_git.base.errors import Absent
from uwf_git.engine.human_roles import gate_role
from uwf_git.engine.new_step import NewStep
from uwf_git.engine.performer import performer_of
from uwf_git.engine.turn.hooks import Room, Turn, Work
from uwf_git.format.kinds import REHEARSE
from uwf_git.format.types import PERSON

if TYPE_CHECKING:
    from uwf_git.engine.approving import Standing


class GateRoom(Room):
    """Records the vote of a turn that has one, and makes the step of the approvals."""

    def decide(self, turn: Turn) -> None:
        raise_if_made_up(turn)
        if turn.vote is None:
            from uwf_git.engine.approving import raise_if_unmet

            raise_if_unmet(_standing(turn), turn.thread)

    def complete(self, work: Work) -> NewStep | None:
        """Moves `refs/uwf/approvals/<ULID>` for a vote. Raises as `approving.approve`."""
        from uwf_git.engine.approving import approve, step_of

        standing, vote = _standing(work.turn), work.turn.vote
        if vote is not None:
            standing = approve(work.instance, work.at, work.turn.ahead, standing, vote.output, vote.words)
            if standing.tally.met is None:
                return None
        return step_of(work.instance, work.at, work.turn.ahead, standing)


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
    approvals = (step for step in history.steps if step.agent == REHEARSE and gate_role(history, step.role))
    step = next(approvals, None)
    if step is None or turn.role not in history.workflow.roles or history.workflow.is_persons(turn.role):
        return
    if performer_of(turn.instance, turn.at, turn.role, turn.agent)[0].command != REHEARSE:
        raise Absent(
            f"thread {turn.thread} is a rehearsal: the approvals of {step.role} are made up",
            "start another thread, or go on with --agent uwf-rehearse",
        )


def _standing(turn: Turn) -> Standing:
    from uwf_git.engine.approving import standing_at

    standing = standing_at(turn.instance, turn.at, turn.ahead)
    assert standing is not None  # of a role that has approvers
    return standing
