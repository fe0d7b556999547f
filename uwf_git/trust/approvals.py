"""Which approvals count at a gate: a role that names its approvers.

An approval counts if its commit is made by the person that it names, if that person is an approver and no author of
what is judged, and if it is of this head and of what was shown there. The newest of a person counts, unless it was
revoked. People are those of the store's trust policy; without one, they are known by name and address.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.base.errors import SigningFailed
from uwf_git.base.text import counted, iso, one_line
from uwf_git.format.approvals import Approval, Identity, Part, Revocation, Shown, decision
from uwf_git.format.ids import Hash
from uwf_git.format.kinds import Role
from uwf_git.git.objects import is_signed
from uwf_git.git.repository import Oid, Repository
from uwf_git.store.approvals import ApprovalRecord, ident
from uwf_git.trust.signatures import BAD, EXPIRED, GOOD, NONE, UNKNOWN, Signature, signatures

if TYPE_CHECKING:
    from uwf_git.trust.policies import PolicyVersion
    from uwf_git.trust.policy import Policy, Rule

FORGED, STALE, SELF, MISSING, UNJUDGED = (
    "approval-forged",
    "approval-stale",
    "approval-self",
    "approval-missing",
    "approval-unjudged",
)
COUNTS = ""
_NO_SIGNATURE = Signature(NONE)


class Gate(NamedTuple):
    """What is approved: an answer of `role`, whose `schema` it obeys, at the step `prev` of the thread that begins
    with `start`; None at the start itself. `shown` is what follows from the thread; `authors` are the commits of what
    is judged, with their committers. `answers` is the record that a trust policy's rules call it."""

    role: Role
    schema: Any
    workflow: str
    start: Hash
    prev: Hash | None
    shown: Shown
    authors: tuple[tuple[Oid, str], ...] = ()


class Judgement(NamedTuple):
    """What comes of an approval. `person` is who gave it, "" if nobody is known to have; `code` is COUNTS, or that of
    a finding, and `why` its reason."""

    record: ApprovalRecord
    person: str
    signature: Signature
    code: str = COUNTS
    why: str = ""

    @property
    def said(self) -> Approval:
        assert isinstance(self.record.said, Approval)
        return self.record.said


class Side(NamedTuple):
    """The approvals that agree, oldest first."""

    decision: bytes
    approvals: tuple[Judgement, ...]


class Tally(NamedTuple):
    """The state of a gate: every approval that was given at its head, judged, and the sides that agree, the largest
    first."""

    gate: Gate
    judgements: tuple[Judgement, ...]
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


class People:
    """Who people are, by the trust policy of a repository if it has one. Judges each signature once. In a repository
    that is no store, git isn't run: there is no policy, and whose a signature is stays unknown."""

    def __init__(self, repository: Repository) -> None:
        from uwf_git.git.foreign import ForeignRepository
        from uwf_git.trust import policies

        self._repository = repository
        self._is_foreign = isinstance(repository, ForeignRepository)
        self.policy: Policy | None = None if self._is_foreign else policies.current(repository)
        self._allowed = self.policy.allowed_signers() if self.policy is not None else None
        self._signatures: dict[Oid, Signature] = {}
        self._versions: list[PolicyVersion] | None = None

    def look(self, commits: Iterable[Oid]) -> None:
        """Judge the signatures of commits with one call of git."""
        new = [oid for oid in commits if oid not in self._signatures]
        if self._is_foreign:
            read = self._repository.read
            self._signatures |= {oid: Signature(UNKNOWN if is_signed(read(oid)[1]) else NONE) for oid in new}
        elif new:
            self._signatures.update(signatures(self._repository, new, self._allowed))

    def signature(self, commit: Oid) -> Signature:
        self.look([commit])
        return self._signatures[commit]

    def person(self, identity: Identity, signature: Signature, when: int | None = None) -> str:
        """Return who made a commit at a Unix time: the name of a person of the policy, else an address. "" if the
        signature is not one of that person's."""
        policies = self._policies(when)
        if not policies:
            return _folded(identity)
        for policy in policies:
            if signature.state == NONE:
                found = policy.person_of(signature, identity.email)
            else:
                found = _signer(policy, signature, identity)
            if found is not None:
                return found
        return _folded(identity) if signature.state == NONE else ""

    def _policies(self, when: int | None) -> tuple[Policy, ...]:
        """Return the policy, and before it the one that was in force at a time, if that is another."""
        if self.policy is None:
            return ()
        if self._versions is None:
            from uwf_git.trust import policies

            self._versions = policies.history(self._repository, Oid(hex=self.policy.commit))
        if when is None or len(self._versions) < 2:
            return (self.policy,)
        then = next((each for each in self._versions if each.time <= when), self._versions[-1]).policy
        return (self.policy,) if then.commit == self.policy.commit else (then, self.policy)

    def me(self) -> tuple[str, Identity]:
        """Return the user: the person of the policy whose key signs here, else by git's identity."""
        from uwf_git.trust.own_key import own_key

        user = self._repository.user
        identity = Identity(user.name, user.email)
        found = None
        if self.policy is not None:
            with suppress(SigningFailed):  # there is none
                found = own_key(self._repository).owner(self.policy)
        return found or self.person(identity, _NO_SIGNATURE), identity

    def named(self, name: str) -> tuple[str, Identity]:
        """Return a person by the name in the policy, an address, `NAME <ADDRESS>`, or the name in git."""
        if self.policy is not None and name in self.policy.people:
            emails = self.policy.people[name].emails
            return name, Identity(name, emails[0] if emails else "")
        identity = (
            identity_of(name) if "<" in name else Identity("", name) if "@" in name else Identity(name, "")
        )
        return self.person(identity, _NO_SIGNATURE), identity

    def is_among(
        self, person: str, identity: Identity, names: Sequence[str], when: int | None = None
    ) -> bool:
        """Return whether a person is one of people, groups, and addresses, at a Unix time or now."""
        for policy in self._policies(when):
            if person in policy.members(names):
                return True
            known = policy.people.get(person)
            if known is not None:  # whose name and address are as the policy says, whatever git has
                emails = {each.casefold() for each in known.emails}
                if any(name.casefold() in emails for name in names):
                    return True
        if self.policy is None:
            return any(_means(name, identity) for name in names)
        if person in self.policy.people:
            return False
        known_names = {*self.policy.groups, *self.policy.people}
        return any(_means(name, identity) for name in names if name not in known_names)

    def is_named(self, name: str, identity: Identity) -> bool:
        """Return whether an approver's name that no policy tells of is that of an identity."""
        return (self.policy is None or name not in self.policy.people) and _means(name, identity)

    def listed(self, names: Sequence[str]) -> list[str]:
        """Return the people that names mean, groups with their members."""
        found: dict[str, None] = {}
        for name in names:
            members = self.policy.members([name]) if self.policy is not None else ()
            found.update(dict.fromkeys(sorted(members) or [name]))
        return list(found)

    def unknown(self, names: Sequence[str]) -> list[str]:
        """Return the names that may be groups, and that no policy tells of."""
        known = {*self.policy.people, *self.policy.groups} if self.policy is not None else set()
        return [name for name in names if "@" not in name and name not in known]

    def must_sign(self, gate: Gate) -> bool:
        """Return whether an unsigned approval is none."""
        if gate.role.signed:
            return True
        return bool(self._rules(gate))

    def _rules(self, gate: Gate) -> tuple[Rule, ...]:
        """Return the rules of the policy about the answers of a gate's threads."""
        return (
            self.policy.rules_for("threads", gate.workflow, ("answers",)) if self.policy is not None else ()
        )

    def signature_problem(self, record: ApprovalRecord, gate: Gate | None) -> tuple[str, str]:
        """Return the code and reason for which a commit's signature doesn't let it count, COUNTS and "" if it does.
        Without a gate, only what is wrong anywhere."""
        signature, by = self.signature(record.commit), record.said.by
        if signature.state == BAD:
            return FORGED, f"its signature is bad: {by}"
        if signature.state == NONE:
            if gate is not None and self.must_sign(gate):
                return FORGED, f"{by} did not sign it, and approvals must be signed"
            return COUNTS, ""
        if self.policy is not None:
            return self._by_policy(record, signature, gate)
        if signature.state == GOOD and "@" in signature.signer and not _names(signature.signer, by.email):
            return FORGED, f"it is signed by {one_line(signature.signer, 80)}, not by {by}"
        if signature.state != GOOD and gate is not None and gate.role.signed:
            return UNJUDGED, f"nothing here says whose key {signature.key or 'it is signed with'} is"
        return COUNTS, ""

    def record_problem(self, record: ApprovalRecord) -> str:
        """Return why a record is not its person's, "" if it is."""
        return record_problem(record) or self.signature_problem(record, None)[1]

    def _by_policy(self, record: ApprovalRecord, signature: Signature, gate: Gate | None) -> tuple[str, str]:
        assert self.policy is not None
        by = record.said.by
        owners = (policy.key_of(signature) for policy in reversed(self._policies(record.time)))
        found = next((each for each in owners if each is not None), None)
        if found is None:
            return FORGED, f"it is signed by a key that the trust policy doesn't have, not by {by}"
        person, key = found
        if not self.person(by, signature, record.time):
            return FORGED, f"it is signed by {person}, not by {by}"
        if record.time < key.since or (key.end is not None and record.time >= key.end):
            return FORGED, f"the key of {person} did not count at {iso(record.time)}"
        for rule in self._rules(gate) if gate is not None else ():
            if rule.signers and person not in self.policy.members(rule.signers):
                return FORGED, f"the trust policy wants answers there signed by {', '.join(rule.signers)}"
        if key.end is not None and time.time() >= key.end:
            return (
                UNJUDGED,
                f"the key of {person} has ended since, and the approval may be younger than it says",
            )
        return COUNTS, ""


def _signer(policy: Policy, signature: Signature, identity: Identity) -> str | None:
    """Return the person of a policy whose key signed, if an identity is theirs. A key that has expired since counted
    then, if the policy says so."""
    owned = policy.key_of(signature) if signature.state in (GOOD, UNKNOWN, EXPIRED) else None
    if owned is None:
        return None
    emails = {each.casefold() for each in policy.people[owned[0]].emails}
    return owned[0] if not emails or identity.email.casefold() in emails else None


def _folded(identity: Identity) -> str:
    return identity.email.casefold() or identity.name


def _means(name: str, identity: Identity) -> bool:
    """Return whether an approver's name is a person's: an address, `NAME <ADDRESS>`, or the name in git."""
    if "<" in name:
        return name == str(identity)
    return name.casefold() == identity.email.casefold() if "@" in name else name == identity.name


def _names(signer: str, email: str) -> bool:
    return email.casefold() in signer.casefold()


def record_problem(record: ApprovalRecord) -> str:
    """Return why a commit is not by the person and of the time that its node says, "" if it is."""
    said = record.said
    if record.committer != ident(said):
        return f"it says {one_line(str(said.by), 80)}, and is committed by {one_line(record.committer, 80)}"
    if record.time != said.at:
        return f"it says {iso(said.at)}, and is committed at {iso(record.time)}"
    if isinstance(said, Approval) and said.digest != said.shown.digest:
        return "its digest is not that of its parts"
    return ""


def tally(
    gate: Gate, records: Sequence[ApprovalRecord], output: Callable[[Hash], Any], people: People
) -> Tally:
    """Return the state of a gate after some records. `output` returns an output's payload."""
    people.look(each.commit for each in records)
    authors = authors_among(gate, people)
    revoked = _revoked(records, people)
    judged: list[Judgement] = []
    taken_back: set[Hash] = set()
    for record in records:
        if not isinstance(record.said, Approval):
            continue
        code, why = _judge(gate, record, record.said, authors, people)
        if code == COUNTS and record.hash in revoked:
            taken_back.add(record.hash)
            code, why = STALE, f"{record.said.by} took it back at {iso(revoked[record.hash])}"
        signature = people.signature(record.commit)
        person = people.person(record.said.by, signature, record.time)
        judged.append(Judgement(record, person, signature, code, why))
    newest: dict[str, Judgement] = {}
    for each in sorted(judged, key=lambda each: each.record.order):
        if each.code == COUNTS:
            newest[each.person] = each
        elif each.record.hash in taken_back:  # which brings no earlier answer back
            newest.pop(each.person, None)
    judged = [
        each
        if each.code != COUNTS or newest.get(each.person) is each
        else each._replace(code=STALE, why=f"{each.said.by} answered anew")
        for each in judged
    ]
    sides: dict[bytes, list[Judgement]] = {}
    for each in newest.values():
        sides.setdefault(decision(gate.schema, output(each.said.output)), []).append(each)
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
        identity = identity_of(committer)
        signature = people.signature(oid) if people.policy is not None else _NO_SIGNATURE
        found |= {people.person(identity, signature), people.person(identity, _NO_SIGNATURE)} - {""}
    return found


def judge(gate: Gate, record: ApprovalRecord, said: Approval, people: People) -> tuple[str, str]:
    """Return the code and reason for which an approval doesn't count, whatever else was recorded; COUNTS and "" if it
    does."""
    people.look([record.commit])
    return _judge(gate, record, said, authors_among(gate, people), people)


def _judge(
    gate: Gate, record: ApprovalRecord, said: Approval, authors: set[str], people: People
) -> tuple[str, str]:
    if problem := record_problem(record):
        return FORGED, problem
    if (said.start, said.prev, said.role) != (gate.start, gate.prev, gate.role.name):
        return STALE, f"{said.by} approved at another step"
    if not _was_shown(said.shown.parts, gate.shown):
        return STALE, f"{said.by} was shown something else than this thread has there"
    code, why = people.signature_problem(record, gate)
    if code != COUNTS:
        return code, why
    person = people.person(said.by, people.signature(record.commit), record.time)
    if not people.is_among(person, said.by, gate.role.approvers, record.time):
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
    given = {each.hash: each for each in records if isinstance(each.said, Approval)}
    found: dict[Hash, int] = {}
    for record in records:
        if not isinstance(record.said, Revocation) or record_problem(record):
            continue
        approval = given.get(record.said.approval)
        if approval is None or people.signature_problem(record, None)[0] != COUNTS:
            continue
        if same_person(record, approval, people):
            found[approval.hash] = record.time
    return found


def same_person(one: ApprovalRecord, other: ApprovalRecord, people: People) -> bool:
    """Return whether one person made two records. What a known key signed is taken back with a key of the same
    person only."""
    first, second = people.signature(one.commit), people.signature(other.commit)
    if people.policy is not None and second.state != NONE and first.state == NONE:
        return False
    mine = people.person(one.said.by, first, one.time)
    theirs = people.person(other.said.by, second, other.time)
    return bool(mine) and mine == theirs


def identity_of(committer: str) -> Identity:
    """Return the identity of a commit's `NAME <ADDRESS>`."""
    name, _, rest = committer.rpartition(" <")
    return Identity(name, rest.removesuffix(">"))


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
    result = tally(gate, records, output, people)
    judged: dict[Hash, Judgement] = {}
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
        elif decision(gate.schema, output(found.said.output)) != wanted:
            problems.append((FORGED, f"{found.said.by} approved something else than the step's output"))
        else:
            counting.add(found.person)
    if len(counting) + unjudged < gate.role.quorum:
        needed = counted(gate.role.quorum, "approval")
        problems.append((MISSING, f"role {gate.role.name} needs {needed}, and {len(counting)} count"))
    return problems
