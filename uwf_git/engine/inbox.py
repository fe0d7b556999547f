"""What waits for a person on this machine: threads that ask, whose budget is used up, or whose next role is a human's.

Of the other threads nothing is read but the row that the index has of their heads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from uwf_git.engine.budget import Budgets, waiting
from uwf_git.engine.pause import paused_threads
from uwf_git.engine.stand_in import HUMAN
from uwf_git.engine.status import outlook, used_up
from uwf_git.errors import UwfError
from uwf_git.store.opened import Instance
from uwf_git.store.threads import Head
from uwf_git.values.ids import ThreadId
from uwf_git.values.kinds import SUBWORKFLOW, parse_workflow
from uwf_git.values.types import END, USER

QUESTION, BUDGET, ROLE = "question", "budget", "role"


class Waits(NamedTuple):
    """One thread that waits for a person. `kind` is QUESTION, which `role` asks; BUDGET, which keeps `role` from going
    on; or ROLE, which a human plays. `question` says what is wanted, `since` when it came to that, in Unix seconds;
    `command` is what a person does about it."""

    thread: ThreadId
    kind: str
    name: str
    workflow: str
    title: str
    role: str
    question: str
    options: tuple[str, ...]
    reason: str
    since: int
    command: str


def waiting_for_people(instance: Instance) -> list[Waits]:
    """Everything that waits, the longest first. What is running or paused doesn't wait; the question of a
    sub-workflow's thread stands once, with the thread that it is stepped for. A thread that can't be read is left
    out: `uwf thread list` says what is wrong with it."""
    busy = paused_threads(instance) | set(instance.locks.held())
    budgets = Budgets(instance)
    plays = _played_by_humans(instance)
    found: list[Waits] = []
    for head in instance.threads.all():
        if not isinstance(head, Head) or head.thread in busy:
            continue
        try:
            waits = _of(instance, head, budgets, plays)
        except UwfError:
            continue
        if waits is not None:
            found.append(waits)
    asking = {each.thread for each in found}
    found = [each for each in found if instance.sessions.owner(SUBWORKFLOW, each.thread) not in asking]
    return sorted(found, key=lambda each: (each.since, each.thread))


def _of(
    instance: Instance, head: Head, budgets: Budgets, plays: Callable[[str, str], bool] | None
) -> Waits | None:
    row = head.row
    waits = Waits(
        head.thread, "", row.name or "", row.workflow or "", row.title or "", "", "", (), "", head.updated, ""
    )
    if row.asks:
        asked = outlook(instance, head)
        return waits._replace(
            kind=QUESTION,
            role=asked.asks or "",
            question=asked.question or "",
            options=asked.options,
            reason=asked.reason or "",
            command=f"uwf thread answer {head.thread} -m TEXT",
        )
    if budgets.sources(head) and (standing := used_up(instance, head, budgets)):
        raising = waiting(head.thread, standing)
        return waits._replace(
            kind=BUDGET,
            role=outlook(instance, head).next or "",
            question="May it use more?",
            reason=standing.reason,
            command=raising.hint,
        )
    if plays is not None:
        following = outlook(instance, head)
        role = following.next
        if role not in (None, END, USER) and plays(row.name or "", role):
            return waits._replace(
                kind=ROLE,
                role=role,
                question=following.instruction or _description(instance, head, role),
                command=f"uwf thread step {head.thread}",
            )
    return None


def _description(instance: Instance, head: Head, role: str) -> str:
    """What the workflow says that a role is for."""
    assert head.row.workflow is not None
    described = parse_workflow(instance.store.get(head.row.workflow).payload).roles[role].description
    return described.strip() or f"Play the role {role}."


def _played_by_humans(instance: Instance) -> Callable[[str, str], bool] | None:
    """Whether this machine's configuration has a human play a role of a workflow; None where it has none play any.
    The file is parsed only where it may."""
    from uwf_git.config.read import resolve_agent

    try:
        if b"human" not in (instance.location.root / "config.yaml").read_bytes():
            return None
        config = instance.config
    except (OSError, UwfError):  # whoever needs the configuration says what is wrong with it
        return None
    known: dict[tuple[str, str], bool] = {}

    def plays(workflow: str, role: str) -> bool:
        if (workflow, role) not in known:
            try:
                known[workflow, role] = resolve_agent(config, workflow, role).command == HUMAN
            except UwfError:
                known[workflow, role] = False
        return known[workflow, role]

    return plays
