"""What one role and one agent have said in a thread before: the past of a conversation, made again.

Prompts are not stored, since they follow from the history; here they are built again as they were, so that
a conversation can be told to a model from its beginning, word for word.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from uwf_git.kit.context import Exchange, Previous, Resume
from uwf_git.kit.record import detail_at, turns_in
from uwf_git.values.kinds import Detail, Role, StepContext

if TYPE_CHECKING:
    from uwf_git.store.attempts import FailedAttempt
    from uwf_git.store.opened import Instance
    from uwf_git.store.threads import History
    from uwf_git.values.ids import Hash

_SESSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+=-]{0,199}", re.ASCII)
FRESH_AFTER = 3
"""After so many failed attempts that each carried on from the one before, a step begins anew."""

BuildPrompt = Callable[["History", "str | None", bool], str]
"""The prompt of a role at a history: (history, instruction, whether the session remembers) -> text."""


class Memory:
    """The past of `role` with the agent called `agent`. `attempts` are those of the whole thread."""

    def __init__(
        self,
        instance: Instance,
        history: History,
        role: Role,
        agent: str,
        attempts: Sequence[FailedAttempt],
        build_prompt: BuildPrompt,
    ) -> None:
        self._store = instance.store
        self._sessions = instance.sessions
        self._history = history
        self._role = role
        self._agent = agent
        self._attempts = [each for each in attempts if each.role == role.name and each.agent == agent]
        self._build = build_prompt

    def previous(self) -> Previous | None:
        """The last step of this role by this agent."""
        for step in reversed(self._history.steps):
            if self._is_ours(step) and (detail := self._detail(step.detail)) is not None:
                return Previous(self._own(detail.session), self._exchanges)
        return None

    def _own(self, session: str | None) -> str | None:
        """The session, unless it is that of the thread which this one was forked from, or no id at all: it came
        with the thread, maybe from somebody else, and may become an argument of a program."""
        if session and not _SESSION.fullmatch(session):
            return None
        if session and self._sessions.is_anothers(self._agent, session, self._history.thread):
            return None
        return session

    def resume(self) -> Resume | None:
        """What the failed attempts at this step left, if there is any point in carrying on from them."""
        chain = self._chain(self._history.prev)
        if not chain:
            return None
        last = chain[-1]
        detail = self._detail(last.detail)
        assert detail is not None
        remembers = any(map(self._is_ours, self._history.steps))

        def exchanges() -> tuple[Exchange, ...]:
            return tuple(self._attempted(chain, self._history, remembers))

        return Resume(self._own(detail.session), last.error, turns_in(self._store, detail), exchanges)

    def _chain(self, prev: Hash | None) -> list[FailedAttempt]:
        """The attempts on a head that the next run carries on from, oldest first."""
        made = [each for each in self._attempts if each.prev == prev]
        made = made[len(made) // FRESH_AFTER * FRESH_AFTER :]
        chain: list[FailedAttempt] = []
        for each in made:
            # Nothing of it was kept: whatever came after it began anew.
            chain = [*chain, each] if self._detail(each.detail) is not None else []
        return chain

    def _exchanges(self) -> tuple[Exchange, ...]:
        """All that was said to this role and by it, in its steps so far."""
        found: list[Exchange] = []
        for number, step in enumerate(self._history.steps):
            detail = self._detail(step.detail) if self._is_ours(step) else None
            if detail is None:
                continue
            before = self._history._replace(
                steps=self._history.steps[:number],
                head=self._history.steps[number - 1].hash if number else self._history.start_hash,
            )
            remembers = bool(found)
            chain = self._chain(before.steps[-1].hash if number else None)
            found += self._attempted(chain, before, remembers)
            found.append(
                Exchange(
                    self._said_to(before, detail.instruction, remembers, chain), turns_in(self._store, detail)
                )
            )
        return tuple(found)

    def _attempted(self, chain: Sequence[FailedAttempt], before: History, remembers: bool) -> list[Exchange]:
        found = []
        for number, attempt in enumerate(chain):
            detail = self._detail(attempt.detail)
            assert detail is not None
            said = self._said_to(before, detail.instruction, remembers, chain[:number])
            found.append(Exchange(said, turns_in(self._store, detail)))
        return found

    def _said_to(
        self, before: History, instruction: str | None, remembers: bool, chain: Sequence[FailedAttempt]
    ) -> str:
        prompt = self._build(before, instruction, remembers or bool(chain))
        return carry_on(chain[-1].error, prompt) if chain else prompt

    def _is_ours(self, step: StepContext) -> bool:
        return step.role == self._role.name and step.agent == self._agent

    def _detail(self, node: Hash | None) -> Detail | None:
        return None if node is None else detail_at(self._store, node)


def carry_on(error: str, prompt: str) -> str:
    """What is said in the session of a failed attempt."""
    return (
        f"Your last attempt at this step did not count: {error}.\n\n"
        "Go on from where you are; don't do again what is done. End with your deliverable:\n\n"
        f"{prompt}"
    )
