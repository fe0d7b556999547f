"""Checks that an agent's result is a valid next step of the thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uwf_git.base.errors import AgentFailed
from uwf_git.base.text import shortened
from uwf_git.engine.new_step import detail_problems
from uwf_git.engine.next_turn import decide_at
from uwf_git.format.ids import Hash
from uwf_git.format.kinds import HUMAN, REHEARSE, SUBWORKFLOW, Step, agent_name_problem
from uwf_git.format.types import END, is_chosen_by_maker, is_kind
from uwf_git.workflow.turn import outputs_of

if TYPE_CHECKING:
    from uwf_git.engine.new_step import NewStep
    from uwf_git.git.repository import Oid
    from uwf_git.store.history import Head, Position
    from uwf_git.store.instance import Instance
    from uwf_git.store.private import EngineOrder


def accept(
    instance: Instance,
    at: Position,
    role: str,
    new: NewStep,
    order: EngineOrder | None,
    instruction: str | None = None,
) -> Oid | None:
    """Check a step, and return the last commit of the sub-workflow's thread if one made it. For a code workflow, `role`
    is `$BUNDLE`, and the step may have any of its roles or be its result. Raises AgentFailed if it is not the role's
    step at this position, NotFound for missing nodes."""
    store = instance.store
    head, history = at
    node, step = new.node, new.step
    if node in {past.hash for past in history.steps}:
        raise AgentFailed(f"the agent named step {node}, which this thread has already")
    if is_chosen_by_maker(role) and (step.role == END or step.role in history.workflow.roles):
        role = step.role
    expected = (history.start_hash, history.prev, role)
    for what, is_now, wanted in zip(
        ("start", "prev", "role"), (step.start, step.prev, step.role), expected, strict=True
    ):
        if is_now != wanted:
            raise AgentFailed(
                f"step {node} has {what} {is_now}, not {wanted}", "it belongs to another step or thread"
            )
    _check_detail(instance, head, node, step, order, instruction)
    if (order is None or step.agent != order.name) and (problem := agent_name_problem(step.agent)):
        raise AgentFailed(f"step {node} names its agent {shortened(ascii(step.agent), 60)}, {problem}")
    by_code = history.workflow.code is not None  # whose calls a person may answer
    if step.agent == HUMAN and not by_code and (order is None or order.command[:1] != (HUMAN,)):
        raise AgentFailed(f"step {node} names its agent {HUMAN}, which is a person's name alone")
    output = store.get(step.output)
    if output.type not in outputs_of(history.workflow, role):
        raise AgentFailed(f"output {step.output} of step {node} is not an output of role {role!r}")
    if problems := store.problems(output.type, output.payload):
        raise AgentFailed(f"output {step.output} of step {node} breaks its schema: {problems[0]}")
    if step.agent == REHEARSE and order is not None and order.name != REHEARSE:
        from uwf_git.engine.default_agent import refuse_generated_step

        refuse_generated_step(instance, at, role, order.agent)
    return _child_commit(instance, at, step)


def _check_detail(
    instance: Instance,
    head: Head,
    node: Hash,
    step: Step,
    order: EngineOrder | None,
    instruction: str | None,
) -> None:
    detail = instance.store.detail(step.detail)
    if detail is None:
        return
    if detail.budget and (order is None or detail.budget != order.budget):
        raise AgentFailed(f"step {node} raises its own budget", "only uwf thread budget may do that")
    if detail.approvals:
        raise AgentFailed(f"step {node} names approvals in its detail", "only people approve")
    if detail.code is not None:
        raise AgentFailed(f"step {node} names code in its detail", "only uwf records that")
    for problem in detail_problems(
        detail, head.node, instruction, lambda name: instance.store.get(name).type
    ):
        raise AgentFailed(f"step {node}: {problem}")


def _child_commit(instance: Instance, at: Position, step: Step) -> Oid | None:
    """Return the last commit of the sub-workflow's thread, if one made the step. Raises AgentFailed if it has
    not ended, or was rehearsed although real agents worked on the parent."""
    threads = instance.threads
    if not is_kind(instance.store.get(step.detail).type, "step"):
        return None
    child = threads.history_at(at.head.thread, step.detail)
    if decide_at(child).next != END:
        raise AgentFailed(f"the sub-workflow that ends in step {step.detail} has not come to its end")
    if any(step.agent in (REHEARSE, SUBWORKFLOW) for step in child.steps):
        from uwf_git.engine.default_agent import refuse_generated_child

        refuse_generated_child(instance, at, child)
    return threads.commit_of(step.detail)
