"""A conversation: a thread of a workflow with one role, in which a person and an agent take turns.

Each message is a step of `$USER`, each reply a step of the role. A reply's output says that it is the user's turn, as
the output of a role does that asks a human; so the moderator has the user go next, and then the role that "asked". Yet
nothing waits for an answer: a conversation is at rest after a reply. What a message begins with, before any reply, and
what is said after a reply that was broken off, goes to the role that `$START` names for what a user says unasked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from uwf_git.errors import NotFound
from uwf_git.text import one_line
from uwf_git.values.ids import Hash, ThreadId
from uwf_git.values.kinds import Role, StepContext, Workflow
from uwf_git.values.node import hash_of
from uwf_git.values.types import META, SUSPEND, USER

if TYPE_CHECKING:
    from uwf_git.git.repository import Oid
    from uwf_git.store.history import Head, History
    from uwf_git.store.opened import Instance

CHAT = "chat"
"""The name of the workflow of a conversation without a crew."""

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
REPLY = hash_of(META, REPLY_SCHEMA)
"""The schema of a role that talks: whatever its agent answers is a reply."""

_DEFINITION = f"""\
name: {CHAT}
description: A person and an agent talk.
roles:
  assistant:
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
    new: {{role: assistant}}
    resume: {{role: assistant}}
  assistant:
    _: {{role: $END}}
"""

_LEAST = 400  # characters that are told of a message, however little room there is


def talks(role: Role) -> bool:
    """Whether a role is one that talks, whose answers are taken as they are."""
    return role.schema == REPLY


def is_conversation(workflow: Workflow) -> bool:
    """Whether the threads of a workflow are conversations."""
    return bool(workflow.roles) and all(map(talks, workflow.roles.values()))


def in_conversation(instance: Instance, head: Head) -> bool:
    """Whether a thread is a conversation."""
    return head.row.workflow is not None and is_conversation(instance.registry.workflow(head.row.workflow))


def plain_conversation(instance: Instance) -> tuple[Oid, Hash]:
    """A version of the workflow of conversations without a crew, and its node. Writes it where it isn't there yet;
    touches no ref."""
    from uwf_git.workflow.compile import compile_source
    from uwf_git.workflow.source import parse_source

    def include(path: str) -> bytes:
        raise NotFound(f"{path} is not there")

    compiled = compile_source(parse_source(_DEFINITION.encode(), "workflow.yaml", include))
    try:
        return instance.registry.commit_for(compiled.hash), compiled.hash
    except NotFound:
        return instance.registry.write(compiled, []), compiled.hash


def begin_conversation(instance: Instance, name: str = "", origin: Oid | None = None) -> ThreadId:
    """A new conversation, in which nothing was said yet. `origin` is the head of the run that it comes after. Makes
    `refs/uwf/threads/<new ULID>`."""
    version, workflow = plain_conversation(instance)
    return instance.threads.start(
        version, workflow, f"A conversation{f' with {name}' if name else ''}.", origin=origin
    )


def told_conversation(
    history: History,
    role: Role,
    answer_of: Callable[[StepContext], str],
    *,
    remembers: bool,
    agent: str | None,
    quota: int,
    before: str = "",
    stopped: Callable[[StepContext], str] = lambda step: "",
) -> str:
    """What a role that talks is told for its next reply. Where it `remembers` its last one (by `agent`, if that is
    given), it is told what the user said since; else all that was said, the newest whole and what is older as far as
    `quota`, in characters, reaches. `before` is what happened before the conversation;
    `stopped` says how a reply to a message began that was broken off."""
    steps = history.steps
    mine = [n for n, each in enumerate(steps, 1) if each.role != USER and agent in (None, each.agent)]
    known = mine[-1] if remembers and mine else 0
    since = steps[known:]
    last = next((n for n, each in enumerate(reversed(since)) if each.role != USER), len(since))
    said = "\n\n".join(_with_stopped(since[len(since) - last :], stopped))
    earlier = since[: len(since) - last]
    if known and not earlier:
        return said
    parts = [] if known else [role.system_prompt.strip(), before.strip()]
    if earlier:
        heading = "# What was said since your last reply" if known else "# The conversation so far"
        parts.append("\n\n".join([heading, *_transcript(earlier, answer_of, quota - len(said))]))
        parts.append(f"# What the user says now\n\n{said or '(Nothing yet.)'}")
    else:
        parts.append(said or "(The user has said nothing yet.)")
    return "\n\n".join(filter(None, parts)) + "\n"


def _with_stopped(said: Sequence[StepContext], stopped: Callable[[StepContext], str]) -> Iterator[str]:
    for place, step in enumerate(said):
        yield _message(step)
        if place < len(said) - 1 and (begun := stopped(step).strip()):
            yield f"[You were stopped when you had answered this much:]\n\n{begun}\n\n[Then the user went on:]"


def _message(step: StepContext) -> str:
    said = step.output.get("answer", "") if isinstance(step.output, dict) else ""
    return str(said).strip()


def _transcript(
    steps: Sequence[StepContext], answer_of: Callable[[StepContext], str], room: int
) -> list[str]:
    told: list[str] = []
    for place in range(len(steps) - 1, -1, -1):
        step = steps[place]
        if room < _LEAST and told:
            told.append(f"[{place + 1} earlier messages are left out here for their size.]")
            break
        user = step.role == USER
        text = _message(step) if user else answer_of(step).strip()
        if len(text) > max(room, _LEAST):
            text = f"{text[: max(room, _LEAST)]}\n[… {len(text) - max(room, _LEAST)} characters left out …]"
        room -= len(text)
        told.append(f"## {'The user' if user else one_line(f'{step.role} ({step.agent})', 80)}\n\n{text}")
    return told[::-1]
