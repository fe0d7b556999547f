"""A thread and its steps, for programs."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.api.states import State, has_ended, state_of
from uwf_git.base.errors import AgentFailed, HeadMoved, Invalid, NotFound, UwfError
from uwf_git.format.ids import ThreadId
from uwf_git.store.instance import Instance
from uwf_git.store.location import Location

if TYPE_CHECKING:
    from uwf_git.api.exchange import Exchange
    from uwf_git.api.turn import Function, FunctionAgent
    from uwf_git.engine.outcome import Outcome
    from uwf_git.format.kinds import StepContext


class ThreadSafeStore:
    """A store that several threads may use: each opens its own files and index, since SQLite connections and
    `Instance` cannot be shared. Warnings are Python warnings."""

    def __init__(self, location: Location) -> None:
        self._location = location
        self._local = threading.local()
        self._opened()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ThreadSafeStore) and self._location == other._location

    def __hash__(self) -> int:
        return hash(self._location)

    @property
    def path(self) -> Path:
        return self._location.git_dir

    @property
    def _instance(self) -> Instance:
        instance: Instance | None = getattr(self._local, "instance", None)
        return instance if instance is not None else self._opened()

    def _opened(self) -> Instance:
        instance = Instance(self._location)
        instance.warn = lambda text: warnings.warn(text, stacklevel=2)
        self._local.instance = instance
        return instance

    def _exchange(self, remote: str | None) -> Exchange:
        from uwf_git.api.exchange import exchange_with

        return exchange_with(self._instance, remote)


class Budget(NamedTuple):
    """Limits of a thread: US dollars, tokens, steps, seconds of agents' time. None is no limit."""

    usd: float | None = None
    tokens: int | None = None
    steps: int | None = None
    seconds: float | None = None

    def limits(self) -> dict[str, float]:
        """Return the limits by the format's names. Raises Invalid."""
        from uwf_git.format.amounts import parse_limit

        limits: dict[str, float] = {}
        for (field, amount), key in zip(self._asdict().items(), _KEYS, strict=True):
            if amount is None:
                continue
            limit = parse_limit(key, amount)
            if limit is None:
                raise Invalid(f"Budget({field}={amount!r}) is not a limit", "give a number above 0")
            limits[key] = limit
        return limits


_KEYS = ("maxCost", "maxTokens", "maxSteps", "maxWallTime")


class Workflow(NamedTuple):
    """A workflow: its name, and its node's hash, which changes with every version."""

    name: str
    hash: str


class Step(NamedTuple):
    """A step: `number` from 1, `role`, `output` as JSON, the `agent`'s name, the node's `hash`. `fork` is the
    thread that keeps a step which lost a race, else None."""

    number: int
    role: str
    output: Any
    agent: str
    hash: str
    fork: Thread | None = None


class Thread:
    """A thread. Equal to another Thread with the same id and store."""

    def __init__(self, store: ThreadSafeStore, thread: ThreadId) -> None:
        self.store = store
        self.id: str = thread
        self._id = thread

    def __repr__(self) -> str:
        return f"Thread({self.id!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Thread) and (self.id, self.store) == (other.id, other.store)

    def __hash__(self) -> int:
        return hash(self.id)

    # Looking at it

    @property
    def state(self) -> State:
        """The current state."""
        return state_of(self.store._instance, self._id)

    @property
    def steps(self) -> list[Step]:
        """The steps, oldest first."""
        instance = self.store._instance
        history = instance.threads.history(instance.threads.head(self._id))
        return [_step(number, step) for number, step in enumerate(history.steps, 1)]

    @property
    def prompt(self) -> str:
        """The prompt it was started with."""
        instance = self.store._instance
        return instance.threads.history(instance.threads.head(self._id)).start.prompt

    @property
    def workflow(self) -> Workflow:
        """The workflow it runs."""
        instance = self.store._instance
        history = instance.threads.history(instance.threads.head(self._id))
        return Workflow(history.workflow.name, history.workflow_hash)

    @property
    def budget(self) -> Budget:
        """The tightest limits of thread, workflow and configuration. Assigning a Budget changes existing
        limits on this machine; the next step records them."""
        from uwf_git.engine.budget import Budgets

        instance = self.store._instance
        standing = Budgets(instance).standing(instance.threads.head(self._id))
        limits = standing.limits if standing is not None else {}
        amounts = [limits[key].value if key in limits else None for key in _KEYS]
        cost, tokens, steps, seconds = amounts
        return Budget(
            cost, None if tokens is None else int(tokens), None if steps is None else int(steps), seconds
        )

    @budget.setter
    def budget(self, budget: Budget) -> None:
        from uwf_git.engine.budget import Budgets, raise_limits

        instance = self.store._instance
        limits = budget.limits()
        standing = Budgets(instance).standing(instance.threads.active_head(self._id))
        if missing := limits.keys() - (standing.limits if standing is not None else {}).keys():
            raise Invalid(
                f"thread {self.id} has no {min(missing)} to change", "set limits when it is started"
            )
        raise_limits(instance, self._id, limits)

    # Stepping it

    def step(
        self,
        agent: str | Function | None = None,
        *,
        cwd: str | Path | None = None,
        remote: str | None = None,
    ) -> Step | None:
        """Run one step and return it; None if there is none now, see `state`. Parameters as for `run`, but that
        `agent` plays the role whatever plays it otherwise."""
        return next(self._steps(agent, 1, cwd, remote, is_single=True), None)

    def run(
        self,
        agent: str | Function | None = None,
        *,
        max_steps: int | None = None,
        cwd: str | Path | None = None,
        remote: str | None = None,
    ) -> Iterator[Step]:
        """Run steps and yield each, until the thread ends, waits, is paused, or made `max_steps`; see
        `state`. Lazy.

        `agent` plays the roles that a model plays otherwise, not those of commands and people: an alias, a
        command, ROLE=NAME for one role, or a function that gets a Turn and returns the output, or text that
        contains it. `cwd` is the agents' folder. With a `remote`, the thread is
        pulled before each step and pushed afterwards.

        Raises AgentFailed for a failed step, with a function's exception as cause, Busy during another
        process's step, and other UwfErrors that prevent a step.
        """
        return self._steps(agent, max_steps, cwd, remote)

    def _steps(
        self,
        agent: str | Function | None,
        max_steps: int | None,
        cwd: str | Path | None,
        remote: str | None,
        is_single: bool = False,
    ) -> Iterator[Step]:
        from uwf_git.api.preflight import require_ready_thread
        from uwf_git.api.run import Options, run
        from uwf_git.api.run import step as make

        function = None if agent is None or isinstance(agent, str) else _function_agent(agent)
        named = agent if isinstance(agent, str) else None
        exchange = self.store._exchange(remote) if remote is not None else None
        options = Options(function.agent if function else named, folder_of(cwd), exchange=exchange)
        instance = self.store._instance
        if max_steps != 1:
            require_ready_thread(instance, self._id, options.agent)

        def make_one(instance: Instance, thread: ThreadId, _options: Options) -> Outcome:
            return make(instance, thread, options)

        steps = run(instance, self._id, lambda: options, max_steps, make=make_one if is_single else make)
        while True:
            try:
                outcome = next(steps, None)
            except HeadMoved as lost:
                if not lost.fork:
                    raise
                fork = Thread(self.store, ThreadId(lost.fork))
                yield fork.steps[-1]._replace(fork=fork)
                return
            except UwfError as error:
                if has_ended(instance, self._id, error):
                    return
                if function is not None and isinstance(error, AgentFailed) and function.error is not None:
                    raise error from function.error
                raise
            if outcome is None or outcome.role is None:
                return
            recorded = outcome.position.history.steps
            yield _step(len(recorded), recorded[-1])

    # Actions of a person

    def answer(self, text: str = "", *, unseen: bool = False, **fields: Any) -> None:
        """Answer its question, or play a person's role with values by field; a role with approvers takes it as
        the user's approval. A role that judges code which is not on this machine takes it only if `unseen`. Raises
        Invalid if it asks nothing, Usage for a text outside the options, or one that
        the role's schema refuses, RequirementUnmet if the user may not approve."""
        from uwf_git.api.control import answer
        from uwf_git.engine.kit.form import texts_of

        texts = {name: texts_of(field) for name, field in fields.items()}
        answer(self.store._instance, self._id, text, fields=texts, unseen=unseen)

    def revoke(self, reason: str = "") -> None:
        """Take the user's approval back, while the step isn't made. Raises Invalid if there is none."""
        from uwf_git.api.control import revoke

        revoke(self.store._instance, self._id, reason)

    def say(self, text: str) -> None:
        """Add a remark for the next role, without changing which role that is. Of a thread at work, its agent takes it
        at its next turn if it can."""
        from uwf_git.api.control import steer

        steer(self.store._instance, self._id, text)

    def pause(self, reason: str = "", *, now: bool = False) -> None:
        """Pause the thread. A step in progress finishes, or with `now` is ended."""
        from uwf_git.api.control import pause

        pause(self.store._instance, self._id, reason, now)

    def resume(self, text: str = "") -> Thread:
        """Resume a paused thread and return it. For a finished one, return a new thread that continues it
        with a text."""
        from uwf_git.api.control import resume

        instance = self.store._instance
        words = text if instance.threads.has_ended(self._id) else None
        return Thread(self.store, resume(instance, self._id, words).thread)

    def kill(self, reason: str = "") -> None:
        """End it and its running agent. It stays readable."""
        from uwf_git.api.control import kill

        kill(self.store._instance, self._id, reason)

    def fork(self, at: int | None = None) -> Thread:
        """Return a new thread that shares the first `at` steps, by default all."""
        from uwf_git.api.fork import fork

        return Thread(self.store, fork(self.store._instance, self._id, at))

    def remove(self) -> None:
        """Remove it and its failed attempts from this store. Forks keep shared steps."""
        from uwf_git.api.removal import remove

        remove(self.store._instance, self._id)


def _step(number: int, step: StepContext) -> Step:
    return Step(number, step.role, step.output, step.agent, step.hash)


def _function_agent(agent: Function) -> FunctionAgent:
    from uwf_git.api.turn import FunctionAgent

    return FunctionAgent(agent)


def folder_of(cwd: str | Path | None) -> Path | None:
    if cwd is None:
        return None
    from uwf_git.sandbox.programs import avoid

    folder = Path(cwd).expanduser()
    if not folder.is_dir():
        raise NotFound(f"no folder {cwd}", "create it first")
    avoid(folder)
    return folder.absolute()
