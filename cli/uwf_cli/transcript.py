"""A thread to read: its prompt and steps as Markdown, one step in full, two threads side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uwf_cli.output import as_json, iso
from uwf_git.errors import NotFound
from uwf_git.store.ancestry import shared_steps
from uwf_git.store.layout import summary
from uwf_git.text import counted, fenced
from uwf_git.values.ids import Hash
from uwf_git.values.kinds import StepContext, parse_attempt, parse_detail, parse_step
from uwf_git.values.types import is_kind

if TYPE_CHECKING:
    from uwf_git.store.opened import Instance
    from uwf_git.store.taking_in import Store
    from uwf_git.store.threads import Head, History


class Transcript:
    """What `read` shows of a thread: the steps before `before`, or all; of those as many of the newest as
    fit into `quota` characters, and at least one."""

    def __init__(self, instance: Instance, head: Head, quota: int | None, before: Hash | None) -> None:
        self._instance = instance
        self._head = head
        history = instance.threads.history(head)
        self._start = history.start
        self._name = history.workflow.name
        steps = list(enumerate(history.steps, 1))
        self._after = 0
        if before is not None:
            number = next((number for number, step in steps if step.hash == before), None)
            if number is None:
                raise NotFound(
                    f"thread {head.thread} has no step {before}", f"see: uwf thread steps {head.thread}"
                )
            self._after = len(steps) - number + 1
            steps = steps[: number - 1]
        self._steps: list[tuple[int, StepContext]] = []
        room = quota
        for number, step in reversed(steps):
            if room is not None:
                room -= len(self._section(number, step, False))
                if room < 0 and self._steps:
                    break
            self._steps.append((number, step))
        self._steps.reverse()

    @property
    def _omitted(self) -> int:
        return self._steps[0][0] - 1 if self._steps else 0

    def markdown(self, fence_front_matter: bool = False) -> str:
        """The whole page. Answers are in it word for word; `fence_front_matter` puts a fence around what
        YAML stands at their top, which a renderer would otherwise take for a heading."""
        from uwf_git.workflow.diagram import inline

        head = self._head
        parts = [f"# {inline(self._name)}", f"Thread `{head.thread}`, {self._state()}.", "## Prompt"]
        parts.append(self._start.prompt.rstrip("\n"))
        if self._omitted:
            first = self._steps[0][1].hash
            parts.append(
                f"*{counted(self._omitted, 'step')} before this; to read: "
                f"`uwf thread read {head.thread} --before {first}`*"
            )
        parts += [self._section(number, step, fence_front_matter) for number, step in self._steps]
        if self._after:
            parts.append(f"*{counted(self._after, 'step')} after this.*")
        return "\n\n".join(parts) + "\n"

    def value(self) -> dict[str, Any]:
        """The same as data."""
        threads = self._instance.threads
        return {
            "thread": self._head.thread,
            "workflow": self._name,
            "prompt": self._start.prompt,
            "omitted": self._omitted,
            "steps": [
                {**step_value(number, step), "output": step.output, "answer": threads.answer(step)}
                for number, step in self._steps
            ],
        }

    def _state(self) -> str:
        from uwf_git.engine.status import status_of

        return f"{status_of(self._instance, self._head)} after {counted(self._head.row.number, 'step')}"

    def _section(self, number: int, step: StepContext, fence_front_matter: bool) -> str:
        from uwf_git.workflow.diagram import code, inline

        title = f"## {number} {inline(step.role)}"
        by = f"{code(step.agent)} · {code(step.hash)}"
        output = fenced(as_json(step.output), "json")
        answer = self._instance.threads.answer(step).strip("\n")
        if not answer or answer == output:
            return "\n\n".join((title, by, output))
        return "\n\n".join((title, by, output, _shielded(answer) if fence_front_matter else answer))


def step_value(number: int, step: StepContext) -> dict[str, Any]:
    """Which step it is, as every list of steps says it in JSON."""
    return {"step": step.hash, "number": number, "role": step.role, "agent": step.agent}


def _shielded(answer: str) -> str:
    """An answer with a fence around the front matter at its top, where it has any."""
    text = answer.lstrip("\ufeff\n")
    if not text.startswith("---\n"):
        return answer
    inner, found, rest = text[4:].partition("\n---")
    if not found or rest[:1] not in ("", "\n"):
        return answer
    return fenced(f"---\n{inner}\n---", "yaml") + rest


def details(instance: Instance, node: Hash) -> dict[str, Any]:
    """All there is of a step, or of a failed attempt at one: its node, its output, its detail with the
    turns in place of their hashes."""
    store = instance.store
    content = store.get(node)
    if is_kind(content.type, "attempt"):
        detail = parse_attempt(content.payload).detail
        how = _detail(store, detail) if detail else None
        return {"attempt": node, "time": iso(content.timestamp / 1000), **content.payload, "detail": how}
    step = parse_step(content.payload)
    return {
        "step": node,
        "role": step.role,
        "agent": step.agent,
        "time": iso(content.timestamp / 1000),
        "start": step.start,
        "prev": step.prev,
        "output": {"hash": step.output, "value": store.get(step.output).payload},
        "detail": _detail(store, step.detail),
    }


def _detail(store: Store, node: Hash) -> dict[str, Any]:
    detail = store.get(node)
    if not is_kind(detail.type, "detail"):
        return {"hash": node, "value": detail.payload}
    turns = map(store.get, parse_detail(detail.payload).turns)
    # A detail that was made by hand may name nodes of other kinds.
    found = [turn.payload for turn in turns if is_kind(turn.type, "turn")]
    return {"hash": node, "value": {**detail.payload, "turns": found}}


def compare(instance: Instance, a: Head, b: Head) -> dict[str, Any]:
    """What two threads share, and what each has alone."""
    one, other = (instance.threads.history(head) for head in (a, b))
    shared = shared_steps(one, other)
    return {
        "workflow": _same(one.workflow_hash, other.workflow_hash),
        "start": _same(one.start_hash, other.start_hash),
        "shared": _listed(one, 0, shared),
        "a": {"thread": a.thread, "steps": _listed(one, shared)},
        "b": {"thread": b.thread, "steps": _listed(other, shared)},
    }


def _same(a: Hash, b: Hash) -> dict[str, Any]:
    return {"same": a == b, "hashes": [a, b]}


def _listed(history: History, begin: int, end: int | None = None) -> list[dict[str, Any]]:
    return [
        {**step_value(number, step), "summary": summary(step.output)}
        for number, step in enumerate(history.steps[begin:end], begin + 1)
    ]
