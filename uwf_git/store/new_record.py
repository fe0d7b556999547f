"""Records that are about to be made, as the guards of a store are asked about them. See `Store.before_record`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from uwf_git.format.kinds import HUMAN
from uwf_git.format.types import USER

if TYPE_CHECKING:
    from uwf_git.format.kinds import Workflow
    from uwf_git.git.repository import Oid

THREADS = "threads"
STARTS, STEPS, ANSWERS, ENDS = "starts", "steps", "answers", "ends"
ATTEMPTS, PAUSES, FORKS = "attempts", "pauses", "forks"
DELETIONS, REWRITES = "deletions", "rewrites"
"""Changes of records that a server takes only if it allows them."""


class NewRecord(NamedTuple):
    """A record that somebody is about to make. `kind` is THREADS or that of a version, such as `workflow`; `name` the
    version's, or that of the thread's workflow; `of` what it may become of a thread. A start has the commit of the
    workflow's `version`, unless it follows from another thread."""

    kind: str
    name: str
    of: tuple[str, ...] = ()
    version: Oid | None = None


def new_step(workflow: Workflow, role: str, agent: str = "") -> NewRecord:
    """Return the record of a step of a role by an agent, "" if it isn't known yet. An agent may also fail."""
    of = step_of(role, agent, workflow.is_persons(role))
    return NewRecord(THREADS, workflow.name, (*of, ATTEMPTS) if STEPS in of else of)


def step_of(role: str, agent: str, is_persons: bool) -> tuple[str, ...]:
    """Return the records of a thread that a step is. An answer at the role of an agent is a step too, since only its
    maker says that a person answered."""
    if role == USER or is_persons:
        return (ANSWERS,)
    return (STEPS, ANSWERS) if agent == HUMAN else (STEPS,)
