"""The actions that a thread's state permits, with the data of their forms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from uwf_git.ext.web.actions import ACTIONS, ActionTarget, command_of
from uwf_git.ext.web.forms import Form
from uwf_git.plugin import (
    BUDGET_OPTIONS,
    ActionPlan,
    Budgets,
    FormField,
    Head,
    HumanTurn,
    Instance,
    ThreadAction,
    ThreadId,
    ThreadState,
    UwfError,
    extensions,
    human_turn_of,
    plan_retry,
    thread_outlook,
    thread_states,
)


class PossibleActions(NamedTuple):
    """A thread's possible actions, with the data of their forms. `others` are those of extensions, with the labels of
    their buttons, `plans` what each of them would do; `commands` are equivalent shell commands."""

    thread: ThreadId
    head: str
    number: int
    names: frozenset[str]
    others: tuple[tuple[str, str], ...]
    plans: Mapping[str, ActionPlan]
    options: tuple[str, ...]
    fields: tuple[FormField, ...]
    fork_at: int
    goes_on: bool
    limits: Mapping[str, str]
    commands: Mapping[str, str]


def possible(instance: Instance, head: Head, state: ThreadState) -> PossibleActions:
    """Return the actions for a thread in this state. Raises what reading it raises."""
    following = thread_outlook(instance, head)
    ended = head.archive is not None
    turn = human_turn_of(instance, head, found=following)
    goes_on = ended and (head.row.asks or _resumable(instance, head))
    standing = None if ended else Budgets(instance).standing(head)
    limits = {key: words for key, words in limit_names().items() if standing and key in standing.limits}
    rows = {row.name: row for row in extensions.thread_actions()}
    plans = {name: plan for name, row in rows.items() if (plan := _plan(row, instance, head)) is not None}
    names = _names(head, state, turn, goes_on)
    if state.group is thread_states.Group.FAILED and _may_retry(instance, head):
        names.add("retry")
    if limits:
        names.add("budget")
    fields = {"answer": "TEXT", "remark": "TEXT", "sure": "yes", **({"message": "TEXT"} if goes_on else {})}
    form = Form(fields | dict.fromkeys(limits, "+N"))
    at = ActionTarget(instance, head)
    commands = {action.name: action.request(at, form).shown for action in ACTIONS if action.name in names}
    commands |= {name: command_of(rows[name], head.thread).shown for name in plans}
    if turn is not None:
        from uwf_git.plugin import command_at

        commands["answer"] = command_at(instance, head, turn)
    return PossibleActions(
        head.thread,
        head.node,
        head.row.number,
        frozenset((*names, *plans)),
        tuple((name, rows[name].label) for name in plans),
        plans,
        following.options,
        turn.fields if turn is not None else (),
        max(0, head.row.number - ended),  # after its end nothing would be left to do
        goes_on,
        limits,
        commands,
    )


def limit_names() -> dict[str, str]:
    """Return the limits of a budget with their names on pages."""
    return {key: option.removeprefix("--max-") for key, option in BUDGET_OPTIONS.items()}


def _names(head: Head, state: ThreadState, turn: HumanTurn | None, goes_on: bool) -> set[str]:
    asks = head.row.asks or turn is not None
    names = {"fork"}
    if head.archive is None:
        names |= {"kill", "resume" if state is ThreadState.PAUSED else "pause"}
        names |= {"answer"} if asks else set()
    elif goes_on:
        names.add("resume")
    if state.actor is thread_states.Actor.AGENT and not asks:
        names |= {"step", "run", "say"}
    elif state.is_at_work:
        names.add("say")
    elif state.actor is thread_states.Actor.BRANCHES:
        names.add("run")
    return names


def _plan(row: ThreadAction, instance: Instance, head: Head) -> ActionPlan | None:
    try:
        return row.planned(instance, head)
    except UwfError:  # there is nothing to do, or a part is unreadable, which the page's other parts report
        return None


def _may_retry(instance: Instance, head: Head) -> bool:
    try:
        plan_retry(instance, head)
    except UwfError:
        return False
    return True


def _resumable(instance: Instance, head: Head) -> bool:
    if head.row.workflow is None:
        return False
    return instance.registry.workflow(head.row.workflow).resume is not None
