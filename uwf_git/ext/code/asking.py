"""The step of a call's thread: made by the conversation that the code workflow's step has with the call's agent."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uwf_git.ext.code import RUNNER
from uwf_git.plugin import (
    END,
    QUESTION,
    RESULT,
    STEPNODE,
    WORKTREE_OPTION,
    Absent,
    AgentFailed,
    AttemptFailed,
    Busy,
    CallRequest,
    CallState,
    Detail,
    Invalid,
    Recorder,
    Step,
    TurnRecord,
    UwfError,
    WorkspaceOption,
    WorktreeNotes,
    begin_worktree,
    chosen_worktree,
    command_of,
    engine_calls,
    normalise_payload,
    step_without_hooks,
)

if TYPE_CHECKING:
    from uwf_git.plugin import EngineOrder, Hash, Head, Instance, ThreadPosition

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

    def perform(self, instance: Instance, at: ThreadPosition, order: EngineOrder, cwd: Path) -> Hash:
        """Ask, and draft the step. Raises as `Agent.perform`."""
        head, history = at
        recorder = Recorder(instance, head.thread, order.name)
        recorder.head = head.node
        role, kind = END, RESULT
        try:
            value = normalise_payload(self._act(head, recorder, cwd))
        except Suspended as suspended:
            roles = history.workflow.roles
            role = suspended.role if suspended.role in roles else next(iter(roles))
            kind, value = QUESTION, suspended.question
        except UwfError as error:
            self.error = error
            _, draft, turns = self._heard()
            if not turns:
                raise
            detail = recorder.detail(draft._replace(extraction="failed"), turns, order, head.node)
            recorder.settle(order, None, detail, error)
            raise AttemptFailed(error, detail) from None
        agent, draft, turns = self._heard()
        detail = recorder.detail(draft, turns, order, head.node)
        output = recorder.put(kind, recorder.redact(value, "output"))
        by = recorder.redact(agent, "agent") or RUNNER.name
        step = Step(history.start_hash, history.prev, role, output, detail, by)
        node = recorder.put(STEPNODE, step.payload())
        recorder.settle(order, node, detail, synced=not instance.runs.is_engine(head.thread))
        return node


def asking(instance: Instance, head: Head) -> Asking:
    """Return the Asking that makes the next step of a call's thread. Raises Invalid in another process."""
    resource = (instance.kept or {}).get(head.thread)
    if not isinstance(resource, Asking):
        caller = engine_calls.caller_of(instance, head)
        raise Invalid(
            f"thread {head.thread} is a call of a code workflow, whose own step asks its agent",
            f"uwf thread step {caller}" if caller is not None else "",
        )
    return resource


def answer(
    instance: Instance,
    at: ThreadPosition,
    request: CallRequest,
    act: Act,
    heard: Heard,
    cwd: Path,
    is_isolated: bool = False,
) -> tuple[Head, bool]:
    """Have a call of the thread at `at` answered in a thread of its own. Return its head, and whether it was asked
    here; not if another process was first. With `is_isolated`, its agent works in a worktree of its own, which begins
    at the files in `cwd` as they are. Raises as `act`, or as `step`."""
    root = engine_calls.root_of(instance, at.head.commit)
    while True:
        state = engine_calls.find(instance, root, request)
        if state.is_answered:
            assert state.head is not None
            return state.head, False
        if state.head is None:
            engine_calls.begin(instance, at, state.thread, request)
        if is_isolated and not WorktreeNotes(instance.store.repository.private).has(state.thread):
            begin_worktree(
                instance,
                chosen_worktree(instance, cwd, WorkspaceOption(WORKTREE_OPTION, changes=True)),
                [state.thread],
            )
        asking = Asking(act, heard)
        instance.kept = {state.thread: asking}
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
            if asking.error is not None:
                raise asking.error from None
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
