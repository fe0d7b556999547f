"""One step of one thread. The process may exit afterwards: all state is in the store.

    lock → position: head and history → moderator → agent → its StepNode, checked
         → moderator again → commit, compare-and-swap → archive at $END → unlock

The position is read once and passed to an in-process agent. A failure leaves the head unchanged, and the
agent's work under refs/uwf/attempts/.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.base import log
from uwf_git.base.errors import (
    Absent,
    AgentFailed,
    Busy,
    HeadMoved,
    Invalid,
    Killed,
    NotFound,
    OutOfRounds,
    Paused,
    RequirementUnmet,
    SigningFailed,
    StoreDamaged,
    Throttled,
    UwfError,
    Waiting,
    WorkspaceFailed,
)
from uwf_git.base.text import encodable
from uwf_git.base.thread_states import ThreadState
from uwf_git.config.known_agents import asks_no_model, shipped
from uwf_git.engine import budget, calls
from uwf_git.engine.acceptance import accept
from uwf_git.engine.budget import METERED, BudgetState
from uwf_git.engine.census import Census, census_of
from uwf_git.engine.human_dialogue import typed_answer
from uwf_git.engine.human_roles import HumanRoles, gate_role
from uwf_git.engine.human_turn import HumanTurn, human_turn, moved_on
from uwf_git.engine.pause import end_step, pause_of, raise_if_paused, refusal
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
from uwf_git.engine.persons_answer import hold_for_person
from uwf_git.engine.reservations import reserved
from uwf_git.engine.retrying import (
    PATIENCE,
    note_throttled,
    pause,
    pause_before_retry,
    spare,
    stand_in_now,
    told,
)
from uwf_git.engine.slots import agent_slot
from uwf_git.engine.status import (
    Outlook,
    at_rest,
    budget_before,
    outlook,
    outlook_of,
    persons_role,
    raise_if_stuck,
    standing_of,
)
from uwf_git.engine.summary import summary_of
from uwf_git.engine.thread_state import resting_state
from uwf_git.format.fan_out import (
    COMPLETED,
    FAILED,
    JOINED_WITHOUT,
    KILLED,
    LEFT,
    PARENT_KILLED,
    parse_join,
)
from uwf_git.format.ids import Hash, ThreadId, fork_id
from uwf_git.format.kinds import (
    ENDED_BY_USER,
    HUMAN,
    INTERRUPTED,
    KILLED_NOW,
    PAUSED_NOW,
    REHEARSE,
    SUBWORKFLOW,
    THROTTLED,
    TIMEOUT,
    Attempt,
    Revision,
    Step,
    parse_attempt,
    parse_step,
    persona_value,
)
from uwf_git.format.kinds import FAILED as NO_CAUSE
from uwf_git.format.types import (
    APPROVAL,
    END,
    FAIL,
    FORK,
    JOIN,
    PERSON,
    STEPNODE,
    USER,
    WITH_CODE,
    is_kind,
)
from uwf_git.git.repository import Oid, StoreUnwritable
from uwf_git.sandbox.programs import avoid
from uwf_git.store.history import Head, Position
from uwf_git.store.indexing import pins, unpin
from uwf_git.store.instance import Instance
from uwf_git.store.locks import PROBE_SECONDS
from uwf_git.store.maintenance import maintain
from uwf_git.store.private import KILL, PAUSE, AgentReport, EngineOrder
from uwf_git.store.starts import branch_of, is_call
from uwf_git.store.threads import ConcurrentCommit
from uwf_git.trust.ability import ENDS, raise_if_unable, raise_if_unable_to_step
from uwf_git.workspaces.notes import Notes
from uwf_git.workspaces.shared_folder import announcement, sharing, sparing_stash

if TYPE_CHECKING:
    from uwf_git.config.resolve import AgentOptions
    from uwf_git.config.settings import AgentConfig
    from uwf_git.engine.approving import Standing
    from uwf_git.engine.kit.agent import Agent
    from uwf_git.workspaces.step_workspace import StepWorkspace


class Outcome(NamedTuple):
    """A thread's state after a step. `role` made the step; None if there was nothing to do. `standing`: the
    exhausted budget, or None; `turn`: a person's turn at the next role. `unpriced` is the number of tokens
    without a price; `uncounted` the limit that doesn't count this step because its agent reported nothing;
    `redactions` are the places and numbers of removed secrets; `summary` is the last output in a few words;
    `census` is that of an end or a join."""

    position: Position
    outlook: Outlook
    state: ThreadState
    role: str | None
    standing: BudgetState | None
    redactions: tuple[tuple[str, int], ...]
    unpriced: int = 0
    uncounted: str = ""
    turn: HumanTurn | None = None
    summary: str = ""
    census: Census | None = None

    @property
    def workflow(self) -> Hash:
        return self.position.history.workflow_hash

    @property
    def thread(self) -> ThreadId:
        return self.position.head.thread

    @property
    def head(self) -> Hash:
        """The last StepNode, or the StartNode."""
        return self.position.head.node

    @property
    def done(self) -> bool:
        return self.position.head.archive is not None

    def as_json(self) -> dict[str, Any]:
        last = self.position.history.steps[-1] if self.role is not None else None
        value: dict[str, Any] = {
            "workflow": self.workflow,
            "thread": self.thread,
            "head": self.head,
            "done": self.done,
            "status": self.state.word,
            "role": self.role,
            "agent": last.agent if last else None,
            **(persona_value(last.persona) if last else {}),
        }
        if self.turn is not None and self.turn.standing is not None:
            value["approvals"] = self.turn.standing.as_json()
        if self.outlook.problem is not None:
            value["problem"] = self.outlook.problem
        if (archive := self.position.head.archive) and archive.reason:
            value["reason"] = archive.reason
        if self.census is not None:
            value["census"] = self.census.as_json()
        return value

    def told(self) -> dict[str, Any]:
        """Return more for people: the step's number, a summary, and the next role."""
        steps, following = self.position.history.steps, self.outlook
        return {
            "number": len(steps),
            "verdict": self.summary,
            "next": following.next,
            "question": following.question or (self.turn.instruction if self.turn else ""),
            "options": list(self.turn.options if self.turn else following.options),
        }


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
    again as its role says, after at most `patience` seconds, as in `retrying`. A code workflow past
    its last round is killed without a step. Moves `refs/uwf/threads/<ULID>`, or `refs/uwf/attempts/<ULID>` if
    the step failed. Raises Busy, Waiting, Paused, Killed, AgentFailed, HeadMoved, NoTransition, Usage if no
    agent plays the role, Absent if a person must, Invalid for a thread that has ended."""
    joined: list[Outcome] = []
    while True:
        try:
            outcome = step_without_hooks(instance, thread, agent, cwd, on_stderr, files, joined=joined)
            break
        except AgentFailed as error:
            wait = pause_before_retry(instance, thread, patience)
            if wait is None:
                drop_branch(instance, thread, error, joined)
                run_outcome_hook(instance, thread, ThreadState.FAILING)
                run_hooks_of(instance, joined)
                raise
            instance.warn(told(thread, wait, error.message))
            pause(wait)
        except Absent as absent:
            _call(instance, thread, absent)
            raise
    run_outcome_hook(instance, thread, outcome.state, outcome.outlook)
    run_hooks_of(instance, joined)
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
    typed = None if joining else typed_answer(instance, thread, agent)
    with log.about(thread=thread, role=None), contextlib.ExitStack() as stack:
        if typed is not None:
            stack.enter_context(typed.keeping(instance, thread))
            lock = stack.enter_context(hold_for_person(instance, thread))
        else:
            lock = stack.enter_context(instance.locks.hold(thread, wait=wait))
        at = instance.threads.position(instance.threads.active_head(thread))
        if joining and at.head.row.role != FORK:
            raise HeadMoved(f"thread {thread} is joined already")
        if typed is not None and typed.head != at.head.node:
            raise moved_on(thread, at.head.node, typed.head)
        log.debug(
            "ANQE03T0",
            "is at {head} after {steps} steps of {workflow}",
            head=at.head.node,
            steps=len(at.history.steps),
            workflow=at.history.workflow.name,
            commit=at.head.commit,
        )
        raise_if_joined(instance, at.head)
        if typed is None:
            raise_if_paused(instance, thread)
        instance.renew_judging()
        found = outlook(instance, *at)
        log.info(
            "PG4BWQYP",
            "next is {next}",
            next=found.next,
            instruction=found.instruction,
            location=found.location,
            problem=found.problem,
        )
        if found.next in (USER, None) and at_rest(instance, at.head):
            raise Waiting(f"in conversation {thread} it is your turn", f"uwf chat --resume {thread}")
        raise_if_stuck(instance, found, at.head)
        if typed is not None and typed.code:
            from uwf_git.engine.presented import raise_if_changed

            raise_if_changed(instance, at, str(found.next), typed.code)
        if found.next == USER:
            raise Waiting(
                f"thread {thread} waits for an answer: {found.question}",
                f"uwf thread answer {thread} -m TEXT",
            )
        if typed is not None and typed.is_approval:
            from uwf_git.engine.approving import standing_at

            standing = standing_at(instance, at, found)
            assert standing is not None  # at the head that it was typed at
            outcome = approved(instance, at, found, standing, typed.output, typed.words)
        else:
            by = typed.agent if typed is not None else agent
            outcome = take_turn(instance, at, found, lock, by, cwd, on_stderr, files)
    if outcome.done:
        tell_parents(instance, outcome.position.head, joined)
    maintain(instance.store.repository, shared=instance.location.here)
    return outcome


def take_turn(
    instance: Instance,
    at: Position,
    found: Outlook,
    lock: int,
    agent: str | Agent | AgentOptions | None = None,
    cwd: Path | None = None,
    on_stderr: Callable[[bytes], None] | None = None,
    files: str = "",
    is_mine: bool = True,
) -> Outcome:
    """Make the step of the next role, `found` at `at`, and end the thread at `$END`. The caller holds the `lock`.
    A person's answer is the user's if it `is_mine`. Moves and raises as `step`."""
    role, thread = None, at.head.thread
    _end_left_out(instance, at)
    if found.next in (FORK, JOIN):
        return _fanned_out(instance, at, found)
    if (standing_here := _gate(instance, at, found, agent)) is not None:
        from uwf_git.engine.approving import raise_if_unmet

        raise_if_unmet(standing_here, thread)
        return _completed(instance, at, found, standing_here)
    if found.next != END:
        assert found.next is not None
        raise_if_unable_to_step(instance, at.history.workflow, found.next)
        standing = budget_before(instance, at.head, found.next, agent)
        if standing is not None and standing.reached is not None:
            raise budget.waiting(thread, standing)
        try:
            with log.about(role=found.next):
                at = _Run(instance, at, found, on_stderr, files, is_mine).do(agent, cwd, lock)
        except KeyboardInterrupt:
            if instance.runs.broken_off(thread) == KILL:
                raise _was_killed(instance, at.head) from None
            raise
        except OutOfRounds as over:
            at = at._replace(head=_end(instance, at.head, KILLED, over.message))
        else:
            role = at.history.steps[-1].role
            found = outlook(instance, *at)
    if found.next == END:
        at = at._replace(head=_end(instance, at.head, *_ending(instance, at.head, found)))
    return outcome_of(instance, at, found, role)


def _fanned_out(instance: Instance, at: Position, found: Outlook) -> Outcome:
    """Fork or join, and end the thread if that ends it."""
    from uwf_git.engine import fan_out
    from uwf_git.engine.fan_out_code import advance

    if found.next == FORK:
        standing = budget_before(instance, at.head, FORK)
        if standing is not None and standing.reached is not None:
            raise budget.waiting(at.head.thread, standing)
        at = append_step(instance, at, *fan_out.fork(instance, at))
        fan_out.begin_branches(instance, at)
        return outcome_of(instance, at, outlook(instance, *at), FORK)
    fan_out.begin_branches(instance, at)  # those that a killed process did not begin
    node, made, tips = fan_out.join(instance, at)
    at = append_step(instance, at, node, made, merged=tips)
    _end_left_out(instance, at)
    advance(instance, at)
    found = outlook(instance, *at)
    if found.next == END:
        at = at._replace(head=_end(instance, at.head, *_ending(instance, at.head, found)))
    return outcome_of(instance, at, found, JOIN)


def begin_branches(instance: Instance, thread: ThreadId) -> None:
    """Begin the branches of a fork that a killed process did not begin."""
    from uwf_git.engine import fan_out

    with instance.locks.hold(thread, wait=_PATIENCE):
        head = instance.threads.active_head(thread)
        if head.row.role == FORK:
            fan_out.begin_branches(instance, instance.threads.position(head))


def outcome_at(instance: Instance, thread: ThreadId) -> Outcome:
    """Return the outcome of a thread's last step, which another process made."""
    at = instance.threads.position(instance.threads.head(thread))
    found = Outlook(END) if at.head.archive is not None else outlook(instance, *at)
    return outcome_of(instance, at, found, at.history.steps[-1].role)


def raise_if_joined(instance: Instance, head: Head) -> None:
    """End a branch that its parent was joined without, and raise Killed. The caller holds the lock."""
    if branch_of(instance.store, head.row.start) is None:
        return
    from uwf_git.engine.fan_out import is_joined

    if is_joined(instance, head):
        head = _end(instance, head, KILLED, JOINED_WITHOUT)
        end_branches(instance, head)
        raise Killed(
            f"branch {head.thread} ended, its fork is {JOINED_WITHOUT} it", instance.threads.way_on(head)
        )


def drop_branch(
    instance: Instance, thread: ThreadId, error: AgentFailed, joined: list[Outcome] | None = None
) -> None:
    """End a branch whose step failed, if its fork wants no other try, and add to `joined` as `tell_parents`."""
    with contextlib.suppress(UwfError):
        head = instance.threads.active_head(thread)
        if branch_of(instance.store, head.row.start) is None:
            return
        from uwf_git.engine.fan_out import ends_at_failure

        if not ends_at_failure(instance, head):
            return
        with instance.locks.hold(thread, wait=_PATIENCE):
            ended = _end(instance, instance.threads.active_head(thread), FAILED, error.message)
        tell_parents(instance, ended, joined)


def tell_parents(instance: Instance, head: Head, joined: list[Outcome] | None = None) -> None:
    """Join the threads that waited for a branch that has ended, if it was the last that they need; add the outcomes to
    `joined`. No lock of theirs is held here."""
    if branch_of(instance.store, head.row.start) is None:
        return
    from uwf_git.engine.fan_out import is_joinable
    from uwf_git.engine.forks import parents_of

    for parent in parents_of(instance, head):
        try:
            if is_joinable(instance, instance.threads.active_head(parent), head.thread):
                outcome = step_without_hooks(instance, parent, joining=True, wait=_PATIENCE, joined=joined)
                if joined is not None:
                    joined.append(outcome)
        except (Busy, HeadMoved, Waiting, Invalid) as error:
            log.info("W6S2H8ND", "leaves the join to another: {why}", thread=parent, why=error.message)


def run_hooks_of(instance: Instance, outcomes: Sequence[Outcome]) -> None:
    for each in outcomes:
        run_outcome_hook(instance, each.thread, each.state, each.outlook)


def end_branches(instance: Instance, head: Head) -> None:
    """End the branches of a thread that was ended before their join, if no other thread waits for them."""
    if head.row.role != FORK:
        return
    from uwf_git.engine.fan_out import branches_at
    from uwf_git.engine.forks import parents_of

    for each in branches_at(instance, head).open:
        if each.head is not None and not parents_of(instance, each.head):
            with contextlib.suppress(UwfError):
                kill(instance, each.thread, PARENT_KILLED)


def _end_left_out(instance: Instance, at: Position) -> None:
    """End the branches that a thread's last step, if it is a join, left out: also those that a killed process did not
    end. One that runs on another machine ends with its next step."""
    step = next((each for each in reversed(at.history.steps) if each.role != USER), None)
    if step is None or step.role != JOIN:
        return
    for branch in parse_join(step.output):
        if branch.status == LEFT and not instance.threads.has_ended(branch.thread):
            with contextlib.suppress(UwfError):
                kill(instance, branch.thread, JOINED_WITHOUT)


def approved(
    instance: Instance, at: Position, found: Outlook, standing: Standing, output: Any, reason: str = ""
) -> Outcome:
    """Record the user's approval at a gate, and make the step once a quorum agrees. The caller holds the lock. Moves
    and raises as `approving.approve`."""
    from uwf_git.engine.approving import approve

    held = budget_before(instance, at.head, standing.role.name)
    if held is not None and held.reached is not None:
        raise budget.waiting(at.head.thread, held)
    after = approve(instance, at, found, standing, output, reason)
    if after.tally.met is not None:
        return _completed(instance, at, found, after)
    return outcome_of(instance, at, found, None)


def _completed(instance: Instance, at: Position, found: Outlook, standing: Standing) -> Outcome:
    from uwf_git.engine.approving import step_of

    held = budget_before(instance, at.head, standing.role.name)
    if held is not None and held.reached is not None:
        raise budget.waiting(at.head.thread, held)
    node, made, tip = step_of(instance, at, found, standing)
    at = append_step(instance, at, node, made, merged=(tip,))
    instance.runs.clear(at.head.thread)
    found = outlook(instance, *at)
    if found.next == END:
        at = at._replace(head=_end(instance, at.head, *_ending(instance, at.head, found)))
    return outcome_of(instance, at, found, standing.role.name)


def _gate(
    instance: Instance, at: Position, found: Outlook, agent: str | Agent | AgentOptions | None
) -> Standing | None:
    """Return how the gate stands that is next, None if there is none, or a rehearsal plays it."""
    history = at.history
    made_up = [step for step in history.steps if step.agent == REHEARSE and gate_role(history, step.role)]
    if gate_role(history, found.next) is None and not made_up:
        return None
    if found.next in (None, END) or found.next not in history.workflow.roles:
        return None
    config, _ = performer_of(instance, at, found.next, agent)
    is_rehearsed = config.command == REHEARSE
    if made_up and not is_rehearsed and not history.workflow.is_persons(found.next):
        raise Absent(
            f"thread {at.head.thread} is a rehearsal: the approvals of {made_up[0].role} are made up",
            "start another thread, or go on with --agent uwf-rehearse",
        )
    if gate_role(history, found.next) is None:
        return None
    if is_rehearsed and all(step.agent in (REHEARSE, PERSON) for step in history.steps):
        return None
    from uwf_git.engine.approving import standing_at

    return standing_at(instance, at, found)


def run_outcome_hook(
    instance: Instance, thread: ThreadId, state: ThreadState, following: Outlook | None = None
) -> None:
    """Run the user's hooks for a thread's new state, once the lock is free."""
    if instance.config.hooks.commands:
        from uwf_git.engine.hooks import run_state_hook

        instance.after(lambda: run_state_hook(instance, thread, state, following))


def _call(instance: Instance, thread: ThreadId, absent: Absent) -> None:
    event = ThreadState.PERSONS_TURN.value.hook
    if event in instance.config.hooks.commands:
        from uwf_git.engine.hooks import run_hook

        head = instance.threads.head(thread)
        if instance.runs.call(thread, head.node):
            # The agent of a code workflow's call may be a person too, of which no role tells.
            told = {} if persons_role(instance, head) else {"question": f"{absent.message}: {absent.hint}"}
            instance.after(lambda: run_hook(instance, thread, event, **told))


def kill(instance: Instance, thread: ThreadId, reason: str = "") -> Head:
    """End a thread and its running agent. Interrupted work becomes a failed attempt. Makes
    `refs/uwf/archive/<ULID>` and deletes the active ref; may move `refs/uwf/attempts/<ULID>`. Raises Invalid
    for a thread that has ended, Busy if its agent does not end."""
    raise_if_unable(instance, "threads", instance.threads.active_head(thread).row.name or "", (ENDS,))
    try:
        end_step(instance, thread, KILL)
        with instance.locks.hold(thread, wait=5.0):
            head = instance.threads.active_head(thread)
            record_leftovers(instance, head)
            head = _end(instance, head, KILLED, reason)
    finally:
        instance.runs.clear_interrupt(thread)
    end_branches(instance, head)
    joined: list[Outcome] = []
    if reason not in (JOINED_WITHOUT, PARENT_KILLED):
        tell_parents(instance, head, joined)
    run_outcome_hook(instance, thread, ThreadState.KILLED)
    run_hooks_of(instance, joined)
    return head


def _ending(instance: Instance, head: Head, found: Outlook) -> tuple[str, str]:
    if found.failed:
        return FAILED, found.reason or ""
    census = census_of(instance, head.commit)
    return COMPLETED, census.ending if census is not None else ""


def _end(instance: Instance, head: Head, status: str, reason: str = "") -> Head:
    ended = instance.threads.archive(head, status, reason)
    _end_calls(instance, head)
    instance.runs.clear(head.thread)
    if Notes(instance.store.repository.private).has(head.thread):
        from uwf_git.workspaces.removal import leave

        leave(instance, head.thread)
    return ended


def _end_calls(instance: Instance, head: Head) -> None:
    """End the calls that a code workflow asked for and went on without, those at work for another thread excepted.
    One whose process died after its answer is completed."""
    if not calls.is_code(instance, head) or is_call(instance.store, head.row.start):
        return
    for each in calls.left(instance, head):
        with contextlib.suppress(UwfError), instance.locks.hold(each.thread):
            if each.row.role == END:
                _end(instance, each, COMPLETED)
                continue
            record_leftovers(instance, each)
            made = instance.attempts.last(each)
            has_failed = made is not None and made.error not in ENDED_BY_USER
            _end(instance, each, KILLED, made.error if made is not None and has_failed else JOINED_WITHOUT)


def record_leftovers(instance: Instance, head: Head, error: str = KILLED_NOW) -> None:
    """Record leftovers of an agent whose engine is gone as an attempt that failed with `error`. Unreadable
    threads keep nothing: they can be ended anyway. Raises StoreUnwritable."""
    left = instance.runs.read_order(head.thread)
    if left is None or left.head != head.node:
        return
    try:
        _Run(instance, instance.threads.position(head), Outlook(left.role), None).record_leftovers(error)
    except StoreUnwritable:
        raise
    except UwfError as error:
        log.warning("R6GT1MZ8", "what was left behind isn't kept: {error}", error=error.message)


def _was_killed(instance: Instance, head: Head, kept: bool = False) -> Killed:
    what = "; what its agent did so far is kept" if kept else ""
    return Killed(f"thread {head.thread} was killed{what}", instance.threads.way_on(head))


def outcome_of(instance: Instance, at: Position, found: Outlook, role: str | None) -> Outcome:
    """Return the outcome after a role's step. The caller holds the lock."""
    standing = standing_of(instance, at.head, found=found)
    unpriced = standing.unpriced if standing else 0
    limited = standing.limits if standing else {}
    if standing is not None and standing.reached is None:
        standing = None
    # The lock is ours, and gone when this is read.
    people = HumanRoles(instance)
    state = resting_state(instance, at.head, standing, people=people)
    is_persons = state is ThreadState.PERSONS_TURN
    turn = human_turn(instance, at.head, people, found) if is_persons else None
    last = at.history.steps[-1] if role is not None else None
    detail = instance.store.detail(last.detail) if last is not None else None
    uncounted = ""
    if last and detail and detail.usage is None and not detail.cost and not asks_no_model(last.agent):
        uncounted = next((key for key in METERED if key in limited), "")
    redactions = detail.redactions if detail else ()
    summary = ""
    if at.history.steps:
        newest = at.history.steps[-1]
        summary = summary_of(instance, at.history.workflow, newest.role, newest.output).text
    census = census_of(instance, at.head.commit) if at.head.archive is not None or role == JOIN else None
    return Outcome(at, found, state, role, standing, redactions, unpriced, uncounted, turn, summary, census)


def append_step(
    instance: Instance,
    at: Position,
    node: Hash,
    made: Step,
    merged: Sequence[Oid] = (),
    begins: bool = False,
) -> Position:
    """Commit a checked StepNode and return the new position. If a push moved the thread meanwhile, the step
    becomes a new thread, named by HeadMoved. `begins` creates the thread."""
    thread = at.head.thread
    raise_if_unable_to_step(instance, at.history.workflow, made.role, made.agent)
    detail = instance.store.detail(made.detail)
    known = {past.hash for past in at.history.steps}
    context = instance.threads.context(node, at.history.workflow)
    ahead = outlook_of(instance, at.history.after(context))
    then = FAIL if ahead.failed else ahead.next
    extraction = detail.extraction if detail else ""
    with instance.store.together():  # until one of the two refs leads to the step
        try:
            head = instance.threads.append(at.head, node, known, merged, extraction, then, begins)
        except ConcurrentCommit as outrun:
            if made.role == JOIN and (same := instance.threads.head(thread)).node == node:
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


_PATIENCE = 5.0  # seconds for another process to let go of a thread

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


_LOOKED_AT = 20  # steps in which the code of a thread is looked for


class _Run:
    def __init__(
        self,
        instance: Instance,
        at: Position,
        found: Outlook,
        on_stderr: Callable[[bytes], None] | None,
        files: str = "",
        is_mine: bool = True,
    ) -> None:
        assert found.next is not None
        self._instance = instance
        self._at = at
        self._thread = at.head.thread
        self._role = found.next
        self._found = found
        self._on_stderr = on_stderr
        self._order: EngineOrder | None = None
        self._pinned: frozenset[str] | None = None
        self._files = files
        self._is_mine = is_mine
        self._workspace: StepWorkspace | None = None
        self._held = contextlib.ExitStack()

    def do(self, agent: str | Agent | AgentOptions | None, cwd: Path | None, lock: int) -> Position:
        try:
            with self._held:
                return self._done(agent, cwd, lock)
        except StoreUnwritable as error:
            if (report := self._report()) is not None:
                error.hint = f"{error.hint}, then step again: what {report.agent} answered is kept"
            raise

    def _done(self, agent: str | Agent | AgentOptions | None, cwd: Path | None, lock: int) -> Position:
        instance = self._instance
        made = self._finished_work() or self._ask(agent, cwd, lock)
        try:
            if made.error is not None:
                raise made.error
            assert made.step is not None
            self._raise_if_interrupted(made)
            step, merge = accept(instance, self._at, self._role, made.step, self._order)
            log.debug(
                "E5R67H14", "step {step} is accepted", step=made.step, agent=step.agent, output=step.output
            )
            node, step = self._with_replaced(*self._with_person(*self._with_code(made.step, step)))
            after = append_step(instance, self._at, node, step, (merge,) if merge else self._calls())
        except (AgentFailed, NotFound) as error:
            self._raise_if_interrupted(made)
            if isinstance(error, AgentFailed) and error.absence is not None:
                self._keep(made, AgentFailed(INTERRUPTED))
                raise error.absence from None
            raise self._failed(made, error) from None
        except (HeadMoved, Killed, Paused):  # and the agent's work is kept
            instance.runs.clear(self._thread)
            raise
        except _PASSING as error:
            log.warning(
                "QTP055FT",
                "cannot commit, what the agent made is left for the next step: {error}",
                error=repr(error),
            )
            self._save_finished_work(made)
            raise
        except Exception as error:
            # It would go wrong the next time too, so an agent has to be asked again.
            log.error(
                "EZZFP8B5", "what the agent made is not a step: {error}", error=repr(error), step=made.step
            )
            self._keep(self._with_detail(made), AgentFailed(f"the step cannot be committed: {error}"))
            raise
        instance.runs.clear(self._thread)
        self._unpin(node)
        if self._at.history.workflow.code is not None:
            _end_calls(instance, after.head)
        return after

    def _calls(self) -> tuple[Oid, ...]:
        """Return the last commits of the calls whose answers a code workflow was given for its step."""
        if self._at.history.workflow.code is None or (report := self._report()) is None:
            return ()
        return calls.joined(self._instance, self._at.head, report.calls)

    def _with_code(self, node: Hash, step: Step) -> tuple[Hash, Step]:
        """Return the StepNode with the code that the step left in its worktree. Agents don't know that; the
        engine adds it to the detail."""
        order, store = self._order, self._instance.store
        if order is None or not order.base or (work := self._workspace or self._workspace_at()) is None:
            return node, step
        from uwf_git.engine.fan_out_code import left_out
        from uwf_git.store.pages import verdict
        from uwf_git.workspaces.step_workspace import Maker

        said = verdict(store.get(step.output).payload)
        persona = self._at.history.speaker(step.role) if step.role != END else None
        code = work.record(order.base, Maker(step.role, step.agent, persona, said))
        detail = store.detail(step.detail)
        if code is None:
            return node, step
        output = store.get(step.output).payload
        if note := left_out(self._instance, self._at, step.role, output, work, code.commit):
            self._instance.warn(f"thread {self._thread}: role {step.role} {note}")
        if detail is None:
            return node, step
        with store.registering():
            told = detail._replace(code=code, notes=(*detail.notes, note) if note else detail.notes)
            step = step._replace(detail=store.draft(told.type, told.payload()))
            return store.draft(STEPNODE, step.payload()), step

    def _with_person(self, node: Hash, step: Step) -> tuple[Hash, Step]:
        """Return the StepNode of a person's answer with who gave it, in view of what. Only the engine says so."""
        order, store = self._order, self._instance.store
        by_person = order is not None and order.command[:1] == (HUMAN,) and step.agent == HUMAN
        detail = store.detail(step.detail) if by_person and self._is_mine else None
        if detail is None or self._at.history.workflow.code is not None:
            return node, step
        from uwf_git.engine.approving import answered
        from uwf_git.store.pages import report_of

        reason = report_of(store.get(step.output).payload, store.get(step.detail))
        with store.registering():
            given = answered(self._instance, self._at.history, self._found, step.role, step.output, reason)
            said = store.draft(APPROVAL, given.payload())
            told = detail._replace(approvals=(said,))
            step = step._replace(detail=store.draft(told.type, told.payload()))
            return store.draft(STEPNODE, step.payload()), step

    def _with_replaced(self, node: Hash, step: Step) -> tuple[Hash, Step]:
        """Return the StepNode with a note of the configured command, person or workflow in whose place its agent
        played the role."""
        order, store = self._order, self._instance.store
        if order is None or not order.command:
            return node, step
        replaced = replacement(self._instance, self._at, self._role, order.command, order.name)
        detail = store.detail(step.detail) if replaced else None
        if replaced is None or detail is None:
            return node, step
        note = f"{replaced.player} played this role in place of {replaced.own}"
        with store.registering():
            told = detail._replace(notes=(*detail.notes, note))
            step = step._replace(detail=store.draft(told.type, told.payload()))
            return store.draft(STEPNODE, step.payload()), step

    def _unpin(self, step: Hash) -> None:
        if self._pinned is not None:
            history = self._at.history
            past = {history.start_hash, *(each.hash for each in history.steps)}
            # A ref that cannot be deleted is not the step's fault.
            with contextlib.suppress(UwfError):
                unpin(self._instance.store, self._pinned, step, frozenset(past))

    def _report(self) -> AgentReport | None:
        return self._instance.runs.answer_to(self._thread, self._at.head.node, self._role)

    def record_leftovers(self, error: str) -> None:
        if (made := self._finished_work(is_judged=False)) is not None:
            self._keep(self._with_detail(made), AgentFailed(error), once=True)

    def _finished_work(self, is_judged: bool = True) -> AgentResult | None:
        """Return the finished work of an agent whose engine was killed. Failed or interrupted work becomes an
        attempt to resume, as do answers that were not judged, unless the next agent may judge them."""
        runs, asked = self._instance.runs, (self._at.head.node, self._role)
        order = self._order = runs.read_order(self._thread)
        if (report := self._report()) is not None:
            made = reported(self._instance, report)
            log.info("PTMBS4G9", "takes over what an agent finished without its engine", step=made.step)
        elif order is not None and (order.head, order.role) == asked:
            if runs.answers(self._thread, order):
                if is_judged:
                    return None  # the next agent may be the one that gave it
            elif not runs.notes(self._thread):
                self._keep_files(AgentResult(agent=order.name))
                return None
            made = AgentResult(error=AgentFailed("the step was interrupted"))
            log.info("P1DTS74H", "finds what was said before the last run was interrupted", agent=order.name)
        else:
            return None
        if made.error is None:
            return made
        self._keep(made, made.error, once=True)
        return None

    def _ask(self, agent: str | Agent | AgentOptions | None, cwd: Path | None, lock: int) -> AgentResult:
        instance, history = self._instance, self._at.history
        role = history.workflow.roles.get(self._role)
        agent = override_at(instance, self._at, self._role, agent) if history.workflow.code is None else agent
        if agent is None and role is not None and role.fallback:
            agent = stand_in_now(instance, history, role) or None
        config, performer = performer_of(instance, self._at, self._role, agent)
        if role is not None and role.timeout is not None:
            config = config._replace(timeout=min(role.timeout, config.timeout or role.timeout))
        name = called(performer, config) if performer else program_of(config.command, config.args)
        name = instance.redactor.text(name)[0]
        from uwf_git.engine.kit.memory import resumes_session

        def goes_on() -> bool:
            left = self._order
            if left is not None and instance.runs.answers(self._thread, left):  # they belong to the files
                return left.command == (config.command, *config.args)
            return resumes_session(instance, self._at, self._role, name)

        if replaced := replacement(instance, self._at, self._role, (config.command, *config.args), name):
            instance.warn(
                f"thread {self._thread}: {replaced.player} plays {self._role} in place of {replaced.own}, which"
                " config.yaml names"
            )
        persons = config.command == HUMAN
        folder, base = self._persons_folder() if persons else self._folder(cwd, goes_on, config)
        order = EngineOrder(
            self._at.head.node,
            self._role,
            config.alias,
            self._found.instruction,
            config.timeout,
            budget.pending(instance, self._thread) or None,
            name,
            len(history.steps) + 1,
            persona_value(history.speaker(self._role)).get("persona"),
            (config.command, *config.args),
            str(folder),
            base=base,
        )
        left = self._order
        if left is not None and left.asks() != order.asks() and instance.runs.answers(self._thread, left):
            self._finished_work(is_judged=False)
        instance.runs.order(self._thread, order)
        self._order = order
        self._pinned = pins(instance.store)
        log.info(
            "CSRVQ5KM",
            "{agent} plays the role {place}",
            agent=config.alias,
            place="in this process" if performer else "as a process",
            name=name,
            command=[config.command, *config.args],
            named_by="--agent" if agent else "config",
            folder=folder,
            timeout=config.timeout,
        )
        try:
            if history.start.branch is not None:
                try:
                    spare(instance, self._thread, order.command, name, role)
                except AgentFailed as error:
                    return AgentResult(error=error, agent=name)
            self._held.enter_context(reserved(instance, self._at.head, config.command))
            with agent_slot(instance, config.command):
                if performer is None:
                    return run_command_of(instance, self._at, config, order, folder, lock, self._on_stderr)
                return perform(instance, self._at, performer, config, order, folder)
        except KeyboardInterrupt:
            report = self._report()
            made = reported(instance, report) if report else AgentResult(agent=name)
            # Finished work belongs to the next step, unless there is none.
            if made.step is None or instance.runs.broken_off(self._thread) == KILL:
                self._raise_if_interrupted(made)
                self._keep(made, made.error or AgentFailed(INTERRUPTED))
            raise

    def _folder(self, cwd: Path | None, resumes: Callable[[], bool], config: AgentConfig) -> tuple[Path, str]:
        """Return the agent's folder, and the commit at which its worktree begins, "" without one."""
        folders, location = self._instance.folders, self._found.location
        work = self._workspace = self._workspace_at(cwd) or self._late_worktree(cwd, config)
        if work is not None:
            work.prepare(self._order, resumes, self._files)
            folder = work.folder(location)
        else:
            if cwd is not None:
                folders.remember(self._thread, cwd.absolute())
            base = cwd or folders.recall(self._thread) or _current_folder()
            folder = base / location if location else base
            if beside := sharing(self._instance, self._thread, folder):
                self._instance.warn(beside)
            is_own = folder.absolute().is_relative_to(self._instance.location.root)  # such as a trial's
            if config.command != REHEARSE and not is_own and (place := announcement(self._thread, folder)):
                self._instance.warn(place)
            if config.command != REHEARSE:
                self._held.enter_context(sparing_stash(self._instance, self._thread, folder))
        if not folder.is_dir():
            raise Invalid(
                f"the working directory of {self._role!r}, {folder}, is not a folder", "create it first"
            )
        avoid(folder)
        return folder.absolute(), work.base if work is not None else ""

    def _late_worktree(self, cwd: Path | None, config: AgentConfig) -> StepWorkspace | None:
        """Return the worktree of a thread that was started before an agent that may change files was known."""
        history, notes = self._at.history, Notes(self._instance.store.repository.private)
        role = history.workflow.roles.get(self._role)
        is_within = history.start.branch is not None or history.start.call is not None
        if role is None or is_within or self._instance.sessions.owner(SUBWORKFLOW, self._thread):
            return None
        if notes.has(self._thread):
            return None
        if (program := shipped(config.command)) is None or not program.writes:
            return None
        from uwf_git.workspaces.choice import begin, choose_late

        where = cwd or self._instance.folders.recall(self._thread) or _current_folder()
        choice = choose_late(self._instance, self._at, config, role, where)
        if choice is None:
            return None
        begin(self._instance, choice, [self._thread])
        self._instance.warn(f"thread {self._thread} {choice.told()}")
        return self._workspace_at(None)

    def _persons_folder(self) -> tuple[Path, str]:
        """As `_folder`. A person answers anywhere, also where the project isn't; only a worktree that is here
        is recorded."""
        if Notes(self._instance.store.repository.private).has(self._thread):
            try:
                work = self._workspace_at()
                if work is not None and work.exists:
                    work.prepare(self._order, lambda: False, self._files, is_persons=True)
                    self._workspace = work
                    return work.folder(self._found.location), work.base
            except (NotFound, WorkspaceFailed) as error:
                self._instance.warn(f"the worktree is left as it is: {error.message}")
        return self._instance.location.root, ""

    def _workspace_at(self, cwd: Path | None = None) -> StepWorkspace | None:
        types = {self._instance.store.get(step.detail).type for step in self._at.history.steps[-_LOOKED_AT:]}
        has_code = any(each in WITH_CODE or not is_kind(each, "detail") for each in types)
        has_code = has_code or self._at.history.start.branch is not None  # it begins at its fork's
        if not has_code and not Notes(self._instance.store.repository.private).any():
            return None
        from uwf_git.workspaces.step_workspace import workspace_of

        return workspace_of(self._instance, self._at, cwd)

    def _raise_if_interrupted(self, made: AgentResult) -> None:
        """Keep the work of an agent ended by a pause or a kill, and raise Paused or Killed. The output of an
        ended command is incomplete, so it makes no step."""
        instance = self._instance
        why = instance.runs.broken_off(self._thread)
        found = pause_of(instance, self._thread) if why == PAUSE else None
        if found is None and why != KILL:
            return
        self._keep(self._with_detail(made), AgentFailed(PAUSED_NOW if found else KILLED_NOW))
        if found is None:
            raise _was_killed(instance, self._at.head, kept=True) from None
        raise refusal(self._thread, found, kept=True) from None

    def _with_detail(self, made: AgentResult) -> AgentResult:
        if made.step is not None and made.detail is None:
            with contextlib.suppress(UwfError):
                made = made._replace(detail=parse_step(self._instance.store.get(made.step).payload).detail)
        return made

    def _failed(self, made: AgentResult, error: AgentFailed | NotFound) -> AgentFailed:
        if isinstance(error, NotFound):
            failure = AgentFailed(
                f"{made.agent}: {error.message}", "the agent references nodes it did not store"
            )
        else:
            failure = error
        log.error(
            "0FH0299A", "{agent} failed: {error}", agent=made.agent, error=failure.message, hint=failure.hint
        )
        self._keep(made, failure)
        if failure.throttled is not None and self._order is not None:
            note_throttled(self._instance, self._order.command, failure.throttled)
        redact = self._instance.redactor.text
        failure.message, failure.hint = redact(failure.message)[0], redact(failure.hint)[0]
        return failure

    def _keep(
        self, made: AgentResult, error: AgentFailed, once: bool = False, code: Revision | None = None
    ) -> None:
        from uwf_git.engine.kit.record import salvage

        instance, (head, history), order = self._instance, self._at, self._order
        agent, detail = made.agent, made.detail
        if detail is None and order is not None and (noted := salvage(instance, head, order)):
            agent, detail = noted

        def clean(text: str) -> str:
            return instance.redactor.text(encodable(text))[0]

        attempt = Attempt(
            start=history.start_hash,
            prev=history.prev,
            role=self._role,
            agent=clean(agent),
            error=clean(error.message),
            detail=detail,
            stdout=clean(made.stdout),
            stderr=clean(made.stderr),
            code=code or self._failed_code(),
            cause=THROTTLED if error.throttled else TIMEOUT if error.timed_out else NO_CAUSE,
            resets_at=_reset_time(error.throttled),
        )
        if not once or instance.attempts.last(head) != parse_attempt(attempt.payload()):
            instance.attempts.record(head, attempt)
        log.info(
            "PMS6PCFJ", "keeps a failed attempt of {agent}", agent=agent, detail=detail, error=attempt.error
        )
        instance.runs.clear(self._thread)

    def _keep_files(self, made: AgentResult) -> None:
        """Keep the files of an agent that was killed before it said anything, if it changed any."""
        if (code := self._failed_code()) is not None:
            self._keep(made, AgentFailed("the step was interrupted"), once=True, code=code)

    def _failed_code(self) -> Revision | None:
        order = self._order
        if order is None or not order.base:
            return None
        try:
            work = self._workspace or self._workspace_at()
            return work.keep_failed(order.base) if work is not None else None
        except (UwfError, OSError) as error:
            self._instance.warn(f"what the attempt changed is not kept: {error}")
            return None

    def _save_finished_work(self, made: AgentResult) -> None:
        assert made.step is not None
        if (report := self._report()) is not None and report.step == made.step:
            return
        store, (head, history) = self._instance.store, self._at
        stop = frozenset(past.hash for past in history.steps) | {history.start_hash}
        with contextlib.suppress(UwfError):
            nodes = {node: str(store.blob_of(node)) for node, _ in store.walk(made.step, stop)}
            report = AgentReport(head.node, self._role, made.agent, made.step, made.detail, "", "", nodes)
            self._instance.runs.report(self._thread, report)


def _reset_time(throttled: Throttled | None) -> int | None:
    return None if throttled is None or throttled.after is None else int(time.time() + throttled.after) + 1


def _current_folder() -> Path:
    try:
        return Path.cwd()
    except OSError:
        raise Invalid("the current folder is gone", "cd to one that exists, or give one with --cwd") from None
