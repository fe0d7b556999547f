"""A thread to read: its prompt and steps as Markdown, one step in full, two threads side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uwf_cli.output import as_json, iso
from uwf_git.errors import NotFound
from uwf_git.store import layout
from uwf_git.values.ids import Hash
from uwf_git.values.kinds import StepContext, parse_detail, parse_step
from uwf_git.values.types import is_kind

if TYPE_CHECKING:
    from uwf_git.store.opened import Instance
    from uwf_git.store.threads import Head


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
                f"*{_count(self._omitted)} before this; to read: "
                f"`uwf thread read {head.thread} --before {first}`*"
            )
        parts += [self._section(number, step, fence_front_matter) for number, step in self._steps]
        if self._after:
            parts.append(f"*{_count(self._after)} after this.*")
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
                {
                    "step": step.hash,
                    "number": number,
                    "role": step.role,
                    "agent": step.agent,
                    "output": step.output,
                    "answer": threads.answer(step),
                }
                for number, step in self._steps
            ],
        }

    def _state(self) -> str:
        from uwf_git.engine.status import status_of

        return f"{status_of(self._instance, self._head)} after {_count(self._head.row.number)}"

    def _section(self, number: int, step: StepContext, fence_front_matter: bool) -> str:
        from uwf_git.workflow.diagram import code, inline

        title = f"## {number} {inline(step.role)}"
        by = f"{code(step.agent)} · {code(step.hash)}"
        output = _fenced(step.output)
        answer = self._instance.threads.answer(step).strip("\n")
        if not answer or answer == output:
            return "\n\n".join((title, by, output))
        return "\n\n".join(
            (title, by, output, _front_matter_fenced(answer) if fence_front_matter else answer)
        )


def _front_matter_fenced(answer: str) -> str:
    text = answer.lstrip("\ufeff\n")
    if not text.startswith("---\n"):
        return answer
    inner, found, rest = text[4:].partition("\n---")
    if not found or rest[:1] not in ("", "\n"):
        return answer
    return f"{_fence(inner)}yaml\n---\n{inner}\n---\n{_fence(inner)}{rest}"


def _fenced(output: Any) -> str:
    text = as_json(output)
    return f"{_fence(text)}json\n{text}\n{_fence(text)}"


def _fence(text: str) -> str:
    """Backticks that nothing in the text closes."""
    longest = run = 0
    for character in text:
        run = run + 1 if character == "`" else 0
        longest = max(longest, run)
    return "`" * max(3, longest + 1)


def _count(steps: int) -> str:
    return f"{steps} step{'s' * (steps != 1)}"


def details(instance: Instance, node: Hash) -> dict[str, Any]:
    """All there is of a step, or of a failed attempt at one: its node, its output, its detail with the
    turns in place of their hashes."""
    store = instance.store
    content = store.get(node)
    if is_kind(content.type, "attempt"):
        attempt = content.payload
        how = _detail(instance, attempt["detail"]) if attempt["detail"] else None
        return {"attempt": node, "time": iso(content.timestamp / 1000), **attempt, "detail": how}
    step = parse_step(content.payload)
    return {
        "step": node,
        "role": step.role,
        "agent": step.agent,
        "time": iso(content.timestamp / 1000),
        "start": step.start,
        "prev": step.prev,
        "output": {"hash": step.output, "value": store.get(step.output).payload},
        "detail": _detail(instance, step.detail),
    }


def _detail(instance: Instance, node: Hash) -> dict[str, Any]:
    detail = instance.store.get(node)
    how: Any = detail.payload
    if is_kind(detail.type, "detail"):
        turns = map(instance.store.get, parse_detail(how).turns)
        how = {**how, "turns": [turn.payload for turn in turns if is_kind(turn.type, "turn")]}
    return {"hash": node, "value": how}


def compare(instance: Instance, a: Head, b: Head) -> dict[str, Any]:
    """What two threads share, and what each has alone."""
    histories = [instance.threads.history(head) for head in (a, b)]
    one, other = (history.steps for history in histories)
    number = 0
    while number < min(len(one), len(other)) and one[number].hash == other[number].hash:
        number += 1
    starts = [history.start_hash for history in histories]
    workflows = [history.workflow_hash for history in histories]
    return {
        "workflow": {"same": workflows[0] == workflows[1], "hashes": workflows},
        "start": {"same": starts[0] == starts[1], "hashes": starts},
        "shared": _listed(one[:number], 1),
        "a": {"thread": a.thread, "steps": _listed(one[number:], number + 1)},
        "b": {"thread": b.thread, "steps": _listed(other[number:], number + 1)},
    }


def _listed(steps: tuple[StepContext, ...], first: int) -> list[dict[str, Any]]:
    return [
        {
            "step": step.hash,
            "number": number,
            "role": step.role,
            "agent": step.agent,
            "summary": layout.summary(step.output),
        }
        for number, step in enumerate(steps, first)
    ]
