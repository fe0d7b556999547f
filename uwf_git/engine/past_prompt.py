"""Prompts of the next step and of past steps, rebuilt from the history, the instruction in the step's detail
and the agent's configuration."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from uwf_git.base.errors import UwfError
from uwf_git.config.resolve import resolve_agent
from uwf_git.engine.kit.prompt import prompt_at, role_of
from uwf_git.engine.kit.record import Recorder
from uwf_git.engine.performer import embedded
from uwf_git.engine.step_parts import Recipient
from uwf_git.git.repository import Oid
from uwf_git.store.history import Head, History, Position
from uwf_git.store.private import EngineOrder

if TYPE_CHECKING:
    from uwf_git.format.ids import Hash
    from uwf_git.format.kinds import Detail
    from uwf_git.store.index import CommitRow
    from uwf_git.store.instance import Instance


def configured_recipient(instance: Instance, at: Position, role: str) -> Recipient:
    """Return the role's recipient, without shell and folders if the agent isn't installed or runs outside of
    this process."""
    with suppress(UwfError):
        config = resolve_agent(instance.config_of(at.head.row), at.history.cast.role(role))
        if (agent := embedded(config.command)) is not None:
            order = EngineOrder(at.head.node, role, config.alias, None, None)
            context = agent.context(instance, at, order, config.args, Path.cwd(), Recorder(instance))
            seen = context.mounts is not None and agent.sees_files(context)
            folders = context.mounts.places.named if seen and context.mounts else {}
            return Recipient(shell=agent.has_shell(context), folders=folders)
    return Recipient()


def prompt_of_step(
    instance: Instance, history: History, before: CommitRow, row: CommitRow, detail: Detail
) -> str:
    """Rebuild the prompt of a past step. `history` ends before the step, with the commit `before`; `row` is
    the step's own. Differs from the original if the agent's configuration has changed, or the layout of
    prompts."""
    role = row.role or ""
    at = Position(Head(history.thread, Oid(raw=before.oid), before, None), history)
    configured = configured_recipient(instance, at, role)
    own = [step for step in history.steps if step.role == role and step.agent == row.agent]
    tried = [
        attempt
        for attempt in instance.attempts.all(history.thread)
        if attempt.prev in history.places and attempt.role == role
    ]
    resumes = bool(tried) and _same_session(instance, tried[-1].detail, detail)
    remembers = resumes or (bool(own) and _same_session(instance, own[-1].detail, detail))
    return prompt_at(
        instance,
        history,
        role_of(history, role),
        detail.instruction,
        configured._replace(agent=row.agent, remembers=remembers, resumes=resumes),
    )


def _same_session(instance: Instance, before: Hash | None, detail: Detail) -> bool:
    known = None if before is None else instance.store.detail(before)
    return known is not None and known.session is not None and known.session == detail.session
