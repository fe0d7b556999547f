"""The step of a call's thread: made by the conversation that the code workflow's step has with the call's agent."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uwf_git.base.errors import Absent, AgentFailed, Busy, Invalid, UwfError
from uwf_git.config.known_agents import BUNDLES
from uwf_git.engine import calls
from uwf_git.engine.call_answer import command_of
from uwf_git.engine.calls import CallState, Request
from uwf_git.engine.kit.agent import AttemptFailed
from uwf_git.engine.kit.record import Recorder
from uwf_git.engine.step import step_without_hooks
from uwf_git.format.cbor import normalise
from uwf_git.format.kinds import Detail, Step, TurnRecord
from uwf_git.format.types import END, QUESTION, RESULT, STEPNODE
from uwf_git.workspaces.choice import begin, chosen
from uwf_git.workspaces.notes import Notes
from uwf_git.workspaces.options import WORKTREE, WorkspaceOption

if TYPE_CHECKING:
    from uwf_git.format.ids import Hash
    from uwf_git.store.history import Head, Position
    from uwf_git.store.instance import Instance
    from uwf_git.store.private import EngineOrder

Act = Callable[["Head", Recorder, Path], Any]
Heard = Callable[[], tuple[str, Detail, Sequence[TurnRecord]]]
"""Returns the agent's name and the conversation so far."""
_PATIENCE = 0.5  # seconds


class Suspended(Exception):
    """An agent, or a person in its place, has to be given an answer: `question` is the reserved output, `role` who
    asks."""

    def __init__(self, question: Any, role: str) -> None:
        super().__init__()
        self.question = question
        self.role = role


class Asking:
    """Asks for the step of a call: `act` returns the answer, and is handed the call's last head, its recorder and its
    folder."""

    def __init__(self, act: Act, heard: Heard) -> None:
        self._act = act
        self._heard = heard
        self.error: UwfError | None = None

    def close(self) -> None:
        """Nothing is kept."""

    def perform(self, instance: Instance, at: Position, order: EngineOrder, cwd: Path) -> Hash:
        """Ask, and draft the step. Raises as `Agent.perform`."""
        head, history = at
        recorder = Recorder(instance, head.thread, order.name)
        recorder.head = head.node
        role, kind = END, RESULT
        try:
            value = normalise(self._act(head, recorder, cwd))
        except Suspended as suspended:
            roles = history.workflow.roles
            role = suspended.role if suspended.role in roles else next(iter(roles))
            kind, value = QUESTION, suspended.question
        except UwfError as error:
            self.error = error
            _, said, turns = self._heard()
            if not turns:
                raise
            detail = recorder.detail(said._replace(extraction="failed"), turns, order, head.node)
            recorder.settle(order, None, detail, error)
            raise AttemptFailed(error, detail) from None
        agent, said, turns = self._heard()
        detail = recorder.detail(said, turns, order, head.node)
        output = recorder.put(kind, recorder.redact(value, "output"))
        by = recorder.redact(agent, "agent") or BUNDLES
        made = Step(history.start_hash, history.prev, role, output, detail, by)
        node = recorder.put(STEPNODE, made.payload())
        recorder.settle(order, node, detail)
        return node


def asking(instance: Instance, head: Head) -> Asking:
    """Return the Asking that makes the next step of a call's thread. Raises Invalid in another process."""
    found = (instance.kept or {}).get(head.thread)
    if not isinstance(found, Asking):
        caller = calls.caller_of(instance, head)
        raise Invalid(
            f"thread {head.thread} is a call of a code workflow, whose own step asks its agent",
            f"uwf thread step {caller}" if caller is not None else "",
        )
    return found


def answer(
    instance: Instance,
    at: Position,
    request: Request,
    act: Act,
    heard: Heard,
    cwd: Path,
    is_isolated: bool = False,
) -> tuple[Head, bool]:
    """Have a call of the thread at `at` answered in a thread of its own. Return its head, and whether it was asked
    here; not if another process was first. With `is_isolated`, its agent works in a worktree of its own, which begins
    at the files in `cwd` as they are. Raises as `act`, or as `step`."""
    root = calls.root_of(instance, at.head.commit)
    while True:
        state = calls.find(instance, root, request)
        if state.is_answered:
            assert state.head is not None
            return state.head, False
        if state.head is None:
            calls.begin(instance, at, state.thread, request)
        if is_isolated and not Notes(instance.store.repository.private).has(state.thread):
            begin(instance, chosen(instance, cwd, WorkspaceOption(WORKTREE, changes=True)), [state.thread])
        made = Asking(act, heard)
        instance.kept = {state.thread: made}
        try:
            outcome = step_without_hooks(instance, state.thread, cwd=cwd, wait=_PATIENCE)
            if outcome.done:
                return outcome.position.head, True
            raise Absent(
                f"call {state.thread} waits for an answer: {outcome.outlook.question}",
                f"{command_of(instance, outcome.position.head)}, then: uwf thread run {at.head.thread}",
            )
        except Busy:
            time.sleep(_PATIENCE)  # a run that shares the past asks the same
        except Invalid:
            if not _has_ended(instance, state):
                raise
        except UwfError:
            if made.error is not None:
                raise made.error from None
            raise
        finally:
            instance.kept = None


def _has_ended(instance: Instance, state: CallState) -> bool:
    with suppress(UwfError):
        return instance.threads.has_ended(state.thread)
    return False


def answer_of(instance: Instance, head: Head) -> tuple[Any, Step, Detail]:
    """Return a call's answer, the step that has it, and its detail. Raises AgentFailed for a call that has none."""
    past = next(instance.threads.past(head.node), None)
    if past is None or past.step.role != END:
        raise AgentFailed(f"call {head.thread} has no answer", f"uwf thread show {head.thread}")
    detail = instance.store.detail(past.step.detail)
    return instance.store.get(past.step.output).payload, past.step, detail or Detail("")
