"""The turn of a code workflow: its code makes the step, from the answers to the calls that it asks. Each call is a
thread of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from uwf_git.base.errors import UwfError
from uwf_git.engine import calls
from uwf_git.engine.new_step import NewStep
from uwf_git.engine.turn.agent import AgentRoom
from uwf_git.engine.turn.end import end
from uwf_git.engine.turn.hooks import Stop, Work
from uwf_git.engine.unfinished import record_leftovers
from uwf_git.format.endings import COMPLETED, JOINED_WITHOUT, KILLED
from uwf_git.format.kinds import ENDED_BY_USER
from uwf_git.format.types import END
from uwf_git.store.history import Head, start_of
from uwf_git.store.instance import Instance


class CallRoom(AgentRoom):
    def check(self, work: Work, new: NewStep) -> NewStep:
        """Return the step with the last commits of the calls whose answers the code was given."""
        new = super().check(work, new)
        if new.merged or (report := work.report()) is None:
            return new
        return new._replace(merged=calls.joined(work.instance, work.at.head, report.calls))

    def settle(self, instance: Instance, head: Head) -> Iterator[Stop]:
        """End the calls that the code asked for and went on without, those at work for another thread excepted. One
        whose process died after its answer is completed. Makes `refs/uwf/archive/<call>`."""
        for call in calls.left(instance, head):
            if head.archive is None and start_of(instance.store, call.commit).merged == head.commit.raw:
                continue  # the step that comes next asks for it
            with contextlib.suppress(UwfError), instance.locks.hold(call.thread):
                _end(instance, call)
        yield from ()


def _end(instance: Instance, call: Head) -> None:
    if call.row.role == END:
        end(instance, call, COMPLETED)
        return
    record_leftovers(instance, call)
    attempt = instance.attempts.last(call)
    has_failed = attempt is not None and attempt.error not in ENDED_BY_USER
    end(instance, call, KILLED, attempt.error if attempt is not None and has_failed else JOINED_WITHOUT)


ROOM = CallRoom()
