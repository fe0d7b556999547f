"""The next step of a thread: its value before the thread has it, the rules that hold when it is recorded and when it is
verified, and its recording, whoever's turn it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.base import log
from uwf_git.base.errors import AgentFailed, HeadMoved
from uwf_git.base.text import shortened
from uwf_git.engine.next_turn import decide_at, outlook_of
from uwf_git.format.ids import Hash, ThreadId, fork_id
from uwf_git.format.kinds import (
    HUMAN,
    REHEARSE,
    SUBWORKFLOW,
    Detail,
    Revision,
    Step,
    agent_name_problem,
)
from uwf_git.format.types import (
    END,
    STEPNODE,
    UWF,
    is_chosen_by_maker,
    is_kind,
)
from uwf_git.git.repository import Oid
from uwf_git.store.history import ConcurrentCommit
from uwf_git.store.new_record import new_step
from uwf_git.workflow.turn import is_made_alike, outputs_of

if TYPE_CHECKING:
    from uwf_git.format.kinds import TurnRecord
    from uwf_git.store.history import Head, History, Position
    from uwf_git.store.instance import Instance
    from uwf_git.store.private import EngineOrder


class NewStep(NamedTuple):
    """A StepNode that isn't in its thread yet: its hash, and its payload. `merged` are the further parents of its
    commit."""

    node: Hash
    step: Step
    merged: tuple[Oid, ...] = ()

    def with_detail(self, instance: Instance, detail: Detail) -> NewStep:
        """Return the step with another detail. Both nodes become drafts of the store."""
        store = instance.store
        with store.registering():
            step = self.step._replace(detail=store.draft(detail.type, detail.payload()))
            return self._replace(node=store.draft(STEPNODE, step.payload()), step=step)


def engines_step(
    instance: Instance,
    history: History,
    role: str,
    type_hash: Hash,
    output: Any,
    code: Revision | None,
    when: int | None = None,
) -> NewStep:
    """Store a StepNode of the engine's own that is the same on every machine; given `when`, Unix milliseconds, its
    file is so too."""
    store = instance.store
    with store.registering():
        detail = Detail("", context=history.head, code=code)
        step = Step(
            history.start_hash,
            history.prev,
            role,
            store.draft(type_hash, output, when),
            store.draft(detail.type, detail.payload(), when),
            UWF,
        )
        return NewStep(store.draft(STEPNODE, step.payload(), when), step)


def detail_problems(
    detail: Detail, head: Hash, instruction: str | None, type_of: Callable[[Hash], Hash]
) -> Iterator[str]:
    """Yield what is wrong with the detail of a step or an attempt that was made on a head, for which the workflow has
    an `instruction`, if any."""
    for turn in detail.turns:
        if not is_kind(type_of(turn), "turn"):
            yield f"the detail names node {turn} as a turn, which is none"
    if detail.kept is not None and not is_kind(type_of(detail.kept), "session"):
        yield f"the detail names node {detail.kept} as a session, which is none"
    recorded = detail.instruction
    if recorded is not None and not _is_instruction(recorded, instruction, bool(detail.redactions)):
        yield "the detail's instruction is not the one of the workflow"
    if detail.context is not None and detail.context != head:
        yield f"the detail's context is {detail.context}, the head was {head}"


def _is_instruction(text: str, expected: str | None, is_redacted: bool) -> bool:
    """Return whether a detail's instruction is the workflow's, except for redacted secrets."""
    if text == expected:
        return True
    if expected is None or not is_redacted:
        return False
    from uwf_git.config.secrets import REDACTED  # whose patterns take time to compile

    at = 0
    pieces = REDACTED.split(text)
    for number, piece in enumerate(pieces):
        place = expected.find(piece, at)
        if place < 0 or (number == 0 and place != 0):
            return False
        at = place + len(piece)
    return expected.endswith(pieces[-1])


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
    if remarks := [turn for turn in instance.store.turns(detail) if turn.is_remark]:
        _check_remarks(instance, head, node, remarks)


def _check_remarks(instance: Instance, head: Head, node: Hash, turns: Sequence[TurnRecord]) -> None:
    """Raise AgentFailed for turns of people that nobody said to this thread in these words, or that are there twice."""
    waiting = {remark.id: remark.turn for remark in instance.mailbox.all(head.thread)}
    for turn in turns:
        if turn.call is None or waiting.pop(ThreadId(turn.call), None) != turn:
            raise AgentFailed(
                f"step {node} has a remark that nobody made", "only people say something to a thread"
            )


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
    if detail is not None and detail.budget:
        from uwf_git.engine import budget

        budget.settle(instance, thread, detail.budget)
    return at.after(head, context)
