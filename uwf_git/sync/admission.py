"""Admission by the trust policy: the questions that an exchange has for it, whoever pulls, pushes, verifies a remote,
accepts a proposal, or judges a push on a server. Without a policy nothing is loaded to answer them.

Records of a remote that this store's own refs have are not judged again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING

from uwf_git.base.errors import RequirementUnmet, Usage
from uwf_git.base.text import one_line
from uwf_git.engine.forks import squatted
from uwf_git.format.ids import ThreadId
from uwf_git.git.repository import Oid, Repository
from uwf_git.store import layout, ref_kinds
from uwf_git.store.history import relate, tagged_commit
from uwf_git.store.index import Overlay
from uwf_git.store.indexing import Store
from uwf_git.store.new_record import ANSWERS, STEPS
from uwf_git.sync import tracking
from uwf_git.sync.exchange import Exchange
from uwf_git.trust.permission import has_policy, unmet
from uwf_git.verify.findings import Finding
from uwf_git.workflow.turn import gathers_threads

if TYPE_CHECKING:
    from uwf_git.store.instance import Instance
    from uwf_git.sync.reconcile import Case
    from uwf_git.trust.judgement import Judgement, Requirements
    from uwf_git.trust.policies import Problem
    from uwf_git.trust.policy import Policy

_ASK = "nothing was taken over; compare with who gave you that id"


class Admission:
    """Judges the verified refs of a remote. `policy` is the one that the remote has, which is settled before: if it
    was refused, and there is none here, nothing of the remote is admitted."""

    def __init__(self, store: Store, policy: Oid | None = None) -> None:
        self._store = store
        self._repository = store.repository
        self._theirs = policy
        self._ours: dict[str, frozenset[bytes]] = {}

    @cached_property
    def _requirements(self) -> Requirements | None:
        from uwf_git.trust.judgement import requirements

        return requirements(Store(self._repository, Overlay(self._store.index)))

    @cached_property
    def _refused(self) -> Problem | None:
        """Return why the remote's policy is refused, if it was to be the first here."""
        from uwf_git.trust import policies

        if self._theirs is None or policies.remembered(self._repository) is not None:
            return None
        return next(iter(policies.problems(self._repository, self._theirs)), None)

    def findings(self, name: str, oid: Oid) -> tuple[Finding, ...]:
        """Return a finding for each record of a ref that doesn't meet the policy."""
        if name == layout.POLICY:
            return ()
        if (problem := self._refused) is not None:
            message = f"the trust policy there is refused, so nothing there can be judged: {problem.message}"
            thread = layout.thread_of(name) if layout.is_thread_ref(name) else None
            return (Finding(problem.code, thread, None, str(problem.at), message, name),)
        if self._requirements is None:
            return ()
        ours = self._here(name)
        return tuple(findings_of(self._requirements.judge({name: oid}, lambda item: item.raw in ours)))

    def _here(self, name: str) -> frozenset[bytes]:
        """Return the commits and tags that this store's refs of the same thread or name lead to."""
        kind = ref_kinds.kind_of(name)
        if kind is None:
            return frozenset()
        last = name.removeprefix(kind.prefix)
        if last not in self._ours:
            prefixes = layout.of_threads() if kind.of_thread else (kind.prefix,)
            tips = [tip for prefix in prefixes if (tip := self._repository.ref(prefix + last)) is not None]
            if kind is ref_kinds.FOLDED:
                tips += self._ends()
            self._ours[last] = frozenset(self._reached(tips))
        return self._ours[last]

    def _ends(self) -> Iterator[Oid]:
        """Yield the ends of all threads here, which a fold may have, too."""
        from uwf_git.store import archives

        yield from self._repository.refs(layout.ARCHIVE).values()
        for fold in self._repository.refs(layout.FOLDED).values():
            for entry in archives.read(self._repository, fold).threads.values():
                yield entry.tag

    def _reached(self, tips: list[Oid]) -> set[bytes]:
        index = self._store.index
        contents: set[bytes] = set()
        pending = [tip.raw for tip in tips]
        while pending:
            oid = pending.pop()
            if oid in contents:
                continue
            contents.add(oid)
            if (tag := index.archive(oid)) is not None:
                pending.append(tag.target)
            elif (row := index.commit(oid)) is None:
                continue
            elif (
                row.merged is not None or gathers_threads(row.role) or row.kind == "part"
            ):  # it may have many parents
                pending += [parent.raw for parent in self._repository.commit(Oid(raw=oid)).parents]
            elif row.parent is not None:
                pending.append(row.parent)
        return contents


def admission_of(instance: Instance, refs: Mapping[str, Oid]) -> Admission | None:
    """Return the judge of a remote's refs, None if neither the remote nor this store has a policy."""
    if layout.POLICY not in refs and not has_policy(instance):
        return None
    return Admission(instance.store, refs.get(layout.POLICY))


def findings_of(judged: Iterable[Judgement]) -> list[Finding]:
    """Return a finding for each record that a policy's rules apply to and that doesn't meet them."""
    from uwf_git.trust.judgement import MET

    return [
        Finding(
            item.outcome,
            item.record.thread,
            item.record.node if {STEPS, ANSWERS} & {*item.record.of} else None,
            str(item.record.object),
            item.reason,
            item.record.ref,
        )
        for item in judged
        if item.outcome != MET
    ]


def unmet_finding(name: str, oid: Oid | str, message: str) -> Finding:
    """Return the finding for a ref, or "" without one, that doesn't meet the policy."""
    from uwf_git.trust.judgement import UNMET

    return Finding(
        UNMET, layout.thread_of(name) if layout.is_thread_ref(name) else None, None, str(oid), message, name
    )


def policy_findings(repository: Repository, policy: Oid) -> list[Finding]:
    """Return why a commit is not followed as the policy of a store, none if it is."""
    from uwf_git.trust.policies import problems

    return [
        Finding(problem.code, None, None, str(problem.at), problem.message, layout.POLICY)
        for problem in problems(repository, policy)
    ]


def has_rule_about_threads(repository: Repository, name: str) -> bool:
    """Return whether a rule is about any record of the threads of a workflow."""
    from uwf_git.trust.policy import OF_THREADS

    policy = _current(repository)
    return policy is not None and bool(policy.rules_for("threads", name, OF_THREADS))


def lost_policy(instance: Instance, remote: str, refs: Mapping[str, Oid | None]) -> tuple[Finding, ...]:
    """Return a finding if the policy among a remote's refs is less than what was seen there."""
    if not has_policy(instance):
        return ()
    from uwf_git.trust import policies

    message = policies.problem_there(instance.store.repository, remote, refs)
    tip = str(refs.get(layout.POLICY) or "")
    return (Finding(policies.REPLACED, None, None, tip, message, layout.POLICY),) if message else ()


def follow(instance: Instance, remote: str | None, oid: Oid) -> Case | Finding:
    """Settle a verified policy of a remote with the one here. Moves `refs/uwf/trust/policy`. Returns a finding, and
    moves nothing, if the remote has less than what was seen there."""
    from uwf_git.sync.reconcile import Case
    from uwf_git.trust import policies

    repository = instance.store.repository
    known, case = policies.remembered(repository), Case.AHEAD
    if known is None:
        case = Case.UNKNOWN
    elif policies.leads_to(repository, oid, known.newest):  # if it is the same, ours was moved by force
        case = Case.BEHIND
    elif not policies.leads_to(repository, known.newest, oid):
        case = Case.TWO_HISTORIES
    if case is not Case.AHEAD:
        repository.put_ref(layout.POLICY, repository.ref(layout.POLICY), oid)
        policies.remember(repository, oid, remote)
    elif remote is not None and (findings := lost_policy(instance, remote, {layout.POLICY: oid})):
        return findings[0]
    return case


def first_followed(instance: Instance) -> str:
    """Return the first commit of the policy that a store follows, "" if none."""
    from uwf_git.trust.policies import remembered

    known = remembered(instance.store.repository)
    return str(known.first) if known is not None else ""


def note_sent(instance: Instance, refs: Mapping[str, Oid]) -> None:
    """Note that the valid signatures below refs have been seen, before they are pushed."""
    if has_policy(instance):
        from uwf_git.trust.judgement import note_signatures

        note_signatures(instance, refs)


def note_policy_of(repository: Repository, remote: str, commit: Oid) -> None:
    """Note that a remote has taken the policy in force."""
    from uwf_git.trust.policies import remember

    remember(repository, commit, remote)


def has_rules(instance: Instance, kind: str, name: str) -> bool:
    """Return whether a rule is about a definition. `kind` is that of its record."""
    return has_policy(instance) and bool(rule_about(instance.store.repository, kind, name))


def meets_rules(instance: Instance, kind: str, name: str, version: Oid) -> bool:
    """Return whether a version of a definition meets the rules about it."""
    return not unmet(instance, kind, name, version)


def rule_about(repository: Repository, kind: str, name: str) -> str:
    """Return the first rule about a definition, "" if there is none."""
    policy = _current(repository)
    rules = policy.rules_for(ref_kinds.rule_for(kind), name) if policy is not None else ()
    return str(rules[0]) if rules else ""


def allows(repository: Repository, word: str) -> bool:
    """Return whether a server takes DELETIONS or REWRITES."""
    policy = _current(repository)
    return policy is not None and word in policy.allow


def judging_by(policy: Oid | None) -> AbstractContextManager[None]:
    """Judge by a policy that a push brings and that was admitted, before its ref is moved; without, by the one in
    force."""
    if policy is None:
        return nullcontext()
    from uwf_git.trust.policies import as_pushed

    return as_pushed(policy)


def _current(repository: Repository) -> Policy | None:
    from uwf_git.trust.policies import current

    return current(repository)


def squatting(store: Store, name: str, oid: Oid) -> tuple[Finding, ...]:
    """Return the findings of a sound ref by which a thread would have the id of a branch that it is not."""
    from uwf_git.store import archives

    threads: Mapping[ThreadId, Oid | None] = {}
    if name.startswith(layout.FOLDED):
        folded = archives.read(store.repository, oid).threads
        threads = {thread: entry.ended.target for thread, entry in folded.items()}
    elif name.startswith(layout.THREADS):
        threads = {layout.thread_of(name): oid}
    elif name.startswith(layout.ARCHIVE):
        threads = {layout.thread_of(name): tagged_commit(store, oid)}
    for thread, commit in threads.items():
        branch = squatted(store, thread, commit) if commit is not None else None
        if branch is not None:
            fork, position = branch
            message = f"thread {thread} has the id of branch {position} of fork {fork}, which it is not"
            return (Finding("wrong-branch", thread, None, str(commit), message, name),)
    return ()


def foreign_to(store: Store, head: Oid, name: str, oid: Oid) -> str:
    """Return why a verified ref of a thread, such as its pause, isn't one of the thread with this head commit, "" if
    it is."""
    kind, thread = ref_kinds.kind_of(name), layout.thread_of(name)
    settle = kind.settle if kind is not None else ""
    if kind is not None and settle in ("attempts", "grow"):
        row = store.index_commit(head)
        if store.index_commit(oid).start != (row.start or row.node):
            return f"{name} holds {kind.word} of another thread than {thread}"
    elif settle in ("fork", "pause"):
        target = tagged_commit(store, oid)
        relation = relate(store, head, target) if target is not None else None
        if settle == "pause" and relation is None:
            return f"{name} pauses another thread than {thread}"
        if settle == "fork" and (relation is None or relation.theirs):
            return f"{name} says that {thread} parted where it never was"
    return ""


def pin(exchange: Exchange, version: str) -> None:
    """Follow a remote's trust policy, if `version` is one of its commits. Moves `refs/uwf/trust/policy`. Raises
    RequirementUnmet if the remote has none, another, or an invalid one, Usage if `version` is no commit id."""
    if not re.fullmatch(r"[0-9a-f]{40}", version):
        raise Usage(f"{one_line(version, 60)!r} is not the id of a commit", "all 40 digits: uwf trust show")
    from uwf_git.trust import policies

    (_, remote, git), repository = exchange, exchange.repository
    tip = tracking.list_refs(git, repository, remote).refs.get(layout.POLICY)
    if tip is None:
        raise RequirementUnmet(f"{remote.name} has no trust policy, so not {version[:10]}", _ASK)
    tracking.bring(git, repository, remote.name, [layout.POLICY])
    for problem in policies.problems(repository, tip):
        raise RequirementUnmet(f"the trust policy of {remote.name} is refused: {problem.message}", _ASK)
    if not policies.leads_to(repository, tip, Oid(hex=version)):
        raise RequirementUnmet(f"the trust policy of {remote.name} does not stand on {version[:10]}", _ASK)
    repository.put_ref(layout.POLICY, repository.ref(layout.POLICY), tip)
    policies.remember(repository, tip, remote.name)
