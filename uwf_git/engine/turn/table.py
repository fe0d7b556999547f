"""The rooms of the kinds of turns: each is `ROOM` of the module that has the kind's name."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module

from uwf_git.engine.turn.hooks import Room, Turn
from uwf_git.format.kinds import Workflow
from uwf_git.workflow.turn import TurnKind, turn_of


@cache
def room_for(kind: TurnKind) -> Room:
    room = import_module(f"{__package__}.{kind.value.name}").ROOM
    assert isinstance(room, Room)
    return room


def rooms() -> Iterator[Room]:
    return map(room_for, TurnKind)


def room_of(workflow: Workflow, role: str) -> Room:
    """Return the room of a role's turn, whatever goes along with it."""
    return room_for(turn_of(workflow, role))


def room_of_turn(turn: Turn) -> Room:
    """Return the room of a turn. A rehearsal plays a gate as an agent does."""
    if turn.kind is TurnKind.GATE and turn.vote is None:
        from uwf_git.engine.turn.gate import is_rehearsed

        if is_rehearsed(turn):
            return room_for(TurnKind.AGENT)
    return room_for(turn.kind)
