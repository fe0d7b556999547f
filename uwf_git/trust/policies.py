"""The policy of a store and its history: `refs/uwf/trust/policy`, a chain of commits.

    trust.yaml   the trust file, as its author wrote it
    README.md    its page

The first policy is trusted on first use, and remembered. Each later one stands on the one before and is signed by
a maintainer whom that one names. A ref that leads anywhere else is not followed: the policy in force stays.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import NamedTuple

from uwf_git.base.errors import Invalid, StoreDamaged, StoreUnwritable, UwfError
from uwf_git.base.text import one_line
from uwf_git.format.document import MAX_BYTES
from uwf_git.git.objects import BLOB_MODE, LATEST
from uwf_git.git.repository import Oid, Repository
from uwf_git.store import layout
from uwf_git.store.instance import Instance
from uwf_git.store.private_files import read_private, write_private
from uwf_git.store.version_files import VersionFiles, entries
from uwf_git.trust.policy import FILE, Policy, page, parse

NOT_SIGNED, REPLACED, INVALID, WRONG_PAGE = (
    "policy-not-signed",
    "policy-replaced",
    "invalid-policy",
    "wrong-page",
)
_PAGE = "README.md"
_LONGEST = 10_000  # versions
_SUBJECT = "trust policy"
_pushed: ContextVar[Oid | None] = ContextVar("pushed", default=None)


class Problem(NamedTuple):
    """Why a policy is not followed. `code` is that of a finding, `at` the commit."""

    code: str
    message: str
    at: Oid


class PolicyVersion(NamedTuple):
    """A version of the policy, with the Unix time that its signer says."""

    commit: Oid
    policy: Policy
    time: int


class Remembered(NamedTuple):
    """A store's memory of the policy that it follows: the first and the newest commit, and by remote the one last
    seen there."""

    first: Oid
    newest: Oid
    shared: Mapping[str, Oid] = {}


def current(store: Instance | Repository) -> Policy | None:
    """Return the newest valid policy of a store, None if it has none. A ref that was moved to anything but a
    valid successor is not followed, nor is its absence."""
    repository = store.store.repository if isinstance(store, Instance) else store
    if (pushed := _pushed.get()) is not None:
        return read(repository, pushed)
    ref = repository.ref(layout.POLICY)
    known = remembered(repository)
    if ref is None and known is None:
        return None
    if ref is not None and (known is None or ref != known.newest) and not problems(repository, ref):
        with suppress(StoreUnwritable):  # looked at again next time
            remember(repository, ref)
        return read(repository, ref)
    return read(repository, known.newest) if known is not None else None


@contextmanager
def as_pushed(commit: Oid | None) -> Iterator[None]:
    """Follow a policy that a push brings, which `problems` has admitted, before its ref is moved; None follows the one
    in force."""
    token = _pushed.set(commit)
    try:
        yield
    finally:
        _pushed.reset(token)


def in_force(repository: Repository) -> Oid | None:
    """Return the commit of the policy that a store follows."""
    policy = current(repository)
    return Oid(hex=policy.commit) if policy is not None else None


def remembered(repository: Repository) -> Remembered | None:
    """Return what this store remembers of its policy, None if it never had one."""
    try:
        first, *lines = read_private(repository.private / "policy").decode("utf-8").splitlines()
        begin, newest = map(_oid, first.split(" "))
        rows = [line.rsplit(" ", 1) for line in lines]
        return Remembered(begin, newest, {remote: _oid(oid) for remote, oid in rows})
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        where = repository.private / "policy"
        raise StoreDamaged(
            f"{where} cannot be read: {error}",
            "it says which trust policy is followed: restore it, or delete it",
        ) from None


def remember(repository: Repository, commit: Oid, remote: str | None = None) -> Remembered:
    """Note that a store follows a policy from now on, which a remote has. Raises StoreUnwritable."""
    known = remembered(repository)
    shared = dict(known.shared) if known is not None else {}
    if remote is not None:
        shared[remote] = commit
    memory = Remembered(lineage(repository, commit)[-1], commit, shared)
    lines = [f"{memory.first} {memory.newest}", *(f"{name} {oid}" for name, oid in sorted(shared.items()))]
    write_private(repository.private / "policy", "\n".join(lines).encode() + b"\n", synced=True)
    return memory


def problem_there(repository: Repository, remote: str, refs: Mapping[str, Oid | None]) -> str:
    """Return why the policy among a remote's refs is less than what was seen there, "" if it is not: deleted, or rolled
    back. A policy that was never seen there is no problem."""
    known = remembered(repository)
    if known is None or remote not in known.shared:
        return ""
    tip = refs.get(layout.POLICY)
    if tip is None:
        return "the trust policy was deleted there, and new clones have none: push yours"
    seen = known.shared[remote]
    if seen != tip and tip in lineage(repository, seen):
        return f"the trust policy was rolled back there, to {str(tip)[:10]}"
    return ""


def _oid(text: str) -> Oid:
    if len(text) != 40:
        raise ValueError(f"{one_line(text, 60)!r} is not an object id")
    return Oid(hex=text)


def read(repository: Repository, commit: Oid) -> Policy:
    """Return a version's policy. Raises Invalid, NotFound, StoreDamaged."""
    tree = repository.commit(commit).tree
    text = VersionFiles(repository, tree, f"policy {commit}").read(FILE)
    return parse(text, FILE, str(commit))


def text_of(repository: Repository, commit: Oid) -> bytes:
    """Return a version's trust file, as written. Raises Invalid, NotFound, StoreDamaged."""
    return VersionFiles(repository, repository.commit(commit).tree, f"policy {commit}").read(FILE)


def history(repository: Repository, tip: Oid) -> list[PolicyVersion]:
    """Return the versions up to a valid one, newest first. No signature is verified again."""
    return [
        PolicyVersion(oid, read(repository, oid), repository.commit(oid).time)
        for oid in lineage(repository, tip)
    ]


def signer_of(repository: Repository, commit: Oid) -> str:
    """Return the person who signed a valid version, as the one before names them, or the first one itself. Starts
    git."""
    from uwf_git.trust.signatures import signatures

    parents = repository.commit(commit).parents
    judge = read(repository, parents[0] if parents else commit)
    owned = judge.key_of(signatures(repository, [commit], judge.allowed_signers())[commit])
    return owned[0] if owned else ""


def problems(repository: Repository, tip: Oid, now: float | None = None) -> list[Problem]:
    """Return why a store does not follow a commit as its policy, none if it does. It goes on to a successor of the
    one in force, or of the last that a remote had, if the one in force was not shared. A remote may also be behind.
    Without any policy so far, the whole chain must be valid."""
    known = remembered(repository)
    if known is not None and known.newest == tip:
        return []
    try:
        theirs = lineage(repository, tip)
        ours = lineage(repository, known.newest) if known is not None else []
    except UwfError as error:
        return [Problem(INVALID, error.message, tip)]
    if known is None:
        return list(_found(repository, theirs[::-1], None, now))
    if tip in ours and tip != repository.ref(layout.POLICY):
        return []
    shared = set(known.shared.values())
    base = next((oid for oid in ours if oid in shared), known.newest) if shared else known.newest
    if tip in ours or base not in theirs:
        what = (
            "was rolled back to an older one"
            if tip in ours
            else "was replaced by one that doesn't stand on it"
        )
        return [Problem(REPLACED, f"the trust policy {str(known.newest)[:10]} {what}, {str(tip)[:10]}", tip)]
    return list(_found(repository, theirs[: theirs.index(base)][::-1], base, now))


def _found(
    repository: Repository, chain: list[Oid], before: Oid | None, now: float | None
) -> Iterator[Problem]:
    from uwf_git.trust.signatures import signatures

    last: Policy | None = None
    try:
        last = read(repository, before) if before is not None else None
    except UwfError as error:
        assert before is not None
        yield Problem(INVALID, error.message, before)
        return
    earliest = repository.commit(before).time if before is not None else 0
    for place, oid in enumerate(chain):
        commit = repository.commit(oid)
        try:
            policy = read(repository, oid)
            yield from _misshapen(repository, oid, policy)
        except UwfError as error:
            yield Problem(INVALID, error.message, oid)
            return
        judge = last or policy
        signature = signatures(repository, [oid], judge.allowed_signers())[oid]
        owned = judge.key_of(signature) if signature.state not in ("none", "bad") else None
        if owned is None or owned[0] not in judge.members(judge.maintainers):
            named = "it names" if last is None else "the one before names"
            phrase = f"is signed by {owned[0]}, who is not a maintainer that {named}" if owned else ""
            phrase = phrase or _UNSIGNED.get(
                signature.state, f"is signed with a key of no maintainer that {named}"
            )
            yield Problem(NOT_SIGNED, f"policy {str(oid)[:10]} {phrase}", oid)
            return
        person, key = owned
        wrong = ""
        if not 0 <= commit.time <= LATEST:
            yield Problem(INVALID, f"policy {str(oid)[:10]} has a time that no clock shows", oid)
            return
        if commit.time < key.since or (key.end is not None and commit.time >= key.end):
            wrong = "at that time"
        elif commit.time < earliest:
            wrong = "before the version that it stands on"
        elif before is not None and place == len(chain) - 1:
            # A date is a claim: who changes a policy that is in force has a key that is valid now.
            at = time.time() if now is None else now
            wrong = "any more" if key.end is not None and at >= key.end else ""
        if wrong:
            what = "no key that counts" if "before" not in wrong else "a time"
            yield Problem(
                NOT_SIGNED, f"policy {str(oid)[:10]} is signed by {person} with {what} {wrong}", oid
            )
            return
        last, earliest = policy, commit.time


_UNSIGNED = {"none": "is not signed", "bad": "has a bad signature"}


def _misshapen(repository: Repository, oid: Oid, policy: Policy) -> Iterator[Problem]:
    commit = repository.commit(oid)
    listed = {entry.name: entry for entry in entries(repository, commit.tree, f"policy {oid}")}
    for name, entry in listed.items():
        if name not in (FILE, _PAGE) or entry.mode != BLOB_MODE:
            yield Problem(INVALID, f"{one_line(name, 60)} does not belong to a policy", oid)
    shown = listed.get(_PAGE)
    if shown is None or repository.read_within(shown.oid, 4 * MAX_BYTES)[1] != page(policy):
        yield Problem(WRONG_PAGE, f"the page of policy {str(oid)[:10]} is not what its trust file says", oid)


def leads_to(repository: Repository, tip: Oid, commit: Oid) -> bool:
    """Return whether a version stands on another, or is it."""
    return commit in lineage(repository, tip)


def lineage(repository: Repository, tip: Oid) -> list[Oid]:
    """Return a chain's commits, newest first. Raises Invalid, StoreDamaged."""
    oids = [tip]
    while True:
        parents = repository.commit(oids[-1]).parents
        if not parents:
            return oids
        if len(parents) > 1:
            raise Invalid(f"policy {oids[-1]} has {len(parents)} parents, which a policy has not")
        if len(oids) >= _LONGEST:
            raise Invalid(f"policy {tip} stands on more than {_LONGEST} versions")
        oids.append(parents[0])


def write(instance: Instance, text: bytes, file: str = FILE) -> Oid:
    """Make a text the policy, signed by the user, who must be a maintainer, and return its commit. Moves
    `refs/uwf/trust/policy`. Raises InvalidPolicy, InvalidYaml, Invalid if no maintainer has a valid key,
    RequirementUnmet, SigningFailed, HeadMoved."""
    from uwf_git.base.errors import RequirementUnmet

    repository = instance.store.repository
    policy = parse(text, file)
    instance.store.gate(text, file, "the policy")
    now = time.time()
    maintaining = [key for name in policy.members(policy.maintainers) for key in policy.people[name].keys]
    if not any(key.since <= now and (key.end is None or now < key.end) for key in maintaining):
        raise Invalid("no maintainer has a key that is valid now", "nobody could change the policy again")
    before = in_force(repository)
    ref = repository.ref(layout.POLICY)
    files: dict[str, bytes | Oid] = {FILE: text, _PAGE: page(policy)}
    tree = repository.write_folder(files)
    if before is not None and repository.commit(before).tree == tree:
        return before
    parents = [before] if before is not None else []
    commit = repository.write_signed_commit(tree, parents, f"{_SUBJECT}\n")
    if problems_here := problems(repository, commit):
        hint = "sign with a key that the policy lists for a maintainer: git config user.signingKey"
        raise RequirementUnmet(problems_here[0].message, hint)
    repository.put_ref(layout.POLICY, ref, commit)
    instance.store.sync()
    remember(repository, commit)
    return commit
