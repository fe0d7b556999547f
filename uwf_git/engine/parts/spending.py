"""The budget as a part of a turn: no step begins once a limit is reached."""

from __future__ import annotations

from uwf_git.engine import budget
from uwf_git.engine.status import budget_before
from uwf_git.engine.turn.hooks import Part, Turn


class Spending(Part):
    def decide(self, turn: Turn) -> None:
        """Raises Waiting for a limit that is reached. `recording.record` settles what the step's detail raises."""
        standing = budget_before(turn.instance, turn.at.head, turn.role, turn.agent)
        if standing is not None and standing.reached is not None:
            raise budget.waiting(turn.thread, standing)
