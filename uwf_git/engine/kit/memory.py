"""The earlier conversation of a role and an agent in a thread, rebuilt word for word from steps and failed
attempts, so that it can be retold to a model."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from uwf_git.engine.kit.context import PastRun, Previous, Resume, SessionState
from uwf_git.engine.kit.prompt import prompt_at
from uwf_git.engine.step_parts import Recipient
from uwf_git.format.kinds import Detail, Role, StepContext

if TYPE_CHECKING:
    from uwf_git.format.ids import Hash
    from uwf_git.store.attempts import FailedAttempt
    from uwf_git.store.history import History, Position
    from uwf_git.store.instance import Instance

_SESSION = r"(?a)[A-Za-z0-9][A-Za-z0-9._:/@+=-]{0,199}"
FRESH_AFTER = 3
"""After so many failed attempts that each carried on from the one before, a step begins anew."""

_FULL = (
    r"(?i)context[ _-]?(?:length|window|size|limit)|(?:prompt|input|conversation|message)s?\b[^.\n]{0,60}"
    r"\b(?:too long|too large|exceed\w*)|maximum (?:context|number of (?:input )?tokens)|exceed\w* the maximum"
    r"|too many (?:input )?tokens|ran out of room|start a new (?:session|conversation|chat|thread)"
)
"""What model servers and programs say of a conversation that has no more room, or that can't go on."""


def is_full(error: str) -> bool:
    """Return whether an error says that the conversation's context is full, or asks for a new one."""
    return re.search(_FULL, error) is not None


class _RunAt(NamedTuple):
    """A run of the agent: its error ("" if it made the step), its detail, and the history before."""

    error: str
    detail: Detail
    before: History


class Memory:
    """The past of `role` with `agent`. `attempts` are those of the whole thread; `shell`: its prompts name
    commands."""

    def __init__(
        self,
        instance: Instance,
        history: History,
        role: Role,
        agent: str,
        attempts: Sequence[FailedAttempt],
        shell: Callable[[], bool],
    ) -> None:
        self._instance = instance
        self._store = instance.store
        self._history = history
        self._role = role
        self._agent = agent
        self._shell = shell
        self._attempts = [
            attempt for attempt in attempts if attempt.role == role.name and attempt.agent == agent
        ]

    def previous(self) -> Previous | None:
        """Return this agent's last step in this role; None if the session is full, or attempts in it failed
        repeatedly."""
        if self._is_spent(self._history):
            return None
        for step in reversed(self._history.steps):
            if self._is_ours(step) and (detail := self._detail(step.detail)) is not None:
                return Previous(self._own(detail.session), self._exchanges, _state(detail))
        return None

    def resume(self) -> Resume | None:
        """Return the failed attempt to resume; None for a new start."""
        chain = self._chain(self._history)
        if not chain:
            return None
        error, last, _ = chain[-1]
        began_anew = self._is_spent(self._history, len(chain))
        remembers = any(map(self._is_ours, self._history.steps)) and not began_anew

        def exchanges() -> tuple[PastRun, ...]:
            return tuple(self._describe(remembers, chain))

        return Resume(self._own(last.session), error, self._store.turns(last), exchanges, _state(last))

    def _own(self, session: str | None) -> str | None:
        """Return the session, which may become a program's argument, unless its id is invalid or it is of the
        thread that this one was forked from."""
        if session is None or not re.fullmatch(_SESSION, session):
            return None
        another = self._instance.sessions.is_anothers(self._agent, session, self._history.thread)
        return None if another else session

    def _chain(self, before: History) -> list[_RunAt]:
        attempts = self._made(before)
        attempts = attempts[len(attempts) // FRESH_AFTER * FRESH_AFTER :]
        chain: list[_RunAt] = []
        for attempt in attempts:
            detail = self._detail(attempt.detail)
            # The attempt after one without kept work, or after a full session, started a new session.
            if detail is None or is_full(attempt.error):
                chain = []
            else:
                chain.append(_RunAt(attempt.error, detail, before.up_to(attempt.prev)))
        return chain

    def _made(self, before: History) -> list[FailedAttempt]:
        places = before.places
        return [attempt for attempt in self._attempts if attempt.prev in places]

    def _is_spent(self, before: History, but: int = 0) -> bool:
        attempts = self._made(before)
        attempts = attempts[: len(attempts) - but]
        return len(attempts) >= FRESH_AFTER or any(is_full(attempt.error) for attempt in attempts)

    def _exchanges(self) -> tuple[PastRun, ...]:
        runs: list[PastRun] = []
        for number, step in enumerate(self._history.steps):
            detail = self._detail(step.detail) if self._is_ours(step) else None
            if detail is None:
                continue
            before = self._history.up_to(self._history.steps[number - 1].hash if number else None)
            chain = self._chain(before)
            if self._is_spent(before, len(chain)):
                runs.clear()
            runs += self._describe(bool(runs), [*chain, _RunAt("", detail, before)])
        return tuple(runs)

    def _describe(self, remembers: bool, runs: Sequence[_RunAt]) -> Iterator[PastRun]:
        error: str | None = None
        for failed_with, detail, before in runs:
            carries_on = error is not None
            prompt = prompt_at(
                self._instance,
                before,
                self._role,
                detail.instruction,
                Recipient(self._agent, remembers or carries_on, carries_on, self._shell()),
            )
            message = prompt if error is None else carry_on(error, prompt)
            yield PastRun(message, self._store.turns(detail))
            error = failed_with

    def _is_ours(self, step: StepContext) -> bool:
        return step.role == self._role.name and step.agent == self._agent

    def _detail(self, node: Hash | None) -> Detail | None:
        return None if node is None else self._store.detail(node)


def _state(detail: Detail) -> SessionState:
    return SessionState(detail.context, detail.kept)


def resumes_session(instance: Instance, at: Position, role: str, agent: str) -> bool:
    """Return whether an agent's next attempt at a role resumes the session of the failed one."""
    from uwf_git.engine.kit.prompt import role_of

    if role not in at.history.workflow.roles:
        return False
    attempts = instance.attempts.all(at.head.thread)
    memory = Memory(instance, at.history, role_of(at.history, role), agent, attempts, lambda: False)
    resume = memory.resume()
    return resume is not None and resume.session is not None


def carry_on(error: str, prompt: str) -> str:
    """Return the first message in the session of a failed attempt."""
    return (
        f"Your last attempt at this step did not count: {error}.\n\n"
        "Go on from where you are; don't do again what is done. End with your deliverable:\n\n"
        f"{prompt}"
    )
