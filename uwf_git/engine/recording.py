"""Recording a step: the commit of a checked StepNode, whoever's turn it was."""

from __future__ import annotations

from uwf_git.base import log
from uwf_git.base.errors import HeadMoved
from uwf_git.engine import budget
from uwf_git.engine.new_step import NewStep
from uwf_git.engine.next_turn import outlook_of
from uwf_git.format.ids import fork_id
from uwf_git.store.history import Position
from uwf_git.store.instance import Instance
from uwf_git.store.new_record import new_step
from uwf_git.store.threads import ConcurrentCommit
from uwf_git.workflow.turn import is_made_alike


def record(instance: Instance, at: Position, new: NewStep, begins: bool = False) -> Position:
    """Commit a checked step and return the position after it. `begins` creates the thread. Moves
    `refs/uwf/threads/<ULID>`. If a push moved the thread meanwhile, the step becomes a new thread, named by
    HeadMoved. Raises RequirementUnmet if another has to make the step."""
    thread, node = at.head.thread, new.node
    instance.store.before_record(new_step(at.history.workflow, new.step.role, new.step.agent))
    detail = instance.store.detail(new.step.detail)
    past = {step.hash for step in at.history.steps}
    context = instance.threads.context(node, at.history.workflow)
    ahead = outlook_of(instance, at.history.after(context))
    extraction = detail.extraction if detail else ""
    with instance.store.together():  # until one of the two refs leads to the step
        try:
            head = instance.threads.append(at.head, node, past, new.merged, extraction, ahead.shown, begins)
        except ConcurrentCommit as outrun:
            if is_made_alike(new.step.role) and (same := instance.threads.head(thread)).node == node:
                return at.after(same, context)  # another process joined the same
            fork = fork_id(thread, node)
            log.warning(
                "5DWWCJD5",
                "the head moved during the step: it is kept as thread {fork}",
                fork=fork,
                base=at.head.commit,
                commit=outrun.commit,
            )
            instance.threads.part(thread, fork, at.head.commit, outrun.commit)
            lost = HeadMoved(
                f"thread {thread} moved on while its step was made; that is kept as thread {fork}",
                f"uwf thread show {fork}",
            )
            lost.fork = fork
            raise lost from None
    if detail is not None:
        budget.settle(instance, thread, detail.budget)
    return at.after(head, context)
