"""The prompt of an agent: a pure function from a thread's history to text.

The order is fixed: rules of answers, task, steps so far, role, deliverable format, progress, instruction. Providers
cache the beginning of a prompt, so what the roles of a thread share stands first and only grows; what differs from role
to role and from step to step stands last. Prompts are not stored: a Detail names the head that its prompt was built
from. A kind of workflow may define its own prompt in its `StepParts`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uwf_git.base import log
from uwf_git.base.errors import Invalid
from uwf_git.base.text import cut_middle, fenced, nearest, with_closed_fence
from uwf_git.engine.conversation import conversation_prompt, is_noted, talks
from uwf_git.engine.kit.format import ANSWER_RULES, fields_instruction
from uwf_git.engine.step_parts import Recipient, parts_of
from uwf_git.format.edges import Transition
from uwf_git.format.kinds import Role, StepContext, asks_human, split_remarks
from uwf_git.format.shape import variants
from uwf_git.format.types import END, ENDS, FAIL, FORK, JOIN, USER
from uwf_git.workflow.turn import begins_threads, gathers_threads

if TYPE_CHECKING:
    from uwf_git.store.history import History
    from uwf_git.store.instance import Instance

QUOTA = 120_000  # characters of history, about 30,000 tokens
_OF_OUTPUT = (
    15  # an older step's output has this part of the quota, so that a large one leaves room for answers
)
_OF_ANSWER = 4  # and its answer this part
_REMARKS = "$USER remarks"  # key for remarks among the roles with inputs
_NAMED = 20  # fields and inputs that are listed
_END_OF_BRANCH = "the end of this branch"
_MIN_STEP_TEXT = 400  # characters of an older output or answer that are shown in any case
_ROLE_HEADING = "# Your role: "
_OWN_HEADING = (
    r"#{1,6}[ \t]+(?:How you answer|Deliverable format|Progress|Your role|The task|What happened"
    r"|(?:Your|The) instruction now|Persona|Step \d|Branch \d)"
)
_FORGED = rf"(?im)^( {{0,3}})(?={_OWN_HEADING}|=+[ \t]*$)"
_HEADING = r"(?m)^( {0,3})(?=#[ \t])"
_ESCAPED = r"\1\\"


def build_prompt(
    history: History,
    role: Role,
    schema: Any,
    instruction: str | None,
    answer_of: Callable[[StepContext], str],
    recipient: Recipient = Recipient(),  # noqa: B008
    quota: int = QUOTA,
) -> str:
    """Return the prompt for a role's next turn.

    `schema` is the payload of the role's output schema. `answer_of` returns a step's verbatim answer, newest
    first, up to `quota` characters; the newest step is always whole. A `recipient` that remembers the role's
    last turn has its task and its role, and gets the steps since; one that resumes an attempt may not have been told
    either. One with a shell gets the commands to look things up, in the role's part.
    """
    if (own := parts_of(history.workflow)) is not None:
        return own.prompt(history, role, schema, instruction, answer_of, recipient, quota)
    known = max(turns_of(history.steps, role.name, recipient.agent), default=0) if recipient.remembers else 0
    is_told = bool(known) and not recipient.resumes
    parts = []
    if not is_told:
        parts = [f"# How you answer\n\n{ANSWER_RULES}", f"# The task\n\n{unforged(history.start.prompt)}"]
    if history.steps:
        parts.append(happened(history, answer_of, known, quota))
    if not is_told:
        parts.append(_role(role, commands(history) if recipient.shell else ""))
    parts += [
        f"# Deliverable format\n\n{fields_instruction(schema)}",
        f"# Progress\n\n{_progress(history, role)}\n\n{_place(history, role, schema)}",
        f"# Your instruction now\n\n{instruction_now(history.steps, instruction)}",
    ]
    return "\n\n".join(parts) + "\n"


def blocks_of(prompt: str) -> list[str]:
    """Split a prompt so that the next prompt of its thread begins with the same blocks, except the last."""
    *shared, own = re.split(rf"(?<=\n\n)(?={_ROLE_HEADING})", prompt)
    return [*re.split(r"(?<=\n\n)(?=# What happened|## Step \d)", "".join(shared)), own] if shared else [own]


def unforged(text: str) -> str:
    """Return a text that others wrote, such as a task with an agent's answer in it, for a part of a prompt: it
    cannot begin another part, by a heading of ours or a fence without an end."""
    text = re.sub(r"\r\n?|[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]", "\n", text.strip())
    return with_closed_fence(re.sub(_FORGED, _ESCAPED, text))


def prompt_at(
    instance: Instance,
    history: History,
    role: Role,
    instruction: str | None,
    recipient: Recipient,
) -> str:
    """Return the prompt for a role's turn after `history`, with schema and answers from the store."""
    answer_of = instance.threads.answer
    if talks(role):
        return conversation_prompt(
            history,
            role,
            answer_of,
            recipient=recipient,
            quota=QUOTA,
            before=_before(instance, history),
            stopped=lambda step: _stopped(instance, history, step),
            chosen=lambda step: was_chosen(instance, history, step, Path.cwd()),
        )
    schema = instance.store.schema(role.schema).payload
    text = build_prompt(history, role, schema, instruction, answer_of, recipient)
    log.debug(
        "7JPE1BK5",
        "builds a prompt of {size} characters",
        size=len(text),
        remembers=recipient.remembers,
        steps=len(history.steps),
    )
    return text


def _before(instance: Instance, history: History) -> str:
    origin = instance.threads.origin(history.thread)
    if origin is None:
        return ""
    past = instance.threads.history_at(history.thread, instance.store.index_commit(origin).node)
    return f"What the user talks about with you has just come to its end:\n\n{thread_as_text(instance, past)}"


def _stopped(instance: Instance, history: History, step: StepContext) -> str:
    tried = [attempt for attempt in instance.attempts.all(history.thread) if attempt.prev == step.hash]
    detail = instance.store.detail(tried[-1].detail) if tried and tried[-1].detail else None
    return detail.answer if detail else ""


def thread_as_text(
    instance: Instance, history: History, instruction: str | None = None, quota: int = QUOTA
) -> str:
    """Return a thread as text for an outside reader: prompt, steps (the newest whole), and instruction."""
    parts = [f"# The task\n\n{unforged(history.start.prompt)}"]
    if history.steps:
        parts.append(happened(history, instance.threads.answer, 0, quota))
    if instruction and instruction.strip():
        parts.append(f"# The instruction now\n\n{re.sub(_HEADING, _ESCAPED, unforged(instruction))}")
    return "\n\n".join(parts)


def was_chosen(instance: Instance, history: History, step: StepContext, project: Path) -> bool:
    """Return whether a message is a menu item, and so may change files: its note says so and the persona's
    menu has it."""
    parts = parts_of(history.workflow)
    if parts is None or not is_noted(instance.store, step):
        return False
    answer = step.output.get("answer", "") if isinstance(step.output, dict) else ""
    return parts.offers(instance, history, str(answer), project)


def role_of(history: History, name: str) -> Role:
    """Return the role of a history's workflow. Raises Invalid if there is none, or no persona speaks for it."""
    role = history.workflow.roles.get(name)
    if role is None:
        hint = nearest(name, history.workflow.roles) or "see: uwf workflow show"
        raise Invalid(f"workflow {history.workflow.name} has no role {name!r}", hint)
    history.cast.require(name, history.thread)
    return role


def _progress(history: History, role: Role) -> str:
    spoken = turns_of(history.steps, role.name)
    branch = history.start.branch
    which = f", which is branch {branch.position} of a fork" if branch is not None else ""
    sentence = f"Thread {history.thread} of the workflow {history.workflow.name}{which}."
    sentence += f" This is step {len(history.steps) + 1}."
    if not spoken:
        return f"{sentence} It is your first turn in it."
    times = "once" if len(spoken) == 1 else "twice" if len(spoken) == 2 else f"{len(spoken)} times"
    return f"{sentence} You have spoken {times} before, last in step {spoken[-1]}."


def _place(history: History, role: Role, schema: Any) -> str:
    lines = [f"- Inputs: the task{_inputs(history, role)}.", f"- Outputs: {_outputs(schema)}."]
    # A code workflow's diagram is for people: its code decides.
    edges = history.workflow.graph.get(role.name, ()) if history.workflow.code is None else ()
    if not edges and _is_inside(history):
        lines.append(f"- Allowed next: {_END_OF_BRANCH}.")
    if edges:
        lines.append(f"- Allowed next: {'; '.join(_next(history, edge) for edge in edges)}.")
    return "\n".join(lines)


def _inputs(history: History, role: Role) -> str:
    last: dict[str, int] = {}
    for number, step in enumerate(history.steps, 1):
        name = step.role if step.remark is None else _REMARKS
        last.pop(name, None)
        last[name] = number
    names = {USER: "the user's answer", _REMARKS: "the user's remark", FORK: "", JOIN: "the joined branches"}
    inputs = [(names.get(name, name), number) for name, number in last.items() if name != role.name]
    shown = [f", {name} (step {number})" for name, number in inputs if name]
    return "".join(shown[-_NAMED:])


def _outputs(schema: Any) -> str:
    shapes = variants(schema)
    names = dict.fromkeys(field.name for shape in shapes for field in shape.fields)
    fields = ", ".join(f"`{name}`" for name in list(names)[:_NAMED])
    more = ", …" if len(names) > _NAMED else ""
    return f"{fields}{more}, and your report" if fields else "your report"


def _next(history: History, edge: Transition) -> str:
    target = _target(history, edge)
    if edge.status is not None:
        return f"{target} on `{edge.status}`"
    if edge.condition is None:
        return target
    condition = history.workflow.conditions.get(edge.condition)
    condition_text = condition.description.strip().rstrip(".") if condition else ""
    return f"{target} if `{edge.condition}`" + (f" ({condition_text})" if condition_text else "")


def _target(history: History, edge: Transition) -> str:
    if edge.join:
        ends = dict.fromkeys(_named_end(history, after.role) or after.role for after in edge.join)
        return f"{edge.leads_to}, then {' or '.join(ends)}"
    return _named_end(history, edge.role) or edge.role


def _named_end(history: History, role: str) -> str:
    """Return the end that an edge to a role leads to, in words; "" if it leads on."""
    inside = _is_inside(history)
    branch = history.start.branch
    if inside and branch is not None and role in (*ENDS, *branch.until):
        return f"{_END_OF_BRANCH}, as failed" if role == FAIL else _END_OF_BRANCH
    return {END: "the end of the workflow", FAIL: "the end of the workflow, as failed"}.get(role, "")


def _is_inside(history: History) -> bool:
    """Return whether a thread is a branch within its workflow."""
    return history.start.branch is not None and bool(history.start.branch.role)


def turns_of(steps: Sequence[StepContext], role: str, agent: str | None = None) -> list[int]:
    """Return the numbers of a role's steps, from 1; only those by `agent` if given."""
    numbered = enumerate(steps, 1)
    return [number for number, step in numbered if step.role == role and agent in (None, step.agent)]


def _role(role: Role, commands: str) -> str:
    parts = [f"{_ROLE_HEADING}{role.name}"]
    if role.description.strip():
        parts.append(role.description.strip())
    if role.system_prompt.strip():
        parts.append(role.system_prompt.strip())
    if role.goal.strip():
        parts.append(f"## Goal\n\n{role.goal.strip()}")
    if role.capabilities:
        parts.append(
            "## Capabilities\n\n" + "\n".join(f"- {capability.strip()}" for capability in role.capabilities)
        )
    if commands:
        parts.append(commands)
    if role.procedure.strip():
        parts.append(f"## Procedure\n\n{role.procedure.strip()}")
    if role.output.strip():
        parts.append(f"## Output\n\n{role.output.strip()}")
    parts.append(
        "Focus exclusively on YOUR role's deliverable. Do not perform actions outside your role's scope."
    )
    return "\n\n".join(parts)


def commands(history: History) -> str:
    """Return the read-only commands for an agent with a shell."""
    thread = history.thread
    return (
        "## Looking things up\n\nWhere the history above leaves something out, these commands print it:\n\n"
        f"- `uwf thread steps {thread}`: all steps with their hashes, agents and outputs\n"
        f"- `uwf thread read {thread}`: the answers, the newest whole; `--before STEP` for older ones\n"
        "- `uwf thread step-details STEP`: one step in full, with what its agent said and which tools it called\n"
        "- `uwf cas get HASH`: a node by its hash; `uwf cas refs HASH`: what it refers to\n\n"
        "They only read. Use no other commands of `uwf`: who goes on with this thread is not yours to decide."
    )


def instruction_now(steps: Sequence[StepContext], instruction: str | None) -> str:
    """Return the current instruction: the edge's or a default, and the remarks since."""
    heard, remarks = split_remarks(steps)
    if instruction is not None and instruction.strip():
        # A template of the workflow, with fields of answers in it.
        task = re.sub(_HEADING, _ESCAPED, unforged(instruction))
    elif heard and heard[-1].role == USER:
        task = "Your question has been answered. Carry on with your role's part."
    else:
        task = "Do your role's part of the task now."
    if remarks:
        task = "\n\n".join([task, "The user remarks:", *map(unforged, remarks)])
    return f"{task}\n\nBegin your answer with the block of fields described under “Deliverable format”."


def happened(history: History, answer_of: Callable[[StepContext], str], known: int, quota: int) -> str:
    """Return the steps after number `known`: the newest whole, older ones in about `quota` characters.

    A step's text is the same in every later prompt, except that the newest may lose its middle once it is older. If
    there is no room for all steps, the first that is shown moves in strides, so that further prompts begin alike.
    """
    heading = "# What happened since your last turn" if known else "# What happened so far"
    steps = history.steps
    if len(steps) == known:
        return f"{heading}\n\nNothing: you go again."
    texts: list[str] = []
    room = quota
    while (number := len(steps) - len(texts)) > known:
        text = _step(steps[:number], answer_of, quota)
        if texts and len(text) > room:
            break
        room -= len(text)
        texts.append(text if texts else _step(steps, answer_of, quota, whole=True))
    if number > known:
        stride = 1 << max(len(texts).bit_length() - 2, 0)
        number = -(-number // stride) * stride
        which = f"Step {known + 1} is" if number == known + 1 else f"Steps {known + 1} to {number} are"
        whose = "its" if number == known + 1 else "their"
        heading += (
            f"\n\n[{which} left out here for {whose} size: `uwf thread read {history.thread}` has them.]"
        )
    return "\n\n".join([heading, *texts[: len(steps) - number][::-1]])


def _step(
    steps: Sequence[StepContext], answer_of: Callable[[StepContext], str], quota: int, whole: bool = False
) -> str:
    """Return the last of these steps, as much of it as older ones may have unless `whole`."""
    number, step = len(steps), steps[-1]
    of_output, of_answer = (None, None) if whole else (quota // _OF_OUTPUT, quota // _OF_ANSWER)
    if step.role == USER:
        return _of_user(number, step, number > 1 and asks_human(steps[-2].output), of_answer)
    if begins_threads(step.role) or gathers_threads(step.role):
        from uwf_git.engine.kit.branch_texts import engines_text

        return engines_text(steps, quota if of_output is None else of_output)
    output = _cut(json.dumps(step.output, ensure_ascii=False, indent=2), of_output)
    text = f"## Step {number}: {step.role}, by {step.by}\n\nOutput:\n\n{fenced(output, 'json')}"
    if answer := answer_of(step).strip():
        text += f"\n\nAnswer:\n\n{fenced(_cut(answer, of_answer), 'markdown')}"
    return text


def _of_user(number: int, step: StepContext, asked: bool, room: int | None) -> str:
    if step.remark is not None:
        return f"## Step {number}: the user remarks\n\n{unforged(_cut(step.remark, room))}"
    answer = step.output.get("answer", "") if isinstance(step.output, dict) else str(step.output)
    how = "answered" if asked else "goes on with this"
    return f"## Step {number}: the user {how}\n\n{unforged(_cut(str(answer), room))}"


def _cut(text: str, room: int | None) -> str:
    if room is None or len(text) <= room:
        return text
    return cut_middle(text, max(room, _MIN_STEP_TEXT))
