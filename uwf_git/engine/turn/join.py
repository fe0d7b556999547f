"""The turn of a join: the engine puts the outputs and the code of branches together, once enough of them have ended."""

from __future__ import annotations

from collections.abc import Iterator

from uwf_git.base.errors import Invalid
from uwf_git.engine.new_step import NewStep
from uwf_git.engine.turn.hooks import Part, Room, Stop, Work
from uwf_git.format.endings import JOINED_WITHOUT
from uwf_git.format.ids import ThreadId
from uwf_git.format.types import USER
from uwf_git.store.history import Head, Position, ancestry
from uwf_git.store.instance import Instance
from uwf_git.store.threads import fork_hint


class JoinedCode(Part):
    """Lets the thread's worktree follow to the code of the join."""

    def settle(self, work: Work, after: Position) -> None:
        from uwf_git.engine.fan_out_code import advance

        advance(work.instance, after)


class JoinRoom(Room):
    parts = (JoinedCode(),)

    def complete(self, work: Work) -> NewStep:
        """Raises Waiting while too few branches have ended."""
        from uwf_git.engine.fan_out import join

        return join(work.instance, work.at)

    def settle(self, instance: Instance, head: Head) -> Iterator[Stop]:
        """End the branches that a thread's last step, if it is a join, left out. One that runs on another machine ends
        with its next step."""
        from uwf_git.engine.forks import join_at

        joins = (row for row in ancestry(instance.store, head.commit) if row.role != USER)
        for branch in join_at(instance, next(joins).node):
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


ROOM = JoinRoom()
