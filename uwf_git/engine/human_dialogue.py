"""A person's answer at the terminal. It is asked for before the thread is locked, so that until then anybody may
answer from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from uwf_git.base.errors import Busy, Invalid, NotFound, RequirementUnmet, UwfError
from uwf_git.base.text import one_line
from uwf_git.engine.human_roles import HumanRoles, gate_role
from uwf_git.engine.kit.agent import Agent, create_agent
from uwf_git.engine.kit.context import Reply
from uwf_git.engine.kit.record import Recorder
from uwf_git.engine.pause import raise_if_paused
from uwf_git.engine.performer import called, performer_of
from uwf_git.engine.status import outlook, used_up
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.kinds import HUMAN
from uwf_git.store.instance import Instance
from uwf_git.store.private import EngineOrder


class TypedAnswer(NamedTuple):
    """What a person typed at a thread's `head`; `agent` gives it. `output` is that of a gate's role, and `words` what
    was said besides."""

    head: Hash
    text: str
    agent: Agent
    output: Any = None
    words: str = ""


@contextmanager
def telling_loss(typed: TypedAnswer | None) -> Iterator[None]:
    """Add to an error that keeps an answer from being recorded what was typed."""
    try:
        yield
    except (Busy, Invalid, NotFound) as error:
        if typed is not None:
            lost = f"not recorded: {one_line(typed.text, 400)}"
            error.hint = f"{error.hint}; {lost}" if error.hint else lost
        raise


def typed_answer(instance: Instance, thread: ThreadId, agent: str | Agent | None) -> TypedAnswer | None:
    """Ask the person who plays the next role; None if a person doesn't, or a step is refused anyway. `agent` is
    an override. Raises Absent without a terminal or if the person leaves, Paused, AgentFailed if time runs
    out."""
    head = instance.threads.active_head(thread)
    named = isinstance(agent, str) and HUMAN.removeprefix("uwf-") in agent
    if not named and not HumanRoles(instance).among(head.row):
        return None
    raise_if_paused(instance, thread)
    at = instance.threads.position(head)
    instance.renew_judging()
    found = outlook(instance, *at)
    if found.next is None or found.next.startswith("$") or used_up(instance, head, found=found):
        return None
    try:
        config, playing = performer_of(instance, at, found.next, agent)
    except UwfError:  # the step raises it
        return None
    if config.command != HUMAN or playing is None or instance.locks.is_held(thread):
        return None
    name = called(playing, config)
    gate = None
    if gate_role(at.history, found.next) is not None:
        from uwf_git.engine.approving import check_approver, raise_if_unmet, standing_at

        gate = standing_at(instance, at, found)
        assert gate is not None
        if gate.tally.met is not None:
            return None
        try:
            check_approver(instance, gate, thread)
        except RequirementUnmet:  # somebody else has to
            raise_if_unmet(gate, thread)
    order = EngineOrder(
        head.node,
        found.next,
        config.alias,
        found.instruction,
        config.timeout,
        None,
        name,
        len(at.history.steps) + 1,
        command=(config.command, *config.args),
        folder=str(instance.location.root),
    )
    recorder = Recorder(instance, None, name)
    context = playing.context(instance, at, order, config.args, Path(order.folder), recorder)
    with closing(playing.converse(context)) as conversation:
        reply: Reply = conversation.begin()
    if gate is None:
        return TypedAnswer(head.node, reply.text, giving(reply))
    from uwf_git.engine.kit.extract import ExpectedOutput, judge
    from uwf_git.workflow.template import body_of

    role = at.history.workflow.roles[found.next]
    verdict = judge(reply, ExpectedOutput(role, instance.store.schema(role.schema)))
    if verdict.problems:
        raise Invalid(f"role {role.name}: {verdict.problems[0]}", f"uwf thread answer {thread}")
    return TypedAnswer(head.node, reply.text, giving(reply), verdict.output, body_of(reply.text))


def giving(reply: Reply) -> Agent:
    """Return an agent that gives a person's answer."""
    return create_agent(HUMAN, lambda _context: reply)
