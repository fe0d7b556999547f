"""Taking what is here to a remote: only what it hasn't, never forced, and checked against what it then
lists.

A ref that ended here is deleted there, by lease: only where it still is what was last seen. A server that
refuses deletions loses nothing by it, since an archive counts for more than an active ref.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from uwf_git import layout
from uwf_git.errors import Invalid, RemoteFailed
from uwf_git.gitcommand import Done, Git, failure
from uwf_git.ids import ThreadId
from uwf_git.instance import Instance
from uwf_git.links import parted_from
from uwf_git.listing import LARGEST, Listed, limit, list_refs, tracked_refs
from uwf_git.remotes import Remote
from uwf_git.repository import Oid, Repository

CHUNK = 200
ADVISED = 1_000_000
_LOST = ("fetch first", "non-fast-forward", "stale info", "already exists", "needs force")


class Pushed(NamedTuple):
    """A ref that the remote took and lists. `object` is where it is now; None where it was deleted."""

    ref: str
    object: Oid | None


class Rejected(NamedTuple):
    """A ref that the remote did not take. `lost`: somebody else moved it there first; `deletion`: it was
    to be deleted, and nothing depends on that."""

    ref: str
    reason: str
    lost: bool = False
    deletion: bool = False


class Plan(NamedTuple):
    """What is to be pushed: refs with where they are here, and refs to delete with where they were last
    seen there."""

    updates: Mapping[str, Oid]
    deletions: Mapping[str, Oid]


class Report(NamedTuple):
    """What came of a push."""

    pushed: tuple[Pushed, ...]
    rejected: tuple[Rejected, ...]
    large: tuple[Large, ...] = ()


class Large(NamedTuple):
    """A blob that forges may refuse. `size` is in bytes; `node` names it where it is a node."""

    blob: str
    size: int
    node: str | None


def plan(instance: Instance, remote: Remote, only: Iterable[str] | None = None, again: bool = False) -> Plan:
    """What a remote hasn't, as far as is known here. `only` names the refs that are meant; what was
    deleted there is left out unless it is meant by name or by `again`."""
    repository = instance.store.repository
    refs = {name: oid for name, oid in repository.refs(without=layout.REMOTES).items() if _shared(name)}
    known = tracked_refs(repository, remote.name)
    meant = refs.keys() if only is None else refs.keys() & set(only)
    deleted = set() if again or only is not None else _deleted(repository, remote)
    updates = {name: refs[name] for name in meant if known.get(name) != refs[name] and name not in deleted}
    deletions = {
        name: oid
        for name, oid in known.items()
        if name not in refs
        and (only is None or name in set(only))
        and name.startswith((layout.THREADS, layout.ARCHIVE, layout.ATTEMPTS, layout.FORKS))
        and _is_superseded(instance, name, oid, refs)
    }
    return Plan(updates, deletions)


def refs_of(instance: Instance, threads: Iterable[ThreadId]) -> set[str]:
    """Every ref that a thread may have, here or there, with those of the threads it has parted from."""
    wanted = set(threads)
    repository = instance.store.repository
    for name in repository.ref_names(layout.FORKS):
        fork = ThreadId(name.removeprefix(layout.FORKS))
        link = parted_from(instance.store, fork)
        if link and link.origin in wanted:
            wanted.add(fork)
    prefixes = (layout.THREADS, layout.ARCHIVE, layout.ATTEMPTS, layout.FORKS)
    return {prefix + thread for prefix in prefixes for thread in wanted}


def push(instance: Instance, git: Git, remote: Remote, what: Plan) -> Report:
    """Pushes a plan. Moves refs of the remote, and here its tracking refs. Raises RemoteFailed where
    nothing could be pushed at all, Invalid for a blob that is too large, before anything is."""
    repository = instance.store.repository
    large = check_sizes(instance, git, remote, what.updates.values())
    results: dict[str, Pushed | Rejected] = {}
    try:
        for chunk in _chunks(what):
            results.update(transfer(git, remote, chunk))
    except RemoteFailed:
        if not results:
            raise
    if not results:
        return Report((), (), large)
    listed = list_refs(git, repository, remote)
    taken = tuple(_listed(remote, listed, each) for each in results.values() if isinstance(each, Pushed))
    _remember(repository, remote, listed, taken)
    rejected = tuple(each for each in results.values() if isinstance(each, Rejected))
    missing = what.updates.keys() - results.keys()
    rejected += tuple(Rejected(name, "the connection was lost before it") for name in sorted(missing))
    return Report(taken, rejected, large)


def check_sizes(instance: Instance, git: Git, remote: Remote, tips: Iterable[Oid]) -> tuple[Large, ...]:
    """The blobs above 1 MB that are new to a remote. Raises Invalid for one above `uwf.maxBlob` (95 MB),
    which forges refuse."""
    repository = instance.store.repository
    known = f"--glob={layout.REMOTES}{remote.name}/*"
    orders = "".join(f"{tip}\n" for tip in tips)
    if not orders:
        return ()
    done = git.run(
        "rev-list",
        "--objects",
        f"--filter=blob:limit={ADVISED}",
        "--filter-print-omitted",
        "--stdin",
        "--not",
        known,
        stdin=orders.encode(),
    )
    blobs = [line[1:].decode() for line in done.out.splitlines() if line.startswith(b"~")]
    large = tuple(
        Large(blob, repository.size(Oid(hex=blob)), instance.store.index.node_of_blob(Oid(hex=blob).raw))
        for blob in blobs
    )
    at_most = limit(repository, "uwf.maxBlob", LARGEST)
    for each in large:
        if each.size > at_most:
            what = f"node {each.node}" if each.node else f"blob {each.blob}"
            raise Invalid(
                f"{what} has {each.size / 1_000_000:.0f} MB, more than forges take",
                "fork the thread before that step, or allow it: git config uwf.maxBlob 200m",
            )
    return large


def _shared(name: str) -> bool:
    return layout.is_shared_ref(name)


def _deleted(repository: Repository, remote: Remote) -> set[str]:
    prefix = f"{layout.REMOTES}{remote.name}/deleted/"
    return {layout.NAMESPACE + name.removeprefix(prefix) for name in repository.ref_names(prefix)}


def _is_superseded(instance: Instance, name: str, there: Oid, refs: Mapping[str, Oid]) -> bool:
    """Whether a ref that only the remote has is one that ended or was folded here, with all that it led to
    there: then it may be deleted. One that was merely removed here may not."""
    thread = ThreadId(name[name.rindex("/") + 1 :])
    if name.startswith(layout.THREADS):
        return instance.threads.has_ended(thread) and instance.store.index.commit(there.raw) is not None
    return instance.store.folded(thread) is not None


def _chunks(what: Plan) -> Iterator[list[str]]:
    """The arguments of each push: what stands on something after it, deletions last."""
    order = {prefix: place for place, prefix in enumerate(layout.SHARED)}
    names = sorted(what.updates, key=lambda name: (order[name[: name.rindex("/") + 1]], name))
    specs = [f"{what.updates[name]}:{name}" for name in names]
    for start in range(0, len(specs), CHUNK):
        yield specs[start : start + CHUNK]
    gone = sorted(what.deletions)
    for start in range(0, len(gone), CHUNK):
        part = gone[start : start + CHUNK]
        yield [f"--force-with-lease={name}:{what.deletions[name]}" for name in part] + [
            f":{name}" for name in part
        ]


def transfer(git: Git, remote: Remote, arguments: Sequence[str]) -> dict[str, Pushed | Rejected]:
    """One `git push` of options and refspecs, and what it says of each ref. Raises RemoteFailed where it
    says nothing of any."""
    options = [each for each in arguments if each.startswith("--")]
    specs = [each for each in arguments if not each.startswith("--")]
    done = git.run(
        "push",
        "--progress" if git.shows_progress else "--no-progress",
        "--porcelain",
        "--no-follow-tags",
        "--no-recurse-submodules",
        *options,
        "--",
        remote.name,
        *specs,
        check=False,
    )
    results = dict(_results(done))
    if done.code != 0 and not any(isinstance(each, Rejected) for each in results.values()):
        raise failure(("push",), done)
    return results


def _results(done: Done) -> Iterator[tuple[str, Pushed | Rejected]]:
    """What `git push --porcelain` says of each ref: flag, from:to, summary and reason."""
    for line in done.out.decode("utf-8", "replace").splitlines():
        flag, _, rest = line.partition("\t")
        spec, _, summary = rest.partition("\t")
        source, colon, name = spec.rpartition(":")
        if len(flag) != 1 or not colon:
            continue
        if flag == "!":
            reason = _reason(summary, done.err)
            lost = any(word in summary for word in _LOST)
            yield name, Rejected(name, reason, lost, deletion=not source)
        else:
            yield name, Pushed(name, Oid(hex=source) if len(source) == 40 else None)


def _reason(summary: str, err: str) -> str:
    reason = layout.one_line(summary.partition("(")[2].rstrip(")") or summary, 200)
    said = [line.removeprefix("remote:").strip() for line in err.splitlines() if line.startswith("remote:")]
    said = [layout.one_line(line, 200) for line in said if line]
    return f"{reason}: {said[0]}" if said and "hook" in reason else reason


def _listed(remote: Remote, listed: Listed, pushed: Pushed) -> Pushed:
    """A ref that the remote said it took, if it lists it so. Raises RemoteFailed."""
    there = listed.refs.get(pushed.ref)
    if pushed.object is not None and there is None:
        raise RemoteFailed(
            f"{remote.name} said it took {pushed.ref}, but does not list it",
            "ask its administrator about hidden refs (transfer.hideRefs), or share by branch: uwf publish",
        )
    return pushed


def _remember(repository: Repository, remote: Remote, listed: Listed, taken: Iterable[Pushed]) -> None:
    """Tracking refs follow what the remote lists of what was pushed; git does the same where its refspecs
    are as they were made."""
    for each in taken:
        name = layout.tracking(remote.name, each.ref)
        there = listed.refs.get(each.ref)
        known = repository.ref(name)
        if each.object is None and there is None and known is not None:
            repository.delete_ref(name, known)
        elif there is not None and there == each.object and known != there:
            if known is None:
                repository.create_ref(name, there)
            else:
                repository.move_ref(name, known, there)
        if (marker := repository.ref(_marker(remote, each.ref))) is not None and each.object is not None:
            repository.delete_ref(_marker(remote, each.ref), marker)


def _marker(remote: Remote, name: str) -> str:
    return f"{layout.REMOTES}{remote.name}/deleted/{name.removeprefix(layout.NAMESPACE)}"


def refusal(remote: Remote, rejected: Sequence[Rejected]) -> RemoteFailed:
    """What a server's refusal comes to, with what to ask its administrator."""
    first = rejected[0]
    return RemoteFailed(
        f"{remote.name} refuses {first.ref}: {first.reason}",
        "ask its administrator to allow pushes to refs/uwf/* (receive.hideRefs and hooks), or share by branch: "
        "uwf publish",
    )
