"""What a person says in a thread: the answer at a role or to a question, a message, a remark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from uwf_git.base.errors import Busy, Invalid, Usage
from uwf_git.engine.call_answer import persons_schema, value_of
from uwf_git.engine.conversation import CHOSEN, at_rest, is_conversation
from uwf_git.engine.hooks import announce_all
from uwf_git.engine.human_dialogue import with_answer
from uwf_git.engine.human_turn import Ballot, human_turn, persons_role, raise_if_moved
from uwf_git.engine.kit.context import Reply
from uwf_git.engine.kit.form import chosen_option, fill
from uwf_git.engine.kit.format import render_frontmatter
from uwf_git.engine.next_turn import raise_if_stuck
from uwf_git.engine.outcome import Outcome
from uwf_git.engine.persons_answer import hold_for_person, is_stepped
from uwf_git.engine.persons_text import record_text
from uwf_git.engine.presented import raise_if_changed, raise_if_unseen
from uwf_git.engine.steering import WaitingRemark, check_remarkable, put, remarks_of
from uwf_git.engine.step import close, held, settle_remarks, take
from uwf_git.engine.turn import gate
from uwf_git.engine.turn.hooks import Room
from uwf_git.engine.turn.table import room_of
from uwf_git.engine.unfinished import record_leftovers
from uwf_git.engine.waits import waits_of
from uwf_git.format.ids import Hash, ThreadId, new_thread_id
from uwf_git.format.kinds import INTERRUPTED, Workflow
from uwf_git.format.types import END, REMARK
from uwf_git.store.history import Head, Position
from uwf_git.store.instance import Instance
from uwf_git.store.threads import fork_hint
from uwf_git.workflow.turn import TurnKind


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
    human = human_turn(instance, head)
    if not passed_on and (human is None or human.standing is None):  # of a vote its ballot says it
        instance.require_person(f"answers thread {thread}", answers=human is not None)
    if human is not None:
        if other:
            raise Usage(f"a person's role in thread {thread} takes its own choices only", "leave out --other")
        return answer_role(instance, thread, fields, text, asked_by, passed_on, unseen, code)
    with held(instance, thread, hold_for_person(instance, thread)) as turn:
        at, ahead = turn.at, turn.ahead
        if not at.head.row.asks:
            hint = _instead_of_answer(instance, at.head)
            raise Invalid(f"thread {thread} is not waiting for an answer", hint)
        schema = persons_schema(instance, at.head)
        if fields and schema is None:
            raise Usage(
                f"thread {thread} asks a question, which has no fields", f"uwf thread answer {thread} -m TEXT"
            )
        raise_if_moved(at.head, asked_by)
        if not text.strip() and not fields:
            raise Invalid(f"the answer to thread {thread} is empty", "give one with -m TEXT")
        if schema is not None:
            text = value_of(thread, schema, fields, text)
        if not other and ahead.options:
            text = chosen_option(thread, ahead.options, text)
        text = _last_room(at.history.workflow, at.head).answer(instance, at, text)
        outcome = record_text(
            instance, at, text, asked=None if passed_on or at_rest(instance, at.head) else ahead
        )
    return _announced(instance, outcome)


def answer_role(
    instance: Instance,
    thread: ThreadId,
    fields: Mapping[str, Sequence[str]],
    words: str = "",
    asked_by: Hash | None = None,
    passed_on: bool = False,
    unseen: bool = False,
    code: str = "",
) -> Outcome:
    """Play a person's role with texts by field and `words`, as in `kit.form.fill`. `asked_by` is the step that it
    answers, `code` the commit or tree that it is about, as in `raise_if_changed`; `unseen` allows an answer about code
    that is not on this machine or has changed; one that is `passed_on` is that of somebody else. At a gate, record an
    approval, and make the step once a quorum agrees. Moves `refs/uwf/threads/<ULID>` or
    `refs/uwf/approvals/<ULID>`. Raises Usage for an answer that the role's schema refuses, Invalid if no person's role
    is next or after another step, RequirementUnmet for unseen or changed code or an approval that wouldn't count,
    Busy, HeadMoved, and Waiting for a used-up budget."""
    with held(instance, thread, hold_for_person(instance, thread)) as turn:
        at = turn.at
        raise_if_stuck(instance, turn.ahead, at.head)
        name = persons_role(instance, at.head, found=turn.ahead)
        if not name:
            raise Invalid(f"thread {thread} does not wait for a person", f"see: uwf thread show {thread}")
        raise_if_moved(at.head, asked_by)
        if not (unseen or passed_on):
            raise_if_unseen(instance, at.history, name)
            raise_if_changed(instance, at, name, code, turn.kind is TurnKind.GATE)
        schema = instance.store.schema(at.history.workflow.roles[name].schema)
        try:
            filled = fill(schema, fields, words)
        except Usage as error:
            raise Usage(
                f"role {name} of thread {thread}: {error.message}",
                error.hint or f"see its fields: uwf thread show {thread}",
            ) from None
        instance.runs.clear(thread)  # an earlier answer that could not be recorded is not this one
        reply = Reply(render_frontmatter(filled.output, filled.words), output=filled.output)
        outcome = take(with_answer(turn._replace(is_mine=not passed_on), filled.output, filled.words, reply))
    return _announced(instance, outcome)


def revoke(instance: Instance, thread: ThreadId, reason: str = "") -> Ballot:
    """Take the user's approval of a thread back. Moves `refs/uwf/approvals/<ULID>`. Raises Invalid if the user has
    none there, or the step is made, RequirementUnmet if it wouldn't count, Busy."""
    with held(instance, thread, hold_for_person(instance, thread)) as turn:
        return gate.revoke(turn, reason)


def _instead_of_answer(instance: Instance, head: Head) -> str:
    if head.waits_for_join:
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
    history = instance.threads.history(end)
    text = _last_room(history.workflow, end).resume(instance, end, text)
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
    new_thread = new_thread_id()
    at = Position(end._replace(thread=new_thread, archive=None), history._replace(thread=new_thread))
    outcome = record_text(instance, at, text, begins=True)
    folder = instance.folders.recall(thread)
    if folder is not None:
        instance.folders.remember(new_thread, folder)
    return _announced(instance, outcome)


def say(instance: Instance, thread: ThreadId, text: str, chosen: bool = False) -> Outcome:
    """Add a message to a conversation; `chosen` from a menu. Runs no hooks. Moves `refs/uwf/threads/<ULID>`.
    Raises Busy, HeadMoved, Usage for an empty text, Invalid for a thread that is not an active conversation.
    """
    if not text.strip():
        raise Usage(f"the message to thread {thread} is empty", "say something")
    with held(instance, thread, hold_for_person(instance, thread)) as turn:
        if not is_conversation(turn.at.history.workflow):
            raise Invalid(f"thread {thread} is not a conversation", f"uwf thread answer {thread} -m TEXT")
        return record_text(instance, turn.at, text, notes=(CHOSEN,) if chosen else ())


def remark(instance: Instance, thread: ThreadId, text: str) -> Outcome:
    """Add a remark to a thread that is not waiting, as a step of role `$USER`. The next role stays; its
    prompt includes the remark. Leftovers of a killed step become a failed attempt first. Runs no hooks. Moves
    `refs/uwf/threads/<ULID>`, and maybe `refs/uwf/attempts/<ULID>`. Raises Usage for an empty text, Invalid
    for a thread that has ended or is a conversation, Waiting, Busy, HeadMoved, NoTransition."""
    if not text.strip():
        raise Usage(f"the remark to thread {thread} is empty", "give one with -m TEXT")
    check_remarkable(instance, instance.threads.head(thread))
    with held(instance, thread, hold_for_person(instance, thread)) as turn:
        check_remarkable(instance, turn.at.head)
        record_leftovers(instance, turn.at.head, INTERRUPTED)
        return record_text(instance, turn.at, text, output=(REMARK, "remark"))


def steer(instance: Instance, thread: ThreadId, text: str) -> Outcome | WaitingRemark:
    """Remark on a thread, as `remark` does; of a thread at work, put it into the mailbox. Raises what that raises,
    except Busy during an agent's step; Usage for a remark that is too long, or one too many."""
    try:
        return remark(instance, thread, text)
    except Busy:
        if not is_stepped(instance, thread):
            raise
    waiting = put(instance, instance.threads.active_head(thread), text)
    # The step may have ended meanwhile, without a look into the mailbox.
    outcome = settle_remarks(instance, thread)
    if outcome is not None:
        return outcome
    current = {item.remark.id: item for item in remarks_of(instance, instance.threads.head(thread))}
    return current.get(waiting.remark.id) or waiting


def _last_room(workflow: Workflow, head: Head) -> Room:
    """Return the room of a thread's last step, that of the end without one."""
    return room_of(workflow, head.row.role or END)


def _announced(instance: Instance, outcome: Outcome) -> Outcome:
    joined: list[Outcome] = []
    close(instance, outcome, joined)
    announce_all(instance, [outcome, *joined])
    return outcome
