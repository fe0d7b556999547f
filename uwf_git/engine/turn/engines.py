"""Turns whose step the engine makes of the workflow's decision alone, in the same way on every machine."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from uwf_git.engine.new_step import NewStep, engines_step
from uwf_git.engine.turn.hooks import Room, Work


class EngineRoom(Room):
    """A room that says what the step's output is. The engine records it, and verification compares it."""

    @abstractmethod
    def output(self, instruction: str) -> Any:
        """Return the output, of the first type in the kind's row; `instruction` is the prompt of the edge."""

    def complete(self, work: Work) -> NewStep:
        text = work.turn.ahead.instruction or ""
        kind = work.turn.kind.value
        return engines_step(
            work.instance, work.at.history, work.role, kind.outputs[0], self.output(text), None
        )
