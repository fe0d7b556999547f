"""What an agent is given and what it gives back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from uwf_git.config import Config
    from uwf_git.ids import ThreadId
    from uwf_git.protocol import Role
    from uwf_git.schema import Schema
    from uwf_git.store import Store
    from uwf_git.thread import History


class Usage(NamedTuple):
    """Tokens. `cached` is the part of `input` that the provider had in its cache."""

    input: int
    output: int
    cached: int = 0


class TurnRecord(NamedTuple):
    """One turn of a conversation: `role` is user, assistant or tool."""

    role: str
    text: str
    tool: str | None = None
    arguments: Any = None
    result: Any = None
    usage: Usage | None = None
    duration_ms: int | None = None


class Reply(NamedTuple):
    """What an agent said. With a `session` it can be asked to correct itself there. `output`, where it
    is given, is taken as it is, instead of the frontmatter of `text`."""

    text: str
    session: str | None = None
    model: str | None = None
    usage: Usage | None = None
    turns: tuple[TurnRecord, ...] = ()
    output: Any = None


class Resume(NamedTuple):
    """A failed attempt at this very step by this agent: its session, what went wrong, what was said."""

    session: str | None
    error: str
    turns: tuple[TurnRecord, ...]


class Context(NamedTuple):
    """What an agent needs for one step.

    `instruction` is the edge's rendered prompt; `previous_session` this role's last session with this
    agent in this thread; `resume` the failed attempt that this step carries on from; `attempt` counts
    the failed attempts at this step, `attempts` those of the whole thread; `deadline` is on
    time.monotonic()'s clock; `options` is what the agent's own argument parser made of its arguments.
    """

    thread: ThreadId
    role: Role
    history: History
    store: Store
    schema: Schema
    instruction: str | None
    previous_session: str | None
    resume: Resume | None
    attempt: int
    attempts: int
    config: Config
    cwd: Path
    deadline: float | None
    options: Any
    build_prompt: Callable[[bool], str]

    @property
    def prompt(self) -> str:
        """Everything the agent should be told, in one text: format, progress, role, task, what happened
        since this role's last turn, instruction."""
        return self.build_prompt(False)

    @property
    def prompt_for_resumed_session(self) -> str:
        """The same for a session that remembers this role's earlier turns."""
        return self.build_prompt(True)
