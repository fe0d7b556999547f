"""The spending of threads: the sum over their steps, their sub-workflows' and branches' steps, and failed attempts.

The sum over the StepNodes up to a head never changes, so the index caches it; a join names the last StepNode of each
branch. Failed attempts, and branches that run or were left out of a join, are read from their refs each time.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.base.errors import UwfError
from uwf_git.engine import spending
from uwf_git.engine.forks import begun_at, join_at
from uwf_git.engine.spending import DEEPEST, ModelUsage, Run, Tokens, Totals, together
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.kinds import EXTRACT, SUBWORKFLOW, StepContext, TurnRecord, parse_step
from uwf_git.format.types import USER, is_kind
from uwf_git.git.repository import Oid
from uwf_git.store.history import is_call
from uwf_git.workflow.turn import begins_threads, gathers_threads

if TYPE_CHECKING:
    from uwf_git.format.kinds import Detail
    from uwf_git.store.attempts import FailedAttempt
    from uwf_git.store.history import Head, PastStep
    from uwf_git.store.instance import Instance


class Account(NamedTuple):
    """A thread's spending up to a head. `raised` has the raised limits, each with the step whose detail has
    it; `joins` are the joins of its branches, of theirs, and of its sub-workflows' branches."""

    spent: Totals
    raised: Mapping[str, tuple[float, Hash]]
    joins: tuple[Hash, ...] = ()


def runs(instance: Instance, head: Head) -> list[Run]:
    """Return the spending of steps and failed attempts, by step number and time, without sub-workflows'
    steps."""
    tip = instance.attempts.tip(head.thread)
    cached_runs = _CachedRuns(instance, [head], {head.thread: tip} if tip else {})
    runs = cached_runs.runs(head)
    cached_runs.remember()
    return runs


def runs_of_all(instance: Instance, heads: Sequence[Head]) -> Iterator[tuple[Head, list[Run] | UwfError]]:
    """Yield many threads' runs, or the error of reading them. Cached up to the last head requested."""
    tips = {thread: Oid(raw=tip) for thread, tip in instance.store.index.attempt_tips().items()}
    cached_runs = _CachedRuns(instance, heads, tips)
    for head in heads:
        try:
            runs: list[Run] | UwfError = cached_runs.runs(head)
        except UwfError as error:
            runs = error
        yield head, runs
    cached_runs.remember()


def causes_of_all(instance: Instance, heads: Sequence[Head]) -> Iterator[tuple[Head, dict[str, int]]]:
    """Yield the threads with failed attempts, and how many failed by each of CAUSES."""
    index = instance.store.index
    tips = {thread: _CAUSES + tip.hex() for thread, tip in index.attempt_tips().items()}
    known, fresh = index.spent_at([*tips.values()]), dict[str, str]()
    for head in heads:
        if (at := tips.get(head.thread)) is None:
            continue
        if at not in known:
            with contextlib.suppress(UwfError):
                causes = Counter(attempt.cause for attempt in instance.attempts.all(head.thread))
                known[at] = fresh[at] = json.dumps(causes)
        if at in known:
            yield head, json.loads(known[at])
    if fresh:
        with index.transaction():
            for at, text in fresh.items():
                index.set_spent(at, text)


def sum_since(instance: Instance, heads: Sequence[Head], since: float) -> Totals:
    """Return what threads have spent since a moment, in Unix seconds: each step and attempt once, sub-workflows' and
    branches' that are no threads among them too. Unreadable threads are left out."""
    tips = {thread: Oid(raw=tip) for thread, tip in instance.store.index.attempt_tips().items()}
    cached_runs, seen = _CachedRuns(instance, heads, tips), set[str]()
    by_others: list[Head] = []
    sums: dict[tuple[str, bool], list[float]] = {}
    steps = attempts = unmetered = 0
    seconds = 0.0
    for head in heads:
        try:
            rows = cached_runs.rows(head)
        except UwfError:
            continue
        if any(not own[2] and not own[1] for _, _, _, own in rows):
            by_others.append(head)
        for name, time, is_step, own in rows:
            if time < since or name in seen:
                continue
            seen.add(name)
            steps, attempts = steps + is_step, attempts + (not is_step)
            seconds, unmetered = seconds + own[0], unmetered + own[1]
            for model, *tokens, reported in own[2]:
                line = sums.setdefault((model, reported is None), [0] * 5)
                for place, number in enumerate((*tokens, reported or 0.0)):
                    line[place] += number
    cached_runs.remember()
    lines = tuple(
        ModelUsage(model, Tokens(*map(int, line[:4])), None if is_unpriced else line[4])
        for (model, is_unpriced), line in sorted(sums.items())
    )
    within = list[Totals]()
    for head in by_others:
        with contextlib.suppress(UwfError):
            inner = [run for run in nested(instance, head, seen) if run.time >= since and run.id not in seen]
            seen.update(run.id for run in inner)
            within += [run.spent for run in inner]
    return together([Totals(steps, attempts, seconds, unmetered, lines), *within])


class _CachedRuns:
    """Runs as JSON in the index, by the StepNode or attempt's commit that they lead to."""

    def __init__(self, instance: Instance, heads: Sequence[Head], tips: Mapping[ThreadId, Oid]) -> None:
        self._instance = instance
        self._tips = tips
        places = [str(at) for head in heads for at in (head.node, tips.get(head.thread)) if at]
        self._known = instance.store.index.spent_at([_ALONE + at for at in places])
        self._fresh: dict[str, str] = {}
        self._outgrown = set[Hash]()

    def runs(self, head: Head) -> list[Run]:
        if is_call(self._instance.store, head.row.start):
            return []  # counted by the step that asked
        tip = self._tips.get(head.thread)
        runs: list[Run] = []
        numbers: dict[str | None, int] = {None: 1}
        of = head.thread, head.row.name or ""
        steps = self._at(head.node, lambda: self._steps(head.node))
        for number, (node, role, agent, time, *own) in enumerate(steps, 1):
            numbers[node] = number + 1
            if role != USER:
                runs.append(Run(node, *of, number, role, agent, time, _spent_again(1, 0, own)))
        for name, prev, role, agent, time, *own in (
            self._at(str(tip), lambda: self._attempts(head.thread)) if tip else ()
        ):
            runs.append(Run(name, *of, numbers.get(prev, 0), role, agent, time, _spent_again(0, 1, own)))
        return sorted(runs, key=lambda run: (run.number, run.time)) if tip else runs

    def rows(self, head: Head) -> list[tuple[str, float, bool, list[Any]]]:
        """Return of each run its id, its time, whether it made a step, and what it spent as `_own`."""
        if is_call(self._instance.store, head.row.start):
            return []
        tip = self._tips.get(head.thread)
        steps = self._at(head.node, lambda: self._steps(head.node))
        attempts = self._at(str(tip), lambda: self._attempts(head.thread)) if tip else ()
        return [
            *((row[0], row[3], True, row[4:]) for row in steps if row[1] != USER),
            *((row[0], row[4], False, row[5:]) for row in attempts),
        ]

    def remember(self) -> None:
        index = self._instance.store.index
        if self._fresh:
            with index.transaction():
                index.drop_spent(_ALONE + at for at in self._outgrown if not index.heads_at(at))
                for at, text in self._fresh.items():
                    index.set_spent(at, text)

    def _at(self, place: str, read: Callable[[], list[Any]]) -> list[Any]:
        at = _ALONE + place
        text = self._known.get(at) or self._fresh.get(at)
        if text is not None:
            numbers: list[Any] = json.loads(text)
            return numbers
        numbers = read()
        self._fresh[at] = json.dumps(numbers)
        return numbers

    def _steps(self, node: Hash) -> list[Any]:
        instance, numbers = self._instance, list[Any]()
        newer: list[PastStep] = []
        for past in instance.threads.past(node):
            if newer and (text := instance.store.index.spent(_ALONE + past.hash)) is not None:
                numbers = json.loads(text)
                self._outgrown.add(past.hash)
                break
            newer.append(past)
        for hash_, step, time in reversed(newer):
            spent = Totals() if step.role == USER else _spent(instance, step.detail, step.agent)
            numbers.append([hash_, step.role, step.agent, time // 1000, *_own(spent)])
        return numbers

    def _attempts(self, thread: ThreadId) -> list[Any]:
        numbers = []
        for attempt in self._instance.attempts.all(thread):
            spent = _spent(self._instance, attempt.detail, attempt.agent, attempt=True)
            numbers.append(
                [_attempt_id(attempt), attempt.prev, attempt.role, attempt.agent, attempt.time, *_own(spent)]
            )
        return numbers


_CAUSES = "~"
"""Before the newest attempt of a thread in the index: why its attempts failed, and not what they spent."""
_ALONE = "="
"""Before a place in the index: what each of the runs up to there has spent, and not their sum."""


def _own(spent: Totals) -> tuple[Any, ...]:
    return spent.seconds, spent.unmetered, [[line.model, *line.tokens, line.reported] for line in spent.lines]


def _spent_again(steps: int, attempts: int, own: Sequence[Any]) -> Totals:
    seconds, unmetered, lines = own
    models = tuple([ModelUsage(line[0], Tokens(*line[1:-1]), line[-1]) for line in lines])
    return Totals(steps, attempts, seconds, unmetered, models)


def nested(instance: Instance, head: Head, known: Container[str] = ()) -> list[Run]:
    """Return the spending of sub-workflow steps, each with its parent step's number and role, and that of branches,
    with the number of their join. Runs whose id is `known` are left out."""
    return [*_nested(instance, head, head.node, _Place(head.thread, "", known), 0)]


class _Place(NamedTuple):
    """To which thread and workflow nested runs belong, and to which of its steps once that is known."""

    thread: str
    workflow: str
    known: Container[str]
    number: int = 0
    role: str = ""
    counts: bool = True


def spent_on(instance: Instance, steps: Iterable[StepContext]) -> dict[Hash, Totals]:
    """Return each step's spending. A sub-workflow's step includes its thread's steps, a join its branches; each counts
    once."""
    totals: dict[Hash, Totals] = {}
    for step in steps:
        if step.role == USER:
            totals[step.hash] = Totals()
        elif _is_child(instance, step.detail):
            totals[step.hash] = _account_at(instance, step.detail, 1).spent._replace(steps=1)
        elif gathers_threads(step.role):
            spent, joins = _spent_at_join(instance, step.hash, 1)
            totals[step.hash] = together([spent, *_missing_at(instance, joins, DEEPEST)])._replace(steps=1)
        else:
            totals[step.hash] = _spent(instance, step.detail, step.agent)
    return totals


def _nested(instance: Instance, head: Head | None, node: Hash, place: _Place, depth: int) -> Iterator[Run]:
    """Yield the runs within the steps up to a node; its own too if `place` has a number. `head` is None for a
    sub-workflow."""
    if depth > DEEPEST:
        return
    number = 0
    for number, (hash_, step, time) in enumerate(_steps_to(instance, node), 1):
        at = place if place.number else place._replace(number=number)
        if _is_child(instance, step.detail):
            inner = at._replace(role=at.role or step.role, counts=False)
            yield from _nested(instance, None, step.detail, _named(instance, inner, step.detail), depth + 1)
            continue
        if place.number and step.role != USER and hash_ not in place.known:
            spent = _spent(instance, step.detail, step.agent)._replace(steps=int(place.counts))
            role = place.role or step.role
            yield Run(hash_, at.thread, at.workflow, at.number, role, step.agent, time // 1000, spent)
        if gathers_threads(step.role):
            joined = join_at(instance, hash_)
            heads = instance.threads.heads([entry.thread for entry in joined if entry.is_left])
            for item in joined:
                last = heads[item.thread].node if item.thread in heads else item.step
                yield from _of_branch(instance, heads.get(item.thread), item.thread, last, at, depth)
    if head is not None and (branches := begun_at(instance, head.row)):
        at = place if place.number else place._replace(number=number + 1)
        for thread, branch in instance.threads.heads(branches).items():
            yield from _of_branch(instance, branch, thread, branch.node, at, depth)


def _of_branch(
    instance: Instance, head: Head | None, thread: ThreadId, last: Hash | None, place: _Place, depth: int
) -> Iterator[Run]:
    if last is not None:
        place = _named(instance, place, last)
        yield from _nested(instance, head, last, place, depth + 1)
    for attempt in instance.attempts.all(thread):
        name = _attempt_id(attempt)
        if name not in place.known:
            spent = _spent(instance, attempt.detail, attempt.agent, attempt=True)
            role = place.role or attempt.role
            yield Run(
                name, place.thread, place.workflow, place.number, role, attempt.agent, attempt.time, spent
            )


def _named(instance: Instance, place: _Place, node: Hash) -> _Place:
    content = instance.store.get(node)
    start = parse_step(content.payload).start if is_kind(content.type, "step") else node
    workflow = instance.store.start(start).workflow
    return place._replace(workflow=instance.registry.workflow(workflow).name)


def _attempt_id(attempt: FailedAttempt) -> str:
    return f"{attempt.hash} {attempt.number}"  # two identical failures are one node


def _steps_to(instance: Instance, node: Hash) -> list[PastStep]:
    return list(instance.threads.past(node))[::-1]


def _is_child(instance: Instance, detail: Hash) -> bool:
    return is_kind(instance.store.get(detail).type, "step")


_Turns = dict[Hash, tuple[TurnRecord, ...]]
"""Turns that were read, without what was said in them: several runs may name the same one, however large. Of what is no
turn there are none."""


def _spent(
    instance: Instance, node: Hash | None, agent: str, attempt: bool = False, known: _Turns | None = None
) -> Totals:
    if node is not None and _is_child(instance, node):
        return Totals(steps=int(not attempt), attempts=int(attempt))
    detail = instance.store.detail(node) if node else None
    turns = _turns(instance, detail, {} if known is None else known) if detail else ()
    spent = spending.spent(detail, turns, attempt)
    if detail and agent == SUBWORKFLOW:  # that thread tells
        return spent._replace(seconds=0.0, unmetered=0)
    from uwf_git.config.resolve import asks_no_model

    return spent._replace(unmetered=0) if asks_no_model(agent) else spent


def _turns(instance: Instance, detail: Detail, known: _Turns) -> Iterator[TurnRecord]:
    for node in detail.turns:
        if node not in known:
            known[node] = tuple(map(_counted, instance.store.turns(detail._replace(turns=(node,)))))
        yield from known[node]


def _counted(turn: TurnRecord) -> TurnRecord:
    return turn._replace(text="", arguments=turn.arguments if turn.tool == EXTRACT else None, result=None)


def account(instance: Instance, head: Head) -> Account:
    """Return a thread's spending, including failed attempts, sub-workflows, and branches: joined ones up to the join,
    those it waits for up to now. Branches that are not here are missing."""
    steps = _account_at(instance, head.node, 0)
    parts = [steps.spent, _spent_on_attempts(instance, head.thread)]
    parts += _spent_beside(instance, head, steps.joins, DEEPEST)
    return steps._replace(spent=together(parts))


def spent_on_branches(instance: Instance, head: Head) -> dict[ThreadId, tuple[Head, Totals]]:
    """Return the head and the spending of each branch that a thread waits for, except those that are not here."""
    return _spent_by_each(instance, begun_at(instance, head.row), DEEPEST)


def _spent_beside(instance: Instance, head: Head, joins: Iterable[Hash], deepest: int) -> list[Totals]:
    """Return what no StepNode up to a head has: what its joins lack, and the branches that it waits for."""
    waited_for = _spent_by_each(instance, begun_at(instance, head.row), deepest)
    return [*_missing_at(instance, joins, deepest), *(spent for _, spent in waited_for.values())]


def _missing_at(instance: Instance, joins: Iterable[Hash], deepest: int) -> list[Totals]:
    """Return what joins don't name: failed attempts of joined branches, and all of those that were left out."""
    joined, threads = list[ThreadId](), list[ThreadId]()
    for join in joins:
        for branch in join_at(instance, join):
            (threads if branch.is_left else joined).append(branch.thread)
    tips = instance.attempts.tips(joined) if joined else {}
    totals = [_spent_on_attempts(instance, thread, tip) for thread, tip in tips.items()]
    return [*totals, *(spent for _, spent in _spent_by_each(instance, threads, deepest).values())]


def _spent_by_each(
    instance: Instance, threads: Sequence[ThreadId], deepest: int
) -> dict[ThreadId, tuple[Head, Totals]]:
    if not threads or not deepest:
        return {}
    heads = instance.threads.heads(threads)
    tips = instance.attempts.tips([*heads])
    known = instance.store.index.spent_at([head.node for head in heads.values() if head.row.number])
    spent: dict[ThreadId, tuple[Head, Totals]] = {}
    for thread, head in heads.items():
        steps = Account(Totals(), {}) if not head.row.number else _read(known.get(head.node))
        steps = steps or _account_at(instance, head.node, 0)
        parts = [steps.spent, *_spent_beside(instance, head, steps.joins, deepest - 1)]
        if thread in tips:
            parts.append(_spent_on_attempts(instance, thread, tips[thread]))
        spent[thread] = head, together(parts)
    return spent


def spent_by_all(instance: Instance, heads: Iterable[Head]) -> dict[ThreadId, Totals]:
    """Return all readable threads' spending, with one query to the index."""
    index = instance.store.index
    heads = list(heads)
    tips = index.attempt_tips()
    places = [head.node for head in heads if head.row.number]
    known = index.spent_at([*places, *(tips[head.thread].hex() for head in heads if head.thread in tips)])
    totals: dict[ThreadId, Totals] = {}
    for head in heads:
        tip = tips.get(head.thread)
        told = _read(known.get(head.node)) if head.row.number else Account(Totals(), {})
        tried = _read(known.get(tip.hex())) if tip else Account(Totals(), {})
        with contextlib.suppress(UwfError):
            if told is None or tried is None or told.joins or begins_threads(head.row.role):
                totals[head.thread] = account(instance, head).spent
            else:
                totals[head.thread] = together((told.spent, tried.spent)) if tip else told.spent
    return totals


def _account_at(instance: Instance, node: Hash, depth: int) -> Account:
    index = instance.store.index
    known = _read(index.spent(node))
    if known is not None:
        return known
    newer: list[PastStep] = []
    for past in instance.threads.past(node):
        if (known := _read(index.spent(past.hash))) is not None:
            break
        newer.append(past)
    parts = [known.spent] if known else []
    raised = dict(known.raised) if known else {}
    joins = list(known.joins) if known else []
    turns: _Turns = {}
    for hash_, step, _ in reversed(newer):
        if _is_child(instance, step.detail):
            if depth < DEEPEST:
                child = _account_at(instance, step.detail, depth + 1)
                parts.append(child.spent._replace(steps=1))
                joins += child.joins
            continue
        if gathers_threads(step.role) and depth < DEEPEST:
            branches, within = _spent_at_join(instance, hash_, depth + 1)
            parts.append(branches)
            joins += within
        if step.role != USER:
            parts.append(_spent(instance, step.detail, step.agent, known=turns))
        detail = instance.store.detail(step.detail)
        if detail is not None and detail.budget:
            raised.update({key: (value, hash_) for key, value in detail.budget.items()})
    account = Account(together(parts), raised, tuple(joins))
    if newer:
        index.set_spent(node, _written(account))
    return account


def _spent_at_join(instance: Instance, join: Hash, depth: int) -> tuple[Totals, list[Hash]]:
    """Return what the steps of joined branches have spent, and the joins: this one and those within them."""
    lasts = [branch.step for branch in join_at(instance, join) if branch.step is not None]
    accounts = [_account_at(instance, last, depth) for last in lasts]
    return together(account.spent for account in accounts), [
        join,
        *(at for account in accounts for at in account.joins),
    ]


def _spent_on_attempts(instance: Instance, thread: ThreadId, tip: Oid | None = None) -> Totals:
    tip = tip or instance.attempts.tip(thread)
    if tip is None:
        return Totals()
    index = instance.store.index
    if (known := _read(index.spent(str(tip)))) is not None:
        return known.spent
    every = instance.attempts.all(thread)
    turns: _Turns = {}
    spent = together(_spent(instance, attempt.detail, attempt.agent, True, turns) for attempt in every)
    index.set_spent(str(tip), _written(Account(spent, {})))
    return spent


def _written(account: Account) -> str:
    *counts, lines = account.spent
    numbers = [*counts, [[line.model, *line.tokens, line.reported] for line in lines], account.raised]
    return json.dumps([*numbers, account.joins] if account.joins else numbers)


def _read(text: str | None) -> Account | None:
    if text is None:
        return None
    steps, attempts, seconds, unmetered, lines, raised, *joins = json.loads(text)
    models = tuple(ModelUsage(line[0], Tokens(*line[1:-1]), line[-1]) for line in lines)
    return Account(
        Totals(steps, attempts, seconds, unmetered, models),
        {key: (value, Hash(step)) for key, (value, step) in raised.items()},
        tuple(map(Hash, joins[0])) if joins else (),
    )
