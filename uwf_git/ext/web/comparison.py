"""`/diff/A/B`: two threads side by side after their last common step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from uwf_git.plugin import (
    Hash,
    Head,
    History,
    Instance,
    Page,
    PageRequest,
    SpendingTotals,
    StepContext,
    Workflow,
    shared_steps,
    spending_account,
    spent_on,
    summary_of,
    thread_state,
    title_of,
)

SHOWN = 50
OFFERED = 30
_FIELDS = 40  # of an output that are shown


class Field(NamedTuple):
    """An output's field. `mark` says how it differs, or ""."""

    name: str
    value: Any
    mark: str


def page(instance: Instance, request: PageRequest) -> Page:
    """Show the comparison. Threads are in the path or `a` and `b` in the query; `from` skips rows. Raises
    NotFound, Usage."""
    names = [request.parts.get(side) or request.one(side) for side in ("a", "b")]
    if not all(names):
        return _choice(instance, next(filter(None, names), ""))
    heads = [instance.threads.head(instance.threads.find(name)) for name in names]
    histories = [instance.threads.history(head) for head in heads]
    shared = shared_steps(*histories)
    first = request.number("from")
    begin = shared + first
    rows = _rows(instance, histories, begin)
    longest = max(len(history.steps) for history in histories)
    one, other = histories
    return Page(
        "comparison.html",
        f"{title_of(one.start.heading)} and {title_of(other.start.heading)}",
        {
            "asked": request,
            "sides": [_side(instance, head, history) for head, history in zip(heads, histories, strict=True)],
            "shared": shared,
            "same_workflow": one.workflow_hash == other.workflow_hash,
            "same_start": one.start_hash == other.start_hash,
            "same": heads[0].thread == heads[1].thread,
            "rows": rows,
            "first": first,
            "size": SHOWN,
            "more": max(0, longest - begin - SHOWN),
            "others": _others(instance, heads[0]),
        },
    )


def _choice(instance: Instance, name: str) -> Page:
    head = instance.threads.head(instance.threads.find(name)) if name else None
    return Page(
        "comparison.html",
        "Compare threads",
        {"sides": [], "chosen": head, "others": _others(instance, head), "asked": PageRequest({})},
    )


def _others(instance: Instance, head: Head | None) -> list[dict[str, str]]:
    heads = [item for item in instance.threads.meant(archived=True) if isinstance(item, Head)]
    if head is not None:
        row, thread = head.row, head.thread
        heads = [item for item in heads if item.thread != thread]
        heads.sort(key=lambda entry: (entry.row.start != row.start, entry.row.name != row.name))
    return [
        {"thread": item.thread, "said": f"{item.row.title or item.thread} · {item.row.name}"}
        for item in heads[:OFFERED]
    ]


def _side(instance: Instance, head: Head, history: History) -> dict[str, Any]:
    spent = spending_account(instance, head).spent
    return {
        "thread": head.thread,
        "title": title_of(history.start.heading),
        "prompt": history.start.prompt,
        "workflow": history.workflow.name,
        "hash": history.workflow_hash,
        "status": thread_state(instance, head).word,
        "steps": len(history.steps),
        "attempts": spent.attempts,
        "seconds": spent.seconds,
        **_cost(instance, spent),
    }


def _cost(instance: Instance, spent: SpendingTotals) -> dict[str, Any]:
    paid = spent.money(instance.config.prices)
    return {"cost": paid.cost, "unpriced": paid.unpriced}


def _rows(instance: Instance, histories: Sequence[History], begin: int) -> list[dict[str, Any]]:
    parts = [history.steps[begin : begin + SHOWN] for history in histories]
    spent = spent_on(instance, [step for part in parts for step in part])
    rows = []
    for place in range(max(map(len, parts))):
        steps = [part[place] if place < len(part) else None for part in parts]
        rows.append(
            {
                "number": begin + place + 1,
                "sides": [
                    None if step is None else _step(instance, history.workflow, step, other, spent)
                    for history, step, other in zip(histories, steps, steps[::-1], strict=True)
                ],
            }
        )
    return rows


def _step(
    instance: Instance,
    workflow: Workflow,
    step: StepContext,
    other: StepContext | None,
    spent: Mapping[Hash, SpendingTotals],
) -> dict[str, Any]:
    used = spent[step.hash]
    fields = _fields(step.output, None if other is None else other.output, other is not None)
    return {
        "step": step.hash,
        "role": step.role,
        "by": step.by,
        "verdict": summary_of(instance, workflow, step.role, step.output).text,
        "fields": fields[:_FIELDS],
        "fields_left": len(fields[_FIELDS:]),
        "same": other is not None and other.output == step.output,
        "other_role": other is not None and other.role != step.role,
        "other_agent": other is not None and other.by != step.by,
        "seconds": used.seconds,
        **_cost(instance, used),
    }


def _fields(output: Any, other: Any, compared: bool) -> list[Field]:
    if not isinstance(output, Mapping):
        return [Field("", output, "differs" if compared and output != other else "")]
    if not compared or not isinstance(other, Mapping):
        return [Field(name, item, "") for name, item in output.items()]
    marks = {
        name: "" if name in other and other[name] == item else "differs" for name, item in output.items()
    }
    return [Field(name, item, marks[name] if name in other else "only here") for name, item in output.items()]
