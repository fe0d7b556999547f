"""Admission of a remote's refs by the trust policy. Records that this store's own refs have are not judged again."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property

from uwf_git.base.errors import RequirementUnmet, Usage
from uwf_git.base.text import one_line
from uwf_git.engine.forks import squatted
from uwf_git.format.ids import ThreadId
from uwf_git.format.types import gathers_threads
from uwf_git.git.repository import Oid
from uwf_git.store import archives, layout, ref_kinds
from uwf_git.store.history import relate, tagged_commit
from uwf_git.store.index import Overlay
from uwf_git.store.indexing import Store
from uwf_git.sync import tracking
from uwf_git.sync.exchange import Exchange
from uwf_git.trust import policies
from uwf_git.trust.judgement import Requirements, requirements
from uwf_git.verify.findings import Finding
from uwf_git.verify.requirements import findings_of

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
        return requirements(Store(self._repository, Overlay(self._store.index)))

    @cached_property
    def _refused(self) -> policies.Problem | None:
        """Return why the remote's policy is refused, if it was to be the first here."""
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
        return tuple(findings_of(self._requirements.judge({name: oid}, lambda each: each.raw in ours)))

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
        yield from self._repository.refs(layout.ARCHIVE).values()
        for fold in self._repository.refs(layout.FOLDED).values():
            for entry in archives.read(self._repository, fold).threads.values():
                yield entry.tag

    def _reached(self, tips: list[Oid]) -> set[bytes]:
        index = self._store.index
        found: set[bytes] = set()
        pending = [tip.raw for tip in tips]
        while pending:
            oid = pending.pop()
            if oid in found:
                continue
            found.add(oid)
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
        return found


def squatting(store: Store, name: str, oid: Oid) -> tuple[Finding, ...]:
    """Return the findings of a sound ref by which a thread would have the id of a branch that it is not."""
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
