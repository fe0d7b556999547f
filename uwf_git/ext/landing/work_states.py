"""What became of threads' work, for lists and pages: a request that is open, merged or closed, or the branch on which
it has landed. Read from the records of this machine alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from uwf_git.ext.landing.destination import branch_at, repository_at
from uwf_git.ext.landing.effect_records import ENDED, Effects, RecordedEffect, by_key
from uwf_git.ext.landing.landing_steps import has_code_of, has_landed_in_step
from uwf_git.ext.landing.last_tries import LastTries
from uwf_git.plugin import (
    StoreDamaged,
    UwfError,
    WorkState,
    ancestry,
    one_line,
    words,
)

if TYPE_CHECKING:
    from uwf_git.ext.landing.last_tries import LastTry
    from uwf_git.plugin import ForgeRepository, Hash, Head, Instance, ThreadId

_LONGEST_BRANCH = 60


class _Request(NamedTuple):
    """A recorded request at a repository, such as `git.example/acme/shop`."""

    effect: RecordedEffect
    number: int

    @property
    def repository(self) -> str:
        return self.effect.effect.target.removeprefix("https://")

    @property
    def rank(self) -> tuple[bool, int]:
        """Sorts requests: one that is open is last, of two the newer one."""
        return self.effect.outcome not in ENDED, self.effect.effect.at


def work_states(instance: Instance, heads: Sequence[Head]) -> dict[ThreadId, WorkState]:
    """Return what became of the work of those threads that have landed it or requested to merge it, and of those that
    go on with one whose request is open. Refs that are damaged are left to `uwf verify`."""
    return dict(_WorkStates(instance, heads).states(heads))


class _WorkStates:
    def __init__(self, instance: Instance, heads: Sequence[Head]) -> None:
        self._instance = instance
        starts = {head.row.start or head.node for head in heads}
        self._effects = Effects(instance.store).with_starts(starts)
        self._repositories: dict[str, ForgeRepository | None] = {}
        recorded = [item for effects in self._effects.values() for item in effects]
        self._requests: dict[str, _Request] = {}
        """By the keys of their effects."""
        self._of_branch: dict[tuple[Hash, str], list[_Request]] = {}
        """By start and branch, which has none if it was begun to request one alone."""
        for item in by_key([item for item in recorded if item.effect.kind == words.PULL_REQUEST]):
            of_branch = self._of_branch.setdefault((item.effect.start, item.effect.name), [])
            reference = item.settlement.reference if item.settlement is not None else ""
            if item.is_settled and re.fullmatch("[1-9][0-9]{0,17}", reference):
                request = self._requests[item.effect.key] = _Request(item, int(reference))
                of_branch.append(request)

    def states(self, heads: Sequence[Head]) -> Iterator[tuple[ThreadId, WorkState]]:
        tries = LastTries(self._instance)
        tried = tries.threads()
        if not (self._effects or tried):
            return
        origins: dict[bytes, ThreadId] | None = None
        for head in heads:
            state = self._own(head.thread, head)
            if head.thread in tried and not (state is not None and state.is_final):
                state = _after_try(tries.at(head), state)
            if state is None and head.row.resumed is not None:
                origins = self._with_requests() if origins is None else origins
                state = self._of_origin(head, origins)
            if state is not None:
                yield head.thread, state

    def _own(self, thread: ThreadId, head: Head) -> WorkState | None:
        """Return what the records of a thread say of its work at a head."""
        request = self._request(thread)
        if request is not None and request.effect.outcome == words.MERGED:
            return self._requested(request, is_draft=False)
        for push in reversed(self._pushes(thread)):
            start, branch = _branch_of(push)
            if (start, branch) not in self._of_branch and has_code_of(self._instance, push.effect.prev, head):
                return WorkState("landed", f"landed on {one_line(branch, _LONGEST_BRANCH)}", is_final=True)
        if request is None:
            return None
        state = self._requested(request, head.archive is None and not self._has_landed_in_step(head))
        own = [push.effect.prev for push in self._pushes(thread) if request in self._requests_of(push)]
        is_current = state.state == "open" and bool(own) and self._is_ready_since(own[-1], head)
        return state._replace(is_current=is_current)

    def _is_ready_since(self, step: Hash | None, head: Head) -> bool:
        """Return whether a push of the code of the head, at a step, made its request ready: one from before the end
        left it a draft."""
        if step == head.node:
            return head.archive is not None
        return has_code_of(self._instance, step, head) and self._has_landed_in_step(head)

    def _has_landed_in_step(self, head: Head) -> bool:
        return has_landed_in_step(self._instance, self._instance.threads.history(head))

    def _of_origin(self, head: Head, origins: dict[bytes, ThreadId]) -> WorkState | None:
        """Return the open request of the thread that this one goes on with."""
        with suppress(StoreDamaged):
            for row in ancestry(self._instance.store, head.commit):
                if (thread := origins.get(row.oid)) is not None:
                    request = self._request(thread)
                    if request is not None and request.effect.outcome not in ENDED:
                        return self._requested(request, is_draft=False)
        return None

    def _with_requests(self) -> dict[bytes, ThreadId]:
        """Return the threads with requests by the commits of their heads."""
        threads = {}
        for thread in self._effects:
            with suppress(UwfError):  # it is damaged, or was removed
                threads[self._instance.threads.head(thread).commit.raw] = thread
        return threads

    def _request(self, thread: ThreadId) -> _Request | None:
        """Return the request that a thread has opened, or to whose branch it has pushed."""
        opened = [
            self._requests[item.effect.key]
            for item in self._effects.get(thread, ())
            if item.effect.key in self._requests
        ]
        pushed = [request for push in self._pushes(thread) for request in self._requests_of(push)]
        return max((*opened, *pushed), key=lambda request: request.rank, default=None)

    def _pushes(self, thread: ThreadId) -> list[RecordedEffect]:
        """Return what a thread has pushed, oldest first."""
        effects = self._effects.get(thread, ())
        return [item for item in effects if item.effect.kind == words.PUSH and item.is_settled]

    def _requests_of(self, push: RecordedEffect) -> list[_Request]:
        """Return the requests of the branch to which something was pushed, by a thread with the same start."""
        requests = self._of_branch.get(_branch_of(push), ())
        url = push.effect.target.partition("#")[0]
        return [request for request in requests if str(self._repository(url)) == request.repository]

    def _repository(self, url: str) -> ForgeRepository | None:
        if url not in self._repositories:
            self._repositories[url] = repository_at(self._instance, url)
        return self._repositories[url]

    def _requested(self, request: _Request, is_draft: bool) -> WorkState:
        number = request.number
        # A push says whether the forge's pages are encrypted, the request's record doesn't.
        repositories = (repository for repository in self._repositories.values() if repository is not None)
        same = (repository for repository in repositories if str(repository) == request.repository)
        repository = next(same, None) or self._repository(request.effect.effect.target)
        url = repository.change_url(number) if repository is not None else ""
        match request.effect.outcome:
            case words.MERGED:
                return WorkState("merged", f"merged #{number}", url, is_final=True)
            case words.CLOSED:
                return WorkState("closed", f"closed #{number}", url, is_final=True)
            case _ if is_draft:
                return WorkState("draft", f"pull #{number} draft", url)
            case _:
                return WorkState("open", f"pull #{number} open", url)


def _after_try(last: LastTry | None, state: WorkState | None) -> WorkState | None:
    """Return the state of a thread's work, with what came of the last try to land it."""
    if last is None:
        return state
    if last.onto:
        name = one_line(last.onto, _LONGEST_BRANCH)
        return state or WorkState("landed", f"in {name} already", is_final=True)
    if state is not None:
        return state._replace(problem=last.why)
    return None if last.is_merged else WorkState("failed", "did not land", problem=last.why)


def _branch_of(push: RecordedEffect) -> tuple[Hash, str]:
    """Return the start of the thread that has pushed, and the branch."""
    return push.effect.start, branch_at(push.effect.target)
