"""The states of a thread: one table, from which commands, pages, MCP, fleets, hooks, `wait`, evaluation, completion and
the documents take their words, colours, groups and exit statuses.

A state is a member of `ThreadState`, whose value is its row. Code passes states and compares them with `is`, or asks
for a property of the row. A state becomes its word where JSON or text is written, and a word becomes states where input
is parsed, and nowhere else.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import Enum, unique
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

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


class Request(Enum):
    """What a thread wants a person to do: to answer a question, its own or that of a call of its code, to play a role
    or approve, to raise a budget, to allow what its running agent asks leave for."""

    QUESTION = "question"
    ROLE = "role"
    BUDGET = "budget"
    CALL = "call"
    LEAVE = "leave"


AGENT, PROCESS, BRANCHES, PERSON, NOBODY = Actor


class Resting(Protocol):
    """A thread that has not ended and that no process works on. Each answer is found out when it is asked for;
    `seconds_idle` counts from the last step."""

    def seconds_idle(self) -> float: ...
    def is_paused(self) -> bool: ...
    def asks(self) -> bool: ...
    def is_over_budget(self) -> bool: ...
    def awaits_person(self) -> bool: ...
    def awaits_branches(self) -> bool: ...
    def has_failed(self) -> bool: ...
    def was_interrupted(self) -> bool: ...
    def was_stopped(self) -> bool: ...
    def has_asking_call(self) -> bool: ...


class StateRow(NamedTuple):
    """A state's properties. `word` is the status in JSON and of `--status`; states that share one differ in why the
    thread rests. `error` is raised by `wait`, and has its exit status; None only for the end that was asked for.
    `colour` is one of the terminal's, `hook` the event of `hooks` that follows. `label` is the word for people and
    `in_queue` that in a fleet's queue, "" for `word`; `sentence` is what a page says of a change, "" for `meaning`.
    `request` is what the thread asks of a person, None if nothing. A resting thread is in the first state `when` it
    applies, else IDLE; None for states that are no rest."""

    word: str
    meaning: str
    error: type[errors.UwfError] | None
    actor: Actor
    group: Group
    colour: str = ""
    hook: str = ""
    is_ended: bool = False
    label: str = ""
    in_queue: str = ""
    sentence: str = ""
    request: Request | None = None
    when: Callable[[Resting], bool] | None = None


def _waiting(
    meaning: str, request: Request, hook: str, when: Callable[[Resting], bool] | None = None
) -> StateRow:
    row = StateRow("waiting", meaning, errors.Waiting, PERSON, Group.WAITING, "yellow", hook, when=when)
    return row._replace(sentence="it waits for you", request=request)


@unique
class ThreadState(Enum):
    """A state of a thread; its value is its row."""

    IDLE = StateRow("idle", "no agent is working on it", errors.NotRunning, AGENT, Group.RUNNING)
    STUCK = StateRow(
        "idle", "no edge matches its last output", errors.NoTransition, PERSON, Group.RUNNING, hook="failed"
    )
    RUNNING = StateRow(
        "running", "an agent is working on it", errors.NotRunning, PROCESS, Group.RUNNING, "blue"
    )
    PAUSED = StateRow(
        "paused",
        "it is paused",
        errors.Paused,
        PERSON,
        Group.WAITING,
        "cyan",
        "paused",
        when=lambda thread: thread.is_paused(),
    )
    ASKING = _waiting(
        "its last role asks a question", Request.QUESTION, "waiting", lambda thread: thread.asks()
    )
    OVER_BUDGET = _waiting(
        "its budget is used up", Request.BUDGET, "budget", lambda thread: thread.is_over_budget()
    )
    PERSONS_TURN = _waiting(
        "a person plays its next role, or has to approve",
        Request.ROLE,
        "waiting",
        lambda thread: thread.awaits_person(),
    )
    JOINING = StateRow(
        "joining",
        "it waits for its branches",
        errors.NotRunning,
        BRANCHES,
        Group.RUNNING,
        "blue",
        when=lambda thread: thread.awaits_branches(),
    )
    FAILING = StateRow(
        "failed",
        "its last attempt failed",
        errors.AgentFailed,
        AGENT,
        Group.FAILED,
        "red",
        "failed",
        when=lambda thread: thread.has_failed(),
    )
    INTERRUPTED = StateRow(
        "failed",
        "its step was interrupted",
        errors.AgentFailed,
        AGENT,
        Group.FAILED,
        "red",
        when=lambda thread: thread.was_interrupted(),
    )
    STOPPED = StateRow(
        "failed",
        "its last try came to no attempt",
        errors.AgentFailed,
        AGENT,
        Group.FAILED,
        "red",
        "failed",
        when=lambda thread: thread.was_stopped(),
    )
    CALL_ASKS = _waiting(
        "a call of its code asks a question", Request.CALL, "", lambda thread: thread.has_asking_call()
    )
    ASKS_LEAVE = _waiting("its running agent asks leave for something", Request.LEAVE, "waiting")
    COMPLETED = StateRow("completed", "it is done", None, NOBODY, Group.DONE, "green", "completed", True)
    WITH_FAILURES = StateRow(
        "completed-with-failures",
        "it is done, with failures",
        errors.CompletedWithFailures,
        NOBODY,
        Group.DONE,
        "yellow",
        "completed-with-failures",
        is_ended=True,
        label="completed with failures",
    )
    FAILED = StateRow(
        "failed",
        "it ended at `$FAIL`",
        errors.WorkflowFailed,
        NOBODY,
        Group.FAILED,
        "red",
        "failed",
        is_ended=True,
        in_queue="ended failed",
        sentence="it has failed",
    )
    KILLED = StateRow(
        "killed", "it was ended", errors.Killed, NOBODY, Group.DONE, "dim", "killed", is_ended=True
    )
    CORRUPT = StateRow("corrupt", "it cannot be read", errors.StoreDamaged, NOBODY, Group.FAILED, "red")

    @property
    def word(self) -> str:
        return self.value.word

    @property
    def actor(self) -> Actor:
        return self.value.actor

    @property
    def group(self) -> Group:
        return self.value.group

    @property
    def request(self) -> Request | None:
        return self.value.request

    @property
    def error(self) -> type[errors.UwfError] | None:
        return self.value.error

    @property
    def is_at_work(self) -> bool:
        """Whether a step is in progress."""
        return self.actor is PROCESS or self.request is Request.LEAVE

    @property
    def rests(self) -> bool:
        """Whether the thread goes on only after something else: a person's word, or its branches' end."""
        return self.actor is not AGENT and not self.is_at_work

    @property
    def is_ready(self) -> bool:
        """Whether the thread's own next step is due, and the last one hasn't failed."""
        return self.actor is AGENT and self.group is Group.RUNNING

    @property
    def is_failing(self) -> bool:
        """Whether the last try at the next step has failed."""
        return self.actor is AGENT and self.group is Group.FAILED

    @property
    def goes_on(self) -> bool:
        """Whether the thread goes on without a person: it is ready, at work (what its agent
        asks leave for is denied in time), or its branches are."""
        return self.is_at_work or (self.group is Group.RUNNING and self.actor is not PERSON)

    @property
    def hook(self) -> str:
        return self.value.hook

    @property
    def is_ended(self) -> bool:
        return self.value.is_ended

    @property
    def label(self) -> str:
        return self.value.label or self.word

    @property
    def in_queue(self) -> str:
        return self.value.in_queue or self.word

    @property
    def sentence(self) -> str:
        return self.value.sentence or self.value.meaning

    @property
    def exit_status(self) -> int:
        return self.value.error.exit_status if self.value.error is not None else 0


RESTS = tuple((state, state.value.when) for state in ThreadState if state.value.when is not None)
"""The states of a resting thread, with the question whether it is in them, in the order of asking."""

HOOKS = tuple(dict.fromkeys(state.hook for state in ThreadState if state.hook))
"""The events of hooks, each once."""


def words(states: Iterable[ThreadState]) -> tuple[str, ...]:
    """Return the words of states, each once, in the order given."""
    return tuple(dict.fromkeys(state.word for state in states))


WORDS = words(ThreadState)
ABSENT = "absent"
"""The word of a branch that is not here: it was removed, or never fetched."""


def words_in(group: Group) -> tuple[str, ...]:
    return words(state for state in ThreadState if state.group is group)


@lru_cache(64)
def states_of(word: str) -> tuple[ThreadState, ...]:
    """Return the states that have a word, the first of them without an end; none for a word of something else."""
    return tuple(state for state in ThreadState if state.word == word)


def parse(word: object, is_ended: object) -> ThreadState | None:
    """Return a state by its word and whether it is an end, as JSON has them; None if it isn't one."""
    return next((state for state in ThreadState if state.word == word and state.is_ended is is_ended), None)


def label_of(word: str) -> str:
    """Return the word for people of a state's word; that itself if it is something else's."""
    return next((state.label for state in states_of(word)), word)


def is_pausing(value: Mapping[str, Any]) -> bool:
    """Return whether a thread at work pauses once its step in progress has ended, by its JSON."""
    return "paused" in value and value["status"] != ThreadState.PAUSED.word


def asking_text(value: Mapping[str, Any]) -> str:
    """Return what threads below one want, by its JSON: `1 asks you`; "" if nothing."""
    number = value.get("waitingBelow", 0)
    return f"{number} {'asks' if number == 1 else 'ask'} you" if number else ""


def colour_of(word: str) -> str:
    return next((state.value.colour for state in states_of(word)), "")


def worst(statuses: Iterable[int]) -> int:
    """Return the exit status for several threads: the highest; that of waiting ones counts if no other is bad."""
    distinct = set(statuses)
    return max(distinct - {ThreadState.ASKING.exit_status}, default=0) or max(distinct, default=0)
