"""The turn of a fork: the engine begins the branches of a fan-out."""

from __future__ import annotations

from collections.abc import Iterator

from uwf_git.base.errors import Invalid, Waiting
from uwf_git.engine.new_step import NewStep
from uwf_git.engine.turn.hooks import Room, Stop, Work
from uwf_git.engine.turn.parts import Budget
from uwf_git.format.endings import PARENT_KILLED
from uwf_git.format.ids import ThreadId
from uwf_git.store.history import Head
from uwf_git.store.instance import Instance


class ForkRoom(Room):
    parts = (Budget(),)

    def complete(self, work: Work) -> NewStep:
        from uwf_git.engine.fan_out import fork

        return fork(work.instance, work.at)

    def settle(self, instance: Instance, head: Head) -> Iterator[Stop]:
        """Begin the branches of a thread at a fork, or end them with a thread that ended there, if no other waits for
        them. Makes `refs/uwf/threads/<branch>`."""
        from uwf_git.engine.fan_out import begin_branches
        from uwf_git.engine.forks import begun_branches, parents_of

        if head.archive is None:
            begin_branches(instance, instance.threads.position(head))
            return
        for branch in begun_branches(instance, head):
            if branch.head is not None and not branch.state and not parents_of(instance, branch.head):
                yield Stop(branch.thread, PARENT_KILLED)

    def resume(self, instance: Instance, end: Head, text: str) -> str:
        status = end.archive.status if end.archive is not None else "active"
        raise Invalid(
            f"thread {end.thread} was {status} before its branches were joined, and cannot go on without them",
            f"go on before the fork: uwf thread fork {end.thread} --at {end.row.number - 1}",
        )

    def remark(self, thread: ThreadId) -> None:
        raise Waiting(
            f"thread {thread} is about to fork", f"uwf thread step {thread}, then say it to a branch"
        )


ROOM = ForkRoom()
