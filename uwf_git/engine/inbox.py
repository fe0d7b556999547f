"""A person's texts, which become steps of role `$USER`: answers, messages, remarks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from uwf_git.base.errors import Invalid, Usage, Waiting
from uwf_git.engine.budget import pending, waiting
from uwf_git.engine.call_answer import value_of
from uwf_git.engine.calls import persons_schema
from uwf_git.engine.conversation import CHOSEN, in_conversation, is_conversation
from uwf_git.engine.fan_out_code import is_left_out, leaving_out, settled
from uwf_git.engine.human_turn import human_turn, moved_on
from uwf_git.engine.persons_answer import hold_for_person
from uwf_git.engine.status import (
    Outlook,
    at_rest,
    chosen,
    outlook,
    raise_if_stuck,
    used_up,
)
from uwf_git.engine.waits import waits_of
from uwf_git.format.ids import Hash, ThreadId, new_thread_id
from uwf_git.format.kinds import INTERRUPTED, Detail, Step
from uwf_git.format.types import ANSWER, APPROVAL, DETAIL, FORK, JOIN, PERSON, REMARK, STEPNODE, USER
from uwf_git.store.history import Head, Position
from uwf_git.store.instance import Instance
from uwf_git.store.threads import fork_hint
from uwf_git.workflow.fan_out import LEAVE_OUT

if TYPE_CHECKING:
    from uwf_git.engine.outcome import Outcome


def answer(
    instance: Instance,
    thread: ThreadId,
    text: str,
    asked_by: Hash | None = None,
    other: bool = False,
    fields: Mapping[str, Sequence[str]] = {},
    passed_on: bool = False,
    unseen: bool = False,
    code: str = "",
) -> Outcome:
    """Answer a waiting thread: a question with a step of role `$USER`, a person's role with a step of that
    role, or at a gate with an approval. One that is `passed_on` is somebody else's. `asked_by` is the step to
    answer. If a question has options, the text must be one, or its number, unless `other`. `fields`, `unseen` and
    `code` are for a role, as in `answer_role`. Moves `refs/uwf/threads/<ULID>`. Raises Busy, HeadMoved, Usage for an
    answer outside the options or fields, Invalid if nothing is asked or another step asks."""
    head = instance.threads.active_head(thread)
    turn = human_turn(instance, head)
    if not passed_on and (turn is None or turn.standing is None):  # of an approval `check_approver` says it
        instance.require_person(f"answers thread {thread}", answers=turn is not None)
    if turn is not None:
        from uwf_git.engine.human_answer import answer_role

        if other:
            raise Usage(f"a person's role in thread {thread} takes its own choices only", "leave out --other")
        return answer_role(instance, thread, fields, text, asked_by, passed_on, unseen, code)
    from uwf_git.engine.settling import raise_if_joined

    with hold_for_person(instance, thread):
        head = instance.threads.active_head(thread)
        raise_if_joined(instance, head)
        if not head.row.asks:
            raise Invalid(f"thread {thread} is not waiting for an answer", _instead_of_answer(instance, head))
        schema = persons_schema(instance, head)
        if fields and schema is None:
            raise Usage(
                f"thread {thread} asks a question, which has no fields", f"uwf thread answer {thread} -m TEXT"
            )
        if asked_by is not None and asked_by != head.node:
            raise moved_on(thread, head.node, asked_by)
        if not text.strip() and not fields:
            raise Invalid(f"the answer to thread {thread} is empty", "give one with -m TEXT")
        if schema is not None:
            text = value_of(thread, schema, fields, text)
        at = instance.threads.position(head)
        found = outlook(instance, *at)
        if not other and found.options:
            text = chosen(thread, found.options, text)
        if head.row.role == JOIN:
            text = settled(instance, at, text)
        outcome = _say(instance, at, text, asked=None if passed_on or at_rest(instance, head) else found)
    return _describe(instance, outcome)


def _instead_of_answer(instance: Instance, head: Head) -> str:
    if head.row.role == FORK:
        return f"its branches may: uwf thread show {head.thread}"
    waits = waits_of(instance, head)
    if waits is None:
        return f"to say something all the same: uwf thread say {head.thread} -m TEXT"
    return waits.command


def continue_finished(instance: Instance, thread: ThreadId, text: str) -> Outcome:
    """Continue a finished thread in a new one with the same steps and the user's text as the next step, an
    answer if the end asks. The workflow names the role that follows. Makes `refs/uwf/threads/<new ULID>`.
    Raises Invalid for a thread that has not ended, Usage for an empty text or a workflow that defines no
    `resume` edge."""
    end = instance.threads.head(thread)
    if end.archive is None:
        raise Invalid(f"thread {thread} has not ended", f"uwf thread step {thread}")
    if end.row.role == FORK:
        raise Invalid(
            f"thread {thread} was {end.archive.status} before its branches were joined, and cannot go on without them",
            f"go on before the fork: uwf thread fork {thread} --at {end.row.number - 1}",
        )
    history = instance.threads.history(end)
    if history.workflow.resume is None and not end.row.asks:
        raise Usage(
            f"thread {thread} is {end.archive.status}, and workflow {history.workflow.name} defines no `resume`"
            " edge in $START",
            f"{fork_hint(end)}, then: uwf thread say NEW -m TEXT",
        )
    if not text.strip():
        raise Usage(
            f"thread {thread} is {end.archive.status}, and needs a text to continue",
            f"uwf thread resume {thread} -m TEXT",
        )
    if end.row.role == JOIN and end.row.asks:
        if not is_left_out(text):
            raise Invalid(
                f"thread {thread} ended before the code of its branches was merged, and goes on only without it",
                f"uwf thread resume {thread} -m '{LEAVE_OUT}'; or to merge it, {fork_hint(end)}",
            )
        text = leaving_out(history.steps[-1].output)
    made = new_thread_id()
    at = Position(end._replace(thread=made, archive=None), history._replace(thread=made))
    outcome = _say(instance, at, text, begins=True)
    folder = instance.folders.recall(thread)
    if folder is not None:
        instance.folders.remember(made, folder)
    return _describe(instance, outcome)


def say(instance: Instance, thread: ThreadId, text: str, chosen: bool = False) -> Outcome:
    """Add a message to a conversation; `chosen` from a menu. Runs no hooks. Moves `refs/uwf/threads/<ULID>`.
    Raises Busy, HeadMoved, Usage for an empty text, Invalid for a thread that is not an active conversation.
    """
    if not text.strip():
        raise Usage(f"the message to thread {thread} is empty", "say something")
    with hold_for_person(instance, thread):
        at = instance.threads.position(instance.threads.active_head(thread))
        if not is_conversation(at.history.workflow):
            raise Invalid(f"thread {thread} is not a conversation", f"uwf thread answer {thread} -m TEXT")
        return _say(instance, at, text, notes=(CHOSEN,) if chosen else ())


def remark(instance: Instance, thread: ThreadId, text: str) -> Outcome:
    """Add a remark to a thread that is not waiting, as a step of role `$USER`. The next role stays; its
    prompt includes the remark. Leftovers of a killed step become a failed attempt first. Runs no hooks. Moves
    `refs/uwf/threads/<ULID>`, and maybe `refs/uwf/attempts/<ULID>`. Raises Usage for an empty text, Invalid
    for a thread that has ended or is a conversation, Waiting, Busy, HeadMoved, NoTransition."""
    from uwf_git.engine.unfinished import record_leftovers

    if not text.strip():
        raise Usage(f"the remark to thread {thread} is empty", "give one with -m TEXT")
    check_remarkable(instance, instance.threads.head(thread))
    with hold_for_person(instance, thread):
        head = instance.threads.head(thread)
        check_remarkable(instance, head)
        record_leftovers(instance, head, INTERRUPTED)
        return _say(instance, instance.threads.position(head), text, output=(REMARK, "remark"))


def check_remarkable(instance: Instance, head: Head) -> None:
    """Raise the errors of `remark` for this head, except Busy."""
    thread = head.thread
    if head.archive is not None:
        raise Invalid(f"thread {thread} is {head.archive.status}", instance.threads.way_on(head))
    if in_conversation(instance, head):
        raise Invalid(f"thread {thread} is a conversation", f"uwf chat --resume {thread}")
    if head.row.role == FORK:
        raise Invalid(
            f"thread {thread} waits for its branches, and nothing may stand between their fork and the join",
            f"say it to a branch, uwf thread show {thread} lists them, or once they are joined",
        )
    if head.row.asks:
        raise Waiting(f"thread {thread} waits for an answer", f"uwf thread answer {thread} -m TEXT")
    found = outlook(instance, head)
    raise_if_stuck(instance, found, head)
    if found.next == FORK:
        raise Waiting(
            f"thread {thread} is about to fork", f"uwf thread step {thread}, then say it to a branch"
        )
    if (standing := used_up(instance, head, found=found)) is not None:
        raise waiting(thread, standing)


def _say(
    instance: Instance,
    at: Position,
    text: str,
    begins: bool = False,
    notes: tuple[str, ...] = (),
    output: tuple[Hash, str] = (ANSWER, "answer"),
    asked: Outlook | None = None,
) -> Outcome:
    """`asked` is the question that the text answers."""
    from uwf_git.engine.new_step import NewStep
    from uwf_git.engine.outcome import outcome_of
    from uwf_git.engine.recording import record

    text, secrets = instance.redactor.text(text)
    told = Detail(
        answer=text,
        context=at.head.node,
        budget=pending(instance, at.head.thread),
        redactions=(("answer", secrets),) if secrets else (),
        notes=notes,
    )
    store = instance.store
    with store.registering():
        kind, field = output
        said = store.put(kind, {field: text})
        if asked is not None:
            from uwf_git.engine.approving import answered

            given = answered(instance, at.history, asked, USER, said)
            told = told._replace(approvals=(store.put(APPROVAL, given.payload()),))
        detail = store.put(DETAIL, told.payload())
        step = Step(at.history.start_hash, at.history.prev, USER, said, detail, PERSON)
        new = NewStep(store.put(STEPNODE, step.payload()), step)
    after = record(instance, at, new, begins=begins)
    return outcome_of(instance, after, outlook(instance, *after), USER)


def _describe(instance: Instance, outcome: Outcome) -> Outcome:
    from uwf_git.engine.hooks import announce_all

    announce_all(instance, [outcome])
    return outcome
