"""Whose turn a step is, of a closed set on which the engine, verification and all else dispatch; whose is next."""

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from uwf_git.base.errors import UnknownWord
from uwf_git.format.ids import Hash
from uwf_git.format.types import (
    BUNDLE,
    END,
    FAIL,
    FORK,
    FORK_OUTPUT,
    JOIN,
    JOIN_OUTPUT,
    QUESTION,
    RESULT,
    USER,
)

if TYPE_CHECKING:
    from uwf_git.format.kinds import Role, Workflow


class Player(Enum):
    """Who plays a role: an agent, which `--agent` may replace, people, or nobody, since the engine makes its step."""

    AGENT = "agent"
    PEOPLE = "people"
    ENGINE = "engine"


class TurnRow(NamedTuple):
    """A kind of turn, whose room is the module `engine.turn.NAME`. `role` is the word that its steps have as their
    role, "" if a workflow's own roles are `of_role`; an edge leads to the word if it `is_target`. `outputs` are the
    types of a step's output. `begins_threads`: the thread then waits for those that the step began. `gathers_threads`:
    the step's commit stands on the last ones of such threads. `is_made_alike`: all who make the step make the same
    commit, so that nothing is lost with another's. `has_result`: its output may be the result of its thread."""

    name: str
    player: Player
    role: str = ""
    outputs: tuple[Hash, ...] = ()
    of_role: Callable[["Role"], bool] | None = None
    is_target: bool = False
    begins_threads: bool = False
    gathers_threads: bool = False
    is_made_alike: bool = False
    has_result: bool = True


class TurnKind(Enum):
    """Who makes a step. AGENT: a program, in its role. PERSON: a person, in their role or with an answer to a
    question. GATE: a quorum of a role's approvers. FORK, JOIN: the engine, for the branches of a fan-out. CALL: the
    code of a workflow, with the calls that it asks. END: the engine, at the end of a thread, which is no step. A role
    is of the first kind that it is `of_role`."""

    GATE = TurnRow("gate", Player.PEOPLE, of_role=lambda role: role.is_gate)
    PERSON = TurnRow("person", Player.PEOPLE, USER, of_role=lambda role: role.human, has_result=False)
    AGENT = TurnRow("agent", Player.AGENT, of_role=lambda role: True)
    FORK = TurnRow("fork", Player.ENGINE, FORK, (FORK_OUTPUT,), begins_threads=True, has_result=False)
    JOIN = TurnRow("join", Player.ENGINE, JOIN, (JOIN_OUTPUT,), gathers_threads=True, is_made_alike=True)
    CALL = TurnRow("call", Player.AGENT, BUNDLE)
    END = TurnRow("end", Player.ENGINE, END, (RESULT,), is_target=True)

    @property
    def player(self) -> Player:
        return self.value.player


BY_ROLE = {kind.value.role: kind for kind in TurnKind if kind.value.role}
"""The kinds whose steps have a word as their role, by that word."""
TARGETS = FAIL, *(role for role, kind in BY_ROLE.items() if kind.value.is_target)
"""The words besides roles to which an edge may lead."""


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


def turn_of(workflow: "Workflow", role: str) -> TurnKind:
    """Return whose turn a role is, by its workflow alone. Which roles of agents a person plays instead is for a
    machine's configuration to say. Raises UnknownWord for the word of no turn."""
    if workflow.code is not None and role != USER:
        return TurnKind.CALL
    if role in BY_ROLE:
        return BY_ROLE[role]
    if role.startswith("$"):
        raise UnknownWord(f"workflow {workflow.name}: no turn is called {role}", UnknownWord.WAY_OUT)
    definition = workflow.roles.get(role)
    if definition is None:
        return TurnKind.AGENT
    return next(kind for kind in TurnKind if kind.value.of_role and kind.value.of_role(definition))


def asks_agent(workflow: "Workflow", role: str) -> bool:
    """Return whether an agent plays a role of a workflow; False for one that the workflow doesn't have."""
    return role in workflow.roles and turn_of(workflow, role).player is Player.AGENT


def outputs_of(workflow: "Workflow", role: str) -> tuple[Hash, ...]:
    """Return the types of output that a role's step may have; of `$END` in a code workflow, its result's."""
    if role in BY_ROLE:
        return BY_ROLE[role].value.outputs
    return workflow.roles[role].schema, QUESTION


def is_engines(role: str | None) -> bool:
    """Return whether the engine makes a role's steps itself, without an agent, a person or a prompt."""
    kind = BY_ROLE.get(role or "", TurnKind.END)
    return kind is not TurnKind.END and kind.player is Player.ENGINE


def begins_threads(role: str | None) -> bool:
    return role in BY_ROLE and BY_ROLE[role].value.begins_threads


def gathers_threads(role: str | None) -> bool:
    return role in BY_ROLE and BY_ROLE[role].value.gathers_threads


def is_made_alike(role: str | None) -> bool:
    return role in BY_ROLE and BY_ROLE[role].value.is_made_alike


def has_result(role: str | None) -> bool:
    return role not in BY_ROLE or BY_ROLE[role].value.has_result
