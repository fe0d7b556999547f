"""A thread as a run: how it stands, its steps as bars on one clock, and its graph.

Bars are read from the index, and the nodes of the shown steps alone. What can't be read is named under `problems`, and
the rest is there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from uwf_git.api.cockpit.graph import NEXT, NOW, BranchWays, branch_ways, end_of, graph_value, nodes_taken
from uwf_git.api.cockpit.permissions import leave_request
from uwf_git.api.cockpit.rows import rows_of, without_remarks
from uwf_git.api.cockpit.weight import (
    LARGEST_IN_A_LINE,
    in_words,
    is_light,
    spent_by,
    weight,
    weight_of_run,
)
from uwf_git.api.spending import amounts_value
from uwf_git.base.errors import UwfError
from uwf_git.base.text import iso, one_line
from uwf_git.base.thread_states import ABSENT, Actor, ThreadState, states_of, words
from uwf_git.engine.branch_states import item_text
from uwf_git.engine.forks import branches_at, fork_at, join_at
from uwf_git.engine.outcome import summary
from uwf_git.engine.spending import Totals
from uwf_git.format.casting import cast_of
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.kinds import HUMAN, REHEARSE, StepContext, parse_step, remark_in
from uwf_git.format.types import JOIN, USER
from uwf_git.git.repository import Oid
from uwf_git.store.history import Head
from uwf_git.workflow.turn import begins_threads, gathers_threads

if TYPE_CHECKING:
    from uwf_git.format.kinds import Start, Step, Workflow
    from uwf_git.store.index import CommitRow
    from uwf_git.store.instance import Instance

SHOWN = 50
"""How many steps a run shows at once."""

_BRANCHES = 60  # of a fork that have bars
_TRIED = 200  # failed attempts that are read
_HEAVIEST = 24 << 20  # bytes of runs that are read to sum up
_MOST_IDLE = 0.1  # of the time that agents worked: as long a wait is drawn at most
_LINE, _BY = 300, 60  # characters
_RUNNING, _JOINING, _WAITING = NOW_KINDS = (
    *words((ThreadState.RUNNING, ThreadState.JOINING, ThreadState.ASKING)),
)
"""The kinds of a bar of what goes on now."""

_BAD = frozenset(words((ThreadState.FAILING, ThreadState.FAILED, ThreadState.KILLED, ThreadState.CORRUPT)))

Bar = dict[str, Any]
T = TypeVar("T")
U = TypeVar("U")


def run(instance: Instance, head: Head, before: int = 0) -> dict[str, Any]:
    """Return a thread as a run, with the newest SHOWN steps, or those before the number `before`:

    state, status       as `uwf thread show` has them
    started, elapsed    the first moment, and the seconds since, until the last change or now
    seconds, tokens, cost, unpriced    what all of it took; null if unknown, and a `problem` if that is too much to read
    budget              for each limit: its name, what is `used` of `most`, as `text`; `share`: the largest part, from 0
    first, last, steps  the numbers of the steps that have bars, and how many there are
    bars                oldest first, see below; `clock`: [begin, end] of them, in seconds since `started`
    graph               nodes and ways with the `times` they were passed, as `graph_value`; null without a workflow
    problems            why parts are missing

    A bar has a `kind` (step, attempt, answer, remark, fork, join, branch; running, joining and waiting for what goes on
    now), the `number` and `node` of its step, `role`, `agent`, `by` whom, its `begin` and `end` in seconds too, and
    `waited`, the seconds before that in which nobody worked. `drawn` is where the wait and the work begin, and the
    work ends, from 0 to 1: long waits are `folded`. `verdict` is its result, a decision if it `decides`. `below` are
    branches, of which `more` are left out.
    """
    return _Run(instance, head, before).value()


class _Run:
    def __init__(self, instance: Instance, head: Head, before: int) -> None:
        self._instance = instance
        self._head = head
        self._problems: dict[str, None] = {}
        self._rows, problem = rows_of(instance, head)
        if problem:
            self._problems[problem] = None
        self._end = min(head.row.number, before - 1) if before else head.row.number
        self._begin = max(0, self._end - SHOWN)
        self._started = self._rows[0].time if self._rows else head.updated
        self._now = time.time()
        self._workflow = self._or(self._read_workflow, None)
        self._start = self._or(self._read_start, None)
        self._prices: Mapping[str, Any] = self._or(lambda: instance.config.prices, {})

    def _or(self, make: Callable[[], T], otherwise: U) -> T | U:
        try:
            return make()
        except UwfError as error:
            self._problems[error.message] = None
            return otherwise

    def _read_start(self) -> Start | None:
        node = self._head.row.start or self._head.row.node
        return self._instance.store.start(node) if is_light(self._instance, node) else None

    def _read_workflow(self) -> Workflow | None:
        node = self._head.row.workflow
        if node is None or weight(self._instance, node) > 4 * LARGEST_IN_A_LINE:
            return None
        return self._instance.registry.workflow(node)

    def value(self) -> dict[str, Any]:
        from uwf_git.engine.state import state

        head, row = self._head, self._head.row
        unread = {"status": ThreadState.CORRUPT.word, "next": None}
        at: Mapping[str, Any] = self._or(lambda: state(self._instance, head), unread)
        status = at["status"]
        bars = self._bars(at)
        end = max((bar["end"] for bar in bars), default=0.0)
        is_moving = bool(bars) and bars[-1]["kind"] in NOW_KINDS
        value = {
            "thread": head.thread,
            "title": row.title or head.thread,
            "name": row.name,
            "workflow": row.workflow,
            "head": row.node,
            "status": status,
            "state": dict(at),
            "started": iso(self._started),
            "updated": iso(head.updated),
            "elapsed": round(max(0.0, (self._now if is_moving else head.updated) - self._started), 1),
            **self._spent(),
            **self._budget(),
            "steps": row.number,
            "first": self._begin + 1,
            "last": self._end,
            "clock": [min((bar["begin"] - bar["waited"] for bar in bars), default=0.0), end],
            "bars": bars,
            "graph": self._or(lambda: self._graph(at), None),
        }
        return {**value, "problems": list(self._problems)}

    # Above the bars

    def _spent(self) -> dict[str, Any]:
        return self._amounts(self._or(self._account, None))

    def _account(self) -> Totals | None:
        from uwf_git.engine.thread_spending import account

        instance, head = self._instance, self._head
        room = _HEAVIEST
        if head.row.number and instance.store.index.spent(head.node) is None:
            for past in instance.threads.past(head.node):
                room -= weight_of_run(instance, past.step.detail)
                if room < 0:
                    self._problems[f"more than is summed up here: uwf stats {head.thread}"] = None
                    return None
        return account(instance, head).spent

    def _amounts(self, totals: Totals | None) -> dict[str, Any]:
        return amounts_value(totals, self._prices)

    def _budget(self) -> dict[str, Any]:
        from uwf_git.engine.budget import Budgets

        standing = self._or(lambda: Budgets(self._instance).standing(self._head), None)
        if standing is None:
            return {"budget": [], "share": None}
        limits = [
            {"limit": key, "used": standing.used[key], "most": limit.value, "text": standing.share(key)}
            for key, limit in standing.limits.items()
        ]
        shares = [standing.used[key] / limit.value for key, limit in standing.limits.items() if limit.value]
        return {"budget": limits, "share": round(max(shares), 4) if shares else None}

    def _graph(self, at: Mapping[str, Any]) -> dict[str, Any] | None:
        workflow, head = self._workflow, self._head
        if workflow is None:
            return None
        end = end_of(head.archive.status if head.archive else None)
        now = at.get("asks") if at["next"] == USER else at["next"]
        if head.archive is not None and end is None:
            now = None
        ran: list[BranchWays] = self._or(lambda: branch_ways(self._instance, self._rows), [])
        taken = nodes_taken(without_remarks(self._rows), end)
        turn = NOW if self._is_at_work(at) else NEXT
        graph = graph_value(workflow, taken, now, turn, self._or(self._progress, ""), ran)
        last = {row.role: row.number for row in self._rows if row.kind == "step"}
        for node in graph["nodes"]:
            node["step"] = last.get(node["id"])
        return graph

    def _progress(self) -> str:
        """Return how many branches of the last fork have ended, "" if it is joined."""
        if not self._head.waits_for_join:
            return ""
        branches = branches_at(self._instance, self._head)
        return f"{branches.ended} of {branches.fork.size} done"

    # The bars

    def _bars(self, at: Mapping[str, Any]) -> list[Bar]:
        tried: dict[Hash | None, list[Bar]] = {}
        attempts: list[tuple[Hash | None, Bar]] = self._or(lambda: list(self._attempts()), [])
        for prev, bar in attempts:
            tried.setdefault(prev, []).append(bar)
        bars = [] if self._begin else [*tried.get(None, [])]
        for row in self._rows:
            if row.kind == "step" and self._begin < row.number <= self._end:
                bars += [self._step(row), *tried.get(row.node, ())]
        if self._end == self._head.row.number:
            bars += self._or(lambda: self._current(at), [])
        first = next((row.time for row in self._rows if row.number == self._begin), self._started)
        _time(bars, first - self._started)
        _draw(bars)
        return bars

    def _bar(self, kind: str, role: str, at: float, **fields: Any) -> Bar:
        """Return a bar of what ended at a Unix time; `_time` adds when it began."""
        bar: Bar = {
            "kind": kind,
            "number": None,
            "node": None,
            "role": role,
            "agent": None,
            "by": "",
            "time": iso(at),
            "begin": None,
            "end": max(0.0, round(at - self._started, 3)),
            "waited": 0.0,
            **self._amounts(None),
            "verdict": "",
            "decides": False,
            "failed": False,
            "rehearsed": False,
            "thread": None,
            "below": [],
            "more": 0,
        }
        return {**bar, **fields}

    def _step(self, row: CommitRow) -> Bar:
        role, agent = row.role or "", row.agent or ""
        kind = "fork" if begins_threads(role) else "join" if gathers_threads(role) else "step"
        if role == USER or agent == HUMAN:
            kind = "answer"
        bar = self._bar(kind, role, row.time, number=row.number, node=row.node, agent=agent)
        bar |= {"by": brief(agent, _BY), "rehearsed": agent == REHEARSE}
        try:
            self._describe(bar, row)
        except UwfError as error:
            self._problems[error.message] = None
            bar |= {"verdict": "cannot be read"}
        return bar

    def _describe(self, bar: Bar, row: CommitRow) -> None:
        instance = self._instance
        content = instance.store.get(row.node)
        step = parse_step(content.payload)
        # Commits have whole seconds. A node that another thread stored before has the time of that one.
        if 0 <= (stored := content.timestamp / 1000) - row.time < 1:
            bar["end"] = max(0.0, round(stored - self._started, 3))
        if not is_light(instance, step.output):
            bar["verdict"] = f"{in_words(weight(instance, step.output))}, which is too much to show here"
        else:
            output = instance.store.get(step.output)
            came = summary(instance, output.type, output.payload)
            bar |= {"verdict": came.text, "decides": came.decides}
            if remark_in(step.role, output.payload) is not None:
                bar["kind"] = "remark"
        if bar["kind"] in ("answer", "remark"):
            bar["by"] = name_of(instance.store.repository.commit(Oid(raw=row.oid)).committer)
            return
        if self._workflow and self._start:
            credit = cast_of(self._workflow, self._start).role(step.role).credit(step.agent)
            bar["by"] = brief(credit.text(), _BY)
        if row.merged is not None:
            bar["thread"] = instance.threads.ending_with(Oid(raw=row.merged))
        bar |= self._amounts(self._spent_by(row, step))
        if bar["kind"] == "join":
            bar |= self._joined(row)

    def _spent_by(self, row: CommitRow, step: Step) -> Totals | None:
        if row.merged is None and not gathers_threads(step.role):
            return self._spent_on(step.detail)
        from uwf_git.engine.thread_spending import spent_on

        context = StepContext(row.node, step.role, None, step.detail, step.agent)
        return spent_on(self._instance, [context])[row.node]

    def _spent_on(self, detail: Hash, failed: bool = False) -> Totals | None:
        if not is_light(self._instance, detail):
            return None
        record = self._instance.store.detail(detail)
        return spent_by(self._instance, record, failed) if record is not None else None

    def _attempts(self) -> Iterator[tuple[Hash | None, Bar]]:
        """Yield the bars of failed attempts, each with the step that it came after."""
        attempts = self._instance.attempts
        tip = attempts.tip(self._head.thread)
        for row in attempts.rows(tip)[-_TRIED:] if tip else ():
            attempt = self._or(partial(self._attempt, row), None)
            if attempt is not None:
                yield attempt

    def _attempt(self, row: CommitRow) -> tuple[Hash | None, Bar] | None:
        """Return the bar of an attempt, None for one that is too heavy."""
        if not is_light(self._instance, row.node):
            return None
        attempt = self._instance.store.attempt(row.node)
        took = self._spent_on(attempt.detail, True) if attempt.detail else None
        bar = self._bar("attempt", attempt.role, row.time, node=row.node, agent=attempt.agent, failed=True)
        bar |= {"by": brief(attempt.agent, _BY), "verdict": brief(attempt.error, _LINE)}
        return attempt.prev, {**bar, "decides": True, **self._amounts(took)}

    def _current(self, at: Mapping[str, Any]) -> list[Bar]:
        """Return a bar of what goes on now: a step in progress, branches, or a wait for a person."""
        head = self._head
        if self._is_at_work(at):
            return [self._running(at)]
        if head.archive is not None:
            return []
        if head.waits_for_join:
            branches = branches_at(self._instance, head)
            named = [(branch.thread, branch.state) for branch in branches.each]
            items = branches.fork.items
            return [{**self._bar(_JOINING, JOIN, self._now), **self._branches(named, items)}]
        from uwf_git.engine.thread_state import thread_state

        state = thread_state(self._instance, head)
        if state.actor is not Actor.PERSON:
            return []
        why = at.get("question") or at.get("reason") or at.get("error") or state.value.meaning
        role = at.get("asks") or at["next"] or ""
        return [self._bar(_WAITING, role, self._now, verdict=brief(why, _LINE))]

    def _is_at_work(self, at: Mapping[str, Any]) -> bool:
        return any(state.is_at_work for state in states_of(at["status"])) and self._instance.locks.is_held(
            self._head.thread
        )

    def _running(self, at: Mapping[str, Any]) -> Bar:
        from uwf_git.engine.progress import Watch

        step = Watch(self._instance).step(self._head.thread)
        if step is None:
            return self._bar(_RUNNING, at["next"] or "", self._now, number=self._head.row.number + 1)
        asks = leave_request(self._instance, self._head.thread)
        return self._bar(
            _WAITING if asks else _RUNNING,
            step.role,
            self._now,
            number=step.number,
            agent=step.credit.agent,
            by=brief(step.credit.text(), _BY),
            seconds=round(max(0.0, self._now - step.since), 3),
            tokens=step.tokens or None,
            verdict=brief(asks[1] if asks else step.last, _LINE),
            thread=step.child.thread if step.child is not None else None,
        )

    def _joined(self, row: CommitRow) -> dict[str, Any]:
        joined = join_at(self._instance, row.node)
        fork = self._instance.store.index.commit(row.parent) if row.parent is not None else None
        items: Sequence[Any] = ()
        if fork is not None and begins_threads(fork.role):
            items = fork_at(self._instance, fork.node).items
        return self._branches([(branch.thread, branch.status) for branch in joined], items)

    def _branches(self, named: Sequence[tuple[ThreadId, str]], items: Sequence[Any]) -> dict[str, Any]:
        from uwf_git.engine.thread_spending import spent_by_all
        from uwf_git.engine.thread_state import ThreadStates

        heads = self._instance.threads.heads([thread for thread, _ in named[:_BRANCHES]])
        totals, states = spent_by_all(self._instance, heads.values()), ThreadStates(self._instance)
        bars = []
        for number, (thread, ended) in enumerate(named[:_BRANCHES]):
            head = heads.get(thread)
            status = ended or (ABSENT if head is None else states.of(head).word)
            until: float = self._started if head is None else head.updated
            if status == _RUNNING:
                until = self._now
            item = item_text(items[number]) if number < len(items) else thread
            bar = self._bar("branch", item, until, number=number, verdict=status, decides=True, thread=thread)
            bars.append({**bar, "failed": status in _BAD, **self._amounts(totals.get(thread))})
        return {"below": bars, "more": max(0, len(named) - _BRANCHES)}


def _time(bars: Sequence[Bar], end: float) -> None:
    """Add when each bar began, and how long nobody worked before: steps follow one another. `end` is that of the bar
    before the first."""
    for bar in bars:
        bar["end"] = max(end, bar["end"])
        work = bar["seconds"] or 0.0
        if bar["kind"] == "join" or any(branch["verdict"] == _RUNNING for branch in bar["below"]):
            work = bar["end"] - end
        elif bar["kind"] in ("answer", "remark", _WAITING, _JOINING):
            work = 0.0
        bar["begin"] = round(max(end, bar["end"] - work), 3)
        bar["waited"] = round(bar["begin"] - end, 3)
        for branch in bar["below"]:
            branch["begin"] = bar["begin"]
            branch["end"] = min(max(branch["end"], bar["begin"]), bar["end"])
        end = bar["end"]


def _draw(bars: Sequence[Bar]) -> None:
    """Add where each bar is drawn, from 0 to 1: waits that would leave no room for the rest are folded."""
    worked = sum(bar["end"] - bar["begin"] for bar in bars)
    most = worked * _MOST_IDLE if worked else max((bar["waited"] for bar in bars), default=0.0)
    waits = [min(bar["waited"], most) for bar in bars]
    whole = (worked + sum(waits)) or 1.0
    place: float = 0.0
    for bar, wait in zip(bars, waits, strict=True):
        work = bar["end"] - bar["begin"]
        bar["drawn"] = [round(at / whole, 4) for at in (place, place + wait, place + wait + work)]
        bar["folded"] = wait < bar["waited"]
        place += wait + work
        begin, end = bar["drawn"][1:]
        for branch in bar["below"]:
            part = (branch["end"] - bar["begin"]) / work if work else 0.0
            branch["drawn"] = [begin, begin, round(begin + (end - begin) * part, 4)]
            branch["folded"] = False


def brief(content: str, at_most: int) -> str:
    """Return the beginning of any text on one line."""
    return one_line(content[: 4 * at_most], at_most)


def name_of(author: str) -> str:
    """Return the name of an author's name and address."""
    return author.partition(" <")[0]
