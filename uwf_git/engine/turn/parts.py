"""The small parts of turns, which forbid one before anything is asked or paid, or add to its step facts that only the
engine knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from uwf_git.engine.budget import budget_before
from uwf_git.engine.new_step import NewStep
from uwf_git.engine.turn.hooks import Part, Turn, Work
from uwf_git.format.ids import Hash
from uwf_git.format.kinds import HUMAN, Detail
from uwf_git.format.types import APPROVAL
from uwf_git.store.history import History
from uwf_git.store.instance import Instance
from uwf_git.store.new_record import new_step
from uwf_git.workflow.turn import Outlook


class Policy(Part):
    """The guards of the store."""

    def decide(self, turn: Turn) -> None:
        """Raises RequirementUnmet. `new_step.record` asks again, for the agent that made the step."""
        turn.instance.store.before_record(new_step(turn.at.history.workflow, turn.role))


class Budget(Part):
    """A budget that is used up."""

    def decide(self, turn: Turn) -> None:
        """Raises Waiting for a limit that is reached. `new_step.record` settles what the step's detail raises."""
        standing = budget_before(turn.instance, turn.at.head, turn.role, turn.agent)
        if standing is not None and standing.reached is not None:
            raise standing.waiting(turn.thread)


class PersonsAnswer(Part):
    """Adds to a person's step who gave the answer, in view of what; only the engine says so. The configuration may let
    a person play a role of agents."""

    def complete(self, work: Work, new: NewStep) -> NewStep:
        order, (_, history), instance = work.order, work.at, work.instance
        if order is None or order.command[:1] != (HUMAN,) or new.step.agent != HUMAN:
            return new
        detail = instance.store.detail(new.step.detail) if work.turn.is_mine else None
        if detail is None or history.workflow.code is not None:
            return new
        from uwf_git.store.pages import report_of

        store, step = instance.store, new.step
        reason = report_of(store.get(step.output).payload, store.get(step.detail))
        with store.registering():
            detail = with_person(
                detail, instance, history, work.turn.ahead, step.role, step.output, reason, store.draft
            )
        return new.with_detail(instance, detail)


def with_person(
    detail: Detail,
    instance: Instance,
    history: History,
    ahead: Outlook,
    role: str,
    output: Hash,
    reason: str = "",
    put: Callable[[Hash, Any], Hash] | None = None,
) -> Detail:
    """Return the detail of a person's answer with who gave it, in view of what: an Approval node, which `put`
    stores."""
    from uwf_git.approvals.gate import answered

    answer = answered(instance, history, ahead, role, output, reason)
    return detail._replace(approvals=((put or instance.store.put)(APPROVAL, answer.payload()),))
