"""A gate: a role with approvers. Their answers are recorded as approvals, each signed by its person, until a quorum
agrees; then the step is made, by whoever sees that.

A gate's step is made of its approvals alone, so two machines with the same approvals make the same step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.approvals.judgement import COUNTS, Gate, JudgedApproval, Tally, authors_among, must_sign, tally
from uwf_git.approvals.records import ApprovalRecord, Approvals, authors_of, now
from uwf_git.approvals.shown import decision_text, output_before, request, shown
from uwf_git.base.errors import Absent, Invalid, RequirementUnmet
from uwf_git.base.text import counted, iso
from uwf_git.format.approvals import Approval, Revocation, Shown
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.kinds import Identity, Role
from uwf_git.format.node import hash_of
from uwf_git.format.types import APPROVAL, USER
from uwf_git.git.repository import Oid
from uwf_git.sandbox.enclosing_step import acts_for_agent
from uwf_git.store.history import History, Position
from uwf_git.trust.people import People
from uwf_git.workspaces import changes

if TYPE_CHECKING:
    from uwf_git.store.instance import Instance
    from uwf_git.workflow.turn import Outlook


class Standing(NamedTuple):
    """How a gate stands. `role` is called in messages."""

    tally: Tally
    people: People
    outputs: Mapping[Hash, Any]

    @property
    def role(self) -> Role:
        return self.tally.gate.role

    @property
    def is_met(self) -> bool:
        """Whether a quorum agrees."""
        return self.tally.met is not None

    @property
    def missing(self) -> int:
        """How many approvals are missing."""
        return self.tally.missing

    @property
    def given(self) -> tuple[JudgedApproval, ...]:
        """The approvals that count, oldest first."""
        found = [each for each in self.tally.judgements if each.code == COUNTS]
        return tuple(sorted(found, key=lambda each: each.record.order))

    @property
    def awaited(self) -> list[str]:
        """The people of whom approvals may still come."""
        done = {each.person for each in self.given} | {each.entry for each in self.given}
        done |= authors_among(self.tally.gate, self.people)
        names = self.people.listed(self.role.approvers)
        given = [judged.approval.by for judged in self.given]
        return [
            name
            for name in names
            if done.isdisjoint((name, self.people.named(name)[0]))
            and not any(self.people.is_named(name, identity) for identity in given)
        ]

    def awaits(self, person: str, identity: Identity) -> bool:
        """Return whether somebody's approval is missing, and may come."""
        entry = self.people.entry(person, identity, self.role.approvers)
        done = {each.entry for each in self.given} | authors_among(self.tally.gate, self.people)
        return bool(entry) and done.isdisjoint((entry, person))

    def check_voter(self, instance: Instance, thread: ThreadId) -> None:
        """Raise RequirementUnmet if whoever uses this machine may not answer."""
        role, by = self.role, me(instance)
        if acts_for_agent(instance.environ):
            raise RequirementUnmet(
                f"an agent cannot approve, and role {role.name} of thread {thread} has approvers",
                f"a person answers, outside of agents and MCP: uwf thread answer {thread}",
            )
        instance.require_person(f"approves as {role.name} of thread {thread}", answers=True)
        people = self.people
        person = people.person(by)
        may = ", ".join(people.listed(role.approvers))
        if not people.is_among(person, by, role.approvers):
            unknown = people.unknown(role.approvers)
            which = f"; {', '.join(unknown)} may be a group, which needs a trust policy" if unknown else ""
            raise RequirementUnmet(
                f"{by} may not answer as {role.name} of thread {thread}", f"who may: {may}{which}"
            )
        if role.not_author and person in authors_among(self.tally.gate, people):
            raise RequirementUnmet(
                f"{by} made what {role.name} of thread {thread} judges, and may not approve it",
                f"who may: {', '.join(self.awaited) or 'nobody else'}",
            )

    def raise_if_unmet(self, thread: ThreadId) -> None:
        """Raise Absent, with whose approvals are missing, unless a quorum agrees."""
        if self.is_met:
            return
        role, more = (
            self.role,
            counted(self.tally.missing, "more approval" if self.given else "approval"),
        )
        of = ", ".join(self.awaited) or "people who have answered otherwise"
        raise Absent(
            f"thread {thread} waits for {more} at {role.name!r}, of {of}",
            f"uwf thread answer {thread}; or see: uwf thread show {thread}",
        )

    def as_json(self) -> dict[str, Any]:
        """Return who may approve, who has, and how many are missing, as `approvals`."""
        value = {
            "approvers": list(self.role.approvers),
            "quorum": self.role.quorum,
            "notAuthor": self.role.not_author,
            "signed": self.role.signed,
            "shown": self.tally.gate.shown.payload(),
            "given": [self._given(each) for each in self.tally.judgements],
            "missing": self.missing,
            "of": self.awaited,
        }
        return {"approvals": value}

    def _given(self, each: JudgedApproval) -> dict[str, Any]:
        said, signature = each.approval, each.signature
        value: dict[str, Any] = {
            "approval": each.record.hash,
            "commit": str(each.record.commit),
            "by": said.by._asdict(),
            "person": each.person or None,
            "decision": decision_text(self.tally.gate.schema, self.outputs[said.output]),
            "reason": said.reason or None,
            "at": iso(said.at),
            "digest": said.digest,
            **({"unseen": True} if said.is_unseen else {}),
            "signature": {"state": signature.state, "signer": signature.signer, "key": signature.key},
            "counts": each.code == COUNTS,
        }
        return value if each.code == COUNTS else {**value, "problem": each.code, "why": each.why}


def shown_at(instance: Instance, history: History, found: Outlook, with_diff: bool = False) -> Shown:
    """Return what a person is shown at a head. The diff needs the code on this machine."""
    code = changes.code_before(history.steps, instance.store.get)
    diff = None
    if code is not None and with_diff:
        diff = changes.raw_diff(instance, history.thread, code)
    question = found.question or "" if found.next == USER else None
    asked = request(history.workflow.roles.get(found.next or ""), found.instruction, question)
    return shown(history.start.prompt, asked, output_before(history.steps), code, diff)


def gate_at(instance: Instance, at: Position, found: Outlook) -> Gate | None:
    """Return the gate at a position, None if the next role has no approvers."""
    history = at.history
    role = history.workflow.roles.get(found.next or "")
    if role is None or not role.approvers:
        return None
    return Gate(
        role,
        instance.store.schema(role.schema).payload,
        history.workflow.name,
        at.head.commit,
        history.start_hash,
        history.prev,
        shown_at(instance, history, found),
        _authors(instance, at) if role.not_author else (),
    )


def _authors(instance: Instance, at: Position) -> tuple[tuple[Oid, str], ...]:
    store, workflow = instance.store, instance.registry.workflow
    found = authors_of(
        at.head.row,
        lambda oid: store.index_commit(Oid(raw=oid)),
        store.repository.commit,
        lambda node, role: role in (roles := workflow(node).roles) and bool(roles[role].approvers),
    )
    return (*found, *_of_attempts(instance, at.history))


def _of_attempts(instance: Instance, history: History) -> Iterator[tuple[Oid, str]]:
    """Yield the failed attempts here that a later step went on from: by the session, or by files that they left. No
    step's commit stands on them, so verification, which may not have them, doesn't count them."""
    tip, steps = instance.attempts.tip(history.thread), history.steps
    places = {prev: number for number, prev in enumerate((None, *(step.hash for step in steps)))}
    for row in instance.attempts.rows(tip) if tip is not None else ():
        attempt = instance.store.attempt(row.node)
        later = steps[places.get(attempt.prev, len(steps)) :]
        step = next((each for each in later if each.role == attempt.role), None)
        known = instance.store.detail(attempt.detail) if step and attempt.detail is not None else None
        went_on = instance.store.detail(step.detail) if step and known else None
        resumed = known and went_on and known.session and known.session == went_on.session
        if step is not None and (resumed or attempt.code is not None):
            oid = Oid(raw=row.oid)
            yield oid, instance.store.repository.commit(oid).committer


def standing_at(
    instance: Instance, at: Position, found: Outlook, people: People | None = None
) -> Standing | None:
    """Return how the gate at a position stands, None if there is none."""
    gate = gate_at(instance, at, found)
    if gate is None:
        return None
    records = Approvals(instance.store).all(at.head.thread)
    return _standing(instance, at, gate, people or People(instance.store.repository), records)


def _standing(
    instance: Instance, at: Position, gate: Gate, people: People, records: Sequence[ApprovalRecord]
) -> Standing:
    here = at.history.places
    records = [
        record
        for record in records
        if not isinstance(record.content, Approval) or _is_at(record.content, gate, here)
    ]
    outputs = {
        record.content.output: instance.store.get(record.content.output).payload
        for record in records
        if isinstance(record.content, Approval)
    }
    return Standing(tally(gate, records, lambda node: outputs[node], people), people, outputs)


def _is_at(said: Approval, gate: Gate, places: frozenset[Hash | None]) -> bool:
    """Return whether an approval is of this turn: made at the head, or before remarks to it."""
    return said.start == gate.start and said.role == gate.role.name and said.prev in places


def me(instance: Instance) -> Identity:
    """Return the identity that commits are made with here."""
    user = instance.store.repository.user
    return Identity(user.name, user.email)


def approve(
    instance: Instance, at: Position, found: Outlook, standing: Standing, output: Any, reason: str = ""
) -> Standing:
    """Record an answer of the user as an approval, and return how the gate stands then. The caller holds the lock.
    Moves `refs/uwf/approvals/<ULID>`. Raises RequirementUnmet if it would not count, SigningFailed."""
    thread, store = at.head.thread, instance.store
    standing.check_voter(instance, thread)
    gate, role, by = standing.tally.gate, standing.role, me(instance)
    if must_sign(gate, by, standing.people) and not store.repository.config.signs_commits:
        raise RequirementUnmet(
            f"approvals of {role.name} in thread {thread} must be signed",
            "git config --global commit.gpgSign true, and user.signingKey",
        )
    reason = instance.without_secrets(reason, "the reason")
    node = store.put(role.schema, instance.redactor.value(output)[0])
    said = Approval(
        at.history.start_hash,
        at.history.prev,
        role.name,
        node,
        by,
        shown_at(instance, at.history, found, with_diff=True),
        max(now(), at.head.row.time),  # the clock that made the head may be ahead
        reason.strip(),
    )
    known = {each.hash for each in Approvals(store).all(thread)}
    while hash_of(APPROVAL, said.payload()) in known:  # the same answer in the same second
        said = said._replace(at=said.at + 1)

    def check(records: list[ApprovalRecord], node: Hash) -> None:
        judgements = _standing(instance, at, gate, standing.people, records).tally.judgements
        judged = next(judged for judged in judgements if judged.record.hash == node)
        if judged.code != COUNTS:
            raise RequirementUnmet(
                f"the approval of thread {thread} would not count: {judged.why}", f"uwf thread show {thread}"
            )

    records = Approvals(store).record(at, said, check)
    return _standing(instance, at, gate, standing.people, records)


def take_back(instance: Instance, at: Position, standing: Standing | None, reason: str = "") -> Standing:
    """Take the user's approval at a gate back, and return how it stands then. The caller holds the lock. Moves
    `refs/uwf/approvals/<ULID>`. Raises Invalid if the user has none there, RequirementUnmet if it wouldn't count."""
    thread, by = at.head.thread, me(instance)
    instance.require_person(f"takes an approval of thread {thread} back", answers=True)
    mine = [each for each in standing.given if _is_mine(standing, each, by)] if standing else []
    if standing is None or not mine:
        raise Invalid(
            f"{by} has no approval in thread {thread} that can be taken back",
            f"see: uwf thread show {thread}",
        )
    text = instance.without_secrets(reason, "the reason").strip()
    said = Revocation(mine[-1].record.hash, by, now(), text)

    def check(records: list[ApprovalRecord], _node: Hash) -> None:
        standing_then = _standing(instance, at, standing.tally.gate, standing.people, records)
        if said.approval in {judged.record.hash for judged in standing_then.given}:
            raise RequirementUnmet(
                f"the revocation in thread {thread} would not count",
                "take an approval back with a key of the person who signed it",
            )

    records = Approvals(instance.store).record(at, said, check)
    return _standing(instance, at, standing.tally.gate, standing.people, records)


def _is_mine(standing: Standing, each: JudgedApproval, by: Identity) -> bool:
    return each.person == standing.people.person(by)


def answered(
    instance: Instance, history: History, found: Outlook, role: str, output: Hash, reason: str = ""
) -> Approval:
    """Return the approval of an answer whose own step is its record: that of a question, or of a person's role
    without approvers."""
    return Approval(
        history.start_hash,
        history.prev,
        role,
        output,
        me(instance),
        shown_at(instance, history, found, with_diff=True),
        now(),
        instance.redactor.text(reason)[0].strip(),
    )
