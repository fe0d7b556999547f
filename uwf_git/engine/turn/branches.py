"""The turns of a fork and of a join, the two steps of a fan-out that the engine makes itself."""

from __future__ import annotations

from collections.abc import Iterator

from uwf_git.base.errors import Invalid, Waiting
from uwf_git.engine.new_step import NewStep
from uwf_git.engine.turn.hooks import Part, Room, Stop, Work
from uwf_git.format.endings import JOINED_WITHOUT, PARENT_KILLED
from uwf_git.format.ids import ThreadId
from uwf_git.format.types import USER, begins_threads, gathers_threads
from uwf_git.store.history import Head, Position, ancestry
from uwf_git.store.instance import Instance
from uwf_git.store.threads import fork_hint


class ForkRoom(Room):
    """The engine begins the branches of a fan-out."""

    def complete(self, work: Work) -> NewStep:
        from uwf_git.engine.fan_out import fork

        return fork(work.instance, work.at)

    def settle(self, instance: Instance, head: Head) -> Iterator[Stop]:
        """Begin the branches of a thread at a fork, or end them with a thread that ended there, if no other waits for
        them. Makes `refs/uwf/threads/<branch>`."""
        if not begins_threads(head.row.role):
            return
        from uwf_git.engine.fan_out import begin_branches
        from uwf_git.engine.forks import branches_at, parents_of

        if head.archive is None:
            begin_branches(instance, instance.threads.position(head))
            return
        for branch in branches_at(instance, head).open:
            if branch.head is not None and not parents_of(instance, branch.head):
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


class JoinRoom(Room):
    """The engine puts the outputs and the code of branches together, once enough of them have ended."""

    def complete(self, work: Work) -> NewStep:
        """Raises Waiting while too few branches have ended."""
        from uwf_git.engine.fan_out import join

        return join(work.instance, work.at)

    def settle(self, instance: Instance, head: Head) -> Iterator[Stop]:
        """End the branches that a thread's last step, if it is a join, left out. One that runs on another machine ends
        with its next step."""
        if head.row.role != USER and not gathers_threads(head.row.role):
            return
        from uwf_git.engine.forks import join_at

        row = next((row for row in ancestry(instance.store, head.commit) if row.role != USER), None)
        if row is None or not gathers_threads(row.role):
            return
        for branch in join_at(instance, row.node):
            if branch.is_left and not instance.threads.has_ended(branch.thread):
                yield Stop(branch.thread, JOINED_WITHOUT)

    def answer(self, instance: Instance, at: Position, text: str) -> str:
        """As `engine.fan_out_code.settled`."""
        from uwf_git.engine.fan_out_code import settled

        return settled(instance, at, text)

    def resume(self, instance: Instance, end: Head, text: str) -> str:
        """Return the answer to a question about code that conflicts, which can only be left out now."""
        from uwf_git.engine.fan_out_code import is_left_out, leaving_out
        from uwf_git.workflow.fan_out import LEAVE_OUT

        if not end.row.asks or not text.strip():
            return text
        if not is_left_out(text):
            raise Invalid(
                f"thread {end.thread} ended before the code of its branches was merged, and goes on only without it",
                f"uwf thread resume {end.thread} -m '{LEAVE_OUT}'; or to merge it, {fork_hint(end)}",
            )
        return leaving_out(instance.threads.history(end).steps[-1].output)

    def remark(self, thread: ThreadId) -> None:
        raise Invalid(
            f"thread {thread} waits for its branches, and nothing may stand between their fork and the join",
            f"say it to a branch, uwf thread show {thread} lists them, or once they are joined",
        )


class JoinedCode(Part):
    """Lets the thread's worktree follow to the code of the join."""

    def settle(self, work: Work, after: Position) -> None:
        from uwf_git.engine.fan_out_code import advance

        advance(work.instance, after)
