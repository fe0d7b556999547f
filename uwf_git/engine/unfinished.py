"""Work on a role's step that came to no commit: a failed attempt, or what an engine that was killed left behind."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from uwf_git.base import log
from uwf_git.base.errors import AgentFailed, Killed, NotFound, Oversized, StoreUnwritable, Throttled, UwfError
from uwf_git.base.text import encodable, without_colours
from uwf_git.base.thread_states import ThreadState
from uwf_git.engine.performer import SHOWN, AgentResult, reported
from uwf_git.engine.retrying import note_throttled
from uwf_git.engine.thread_state import failure_reason, interrupted_order
from uwf_git.engine.turn.hooks import Turn, Work
from uwf_git.engine.turn.worktree import failed_code
from uwf_git.format.kinds import KILLED_NOW, PAUSED_NOW, STEP_INTERRUPTED, Attempt, Revision, parse_attempt
from uwf_git.format.words import FAILED, THROTTLED, TIMEOUT
from uwf_git.store.history import Head
from uwf_git.store.private import KILL, PAUSE, AgentReport
from uwf_git.workflow.turn import Outlook

if TYPE_CHECKING:
    from uwf_git.format.ids import ThreadId
    from uwf_git.store.instance import Instance


def finished_work(work: Work, is_judged: bool = True) -> AgentResult | None:
    """Return the finished work of an agent whose engine was killed, which left the order. Failed or interrupted work
    becomes an attempt to resume, as do answers that were not judged, unless the next agent may judge them."""
    instance, runs = work.instance, work.instance.runs
    order = work.order
    if (report := work.report()) is not None:
        result = reported(instance, report)
        log.info("PTMBS4G9", "takes over what an agent finished without its engine", step=result.step)
    elif order is not None and (order.head, order.role) == (work.at.head.node, work.role):
        if runs.answers(work.thread, order):
            if is_judged:
                return None  # the next agent may be the one that gave it
        elif not runs.notes(work.thread):
            _keep_traces(work, AgentResult(agent=order.name))
            return None
        result = AgentResult(error=AgentFailed(STEP_INTERRUPTED))
        log.info("P1DTS74H", "finds what was said before the last run was interrupted", agent=order.name)
    else:
        return None
    if result.error is None:
        return result
    keep(work, result, result.error, once=True)
    return None


def save(work: Work, result: AgentResult) -> None:
    """Keep a step that cannot be committed now for the next step to take over."""
    assert result.step is not None
    store, (head, history) = work.instance.store, work.at
    stop = frozenset(past.hash for past in history.steps) | {history.start_hash}
    with contextlib.suppress(UwfError):
        if (report := work.report()) is not None and report.step == result.step:
            work.instance.runs.sync_report(work.thread)
            return
        nodes = {node: str(store.blob_of(node)) for node, _ in store.walk(result.step, stop)}
        report = AgentReport(head.node, work.role, result.agent, result.step, result.detail, "", "", nodes)
        work.instance.runs.report(work.thread, report)


def keep(
    work: Work, result: AgentResult, error: AgentFailed, once: bool = False, code: Revision | None = None
) -> None:
    """Record a failed attempt, `once` for each content. Moves `refs/uwf/attempts/<ULID>`. Raises StoreUnwritable."""
    from uwf_git.engine.kit.record import salvage

    instance, (head, history), order = work.instance, work.at, work.order
    agent, detail = result.agent, result.detail
    if detail is None and order is not None and (noted := salvage(instance, head, order)):
        agent, detail = noted
    if detail is None and not (result.stdout.strip() or result.stderr.strip()):
        result = result._replace(stdout=_printed(work.instance, work.thread))

    def clean(text: str) -> str:
        return instance.redactor.text(encodable(text))[0]

    attempt = Attempt(
        start=history.start_hash,
        prev=history.prev,
        role=work.role,
        agent=clean(agent),
        error=clean(error.message),
        detail=detail,
        stdout=clean(result.stdout) if result.stdout.strip() else "",
        stderr=clean(result.stderr) if result.stderr.strip() else "",
        code=code or failed_code(work),
        cause=THROTTLED if error.throttled else TIMEOUT if error.timed_out else FAILED,
        resets_at=_reset_time(error.throttled),
    )
    if not once or instance.attempts.last(head) != parse_attempt(attempt.payload()):
        try:
            instance.attempts.record(head, attempt)
        except Oversized:  # its page, which has the answer
            instance.attempts.record(head, attempt._replace(detail=None))
    log.info("PMS6PCFJ", "keeps a failed attempt of {agent}", agent=agent, detail=detail, error=attempt.error)
    instance.runs.clear(work.thread)


def _printed(instance: Instance, thread: ThreadId) -> str:
    """Return the end of the lines that a command has printed for those who watch."""
    _, data, _ = instance.runs.printed(thread)
    return without_colours(data.decode("utf-8", "replace"))[-SHOWN:]


def _keep_traces(work: Work, result: AgentResult) -> None:
    """Keep the files and the lines of an agent that was killed before it had a turn, if there are any."""
    if (code := failed_code(work)) is not None or _printed(work.instance, work.thread).strip():
        keep(work, result, AgentFailed(STEP_INTERRUPTED), once=True, code=code)


def failure(work: Work, result: AgentResult, error: AgentFailed | NotFound) -> AgentFailed:
    """Keep a failed attempt, and return its error."""
    instance = work.instance
    failed = error
    if isinstance(failed, NotFound):
        failed = AgentFailed(
            f"{result.agent}: {error.message}", "the agent references nodes it did not store"
        )
    log.error(
        "0FH0299A", "{agent} failed: {error}", agent=result.agent, error=failed.message, hint=failed.hint
    )
    keep(work, result, failed)
    if failed.throttled is not None and work.order is not None:
        note_throttled(instance, work.order.command, failed.throttled)
    redact = instance.redactor.text
    failed.message, failed.hint = redact(failed.message)[0], redact(failed.hint)[0]
    return failed


def raise_if_interrupted(work: Work, result: AgentResult) -> None:
    """Keep the work of an agent ended by a pause or a kill, and raise Paused or Killed. The output of an ended command
    is incomplete, so it makes no step."""
    instance = work.instance
    why = instance.runs.broken_off(work.thread)
    if why is None:
        return
    from uwf_git.engine.pause import pause_of, refusal

    pause = pause_of(instance, work.thread) if why == PAUSE else None
    if pause is None and why != KILL:
        return
    keep(work, with_detail(instance, result), AgentFailed(PAUSED_NOW if pause else KILLED_NOW))
    if pause is None:
        raise was_killed(instance, work.at.head, kept=True) from None
    raise refusal(work.thread, pause, kept=True) from None


def with_detail(instance: Instance, result: AgentResult) -> AgentResult:
    """Return a result with the detail of its step, if it has one."""
    if result.step is not None and result.detail is None:
        with contextlib.suppress(UwfError):
            result = result._replace(detail=instance.store.step(result.step).detail)
    return result


def record_leftovers(instance: Instance, head: Head, reason: str = KILLED_NOW) -> None:
    """Record leftovers of an agent whose engine is gone as an attempt that failed for a reason. Unreadable threads
    keep nothing: they can be ended anyway. Moves `refs/uwf/attempts/<ULID>`. Raises StoreUnwritable."""
    order = instance.runs.read_order(head.thread)
    if order is None or order.head != head.node:
        return
    try:
        work = Work(Turn(instance, instance.threads.position(head), Outlook(order.role)))
        work.order = order
        if (result := finished_work(work, is_judged=False)) is not None:
            keep(work, with_detail(instance, result), AgentFailed(reason), once=True)
    except StoreUnwritable:
        raise
    except UwfError as error:
        log.warning("R6GT1MZ8", "what was left behind isn't kept: {error}", error=error.message)


def interrupted_attempt(instance: Instance, head: Head) -> Attempt | None:
    """Return what the next step will record of a step whose engine was killed, as far as the files in the private
    folder show it; None if there is none."""
    order = interrupted_order(instance, head)
    if order is None:
        return None
    history, clean = instance.threads.history(head), instance.redactor.text
    return Attempt(
        start=history.start_hash,
        prev=history.prev,
        role=order.role,
        agent=clean(order.name)[0],
        error=clean(failure_reason(instance, head, ThreadState.INTERRUPTED))[0],
        detail=None,
        stdout=clean(_printed(instance, head.thread))[0],
        stderr="",
    )


def was_killed(instance: Instance, head: Head, kept: bool = False) -> Killed:
    """Return the error of a step whose thread was killed meanwhile. `kept`: its work so far is an attempt."""
    what = "; what its agent did so far is kept" if kept else ""
    return Killed(f"thread {head.thread} was killed{what}", instance.threads.way_on(head))


def _reset_time(throttled: Throttled | None) -> int | None:
    return None if throttled is None or throttled.after is None else int(time.time() + throttled.after) + 1
