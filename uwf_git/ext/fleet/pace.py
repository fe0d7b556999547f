"""How long steps take. An activity costs several times what a quick step does, so it makes several of them; a step
that takes its time has an activity of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from uwf_git.plugin import Hash

QUICK = 0.5
"""Seconds that a quick step takes at most."""
SEQUENCE = 1.0
"""Seconds from the first step of an activity, after which it begins no other."""
ASK_INTERVAL = 0.2
"""Seconds within these after which a worker asks whether the thread is still wanted."""


class Turn(NamedTuple):
    """A role of a workflow, and the command of its agent, "" for none."""

    workflow: Hash
    role: str
    agent: str


class Pace:
    """Which turns are probably quick: those whose role's last step was; before its first one, whose agent's was."""

    def __init__(self) -> None:
        self._roles: dict[tuple[Hash, str], bool] = {}
        self._agents: dict[str, bool] = {}

    def note(self, turn: Turn, seconds: float) -> None:
        self._roles[turn.workflow, turn.role] = self._agents[turn.agent] = seconds <= QUICK

    def is_quick(self, turn: Turn) -> bool:
        return self._roles.get((turn.workflow, turn.role), self._agents.get(turn.agent, False))
