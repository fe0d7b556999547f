"""What forbids a turn before anything is asked or paid, as parts of it: the guards of the store, and a budget that is
used up."""

from __future__ import annotations

from uwf_git.engine.budget import budget_before
from uwf_git.engine.turn.hooks import Part, Turn
from uwf_git.store.new_record import new_step


class Policy(Part):
    def decide(self, turn: Turn) -> None:
        """Raises RequirementUnmet. `recording.record` asks again, for the agent that made the step."""
        turn.instance.store.before_record(new_step(turn.at.history.workflow, turn.role))


class Budget(Part):
    def decide(self, turn: Turn) -> None:
        """Raises Waiting for a limit that is reached. `recording.record` settles what the step's detail raises."""
        standing = budget_before(turn.instance, turn.at.head, turn.role, turn.agent)
        if standing is not None and standing.reached is not None:
            raise standing.waiting(turn.thread)
