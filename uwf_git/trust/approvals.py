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
from uwf_git.trust.records import accepted_by
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
_VALID = (GOOD, UNKNOWN, EXPIRED)


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


class Judgement(NamedTuple):
    """The judgement of an approval. `person` is who gave it, "" if unknown; `code` is COUNTS, or that of a finding,
    and `why` its reason. `entry` is the approver that it counts for, "" if it is none's."""

    record: ApprovalRecord
    person: str
    signature: Signature
    code: str = COUNTS
    why: str = ""
    entry: str = ""

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
        self._accepted: set[Oid] | None = None

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
        if when is None or len(self._history(self.policy)) < 2:
            return (self.policy,)
        versions = self._history(self.policy)
        then = next((each for each in versions if each.time <= when), versions[-1]).policy
        return (self.policy,) if then.commit == self.policy.commit else (then, self.policy)

    def _history(self, policy: Policy) -> list[PolicyVersion]:
        if self._versions is None:
            from uwf_git.trust import policies

            self._versions = policies.history(self._repository, Oid(hex=policy.commit))
        return self._versions

    def owners(self, signature: Signature) -> set[str]:
        """Return the person whose key signed, under their names in all versions of the policy."""
        if self.policy is None or signature.state not in _VALID:
            return set()
        owned = (version.policy.key_of(signature) for version in self._history(self.policy))
        return {each[0] for each in owned if each is not None}

    def is_accepted(self, commit: Oid) -> bool:
        """Return whether the policy accepts a commit as it is, or one that stands on it."""
        if self.policy is None or not self.policy.accepted:
            return False
        if self._accepted is None:
            self._accepted = accepted_by(self.policy, self._repository)
        return commit in self._accepted

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

    def is_among(self, person: str, identity: Identity, names: Sequence[str]) -> bool:
        """Return whether a person is one of people, groups, and addresses."""
        return bool(self.entry(person, identity, names))

    def entry(self, person: str, identity: Identity, names: Sequence[str], when: int | None = None) -> str:
        """Return whom of people, groups, and addresses a person is, at a Unix time or now: their name in the policy,
        else the first of `names` that they match; "" if they match none."""
        policy = next(iter(self._policies(when)), None)
        known_names: set[str] = set()
        if policy is not None:
            if person in policy.members(names):
                return person
            known = policy.people.get(person)
            if known is not None:  # whose name and address are as the policy says, whatever git has
                emails = {each.casefold() for each in known.emails}
                return person if any(name.casefold() in emails for name in names) else ""
            known_names = {*policy.groups, *policy.people}
        return next((name for name in names if name not in known_names and _means(name, identity)), "")

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

    def must_sign(self, gate: Gate, by: Identity) -> bool:
        """Return whether an unsigned approval of somebody doesn't count."""
        return gate.role.signed or bool(self._rules(gate)) or self._has_key(by, None)

    def _has_key(self, by: Identity, when: int | None) -> bool:
        """Return whether the policy in force, now or at a Unix time, has a key of the person with an address."""
        policy = self.policy
        if policy is not None and when is not None:
            policy = next((each.policy for each in self._history(policy) if each.time <= when), None)
        person = policy.person_of(_NO_SIGNATURE, by.email) if policy is not None else None
        return policy is not None and person is not None and bool(policy.people[person].keys)

    def _rules(self, gate: Gate) -> tuple[Rule, ...]:
        """Return the rules of the policy about the answers of a gate's threads."""
        return (
            self.policy.rules_for("threads", gate.workflow, ("answers",)) if self.policy is not None else ()
        )

    def signature_problem(
        self, record: ApprovalRecord, gate: Gate | None, passed: bool = True
    ) -> tuple[str, str]:
        """Return the code and reason for which a commit's signature doesn't let it count, COUNTS and "" if it does.
        Without a gate, only what is wrong anywhere. What the policy accepts counts without its rules at a gate that
        is `passed`."""
        signature, by = self.signature(record.commit), record.said.by
        if signature.state == BAD:
            return FORGED, f"its signature is bad: {by}"
        if signature.state == NONE:
            if gate is None or (not gate.role.signed and passed and self.is_accepted(record.commit)):
                return COUNTS, ""
            if gate.role.signed or self._rules(gate):
                return FORGED, f"{by} did not sign it, and approvals must be signed"
            if self._has_key(by, record.time if passed else None):
                return FORGED, f"{by} did not sign it, and has a key in the trust policy"
            return COUNTS, ""
        if self.policy is not None:
            return self._by_policy(record, signature, gate, passed)
        if signature.state == GOOD and not _signs_for(signature.signer, by, gate):
            return FORGED, f"it is signed by {one_line(signature.signer, 80)}, not by {by}"
        if signature.state != GOOD and gate is not None and gate.role.signed:
            return UNJUDGED, f"nothing here says whose key {signature.key or 'it is signed with'} is"
        return COUNTS, ""

    def record_problem(self, record: ApprovalRecord) -> str:
        """Return why a record is not its person's, "" if it is."""
        return record_problem(record) or self.signature_problem(record, None)[1]

    def _by_policy(
        self, record: ApprovalRecord, signature: Signature, gate: Gate | None, passed: bool
    ) -> tuple[str, str]:
        assert self.policy is not None
        by, when = record.said.by, record.time if passed else None
        owners = (policy.key_of(signature) for policy in reversed(self._policies(when)))
        found = next((each for each in owners if each is not None), None)
        if found is None:
            return FORGED, f"it is signed by a key that the trust policy doesn't have, not by {by}"
        person, key = found
        if not self.person(by, signature, when):
            return FORGED, f"it is signed by {person}, not by {by}"
        if record.time < key.since or (key.end is not None and record.time >= key.end):
            return FORGED, f"the key of {person} did not count at {iso(record.time)}"
        accepted = passed and self.is_accepted(record.commit)
        for rule in self._rules(gate) if gate is not None and not accepted else ():
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
    owned = policy.key_of(signature) if signature.state in _VALID else None
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


def _signs_for(signer: str, by: Identity, gate: Gate | None) -> bool:
    """Return whether a good signature's signer, as git calls them, is an identity: by the address, or, for an
    approver that is a mere name, by that."""
    address = signer.rpartition("<")[2].removesuffix(">")
    if "@" in address:
        return address.casefold() == by.email.casefold()
    if gate is None or not gate.role.signed:
        return not signer or signer == by.name
    return signer == by.name and signer in gate.role.approvers


def record_problem(record: ApprovalRecord) -> str:
    """Return why a commit is not by the person and of the time that its node says, "" if it is."""
    said = record.said
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
    judged: list[Judgement] = []
    taken_back: set[Hash] = set()
    for record in records:
        if not isinstance(record.said, Approval):
            continue
        code, why = _judge(gate, record, record.said, authors, people, passed)
        if code == COUNTS and record.hash in revoked:
            taken_back.add(record.hash)
            code, why = STALE, f"{record.said.by} took it back at {iso(revoked[record.hash])}"
        signature = people.signature(record.commit)
        by, when = record.said.by, record.time if passed else None
        person = people.person(by, signature, when)
        entry = people.entry(person, by, gate.role.approvers, when)
        judged.append(Judgement(record, person, signature, code, why, entry))
    newest: dict[str, Judgement] = {}
    for each in sorted(judged, key=lambda each: each.record.order):
        if each.code == COUNTS:
            newest[each.entry] = each
        elif each.record.hash in taken_back:  # which brings no earlier answer back
            newest.pop(each.entry, None)
    judged = [
        each
        if each.code != COUNTS or newest.get(each.entry) is each
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
        found.add(people.person(identity_of(committer), _NO_SIGNATURE))
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
    code, why = people.signature_problem(record, gate, passed)
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
    result = tally(gate, records, output, people, passed=True)
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
            counting.add(found.entry)
    if len(counting) + unjudged < gate.role.quorum:
        needed = counted(gate.role.quorum, "approval")
        problems.append((MISSING, f"role {gate.role.name} needs {needed}, and {len(counting)} count"))
    return problems
