"""Conversations: threads of a workflow with one role, in which a person and an agent take turns.

A message is a step of `$USER`, a reply a step of the role. A reply's output has the form of a question, so
the moderator picks the user next and then the role that asked; yet the thread is idle, not waiting. Before
the first reply, or after an interrupted one, `$START` names the role that gets the message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from uwf_git.base.errors import UwfError
from uwf_git.base.text import one_line
from uwf_git.engine.next_turn import outlook
from uwf_git.engine.step_parts import Recipient, parts_of
from uwf_git.format.ids import Hash
from uwf_git.format.kinds import Role, StepContext, Workflow
from uwf_git.format.statuses import SUSPEND
from uwf_git.format.types import USER

if TYPE_CHECKING:
    from uwf_git.store.history import Head, History
    from uwf_git.store.indexing import Store
    from uwf_git.store.instance import Instance

CHAT = "chat"
"""The name of the workflow of a plain conversation."""
ASSISTANT = "assistant"
"""The role of such a conversation."""
CHOSEN = "chosen from the menu"
"""What the detail of a message notes that is an item of a menu."""

REPLY_SCHEMA: dict[str, Any] = {
    "title": "Reply",
    "description": "It is the user's turn. What was said is the step's answer, word for word.",
    "type": "object",
    "properties": {
        "$status": {"const": SUSPEND},
        "summary": {"type": "string", "description": "The first line of it."},
    },
    "required": ["$status", "summary"],
    "additionalProperties": False,
}
REPLY = Hash("7G18DDG7GR5Z2")
"""The schema of a role that talks: whatever its agent answers is a reply."""

DEFINED = Hash("B16J09VHYX91F")
"""The node of DEFINITION."""
DEFINITION = f"""\
name: {CHAT}
description: A person and an agent talk.
roles:
  {ASSISTANT}:
    description: Talks with the user.
    systemPrompt: |-
      You talk with a person who sits at a terminal and reads what you write while you write it. Answer what was said
      last, plainly and to the point. Ask back where you can't know what is meant.
    outputSchema:
      title: Reply
      description: It is the user's turn. What was said is the step's answer, word for word.
      type: object
      properties:
        $status: {{const: {SUSPEND}}}
        summary: {{type: string, description: The first line of it.}}
      required: [$status, summary]
      additionalProperties: false
graph:
  $START:
    new: {{role: {ASSISTANT}}}
    resume: {{role: {ASSISTANT}}}
  {ASSISTANT}:
    _: {{role: $END}}
"""

_MIN_MESSAGE_TEXT = 400  # minimum characters shown of a message


def talks(role: Role) -> bool:
    """Return whether a role's answers are taken verbatim."""
    return role.schema == REPLY


def is_conversation(workflow: Workflow) -> bool:
    return bool(workflow.roles) and all(map(talks, workflow.roles.values()))


def in_conversation(instance: Instance, head: Head) -> bool:
    return head.row.workflow is not None and is_conversation(instance.registry.workflow(head.row.workflow))


def is_noted(store: Store, step: StepContext) -> bool:
    """Return whether a message claims to be chosen from a menu. Anyone can claim that."""
    detail = store.detail(step.detail) if step.role == USER else None
    return detail is not None and CHOSEN in detail.notes


def conversation_prompt(
    history: History,
    role: Role,
    answer_of: Callable[[StepContext], str],
    *,
    recipient: Recipient,
    quota: int,
    before: str = "",
    stopped: Callable[[StepContext], str] = lambda step: "",
    chosen: Callable[[StepContext], bool] = lambda step: False,
) -> str:
    """Return the prompt of a conversation's next reply.

    A `recipient` that remembers its last reply gets only the messages since; otherwise the newest message
    whole, and older ones up to `quota` characters. `before` describes the run before. `stopped` returns the
    beginning of an interrupted reply, `chosen` whether a message is a menu item.
    """
    steps = history.steps
    mine = [
        n for n, step in enumerate(steps, 1) if step.role != USER and recipient.agent in (None, step.agent)
    ]
    known = mine[-1] if recipient.remembers and mine else 0
    since = steps[known:]
    last = next((n for n, item in enumerate(reversed(since)) if item.role != USER), len(since))
    talk = "\n\n".join(_said(since[len(since) - last :], stopped, chosen))
    earlier = since[: len(since) - last]
    if known and not earlier:
        return talk
    parts = [] if known else [*_who(history, role), before.strip()]
    if earlier:
        heading = "# What was said since your last reply" if known else "# The conversation so far"
        parts.append("\n\n".join([heading, *_transcript(earlier, answer_of, quota - len(talk))]))
        parts.append(f"# What the user says now\n\n{talk or '(Nothing yet.)'}")
    else:
        parts.append(talk or "(The user has said nothing yet.)")
    return "\n\n".join(filter(None, parts)) + "\n"


def _who(history: History, role: Role) -> Iterator[str]:
    yield role.system_prompt.strip()
    if (parts := parts_of(history.workflow)) is not None:
        yield from parts.speaker(history, role)


def _said(
    contexts: Sequence[StepContext],
    stopped: Callable[[StepContext], str],
    chosen: Callable[[StepContext], bool],
) -> Iterator[str]:
    for place, step in enumerate(contexts):
        yield f"[{CHOSEN.capitalize()}:]\n\n{_message(step)}" if chosen(step) else _message(step)
        if place < len(contexts) - 1 and (begun := stopped(step).strip()):
            yield f"[You were stopped when you had answered this much:]\n\n{begun}\n\n[Then the user went on:]"


def _message(step: StepContext) -> str:
    answer = step.output.get("answer", "") if isinstance(step.output, dict) else ""
    return str(answer).strip()


def _transcript(
    steps: Sequence[StepContext], answer_of: Callable[[StepContext], str], room: int
) -> list[str]:
    messages: list[str] = []
    for place in range(len(steps) - 1, -1, -1):
        step = steps[place]
        if room < _MIN_MESSAGE_TEXT and messages:
            messages.append(f"[{place + 1} earlier messages are left out here for their size.]")
            break
        user = step.role == USER
        text = _message(step) if user else answer_of(step).strip()
        if len(text) > max(room, _MIN_MESSAGE_TEXT):
            shown = max(room, _MIN_MESSAGE_TEXT)
            text = f"{text[:shown]}\n[… {len(text) - shown} characters left out …]"
        room -= len(text)
        messages.append(f"## {'The user' if user else one_line(f'{step.role} ({step.agent})', 80)}\n\n{text}")
    return messages[::-1]


def at_rest(instance: Instance, head: Head) -> bool:
    """Return whether a conversation waits for the user's next message, without a question."""
    try:
        if head.row.kind == "start":
            return in_conversation(instance, head)
        return head.row.asks and in_conversation(instance, head) and not outlook(instance, head).question
    except UwfError:  # of a thread that can't be read, its reader says why
        return False
