"""The turns of a step: messages and tool calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uwf_git.base.errors import NotFound
from uwf_git.engine.watching import current_turns
from uwf_git.engine.watching import follow as follow
from uwf_git.engine.watching import turns_of as turns_of

if TYPE_CHECKING:
    from uwf_git.format.ids import Hash, ThreadId
    from uwf_git.format.kinds import TurnRecord
    from uwf_git.store.history import Head
    from uwf_git.store.instance import Instance


def last_turns(instance: Instance, thread: ThreadId) -> tuple[TurnRecord, ...]:
    """Return the turns of the step in progress, else of the last step or the failed attempt after it. Raises
    NotFound."""
    if instance.locks.is_held(thread) or instance.runs.notes(thread):
        return current_turns(instance, thread)
    return turns_of(instance, _last(instance, instance.threads.head(thread)))


def _last(instance: Instance, head: Head) -> Hash:
    if instance.attempts.last(head) is not None:
        return instance.attempts.all(head.thread)[-1].hash
    if head.row.kind != "step":
        raise NotFound(f"thread {head.thread} has no step yet", f"uwf thread step {head.thread}")
    return head.node


def turn_value(turn: TurnRecord) -> dict[str, Any]:
    value: dict[str, Any] = {"role": turn.role, "text": turn.text}
    if turn.tool is not None:
        value |= {
            "tool": turn.tool,
            "arguments": turn.arguments,
            "result": turn.result,
            "failed": turn.failed,
        }
    value["model"] = turn.model
    value["usage"] = turn.usage._asdict() if turn.usage else None
    value["durationMs"] = turn.duration_ms
    return value
