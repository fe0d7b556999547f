"""Whose turn a step is, of a closed set on which the engine, verification and all else dispatch; whose is next."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, assert_never

from uwf_git.format.kinds import Workflow
from uwf_git.format.types import BUNDLE, END, FAIL, FORK, JOIN, USER

if TYPE_CHECKING:
    from uwf_git.workflow.moderator import Decision


class Player(Enum):
    """Who plays a role: an agent, which `--agent` may replace, people, or nobody, since the engine makes its step."""

    AGENT = "agent"
    PEOPLE = "people"
    ENGINE = "engine"


class TurnKind(Enum):
    """Who makes a step. AGENT: a program, in its role. PERSON: a person, in their role or with an answer to a
    question. GATE: a quorum of a role's approvers. FORK, JOIN: the engine, for the branches of a fan-out. CALL: the
    code of a workflow, with the calls that it asks. END: the engine, at the end of a thread, which is no step."""

    AGENT = "agent"
    PERSON = "person"
    GATE = "gate"
    FORK = "fork"
    JOIN = "join"
    CALL = "call"
    END = "end"

    @property
    def player(self) -> Player:
        match self:
            case TurnKind.AGENT | TurnKind.CALL:
                return Player.AGENT
            case TurnKind.PERSON | TurnKind.GATE:
                return Player.PEOPLE
            case TurnKind.FORK | TurnKind.JOIN | TurnKind.END:
                return Player.ENGINE
            case _:
                assert_never(self)


class Outlook(NamedTuple):
    """The next turn at a head: a role, `$END`, `$USER` for a question, `$BUNDLE` for a code workflow, or None
    with the problem if no edge applies. `instruction` and `location` belong to a role; `question`, `options`,
    `reason` and the asking role `asks` to `$USER`. At `$END`, `failed` says that the workflow ended at `$FAIL`, for
    the `reason`."""

    next: str | None
    instruction: str | None = None
    location: str | None = None
    asks: str | None = None
    question: str | None = None
    options: tuple[str, ...] = ()
    reason: str | None = None
    problem: str | None = None
    hint: str = ""
    failed: bool = False

    @property
    def shown(self) -> str | None:
        """What the pages show as next: a role, $END or $FAIL."""
        return FAIL if self.failed else self.next


def turn_of(workflow: Workflow, role: str) -> TurnKind:
    """Return whose turn a role is, by its workflow alone. Which roles of agents a person plays instead is for a
    machine's configuration to say."""
    if role == USER:
        return TurnKind.PERSON
    if workflow.code is not None or role == BUNDLE:
        return TurnKind.CALL
    if role == END:
        return TurnKind.END
    if role == FORK:
        return TurnKind.FORK
    if role == JOIN:
        return TurnKind.JOIN
    return _of_role(workflow, role)


def _of_role(workflow: Workflow, role: str) -> TurnKind:
    definition = workflow.roles.get(role)
    if definition is not None and definition.approvers:
        return TurnKind.GATE
    return TurnKind.PERSON if workflow.is_persons(role) else TurnKind.AGENT


def asks_agent(workflow: Workflow, role: str) -> bool:
    """Return whether an agent plays a role of a workflow; False for one that the workflow doesn't have."""
    return role in workflow.roles and turn_of(workflow, role).player is Player.AGENT


def turn_called(workflow: Workflow, decision: Decision) -> TurnKind:
    """Return whose turn a decision of the moderator calls for."""
    from uwf_git.workflow.moderator import (
        AwaitingAnswer,
        AwaitingBranches,
        DecidedByCode,
        FansOut,
        Next,
        WorkflowEnded,
    )

    match decision:
        case Next():
            return _of_role(workflow, decision.role)
        case AwaitingAnswer():
            return TurnKind.PERSON
        case FansOut():
            return TurnKind.FORK
        case AwaitingBranches():
            return TurnKind.JOIN
        case DecidedByCode():
            return TurnKind.CALL
        case WorkflowEnded():
            return TurnKind.END
        case _:
            assert_never(decision)
