"""The steps that people made in a thread: answers to roles that people play and to questions, and remarks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from uwf_git.format.kinds import HUMAN
from uwf_git.format.types import USER
from uwf_git.store.history import History

DECISION, ANSWER, REMARK = "decision", "answer", "remark"


class PersonsStep(NamedTuple):
    """A step that a person made. `number` is the step's; `kind` is DECISION for a role that people play, ANSWER for
    a question of an agent, or for going on after an end, or REMARK."""

    number: int
    kind: str


def persons_steps(history: History) -> Iterator[PersonsStep]:
    """Yield the steps that people made, oldest first. The committers of the steps are these people."""
    for number, step in enumerate(history.steps, 1):
        if step.role == USER:
            yield PersonsStep(number, ANSWER if step.remark is None else REMARK)
        elif history.workflow.is_persons(step.role) or step.agent == HUMAN:
            yield PersonsStep(number, DECISION)
