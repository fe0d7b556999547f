"""What an agent is told, and what it says: prompts of next and past steps, messages and tool calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uwf_git.base.errors import Invalid, NotFound
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
    if turn.is_remark:
        value["remark"] = {"id": turn.call, **(turn.arguments if isinstance(turn.arguments, dict) else {})}
    value["model"] = turn.model
    value["usage"] = turn.usage.payload() if turn.usage else None
    value["durationMs"] = turn.duration_ms
    return value


def next_prompt(instance: Instance, thread: ThreadId, role: str | None, resumed: bool) -> dict[str, Any]:
    """Return the prompt of the next step, or of a `role`'s next turn, as JSON; `resumed`: for an agent with a
    session. Raises Invalid."""
    from uwf_git.engine.kit.prompt import prompt_at, role_of
    from uwf_git.engine.next_turn import outlook, raise_if_stuck
    from uwf_git.engine.past_prompt import configured_recipient
    from uwf_git.format.types import END, USER, is_chosen_by_maker
    from uwf_git.store.history import Position

    head = instance.threads.head(thread)
    history = instance.threads.history(head)
    following = outlook(instance, head, history)
    if role is None:
        raise_if_stuck(instance, following, head)
        role = following.asks if following.next == USER else following.next
        if role is None or role == END:
            raise Invalid(
                f"thread {thread} has no next role",
                f"name one with --role, or a step: {thread}@{head.row.number}",
            )
        if is_chosen_by_maker(role):
            raise Invalid(
                f"the code of thread {thread} decides which role is next", "name a role with --role"
            )
    instruction = following.instruction if role == following.next else None
    recipient = configured_recipient(instance, Position(head, history), role)._replace(remembers=resumed)
    text = prompt_at(instance, history, role_of(history, role), instruction, recipient)
    return {"thread": thread, "role": role, "instruction": instruction, "prompt": text}


def past_prompt(instance: Instance, thread: ThreadId, number: int) -> dict[str, Any]:
    """Return the prompt of step N as JSON. Raises NotFound, Invalid."""
    from uwf_git.api.find import numbered_step
    from uwf_git.engine.past_prompt import prompt_of_step
    from uwf_git.format.types import USER
    from uwf_git.git.repository import Oid
    from uwf_git.workflow.turn import is_engines

    row = numbered_step(instance, thread, number)
    before = instance.store.index_commit(Oid(raw=row.parent or b""))
    history = instance.threads.history_at(thread, before.node)
    detail = instance.store.detail(instance.store.step(row.node).detail)
    if row.role == USER:
        raise Invalid(f"step {number} of thread {thread} was said by a person, who had no prompt", "")
    if is_engines(row.role):
        raise Invalid(f"step {number} of thread {thread} was made by uwf, without an agent or a prompt", "")
    if history.workflow.code is not None or row.role not in history.workflow.roles:
        raise Invalid(f"the code of the workflow made the prompt of step {number} of thread {thread}", "")
    if detail is None:
        raise Invalid(f"step {number} of thread {thread} has no recorded prompt", "")
    text = prompt_of_step(instance, history, before, row, detail)
    step = {"step": row.node, "number": number, "agent": row.agent}
    return {"thread": thread, "role": row.role, "instruction": detail.instruction, **step, "prompt": text}
