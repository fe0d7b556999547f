"""Who people are, in a repository with a trust policy or without."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING

from uwf_git.base.errors import SigningFailed
from uwf_git.format.kinds import Identity
from uwf_git.git.objects import is_signed
from uwf_git.git.repository import Oid, Repository
from uwf_git.trust.signatures import EXPIRED, GOOD, NONE, UNKNOWN, UNSIGNED, Signature, signatures

if TYPE_CHECKING:
    from uwf_git.trust.policies import PolicyVersion
    from uwf_git.trust.policy import Policy

_VALID = (GOOD, UNKNOWN, EXPIRED)


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

    def person(self, identity: Identity, signature: Signature = UNSIGNED, when: int | None = None) -> str:
        """Return who made a commit at a Unix time: the name of a person of the policy, else an address. "" if the
        signature is not one of that person's."""
        policies = self.policies_at(when)
        if not policies:
            return _folded(identity)
        for policy in policies:
            if signature.state == NONE:
                name = policy.person_of(signature, identity.email)
            else:
                name = _signer(policy, signature, identity)
            if name is not None:
                return name
        return _folded(identity) if signature.state == NONE else ""

    def policies_at(self, when: int | None) -> tuple[Policy, ...]:
        """Return the policy, and before it the one that was in force at a time, if that is another."""
        if self.policy is None:
            return ()
        if when is None or len(self._history) < 2:
            return (self.policy,)
        versions = self._history
        then = next((version for version in versions if version.time <= when), versions[-1]).policy
        return (self.policy,) if then.commit == self.policy.commit else (then, self.policy)

    @cached_property
    def _history(self) -> list[PolicyVersion]:
        """The versions of the policy, newest first."""
        from uwf_git.trust import policies

        tip = self.policy.commit if self.policy is not None else ""
        return policies.history(self._repository, Oid(hex=tip)) if tip else []

    def owners(self, signature: Signature) -> set[str]:
        """Return the person whose key signed, under their names in all versions of the policy."""
        if self.policy is None or signature.state not in _VALID:
            return set()
        owned = (version.policy.key_of(signature) for version in self._history)
        return {item[0] for item in owned if item is not None}

    def is_accepted(self, commit: Oid) -> bool:
        """Return whether the policy accepts a commit as it is, or one that stands on it."""
        return commit in self._accepted

    @cached_property
    def _accepted(self) -> set[Oid]:
        from uwf_git.trust.records import accepted_by

        return accepted_by(self.policy, self._repository) if self.policy is not None else set()

    def me(self) -> tuple[str, Identity]:
        """Return the user: the person of the policy whose key signs here, else by git's identity."""
        from uwf_git.trust.own_key import own_key

        user = self._repository.user
        identity = Identity(user.name, user.email)
        name = None
        if self.policy is not None:
            with suppress(SigningFailed):  # there is none
                name = own_key(self._repository).owner(self.policy)
        return name or self.person(identity), identity

    def named(self, name: str) -> tuple[str, Identity]:
        """Return a person by the name in the policy, an address, `NAME <ADDRESS>`, or the name in git."""
        if self.policy is not None and name in self.policy.people:
            emails = self.policy.people[name].emails
            return name, Identity(name, emails[0] if emails else "")
        identity = (
            identity_of(name) if "<" in name else Identity("", name) if "@" in name else Identity(name, "")
        )
        return self.person(identity), identity

    def is_among(self, person: str, identity: Identity, names: Sequence[str]) -> bool:
        """Return whether a person is one of people, groups, and addresses."""
        return bool(self.entry(person, identity, names))

    def entry(self, person: str, identity: Identity, names: Sequence[str], when: int | None = None) -> str:
        """Return whom of people, groups, and addresses a person is, at a Unix time or now: their name in the policy,
        else the first of `names` that they match; "" if they match none."""
        policy = next(iter(self.policies_at(when)), None)
        known_names: set[str] = set()
        if policy is not None:
            if person in policy.members(names):
                return person
            known = policy.people.get(person)
            if known is not None:  # whose name and address are as the policy says, whatever git has
                emails = {email.casefold() for email in known.emails}
                return person if any(name.casefold() in emails for name in names) else ""
            known_names = {*policy.groups, *policy.people}
        return next((name for name in names if name not in known_names and _means(name, identity)), "")

    def is_named(self, name: str, identity: Identity) -> bool:
        """Return whether an approver's name that no policy tells of is that of an identity."""
        return (self.policy is None or name not in self.policy.people) and _means(name, identity)

    def listed(self, names: Sequence[str]) -> list[str]:
        """Return the people that names mean, groups with their members."""
        everyone: dict[str, None] = {}
        for name in names:
            members = self.policy.members([name]) if self.policy is not None else ()
            everyone.update(dict.fromkeys(sorted(members) or [name]))
        return list(everyone)

    def unknown(self, names: Sequence[str]) -> list[str]:
        """Return the names that may be groups, and that no policy tells of."""
        known = {*self.policy.people, *self.policy.groups} if self.policy is not None else set()
        return [name for name in names if "@" not in name and name not in known]

    def has_key(self, by: Identity, when: int | None = None) -> bool:
        """Return whether the policy in force, now or at a Unix time, has a key of the person with an address."""
        policy = self.policy
        if policy is not None and when is not None:
            policy = next((version.policy for version in self._history if version.time <= when), None)
        person = policy.person_of(UNSIGNED, by.email) if policy is not None else None
        return policy is not None and person is not None and bool(policy.people[person].keys)


def _signer(policy: Policy, signature: Signature, identity: Identity) -> str | None:
    """Return the person of a policy whose key signed, if an identity is theirs. A key that has expired since counted
    then, if the policy says so."""
    owned = policy.key_of(signature) if signature.state in _VALID else None
    if owned is None:
        return None
    emails = {email.casefold() for email in policy.people[owned[0]].emails}
    return owned[0] if not emails or identity.email.casefold() in emails else None


def _folded(identity: Identity) -> str:
    return identity.email.casefold() or identity.name


def _means(name: str, identity: Identity) -> bool:
    """Return whether an approver's name is a person's: an address, `NAME <ADDRESS>`, or the name in git."""
    if "<" in name:
        return name == str(identity)
    return name.casefold() == identity.email.casefold() if "@" in name else name == identity.name


def identity_of(committer: str) -> Identity:
    """Return the identity of a commit's `NAME <ADDRESS>`."""
    name, _, rest = committer.rpartition(" <")
    return Identity(name, rest.removesuffix(">"))
