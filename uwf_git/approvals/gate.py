"""A gate: a role with approvers. Their answers are recorded as approvals, each signed by its person, until a quorum
agrees; then the step is made, by whoever sees that.

A gate's step is made of its approvals alone, so two machines with the same approvals make the same step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from uwf_git.approvals.judgement import COUNTS, Gate, Standing, must_sign, tally
from uwf_git.approvals.records import ApprovalRecord, Approvals, authors_of, now
from uwf_git.approvals.shown import output_before, request, shown
from uwf_git.base.errors import Invalid, RequirementUnmet
from uwf_git.format.approvals import Approval, Revocation, Shown
from uwf_git.format.ids import Hash
from uwf_git.format.kinds import Identity
from uwf_git.format.node import hash_of
from uwf_git.format.types import APPROVAL, USER
from uwf_git.git.repository import Oid
from uwf_git.store.history import History, Position
from uwf_git.trust.people import People
from uwf_git.workspaces import changes

if TYPE_CHECKING:
    from pathlib import Path

    from uwf_git.format.findings import Finding
    from uwf_git.format.kinds import Workflow
    from uwf_git.store.instance import Instance
    from uwf_git.workflow.compile import Compiled
    from uwf_git.workflow.turn import Outlook


def shown_at(instance: Instance, history: History, ahead: Outlook, with_diff: bool = False) -> Shown:
    """Return what a person is shown at a head. The diff needs the code on this machine."""
    code = changes.code_before(history.steps, instance.store.get)
    diff = None
    if code is not None and with_diff:
        diff = changes.raw_diff(instance, history.thread, code)
    question = ahead.question or "" if ahead.next == USER else None
    question_shown = request(history.workflow.roles.get(ahead.next or ""), ahead.instruction, question)
    return shown(history.start.prompt, question_shown, output_before(history.steps), code, diff)


def gate_at(instance: Instance, at: Position, ahead: Outlook) -> Gate | None:
    """Return the gate at a position, None if the next role has no approvers."""
    history = at.history
    role = history.workflow.roles.get(ahead.next or "")
    if role is None or not role.approvers:
        return None
    return Gate(
        role,
        instance.store.schema(role.schema).payload,
        history.workflow.name,
        at.head.commit,
        history.start_hash,
        history.prev,
        shown_at(instance, history, ahead),
        _authors(instance, at) if role.not_author else (),
    )


def _authors(instance: Instance, at: Position) -> tuple[tuple[Oid, str], ...]:
    store, workflow = instance.store, instance.registry.workflow
    authors = authors_of(
        at.head.row,
        lambda oid: store.index_commit(Oid(raw=oid)),
        store.repository.commit,
        lambda node, role: role in (roles := workflow(node).roles) and bool(roles[role].approvers),
    )
    return (*authors, *_of_attempts(instance, at.history))


def _of_attempts(instance: Instance, history: History) -> Iterator[tuple[Oid, str]]:
    """Yield the failed attempts here that a later step went on from: by the session, or by files that they left. No
    step's commit stands on them, so verification, which may not have them, doesn't count them."""
    tip, steps = instance.attempts.tip(history.thread), history.steps
    places = {prev: number for number, prev in enumerate((None, *(step.hash for step in steps)))}
    for row in instance.attempts.rows(tip) if tip is not None else ():
        attempt = instance.store.attempt(row.node)
        later = steps[places.get(attempt.prev, len(steps)) :]
        step = next((step for step in later if step.role == attempt.role), None)
        known = instance.store.detail(attempt.detail) if step and attempt.detail is not None else None
        went_on = instance.store.detail(step.detail) if step and known else None
        resumed = known and went_on and known.session and known.session == went_on.session
        if step is not None and (resumed or attempt.code is not None):
            oid = Oid(raw=row.oid)
            yield oid, instance.store.repository.commit(oid).committer


def standing_at(
    instance: Instance, at: Position, ahead: Outlook, people: People | None = None
) -> Standing | None:
    """Return how the gate at a position stands, None if there is none."""
    gate = gate_at(instance, at, ahead)
    if gate is None:
        return None
    records = Approvals(instance.store).all(at.head.thread)
    return _standing(instance, at, gate, people or People(instance.store.repository), records)


def _standing(
    instance: Instance, at: Position, gate: Gate, people: People, records: Sequence[ApprovalRecord]
) -> Standing:
    places = at.history.places  # the head, and those before remarks to it
    of_turn = [
        record
        for record in records
        if not isinstance(approval := record.content, Approval)
        or (approval.start == gate.start and approval.role == gate.role.name and approval.prev in places)
    ]
    return tally(gate, of_turn, lambda node: instance.store.get(node).payload, people)


def closed_to_starter(instance: Instance, workflow: Workflow) -> Iterator[str]:
    """Yield a warning of each gate that nobody could pass in a thread that the user starts, who is an author then."""
    gates = [role for role in workflow.roles.values() if role.not_author and role.approvers]
    if not gates:
        return
    people = People(instance.store.repository)
    person, identity = people.me()
    for role in gates:
        able = [
            name for name in people.listed(role.approvers) if not people.is_among(person, identity, [name])
        ]
        if len(able) < role.quorum:
            yield (
                f"nobody can pass {role.name!r}: whoever starts a thread may not approve it, which leaves "
                f"{len(able)} of the {role.quorum} that it needs; let somebody else start it"
            )


def me(instance: Instance) -> Identity:
    """Return the identity that commits are made with here."""
    return Identity(*instance.store.repository.user)


def approve(
    instance: Instance, at: Position, ahead: Outlook, standing: Standing, output: Any, reason: str = ""
) -> Standing:
    """Record an answer of the user as an approval, and return how the gate stands then. The caller holds the lock.
    Moves `refs/uwf/approvals/<ULID>`. Raises RequirementUnmet if it would not count, SigningFailed."""
    thread, store = at.head.thread, instance.store
    standing.check_voter(instance, thread)
    gate, by = standing.gate, me(instance)
    if must_sign(gate, by, standing.people) and not store.repository.config.signs_commits:
        raise RequirementUnmet(
            f"approvals of {gate.role.name} in thread {thread} must be signed",
            store.repository.config.how_to_sign,
        )
    reason = instance.without_secrets(reason, "the reason")
    approval = Approval(
        at.history.start_hash,
        at.history.prev,
        gate.role.name,
        store.put(gate.role.schema, instance.redactor.value(output)[0]),
        by,
        shown_at(instance, at.history, ahead, with_diff=True),
        max(now(), at.head.row.time),  # the clock that made the head may be ahead
        reason.strip(),
    )
    known = {record.hash for record in Approvals(store).all(thread)}
    while hash_of(APPROVAL, approval.payload()) in known:  # the same answer in the same second
        approval = approval._replace(at=approval.at + 1)

    def judge(records: list[ApprovalRecord], node: Hash) -> Standing:
        then = _standing(instance, at, gate, standing.people, records)
        judged = next(judged for judged in then.judgements if judged.record.hash == node)
        if judged.code != COUNTS:
            raise RequirementUnmet(
                f"the approval of thread {thread} would not count: {judged.why}", f"uwf thread show {thread}"
            )
        return then

    return Approvals(store).record(at, approval, judge)


def take_back(instance: Instance, at: Position, standing: Standing | None, reason: str = "") -> Standing:
    """Take the user's approval at a gate back, and return how it stands then. The caller holds the lock. Moves
    `refs/uwf/approvals/<ULID>`. Raises Invalid if the user has none there, RequirementUnmet if it wouldn't count."""
    thread, by = at.head.thread, me(instance)
    instance.require_person(f"takes an approval of thread {thread} back", answers=True)
    person = standing.people.person(by) if standing is not None else ""
    mine = [judged for judged in standing.counting if judged.person == person] if standing else []
    if standing is None or not mine:
        raise Invalid(
            f"{by} has no approval in thread {thread} that can be taken back",
            f"see: uwf thread show {thread}",
        )
    text = instance.without_secrets(reason, "the reason").strip()
    revocation = Revocation(mine[-1].record.hash, by, now(), text)

    def judge(records: list[ApprovalRecord], _node: Hash) -> Standing:
        then = _standing(instance, at, standing.gate, standing.people, records)
        if revocation.approval in {judged.record.hash for judged in then.counting}:
            raise RequirementUnmet(
                f"the revocation in thread {thread} would not count",
                "take an approval back with a key of the person who signed it",
            )
        return then

    return Approvals(instance.store).record(at, revocation, judge)


def answered(
    instance: Instance, history: History, ahead: Outlook, role: str, output: Hash, reason: str = ""
) -> Approval:
    """Return the approval of an answer whose own step is its record: that of a question, or of a person's role
    without approvers."""
    return Approval(
        history.start_hash,
        history.prev,
        role,
        output,
        me(instance),
        shown_at(instance, history, ahead, with_diff=True),
        now(),
        instance.redactor.text(reason)[0].strip(),
    )


def approver_warnings(compiled: Compiled, git_dir: Path) -> Sequence[Finding]:
    """Return warnings of approvers whom a store's trust policy doesn't know, or who may be a group although there
    is no policy, and of a quorum that its people can't reach."""
    from uwf_git.format.findings import Findings
    from uwf_git.git.repository import Repository

    gates = {name: role for name, role in compiled.workflow.roles.items() if role.approvers}
    if not gates:
        return ()
    policy = People(Repository(git_dir)).policy if git_dir.exists() else None
    findings = Findings(compiled.source.marks)
    for name, role in gates.items():
        known = {*policy.people, *policy.groups} if policy is not None else set()
        for number, who in enumerate(role.approvers):
            if "@" in who or who in known:
                continue
            if policy is None:
                hint = "a group needs a trust policy in this store; an address names a person for sure"
                message = (
                    f'role "{name}": {who} is the name in git of one person, as there is no trust policy'
                )
            else:
                hint = "name its people and groups, or addresses"
                message = f'role "{name}": the trust policy has no person or group {who}'
            findings.warning(("roles", name, "approvers", number), "approvers", message, hint)
        if policy is not None:
            people = {*policy.members(role.approvers), *(who for who in role.approvers if who not in known)}
            if len(people) < role.quorum:
                message = f'role "{name}": quorum is {role.quorum}, and the approvers are {len(people)}'
                findings.warning(
                    ("roles", name, "quorum"), "approvers", message, "name more, or ask for fewer"
                )
    return findings.sorted()
