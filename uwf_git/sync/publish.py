"""Branches of threads and definitions on a remote, for forges and pull requests.

    refs/heads/uwf/threads/<ULID>     a thread's head
    refs/heads/uwf/base/<ULID>        its base: the workflow's version, or the commit it was forked at
    refs/heads/uwf/workflows/<name>   the newest version of a workflow
    refs/heads/uwf/base/workflows/<name>    the version before
    refs/heads/uwf/crews/<name>       the newest version of a crew, likewise with uwf/base/crews/<name>
    refs/heads/<branch>, refs/heads/uwf/base/branches/<branch>    the same under a name of the user's

The commits are the store's own. A branch is never forced. No local ref moves.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.base.errors import HeadMoved, Invalid, NotFound, RemoteFailed, StoreDamaged, Usage
from uwf_git.base.extensions import RefKind
from uwf_git.base.text import nearest, one_line
from uwf_git.config.forges import Pages, pages
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.git.libgit2 import reference_is_valid_name
from uwf_git.git.program import Git
from uwf_git.git.repository import Oid, Repository
from uwf_git.store import layout, ref_kinds
from uwf_git.store.history import ancestry, link_of, links
from uwf_git.store.index import CommitRow
from uwf_git.sync.base_branches import BASES as BASES
from uwf_git.sync.exposed import refuse_secrets
from uwf_git.sync.push import LargeBlob, hint_if_locked, look_through
from uwf_git.sync.tracking import listed_lines
from uwf_git.sync.transfer import Rejected, deletions, transfer

if TYPE_CHECKING:
    from uwf_git.store.instance import Instance
    from uwf_git.store.remotes import Remote
    from uwf_git.store.versions import Versions
    from uwf_git.sync.exchange import Exchange

HEADS = "refs/heads/"

PROPOSED = layout.BRANCHES + "proposals/"
LONGEST_NAME = 200
MOST_LISTED = 1000


class Published(NamedTuple):
    """A branch of a remote and its base, below refs/heads/. `base` is a commit; it and `base_branch` are None
    if there is nothing before. `pages` is None for an unknown forge; `large` are blobs that forges advise
    against."""

    branch: str
    commit: str
    base: str | None
    base_branch: str | None
    pages: Pages | None
    large: tuple[LargeBlob, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "branch": self.branch,
            "commit": self.commit,
            "base": self.base,
            "baseBranch": self.base_branch,
            "pages": self.pages._asdict() if self.pages else None,
        }


def publish_thread(exchange: Exchange, thread: ThreadId, name: str = "") -> Published:
    """Push a thread's head to `refs/heads/uwf/threads/<ULID>` or the branch `name`, and its base. Raises
    HeadMoved if the branch has other commits, RemoteFailed, Invalid for a bad name."""
    instance = exchange.instance
    head = instance.threads.head(thread)
    branch, base_branch = _names(instance, layout.THREAD_BRANCHES + thread, BASES + thread, name)
    another = f"uwf publish thread {thread} --as BRANCH --remote {exchange.remote.name}"
    base = base_of(instance, thread)
    return publish_branch(exchange, branch, head.commit, base_branch, base, another)


def publish_version(exchange: Exchange, versions: Versions[Any], what: str, name: str = "") -> Published:
    """Push the newest version of `what` to its kind's branch or the branch `name`, with the version before as
    base. Raises as publish_thread does."""
    commit = Oid(hex=versions.current(what).commit)
    branch, base_branch = _names(exchange.instance, *_refs_of(versions.refs, what), name)
    parents = exchange.repository.commit(commit).parents
    another = f"uwf publish {versions.kind} {what} --as BRANCH --remote {exchange.remote.name}"
    base = parents[0] if parents else None
    return publish_branch(exchange, branch, commit, base_branch, base, another)


def unpublish(exchange: Exchange, what: str, force: bool = False) -> dict[str, str]:
    """Delete the branches of a thread, definition, proposal or --as name, if they have only commits known
    here, or with `force`. Returns the deleted commits by branch. Raises NotFound, HeadMoved, RemoteFailed."""
    instance, remote, git = exchange
    candidates = _published_as(instance, what)
    there = remote_branches(git, remote, [ref for pair in candidates for ref in pair])
    oids = next(
        ({ref: there[ref] for ref in pair if ref in there} for pair in candidates if pair[0] in there), None
    )
    if oids is None:
        known = [short(ref) for ref in remote_branches(git, remote, [layout.BRANCHES + "*"])]
        known = [branch for branch in known if not branch.startswith(short(BASES))]
        raise NotFound(
            f"{one_line(what, 80)!r} is not published on {remote.name}",
            nearest(what, known) or f"see: git ls-remote {remote.name} 'refs/heads/uwf/*'",
        )
    again = f"uwf unpublish {shlex.quote(what)} --remote {remote.name}"
    for ref, oid in oids.items():
        if not force and not _is_ours(instance, git, oid):
            raise _not_taken_over(exchange, ref, oid, again)
    _push(git, remote, deletions(oids), f"then: {again}")
    remaining = remote_branches(git, remote, oids)
    if remaining:
        raise RemoteFailed(f"{remote.name} still lists {short(next(iter(remaining)))}", "repeat")
    return {short(ref): str(oid) for ref, oid in oids.items()}


def base_of(instance: Instance, thread: ThreadId) -> Oid | None:
    """Return a thread's base: the commit it was forked at or diverged, else its workflow's version."""
    head = instance.threads.head(thread)
    rows = list(takewhile(lambda row: row.kind in ("step", "start"), ancestry(instance.store, head.commit)))
    start = rows[-1]
    if start.kind != "start":
        raise StoreDamaged(f"thread {thread} has no start commit", "see: uwf doctor")
    chain = {row.oid: row for row in rows}
    link = link_of(instance.store, thread)
    at = chain.get(link.base.raw) if link is not None else None
    # A fork before the first step is to be read from its workflow on, as any thread.
    parted = at.oid if link is not None and at is not None and (at.number or not link.forked) else None
    shared = parted or _shared_with_older(instance, thread, start.start, chain)
    if shared is not None and shared != head.commit.raw:
        return Oid(raw=shared)
    return Oid(raw=start.parent) if start.parent else None


def _shared_with_older(
    instance: Instance, thread: ThreadId, start: Hash | None, chain: Mapping[bytes, CommitRow]
) -> bytes | None:
    index = instance.store.index
    forks = {link.thread for link in links(instance.store).values() if not link.forked}
    seen: set[bytes] = set()
    best: CommitRow | None = None
    for other in instance.threads.all(archived=True):
        row: CommitRow | None = getattr(other, "row", None)
        if row is None or other.thread >= thread or other.thread in forks or row.start != start:
            continue
        while row is not None and row.oid not in seen:
            seen.add(row.oid)
            if (common := chain.get(row.oid)) is not None:
                if common.kind == "step" and (best is None or common.number > best.number):
                    best = common
                break
            row = index.commit(row.parent) if row.parent else None
    return best.oid if best else None


def publish_branch(
    exchange: Exchange,
    branch: str,
    commit: Oid,
    base_branch: str,
    base: Oid | None,
    another: str,
) -> Published:
    """Push a commit and its base to two branches, given by full names, and check that they arrived. `another`
    is the command that publishes under another name, for hints. Raises HeadMoved if a branch has other
    commits, Invalid for an oversized blob or a known secret before pushing, RemoteFailed."""
    _, remote, git = exchange
    there = remote_branches(git, remote, (branch, base_branch))
    wanted = {branch: commit}
    if base_branch in there and not (base and is_ancestor(git, there[base_branch], base)):
        base = there[base_branch]  # commits were merged into it: compare with that
    elif base is not None:
        wanted[base_branch] = base
    shown = short(base_branch) if base else None
    pages = _forge_pages(exchange, short(branch), shown)
    moving = {ref: oid for ref, oid in wanted.items() if there.get(ref) != oid}
    for ref, oid in moving.items():
        if ref in there and not is_ancestor(git, there[ref], oid):
            raise _other_commits(remote, ref, f"or: {another}")
    outgoing = look_through(exchange, moving.values())
    refuse_secrets(exchange.instance, git, moving, outgoing.others, "publish others")
    _push(git, remote, [f"{oid}:{ref}" for ref, oid in moving.items()], f"or: {another}")
    now = remote_branches(git, remote, moving) if moving else {}
    for ref, oid in moving.items():
        if now.get(ref) != oid:
            raise RemoteFailed(f"{remote.name} took {short(ref)} but does not list it so", "repeat")
    return Published(short(branch), str(commit), str(base) if base else None, shown, pages, outgoing.large)


def remote_branches(git: Git, remote: Remote, refs: Iterable[str]) -> dict[str, Oid]:
    """Return the commits of a remote's branches by full name. A trailing `*` is a wildcard, limited to a
    thousand. Raises RemoteFailed."""
    wanted = list(refs)
    oids: dict[str, Oid] = {}
    for oid, name in listed_lines(git, "ls-remote", "--quiet", "--refs", "--", remote.name, *wanted):
        # A pattern also fits the end of longer names.
        if len(oid) == 40 and (
            name in wanted or any(w.endswith("*") and name.startswith(w[:-1]) for w in wanted)
        ):
            oids[name] = Oid(hex=oid)
        if len(oids) >= MOST_LISTED:
            break
    return oids


def is_listed_whole(oids: Mapping[str, Oid]) -> bool:
    """Return whether the list of a remote's branches has all of them."""
    return len(oids) < MOST_LISTED


def listed_of_threads(git: Git, remote: Remote, threads: Iterable[ThreadId]) -> dict[str, Oid]:
    """Return the refs of threads, active and ended, that a remote lists now. Raises RemoteFailed."""
    names = [prefix + thread for thread in threads for prefix in (layout.THREADS, layout.ARCHIVE)]
    return remote_branches(git, remote, names)


def is_ancestor(git: Git, older: Oid, newer: Oid) -> bool:
    """Return whether a commit is another one or its ancestor; False for unknown commits."""
    return git.run("merge-base", "--is-ancestor", str(older), str(newer), check=False).code == 0


def _forge_pages(exchange: Exchange, branch: str, base: str | None) -> Pages | None:
    instance, remote, git = exchange
    kinds = instance.config.forges
    rewritten = git.run("remote", "get-url", remote.name).out.decode("utf-8", "surrogateescape").strip()
    return pages(remote.url, branch, base, kinds) or pages(rewritten, branch, base, kinds)


def branch_name(text: str) -> str:
    """Return a valid name below refs/heads/. Raises Invalid."""
    name = text.removeprefix(HEADS)
    shown = one_line(text, 80)
    if not name or name.startswith("-") or name == "HEAD" or not name.isprintable():
        raise Invalid(f"{shown!r} is not a name of a branch", "use letters, digits, dots, dashes and slashes")
    if len(name.encode("utf-8", "replace")) > LONGEST_NAME or not reference_is_valid_name(HEADS + name):
        raise Invalid(f"{shown!r} is not a name of a branch", "see: git help check-ref-format")
    return name


def _names(instance: Instance, branch: str, base: str, name: str) -> tuple[str, str]:
    if not name:
        return branch, base
    chosen = branch_name(name)
    instance.store.gate(chosen, "the name of the branch", "a ref")
    if (HEADS + chosen).startswith(BASES):
        raise Usage(
            f"branches below {short(BASES)} are what others are compared with", "give another: --as BRANCH"
        )
    return HEADS + chosen, f"{BASES}branches/{chosen}"


def _published_as(instance: Instance, what: str) -> list[tuple[str, str]]:
    refs: list[tuple[str, str]] = []
    try:
        thread = instance.threads.find(what)
        refs.append((layout.THREAD_BRANCHES + thread, BASES + thread))
    except (NotFound, Usage):
        pass
    repository = instance.store.repository
    for kind in ref_kinds.versioned().values():
        if kind.prefix + what in repository.ref_names(kind.prefix):
            refs.append(_refs_of(kind, what))
    name = branch_name(what)
    refs.append((PROPOSED + name, ""))
    if name.startswith(short(layout.THREAD_BRANCHES)):
        refs.append((HEADS + name, BASES + name.removeprefix(short(layout.THREAD_BRANCHES))))
    for kind in ref_kinds.versioned().values():
        if name.startswith(short(kind.branches)):
            refs.append(_refs_of(kind, name.removeprefix(short(kind.branches))))
    return [*refs, (HEADS + name, f"{BASES}branches/{name}")]


def _refs_of(kind: RefKind, name: str) -> tuple[str, str]:
    branch = kind.branches + name
    return branch, BASES + branch.removeprefix(layout.BRANCHES)


def kind_on(ref: str) -> str:
    """Return the kind of definition on a branch by its name; a proposal may be any."""
    kinds = (name for name, kind in ref_kinds.versioned().items() if ref.startswith(kind.branches))
    return next(kinds, "workflow")


def _is_ours(instance: Instance, git: Git, oid: Oid) -> bool:
    """Return whether a branch's commit is a record of this store or the source of a version. A commit merely
    fetched may be someone's edit."""
    if not instance.store.repository.has(oid):
        return False
    instance.store.sync()
    row = instance.store.index.commit(oid.raw)
    if row is not None and row.kind in ("start", "step", *ref_kinds.versioned()):
        return True
    prefixes = (kind.prefix for kind in ref_kinds.versioned().values())
    kept = ("for-each-ref", "--count=1", "--contains", str(oid), *prefixes, layout.PROPOSALS)
    return bool(git.run(*kept, check=False).out)


def _not_taken_over(exchange: Exchange, ref: str, oid: Oid, again: str) -> HeadMoved:
    remote, repository, branch = exchange.remote, exchange.repository, shlex.quote(short(ref))
    look = shown_by(repository, oid)
    if not repository.has(oid):
        git_dir = shlex.quote(str(repository.path))
        look = f"git --git-dir {git_dir} fetch {remote.name} {shlex.quote(ref)} && {look}"
    hint = f"look at it: {look}; "
    if layout.is_of_versions(ref) or ref.startswith(PROPOSED):
        hint += f"adopt it: {ref_kinds.registering(kind_on(ref)).commands} accept {branch} --remote {remote.name}; "
    return HeadMoved(
        f"branch {short(ref)} of {remote.name} is at commit {oid}, which was not adopted here",
        f"{hint}or delete it anyway: {again} --force",
    )


def shown_by(repository: Repository, commit: Oid) -> str:
    """Return the command that shows a commit of the store."""
    return f"{repository.by_git} show {commit}"


def _push(git: Git, remote: Remote, arguments: list[str], more: str) -> None:
    for ref, result in transfer(git, remote, arguments).items():
        if isinstance(result, Rejected):
            if result.lost:
                raise _other_commits(remote, ref, more)
            raise RemoteFailed(
                f"{remote.name} refuses branch {short(ref)}: {result.reason}",
                hint_if_locked(result) or f"ask who runs {remote.name} to allow it, {more}",
            )


def _other_commits(remote: Remote, ref: str, more: str) -> HeadMoved:
    branch = short(ref)
    hint = more.removeprefix("or: ").removeprefix("then: ")
    if layout.is_of_versions(ref):
        accept = f"{ref_kinds.registering(kind_on(ref)).commands} accept {shlex.quote(branch)} --remote {remote.name}"
        hint = f"accept what was merged there: {accept}; {more}"
    elif ref.startswith(PROPOSED):
        accept = (
            f"uwf workflow accept {shlex.quote(branch.removeprefix(short(PROPOSED)))} --remote {remote.name}"
        )
        hint = f"accept that first: {accept}; {more}"
    return HeadMoved(f"branch {branch} of {remote.name} holds other commits; nothing was pushed", hint)


def short(ref: str) -> str:
    return ref.removeprefix(HEADS)
