"""A fleet's live lines: threads by state, speed, budget, rate-limited providers, steps in progress here."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from uwf_git.ext.fleet.admission import Admission
from uwf_git.ext.fleet.limits import Gate
from uwf_git.ext.fleet.process_pool import Tell
from uwf_git.ext.fleet.queue_states import QueueState, RowState
from uwf_git.plugin import ThreadState, Watch, counted, step_lines, terminal, thread_states

if TYPE_CHECKING:
    from uwf_git.plugin import Instance, Invocation

_RECENT = 10.0  # seconds whose steps say how fast it goes


class Table:
    """A fleet's state from events; steps elsewhere are known from the queue."""

    def __init__(self, instance: Instance, admission: Admission, threads: int, told: Tell) -> None:
        self._instance = instance
        self._admission = admission
        self._threads = threads
        self._describe = told
        self._states: dict[str, RowState] = {}
        self._steps = 0
        self._trouble = ""
        self._recent: deque[float] = deque()
        self._watch = Watch(instance)
        private = instance.store.repository.private
        self._gates = {name: Gate(private, name) for name in instance.config.providers}
        self._lines = step_lines.Lines(self.compose)

    def __call__(self, value: Mapping[str, Any]) -> None:
        """Print an event above the lines."""
        if "step" in value:
            step = value["step"]
            if (state := thread_states.parse(step["status"], step["done"])) is not None:
                self._states[step["thread"]] = state
            self._steps += step["role"] is not None
            self._recent.append(time.monotonic())
        elif "trouble" in value:
            fault = value["trouble"]
            self._trouble = f"{fault['message']}; it is asked again" if fault else ""
        elif "fault" in value:
            self._states[value["thread"]] = ThreadState.FAILING
        with self._lines.hidden():
            self._describe(value)

    def drawn(self, invocation: Invocation, quiet: bool) -> AbstractContextManager[object]:
        """Draw the lines during a block, if possible and wanted."""
        draws = not quiet and invocation.draws
        return self._lines if draws else nullcontext()

    def seen(self, states: Mapping[str, RowState]) -> None:
        self._states.update(states)

    def compose(self) -> Sequence[str]:
        running = sorted(self._instance.locks.held())
        steps = [(thread, self._watch.step(thread)) for thread in running]
        return [
            self._summary(len(running)),
            *self._resting(),
            *(f"{thread[-6:]}  {step_lines.step_line(step)}" for thread, step in steps if step is not None),
        ]

    def _summary(self, running: int) -> str:
        states = list(self._states.values())
        counts = {
            ThreadState.ASKING.word: sum(map(_waits, states)),
            QueueState.HELD.value: states.count(QueueState.HELD),
            ThreadState.FAILING.word: states.count(ThreadState.FAILING) + states.count(QueueState.GAVE_UP),
            QueueState.DELAYED.value: states.count(QueueState.DELAYED),
            "at work": running,
            "not begun": self._admission.left,
        }
        now = time.monotonic()
        while self._recent and now - self._recent[0] > _RECENT:
            self._recent.popleft()
        speed = f", {len(self._recent) / _RECENT:.1f}/s" if self._recent else ""
        done = sum(isinstance(state, ThreadState) and state.is_ended for state in states)
        parts = [
            f"{done} of {max(self._threads, len(states))} threads done",
            *(f"{count} {name}" for name, count in counts.items() if count),
            f"{counted(self._steps, 'step')}{speed}",
            self._admission.used().told(),
        ]
        return terminal.style(" · ".join(filter(None, parts)), "bold")

    def _resting(self) -> list[str]:
        now = time.time()
        waits = [(name, gate.open_at() - now) for name, gate in self._gates.items()]
        remote = [terminal.escape(self._trouble)] if self._trouble else []
        return remote + [
            f"{terminal.escape(name)} was asked too often, and is left alone for {step_lines.lasted(wait + 1)}"
            for name, wait in waits
            if wait > 0
        ]


def _waits(state: RowState) -> bool:
    if isinstance(state, ThreadState):
        return state.group is thread_states.Group.WAITING
    return state is QueueState.BLOCKED
