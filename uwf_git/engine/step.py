"""One step of one thread. The process may exit afterwards: all state is in the store.

    lock → position: head and history → moderator: whose turn? → decide → prepare → complete → check
         → commit, compare-and-swap → settle → moderator again → archive at $END → unlock

The position is read once and passed to an in-process agent. What is done in each kind of turn is in the rooms of
`engine.turn`. A failure leaves the head unchanged, and the agent's work under refs/uwf/attempts/.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from uwf_git.base import extensions, log
from uwf_git.base.errors import (
    Absent,
    AgentFailed,
    Busy,
    HeadMoved,
    Invalid,
    NotFound,
    OutOfRounds,
    RolledBack,
    SigningFailed,
    Usage,
    UwfError,
    Waiting,
    WorkspaceFailed,
)
from uwf_git.base.text import counted
from uwf_git.base.thread_states import ThreadState
from uwf_git.config.resolve import AgentOptions
from uwf_git.engine.conversation import at_rest
from uwf_git.engine.new_step import record
from uwf_git.engine.next_turn import outlook, raise_if_stuck
from uwf_git.engine.outcome import Outcome, outcome_of
from uwf_git.engine.retrying import PATIENCE, pause, pause_before_retry, told
from uwf_git.engine.turn.hooks import Hooks, Turn, Work
from uwf_git.engine.turn.table import raise_if_joined, room_of_turn, settle, stop
from uwf_git.format.endings import FAILED, KILLED
from uwf_git.format.ids import ThreadId
from uwf_git.format.kinds import HUMAN
from uwf_git.format.types import END, USER
from uwf_git.store.history import Head, Position, branch_of
from uwf_git.store.instance import Instance
from uwf_git.store.locks import PROBE_SECONDS
from uwf_git.store.maintenance import maintain

if TYPE_CHECKING:
    from uwf_git.engine.kit.agent import Agent

# Of these no attempt tells, and no state of the thread.
_UNRECORDED = (NotFound, SigningFailed, Usage, WorkspaceFailed)
_PATIENCE = 5.0  # seconds for another process to let go of a thread


def step(
    instance: Instance,
    thread: ThreadId,
    agent: str | Agent | AgentOptions | None = None,
    cwd: Path | None = None,
    on_stderr: Callable[[bytes], None] | None = None,
    files: str = "",
    patience: float = PATIENCE,
) -> Outcome:
    """Run the thread's next step, then the user's hooks. `agent` is an alias, a command or an Agent that
    overrides the configuration; `cwd` is the agent's folder, remembered for later steps. `files` are those
    that a worktree begins with after a failed attempt, as in `StepWorkspace.prepare`. A failed step is tried
    again as its role says, after at most `patience` seconds, as in `retrying`. What else went wrong, unless an
    `agent` was named, is noted on this machine. A code workflow past its last round is killed without a step.
    Moves `refs/uwf/threads/<ULID>`, or `refs/uwf/attempts/<ULID>` if the step failed. Raises Busy, Waiting, Paused,
    Killed, AgentFailed, HeadMoved, RolledBack, NoTransition, Usage if no agent plays the role, Absent if a person
    must, Invalid for a thread that has ended."""
    joined: list[Outcome] = []
    instance.warn_of_setup()
    while True:
        try:
            outcome = step_without_hooks(instance, thread, agent, cwd, on_stderr, files, joined=joined)
            instance.runs.forget_stop(thread)
            break
        except AgentFailed as error:
            instance.runs.forget_stop(thread)
            wait = pause_before_retry(instance, thread, patience)
            if wait is None:
                from uwf_git.engine.hooks import announce, announce_all

                drop_branch(instance, thread, error, joined)
                announce(instance, thread, ThreadState.FAILING)
                announce_all(instance, joined)
                raise
            instance.warn(told(thread, wait, error.message))
            pause(wait)
        except _UNRECORDED as error:
            if agent is None:
                from uwf_git.engine.hooks import announce

                with contextlib.suppress(UwfError):
                    why = instance.redactor.text(error.message)[0]
                    if instance.runs.stop(thread, instance.threads.head(thread).node, why):
                        announce(instance, thread, ThreadState.STOPPED)
            raise
        except Absent as absent:
            from uwf_git.engine.hooks import call_person

            call_person(instance, thread, absent)
            raise
    if instance.config.hooks.commands:
        from uwf_git.engine.hooks import announce_all

        announce_all(instance, [outcome, *joined])
    return outcome


def step_without_hooks(
    instance: Instance,
    thread: ThreadId,
    agent: str | Agent | AgentOptions | None = None,
    cwd: Path | None = None,
    on_stderr: Callable[[bytes], None] | None = None,
    files: str = "",
    joining: bool = False,
    wait: float = PROBE_SECONDS,
    joined: list[Outcome] | None = None,
) -> Outcome:
    """Make a step as `step`, without hooks and other tries. With `joining`, only a join is made, if another process
    lets go of the thread within `wait` seconds. The outcomes of joins that the end of this thread allows are added to
    `joined`."""
    typed = None
    keeping: AbstractContextManager[None] = contextlib.nullcontext()
    if not joining and _may_ask(instance, thread, agent):
        from uwf_git.engine.human_dialogue import typed_answer

        typed = typed_answer(instance, thread, agent)
    if typed is None:
        lock = instance.locks.hold(thread, wait=wait)
    else:
        from uwf_git.engine.persons_answer import hold_for_person

        lock, keeping = hold_for_person(instance, thread), typed.keeping(instance, thread)
    with keeping, held(instance, thread, lock) as turn, extensions.observed(instance, thread):
        head = turn.at.head
        if joining and not head.waits_for_join:
            raise HeadMoved(f"thread {thread} is joined already")
        if typed is None and instance.threads.is_paused(thread):
            from uwf_git.engine.pause import raise_if_paused

            raise_if_paused(instance, thread)
        if turn.ahead.next in (USER, None) and at_rest(instance, head):
            raise Waiting(f"in conversation {thread} it is your turn", f"uwf chat --resume {thread}")
        raise_if_stuck(instance, turn.ahead, head)
        if typed is None and instance.runs.has_remarks(thread):
            from uwf_git.engine.steering import with_remarks

            turn = with_remarks(turn)
        turn = turn._replace(agent=agent, cwd=cwd, on_stderr=on_stderr, files=files)
        outcome = take(turn if typed is None else typed.on(turn))
    return close(instance, outcome, joined)


def _may_ask(instance: Instance, thread: ThreadId, agent: str | Agent | AgentOptions | None) -> bool:
    """Return whether a person may play the next role: the workflow, config.yaml or an override says so."""
    names = agent.names if isinstance(agent, AgentOptions) else (agent,) if isinstance(agent, str) else ()
    is_named = any(HUMAN.removeprefix("uwf-") in name for name in names)
    return is_named or instance.may_ask_people(instance.threads.active_head(thread).row)


@contextlib.contextmanager
def held(instance: Instance, thread: ThreadId, lock: AbstractContextManager[int]) -> Iterator[Turn]:
    """Hold a thread's lock, and yield the turn that it is at. Raises what the lock raises, Invalid for a thread that
    has ended, RolledBack for one whose head was set back, Killed for a branch that its parent was joined without."""
    with log.about(thread=thread, role=None), lock as descriptor:
        at = instance.threads.position(instance.threads.active_head(thread))
        instance.raise_if_rolled_back(thread)
        log.debug(
            "ANQE03T0",
            "is at {head} after {steps} steps of {workflow}",
            head=at.head.node,
            steps=len(at.history.steps),
            workflow=at.history.workflow.name,
            commit=at.head.commit,
        )
        raise_if_joined(instance, at.head)
        instance.renew_judging()
        ahead = outlook(instance, *at)
        log.info(
            "PG4BWQYP",
            "next is {next}",
            next=ahead.next,
            instruction=ahead.instruction,
            location=ahead.location,
            problem=ahead.problem,
        )
        yield Turn(instance, at, ahead, descriptor)


def close(instance: Instance, outcome: Outcome, joined: list[Outcome] | None = None) -> Outcome:
    """Do what follows from a turn once its lock is free, as `tell_parents` and `settle_remarks`, and return its
    outcome."""
    if instance.runs.has_remarks(outcome.thread):
        settle_remarks(instance, outcome.thread)
    if outcome.done:
        tell_parents(instance, outcome.position.head, joined)
    if not instance.witness.misses_any:  # git may delete what a lost head leads to
        maintain(instance.store.repository, shared=instance.location.here)
    return outcome


def settle_remarks(instance: Instance, thread: ThreadId) -> Outcome | None:
    """Record the remarks that no agent took, if nobody is at work on the thread, and return the outcome of the last;
    warn of those that are undelivered as the thread has ended. What cannot be recorded now waits for the next step.
    Moves `refs/uwf/threads/<ULID>`. Raises nothing."""
    from uwf_git.engine.steering import undelivered, with_remarks

    try:
        head = instance.threads.head(thread)
        if head.archive is not None:
            if left := undelivered(instance, instance.threads.history(head)):
                instance.warn(
                    f"thread {thread} ended before {counted(len(left), 'remark')} to it reached an agent:"
                    f" uwf thread show {thread}; {instance.threads.way_on(head)}"
                )
            return None
        with held(instance, thread, instance.locks.hold(thread)) as turn:
            after = with_remarks(turn)
            return None if after is turn else outcome_of(instance, after.at, after.ahead, USER)
    except UwfError as error:
        log.info("H6T2WQ9C", "leaves remarks to the next step: {why}", thread=thread, why=error.message)
        return None


def take(turn: Turn) -> Outcome:
    """Take a turn, and that of the end if it is next. The caller holds the lock. Moves and raises as `step`."""
    instance, at, ahead, role = turn.instance, turn.at, turn.ahead, None
    settle(instance, at.head)  # a process that was killed may have left it
    if ahead.next != END:
        try:
            with log.about(role=turn.role):
                after = _take(turn)
        except OutOfRounds as over:
            from uwf_git.engine.turn.end import end

            after = at._replace(head=end(instance, at.head, KILLED, over.message))
        else:
            if after is at:
                return outcome_of(instance, at, ahead, None)
            role, ahead = after.history.steps[-1].role, outlook(instance, *after)
        at = after
        settle(instance, at.head)
    if ahead.next == END:
        at = _take(turn._replace(at=at, ahead=ahead))
        settle(instance, at.head)
    return outcome_of(instance, at, ahead, role)


def _take(turn: Turn) -> Position:
    """Return the position after a turn, that of the turn itself if it goes on."""
    room, work = room_of_turn(turn), Work(turn)
    hooks: tuple[Hooks, ...] = (room, *room.parts)
    for hook in hooks:
        hook.decide(turn)
    with work.held:
        try:
            for hook in hooks:
                hook.prepare(work)
            new = room.complete(work)
            if new is None:
                return turn.at
            if isinstance(new, Head):
                return turn.at._replace(head=new)
            new = room.check(work, new)
            for part in room.parts:
                new = part.complete(work, new)
            after = record(turn.instance, turn.at, new)
        except BaseException as error:
            instead = room.fail(work, error)
            if instead is error:
                raise
            raise instead from None
    work.end(new.node)
    for part in room.parts:
        part.settle(work, after)
    return after


def kill(instance: Instance, thread: ThreadId, reason: str = "") -> Head:
    """End a thread, its running agent, and the branches that it waits for; join those that waited for it. Moves and
    raises as `turn.table.stop`, and as the joins' steps."""
    from uwf_git.engine.hooks import announce_all

    with extensions.observed(instance, thread):
        head = stop(instance, thread, reason)
    joined: list[Outcome] = []
    tell_parents(instance, head, joined)
    announce_all(instance, joined)
    return head


def drop_branch(
    instance: Instance, thread: ThreadId, error: AgentFailed, joined: list[Outcome] | None = None
) -> None:
    """End a branch whose step failed, if its fork wants no other try, which makes the error final, and add to `joined`
    as `tell_parents`."""
    with contextlib.suppress(UwfError):
        head = instance.threads.active_head(thread)
        if branch_of(instance.store, head.row.start) is None:
            return
        from uwf_git.engine.forks import ends_at_failure

        if not ends_at_failure(instance, head):
            return
        from uwf_git.engine.turn.end import end

        with instance.locks.hold(thread, wait=_PATIENCE), extensions.observed(instance, thread):
            head = end(instance, instance.threads.active_head(thread), FAILED, error.message)
        settle(instance, head)
        error.hint, error.is_final = instance.threads.way_on(head), True
        tell_parents(instance, head, joined)


def tell_parents(instance: Instance, head: Head, joined: list[Outcome] | None = None) -> None:
    """Join the threads that waited for a branch that has ended, if it was the last that they need; add the outcomes to
    `joined`. No lock of theirs is held here."""
    if branch_of(instance.store, head.row.start) is None:
        return
    from uwf_git.engine.forks import is_joinable, parents_of

    for parent in parents_of(instance, head):
        try:
            if is_joinable(instance, instance.threads.active_head(parent), head.thread):
                outcome = step_without_hooks(instance, parent, joining=True, wait=_PATIENCE, joined=joined)
                if joined is not None:
                    joined.append(outcome)
        except (Busy, HeadMoved, Waiting, Invalid, RolledBack) as error:
            log.info("W6S2H8ND", "leaves the join to another: {why}", thread=parent, why=error.message)
