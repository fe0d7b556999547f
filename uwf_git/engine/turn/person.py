"""A person's turn: in their role they are asked as an agent is; a question waits for their answer."""

from __future__ import annotations

from uwf_git.base.errors import Waiting
from uwf_git.engine.turn.agent import AgentRoom
from uwf_git.engine.turn.hooks import Turn
from uwf_git.format.types import USER


class PersonRoom(AgentRoom):
    def decide(self, turn: Turn) -> None:
        if turn.role == USER:
            raise Waiting(
                f"thread {turn.thread} waits for an answer: {turn.ahead.question}",
                f"uwf thread answer {turn.thread} -m TEXT",
            )
        super().decide(turn)


ROOM = PersonRoom()
