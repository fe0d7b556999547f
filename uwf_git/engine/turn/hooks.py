"""The hooks of a turn. A room has one kind of turn, a part goes along with several: a budget, a policy, a worktree.

The loop of `engine.step` calls them in this order:

    decide     may the turn be taken now? Raises Waiting or Absent, and what else forbids it
    prepare    what the step needs: its agent, its folder
    complete   the step itself; a part adds what only the engine knows
    check      is it this thread's next step?
    settle     what follows from a head, in other threads too; it may be repeated, also after a kill
    fail       what is kept of a turn that fails
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.base.errors import Invalid, UwfError
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.types import END
from uwf_git.store.history import Head, Position
from uwf_git.store.indexing import pins, unpin
from uwf_git.store.private import AgentReport, EngineOrder
from uwf_git.workflow.turn import Outlook, TurnKind, turn_of

if TYPE_CHECKING:
    from uwf_git.config.resolve import AgentOptions
    from uwf_git.config.settings import AgentConfig
    from uwf_git.engine.kit.agent import Agent
    from uwf_git.engine.new_step import NewStep
    from uwf_git.engine.performer import AgentResult
    from uwf_git.store.instance import Instance
    from uwf_git.workspaces.step_workspace import StepWorkspace


class Vote(NamedTuple):
    """A person's answer at a gate: the output, and the words besides."""

    output: Any
    words: str = ""


class Turn(NamedTuple):
    """A turn that is to be taken: who is next at `at`, as `ahead` says. `agent` overrides the configuration, `cwd` is
    its folder, `files` are those that a worktree begins with after a failed attempt, as in `StepWorkspace.prepare`.
    A person's answer is the user's if it `is_mine`. `lock` is the descriptor of the thread's lock."""

    instance: Instance
    at: Position
    ahead: Outlook
    lock: int = -1
    agent: str | Agent | AgentOptions | None = None
    cwd: Path | None = None
    on_stderr: Callable[[bytes], None] | None = None
    files: str = ""
    is_mine: bool = True
    vote: Vote | None = None

    @property
    def thread(self) -> ThreadId:
        return self.at.head.thread

    @property
    def role(self) -> str:
        assert self.ahead.next is not None
        return self.ahead.next

    @property
    def kind(self) -> TurnKind:
        return TurnKind.END if self.ahead.next == END else turn_of(self.at.history.workflow, self.role)


class Work:
    """The work on a turn, and what is known of it so far: the agent as `config` and `performer`, None for a command;
    its `name` in steps; the `folder`, and the commit at which its worktree begins, `base`; the `order` to the agent,
    or that of an engine that is gone; the `result`. `held` is freed when the work is done."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.instance, self.at = turn.instance, turn.at
        self.thread, self.role = turn.thread, turn.role
        self.held = contextlib.ExitStack()
        self.config: AgentConfig | None = None
        self.performer: Agent | None = None
        self.name = ""
        self.folder = Path()
        self.base = ""
        self.workspace: StepWorkspace | None = None
        self.order: EngineOrder | None = None
        self.result: AgentResult | None = None
        self._pinned: frozenset[str] | None = None

    def report(self) -> AgentReport | None:
        """Return the report of an agent that was asked for this step."""
        return self.instance.runs.answer_to(self.thread, self.at.head.node, self.role)

    def pin(self) -> None:
        """Note the refs that keep nodes now; those that are new when the step is made have served."""
        self._pinned = pins(self.instance.store)

    def end(self, step: Hash) -> None:
        """Forget the notes on this work, whose step is recorded."""
        self.instance.runs.clear(self.thread)
        if self._pinned is not None:
            history = self.at.history
            past = {history.start_hash, *(past.hash for past in history.steps)}
            # A ref that cannot be deleted is not the step's fault.
            with contextlib.suppress(UwfError):
                unpin(self.instance.store, self._pinned, step, frozenset(past))


class Stop(NamedTuple):
    """A thread that is to end, since nobody waits for it any more."""

    thread: ThreadId
    reason: str


class Hooks:
    """The hooks that rooms and parts have alike, those of the room first. By themselves they allow the turn."""

    def decide(self, turn: Turn) -> None:
        """Raise an error if the turn can't be taken now."""

    def prepare(self, work: Work) -> None:
        """Provide what the step needs."""


class Room(Hooks, ABC):
    """The hooks of one kind of turn, and the parts that go along with it, in the order in which they act."""

    parts: tuple[Part, ...] = ()

    @abstractmethod
    def complete(self, work: Work) -> NewStep | Head | None:
        """Return the step, the head of a thread that has ended instead, or None if the turn goes on, since a quorum
        doesn't agree yet."""

    def check(self, work: Work, new: NewStep) -> NewStep:
        """Return the step if it is the thread's next one. Raises AgentFailed, NotFound."""
        return new

    def settle(self, instance: Instance, head: Head) -> Iterator[Stop]:
        """Do what follows from a head, active or ended, if it isn't done yet, and yield what has to end."""
        yield from ()

    def answer(self, instance: Instance, at: Position, text: str) -> str:
        """Return a person's answer to the last step at `at`, which is of this kind and asks, as it is recorded. Raises
        Invalid for one that can't be taken."""
        return text

    def resume(self, instance: Instance, end: Head, text: str) -> str:
        """Return the text with which a thread goes on that has ended with a step of this kind. Raises Invalid if it
        can't go on."""
        return text

    def remark(self, thread: ThreadId) -> None:
        """Raise an error if nothing may be said in a thread before its next turn, of this kind."""
        raise Invalid(f"nothing can be said in thread {thread} before its next turn")

    def fail(self, work: Work, error: BaseException) -> BaseException:
        """Keep what can be kept, and return the error to raise."""
        return error


class Part(Hooks):
    """The hooks of what goes along with a turn. By themselves they change nothing."""

    def complete(self, work: Work, new: NewStep) -> NewStep:
        """Return the step, which is checked, with what only the engine knows."""
        return new

    def settle(self, work: Work, after: Position) -> None:
        """Do what follows from the step, which is recorded."""
