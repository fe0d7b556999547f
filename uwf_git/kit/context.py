"""What an agent is given and what it gives back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.values.kinds import TurnRecord, Usage

if TYPE_CHECKING:
    from uwf_git.config.settings import Config
    from uwf_git.store.opened import Instance
    from uwf_git.store.taking_in import Store
    from uwf_git.store.threads import History
    from uwf_git.values.ids import Hash, ThreadId
    from uwf_git.values.kinds import Role
    from uwf_git.values.schema import Schema


class Reply(NamedTuple):
    """What an agent said. With a `session` it can be asked to correct itself there. `output`, where it
    is given, is taken as it is, instead of the frontmatter of `text`. `cost` is in US dollars, as the agent
    itself counts it; `notes` say what happened besides. `detail` names a node to stand as the step's detail
    in place of one made of all this."""

    text: str
    session: str | None = None
    model: str | None = None
    usage: Usage | None = None
    turns: tuple[TurnRecord, ...] = ()
    output: Any = None
    cost: float | None = None
    notes: tuple[str, ...] = ()
    detail: Hash | None = None


class Exchange(NamedTuple):
    """One run of an agent: the prompt it was given, built again, and the turns that came of it."""

    prompt: str
    turns: tuple[TurnRecord, ...]


class Resume(NamedTuple):
    """A failed attempt at this very step by this agent: its session, what went wrong, what was said.
    `exchanges` reads what was said in it and in the attempts that it carried on from, oldest first."""

    session: str | None
    error: str
    turns: tuple[TurnRecord, ...]
    exchanges: Callable[[], tuple[Exchange, ...]]


class Previous(NamedTuple):
    """This role's last step by this agent in this thread. `exchanges` reads all that was said to this role
    and by it, with this agent, in its steps so far and the failed attempts at them, oldest first."""

    session: str | None
    exchanges: Callable[[], tuple[Exchange, ...]]


class Context(NamedTuple):
    """What an agent needs for one step.

    `alias` is the agent's name in the configuration; `instruction` the edge's rendered prompt; `previous`
    this role's last step by this agent in this thread; `resume` the failed attempt that this step carries on
    from; `attempt` counts the failed attempts at this step, `attempts` those of the whole thread; `deadline`
    is on time.monotonic()'s clock; `options` is what the agent's own argument parser made of its arguments.
    `record` writes a turn at once, for whoever watches: what it was given may stand in `Reply.turns` too,
    as the same object, and is not written twice. `in_session` notes the session's id as soon as it is known, so
    that a run which is broken off can be carried on. `secrets` are the values of `.env`, by name; `instance` is for
    agents that work on the store itself.
    """

    thread: ThreadId
    alias: str
    role: Role
    history: History
    store: Store
    schema: Schema
    instruction: str | None
    previous: Previous | None
    resume: Resume | None
    attempt: int
    attempts: int
    config: Config
    cwd: Path
    deadline: float | None
    options: Any
    build_prompt: Callable[[bool], str]
    record: Callable[[TurnRecord], None]
    in_session: Callable[[str], None]
    secrets: Mapping[str, str]
    instance: Instance

    @property
    def previous_session(self) -> str | None:
        """This role's last session with this agent in this thread."""
        return self.previous.session if self.previous else None

    @property
    def workflow_policy(self) -> Mapping[str, Any] | None:
        """What the workflow lets this role use."""
        return self.role.tools

    @property
    def prompt(self) -> str:
        """Everything the agent should be told, in one text: format, progress, role, task, what happened
        since this role's last turn, instruction."""
        return self.build_prompt(False)

    @property
    def prompt_for_resumed_session(self) -> str:
        """The same for a session that remembers this role's earlier turns."""
        return self.build_prompt(True)
