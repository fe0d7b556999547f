"""The default agent: without a configured agent, `uwf-rehearse` generates outputs, so that a workflow can be
tried.

It refuses to continue real work: generated answers, above all approvals, would pass for real ones. `--agent`
or an override of the role allows it, but never in place of a human. A script's answers are not generated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import PurePath

from uwf_git.base.errors import AgentFailed, NotFound, Usage, UwfError
from uwf_git.config.known_agents import BUNDLES, full_name
from uwf_git.config.settings import AgentConfig, Config
from uwf_git.format.ids import ThreadId, is_thread_id
from uwf_git.format.kinds import EXTRACT, REHEARSE, SUBWORKFLOW, Step, StepContext, remark_in, split_remarks
from uwf_git.format.types import USER, is_kind
from uwf_git.store.history import Head, History, Position
from uwf_git.store.instance import Instance
from uwf_git.store.layout import ATTEMPTS

HUMAN = "uwf-human"


def refuse_to_make_up(instance: Instance, at: Position, role: str, agent: AgentConfig) -> None:
    """Raise Usage if the agent generates outputs and must not for this role."""
    if not _is_rehearse(agent) or agent.args:
        return
    thread = at.head.thread
    if not (who := _others(instance, at.head, at.history.steps)):
        return
    if agent.stands_in:
        raise Usage(
            f"no agent is configured for role {role!r} of thread {thread}, and uwf-rehearse makes nothing up"
            f" where others have worked: {', '.join(who)}",
            f"uwf config set {_setting(at.history, role)} NAME, or: uwf thread step {thread} --agent NAME",
        )
    if _is_gate(instance, at, role):
        raise Usage(
            f"a human has the word in role {role!r} of thread {thread}, and uwf-rehearse makes up no such word",
            f"uwf thread step {thread} --agent {HUMAN}, or another NAME",
        )


def refuse_generated_step(instance: Instance, at: Position, role: str, agent: str) -> None:
    """Raise AgentFailed if uwf-rehearse, called by another command, made a step that `refuse_to_make_up`
    would have refused. Whether it had a script isn't known."""
    if not (who := _others(instance, at.head, at.history.steps)):
        return
    thread, config = at.head.thread, instance.config
    if agent == config.default_agent and _named(config, at.history, role) is None:
        raise AgentFailed(
            f"agent {agent!r} is uwf-rehearse, nobody chose it for role {role!r} of thread {thread}, and it makes"
            f" nothing up where others have worked: {', '.join(who)}",
            f"uwf config set {_setting(at.history, role)} NAME",
        )
    if _is_gate(instance, at, role):
        raise AgentFailed(
            f"agent {agent!r} is uwf-rehearse, a human has the word in role {role!r} of thread {thread}, and"
            " uwf-rehearse makes up no such word",
            f"uwf thread step {thread} --agent {HUMAN}, or another NAME",
        )


def refuse_generated_child(instance: Instance, at: Position, child: History) -> None:
    """Raise AgentFailed if real agents worked on a thread and the sub-workflow's steps for it were generated
    without that being chosen here."""
    unasked = next(_unrequested_generated(instance, child), None)
    # Somebody who has only answered a rehearsal's question is part of that rehearsal.
    who = (
        _others(instance, at.head, at.history.steps, (REHEARSE, BUNDLES, SUBWORKFLOW, "a human"))
        if unasked
        else []
    )
    if unasked is None or not who:
        return
    history, role = unasked
    thread = instance.threads.ending_with(child.head)
    raise AgentFailed(
        f"role {role!r} of workflow {history.workflow.name} in thread {thread or child.head} was made up by"
        f" uwf-rehearse, and thread {at.head.thread} doesn't take it over where others have worked: {', '.join(who)}",
        (f"uwf thread rm {thread}, and step again for a new one" if thread else "step again")
        + f"; or if it is meant to be rehearsed: uwf config set {_setting(history, role)} {REHEARSE}",
    )


def _unrequested_generated(instance: Instance, history: History) -> Iterator[tuple[History, str]]:
    """Yield the roles of a sub-workflow, nested ones included, with generated steps that the configuration
    doesn't assign to uwf-rehearse."""
    from uwf_git.config.resolve import resolve_agent

    for step in history.steps:
        if step.agent == REHEARSE:
            try:
                persona = history.speaks(step.role)
                agent = resolve_agent(instance.config, history.workflow.name, step.role, persona=persona)
            except UwfError:
                agent = None
            if agent is None or not _is_rehearse(agent) or (agent.stands_in and not agent.args):
                yield history, step.role
        elif step.agent == SUBWORKFLOW and is_kind(instance.store.get(step.detail).type, "step"):
            yield from _unrequested_generated(
                instance, instance.threads.history_at(history.thread, step.detail)
            )


def _is_rehearse(agent: AgentConfig) -> bool:
    return PurePath(agent.command).name == REHEARSE


def _named(config: Config, history: History, role: str) -> str | None:
    from uwf_git.config.resolve import overriding

    return overriding(config, history.workflow.name, role, history.speaks(role))[0]


def _setting(history: History, role: str) -> str:
    from uwf_git.config.edit import dotted

    return dotted(("agentOverrides", history.workflow.name, role))


def _others(
    instance: Instance, head: Head, steps: Iterable[StepContext], but: Iterable[str] = (REHEARSE, BUNDLES)
) -> list[str]:
    """Return the other agents that worked on a thread: in its steps, its failed attempts, or the parent
    thread. Each once, in order. A code workflow's own code doesn't count."""
    found = dict.fromkeys(_workers(instance, steps))
    if instance.store.repository.ref(ATTEMPTS + head.thread) is not None:
        found.update(dict.fromkeys(each.agent for each in instance.attempts.all(head.thread)))
    for each in but:
        found.pop(each, None)
    if not found and (around := _around(instance, head.thread)):
        return _others(instance, around, instance.threads.history(around).steps, but)
    return list(found)


def _workers(instance: Instance, steps: Iterable[StepContext | Step]) -> Iterator[str]:
    """Yield the agents of steps, including those of sub-workflows and those that code workflows called."""
    store = instance.store
    for step in steps:
        if step.role == USER:
            output = store.get(step.output).payload if isinstance(step, Step) else step.output
            if remark_in(USER, output) is None:  # who only remarks on it does no work
                yield "a human"
        elif step.agent == BUNDLES and (detail := store.detail(step.detail)) is not None:
            asked = any(not (turn.tool == EXTRACT and turn.call is None) for turn in store.turns(detail))
            yield "agents that its code asked" if asked else BUNDLES
        elif step.agent == REHEARSE or not is_kind(instance.store.get(step.detail).type, "step"):
            yield step.agent
        else:
            yield from _workers(instance, (each.step for each in instance.threads.past(step.detail)))


def _around(instance: Instance, thread: ThreadId) -> Head | None:
    owner = instance.sessions.owner(SUBWORKFLOW, thread)
    if not is_thread_id(owner) or owner == thread:
        return None
    try:
        return instance.threads.head(ThreadId(owner))
    except NotFound:
        return None


def _is_gate(instance: Instance, at: Position, role: str) -> bool:
    """Return whether the role is a human's: by this configuration, as it was before, or because it passes on
    a human's answer."""
    config, steps = instance.config, split_remarks(at.history.steps)[0]
    named = _named(config, at.history, role) or ""
    command = config.agents[named].command if named in config.agents else full_name(named)
    if command == HUMAN or any(step.agent == HUMAN for step in steps if step.role == role):
        return True
    return len(steps) > 1 and steps[-1].role == USER and steps[-2].agent != REHEARSE
