"""What a waiting thread wants of a person."""

from __future__ import annotations

from collections.abc import Iterable

from uwf_git.base.thread_states import ThreadState
from uwf_git.engine.waits import ROLE, Waits
from uwf_git.engine.waits import waiting_for_people as waiting_for_people
from uwf_git.store.history import Head
from uwf_git.store.instance import Instance
from uwf_git.store.threads import DamagedThread

ME = "me"


def waiting_for(
    instance: Instance, whom: str, among: Iterable[tuple[Head | DamagedThread, ThreadState]] | None = None
) -> list[Waits]:
    """Return the waiting threads that a person may do something about: those that name them, by an assignee or as
    an approver whose approval is missing, and those that name nobody. `whom` is a name or an address, or `me`: the
    git identity, and the person of the trust policy whose key signs here. `among` is as in `waiting_for_people`."""
    from uwf_git.trust.people import People

    people = People(instance.store.repository)
    person, identity = people.me() if whom == ME else people.named(whom)
    found = []
    for waits in waiting_for_people(instance, among):
        if waits.standing is not None:
            if waits.standing.awaits(person, identity):
                found.append(waits)
        elif not waits.assignee or people.is_among(person, identity, [waits.assignee]):
            found.append(waits)
    return found


def warnings_value(instance: Instance, waits: Waits, head: Head) -> dict[str, list[str]]:
    """Return the warnings of the code that a person judges as `warnings`, for JSON; {} without any."""
    from uwf_git.engine.presented import warnings_at

    if waits.kind != ROLE:
        return {}
    warnings = warnings_at(instance, head)
    return {"warnings": list(warnings)} if warnings else {}
