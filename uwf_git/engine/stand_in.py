"""Where nobody plays a role, the embedded `uwf-rehearse` stands in and makes its answers up, so that a workflow can be
tried with nothing configured. What others have done it doesn't go on with: made-up answers among real ones, above all
an approval, would pass for theirs. Who wants that says so, with `--agent` or an override of the role; even then nothing
is made up in a human's place. A script's answers are not made up: somebody wrote them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import PurePath

from uwf_git.config.known_agents import full_name
from uwf_git.config.settings import AgentConfig
from uwf_git.errors import NotFound, Usage
from uwf_git.store.layout import ATTEMPTS
from uwf_git.store.opened import Instance
from uwf_git.store.threads import Head, Position
from uwf_git.values.ids import ThreadId, is_thread_id
from uwf_git.values.kinds import REHEARSE, SUBWORKFLOW, Step, StepContext
from uwf_git.values.types import USER, is_kind

HUMAN = "uwf-human"


def refuse_to_make_up(instance: Instance, at: Position, role: str, agent: AgentConfig) -> None:
    """Raises Usage where the agent makes answers up, and this role's must not be."""
    if PurePath(agent.command).name != REHEARSE or agent.args:
        return
    thread = at.head.thread
    if not (who := _others(instance, at.head, at.history.steps)):
        return
    if agent.stands_in:
        from uwf_git.config.edit import dotted

        setting = dotted(("agentOverrides", at.history.workflow.name, role))
        raise Usage(
            f"no agent is configured for role {role!r} of thread {thread}, and uwf-rehearse makes nothing up"
            f" where others have worked: {', '.join(who)}",
            f"uwf config set {setting} NAME, or step it with --agent NAME",
        )
    if _is_gate(instance, at, role):
        raise Usage(
            f"a human has the word in role {role!r} of thread {thread}, and uwf-rehearse makes up no such word",
            f"uwf thread step {thread} --agent {HUMAN}, or another NAME",
        )


def _others(instance: Instance, head: Head, steps: Iterable[StepContext]) -> list[str]:
    """Who but uwf-rehearse has worked on a thread: in its steps, in failed attempts at them, or else on the thread that
    it is stepped for. Each once, in the order in which they came."""
    found = dict.fromkeys(_workers(instance, steps))
    if instance.store.repository.ref(ATTEMPTS + head.thread) is not None:
        found.update(dict.fromkeys(each.agent for each in instance.attempts.all(head.thread)))
    found.pop(REHEARSE, None)
    if not found and (around := _around(instance, head.thread)):
        return _others(instance, around, instance.threads.history(around).steps)
    return list(found)


def _workers(instance: Instance, steps: Iterable[StepContext | Step]) -> Iterator[str]:
    """The agents of steps; for one that a sub-workflow did, those of its thread."""
    for step in steps:
        if step.role == USER:
            yield "a human"
        elif step.agent == REHEARSE or not is_kind(instance.store.get(step.detail).type, "step"):
            yield step.agent
        else:
            yield from _workers(instance, (each.step for each in instance.threads.past(step.detail)))


def _around(instance: Instance, thread: ThreadId) -> Head | None:
    """The head of the thread that a sub-workflow's thread is stepped for, as far as this machine knows it."""
    owner = instance.sessions.owner(SUBWORKFLOW, thread)
    if not is_thread_id(owner) or owner == thread:
        return None
    try:
        return instance.threads.head(ThreadId(owner))
    except NotFound:
        return None


def _is_gate(instance: Instance, at: Position, role: str) -> bool:
    """Whether a human has the word: by this machine's configuration, as the role was a human's before, or as it is to
    pass on what a human has just answered."""
    config, steps = instance.config, at.history.steps
    named = config.agent_overrides.get(at.history.workflow.name, {}).get(role, "")
    command = config.agents[named].command if named in config.agents else full_name(named)
    if command == HUMAN or any(step.agent == HUMAN for step in steps if step.role == role):
        return True
    return len(steps) > 1 and steps[-1].role == USER and steps[-2].agent != REHEARSE
