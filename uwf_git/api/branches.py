"""Verifying the branches that a remote shows, and naming those of a store."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

from uwf_git.base.errors import NotFound, NothingToVerify, RemoteFailed, UwfError
from uwf_git.format.ids import ThreadId, is_thread_id
from uwf_git.git.repository import Oid
from uwf_git.store import layout
from uwf_git.store.instance import Instance
from uwf_git.verify.findings import UNCHECKED, Finding

if TYPE_CHECKING:
    from uwf_git.store.remotes import Remote

_Progress = Callable[[], None]


class RemoteBranches(NamedTuple):
    """The branches of a remote that uwf published: what is wrong or notable, and how many were verified. `failure` is
    why the remote could not be asked."""

    findings: tuple[Finding, ...] = ()
    warnings: tuple[Finding, ...] = ()
    notes: tuple[Finding, ...] = ()
    verified: int = 0
    failure: RemoteFailed | None = None


def known_heads(instance: Instance, thread: ThreadId) -> dict[ThreadId, list[Oid]]:
    """Return the heads of a thread that are known here: ours, and those last seen on remotes, unless ours has
    ended."""
    oids: list[Oid] = []
    if instance.threads.exists(thread):
        head = instance.threads.head(thread)
        if head.archive is not None:
            return {thread: [head.commit]}
        oids.append(head.commit)
    for remote in instance.remotes.all():
        oids += _tracked_heads(instance, remote, thread)
    return {thread: list(dict.fromkeys(oids))} if oids else {}


def _tracked_heads(
    instance: Instance, remote: Remote, thread: ThreadId, among: Collection[str] | None = None
) -> list[Oid]:
    """Return a thread's head as last seen on a remote, of the refs `among` these names: its end, if it has one. None
    that was found rewritten."""
    from uwf_git.git.objects import parse_tag
    from uwf_git.git.repository import TAG

    repository = instance.store.repository
    for prefix in (layout.ARCHIVE, layout.THREADS):
        if among is not None and prefix + thread not in among:
            continue
        oid = repository.ref(layout.tracking(remote.name, prefix + thread))
        rewritten = repository.ref(layout.rewritten(remote.name, prefix + thread))
        if oid is not None and repository.has(oid) and rewritten != oid:
            kind, data = repository.read(oid)
            return [parse_tag(data).target if kind == TAG else oid]
    return []


def verify_on_remote(
    instance: Instance, remote: Remote, verified: Mapping[str, Oid], on_commit: _Progress
) -> RemoteBranches:
    """Verify the branches that uwf published on a remote, at most a thousand: they are listed and fetched, within the
    limits of a fetch. `verified` are tracked refs without findings. No ref moves."""
    from uwf_git.api.exchange import git_for
    from uwf_git.sync.publish import HEADS, is_listed_whole, remote_branches
    from uwf_git.sync.tracking import bring
    from uwf_git.verify.branch_names import Branch
    from uwf_git.verify.published import verify_branch

    git, repository = git_for(instance), instance.store.repository
    try:
        there = remote_branches(git, remote, [layout.BRANCHES + "*"])
        wanted = [ref for ref, oid in there.items() if not repository.has(oid)]
        if wanted:
            bring(git, repository, remote.name, wanted)
    except RemoteFailed as error:
        message = f"the branches on {remote.name} were not verified: {error.message}"
        return RemoteBranches((Finding(UNCHECKED, None, None, "", message),), failure=error)
    result = RemoteBranches()
    if not is_listed_whole(there):
        message = (
            f"{remote.name} has more than {len(there):,} branches of uwf's: the others were not verified"
        )
        result = result._replace(findings=(Finding(UNCHECKED, None, None, "", message),))
    for ref, oid in sorted(there.items()):
        if problem := _base_problem(instance, there, ref):
            finding = Finding("wrong-base", None, None, str(oid), problem, ref)
            result = result._replace(findings=(*result.findings, finding))
        branch = Branch(f"{ref.removeprefix(HEADS)} on {remote.name}", ref)
        thread = branch.thread
        if thread is not None and oid in _tracked_heads(instance, remote, thread, verified):
            # It is the head of the thread, which was verified.
            result = result._replace(verified=result.verified + 1)
            continue
        every = known_heads(instance, branch.thread) if branch.thread is not None else {}
        try:
            verify_result = verify_branch(repository, oid, branch, every, on_commit).verified
        except NothingToVerify as error:
            finding = Finding("foreign-commit", branch.thread, None, str(oid), error.message, ref)
            result = result._replace(findings=(*result.findings, finding))
            continue
        result = RemoteBranches(
            (*result.findings, *verify_result.findings),
            (*result.warnings, *verify_result.warnings),
            (*result.notes, *verify_result.notes),
            result.verified + 1,
        )
    return _without_stale(instance, remote, result)


def _base_problem(instance: Instance, there: Mapping[str, Oid], ref: str) -> str:
    """Return why a branch of a remote is no base of the one that is compared with it, "" if it is one."""
    from uwf_git.store.history import Head, link_of
    from uwf_git.sync.base_branches import BASES, base_problem, branch_of_base

    head = there.get(branch := branch_of_base(ref)) if ref.startswith(BASES) else None
    if head is None:
        return ""
    name = branch.removeprefix(layout.THREAD_BRANCHES)
    link = link_of(instance.store, ThreadId(name)) if is_thread_id(name) else None
    threads = instance.threads.all(archived=True)
    others = (thread.commit for thread in threads if isinstance(thread, Head) and thread.thread != name)
    try:
        return base_problem(instance.store, head, there[ref], link.base if link is not None else None, others)
    except UwfError:
        return ""  # the branch or its base is damaged, which is reported


def _without_stale(instance: Instance, remote: Remote, result: RemoteBranches) -> RemoteBranches:
    """Return the result without findings on threads that moved on the remote since they were fetched."""
    from uwf_git.api.exchange import git_for
    from uwf_git.sync.publish import listed_of_threads

    threads = {
        finding.thread
        for finding in result.findings
        if finding.code == "other-thread" and finding.thread is not None
    }
    if not threads:
        return result
    repository = instance.store.repository
    listed = listed_of_threads(git_for(instance), remote, threads)
    moved = {
        layout.thread_of(name)
        for name, oid in listed.items()
        if repository.ref(layout.tracking(remote.name, name)) != oid
    }
    moved -= {  # an end stays, whatever active ref is beside it
        layout.thread_of(name)
        for name, oid in listed.items()
        if name.startswith(layout.ARCHIVE) and repository.ref(layout.tracking(remote.name, name)) == oid
    }

    def judged(finding: Finding) -> Finding:
        if finding.code != "other-thread" or finding.thread not in moved:
            return finding
        message = f"thread {finding.thread} moved on {remote.name} since it was fetched: uwf pull {remote.name} first"
        return finding._replace(code=UNCHECKED, message=message)

    return result._replace(findings=tuple(map(judged, result.findings)))


def is_revision(instance: Instance, text: str) -> bool:
    """Return whether a text names a branch, tag or commit of a store's repository."""
    from uwf_git.verify.checkout import OpenCheckout

    opened = OpenCheckout(None, instance.location.git_dir, instance.store.repository)
    try:
        opened.commit(opened.branch(text))
    except NotFound:
        return False
    return True
