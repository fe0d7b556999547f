"""Two threads side by side: how they came about, their steps from the first different one on, and the code of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from uwf_git.api.cockpit.run import brief, name_of
from uwf_git.api.spending import money_value
from uwf_git.base.errors import StoreDamaged
from uwf_git.engine.outcome import summary_of
from uwf_git.engine.thread_spending import account, spent_on
from uwf_git.engine.thread_state import thread_state
from uwf_git.format.kinds import title_of
from uwf_git.format.types import USER
from uwf_git.store.history import link_of, shared_steps

if TYPE_CHECKING:
    from uwf_git.format.kinds import Revision, StepContext, Workflow
    from uwf_git.store.history import Head, History
    from uwf_git.store.instance import Instance

COMPARED = 50
"""How many steps are compared at once."""

_FIELDS = 40  # of an output that are shown
_NAME = 100  # characters of who made a step or a fork
_LOOK_BACK = 50  # steps in which verdicts are looked for


def compare(instance: Instance, heads: Sequence[Head], first: int = 0) -> dict[str, Any]:
    """Return two threads side by side:

    sides     as `sides`
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
        "sides": sides(instance, heads),
        "shared": shared,
        "sameWorkflow": one.workflow_hash == other.workflow_hash,
        "sameStart": one.start_hash == other.start_hash,
        "same": heads[0].thread == heads[1].thread,
        "first": first,
        "rows": _rows(instance, histories, begin),
        "more": max(0, longest - begin - COMPARED),
    }


def sides(instance: Instance, heads: Sequence[Head]) -> list[dict[str, Any]]:
    """Return what is compared of two whole threads, of each:

    thread, title, prompt, workflow, hash, status, steps, attempts, seconds, cost, unpriced
    origin    the thread that it was `forked` or `diverged` from (`how`) after step `at`, and `by` whom; null if none
    first     its first step that the other hasn't: number, role and `by`; null without any, as in `last`
    last      the newest of those: number, role and verdict
    verdicts  the newest of those of each role that decides, such as tests and reviewers: number, role and verdict
    """
    histories = [instance.threads.history(head) for head in heads]
    shared = shared_steps(*histories)
    return [_side(instance, head, history, shared) for head, history in zip(heads, histories, strict=True)]


def _side(instance: Instance, head: Head, history: History, shared: int) -> dict[str, Any]:
    spent = account(instance, head).spent
    own = [
        (number, step) for number, step in enumerate(history.steps[shared:], shared + 1) if step.role != USER
    ]
    last: dict[str, Any] | None = None
    verdicts: dict[str, dict[str, Any]] = {}
    for number, step in reversed(own[-_LOOK_BACK:]):
        summary = summary_of(instance, history.workflow, step.role, step.output)
        verdict = {"number": number, "role": step.role, "verdict": summary.text}
        last = last or verdict
        if summary.decides:
            verdicts.setdefault(step.role, verdict)
    firsts = ({"number": number, "role": step.role, "by": brief(step.by, _NAME)} for number, step in own)
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
        "origin": _origin(instance, head),
        "first": next(firsts, None),
        "last": last,
        "verdicts": list(reversed(verdicts.values())),
    }


def _origin(instance: Instance, head: Head) -> dict[str, Any] | None:
    with suppress(StoreDamaged):
        if (link := link_of(instance.store, head.thread)) is not None:
            return {
                "how": "forked" if link.forked else "diverged",
                "thread": link.origin,
                "at": instance.store.index_commit(link.base).number,
                "by": brief(name_of(link.by), _NAME) if link.forked else "",
            }
    return None


def code_of_both(instance: Instance, heads: Sequence[Head]) -> tuple[Revision | None, Revision | None]:
    """Return the newest code of two threads; that of the second has the first one's commit as its base, so that its
    changes are the difference."""
    from uwf_git.workspaces.changes import thread_code

    one, other = (thread_code(instance, head.node) for head in heads)
    return one, other._replace(base=one.commit) if one is not None and other is not None else other


def code_since(instance: Instance, heads: Sequence[Head]) -> list[Revision | None]:
    """Return the newest code of two threads, each with the code of their last common step as its base, or with the base
    of its first code if no common step has any."""
    from uwf_git.workspaces.changes import thread_code

    one, other = (instance.threads.history(head) for head in heads)
    shared = shared_steps(one, other)
    common = thread_code(instance, one.steps[shared - 1].hash) if shared else None
    codes = [thread_code(instance, head.node) for head in heads]
    return [code if code is None or common is None else code._replace(base=common.commit) for code in codes]


def changes_since(
    instance: Instance, heads: Sequence[Head], with_lines: bool = True
) -> list[dict[str, Any] | None]:
    """Return what each of two threads changed since their last common step, as the changes of a `step`; None if it has
    no code. Without lines, files have their counts alone."""
    from uwf_git.api.cockpit.step import changes_view

    codes = code_since(instance, heads)
    return [
        None if code is None else changes_view(instance, head.thread, code, with_lines)
        for head, code in zip(heads, codes, strict=True)
    ]


def _rows(instance: Instance, histories: Sequence[History], begin: int) -> list[dict[str, Any]]:
    parts = [history.steps[begin : begin + COMPARED] for history in histories]
    prices = instance.known_prices
    spent = spent_on(instance, [step for part in parts for step in part])
    money = {step: money_value(totals, prices) for step, totals in spent.items()}
    rows = []
    for place in range(max(map(len, parts))):
        steps = [part[place] if place < len(part) else None for part in parts]
        pair = [
            None if step is None else _step(instance, history.workflow, step, other, money[step.hash])
            for history, step, other in zip(histories, steps, steps[::-1], strict=True)
        ]
        rows.append({"number": begin + place + 1, "sides": pair})
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
