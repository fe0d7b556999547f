"""The table of turns: a room for each kind, and the parts that go along with it, in the order in which they act."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from uwf_git.engine.turn.agent import AgentRoom, Replacement
from uwf_git.engine.turn.branches import ForkRoom, JoinedCode, JoinRoom
from uwf_git.engine.turn.call import CallRoom
from uwf_git.engine.turn.end import EndRoom
from uwf_git.engine.turn.gate import GateRoom, is_rehearsed
from uwf_git.engine.turn.hooks import Part, Room, Turn
from uwf_git.engine.turn.limits import Budget, Policy
from uwf_git.engine.turn.person import PersonRoom, PersonsAnswer
from uwf_git.engine.turn.worktree import Worktree
from uwf_git.workflow.turn import TurnKind


class Row(NamedTuple):
    """A kind of turn: its room, and its parts."""

    room: Room
    parts: tuple[Part, ...] = ()


_OF_ROLES = (Policy(), Budget(), Worktree(), PersonsAnswer(), Replacement())

TURNS: Mapping[TurnKind, Row] = {
    TurnKind.AGENT: Row(AgentRoom(), _OF_ROLES),
    TurnKind.PERSON: Row(PersonRoom(), _OF_ROLES),
    TurnKind.GATE: Row(GateRoom(), (Budget(),)),
    TurnKind.FORK: Row(ForkRoom(), (Budget(),)),
    TurnKind.JOIN: Row(JoinRoom(), (JoinedCode(),)),
    TurnKind.CALL: Row(CallRoom(), _OF_ROLES),
    TurnKind.END: Row(EndRoom()),
}


def row_of(turn: Turn) -> Row:
    """Return the row of a turn. A rehearsal plays a gate as an agent does."""
    kind = turn.kind
    if kind is TurnKind.GATE and turn.vote is None and is_rehearsed(turn):
        kind = TurnKind.AGENT
    return TURNS[kind]
