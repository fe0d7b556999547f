"""The table of turns: a room for each kind, and the parts that go along with it, in the order in which they act."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, assert_never

from uwf_git.engine.turn.agent import AgentRoom, Replacement
from uwf_git.engine.turn.branches import ForkRoom, JoinedCode, JoinRoom
from uwf_git.engine.turn.call import CallRoom
from uwf_git.engine.turn.end import EndRoom
from uwf_git.engine.turn.gate import GateRoom, is_rehearsed
from uwf_git.engine.turn.hooks import Part, Room, Turn
from uwf_git.engine.turn.limits import Budget, Policy
from uwf_git.engine.turn.person import PersonRoom, PersonsAnswer
from uwf_git.engine.turn.worktree import Worktree
from uwf_git.format.kinds import Workflow
from uwf_git.workflow.turn import TurnKind, turn_of


class Row(NamedTuple):
    """A kind of turn: its room, and its parts."""

    room: Room
    parts: tuple[Part, ...] = ()


_OF_ROLES = (Policy(), Budget(), Worktree(), PersonsAnswer(), Replacement())


def _row(kind: TurnKind) -> Row:
    match kind:
        case TurnKind.AGENT:
            return Row(AgentRoom(), _OF_ROLES)
        case TurnKind.PERSON:
            return Row(PersonRoom(), _OF_ROLES)
        case TurnKind.GATE:
            return Row(GateRoom(), (Budget(),))
        case TurnKind.FORK:
            return Row(ForkRoom(), (Budget(),))
        case TurnKind.JOIN:
            return Row(JoinRoom(), (JoinedCode(),))
        case TurnKind.CALL:
            return Row(CallRoom(), _OF_ROLES)
        case TurnKind.END:
            return Row(EndRoom())
        case _:
            assert_never(kind)


TURNS: Mapping[TurnKind, Row] = {kind: _row(kind) for kind in TurnKind}


def room_of(workflow: Workflow, role: str) -> Room:
    """Return the room of a role's turn, whatever goes along with it."""
    return TURNS[turn_of(workflow, role)].room


def row_of(turn: Turn) -> Row:
    """Return the row of a turn. A rehearsal plays a gate as an agent does."""
    kind = turn.kind
    if kind is TurnKind.GATE and turn.vote is None and is_rehearsed(turn):
        kind = TurnKind.AGENT
    return TURNS[kind]
