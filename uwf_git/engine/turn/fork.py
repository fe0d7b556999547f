"""A fork's turn: the engine begins the branches of a fan-out."""

from __future__ import annotations

from collections.abc import Iterator

from uwf_git.engine.new_step import NewStep
from uwf_git.engine.turn.hooks import Room, Stop, Work
from uwf_git.format.fan_out import PARENT_KILLED
from uwf_git.format.types import FORK
from uwf_git.store.history import Head
from uwf_git.store.instance import Instance


class ForkRoom(Room):
    def complete(self, work: Work) -> NewStep:
        from uwf_git.engine.fan_out import fork

        return fork(work.instance, work.at)

    def settle(self, instance: Instance, head: Head) -> Iterator[Stop]:
        """Begin the branches of a thread at a fork, or end them with a thread that ended there, if no other waits for
        them. Makes `refs/uwf/threads/<branch>`."""
        if head.row.role != FORK:
            return
        from uwf_git.engine.fan_out import begin_branches, branches_at
        from uwf_git.engine.forks import parents_of

        if head.archive is None:
            begin_branches(instance, instance.threads.position(head))
            return
        for branch in branches_at(instance, head).open:
            if branch.head is not None and not parents_of(instance, branch.head):
                yield Stop(branch.thread, PARENT_KILLED)
