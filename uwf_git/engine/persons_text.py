"""A person's text as a step of role `$USER`: an answer, a message, a remark."""

from __future__ import annotations

from uwf_git.engine.budget import pending
from uwf_git.engine.new_step import NewStep, record
from uwf_git.engine.next_turn import outlook
from uwf_git.engine.outcome import Outcome, outcome_of
from uwf_git.engine.turn.parts import with_person
from uwf_git.format.ids import Hash
from uwf_git.format.kinds import Detail, Step
from uwf_git.format.types import ANSWER, DETAIL, PERSON, STEPNODE, USER
from uwf_git.store.history import Position
from uwf_git.store.instance import Instance
from uwf_git.store.mailbox import Remark
from uwf_git.workflow.turn import Outlook


def record_text(
    instance: Instance,
    at: Position,
    text: str,
    begins: bool = False,
    notes: tuple[str, ...] = (),
    output: tuple[Hash, str] = (ANSWER, "answer"),
    asked: Outlook | None = None,
    remark: Remark | None = None,
) -> Outcome:
    """Record a text as a step of role `$USER`, with `output` as its type and field. `asked` is the question that it
    answers, `remark` the one that waited with this text, whose turn the step gets. The caller holds the lock. Moves and
    raises as `new_step.record`."""
    text, secrets = instance.redactor.text(text)
    secrets += remark.secrets if remark is not None else 0
    draft = Detail(
        answer=text,
        context=at.head.node,
        budget=pending(instance, at.head.thread),
        redactions=(("answer", secrets),) if secrets else (),
        notes=notes,
    )
    store = instance.store
    with store.registering():
        kind, field = output
        node = store.put(kind, {field: text})
        if remark is not None:
            turn = remark.turn
            draft = draft._replace(turns=(store.put(turn.type, turn.payload()),))
        if asked is not None:
            draft = with_person(draft, instance, at.history, asked, USER, node)
        detail = store.put(DETAIL, draft.payload())
        step = Step(at.history.start_hash, at.history.prev, USER, node, detail, PERSON)
        new = NewStep(store.put(STEPNODE, step.payload()), step)
    after = record(instance, at, new, begins=begins)
    return outcome_of(instance, after, outlook(instance, *after), USER)
