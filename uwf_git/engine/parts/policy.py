"""The trust policy as a part of a turn: whoever may not make a step is told before anything is asked or paid."""

from __future__ import annotations

from uwf_git.engine.turn.hooks import Part, Turn
from uwf_git.trust.ability import raise_if_unable_to_step


class Policy(Part):
    def decide(self, turn: Turn) -> None:
        """Raises RequirementUnmet. `recording.record` asks again, for the agent that made the step."""
        raise_if_unable_to_step(turn.instance, turn.at.history.workflow, turn.role)
