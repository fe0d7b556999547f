"""A thread's next role, derived from its head, and what keeps it from it: a person, a conversation at rest, a budget.
The index caches the role, so showing a thread needs no history and no JSONata evaluator."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from uwf_git.base import log
from uwf_git.base.errors import LimitExceeded, NoTransition, Usage, UwfError
from uwf_git.base.text import one_line
from uwf_git.base.timelimit import BudgetExceeded
from uwf_git.engine.budget import COST, Budgets, BudgetState
from uwf_git.engine.conversation import in_conversation
from uwf_git.engine.human_roles import HumanRoles
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.types import END, USER, is_engines
from uwf_git.store.history import Head, History, ancestry
from uwf_git.workflow.turn import Outlook as Outlook

if TYPE_CHECKING:
    from uwf_git.config.resolve import AgentOptions
    from uwf_git.engine.kit.agent import Agent
    from uwf_git.store.instance import Instance

NO_QUESTION = "It waits for you, and asks no question."


def outlook(instance: Instance, head: Head, history: History | None = None) -> Outlook:
    """Return the outlook at a head, cached. `history` is read if needed. If `instance.judging` has no time
    left for a slow decision, the outlook has that problem. Read errors are raised."""
    found = _remembered(instance, head.node) or _decide(instance, history or instance.threads.history(head))
    if found.problem is not None and (same := instance.judging.unjudged.get(head.node)) is not None:
        same.add(head.thread)
    return found


def outlook_of(instance: Instance, history: History) -> Outlook:
    return _remembered(instance, history.head) or _decide(instance, history)


def _remembered(instance: Instance, node: Hash) -> Outlook | None:
    if (limit := instance.judging.stuck.get(node)) is not None:
        return _stuck(limit)
    known = instance.store.index.decision(node)
    if known is None:
        return None
    value = json.loads(known)
    return Outlook(**{**value, "options": tuple(value["options"])})


def _decide(instance: Instance, history: History) -> Outlook:
    judging, limit = instance.judging, None
    try:
        with judging.budget.spend():
            try:
                found = _decided(history)
            except LimitExceeded as error:
                limit = error
            except UwfError as error:
                found = _stuck(error)
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
        next=found.next,
        problem=found.problem,
    )
    instance.store.index.set_decision(history.head, json.dumps(found._asdict()))
    return found


def decide_at(history: History) -> Outlook:
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


def raise_if_stuck(instance: Instance, found: Outlook, head: Head) -> None:
    if found.problem is not None:
        hint = found.hint
        if head.node not in instance.judging.stuck:
            hint = f"{hint}; or {way_before(instance, head)}" if hint else way_before(instance, head)
        raise NoTransition(f"thread {head.thread} cannot continue: {found.problem}", hint)


def way_before(instance: Instance, head: Head) -> str:
    """Return the hint for a thread that cannot go on from the recorded answer of its last role: the command that lets
    the role answer again. No join waits for the fork of a branch, so a branch can only be ended."""
    thread = head.thread
    if instance.threads.fork_of(head) is None:
        for row in ancestry(instance.store, head.commit):
            if row.kind == "step" and row.role != USER and not is_engines(row.role):
                return f"let {row.role} answer again: uwf thread fork {thread} --from-role {row.role}"
    return f"end it: uwf thread kill {thread}"


def chosen(thread: ThreadId, options: Sequence[str], text: str) -> str:
    """Return the option that a text names, ignoring case, or by its number. Raises Usage for none, or if it
    is one option and another's number."""
    wanted = text.strip()
    same = [option for option in options if option.strip() == wanted]
    same = same or [option for option in options if option.strip().casefold() == wanted.casefold()]
    number = int(wanted) if wanted.isascii() and wanted.isdigit() and len(wanted) < 10 else 0
    numbered = options[number - 1] if 0 < number <= len(options) else None
    other = f"uwf thread answer {thread} --other -m TEXT"
    if same and numbered is not None and numbered.strip() != wanted:
        raise Usage(
            f"{wanted!r} is an option of thread {thread} and the number of another, {one_line(numbered, 60)!r}",
            f"give the text of that one, or for {wanted!r} as it is: {other}",
        )
    if len(same) == 1 or (same and same[0].strip() == wanted):
        return same[0]
    if numbered is not None:
        return numbered
    listed = ", ".join(one_line(option, 60) for option in options)
    raise Usage(
        f"{one_line(wanted, 60)!r} is none of the options of thread {thread}: {listed}",
        f"to answer it anyway: {other}",
    )


def persons_role(
    instance: Instance, head: Head, people: HumanRoles | None = None, found: Outlook | None = None
) -> str:
    """Return the next role if a person plays it, else "". A gate that has its approvals waits for nobody."""
    people = people or HumanRoles(instance)
    try:
        if head.archive is not None or not people.among(head.row):
            return ""
        found = found or outlook(instance, head)
        following = found.next
        if following is None or not people.plays(head.row, following):
            return ""
        return "" if people.is_gate(head.row, following) and _is_met(instance, head, found) else following
    except UwfError:  # of a thread that can't be read, its reader says why
        return ""


def _is_met(instance: Instance, head: Head, found: Outlook) -> bool:
    from uwf_git.engine.turn.gate import is_met

    return is_met(instance, head, found)


def at_rest(instance: Instance, head: Head) -> bool:
    """Return whether a conversation waits for the user's next message, without a question."""
    try:
        if head.row.kind == "start":
            return in_conversation(instance, head)
        return head.row.asks and in_conversation(instance, head) and not outlook(instance, head).question
    except UwfError:  # of a thread that can't be read, its reader says why
        return False


def used_up(
    instance: Instance, head: Head, budgets: Budgets | None = None, found: Outlook | None = None
) -> BudgetState | None:
    """Return the exhausted budget of a thread that could otherwise continue, else None."""
    standing = standing_of(instance, head, budgets, found)
    return standing if standing is not None and standing.reached is not None else None


def standing_of(
    instance: Instance, head: Head, budgets: Budgets | None = None, found: Outlook | None = None
) -> BudgetState | None:
    """Return the budget of a thread that could continue, if it has one."""
    budgets = budgets or Budgets(instance)
    try:
        if head.archive is not None or not budgets.sources(head):
            return None
        following = (found or outlook(instance, head)).next
        return None if following in (END, None) else budget_before(instance, head, following, budgets=budgets)
    except UwfError:  # of a thread that can't be read nothing is known here; reading it says why
        return None


def budget_reached(instance: Instance, head: Head) -> str:
    """Return the exhausted limit of a thread as text, "" if it may continue."""
    standing = used_up(instance, head)
    return standing.reason if standing else ""


def wordless(instance: Instance, head: Head) -> str:
    """Return the text shown for a question without words: the beginning of the role's answer."""
    from uwf_git.workflow.template import body_of

    detail = instance.store.detail(instance.store.step(head.node).detail)
    said = one_line(body_of(detail.answer)) if detail else ""
    return f"{NO_QUESTION} {said}".strip()


def budget_before(
    instance: Instance,
    head: Head,
    role: str,
    agent: str | Agent | AgentOptions | None = None,
    budgets: Budgets | None = None,
) -> BudgetState | None:
    """Return the budget before a role's step, if any. An unknown price counts as reached if the configuration
    says so."""
    standing = (budgets or Budgets(instance)).standing(head)
    held = standing.limits.get(COST) if standing is not None else None
    if standing is None or standing.reached or held is None or not instance.config.stops_unpriced:
        return standing
    from uwf_git.engine.performer import missing_price_at

    why = missing_price_at(instance, head, role, agent)
    return standing._replace(reached=held, missing_price=why) if why else standing
