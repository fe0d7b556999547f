"""Two threads side by side, from their first different step on, with the code of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from uwf_git.api.spending import money_value
from uwf_git.engine.outcome import summary_of
from uwf_git.engine.thread_spending import account, spent_on
from uwf_git.engine.thread_state import thread_state
from uwf_git.format.kinds import title_of
from uwf_git.store.history import shared_steps

if TYPE_CHECKING:
    from uwf_git.format.kinds import Revision, StepContext, Workflow
    from uwf_git.store.history import Head, History
    from uwf_git.store.instance import Instance

COMPARED = 50
"""How many steps are compared at once."""

_FIELDS = 40  # of an output that are shown


def compare(instance: Instance, heads: Sequence[Head], first: int = 0) -> dict[str, Any]:
    """Return two threads side by side:

    sides     of each its thread, title, prompt, workflow, status, steps, attempts, seconds and cost
    shared    the number of steps that both have, if they run the same workflow and start alike
    rows      the next COMPARED steps after those, without the `first` ones: `number` and a step for each side or null.
              A step has its `fields`, marked `differs` or `only here`, and whether it has the `same` output
    more      how many rows are left
    """
    histories = [instance.threads.history(head) for head in heads]
    one, other = histories
    shared = shared_steps(one, other)
    begin = shared + first
    longest = max(len(history.steps) for history in histories)
    return {
        "sides": [
            side_value(instance, head, history) for head, history in zip(heads, histories, strict=True)
        ],
        "shared": shared,
        "sameWorkflow": one.workflow_hash == other.workflow_hash,
        "sameStart": one.start_hash == other.start_hash,
        "same": heads[0].thread == heads[1].thread,
        "first": first,
        "rows": _rows(instance, histories, begin),
        "more": max(0, longest - begin - COMPARED),
    }


def code_of_both(instance: Instance, heads: Sequence[Head]) -> tuple[Revision | None, Revision | None]:
    """Return the newest code of two threads; that of the second has the first one's commit as its base, so that its
    changes are the difference."""
    from uwf_git.workspaces.changes import thread_code

    one, other = (thread_code(instance, head.node) for head in heads)
    return one, other._replace(base=one.commit) if one is not None and other is not None else other


def side_value(instance: Instance, head: Head, history: History) -> dict[str, Any]:
    """Return what is compared of a whole thread."""
    spent = account(instance, head).spent
    return {
        "thread": head.thread,
        "title": title_of(history.start.heading),
        "prompt": history.start.prompt,
        "workflow": history.workflow.name,
        "hash": history.workflow_hash,
        "status": thread_state(instance, head).word,
        "steps": len(history.steps),
        "attempts": spent.attempts,
        **money_value(spent, instance.known_prices),
    }


def _rows(instance: Instance, histories: Sequence[History], begin: int) -> list[dict[str, Any]]:
    parts = [history.steps[begin : begin + COMPARED] for history in histories]
    prices = instance.known_prices
    spent = spent_on(instance, [step for part in parts for step in part])
    money = {step: money_value(totals, prices) for step, totals in spent.items()}
    rows = []
    for place in range(max(map(len, parts))):
        steps = [part[place] if place < len(part) else None for part in parts]
        sides = [
            None if step is None else _step(instance, history.workflow, step, other, money[step.hash])
            for history, step, other in zip(histories, steps, steps[::-1], strict=True)
        ]
        rows.append({"number": begin + place + 1, "sides": sides})
    return rows


def _step(
    instance: Instance,
    workflow: Workflow,
    step: StepContext,
    other: StepContext | None,
    money: Mapping[str, Any],
) -> dict[str, Any]:
    fields = _fields(step.output, None if other is None else other.output, other is not None)
    return {
        "step": step.hash,
        "role": step.role,
        "by": step.by,
        "verdict": summary_of(instance, workflow, step.role, step.output).text,
        "fields": fields[:_FIELDS],
        "more": len(fields[_FIELDS:]),
        "same": other is not None and other.output == step.output,
        "otherRole": other is not None and other.role != step.role,
        "otherAgent": other is not None and other.by != step.by,
        **money,
    }


def _fields(output: Any, other: Any, compared: bool) -> list[dict[str, Any]]:
    if not isinstance(output, Mapping):
        return [_field("", output, "differs" if compared and output != other else "")]
    if not compared or not isinstance(other, Mapping):
        return [_field(name, item, "") for name, item in output.items()]
    return [
        _field(name, item, "only here" if name not in other else "" if other[name] == item else "differs")
        for name, item in output.items()
    ]


def _field(name: str, value: Any, mark: str) -> dict[str, Any]:
    return {"name": name, "value": value, "mark": mark}
