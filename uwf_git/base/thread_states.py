"""The states of a thread: one table, from which commands, pages, MCP, fleets, hooks, `wait`, evaluation, completion and
the documents take their words, colours, groups and exit statuses.

A state is a member of `ThreadState`, whose value is its row. Code passes states and compares them with `is` or `match`;
a `match` over all of them ends in `assert_never`, so that a new row is a type error where one forgot it. A state
becomes its word where JSON or text is written, and a word becomes states where input is parsed, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, unique
from typing import NamedTuple

from uwf_git.base import errors


class Actor(Enum):
    """Who has to act before a thread goes on."""

    AGENT = "its next step"
    PROCESS = "the process at work on it"
    BRANCHES = "its branches"
    PERSON = "a person"
    NOBODY = "nobody"


class Group(Enum):
    """The tabs in which the pages list threads, in their order."""

    WAITING = "waiting"
    RUNNING = "running"
    FAILED = "failed"
    DONE = "done"


class StateRow(NamedTuple):
    """A state's properties. `word` is the status in JSON and of `--status`; states that share one differ in why the
    thread rests. `meaning` is for the documents, `sentence` for a page that changes. `error` is raised by `wait`, and
    has its exit status; None only for the end that was asked for. `colour` is one of the terminal's, `hook` the event
    of `hooks` that follows. `label` is the word for people, and `in_queue` that in a fleet's queue, "" for `word`."""

    word: str
    meaning: str
    sentence: str
    error: type[errors.UwfError] | None
    actor: Actor
    group: Group
    colour: str = ""
    hook: str = ""
    is_ended: bool = False
    label: str = ""
    in_queue: str = ""


_WAITS = "it waits for you"


@unique
class ThreadState(Enum):
    IDLE = StateRow(
        "idle",
        "its next step can be made",
        "no agent is working on it",
        errors.NotRunning,
        Actor.AGENT,
        Group.RUNNING,
    )
    STUCK = StateRow(
        "idle",
        "no edge matches its last output",
        "it cannot continue",
        errors.NoTransition,
        Actor.PERSON,
        Group.RUNNING,
        hook="failed",
    )
    RUNNING = StateRow(
        "running",
        "a step is in progress",
        "an agent is working on it",
        errors.NotRunning,
        Actor.PROCESS,
        Group.RUNNING,
        colour="blue",
    )
    PAUSED = StateRow(
        "paused",
        "a person paused it",
        "it is paused",
        errors.Paused,
        Actor.PERSON,
        Group.WAITING,
        colour="cyan",
        hook="paused",
    )
    ASKING = StateRow(
        "waiting",
        "its last role asks a question",
        _WAITS,
        errors.Waiting,
        Actor.PERSON,
        Group.WAITING,
        colour="yellow",
        hook="waiting",
    )
    PERSONS_TURN = StateRow(
        "waiting",
        "a person plays its next role, or has to approve",
        _WAITS,
        errors.Waiting,
        Actor.PERSON,
        Group.WAITING,
        colour="yellow",
        hook="waiting",
    )
    OVER_BUDGET = StateRow(
        "waiting",
        "its budget is used up",
        _WAITS,
        errors.Waiting,
        Actor.PERSON,
        Group.WAITING,
        colour="yellow",
        hook="budget",
    )
    CALL_ASKS = StateRow(
        "waiting",
        "a call of its code asks a question",
        _WAITS,
        errors.Waiting,
        Actor.PERSON,
        Group.WAITING,
        colour="yellow",
    )
    JOINING = StateRow(
        "joining",
        "its branches have not ended",
        "it waits for its branches",
        errors.NotRunning,
        Actor.BRANCHES,
        Group.RUNNING,
        colour="blue",
    )
    FAILING = StateRow(
        "failed",
        "its last step failed; the next one tries again",
        "its last attempt failed",
        errors.AgentFailed,
        Actor.AGENT,
        Group.FAILED,
        colour="red",
        hook="failed",
    )
    COMPLETED = StateRow(
        "completed",
        "it reached its end",
        "it is done",
        None,
        Actor.NOBODY,
        Group.DONE,
        colour="green",
        hook="completed",
        is_ended=True,
    )
    WITH_FAILURES = StateRow(
        "completed-with-failures",
        "it reached its end, and more calls or branches failed than may",
        "it is done, with failures",
        errors.CompletedWithFailures,
        Actor.NOBODY,
        Group.DONE,
        colour="yellow",
        hook="completed-with-failures",
        is_ended=True,
        label="completed with failures",
    )
    FAILED = StateRow(
        "failed",
        "it ended at `$FAIL`",
        "it has failed",
        errors.WorkflowFailed,
        Actor.NOBODY,
        Group.FAILED,
        colour="red",
        hook="failed",
        is_ended=True,
        in_queue="ended failed",
    )
    KILLED = StateRow(
        "killed",
        "it was ended early",
        "it was ended",
        errors.Killed,
        Actor.NOBODY,
        Group.DONE,
        colour="dim",
        hook="killed",
        is_ended=True,
    )
    CORRUPT = StateRow(
        "corrupt",
        "it cannot be read",
        "it cannot be read",
        errors.StoreDamaged,
        Actor.NOBODY,
        Group.FAILED,
        colour="red",
    )

    @property
    def word(self) -> str:
        return self.value.word

    @property
    def label(self) -> str:
        return self.value.label or self.value.word

    @property
    def in_queue(self) -> str:
        return self.value.in_queue or self.value.word

    @property
    def is_ended(self) -> bool:
        return self.value.is_ended

    @property
    def exit_status(self) -> int:
        return self.value.error.exit_status if self.value.error is not None else 0


HOOKS = tuple(dict.fromkeys(state.value.hook for state in ThreadState if state.value.hook))
"""The events of hooks, each once."""


def words(states: Iterable[ThreadState]) -> tuple[str, ...]:
    """Return the words of states, each once, in the order given."""
    return tuple(dict.fromkeys(state.word for state in states))


WORDS = words(ThreadState)
ABSENT = "absent"
"""The word of a branch that is not here: it was removed, or never fetched."""


def words_in(group: Group) -> tuple[str, ...]:
    return words(state for state in ThreadState if state.value.group is group)


def states_of(word: str) -> tuple[ThreadState, ...]:
    """Return the states that have a word, the first of them without an end; none for a word of something else."""
    return tuple(state for state in ThreadState if state.word == word)


def parse(word: object, is_ended: object) -> ThreadState | None:
    """Return a state by its word and whether it is an end, as JSON has them; None if it isn't one."""
    return next((state for state in ThreadState if state.word == word and state.is_ended is is_ended), None)


def label_of(word: str) -> str:
    """Return the word for people of a state's word; that itself if it is something else's."""
    return next((state.label for state in states_of(word)), word)


def colour_of(word: str) -> str:
    return next((state.value.colour for state in states_of(word)), "")


def worst(statuses: Iterable[int]) -> int:
    """Return the exit status for several threads: the highest; that of waiting ones counts if no other is bad."""
    distinct = set(statuses)
    return max(distinct - {ThreadState.ASKING.exit_status}, default=0) or max(distinct, default=0)
