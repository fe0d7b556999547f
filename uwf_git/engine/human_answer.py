"""A person's answer at a role, and the step that it becomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from uwf_git.base.errors import Invalid, Usage
from uwf_git.engine.approving import Standing, standing_at, take_back
from uwf_git.engine.hooks import announce_all
from uwf_git.engine.human_dialogue import giving
from uwf_git.engine.human_turn import moved_on
from uwf_git.engine.kit.context import Reply
from uwf_git.engine.kit.form import fill
from uwf_git.engine.kit.format import render_frontmatter
from uwf_git.engine.outcome import Outcome
from uwf_git.engine.persons_answer import hold_for_person
from uwf_git.engine.presented import raise_if_changed, raise_if_unseen
from uwf_git.engine.settling import raise_if_joined
from uwf_git.engine.status import outlook, persons_role, raise_if_stuck
from uwf_git.engine.step import take, tell_parents
from uwf_git.engine.turn.hooks import Turn, Vote
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.store.instance import Instance
from uwf_git.store.maintenance import maintain

_SEE = "see its fields: uwf thread show {}"


def answer_role(
    instance: Instance,
    thread: ThreadId,
    given: Mapping[str, Sequence[str]],
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
    with hold_for_person(instance, thread) as lock:
        at = instance.threads.position(instance.threads.active_head(thread))
        raise_if_joined(instance, at.head)
        instance.renew_judging()
        found = outlook(instance, *at)
        raise_if_stuck(instance, found, at.head)
        name = persons_role(instance, at.head, found=found)
        if not name:
            raise Invalid(f"thread {thread} does not wait for a person", f"see: uwf thread show {thread}")
        if asked_by is not None and asked_by != at.head.node:
            raise moved_on(thread, at.head.node, asked_by)
        if not (unseen or passed_on):
            raise_if_unseen(instance, at.history, name)
            is_gate = bool(at.history.workflow.roles[name].approvers)
            raise_if_changed(instance, at, name, code, is_gate)
        schema = instance.store.schema(at.history.workflow.roles[name].schema)
        try:
            filled = fill(schema, given, words)
        except Usage as error:
            raise Usage(
                f"role {name} of thread {thread}: {error.message}", error.hint or _SEE.format(thread)
            ) from None
        turn = Turn(instance, at, found, lock, is_mine=not passed_on)
        if at.history.workflow.roles[name].approvers:
            outcome = take(turn._replace(vote=Vote(filled.output, filled.words)))
        else:
            instance.runs.clear(thread)  # an earlier answer that could not be recorded is not this one
            reply = Reply(render_frontmatter(filled.output, filled.words), output=filled.output)
            outcome = take(turn._replace(agent=giving(reply)))
    return _told(instance, outcome)


def revoke(instance: Instance, thread: ThreadId, reason: str = "") -> Standing:
    """Take the user's approval of a thread back. Moves `refs/uwf/approvals/<ULID>`. Raises Invalid if the user has
    none there, or the step is made, RequirementUnmet if it wouldn't count, Busy."""
    with hold_for_person(instance, thread):
        at = instance.threads.position(instance.threads.active_head(thread))
        found = outlook(instance, *at)
        return take_back(instance, at, standing_at(instance, at, found), reason)


def _told(instance: Instance, outcome: Outcome) -> Outcome:
    joined: list[Outcome] = []
    if outcome.done:
        tell_parents(instance, outcome.position.head, joined)
    maintain(instance.store.repository, shared=instance.location.here)
    announce_all(instance, [outcome, *joined])
    return outcome
