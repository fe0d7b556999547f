"""What an agent is given for a step, the Context, and what it gives back, a Reply."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.base.text import one_line
from uwf_git.format.kinds import Detail, TurnRecord, Usage, split_remarks
from uwf_git.sandbox.quota import Quota
from uwf_git.store.private import NONCE_VARIABLE

if TYPE_CHECKING:
    from uwf_git.config.policy import ToolPolicy
    from uwf_git.config.settings import Config
    from uwf_git.engine.step_parts import Changes, Mounts
    from uwf_git.format.ids import Hash, ThreadId
    from uwf_git.format.kinds import Role
    from uwf_git.format.schema import Schema
    from uwf_git.store.history import History
    from uwf_git.store.opened import Instance
    from uwf_git.store.taking_in import Store


class Reply(NamedTuple):
    """What an agent answered. Only `text` is needed.

    In a `session` the agent can be asked to correct its answer. An `output` is taken as it is, instead of the block of
    fields at the top of `text`. `usage` counts tokens; `cost` is in US dollars, as the agent itself counts it. Without
    `turns` the answer is one turn. `notes` say what else happened. `detail` is the hash of a node that becomes the
    step's detail, in place of one made of all this.
    """

    text: str
    session: str | None = None
    model: str | None = None
    usage: Usage | None = None
    turns: tuple[TurnRecord, ...] = ()
    output: Any = None
    cost: float | None = None
    notes: tuple[str, ...] = ()
    detail: Hash | None = None

    @classmethod
    def of(cls, told: Detail, turns: tuple[TurnRecord, ...], output: Any = None) -> Reply:
        """What an agent answered elsewhere, by the detail of that and its turns."""
        return cls(told.answer, told.session, told.model, told.usage, turns, output, told.cost, told.notes)


class Exchange(NamedTuple):
    """One earlier run of an agent: the prompt that it was given, built again, and its turns."""

    prompt: str
    turns: tuple[TurnRecord, ...]


class Resume(NamedTuple):
    """The failed attempt at this step that this agent carries on from: its session, its error and its turns.
    `exchanges()` reads what was said in it and in the attempts that it carried on from itself, oldest first."""

    session: str | None
    error: str
    turns: tuple[TurnRecord, ...]
    exchanges: Callable[[], tuple[Exchange, ...]]


class Previous(NamedTuple):
    """The last step that this agent did in this role in this thread: its session. `exchanges()` reads all that was
    said between role and agent in the thread, in steps and in failed attempts at them, oldest first."""

    session: str | None
    exchanges: Callable[[], tuple[Exchange, ...]]


SILENCE = 30 * 60.0
"""Seconds in which a program may print nothing that tells what it does as it does it: longer than a build or a test run
takes that it waits for without a word."""
SEEN = 160  # characters of what an agent was seen doing last


def last_seen(turns: Sequence[TurnRecord]) -> str:
    """Return what an agent said or did last, in a few words."""
    if not turns:
        return "it said nothing"
    turn = turns[-1]
    what = f"call of {turn.tool}" if turn.tool else turn.text
    return f"last seen: {one_line(what, SEEN)}" if what.strip() else "last seen: an empty turn"


class Context(NamedTuple):
    """What an agent is given for one step.

    thread, role, history   the thread's id, the role to play, and what happened so far
    schema                  what the output must obey
    instruction             the edge's rendered prompt, None where it has none
    remarks                 what the user has said since the last step of a role, oldest first
    prompt                  all of that as one text; see also prompt_for_resumed_session
    previous, resume        this agent's last step in this role; the failed attempt to carry on from
    attempt, attempts       how many attempts at this step, and in the whole thread, have failed
    cwd, deadline           where to work, and until when on time.monotonic(); None: as long as it takes
    alias, config, secrets  the agent's name in the configuration, the configuration, the values of `.env` by name
    options                 what the agent's `parse_args` made of its arguments
    store, instance         the nodes; and the whole store, for agents that work on it
    mounts                  the folders of a step of a crew's workflow, None for others

    `record(turn)` stores a turn at once, for those who watch the step; the same object may stand in `Reply.turns` too,
    and is not stored twice. `in_session(id)` notes the session as soon as it is known, so that a run which is broken
    off can be carried on. `show(data)` tells them what a command of the agent prints, piece by piece as it comes, and
    `show(data, stream=name)` where it has several outputs; `show(model=name)` whom the agent asks; it is kept nowhere.
    Of that they see the last line, with `whole=True` all of it.

    `keep(reply)` makes an answer durable before anything else is done: where this process is killed then, the next step
    takes it over. What an agent returns is kept anyway, so that is for one that has more to do once it has the answer.

    `hear(text)` tells those who watch or listen what a model says, word by word, and `hear(None)` that it broke off and
    is asked again.

    `extract(schema, prompt="", text=None)` gives data that obeys a schema: a JSON Schema, or the hash of one. It is
    what stands in `text`, or what a model reads there, and without a text, what the model reads in the thread: the
    task, what happened, the instruction. `prompt` tells the model what to look for; its tokens count for this step. It
    raises AgentFailed where there is no such data, Invalid for what is no schema.
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
    build_prompt: Callable[[bool, bool], str]
    record: Callable[[TurnRecord], None]
    in_session: Callable[[str], None]
    show: Callable[..., None]
    hear: Callable[[str | None], object]
    extract: Callable[..., Any]
    secrets: Mapping[str, str]
    instance: Instance
    mounts: Mounts | None = None
    keep: Callable[[Reply], None] = lambda reply: None

    @property
    def variables(self) -> dict[str, str]:
        """The variables that tell a command for which step it works, and prove it."""
        nonce = self.instance.runs.nonce(self.thread)
        return {"UWF_THREAD": self.thread, "UWF_ROLE": self.role.name, NONCE_VARIABLE: nonce}

    @property
    def remarks(self) -> tuple[str, ...]:
        """What the user has said since the last step of a role, in remarks."""
        return split_remarks(self.history.steps)[1]

    @property
    def previous_session(self) -> str | None:
        """The session of this agent's last step in this role in this thread."""
        return self.previous.session if self.previous else None

    @property
    def quota(self) -> Quota:
        """What the program that plays the role may use, where its configuration bounds that."""
        configured = self.config.agents.get(self.alias)
        return configured.limits.given() if configured is not None else Quota()

    def silence(self, default: float | None) -> float | None:
        """For how many seconds the program that plays the role may print nothing; None for any time."""
        configured = self.config.agents.get(self.alias)
        given = configured.silence if configured is not None else None
        return default if given is None else given

    @property
    def workflow_policy(self) -> Mapping[str, Any] | None:
        """The role's `tools`: what the workflow lets it use."""
        return self.role.tools

    @property
    def policy(self) -> ToolPolicy:
        """What the agent may do at this step: the strictest of the configuration's, the role's and the persona's."""
        from uwf_git.config.policy import parse_policy, tighten

        configured = self.config.agents.get(self.alias)
        persona = self.history.workflow.speaker(self.role.name, self.history.start.persona)
        return tighten(
            self.config.tools,
            configured.tools if configured is not None else None,
            parse_policy(self.workflow_policy, of_role=True)[0],
            parse_policy(persona.tools if persona is not None else None, of_persona=True)[0],
        )

    @property
    def prompt(self) -> str:
        """Everything the agent should be told, as one text: the format of the deliverable, progress, the role, the
        task, what happened, the instruction. Built anew each time."""
        return self.build_prompt(False, False)

    @property
    def prompt_for_resumed_session(self) -> str:
        """The prompt for a session that remembers this role's earlier turns: it tells only what happened since."""
        return self.build_prompt(True, False)

    @property
    def prompt_for_resumed_attempt(self) -> str:
        """The prompt for the session of an attempt at this step that failed, which was told all of it."""
        return self.build_prompt(True, True)

    def written(self) -> Changes | None:
        """What was changed in the document of a crew's run, which is a part of the answer. Raises Invalid for what is
        wrong with it."""
        return self.mounts.written() if self.mounts is not None else None

    @property
    def reads(self) -> Callable[[str], bool]:
        """A predicate: may the workflow look at a field of that name in this role's output?"""
        from uwf_git.workflow.moderator import may_read

        return may_read(self.history.workflow)
