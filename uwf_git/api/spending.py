"""Spending of agents, and threads' budgets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from uwf_git.base.errors import UwfError
from uwf_git.engine.spending import BY as BY
from uwf_git.engine.spending import day_of, grouped, merged, together

if TYPE_CHECKING:
    from uwf_git.config.settings import Price
    from uwf_git.engine.spending import Group, Run, Totals
    from uwf_git.format.ids import Hash, ThreadId
    from uwf_git.store.history import Head
    from uwf_git.store.instance import Instance


Span = tuple[float | None, float | None]
"""From when, and up to when, in Unix seconds; None is without a limit."""


def sums(
    instance: Instance, by: str, span: Span, threads: Collection[ThreadId] = (), daily: bool = False
) -> dict[str, Any]:
    """Return the spending in a span by one of BY: the JSON of `uwf stats`. With `daily` also the sums of `days`, each
    with its `parts` by the same. Unreadable threads are listed as `damaged`, unless `threads` are named. Raises what
    reading those raises."""
    damaged: list[dict[str, Any]] = []
    heads = _heads(instance, threads, damaged)
    runs = [run for run in _runs(instance, heads, bool(threads), damaged) if _within(run, span)]
    known = instance.config.prices
    by_day = _by_day(runs, by) if daily else {}
    parts = merged(by_day.values()) if daily else grouped(runs, by)
    total = _sums(together(part.spent for part in parts), known)
    value = {"by": by, "groups": _groups(parts, by, known), "total": total, "damaged": damaged}
    return {**value, "days": _days(by_day, by, known)} if daily else value


def _groups(parts: Sequence[Group], by: str, prices: Mapping[str, Price]) -> list[dict[str, Any]]:
    """Return groups as JSON, the dearest first; steps and days in their order."""
    groups = [{**_named(part, by), **_sums(part.spent, prices)} for part in parts]
    if by not in ("step", "day"):
        groups.sort(key=lambda item: (-(item["cost"] or 0), -(tokens(item) or 0), -item["seconds"]))
    return groups


def _by_day(runs: Iterable[Run], by: str) -> dict[str, list[Group]]:
    of_days: dict[str, list[Run]] = {}
    for run in runs:
        of_days.setdefault(day_of(run), []).append(run)
    return {day: grouped(of_day, by) for day, of_day in sorted(of_days.items())}


def _days(
    by_day: Mapping[str, Sequence[Group]], by: str, prices: Mapping[str, Price]
) -> list[dict[str, Any]]:
    return [
        {
            "day": day,
            **_sums(together(part.spent for part in parts), prices),
            "parts": _groups(parts, by, prices),
        }
        for day, parts in by_day.items()
    ]


def spent_since(instance: Instance, heads: Sequence[Head], since: float) -> dict[str, Any]:
    """Return what threads have spent since a moment, in Unix seconds: the JSON of a sum, as `sums` has it. Unreadable
    threads are left out."""
    from uwf_git.engine.thread_spending import sum_since

    return _sums(sum_since(instance, heads, since), instance.known_prices)


def runs_of_heads(instance: Instance, heads: Iterable[Head]) -> Iterable[Run]:
    """Return the runs of threads, as `sums` counts them, without unreadable ones."""
    return _runs(instance, heads, False, [])


def failure_causes(instance: Instance, heads: Sequence[Head]) -> Counter[tuple[str, str]]:
    """Return how many attempts of threads have failed, by the workflow's name and one of CAUSES."""
    from uwf_git.engine.thread_spending import causes_of_all

    total: Counter[tuple[str, str]] = Counter()
    for head, causes in causes_of_all(instance, heads):
        for cause, number in causes.items():
            total[head.row.name or "", cause] += number
    return total


def _heads(instance: Instance, threads: Collection[ThreadId], damaged: list[dict[str, Any]]) -> list[Head]:
    from uwf_git.store.history import Head

    if threads:
        return [instance.threads.head(thread) for thread in threads]
    heads = instance.threads.meant(archived=True)
    damaged += [head._asdict() for head in heads if not isinstance(head, Head)]
    return [head for head in heads if isinstance(head, Head)]


def _runs(
    instance: Instance, heads: Iterable[Head], named: bool, damaged: list[dict[str, Any]]
) -> Iterable[Run]:
    """Return all runs. A shared step counts once, for the oldest thread; a sub-workflow's or branch's
    step for its own thread if selected."""
    from uwf_git.engine.thread_spending import nested, runs, runs_of_all

    runs_by_id: dict[str, Run] = {}
    ordered = sorted(heads, key=lambda head: head.thread)
    by_others: list[Head] = []
    runs_of_heads = (
        ((head, runs(instance, head)) for head in ordered) if named else runs_of_all(instance, ordered)
    )
    for head, item in runs_of_heads:
        if isinstance(item, UwfError):
            damaged.append({"thread": head.thread, "problem": item.message})
            continue
        for run in item:
            runs_by_id.setdefault(run.id, run)
        if any(not run.spent.lines and not run.spent.unmetered for run in item):
            by_others.append(head)
    for head in by_others:
        try:
            for run in nested(instance, head, runs_by_id):
                runs_by_id.setdefault(run.id, run)
        except UwfError as error:
            damaged.append({"thread": head.thread, "problem": error.message})
    return runs_by_id.values()


def _within(run: Run, span: Span) -> bool:
    since, until = span
    return (since is None or run.time >= since) and (until is None or run.time < until)


def _named(group: Group, by: str) -> dict[str, Any]:
    if by == "step":
        thread, number, role = group.key
        return {"thread": thread, "step": number, "role": role}
    return {by: group.key[0] or None}


def _sums(spent: Totals, prices: Mapping[str, Price]) -> dict[str, Any]:
    tokens, paid = spent.tokens, spent.money(prices)
    return {
        "steps": spent.steps,
        "attempts": spent.attempts,
        "seconds": round(spent.seconds, 3),
        "input": tokens.input if tokens else None,
        "output": tokens.output if tokens else None,
        "cached": tokens.cached if tokens else None,
        "written": tokens.written if tokens else None,
        "cost": None if paid.cost is None else round(paid.cost, 6),
        "unpriced": paid.unpriced,
        "unmetered": spent.unmetered,
    }


def money_value(spent: Totals, prices: Mapping[str, Price]) -> dict[str, Any]:
    """Return a spending as JSON: `seconds`, `cost`, null if it is unknown, and the `unpriced` tokens."""
    paid = spent.money(prices)
    cost = None if paid.cost is None else round(paid.cost, 6)
    return {"seconds": round(spent.seconds, 3), "cost": cost, "unpriced": paid.unpriced}


def amounts_value(spent: Totals | None, prices: Mapping[str, Price]) -> dict[str, Any]:
    """Return as `money_value` with `tokens`; nulls for an unknown spending."""
    if spent is None:
        return {"seconds": None, "tokens": None, "cost": None, "unpriced": 0}
    money, tokens = money_value(spent, prices), spent.tokens
    return {"seconds": money["seconds"], "tokens": None if tokens is None else tokens.total, **money}


def tokens(value: dict[str, Any]) -> int | None:
    """Return a sum's tokens, None if unknown."""
    return None if value["input"] is None else value["input"] + value["output"]


def budget_value(instance: Instance, thread: ThreadId) -> list[dict[str, Any]]:
    """Return a thread's limits as JSON, with use and source."""
    from uwf_git.engine.budget import COST, METERED, Budgets, pending
    from uwf_git.engine.thread_spending import account

    head = instance.threads.head(thread)
    standing = Budgets(instance).standing(head)
    recorded = account(instance, head).raised
    fresh = pending(instance, thread)
    rows: list[dict[str, Any]] = []
    for limit in standing.limits.values() if standing else ():
        assert standing is not None
        row: dict[str, Any] = {"limit": limit.key, "most": limit.value, "used": standing.known(limit.key)}
        if limit.key == COST and standing.unpriced:
            row["unpriced"] = standing.unpriced
        if limit.key in METERED and standing.unmetered:
            row["unmetered"] = standing.unmetered
        row["source"] = limit.source
        value, step = recorded.get(limit.key, (None, None))
        if limit.source == "raised" and limit.key not in fresh and step and value == limit.value:
            row |= {"step": step, "by": _committer(instance, step)}
        rows.append(row)
    return rows


def _committer(instance: Instance, step: Hash) -> str:
    commit = instance.store.repository.commit(instance.threads.commit_of(step))
    return commit.committer.rsplit(" <", 1)[0]
