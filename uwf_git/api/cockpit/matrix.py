"""A fan-out as a matrix: a row for each branch, a column for each role that branches passed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from uwf_git.api.cockpit.rows import rows_of
from uwf_git.api.cockpit.weight import is_light, spent_by, verdict_of
from uwf_git.api.spending import money_value
from uwf_git.base.errors import NotFound, UwfError
from uwf_git.base.thread_states import ABSENT, ThreadState, words
from uwf_git.engine.branch_states import branch_words, counts, item_text
from uwf_git.engine.forks import branches_at, fork_at, join_at
from uwf_git.format.types import END, USER
from uwf_git.store.history import Head, ancestry
from uwf_git.workflow.turn import begins_threads, gathers_threads

if TYPE_CHECKING:
    from uwf_git.format.fan_out import Fork
    from uwf_git.format.ids import ThreadId
    from uwf_git.store.index import CommitRow
    from uwf_git.store.instance import Instance

SHOWN = 200
"""How many branches are shown at once."""
DONE, FAILED, RUNNING, WAITING, NEXT = "done", "failed", "running", "waiting", "next"
"""The states of a cell."""

_MOST_STEPS = 4_000  # steps of branches that are read
_BAD = frozenset(words((ThreadState.FAILING, ThreadState.FAILED, ThreadState.KILLED, ThreadState.CORRUPT)))


def matrix(instance: Instance, head: Head, fork: int = 0, first: int = 0) -> dict[str, Any]:
    """Return the branches of a thread's fan-out, by default of its newest; `fork` is the number of its step:

    fork, forks    the number of its step, and those of all fan-outs of the thread, oldest first
    joined         the number of the step that joined them, None if none has
    counts         how many branches have each status
    ended, total   how many branches have ended, and how many there are
    roles          the columns, in the order in which branches come to them
    rows           at most SHOWN branches from the index `first` on: `index`, `item`, `thread`, `status`, `steps`,
                   `seconds`, `cost`, `unpriced` (nulls of one that isn't here) and `cells` by role
    cells          `state` (done, failed, running, waiting, next), the `number` of the newest step, how many `times`
                   it was passed, its `verdict`, `seconds` and `cost`; these are null before the first step
    more           how many branches follow

    Raises NotFound if there is no such fan-out."""
    forks = _forks(instance, head)
    numbers = [row.number for row, _ in forks]
    chosen = next(((row, join) for row, join in reversed(forks) if fork in (0, row.number)), None)
    if chosen is None:
        which = f"no fan-out at step {fork}" if fork else "no fan-out"
        hint = (
            f"its fan-outs are steps {', '.join(map(str, numbers))}" if numbers else "see: uwf thread show ID"
        )
        raise NotFound(f"thread {head.thread} has {which}", hint)
    row, join = chosen
    at = fork_at(instance, row.node)
    threads, statuses, ended = _branches(instance, head, join)
    rows = _Rows(instance).of(threads[first : first + SHOWN], statuses[first:], at, first)
    return {
        "thread": head.thread,
        "fork": row.number,
        "forks": numbers,
        "joined": join.number if join is not None else None,
        "counts": counts(statuses),
        "ended": ended,
        "total": len(threads),
        "roles": _columns(rows),
        "rows": [{key: item for key, item in row.items() if key != "order"} for row in rows],
        "first": first,
        "more": max(0, len(threads) - first - SHOWN),
    }


def _forks(instance: Instance, head: Head) -> list[tuple[CommitRow, CommitRow | None]]:
    """Return the forks of a thread and the joins after them, oldest first."""
    rows, _ = rows_of(instance, head)
    return [
        (row, after if after is not None and gathers_threads(after.role) else None)
        for row, after in zip(rows, [*rows[1:], None], strict=True)
        if begins_threads(row.role)
    ]


def _branches(
    instance: Instance, head: Head, join: CommitRow | None
) -> tuple[Sequence[ThreadId], Sequence[str], int]:
    """Return the threads of branches, their statuses, and how many have ended."""
    if join is not None:
        joined = join_at(instance, join.node)
        threads, statuses = [branch.thread for branch in joined], [branch.status for branch in joined]
        return threads, statuses, sum(not branch.is_left for branch in joined)
    branches = branches_at(instance, head)
    threads = [branch.thread for branch in branches.each]
    return threads, branch_words(instance, branches), branches.ended


class _Rows:
    """The rows of a matrix. Use one per look."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._room = _MOST_STEPS
        self._prices = instance.known_prices

    def of(
        self, threads: Sequence[ThreadId], statuses: Sequence[str], fork: Fork, first: int
    ) -> list[dict[str, Any]]:
        from uwf_git.api.listing import ListedThread, thread_items
        from uwf_git.engine.thread_state import ThreadStates

        heads, states = self._instance.threads.heads(threads), ThreadStates(self._instance)
        listed = [ListedThread(head, states.of(head)) for head in heads.values()]
        items = {item["thread"]: item for item in thread_items(self._instance, listed)}
        rows = []
        for place, (thread, status) in enumerate(zip(threads, statuses, strict=False)):
            index = first + place
            item = items.get(thread, {})
            row: dict[str, Any] = {
                "index": index,
                "item": item_text(fork.items[index]) if index < len(fork.items) else str(index),
                "thread": thread,
                "status": status or ABSENT,
                **{key: item.get(key) for key in ("steps", "seconds", "cost", "unpriced")},
                "cells": {},
                "order": [],
            }
            if thread in heads:
                cells = self._cells(heads[thread])
                self._add_current(cells, item, heads[thread])
                row |= {"cells": cells, "order": list(cells)}
            rows.append(row)
        return rows

    def _cells(self, head: Head) -> dict[str, dict[str, Any]]:
        """Return the cells of the roles that a branch passed, in this order."""
        newest: dict[str, CommitRow] = {}
        times: dict[str, int] = {}
        order: list[str] = []
        for row in ancestry(self._instance.store, head.commit):
            self._room -= 1
            if row.kind != "step" or self._room < 0:
                break
            role = row.role or ""
            if role in (USER, END) or begins_threads(role) or gathers_threads(role):
                continue
            newest.setdefault(role, row)
            times[role] = times.get(role, 0) + 1
            order.append(role)
        return {role: self._cell(newest[role], times[role]) for role in dict.fromkeys(reversed(order))}

    def _cell(self, row: CommitRow, times: int) -> dict[str, Any]:
        cell = {**_EMPTY, "state": DONE, "number": row.number, "times": times}
        try:
            step = self._instance.store.step(row.node)
            return {**cell, "verdict": verdict_of(self._instance, step.output), **self._took(step.detail)}
        except UwfError:
            return {**cell, "verdict": "cannot be read"}

    def _took(self, node: Any) -> dict[str, Any]:
        if not is_light(self._instance, node) or (detail := self._instance.store.detail(node)) is None:
            return {}
        return money_value(spent_by(self._instance, detail), self._prices)

    def _add_current(self, cells: dict[str, dict[str, Any]], item: dict[str, Any], head: Head) -> None:
        """Add or change the cell of the role that is at work, asking, next, or has failed."""
        now, status, line = item.get("now"), item.get("status"), item.get("line") or ""
        if head.archive is not None or not now or now.startswith("$"):
            return
        state = NEXT
        if status == ThreadState.RUNNING.word:
            state = RUNNING
        elif status in _BAD:
            state = FAILED
        elif item.get("lineKind") == "question":
            state = WAITING
        before = cells.get(now, _EMPTY)
        verdict = line if state != NEXT else before["verdict"]
        cells[now] = {**before, "state": state, "verdict": verdict}


_EMPTY: dict[str, Any] = {
    "state": NEXT,
    "number": None,
    "times": 0,
    "verdict": "",
    "seconds": None,
    "cost": None,
    "unpriced": 0,
}


def _columns(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return the roles in the order in which branches come to them."""
    places: dict[str, int] = {}
    for row in rows:
        for place, role in enumerate(row["order"]):
            places[role] = max(place, places.get(role, 0))
    return sorted(places, key=lambda role: places[role])
