"""An agent's input and output for a step: Context and Reply."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.base.text import one_line
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.kinds import Detail, Role, TurnRecord, Usage, split_remarks
from uwf_git.sandbox.quota import Quota
from uwf_git.sandbox.step_variables import variables_of
from uwf_git.store.location import CEILINGS, ceilings

if TYPE_CHECKING:
    from uwf_git.config.policy import ToolPolicy
    from uwf_git.config.settings import Config
    from uwf_git.engine.step_parts import Changes, Mounts
    from uwf_git.format.schema import Schema
    from uwf_git.store.history import History
    from uwf_git.store.indexing import Store
    from uwf_git.store.instance import Instance


class Reply(NamedTuple):
    """An agent's answer. Only `text` is required.

    `session` allows corrections. `output` replaces the field block of `text`. `usage` counts tokens; `cost`
    is the agent's figure in US dollars. Without `turns`, the answer is one turn. `notes` are remarks on the
    run. `detail` is the hash of a node to use as the step's detail.
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
    def of(cls, detail: Detail, turns: tuple[TurnRecord, ...], output: Any = None) -> "Reply":
        """Return the reply of a detail made elsewhere, with its turns."""
        return cls(
            detail.answer,
            detail.session,
            detail.model,
            detail.usage,
            turns,
            output,
            detail.cost,
            detail.notes,
        )


class PastRun(NamedTuple):
    """An earlier run of an agent: its prompt, rebuilt, and its turns."""

    prompt: str
    turns: tuple[TurnRecord, ...]


class SessionState(NamedTuple):
    """How the thread left a session: `context` is the head on which the last run in it was made, `kept` the
    Session node of that run, None if its program's files weren't kept."""

    context: Hash | None = None
    kept: Hash | None = None


class KeptSession(NamedTuple):
    """The Session node of a run, None if its program's files aren't kept. `secrets` were taken out of them;
    `note` is why they aren't kept, "" if there are none to keep."""

    node: Hash | None = None
    secrets: int = 0
    note: str = ""


class Resume(NamedTuple):
    """The failed attempt to resume. `exchanges()` reads its conversation and those that it resumed itself,
    oldest first."""

    session: str | None
    error: str
    turns: tuple[TurnRecord, ...]
    exchanges: Callable[[], tuple[PastRun, ...]]
    state: SessionState = SessionState()


class Previous(NamedTuple):
    """This agent's last step in this role and thread. `exchanges()` reads their whole conversation in the
    thread, attempts included, oldest first."""

    session: str | None
    exchanges: Callable[[], tuple[PastRun, ...]]
    state: SessionState = SessionState()


SILENCE = 30 * 60.0
"""Seconds in which a program may print nothing that tells what it does as it does it: longer than a build or a test run
takes that it waits for without a word."""
SEEN = 160
"""The length of an agent's last text or call as shown, in characters."""


def last_seen(turns: Sequence[TurnRecord]) -> str:
    """Return an agent's last text or tool call, shortened."""
    if not turns:
        return "it said nothing"
    turn = turns[-1]
    what = f"call of {turn.tool}" if turn.tool else turn.text
    return f"last seen: {one_line(what, SEEN)}" if what.strip() else "last seen: an empty turn"


class Context(NamedTuple):
    """An agent's input for one step.

        thread, role, history   the thread's id, the role to play, and the steps so far
        schema                  the output's schema
        instruction             the edge's rendered prompt, None if it has none
        remarks                 the user's remarks since the last step of a role, oldest first
        prompt                  all of that as one text; see also prompt_for_resumed_session
        previous, resume        this agent's last step in this role; the failed attempt to resume
        attempt, attempts       number of failed attempts at this step, and in the whole thread
        cwd, deadline           the working folder; the time limit on time.monotonic(), None for none
        alias, config, secrets  the agent's name in the configuration, the configuration, known secrets by variable
        options                 the result of the agent's `parse_args`
        store, instance         the nodes; the whole store, for agents that work on it
        mounts                  the folders of a step of a crew's workflow, None for others

    `record(turn)` stores a turn at once for watchers; it may also be in `Reply.turns` and is not stored
    twice. `in_session(id)` saves the session early, so that an interrupted run can be resumed. `show(data)`
    shows watchers a command's output as it is printed (the last line, or with `whole=True` everything),
    `show(data, stream=name)` one of several outputs, `show(model=name)` the model being called; it is not
    stored.

    `keep(reply)` makes an answer durable at once, for an agent that does more after it: if this process is
    killed, the next step takes it over. `hear(text)` streams a model's words to watchers; `hear(None)` says
    that the stream broke off and is repeated.

    `take_remarks()` returns as turns what a person has said since the step began, recorded; an agent that can be told
    something while it works calls it before it asks its model again, and tells these texts. `has_remarks()` is whether
    there are any. Whoever speaks learns that the agent takes remarks once it has called one of the two.

    `extract(schema, prompt="", text=None)` returns data valid by a JSON Schema or the schema with that hash:
    found in `text`, or read by the extraction model from it, or without a text from the thread. `prompt`
    instructs the model; its tokens count for this step. Raises AgentFailed if there is no such data, Invalid
    for an invalid schema.
    """

    thread: ThreadId
    alias: str
    role: Role
    history: "History"
    store: "Store"
    schema: "Schema"
    instruction: str | None
    previous: Previous | None
    resume: Resume | None
    attempt: int
    attempts: int
    config: "Config"
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
    instance: "Instance"
    mounts: "Mounts | None" = None
    keep: Callable[[Reply], None] = lambda reply: None
    has_remarks: Callable[[], bool] = lambda: False
    take_remarks: Callable[[], tuple[TurnRecord, ...]] = lambda: ()

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables that identify this step to a command, and prove it."""
        nonce = self.instance.runs.nonce(self.thread)
        own = variables_of(self.thread, self.role.name, nonce)
        return own | {CEILINGS: ceilings(self.instance.location.root)}

    @property
    def env(self) -> tuple[str, ...]:
        """The secrets that the agent's program gets by the configuration, by variable."""
        configured = self.config.agents.get(self.alias)
        return configured.env if configured is not None else ()

    def environment(self, names: Iterable[str] = ()) -> dict[str, str]:
        """Return the environment of the agent's program: this process's, `variables`, and of the secrets that the
        configuration and `.env` name those in `env` and `names` alone. Raises Unavailable."""
        inherited = self.instance.secrets.environment((*self.env, *names))
        return {**inherited, **self.instance.location.environment(), **self.variables}

    @property
    def remarks(self) -> tuple[str, ...]:
        """The user's remarks since the last step of a role."""
        return split_remarks(self.history.steps)[1]

    @property
    def previous_session(self) -> str | None:
        """The session of `previous`, None for none."""
        return self.previous.session if self.previous else None

    @property
    def quota(self) -> Quota:
        """Resource limits for the agent's program, from the configuration."""
        configured = self.config.agents.get(self.alias)
        return configured.limits.given() if configured is not None else Quota()

    def silence(self, default: float | None) -> float | None:
        """Return the number of seconds that the agent's program may print nothing; None for no limit."""
        configured = self.config.agents.get(self.alias)
        setting = configured.silence if configured is not None else None
        return default if setting is None else setting

    @property
    def workflow_policy(self) -> Mapping[str, Any] | None:
        """The tools that the workflow permits: the role's `tools`."""
        return self.role.tools

    @property
    def policy(self) -> "ToolPolicy":
        """The tools that the agent may use: the strictest of the configuration's and the role's."""
        from uwf_git.config.policy import role_policies

        configured = self.config.agents.get(self.alias)
        own = configured.tools if configured is not None else None
        return self.config.policy(own, *role_policies(self.history.cast.of(self.role)))

    @property
    def prompt(self) -> str:
        """The whole prompt, rebuilt on each access."""
        return self.build_prompt(False, False)

    @property
    def prompt_for_resumed_session(self) -> str:
        """The prompt for a session that has this role's earlier turns: only the steps since."""
        return self.build_prompt(True, False)

    @property
    def prompt_for_resumed_attempt(self) -> str:
        """The prompt for the session of a failed attempt at this step, which has the whole prompt."""
        return self.build_prompt(True, True)

    def written(self) -> "Changes | None":
        """Return the changes in a crew run's document, which are part of the answer. Raises Invalid."""
        return self.mounts.written() if self.mounts is not None else None

    @property
    def reads(self) -> Callable[[str], bool]:
        """Predicate: may the workflow read this field of the role's output?"""
        from uwf_git.workflow.moderator import may_read

        return may_read(self.history.workflow)
