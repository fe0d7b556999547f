"""Remarks to a thread at work. They wait in its mailbox until its agent takes them, or until its next prompt.

    said → mailbox, synced → taken: a turn of the running step → the step has it → removed
                           → the step is over: a step of role `$USER`, for the next prompt → removed

A remark is delivered once a step of the thread has it, and only then it is removed: what was taken in a run that fails
or is killed waits again. The turn's `call` is the remark's id, by which a step that has it is known, so a kill between
the two lets nothing be said twice. Agents take by `Context.take_remarks`, under the lock of their step's engine; the
engine records what is left, before it asks an agent and after each step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.base import log
from uwf_git.base.errors import Invalid, NoTransition, Waiting
from uwf_git.base.text import encodable, iso
from uwf_git.engine.budget import used_up
from uwf_git.engine.conversation import in_conversation
from uwf_git.engine.next_turn import outlook, raise_if_stuck
from uwf_git.engine.persons_text import record_text
from uwf_git.engine.turn.table import room_of
from uwf_git.engine.unfinished import record_leftovers
from uwf_git.format.ids import ThreadId
from uwf_git.format.kinds import INTERRUPTED
from uwf_git.format.types import REMARK

if TYPE_CHECKING:
    from uwf_git.engine.turn.hooks import Turn
    from uwf_git.store.history import Head, History
    from uwf_git.store.instance import Instance
    from uwf_git.store.mailbox import Remark

PENDING, TAKEN, UNDELIVERED = "pending", "taken", "undelivered"


class WaitingRemark(NamedTuple):
    """A remark that no step has yet. `state` is PENDING, TAKEN in the step in progress, or UNDELIVERED, as the thread
    has ended. `agent` took it, or takes it at its next turn; "" if it waits for the next prompt."""

    thread: ThreadId
    remark: Remark
    state: str
    agent: str

    def as_json(self) -> dict[str, Any]:
        remark = self.remark
        value = {"id": remark.id, "text": remark.text, "by": remark.by, "at": iso(remark.at)}
        return value | {"state": self.state, "agent": self.agent or None}


def fate(remark: Mapping[str, Any]) -> str:
    """Return what becomes of a remark, as `as_json` returns it, in words."""
    match remark["state"], remark["agent"]:
        case "taken", agent:
            return f"taken by {agent}"
        case "undelivered", _:
            return "undelivered: the thread has ended"
        case _, None:
            return "at the next prompt"
        case _, agent:
            return f"taken at the next turn of {agent}"


def check_remarkable(instance: Instance, head: Head) -> None:
    """Raise the errors of `inbox.remark` for this head, except Busy."""
    thread = head.thread
    if head.archive is not None:
        raise Invalid(f"thread {thread} is {head.archive.status}", instance.threads.way_on(head))
    if in_conversation(instance, head):
        raise Invalid(f"thread {thread} is a conversation", f"uwf chat --resume {thread}")
    if head.row.asks:
        raise Waiting(f"thread {thread} waits for an answer", f"uwf thread answer {thread} -m TEXT")
    next_turn = outlook(instance, head)
    raise_if_stuck(instance, next_turn, head)
    assert head.row.workflow is not None and next_turn.next is not None
    room_of(instance.registry.workflow(head.row.workflow), next_turn.next).remark(thread)
    if (standing := used_up(instance, head, found=next_turn)) is not None:
        raise standing.waiting(thread)


def put(instance: Instance, head: Head, text: str) -> WaitingRemark:
    """Put a remark into the mailbox of a thread at work. Raises Usage, StoreUnwritable."""
    clean, secrets = instance.redactor.text(encodable(text))
    remark = instance.mailbox.put(head.thread, clean, instance.user_name, head.node, secrets)
    return WaitingRemark(head.thread, remark, PENDING, instance.runs.remark_taker(head.thread))


def remarks_of(instance: Instance, head: Head) -> list[WaitingRemark]:
    """Return the remarks to a thread that no step has yet, oldest first."""
    thread, runs = head.thread, instance.runs
    if not runs.has_remarks(thread):
        return []
    remarks = undelivered(instance, instance.threads.history(head))
    if head.archive is not None:
        return [WaitingRemark(thread, remark, UNDELIVERED, "") for remark in remarks]
    running = instance.locks.is_held(thread)
    takers = (
        {note["remark"]: note["agent"] for note in runs.notes(thread) if note.get("remark")}
        if running
        else {}
    )
    agent = runs.remark_taker(thread) if running else ""
    return [
        WaitingRemark(thread, remark, TAKEN, takers[remark.id])
        if remark.id in takers
        else WaitingRemark(thread, remark, PENDING, agent)
        for remark in remarks
    ]


def with_remarks(turn: Turn) -> Turn:
    """Return a turn after the remarks that wait, unless its thread can take none now, or an agent has finished its
    step without its engine. The caller holds the lock. Moves and raises as `inbox.remark`."""
    instance, at = turn.instance, turn.at
    if _is_answered(instance, at.head):
        return turn
    remarks = undelivered(instance, at.history)
    if not remarks:
        return turn
    try:
        check_remarkable(instance, at.head)
    except (Invalid, Waiting, NoTransition) as error:
        log.info("5VZK1NRD", "cannot take a remark now: {why}", thread=at.head.thread, why=error.message)
        return turn
    record_leftovers(instance, at.head, INTERRUPTED)
    after = at
    for remark in remarks:
        after = record_text(instance, after, remark.text, output=(REMARK, "remark"), remark=remark).position
    undelivered(instance, after.history)
    return turn._replace(at=after, ahead=outlook(instance, *after))


def _is_answered(instance: Instance, head: Head) -> bool:
    """Return whether an agent answered at this head, and its engine was killed before the step was made."""
    runs = instance.runs
    order = runs.read_order(head.thread)
    if order is None or order.head != head.node:
        return False
    report = runs.answer_to(head.thread, order.head, order.role)
    return bool((report is not None and report.step) or runs.answers(head.thread, order))


def undelivered(instance: Instance, history: History) -> list[Remark]:
    """Return the remarks that no step has, and remove the others."""
    mailbox, thread = instance.mailbox, history.thread
    remarks = []
    for remark in mailbox.all(thread):
        if remark.id in _ids_since(instance, history, remark):
            mailbox.remove(thread, remark.id)
        else:
            remarks.append(remark)
    return remarks


def _ids_since(instance: Instance, history: History, remark: Remark) -> Iterable[str | None]:
    """Yield the ids of the remarks in the steps since one was said, in all steps if its head is not in the history."""
    places = [step.hash for step in history.steps]
    first = places.index(remark.head) + 1 if remark.head in places else 0
    for step in history.steps[first:]:
        if (detail := instance.store.detail(step.detail)) is not None:
            yield from (turn.call for turn in instance.store.turns(detail) if turn.is_remark)
