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
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.approvals.records import ApprovalRecord, ident
from uwf_git.approvals.shown import decision
from uwf_git.base.text import counted, iso, one_line
from uwf_git.format.approvals import Approval, Part, Revocation, Shown
from uwf_git.format.ids import Hash
from uwf_git.format.kinds import Identity, Role
from uwf_git.git.repository import Oid
from uwf_git.store.new_record import ANSWERS
from uwf_git.trust.people import People, identity_of
from uwf_git.trust.signatures import BAD, GOOD, NONE, Signature

if TYPE_CHECKING:
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


class Tally(NamedTuple):
    """The state of a gate: every approval that was given at its head, judged, and the sides that agree, the largest
    first."""

    gate: Gate
    judgements: tuple[JudgedApproval, ...]
    sides: tuple[Side, ...]

    @property
    def met(self) -> Side | None:
        """The side that has the quorum, None if there is none."""
        largest = self.sides[0] if self.sides else None
        return largest if largest and len(largest.approvals) >= self.gate.role.quorum else None

    @property
    def missing(self) -> int:
        """How many more must agree with the largest side."""
        most = len(self.sides[0].approvals) if self.sides else 0
        return max(self.gate.role.quorum - most, 0)


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
    owners = (each.key_of(signature) for each in reversed(people.policies_at(when)))
    found = next((each for each in owners if each is not None), None)
    if found is None:
        return FORGED, f"it is signed by a key that the trust policy doesn't have, not by {by}"
    person, key = found
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
    said = record.content
    if record.committer != ident(said):
        return f"it says {one_line(str(said.by), 80)}, and is committed by {one_line(record.committer, 80)}"
    if record.time != said.at:
        return f"it says {iso(said.at)}, and is committed at {iso(record.time)}"
    if isinstance(said, Approval) and record.time < record.since:
        return f"it says {iso(record.time)}, and the head that it is of is of {iso(record.since)}"
    if isinstance(said, Approval) and said.digest != said.shown.digest:
        return "its digest is not that of its parts"
    return ""


def tally(
    gate: Gate,
    records: Sequence[ApprovalRecord],
    output: Callable[[Hash], Any],
    people: People,
    passed: bool = False,
) -> Tally:
    """Return the state of a gate after some records. `output` returns an output's payload."""
    people.look(each.commit for each in records)
    authors = authors_among(gate, people)
    revoked = _revoked(records, people)
    judged: list[JudgedApproval] = []
    taken_back: set[Hash] = set()
    for record in records:
        if not isinstance(record.content, Approval):
            continue
        code, why = _judge(gate, record, record.content, authors, people, passed)
        if code == COUNTS and record.hash in revoked:
            taken_back.add(record.hash)
            code, why = STALE, f"{record.content.by} took it back at {iso(revoked[record.hash])}"
        signature = people.signature(record.commit)
        by, when = record.content.by, record.time if passed else None
        person = people.person(by, signature, when)
        entry = people.entry(person, by, gate.role.approvers, when)
        judged.append(JudgedApproval(record, person, signature, code, why, entry))
    newest: dict[str, JudgedApproval] = {}
    for each in sorted(judged, key=lambda each: each.record.order):
        if each.code == COUNTS:
            newest[each.entry] = each
        elif each.record.hash in taken_back:  # which brings no earlier answer back
            newest.pop(each.entry, None)
    judged = [
        each
        if each.code != COUNTS or newest.get(each.entry) is each
        else each._replace(code=STALE, why=f"{each.approval.by} answered anew")
        for each in judged
    ]
    sides: dict[bytes, list[JudgedApproval]] = {}
    for each in newest.values():
        sides.setdefault(decision(gate.schema, output(each.approval.output)), []).append(each)
    ordered = [
        Side(key, tuple(sorted(side, key=lambda each: each.record.order))) for key, side in sides.items()
    ]
    ordered.sort(key=lambda side: (-len(side.approvals), side.approvals[0].record.order))
    return Tally(gate, tuple(judged), tuple(ordered))


def authors_among(gate: Gate, people: People) -> set[str]:
    """Return the people who made what a gate judges, if they may not approve it."""
    if not gate.role.not_author:
        return set()
    if people.policy is not None:
        people.look(oid for oid, _ in gate.authors)
    found = set()
    for oid, committer in gate.authors:
        found.add(people.person(identity_of(committer)))
        if people.policy is not None:
            found |= people.owners(people.signature(oid))
    return found - {""}


def judge(gate: Gate, record: ApprovalRecord, said: Approval, people: People) -> tuple[str, str]:
    """Return the code and reason for which an approval doesn't count by itself, by the policy of its time; COUNTS and
    "" if it does."""
    people.look([record.commit])
    return _judge(gate, record, said, authors_among(gate, people), people, passed=True)


def _judge(
    gate: Gate, record: ApprovalRecord, said: Approval, authors: set[str], people: People, passed: bool
) -> tuple[str, str]:
    if problem := record_problem(record):
        return FORGED, problem
    if (said.start, said.prev, said.role) != (gate.start, gate.prev, gate.role.name):
        return STALE, f"{said.by} approved at another step"
    if not _was_shown(said.shown.parts, gate.shown):
        return STALE, f"{said.by} was shown something else than this thread has there"
    if record.head != gate.head:
        return STALE, f"{said.by} approved at another commit"
    code, why = _judge_person(gate, record, said, authors, people, passed=True)
    if code == COUNTS and not passed:
        return _judge_person(gate, record, said, authors, people, passed=False)
    return code, why


def _judge_person(
    gate: Gate, record: ApprovalRecord, said: Approval, authors: set[str], people: People, passed: bool
) -> tuple[str, str]:
    """Judge who gave an approval, by the policy of its time if the gate is passed, else by that of now."""
    code, why = signature_problem(record, gate, people, passed)
    if code != COUNTS:
        return code, why
    when = record.time if passed else None
    person = people.person(said.by, people.signature(record.commit), when)
    if not people.entry(person, said.by, gate.role.approvers, when):
        unknown = people.unknown(gate.role.approvers)
        if unknown and people.policy is None:
            return UNJUDGED, f"no trust policy says who {', '.join(unknown)} is"
        return FORGED, f"{said.by} is none of the approvers: {', '.join(gate.role.approvers)}"
    if gate.role.not_author and person in authors:
        return SELF, f"{said.by} made what is judged"
    return COUNTS, ""


def _was_shown(parts: tuple[Part, ...], expected: Shown) -> bool:
    """Return whether parts are those expected. Whether there was a diff depends on the machine."""
    mine = Shown(parts)
    diffs = [part for part in parts if part.name == "diff"]
    has_code = any(part.name == "code" for part in parts)
    return mine.without_diff == expected.without_diff and len(diffs) <= (1 if has_code else 0)


def _revoked(records: Sequence[ApprovalRecord], people: People) -> Mapping[Hash, int]:
    """Return when approvals were taken back by their own person."""
    given = {each.hash: each for each in records if isinstance(each.content, Approval)}
    found: dict[Hash, int] = {}
    for record in records:
        if not isinstance(record.content, Revocation) or person_problem(record, people):
            continue
        approval = given.get(record.content.approval)
        if approval is not None and same_person(record, approval, people):
            found[approval.hash] = record.time
    return found


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
    output: Callable[[Hash], Any],
    people: People,
) -> list[tuple[str, str]]:
    """Return the codes and messages of what is wrong with a step of a gate: `named` are the approvals in its detail,
    `records` those that its commit stands on, `answer` its output."""
    result = tally(gate, records, output, people, passed=True)
    judged: dict[Hash, JudgedApproval] = {}
    for each in result.judgements:  # of an approval under two commits, one that counts
        if each.record.hash not in judged or judged[each.record.hash].code != COUNTS:
            judged[each.record.hash] = each
    problems: list[tuple[str, str]] = []
    wanted = decision(gate.schema, answer)
    counting: set[str] = set()
    unjudged = 0
    for name in dict.fromkeys(named):
        found = judged.get(name)
        if found is None:
            problems.append((FORGED, f"approval {name} has no commit that the step stands on"))
        elif found.code == UNJUDGED:
            unjudged += 1
            problems.append((UNJUDGED, f"approval {name} is not judged: {found.why}"))
        elif found.code != COUNTS:
            problems.append((found.code, f"approval {name} doesn't count: {found.why}"))
        elif decision(gate.schema, output(found.approval.output)) != wanted:
            problems.append((FORGED, f"{found.approval.by} approved something else than the step's output"))
        else:
            counting.add(found.entry)
    if len(counting) + unjudged < gate.role.quorum:
        needed = counted(gate.role.quorum, "approval")
        problems.append((MISSING, f"role {gate.role.name} needs {needed}, and {len(counting)} count"))
    return problems
