"""Judging records by a policy: met, unmet with the reason, or not provable.

A signature counts if it is valid and its key belongs, by the policy, to a person whom the rule names. The committer or
tagger may not have the address of another person of the policy. The times of a key need care, since the date of a
commit is a claim of its maker:

- before `from`, and from `until` or `revoked` on, a signature doesn't count.
- Until then it counts, as long as the key's end has not come.
- Once it has come, the date proves nothing: a thief of the key can write an old one. The signature counts if it is
  provably older than the end: this store saw it, or a record that stands on it, before the end; or another person
  vouches for it. Otherwise it is `not provable`.
- Another person vouches by a record that counts, stands on it and is dated before the end, signed with a key that has
  not ended and that the policy had at that date. Two people who act together can still write an old date.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import ClassVar, NamedTuple

from uwf_git.base.text import one_line
from uwf_git.git.repository import Oid
from uwf_git.git.sqlite_cache import SqliteCache
from uwf_git.store import layout
from uwf_git.store.index import Overlay
from uwf_git.store.indexing import Store
from uwf_git.store.instance import Instance
from uwf_git.trust import policies
from uwf_git.trust.policy import OF_THREADS, SSH, SUBJECTS, Key, Policy, Rule
from uwf_git.trust.records import Record, accepted_by, records
from uwf_git.trust.signatures import (
    BAD,
    EXPIRED,
    GOOD,
    NONE,
    REVOKED,
    UNKNOWN,
    UNSIGNED,
    Signature,
    SignatureReader,
)

_STORE = ""  # in proofs: this store, not a person

_UNPROVED = "may be younger than it says: no forgery is known, but nothing here shows its age"

Proofs = dict[str, float]
"""Times before which a record was made, by the person who vouches for it; `_STORE` is this store."""

MET, UNMET, NOT_PROVABLE = "met", "requirement-unmet", "not-provable"
"""Outcomes; all but the first are codes of findings."""


class SeenSignature(NamedTuple):
    """A valid signature: the fingerprints of its key and primary key, and the Unix time since when it is known
    here. Without a fingerprint it is to be verified again: another version of the table carried its time only."""

    fingerprint: str
    primary: str
    since: int


class SeenSignatures(SqliteCache):
    """The valid signatures that this store has seen, in `<git dir>/uwf/signatures.db`. They stay valid, so each is
    verified once; the time shows that it is older than the end of its key. If the file is lost, they are verified
    again."""

    version: ClassVar[int] = 2
    tables: ClassVar[str] = """
        CREATE TABLE seen (
            oid BLOB PRIMARY KEY, fingerprint TEXT NOT NULL, main TEXT NOT NULL, since INTEGER NOT NULL
        ) WITHOUT ROWID
    """

    def __init__(self, private: Path) -> None:
        super().__init__(private / "signatures.db")

    def get(self, objects: Sequence[Oid]) -> dict[Oid, SeenSignature]:
        signatures = {}
        for oid in objects:
            if row := self._run("SELECT fingerprint, main, since FROM seen WHERE oid = ?", (oid.raw,)):
                signatures[oid] = SeenSignature(*row[0])
        return signatures

    def add(self, signatures: Mapping[Oid, SeenSignature]) -> None:
        rows = [(oid.raw, *signature) for oid, signature in signatures.items()]
        if rows:
            with self.transaction():
                for row in rows:
                    self._run(
                        "INSERT INTO seen VALUES (?, ?, ?, ?) ON CONFLICT (oid) DO UPDATE"
                        " SET fingerprint = excluded.fingerprint, main = excluded.main",
                        row,
                    )

    def _carried(self, db: sqlite3.Connection) -> Mapping[str, bytes]:
        try:
            rows = db.execute("SELECT oid, since FROM seen").fetchall()
        except sqlite3.Error:
            return {}
        return {bytes(oid).hex(): str(since).encode() for oid, since in rows}

    def _carry(self, db: sqlite3.Connection, carried: Mapping[str, bytes]) -> None:
        rows = [(bytes.fromhex(oid), int(since)) for oid, since in carried.items()]
        db.executemany("INSERT OR IGNORE INTO seen VALUES (?, '', '', ?)", rows)


class Judgement(NamedTuple):
    """The outcome for a record that rules apply to. `reason` is a sentence, "" if it is met; `person` the name of
    the signer, "" if unknown."""

    record: Record
    outcome: str
    reason: str
    person: str = ""


class Requirements:
    """The requirements of a policy for a store's records. With `read`, every signature is verified again, by that;
    else those seen here are known."""

    def __init__(
        self, store: Store, policy: Policy, now: float | None = None, read: SignatureReader | None = None
    ) -> None:
        self._store = store
        self._repository = store.repository
        self.policy = policy
        self._now = time.time() if now is None else now
        self._fresh = read is not None
        self._read = read or SignatureReader(store.repository, policy.allowed_signers())

    def judge(
        self, refs: Mapping[str, Oid], is_known: Callable[[Oid], bool] = lambda _: False
    ) -> list[Judgement]:
        """Return the judgements of all records under rules that refs lead to, oldest first, without known ones and
        those below. Signatures are verified by git with the policy's keys."""
        accepted = self._accepted
        records_here = records(self._store, refs, lambda oid: oid in accepted or is_known(oid))
        rules = {
            item.object: self.policy.rules_for(item.subject, item.name, item.of) for item in records_here
        }
        # Records without a rule may prove the age of those that they stand on.
        wanted = [item.object for item in records_here if item.signed] if any(rules.values()) else []
        verified, seen = self._verified(wanted)
        proofs: dict[Oid, Proofs] = {}
        judged = []
        for record in _above_first(records_here):
            standing = proofs.pop(record.object, {})
            signature = verified.get(record.object, UNSIGNED)
            outcome, reason, person = self._of(record, signature, standing, seen)
            if self._has_ended_keys:
                if record.object in seen:
                    _add(standing, {_STORE: seen[record.object].since})
                if outcome == MET and self._vouches(record, signature):
                    _add(standing, {person: record.time})
                for below in record.below:
                    _add(proofs.setdefault(below, {}), standing)
            for rule in rules[record.object]:
                if outcome == MET and rule.signers and person not in self.policy.members(rule.signers):
                    outcome, reason = UNMET, f"signed by {person}, and not by {' or '.join(rule.signers)}"
            if rules[record.object]:
                judged.append(
                    Judgement(record, outcome, f"{record.word} is {reason}" if reason else "", person)
                )
        return judged[::-1]

    @cached_property
    def _accepted(self) -> set[Oid]:
        return accepted_by(self.policy, self._repository)

    @cached_property
    def _has_ended_keys(self) -> bool:
        return any(self._has_ended(key) for person in self.policy.people.values() for key in person.keys)

    def _has_ended(self, key: Key) -> bool:
        return key.end is not None and self._now >= key.end

    @cached_property
    def _entered(self) -> dict[tuple[str, str], int]:
        """The times of the first stored policies that name the keys, by person and fingerprint."""
        commit = self.policy.commit
        tip = Oid(hex=commit) if commit else policies.in_force(self._repository)
        times: dict[tuple[str, str], int] = {}
        for version in reversed(policies.history(self._repository, tip) if tip is not None else []):
            for person in version.policy.people.values():
                for key in person.keys:
                    times.setdefault((person.name, key.fingerprint), version.time)
        return times

    def _vouches(self, record: Record, signature: Signature) -> bool:
        """Return whether the date of a record that counts proves the age of those below, if others signed them."""
        owned = self.policy.key_of(signature)
        if owned is None or self._has_ended(owned[1]) or signature.state in (EXPIRED, REVOKED):
            return False
        entered = self._entered.get((owned[0], owned[1].fingerprint))
        return entered is not None and record.time >= entered

    def _of(
        self,
        record: Record,
        signature: Signature,
        proofs: Proofs,
        seen: Mapping[Oid, SeenSignature],
    ) -> tuple[str, str, str]:
        """Return the outcome as to signature and key, the reason and the signer."""
        if signature.state in (NONE, BAD):
            reason = "not signed" if signature.state == NONE else "signed, but the signature is bad"
            return UNMET, reason, ""
        owned = self.policy.key_of(signature)
        if owned is None:
            by = signature.fingerprint or signature.key
            named = f"key {by}, which is not in the policy" if by else "a key that git doesn't know"
            return UNMET, f"signed with {named}", ""
        person, key = owned
        if key.kind == SSH and signature.state != GOOD:
            return UNMET, "signed with a key that git doesn't know", ""
        if self.policy.has_address_of_another(record.maker, person):
            return UNMET, f"signed by {person}, and committed as {one_line(record.maker, 100)}", person
        since = seen[record.object].since if record.object in seen else None
        if record.time < key.since:
            return UNMET, f"signed by {person} before the key was valid", person
        word = "revoked" if key.revoked is not None and key.revoked == key.end else "expired"
        if key.end is not None and record.time >= key.end:
            return UNMET, f"signed by {person} with a key that was {word}", person
        if key.end is not None and self._has_ended(key):
            times = [at for by, at in proofs.items() if by != person] + ([since] if since is not None else [])
            if not any(at < key.end for at in times):
                reason = f"signed by {person} with a key that is {word}, and {_UNPROVED}"
                return NOT_PROVABLE, reason, person
        elif signature.state in (EXPIRED, REVOKED) and since is None:
            word = "revoked" if signature.state == REVOKED else "expired"
            reason = f"signed by {person} with a key that is {word} by now, and {_UNPROVED}"
            return NOT_PROVABLE, reason, person
        return MET, "", person

    def _verified(self, objects: Sequence[Oid]) -> tuple[dict[Oid, Signature], dict[Oid, SeenSignature]]:
        if not objects:
            return {}, {}
        cache = SeenSignatures(self._repository.private)
        try:
            seen = cache.get(objects)
            read = {
                oid: Signature(GOOD, "", signature.fingerprint, signature.fingerprint, signature.primary)
                for oid, signature in ({} if self._fresh else seen).items()
                if signature.fingerprint
            }
            missing = [oid for oid in objects if oid not in read]
            new = self._read(missing)
            read |= new
            cache.add(
                {
                    oid: SeenSignature(signature.fingerprint, signature.primary, int(self._now))
                    for oid, signature in new.items()
                    if (oid not in seen or not seen[oid].fingerprint)
                    and signature.fingerprint
                    and signature.state in (GOOD, UNKNOWN)
                }
            )
        finally:
            cache.close()
        return read, seen


def note_signatures(instance: Instance, refs: Mapping[str, Oid]) -> None:
    """Record that this store has seen the valid signatures of all records that refs lead to, which proves their age
    once a key ends. Each is verified once."""
    if (policy := policies.current(instance)) is None:
        return
    store = Store(instance.store.repository, Overlay(instance.store.index))
    cache = SeenSignatures(instance.store.repository.private)
    try:
        wanted = {name: oid for name, oid in refs.items() if name != layout.POLICY}
        Requirements(store, with_rule(policy)).judge(wanted, lambda oid: bool(cache.get([oid])))
    finally:
        cache.close()


def unmet_tips(instance: Instance, policy: Policy) -> list[str]:
    """Return the commits and tags of a store's refs that lead to records which don't meet a policy, sorted."""
    repository = instance.store.repository
    refs = repository.refs(without=layout.REMOTES)
    shared = {ref: oid for ref, oid in refs.items() if not layout.is_local_ref(ref)}
    store = Store(repository, Overlay(instance.store.index))
    judged = Requirements(store, policy).judge(shared)
    return sorted({str(shared[judgement.record.ref]) for judgement in judged if judgement.outcome != MET})


def requirements(store: Store) -> Requirements | None:
    """Return what the policy of a store requires, None without a policy or rules. The store's index must know what
    is judged, or may get to know it."""
    policy = policies.current(store.repository)
    return Requirements(store, policy) if policy is not None and policy.rules else None


def with_rule(policy: Policy, signers: Iterable[str] = ()) -> Policy:
    """Return a policy with one rule: all records are signed, by one of these people and groups if there are any."""
    of = {"threads": frozenset(OF_THREADS)}
    rules = [Rule(subject, ("*",), of.get(subject, frozenset()), tuple(signers)) for subject in SUBJECTS]
    return policy._replace(rules=tuple(rules))


def judge_by_git(
    store: Store, refs: Mapping[str, Oid], read: SignatureReader, signers: Sequence[str] = ()
) -> list[Judgement]:
    """Return the judgements of all records by the user's own keys and trust, without a policy: a signature must be
    good, and its signer or address one of these, if there are any."""
    records_here = records(store, refs)[::-1]
    verified = read([record.object for record in records_here if record.signed])
    return [_by_git(record, verified.get(record.object, UNSIGNED), signers) for record in records_here]


def _by_git(record: Record, signature: Signature, signers: Sequence[str]) -> Judgement:
    who = signature.signer
    names = {who, who.rpartition("<")[2].rstrip(">")} - {""}
    if signature.state == GOOD and (not signers or names & set(signers)):
        return Judgement(record, MET, "", who)
    if signature.state == GOOD:
        reason = f"signed by {who}, and not by {' or '.join(signers)}"
    elif signature.state == NONE:
        reason = "not signed"
    else:
        reason = f"signed, but git calls the signature {signature.state}"
    return Judgement(record, UNMET, f"{record.word} is {reason}", who)


def _add(proofs: Proofs, more: Proofs) -> None:
    for by, at in more.items():
        proofs[by] = min(proofs.get(by, at), at)


def _above_first(records: Sequence[Record]) -> list[Record]:
    """Return records so that each comes before those that it stands on."""
    known = {entry.object: entry for entry in records}
    missing = dict.fromkeys(known, 0)
    for item in records:
        for below in item.below:
            if below in missing:
                missing[below] += 1
    ready = [entry for entry in records if not missing[entry.object]]
    ordered = []
    while ready:
        record = ready.pop()
        ordered.append(record)
        for below in record.below:
            if below in missing:
                missing[below] -= 1
                if not missing[below]:
                    ready.append(known[below])
    return ordered
