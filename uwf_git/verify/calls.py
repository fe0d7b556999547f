"""Checking calls of code workflows: their starts, their ids, and the answers that a step joins."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from uwf_git.engine.calls import ids_of
from uwf_git.engine.census import calls_in, of_calls
from uwf_git.format.ids import ThreadId
from uwf_git.format.kinds import Start, Step
from uwf_git.format.node import Node
from uwf_git.format.origins import EDITED, ThreadOrigin
from uwf_git.format.types import END
from uwf_git.git.repository import Oid
from uwf_git.store.index import CommitRow
from uwf_git.verify.findings import Report
from uwf_git.verify.objects import CommitObject

if TYPE_CHECKING:
    from uwf_git.verify.verified import Known, Record

WRONG_CALL = "wrong-call"


class CallChecks:
    """Checks the records of calls."""

    def __init__(self, known: Known) -> None:
        self._known = known

    def check_start(self, commit: CommitObject, start: Start, call: ThreadOrigin, report: Report) -> None:
        """Check that a call of a code workflow stands on the step at which it was asked, or a run of edited code on the
        one that it takes answers from."""
        other = self._known.parent(commit, 1, ("start", "step")) if len(commit.parents) == 2 else None
        if other is None or other.row.node != call.fork:
            report("wrong-parent", f"a {call.name} run of {call.fork} has that as its second parent")
        elif call.is_call:
            if start.workflow != other.row.workflow:
                report(WRONG_CALL, f"a call of workflow {other.row.workflow} is of {start.workflow}")
            if _item(call).get("at", call.fork) != call.fork:
                report(WRONG_CALL, f"a call that was asked at {call.fork} says that it was elsewhere")

    def is_named(self, record: Record, thread: ThreadId) -> bool:
        """Return whether a thread, if it is a call, has an id that follows from its request. Raises Bad."""
        begin = self._known.begin_of(record)
        start = self._known.start_of(begin.node)
        if start.call is None or not start.call.is_call or begin.merged is None:
            return True
        root = self._root(self._known.record_at(Oid(raw=begin.merged)))
        return thread in ids_of(root, start.prompt, start.call)

    def _root(self, record: Record) -> CommitRow:
        begin = self._known.begin_of(record)
        while begin.merged is not None:
            call = self._known.start_of(begin.node).call
            if call is None or call.name != EDITED:
                break
            begin = self._known.begin_of(self._known.record_at(Oid(raw=begin.merged)))
        return begin

    def check_joined(
        self, commit: CommitObject, step: Step, detail: Node, before: Record, report: Report
    ) -> None:
        """Check that the further parents of a code workflow's step are calls of its thread at their ends, each named
        once, with answers such as were asked for, and as many as were answered by its counts."""
        if len(set(commit.parents)) != len(commit.parents):
            report("wrong-parent", f"a step of {step.role} has a call as its parent twice")
        counts = calls_in(detail)
        if counts is not None and of_calls(counts).answered != len(list(self._joined(commit))):
            report("wrong-detail", f"the counts of a step of {step.role} are not those of its calls")
        requests: set[tuple[str, str, int]] = set()
        for call in self._joined(commit):
            start = self._known.start_of(call.row.start) if call.row.start is not None else None
            if start is None or start.call is None or not start.call.is_call or call.row.role != END:
                report("wrong-parent", f"a further parent of a step of {step.role} is no answered call")
                continue
            item = _item(start.call)
            request = json.dumps(item, sort_keys=True), start.prompt, start.call.position
            begin = self._known.begin_of(call)
            origin = self._known.record_at(Oid(raw=begin.merged)) if begin.merged is not None else None
            if origin is None or self._root(origin).oid != self._root(before).oid:
                report(WRONG_CALL, f"call {call.row.node} was asked by another thread")
            elif item.get("at", before.row.node) != before.row.node:
                report(WRONG_CALL, f"call {call.row.node} was asked for another step")
            elif request in requests:
                report(WRONG_CALL, f"call {call.row.node} answers a request that another has answered")
            requests.add(request)
            schema = item.get("schema") if item.get("what") != "agent" else None  # whose text the code reads
            if schema is not None and call.step is not None:
                from uwf_git.format.schema import Schema

                if problems := Schema(schema).problems(call.step.output, recorded=True):
                    report(
                        "wrong-output", f"the answer of call {call.row.node} breaks its schema: {problems[0]}"
                    )

    def _joined(self, commit: CommitObject) -> Iterator[Record]:
        """Yield the further parents of a step, and those of the commits that gather them."""
        kinds = ("step", "part")
        pending = [self._known.parent(commit, number, kinds) for number in range(1, len(commit.parents))]
        while pending:
            record = pending.pop(0)
            if record is None:
                continue  # already reported
            if record.row.kind != "part":
                yield record
                continue
            parents = self._known.objects.commit(Oid(raw=record.row.oid)).parents
            pending += [self._known.records.get(parent.raw) for parent in parents]


def _item(call: ThreadOrigin) -> dict[str, object]:
    return call.item if isinstance(call.item, dict) else {}
