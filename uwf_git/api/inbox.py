"""What a waiting thread wants of a person."""

from __future__ import annotations

from uwf_git.api.find import find_step
from uwf_git.engine.human_turn import human_turn, raise_if_moved
from uwf_git.engine.next_turn import NO_QUESTION, outlook
from uwf_git.engine.persons_answer import keeping as keeping
from uwf_git.engine.waits import ROLE, Waits
from uwf_git.engine.waits import waiting_for_people as waiting_for_people
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.store.history import Head as Head
from uwf_git.store.instance import Instance
from uwf_git.workflow.turn import Outlook

ME = "me"


def waiting_for(instance: Instance, whom: str) -> list[Waits]:
    """Return the waiting threads that a person may do something about: those that name them, by an assignee or as
    an approver whose approval is missing, and those that name nobody. `whom` is a name or an address, or `me`: the
    git identity, and the person of the trust policy whose key signs here."""
    from uwf_git.trust.people import People

    people = People(instance.store.repository)
    person, identity = people.me() if whom == ME else people.named(whom)
    found = []
    for waits in waiting_for_people(instance):
        if waits.standing is not None:
            if waits.standing.awaits(person, identity):
                found.append(waits)
        elif not waits.assignee or people.is_among(person, identity, [waits.assignee]):
            found.append(waits)
    return found


def warnings_value(instance: Instance, waits: Waits) -> dict[str, list[str]]:
    """Return the warnings of the code that a person judges as `warnings`, for JSON; {} without any."""
    from uwf_git.engine.presented import warnings_at

    if waits.kind != ROLE:
        return {}
    warnings = warnings_at(instance, instance.threads.head(waits.thread))
    return {"warnings": list(warnings)} if warnings else {}


def is_persons_turn(instance: Instance, thread: ThreadId) -> bool:
    """Return whether a person plays the next role. Raises NotFound, Invalid if the thread has ended."""
    return human_turn(instance, instance.threads.active_head(thread)) is not None


def check_may_answer(instance: Instance, thread: ThreadId) -> None:
    """Raise RequirementUnmet if the thread waits for votes, and none of the user."""
    turn = human_turn(instance, instance.threads.active_head(thread))
    if turn is not None and turn.standing is not None:
        turn.standing.check_voter(instance, thread)


def newest_or_step(instance: Instance, thread: ThreadId, text: str) -> Hash:
    """Return the thread's newest node, also a StartNode, by its whole hash, or a step by the beginning of its
    own. Raises NotFound, Usage."""
    head = instance.threads.active_head(thread).node
    return head if head == text.upper() else find_step(instance, text)


def require_step(instance: Instance, thread: ThreadId, step: Hash) -> None:
    """Raise Invalid if another step is the thread's newest."""
    raise_if_moved(instance.threads.active_head(thread), step)


def asking(instance: Instance, thread: ThreadId) -> Head | None:
    """Return the head of a thread that asks, None if it doesn't. Raises NotFound, Invalid if it has ended."""
    head = instance.threads.active_head(thread)
    return head if head.row.asks else None


def question(instance: Instance, head: Head) -> Outlook:
    asked = outlook(instance, head)
    return asked._replace(question=asked.question or NO_QUESTION)
