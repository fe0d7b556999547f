"""How many threads that work for another wait for a person: its branches, and the sub-workflow of its step in progress.
It goes on when they are answered."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING

from uwf_git.base.thread_states import ThreadState
from uwf_git.engine.forks import awaited
from uwf_git.engine.lineage import parents
from uwf_git.engine.thread_state import ThreadStates

if TYPE_CHECKING:
    from uwf_git.format.ids import ThreadId
    from uwf_git.store.history import Head
    from uwf_git.store.instance import Instance


class Below:
    """Use one per look: what threads share is read once."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    def value(self, head: Head, state: ThreadState) -> dict[str, int]:
        """Return `waitingBelow` of a thread as JSON, {} if none of those below it waits for a person."""
        number = self._waiting(head, state)
        return {"waitingBelow": number} if number else {}

    def _waiting(self, head: Head, state: ThreadState) -> int:
        if state is ThreadState.RUNNING:
            return self._asking_leave[head.thread]
        if state is not ThreadState.JOINING:
            return 0
        branches = [(branch, self._states.of(branch)) for branch in awaited(self._instance, head)]
        return sum(its.request is not None or self._waiting(branch, its) for branch, its in branches)

    @cached_property
    def _states(self) -> ThreadStates:
        return ThreadStates(self._instance)

    @cached_property
    def _asking_leave(self) -> Counter[ThreadId]:
        """How many threads below each have an agent at work that asks leave."""
        threads = self._instance.threads
        number: Counter[ThreadId] = Counter()
        level = {request.thread: 1 for request in self._instance.permission_files.waiting()}
        while level:
            heads = threads.heads(list(level))
            above: Counter[ThreadId] = Counter()
            for child, parent in parents(self._instance, list(heads.values())).items():
                above[parent] += level[child]
            number.update(above)
            level = dict(above)
        return number
