"""Whose turn is next at a thread's head, derived from the head. The index caches it, so showing a thread needs no
history and no JSONata evaluator."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from uwf_git.base import log
from uwf_git.base.errors import LimitExceeded, NoTransition, UwfError
from uwf_git.base.text import one_line
from uwf_git.base.timelimit import BudgetExceeded
from uwf_git.format.ids import Hash
from uwf_git.format.types import USER
from uwf_git.store.history import Head, History, ancestry
from uwf_git.workflow.turn import Outlook, is_engines

if TYPE_CHECKING:
    from uwf_git.store.instance import Instance

NO_QUESTION = "It waits for you, and asks no question."


def outlook(instance: Instance, head: Head, history: History | None = None) -> Outlook:
    """Return the outlook at a head, cached. `history` is read if needed. If `instance.judging` has no time
    left for a slow decision, the outlook has that problem. Read errors are raised."""
    outlook = _remembered(instance, head.node) or _decide(instance, history or instance.threads.history(head))
    if outlook.problem is not None and (same := instance.judging.unjudged.get(head.node)) is not None:
        same.add(head.thread)
    return outlook


def known_outlooks(instance: Instance, nodes: Sequence[Hash]) -> dict[Hash, Outlook]:
    """Return the cached outlooks at many heads, with one query."""
    known = instance.store.index.decisions_at(nodes)
    stuck = instance.judging.stuck
    return {node: _parsed(text) for node, text in known.items() if node not in stuck}


def outlook_of(instance: Instance, history: History) -> Outlook:
    return _remembered(instance, history.head) or _decide(instance, history)


def _remembered(instance: Instance, node: Hash) -> Outlook | None:
    if (limit := instance.judging.stuck.get(node)) is not None:
        return _stuck(limit)
    known = instance.store.index.decision(node)
    if known is None:
        return None
    return _parsed(known)


def _parsed(text: str) -> Outlook:
    value = json.loads(text)
    return Outlook(**{**value, "options": tuple(value["options"])})


def _decide(instance: Instance, history: History) -> Outlook:
    judging, limit = instance.judging, None
    try:
        with judging.budget.spend():
            try:
                outlook = _decided(history)
            except LimitExceeded as error:
                limit = error
            except UwfError as error:
                outlook = _stuck(error)
    except BudgetExceeded:
        limit = LimitExceeded(
            f"not determined: conditions took {judging.budget.seconds:g} s",
            "allow more: " + instance.store.repository.config.to_raise("uwf.maxVerify", "600"),
        )
        judging.unjudged[history.head] = {history.thread}
    if limit is not None:  # here and now; the next time it may be quicker
        judging.stuck[history.head] = limit
        return _stuck(limit)
    log.debug(
        "X6CKXZXS",
        "decides what comes after {head}: {next}",
        head=history.head,
        next=outlook.next,
        problem=outlook.problem,
    )
    instance.store.index.set_decision(history.head, json.dumps(outlook._asdict()))
    return outlook


def decide_at(history: History) -> Outlook:
    """Return the outlook at a history, without the cache of the index."""
    try:
        return _decided(history)
    except UwfError as error:
        return _stuck(error)


def _stuck(error: UwfError) -> Outlook:
    return Outlook(None, problem=error.message, hint=error.hint)


def _decided(history: History) -> Outlook:
    from uwf_git.workflow.moderator import (
        AwaitingAnswer,
        Next,
        WorkflowEnded,
        decide,
        next_role,
    )

    decision = decide(history.workflow, history.start, history.steps)
    role = next_role(decision)
    if isinstance(decision, Next):
        return Outlook(role, decision.instruction, decision.location)
    if isinstance(decision, AwaitingAnswer):
        return Outlook(
            role,
            asks=decision.role,
            question=decision.question,
            options=tuple(decision.options),
            reason=decision.reason or None,
        )
    if isinstance(decision, WorkflowEnded):
        return Outlook(role, reason=decision.reason or None, failed=decision.failed)
    return Outlook(role)


def raise_if_stuck(instance: Instance, outlook: Outlook, head: Head) -> None:
    """Raise NoTransition if the outlook has a problem."""
    if outlook.problem is not None:
        hint = outlook.hint
        if head.node not in instance.judging.stuck:
            hint = f"{hint}; or {way_before(instance, head)}" if hint else way_before(instance, head)
        raise NoTransition(f"thread {head.thread} cannot continue: {outlook.problem}", hint)


def way_before(instance: Instance, head: Head) -> str:
    """Return the hint for a thread that cannot go on from the recorded answer of its last role: the command that lets
    the role answer again. No join waits for the fork of a branch, so a branch can only be ended."""
    thread = head.thread
    if instance.threads.fork_of(head) is None:
        for row in ancestry(instance.store, head.commit):
            if row.kind == "step" and row.role != USER and not is_engines(row.role):
                return f"let {row.role} answer again: uwf thread fork {thread} --from-role {row.role}"
    return f"end it: uwf thread kill {thread}"


def wordless(instance: Instance, head: Head) -> str:
    """Return the text shown for a question without words: the beginning of the role's answer."""
    from uwf_git.workflow.template import body_of

    detail = instance.store.detail(instance.store.step(head.node).detail)
    words = one_line(body_of(detail.answer)) if detail else ""
    return f"{NO_QUESTION} {words}".strip()
