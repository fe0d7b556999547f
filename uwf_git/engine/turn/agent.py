"""A role's turn: the agent that the configuration names plays it, a program or a person."""

from __future__ import annotations

import contextlib
import sqlite3

from uwf_git.base import log
from uwf_git.base.errors import (
    AgentFailed,
    Busy,
    HeadMoved,
    Killed,
    NotFound,
    Oversized,
    Paused,
    RequirementUnmet,
    SigningFailed,
    StoreDamaged,
    StoreUnwritable,
    WorkspaceFailed,
)
from uwf_git.engine import budget, unfinished
from uwf_git.engine.new_step import NewStep, accept
from uwf_git.engine.performer import (
    AgentResult,
    called,
    override_at,
    perform,
    performer_of,
    program_of,
    replacement,
    reported,
    run_command_of,
)
from uwf_git.engine.retrying import spare, stand_in_now
from uwf_git.engine.turn.hooks import Part, Room, Turn, Work
from uwf_git.engine.turn.parts import Budget, PersonsAnswer, Policy
from uwf_git.engine.turn.worktree import Worktree
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.kinds import INTERRUPTED, parse_step
from uwf_git.format.types import is_kind
from uwf_git.store.private import KILL, EngineOrder

# With these, a step that is whole may be committed another time.
_PASSING = (
    Busy,
    RequirementUnmet,
    SigningFailed,
    StoreUnwritable,
    WorkspaceFailed,
    StoreDamaged,
    OSError,
    sqlite3.Error,
    KeyboardInterrupt,
)


class Replacement(Part):
    """Notes in a step's detail the configured command, person or workflow in whose place its agent played."""

    def complete(self, work: Work, new: NewStep) -> NewStep:
        order, instance = work.order, work.instance
        if order is None or not order.command:
            return new
        replaced = replacement(instance, work.at, work.role, order.command, order.name)
        detail = instance.store.detail(new.step.detail) if replaced else None
        if replaced is None or detail is None:
            return new
        note = f"{replaced.player} played this role in place of {replaced.own}"
        return new.with_detail(instance, detail._replace(notes=(*detail.notes, note)))


class AgentRoom(Room):
    """Asks the agent of a role, unless one has finished the step without its engine."""

    parts = (Policy(), Budget(), Worktree(), PersonsAnswer(), Replacement())

    def decide(self, turn: Turn) -> None:
        if turn.at.history.workflow.has_gates:
            from uwf_git.engine.turn.gate import raise_if_made_up

            raise_if_made_up(turn)

    def prepare(self, work: Work) -> None:
        instance, history, agent = work.instance, work.at.history, work.turn.agent
        work.order = instance.runs.read_order(work.thread)
        if work.order is not None:
            work.result = unfinished.finished_work(work)
        if work.result is not None:
            return
        role = history.workflow.roles.get(work.role)
        if history.workflow.code is None:
            agent = override_at(instance, work.at, work.role, agent)
        if agent is None and role is not None and role.fallback:
            agent = stand_in_now(instance, history, role) or None
        config, work.performer = performer_of(instance, work.at, work.role, agent)
        if role is not None and role.timeout is not None:
            config = config._replace(timeout=min(role.timeout, config.timeout or role.timeout))
        name = called(work.performer, config) if work.performer else program_of(config.command, config.args)
        work.config, work.name = config, instance.redactor.text(name)[0]
        command = (config.command, *config.args)
        if replaced := replacement(instance, work.at, work.role, command, work.name):
            instance.warn(
                f"thread {work.thread}: {replaced.player} plays {work.role} in place of {replaced.own}, which"
                f" {replaced.file} names"
            )

    def complete(self, work: Work) -> NewStep:
        if work.result is None:
            work.instance.know_secrets_of(work.folder)
            self._order(work)
            work.result = self._ask(work)
        result = work.result
        if result.error is not None:
            raise result.error
        assert result.step is not None
        if work.workspace is not None or work.instance.store.repository.config.signs_commits:
            work.instance.runs.sync_report(work.thread)  # the commit may take long
        if work.instance.runs.broken_off(work.thread):
            unfinished.raise_if_interrupted(work, result)
        return _new_step(work, result.step)

    def check(self, work: Work, new: NewStep) -> NewStep:
        step, instruction = new.step, work.turn.ahead.instruction
        child = accept(work.instance, work.at, work.role, new, work.order, instruction)
        log.debug("E5R67H14", "step {step} is accepted", step=new.node, agent=step.agent, output=step.output)
        return new._replace(merged=(child,) if child else ())

    def remark(self, thread: ThreadId) -> None:
        """Anything may be said before."""

    def fail(self, work: Work, error: BaseException) -> BaseException:
        result, instance = work.result, work.instance
        instead: BaseException = error
        if result is not None:
            try:
                instead = self._failure(work, result, error)
            except BaseException as another:  # in keeping it
                instead = another
        if isinstance(instead, StoreUnwritable) and (report := work.report()) is not None:
            instead.hint = f"{instead.hint}, then step again: what {report.agent} answered is kept"
        if isinstance(instead, KeyboardInterrupt) and instance.runs.broken_off(work.thread) == KILL:
            return unfinished.was_killed(instance, work.at.head)
        return instead

    def _order(self, work: Work) -> None:
        instance, history, config = work.instance, work.at.history, work.config
        assert config is not None
        order = EngineOrder(
            work.at.head.node,
            work.role,
            config.alias,
            work.turn.ahead.instruction,
            config.timeout,
            budget.pending(instance, work.thread) or None,
            work.name,
            len(history.steps) + 1,
            history.cast.role(work.role).shown,
            (config.command, *config.args),
            str(work.folder),
            base=work.base,
        )
        earlier = work.order
        if (
            earlier is not None
            and earlier.asks() != order.asks()
            and instance.runs.answers(work.thread, earlier)
        ):
            unfinished.finished_work(work, is_judged=False)
        instance.runs.order(work.thread, order)
        work.order = order
        work.pin()
        log.info(
            "CSRVQ5KM",
            "{agent} plays the role {place}",
            agent=config.alias,
            place="in this process" if work.performer else "as a process",
            name=work.name,
            command=[*order.command],
            named_by="--agent" if work.turn.agent else "config",
            folder=work.folder,
            timeout=config.timeout,
        )

    def _ask(self, work: Work) -> AgentResult:
        instance, at, config, order = work.instance, work.at, work.config, work.order
        assert config is not None and order is not None
        role = at.history.workflow.roles.get(work.role)
        try:
            if at.history.start.branch is not None:
                try:
                    spare(instance, work.thread, order.command, work.name, role)
                except AgentFailed as error:
                    return AgentResult(error=error, agent=work.name)
                from uwf_git.engine.reservations import reserved

                work.held.enter_context(reserved(instance, at.head, config.command))
            slot: contextlib.AbstractContextManager[object] = contextlib.nullcontext()
            if instance.config.max_agents is not None:
                from uwf_git.engine.slots import agent_slot

                slot = agent_slot(instance, config.command)
            with slot:
                if work.performer is not None:
                    return perform(instance, at, work.performer, config, order, work.folder)
                lock, on_stderr = work.turn.lock, work.turn.on_stderr
                return run_command_of(instance, at, config, order, work.folder, lock, on_stderr)
        except KeyboardInterrupt:
            report = work.report()
            result = reported(instance, report) if report else AgentResult(agent=work.name)
            if report is not None:
                instance.runs.sync_report(work.thread)
            # Finished work and answers belong to the next step, unless there is none.
            is_kept = result.step is not None or instance.runs.answers(work.thread, order)
            if not is_kept or instance.runs.broken_off(work.thread) == KILL:
                unfinished.raise_if_interrupted(work, result)
                unfinished.keep(work, result, result.error or AgentFailed(INTERRUPTED))
            raise

    def _failure(self, work: Work, result: AgentResult, error: BaseException) -> BaseException:
        """Keep what an agent gave that makes no step, and return the error to raise."""
        if isinstance(error, Oversized):  # the step's page, or what the engine adds to its detail
            result = unfinished.with_detail(work.instance, result)
            error = AgentFailed(error.message, error.hint)
        if isinstance(error, AgentFailed | NotFound):
            unfinished.raise_if_interrupted(work, result)
            if isinstance(error, AgentFailed) and error.absence is not None:
                unfinished.keep(work, result, AgentFailed(INTERRUPTED))
                return error.absence
            return unfinished.failure(work, result, error)
        if isinstance(error, HeadMoved | Killed | Paused):  # and the agent's work is kept
            work.instance.runs.clear(work.thread)
        elif isinstance(error, _PASSING):
            log.warning(
                "QTP055FT",
                "cannot commit, what the agent made is left for the next step: {error}",
                error=repr(error),
            )
            unfinished.save(work, result)
        elif isinstance(error, Exception):
            # It would go wrong the next time too, so an agent has to be asked again.
            log.error(
                "EZZFP8B5", "what the agent made is not a step: {error}", error=repr(error), step=result.step
            )
            failed = AgentFailed(f"the step cannot be committed: {error}")
            unfinished.keep(work, unfinished.with_detail(work.instance, result), failed)
        return error


def _new_step(work: Work, node: Hash) -> NewStep:
    content = work.instance.store.get(node)
    if not is_kind(content.type, "step"):
        raise AgentFailed(f"the agent named node {node}, which is not a StepNode")
    return NewStep(node, parse_step(content.payload))


ROOM = AgentRoom()
