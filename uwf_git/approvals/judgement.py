"""Which approvals count at a gate: a role that names its approvers.

An approval counts if its commit is made by the person that it names, if that person is an approver and no author of
what is judged, and if it is of this head and of what was shown there. The newest of a person counts, unless it was
revoked. People are those of the store's trust policy; without one, they are known by name and address.

The time of an approval is a claim of its person. It is no earlier than the head's, and the policy in force at that time
must allow it. Until the gate is passed, the policy of now must allow it too. So a person who was removed can back-date
an approval only at a gate that was open before, and only by making its step as well; the end of their key rules that
out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.approvals.records import ApprovalRecord, ident
from uwf_git.approvals.shown import decision, decision_text
from uwf_git.base.errors import Absent, RequirementUnmet
from uwf_git.base.text import counted, iso, one_line
from uwf_git.format.approvals import Approval, Part, Revocation, Shown
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.kinds import Identity, Role
from uwf_git.git.repository import Oid
from uwf_git.sandbox.step_variables import acts_for_agent
from uwf_git.store.new_record import ANSWERS
from uwf_git.trust.people import People, identity_of
from uwf_git.trust.signatures import BAD, GOOD, NONE, Signature

if TYPE_CHECKING:
    from uwf_git.store.instance import Instance
    from uwf_git.trust.policy import Policy, Rule

FORGED, STALE, SELF, MISSING, UNJUDGED = (
    "approval-forged",
    "approval-stale",
    "approval-self",
    "approval-missing",
    "approval-unjudged",
)
COUNTS = ""


class Gate(NamedTuple):
    """What is approved: an answer of `role`, whose `schema` it obeys, at the commit `head`, of the step `prev` of the
    thread that begins with `start`; None at the start itself. `shown` is what follows from the thread; `authors` are
    the commits of what is judged, with their committers. `answers` is the record that a trust policy's rules call
    it."""

    role: Role
    schema: Any
    workflow: str
    head: Oid
    start: Hash
    prev: Hash | None
    shown: Shown
    authors: tuple[tuple[Oid, str], ...] = ()


class JudgedApproval(NamedTuple):
    """The judgement of an approval. `person` is who gave it, "" if unknown; `code` is COUNTS, or that of a finding,
    and `why` its reason. `entry` is the approver that it counts for, "" if it is none's."""

    record: ApprovalRecord
    person: str
    signature: Signature
    code: str = COUNTS
    why: str = ""
    entry: str = ""

    @property
    def approval(self) -> Approval:
        assert isinstance(self.record.content, Approval)
        return self.record.content


class Side(NamedTuple):
    """The approvals that agree, oldest first."""

    decision: bytes
    approvals: tuple[JudgedApproval, ...]


class Standing(NamedTuple):
    """The state of a gate: every approval that was given at its head, judged, and the sides that agree, the largest
    first. `payload_of` reads an output."""

    gate: Gate
    judgements: tuple[JudgedApproval, ...]
    sides: tuple[Side, ...]
    people: People
    payload_of: Callable[[Hash], Any]

    @property
    def met(self) -> Side | None:
        """The side that has the quorum, None if there is none."""
        return self.sides[0] if self.sides and not self.missing else None

    @property
    def is_met(self) -> bool:
        return self.met is not None

    @property
    def missing(self) -> int:
        """How many more must agree with the largest side."""
        most = len(self.sides[0].approvals) if self.sides else 0
        return max(self.gate.role.quorum - most, 0)

    @property
    def counting(self) -> tuple[JudgedApproval, ...]:
        """The approvals that count, oldest first."""
        return _in_order(judged for judged in self.judgements if judged.code == COUNTS)

    @property
    def awaited(self) -> list[str]:
        """The people of whom approvals may still come."""
        people, done = self.people, self._done | {judged.person for judged in self.counting}
        identities = [judged.approval.by for judged in self.counting]
        return [
            name
            for name in people.listed(self.gate.role.approvers)
            if done.isdisjoint((name, people.named(name)[0]))
            and not any(people.is_named(name, identity) for identity in identities)
        ]

    @property
    def is_reachable(self) -> bool:
        """Whether the quorum can still be met, if all who have answered and all who are awaited agree."""
        return len(self.awaited) + len(self.counting) >= self.gate.role.quorum

    @property
    def needs(self) -> str:
        """What is missing, in words: `1 more of bob, carol`."""
        if not self.is_reachable:
            able = len(self.awaited) + len(self.counting)
            return (
                f"{self.missing} more, which nobody may give: {able} may approve, of {self.gate.role.quorum}"
            )
        return f"{self.missing} more of {', '.join(self.awaited) or 'those who answered otherwise'}"

    def awaits(self, person: str, identity: Identity) -> bool:
        """Return whether somebody's approval is missing, and may come."""
        entry = self.people.entry(person, identity, self.gate.role.approvers)
        return bool(entry) and self._done.isdisjoint((entry, person))

    @property
    def _done(self) -> set[str]:
        return {judged.entry for judged in self.counting} | authors_among(self.gate, self.people)

    def check_voter(self, instance: Instance, thread: ThreadId) -> None:
        """Raise RequirementUnmet if whoever uses this machine may not answer."""
        role, people, by = self.gate.role, self.people, Identity(*instance.store.repository.user)
        place = f"as {role.name} of thread {thread}"
        if acts_for_agent(instance.environ):
            raise RequirementUnmet(
                f"an agent cannot approve, and role {role.name} of thread {thread} has approvers",
                f"a person answers, outside of agents and MCP: uwf thread answer {thread}",
            )
        instance.require_person(f"approves {place}", answers=True)
        person = people.person(by)
        if not people.is_among(person, by, role.approvers):
            unknown = people.unknown(role.approvers)
            which = f"; {', '.join(unknown)} may be a group, which needs a trust policy" if unknown else ""
            may = ", ".join(people.listed(role.approvers))
            raise RequirementUnmet(f"{by} may not answer {place}", f"who may: {may}{which}")
        if role.not_author and person in authors_among(self.gate, people):
            raise RequirementUnmet(
                f"{by} made what {role.name} of thread {thread} judges, and may not approve it",
                f"who may: {', '.join(self.awaited) or 'nobody else'}",
            )

    def raise_if_unmet(self, thread: ThreadId) -> None:
        """Raise Absent, with whose approvals are missing, unless a quorum agrees."""
        if self.is_met:
            return
        if not self.is_reachable:
            raise self._impasse(thread)
        more = counted(self.missing, "more approval" if self.counting else "approval")
        of = ", ".join(self.awaited) or "people who have answered otherwise"
        raise Absent(
            f"thread {thread} waits for {more} at {self.gate.role.name!r}, of {of}",
            f"uwf thread answer {thread}; or see: uwf thread show {thread}",
        )

    def _impasse(self, thread: ThreadId) -> Absent:
        return Absent(
            f"thread {thread} cannot pass {self.gate.role.name!r}: approvals needed are {self.needs}",
            f"name more approvers, or ask for fewer, and start it anew; uwf thread kill {thread} ends it",
        )

    def as_json(self, thread: ThreadId) -> dict[str, Any]:
        """Return who may approve, who has, and how many are missing, as `approvals`."""
        role = self.gate.role
        value = {
            "approvers": list(role.approvers),
            "quorum": role.quorum,
            "notAuthor": role.not_author,
            "signed": role.signed,
            "shown": self.gate.shown.payload(),
            "given": [self._value(judged) for judged in self.judgements],
            "missing": self.missing,
            "of": self.awaited,
            "reachable": self.is_reachable,
            "needs": self.needs,
            "way": None if self.is_reachable else self._impasse(thread).hint,
        }
        return {"approvals": value}

    def _value(self, judged: JudgedApproval) -> dict[str, Any]:
        approval, signature = judged.approval, judged.signature
        value: dict[str, Any] = {
            "approval": judged.record.hash,
            "commit": str(judged.record.commit),
            "by": approval.by._asdict(),
            "person": judged.person or None,
            "decision": decision_text(self.gate.schema, self.payload_of(approval.output)),
            "reason": approval.reason or None,
            "at": iso(approval.at),
            "digest": approval.digest,
            **({"unseen": True} if approval.is_unseen else {}),
            "signature": {"state": signature.state, "signer": signature.signer, "key": signature.key},
            "counts": judged.code == COUNTS,
        }
        return value if judged.code == COUNTS else {**value, "problem": judged.code, "why": judged.why}


def _signs_for(signer: str, by: Identity, gate: Gate | None) -> bool:
    """Return whether a good signature's signer, as git calls them, is an identity: by the address, or, for an
    approver that is a mere name, by that."""
    address = signer.rpartition("<")[2].removesuffix(">")
    if "@" in address:
        return address.casefold() == by.email.casefold()
    if gate is None or not gate.role.signed:
        return not signer or signer == by.name
    return signer == by.name and signer in gate.role.approvers


def must_sign(gate: Gate, by: Identity, people: People) -> bool:
    """Return whether an unsigned approval of somebody doesn't count."""
    return gate.role.signed or bool(_rules(gate, people)) or people.has_key(by)


def _rules(gate: Gate, people: People) -> tuple[Rule, ...]:
    """Return the rules of the policy about the answers of a gate's threads."""
    policy = people.policy
    return policy.rules_for("threads", gate.workflow, (ANSWERS,)) if policy is not None else ()


def signature_problem(
    record: ApprovalRecord, gate: Gate | None, people: People, passed: bool = True
) -> tuple[str, str]:
    """Return the code and reason for which a commit's signature doesn't let it count, COUNTS and "" if it does.
    Without a gate, only what is wrong anywhere. What the policy accepts counts without its rules at a gate that
    is `passed`."""
    signature, by = people.signature(record.commit), record.content.by
    if signature.state == BAD:
        return FORGED, f"its signature is bad: {by}"
    if signature.state == NONE:
        if gate is None or (not gate.role.signed and passed and people.is_accepted(record.commit)):
            return COUNTS, ""
        if gate.role.signed or _rules(gate, people):
            return FORGED, f"{by} did not sign it, and approvals must be signed"
        if people.has_key(by, record.time if passed else None):
            return FORGED, f"{by} did not sign it, and has a key in the trust policy"
        return COUNTS, ""
    if people.policy is not None:
        return _problem_by_policy(record, signature, gate, people, people.policy, passed)
    if signature.state == GOOD and not _signs_for(signature.signer, by, gate):
        return FORGED, f"it is signed by {one_line(signature.signer, 80)}, not by {by}"
    if signature.state != GOOD and gate is not None and gate.role.signed:
        return UNJUDGED, f"nothing here says whose key {signature.key or 'it is signed with'} is"
    return COUNTS, ""


def _problem_by_policy(
    record: ApprovalRecord,
    signature: Signature,
    gate: Gate | None,
    people: People,
    policy: Policy,
    passed: bool,
) -> tuple[str, str]:
    by, when = record.content.by, record.time if passed else None
    owners = (version.key_of(signature) for version in reversed(people.policies_at(when)))
    owner = next(filter(None, owners), None)
    if owner is None:
        return FORGED, f"it is signed by a key that the trust policy doesn't have, not by {by}"
    person, key = owner
    if not people.person(by, signature, when):
        return FORGED, f"it is signed by {person}, not by {by}"
    if record.time < key.since or (key.end is not None and record.time >= key.end):
        return FORGED, f"the key of {person} did not count at {iso(record.time)}"
    accepted = passed and people.is_accepted(record.commit)
    for rule in _rules(gate, people) if gate is not None and not accepted else ():
        if rule.signers and person not in policy.members(rule.signers):
            return FORGED, f"the trust policy wants answers there signed by {', '.join(rule.signers)}"
    if key.end is not None and time.time() >= key.end:
        return (
            UNJUDGED,
            f"the key of {person} has ended since, and the approval may be younger than it says",
        )
    return COUNTS, ""


def person_problem(record: ApprovalRecord, people: People) -> str:
    """Return why a record is not its person's, whatever gate it is of, "" if it is."""
    return record_problem(record) or signature_problem(record, None, people)[1]


def record_problem(record: ApprovalRecord) -> str:
    """Return why a commit is not by the person and of the time that its node says, "" if it is."""
    content = record.content
    if record.committer != ident(content):
        return (
            f"it says {one_line(str(content.by), 80)}, and is committed by {one_line(record.committer, 80)}"
        )
    if record.time != content.at:
        return f"it says {iso(content.at)}, and is committed at {iso(record.time)}"
    if isinstance(content, Approval) and record.time < record.since:
        return f"it says {iso(record.time)}, and the head that it is of is of {iso(record.since)}"
    if isinstance(content, Approval) and content.digest != content.shown.digest:
        return "its digest is not that of its parts"
    return ""


def tally(
    gate: Gate,
    records: Sequence[ApprovalRecord],
    payload_of: Callable[[Hash], Any],
    people: People,
    passed: bool = False,
) -> Standing:
    """Return the state of a gate after some records. `payload_of` reads an output."""
    people.look(record.commit for record in records)
    authors = authors_among(gate, people)
    revoked = _revoked(records, people)
    judgements: list[JudgedApproval] = []
    for record in records:
        if isinstance(record.content, Approval):
            code, why = _judge(gate, record, record.content, authors, people, passed)
            signature = people.signature(record.commit)
            by, when = record.content.by, record.time if passed else None
            person = people.person(by, signature, when)
            entry = people.entry(person, by, gate.role.approvers, when)
            judgements.append(JudgedApproval(record, person, signature, code, why, entry))
    newest: dict[str, JudgedApproval] = {}
    for judged in _in_order(judgements):
        if judged.code == COUNTS and judged.record.hash not in revoked:
            newest[judged.entry] = judged
        elif judged.code == COUNTS:  # which brings no earlier answer back
            newest.pop(judged.entry, None)
    sides: dict[bytes, list[JudgedApproval]] = {}
    for judged in newest.values():
        sides.setdefault(decision(gate.schema, payload_of(judged.approval.output)), []).append(judged)
    agreeing = [Side(key, _in_order(side)) for key, side in sides.items()]
    agreeing.sort(key=lambda side: (-len(side.approvals), side.approvals[0].record.order))
    final = tuple(_outdated(judged, revoked, newest) for judged in judgements)
    return Standing(gate, final, tuple(agreeing), people, payload_of)


def _outdated(
    judged: JudgedApproval, revoked: Mapping[Hash, int], newest: Mapping[str, JudgedApproval]
) -> JudgedApproval:
    """Return the judgement of an approval in view of what its person did later."""
    if judged.code != COUNTS or newest.get(judged.entry) is judged:
        return judged
    by, when = judged.approval.by, revoked.get(judged.record.hash)
    why = f"{by} answered anew" if when is None else f"{by} took it back at {iso(when)}"
    return judged._replace(code=STALE, why=why)


def _in_order(judgements: Iterable[JudgedApproval]) -> tuple[JudgedApproval, ...]:
    return tuple(sorted(judgements, key=lambda judged: judged.record.order))


def authors_among(gate: Gate, people: People) -> set[str]:
    """Return the people who made what a gate judges, if they may not approve it."""
    if not gate.role.not_author:
        return set()
    if people.policy is not None:
        people.look(oid for oid, _ in gate.authors)
    authors = {people.person(identity_of(committer)) for _, committer in gate.authors}
    if people.policy is not None:
        authors = authors.union(*(people.owners(people.signature(oid)) for oid, _ in gate.authors))
    return authors - {""}


def judge(gate: Gate, record: ApprovalRecord, approval: Approval, people: People) -> tuple[str, str]:
    """Return the code and reason for which an approval doesn't count by itself, by the policy of its time; COUNTS and
    "" if it does."""
    people.look([record.commit])
    return _judge(gate, record, approval, authors_among(gate, people), people, passed=True)


def _judge(
    gate: Gate, record: ApprovalRecord, approval: Approval, authors: set[str], people: People, passed: bool
) -> tuple[str, str]:
    if problem := record_problem(record):
        return FORGED, problem
    if (approval.start, approval.prev, approval.role) != (gate.start, gate.prev, gate.role.name):
        return STALE, f"{approval.by} approved at another step"
    if not _was_shown(approval.shown.parts, gate.shown):
        return STALE, f"{approval.by} was shown something else than this thread has there"
    if record.head != gate.head:
        return STALE, f"{approval.by} approved at another commit"
    code, why = _judge_person(gate, record, approval, authors, people, passed=True)
    if code == COUNTS and not passed:
        return _judge_person(gate, record, approval, authors, people, passed=False)
    return code, why


def _judge_person(
    gate: Gate, record: ApprovalRecord, approval: Approval, authors: set[str], people: People, passed: bool
) -> tuple[str, str]:
    """Judge who gave an approval, by the policy of its time if the gate is passed, else by that of now."""
    code, why = signature_problem(record, gate, people, passed)
    if code != COUNTS:
        return code, why
    when = record.time if passed else None
    person = people.person(approval.by, people.signature(record.commit), when)
    if not people.entry(person, approval.by, gate.role.approvers, when):
        unknown = people.unknown(gate.role.approvers)
        if unknown and people.policy is None:
            return UNJUDGED, f"no trust policy says who {', '.join(unknown)} is"
        return FORGED, f"{approval.by} is none of the approvers: {', '.join(gate.role.approvers)}"
    if gate.role.not_author and person in authors:
        return SELF, f"{approval.by} made what is judged"
    return COUNTS, ""


def _was_shown(parts: tuple[Part, ...], expected: Shown) -> bool:
    """Return whether parts are those expected. Whether there was a diff depends on the machine."""
    mine = Shown(parts)
    diffs = [part for part in parts if part.name == "diff"]
    has_code = any(part.name == "code" for part in parts)
    return mine.without_diff == expected.without_diff and len(diffs) <= (1 if has_code else 0)


def _revoked(records: Sequence[ApprovalRecord], people: People) -> Mapping[Hash, int]:
    """Return when approvals were taken back by their own person."""
    approvals = {record.hash: record for record in records if isinstance(record.content, Approval)}
    revoked: dict[Hash, int] = {}
    for record in records:
        if not isinstance(record.content, Revocation) or person_problem(record, people):
            continue
        approval = approvals.get(record.content.approval)
        if approval is not None and same_person(record, approval, people):
            revoked[approval.hash] = record.time
    return revoked


def same_person(one: ApprovalRecord, other: ApprovalRecord, people: People) -> bool:
    """Return whether one person made two records. What a known key signed is taken back with a key of the same
    person only."""
    first, second = people.signature(one.commit), people.signature(other.commit)
    if people.policy is not None and second.state != NONE and first.state == NONE:
        return False
    mine = people.person(one.content.by, first, one.time)
    theirs = people.person(other.content.by, second, other.time)
    return bool(mine) and mine == theirs


def step_problems(
    gate: Gate,
    records: Sequence[ApprovalRecord],
    named: Sequence[Hash],
    answer: Any,
    payload_of: Callable[[Hash], Any],
    people: People,
) -> list[tuple[str, str]]:
    """Return the codes and messages of what is wrong with a step of a gate: `named` are the approvals in its detail,
    `records` those that its commit stands on, `answer` its output."""
    judgements: dict[Hash, JudgedApproval] = {}
    for judged in tally(gate, records, payload_of, people, passed=True).judgements:
        name = judged.record.hash  # of an approval under two commits, one that counts
        if name not in judgements or judgements[name].code != COUNTS:
            judgements[name] = judged
    problems: list[tuple[str, str]] = []
    wanted = decision(gate.schema, answer)
    counting: set[str] = set()
    unjudged = 0
    for name in dict.fromkeys(named):
        approved = judgements.get(name)
        if approved is None:
            problems.append((FORGED, f"approval {name} has no commit that the step stands on"))
        elif approved.code == UNJUDGED:
            unjudged += 1
            problems.append((UNJUDGED, f"approval {name} is not judged: {approved.why}"))
        elif approved.code != COUNTS:
            problems.append((approved.code, f"approval {name} doesn't count: {approved.why}"))
        elif decision(gate.schema, payload_of(approved.approval.output)) != wanted:
            problems.append(
                (FORGED, f"{approved.approval.by} approved something else than the step's output")
            )
        else:
            counting.add(approved.entry)
    if len(counting) + unjudged < gate.role.quorum:
        needed = counted(gate.role.quorum, "approval")
        problems.append((MISSING, f"role {gate.role.name} needs {needed}, and {len(counting)} count"))
    return problems
