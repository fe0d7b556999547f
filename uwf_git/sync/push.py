"""Pushing to a remote: only what is missing, never forced, and checked against its list afterwards.

A ref of an ended thread is deleted there by lease: only if it is still as last seen. On servers that refuse
deletions nothing is lost, since an archive overrides an active ref.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.base.errors import Invalid, NotFound, RemoteFailed, StoreDamaged
from uwf_git.base.text import nearest
from uwf_git.engine.pause import was_lifted
from uwf_git.format.ids import ThreadId, name_problem
from uwf_git.git.config import ADVISED_BLOB
from uwf_git.git.program import Git
from uwf_git.git.repository import Oid, Repository
from uwf_git.store import definitions, layout, ref_kinds
from uwf_git.store.history import Head, parted_from, tagged_commit
from uwf_git.store.instance import Instance
from uwf_git.store.remotes import Remote
from uwf_git.sync import tracking
from uwf_git.sync.admission import note_policy_of, note_sent
from uwf_git.sync.branches import with_branches
from uwf_git.sync.exposed import refuse_secrets
from uwf_git.sync.persons_records import require_none_sent
from uwf_git.sync.seen import Seen
from uwf_git.sync.tracking import RemoteListing, list_refs, tracked_among, tracked_refs
from uwf_git.sync.transfer import FEW, LOCKED, MOST_OF_A_FORGE, Pushed, Rejected, remove, replace, send

if TYPE_CHECKING:
    from uwf_git.sync.exchange import Exchange
    from uwf_git.workspaces.sharing import Code

_ENDED_THERE = "the thread was ended there"


class Plan(NamedTuple):
    """What to push: `updates` with our objects, and `deletions` with the objects last seen. `replaced` are
    updates that don't continue what was last seen. `held` were deleted there, so they stay here. `seen`: some
    may have been deleted since the last look. Of threads that ended there, `ended` have nothing that the end
    might lack, and `refused` may have. `broken` refs stay here, each with its problem: they lead to nothing that the
    remote's readers would take over."""

    updates: Mapping[str, Oid]
    deletions: Mapping[str, Oid]
    replaced: Mapping[str, Oid] = {}
    held: frozenset[str] = frozenset()
    seen: bool = False
    ended: frozenset[str] = frozenset()
    refused: frozenset[str] = frozenset()
    broken: Mapping[str, str] = {}

    def without(self, broken: Mapping[str, str]) -> Plan:
        """Return a plan without refs that are broken, by their problems."""
        updates = {name: oid for name, oid in self.updates.items() if name not in broken}
        return self._replace(updates=updates, broken={**self.broken, **broken})


class PushReport(NamedTuple):
    """The result of a push. `steps` is the number of new steps for the remote; `held` the refs not pushed because
    they were deleted there, `ended` because their threads ended there, and `broken` because the remote's readers would
    refuse them. `code` went to remotes of projects."""

    pushed: tuple[Pushed, ...]
    rejected: tuple[Rejected, ...]
    large: tuple[LargeBlob, ...] = ()
    steps: int = 0
    held: frozenset[str] = frozenset()
    ended: frozenset[str] = frozenset()
    code: tuple[Code, ...] = ()
    broken: tuple[Rejected, ...] = ()

    def to_json(self, remote: str) -> dict[str, Any]:
        """Return the printed form; `remote` is the remote's name."""
        value: dict[str, Any] = {
            "remote": remote,
            "pushed": [
                {"ref": item.ref, "object": str(item.object)}
                for item in self.pushed
                if item.object is not None
            ],
            "deleted": [item.ref for item in self.pushed if item.object is None],
            "refused": [item._asdict() for item in (*self.broken, *self.rejected)],
            "large": [blob._asdict() for blob in self.large],
        }
        if self.steps:
            value["steps"] = self.steps
        if self.held:
            value["deletedThere"] = sorted(self.held)
        if self.ended:
            value["endedThere"] = sorted(self.ended)
        if self.code:
            value["code"] = [code._asdict() for code in self.code]
        return value


class LargeBlob(NamedTuple):
    """A blob that forges may refuse. `size` is in bytes; `node` its hash if it is a node."""

    blob: str
    size: int
    node: str | None


def plan(
    instance: Instance,
    remote: Remote,
    only: Collection[str] | None = None,
    named: Collection[str] = (),
    again: bool = False,
) -> Plan:
    """Return what a remote lacks, according to its tracking refs. `only` limits the refs. Refs deleted there
    are held back unless `named` or `again`."""
    repository = instance.store.repository
    if only is not None and len(only) <= FEW:
        refs, unreadable = _refs_among(repository, only)
        known = tracked_among(repository, remote.name, only)
    else:
        here, unreadable = repository.refs_and_broken(without=layout.REMOTES)
        refs = {name: oid for name, oid in here.items() if _is_meant(name, only)}
        unreadable = {name for name in unreadable if _is_meant(name, only)}
        tracked = tracked_refs(repository, remote.name)
        known = {name: oid for name, oid in tracked.items() if only is None or name in only}
    differing = {name: oid for name, oid in refs.items() if known.get(name) != oid}
    held = frozenset() if again else tracking.marked(instance, remote, differing) - set(named)
    updates = {name: oid for name, oid in differing.items() if name not in held}
    superseded = {
        name: oid
        for name, oid in known.items()
        if name not in refs and layout.is_thread_ref(name) and _is_superseded(instance, name, oid)
    }
    replaced = {
        name: known[name]
        for name in updates
        if name.startswith(layout.PAUSED) and name in known and _is_superseded(instance, name, known[name])
    }
    of_known = {layout.thread_of(name) for name in known if name.startswith((layout.THREADS, layout.ARCHIVE))}
    seen = bool(superseded) or any(
        name in known or (layout.is_thread_ref(name) and layout.thread_of(name) in of_known)
        for name in updates
    )
    return Plan(
        updates, superseded, replaced, held, seen, broken=dict.fromkeys(unreadable, "it holds no object id")
    )


def _is_meant(name: str, only: Collection[str] | None) -> bool:
    return layout.is_shared_ref(name) if only is None else name in only


def _refs_among(repository: Repository, names: Iterable[str]) -> tuple[dict[str, Oid], set[str]]:
    """Return the objects of those refs that are there, and the names of those that hold none."""
    refs: dict[str, Oid] = {}
    unreadable: set[str] = set()
    for name in names:
        try:
            if (oid := repository.ref(name)) is not None:
                refs[name] = oid
        except StoreDamaged:
            unreadable.add(name)
    return refs, unreadable


def _without_broken(instance: Instance, what: Plan) -> Plan:
    """Leave out refs that lead to no record of their kind, as the index knows it."""
    store = instance.store
    rows = store.index.commits_among([oid.raw for oid in what.updates.values()])
    broken = {}
    for name, oid in what.updates.items():
        kind = ref_kinds.kind_of(name)
        if not store.repository.has(oid):
            broken[name] = f"it leads to object {oid}, which is missing"
        elif kind is not None and kind.target in ("commit", "end") and kind.records:
            try:
                commit = Oid(raw=store.index_tag(oid).target) if kind.target == "end" else oid
                row = rows.get(commit.raw) or store.index_commit(commit)
            except StoreDamaged as error:
                broken[name] = error.message
            else:
                if row.kind not in kind.records:
                    broken[name] = f"it leads to commit {oid}, which records no {' or '.join(kind.records)}"
    return what.without(broken) if broken else what


def replan(
    exchange: Exchange,
    only: Collection[str] | None = None,
    named: Collection[str] = (),
    again: bool = False,
) -> Plan:
    """As `plan`, after asking a remote that may have lost some of it. Touches what `tracking.note` does.
    Raises RemoteFailed."""
    instance, remote, git = exchange
    what = plan(instance, remote, only, named, again)
    seen = Seen(instance.store.repository.private, remote.name)
    # The tracking ref of a thread that ended there is gone after the first look.
    was_seen = any(name.startswith(layout.THREADS) and seen.get(name) for name in what.updates)
    if what.updates and not (what.seen or was_seen or what.held or named or again):
        return _without_broken(instance, what)
    known = tracked_refs(instance.store.repository, remote.name)
    listed = tracking.look(exchange)
    what = _without_broken(instance, plan(instance, remote, only, named, again))
    return _without_ended(instance, _without_fetched(git, what, listed, known, seen), listed, known, seen)


def _without_fetched(
    git: Git, what: Plan, listed: Mapping[str, Oid], known: Mapping[str, Oid], seen: Seen
) -> Plan:
    """Leave out threads of which git has fetched more than was adopted here."""

    def is_behind(name: str, oid: Oid) -> bool:
        there = known.get(name)
        if there is None or there != listed.get(name) or seen.get(name) != oid:
            return False
        return git.run("merge-base", "--is-ancestor", str(oid), str(there), check=False).code == 0

    behind = {
        name for name, oid in what.updates.items() if name.startswith(layout.THREADS) and is_behind(name, oid)
    }
    return what._replace(updates={name: oid for name, oid in what.updates.items() if name not in behind})


def _without_ended(
    instance: Instance, what: Plan, listed: Mapping[str, Oid], known: Mapping[str, Oid], seen: Seen
) -> Plan:
    """Leave out what would give an ended thread an active ref, or a pause, beside its end on the remote."""
    names = {
        name
        for name in what.updates
        if name.startswith((layout.THREADS, layout.PAUSED)) and name not in listed
    }
    ended = (
        tracking.ended_there(instance, listed, {layout.thread_of(name) for name in names}) if names else set()
    )
    left_out = {name for name in names if layout.thread_of(name) in ended}
    moved = {
        name
        for name in left_out
        if name.startswith(layout.THREADS) and what.updates[name] not in (known.get(name), seen.get(name))
    }
    updates = {name: oid for name, oid in what.updates.items() if name not in left_out}
    replaced = {name: oid for name, oid in what.replaced.items() if name not in left_out}
    return what._replace(
        updates=updates, replaced=replaced, ended=frozenset(left_out - moved), refused=frozenset(moved)
    )


def refs_of(instance: Instance, threads: Iterable[ThreadId], branches: bool = True) -> set[str]:
    """Return every ref that threads and their divergences may have, and those of their `branches`."""
    wanted = with_branches(instance, threads) if branches else set(threads)
    repository = instance.store.repository
    forks = [ThreadId(name.removeprefix(layout.FORKS)) for name in repository.ref_names(layout.FORKS)]
    links = [link for fork in forks if (link := parted_from(instance.store, fork))]
    while more := {link.thread for link in links if link.origin in wanted} - wanted:
        wanted |= with_branches(instance, more) if branches else more  # a fork may have forks of its own
    return {*layout.refs_of_threads(wanted)}


def refs_of_workflow(instance: Instance, name: str) -> set[str]:
    """Return the refs of a workflow or its package, and those of its threads in the project. Raises NotFound."""
    if "/" in name:
        packages = definitions.packages_with(instance.store, name)
        ref = packages.prefix + packages.offer(name).version.name
    else:
        ref = layout.WORKFLOWS + instance.registry.current(name).name
    return {ref, *_refs_of_threads(instance, lambda of: of == name)}


def refs_of_kind(instance: Instance, record: str, name: str) -> set[str]:
    """Return the refs of a definition, those that go along with it, and those of its threads in the project. Raises
    NotFound."""
    kind = ref_kinds.kind_of_record(record)
    assert kind is not None, record
    repository = instance.store.repository
    if name_problem(name) or repository.ref(kind.prefix + name) is None:
        known = (ref_name.removeprefix(kind.prefix) for ref_name in repository.ref_names(kind.prefix))
        raise NotFound(f"no {kind.word} {name!r}", nearest(name, known) or f"see: {kind.commands} list")
    refs = {prefix + name for prefix in (kind.prefix, *kind.along)}
    return refs | _refs_of_threads(instance, lambda of: of.startswith(f"{name}/")) if kind.versions else refs


def refs_of_project(instance: Instance, remote: Remote) -> set[str]:
    """Return the refs of the project's threads, and those that a push of them takes along: the trust policy, the
    definitions that they use, that were registered in the project or that the remote has already, and the folds of no
    other threads."""
    from uwf_git.store import archives

    meant = instance.threads.meant(archived=True)
    heads = [head for head in meant if isinstance(head, Head)]
    threads = {head.thread for head in meant}
    # Branches of earlier versions don't name their project.
    wanted = refs_of(instance, (head.thread for head in heads if not head.row.project))
    wanted |= layout.refs_of_threads(threads).keys()
    names = {head.row.name for head in heads if head.row.name}
    wanted |= {layout.POLICY, *(layout.WORKFLOWS + name for name in names if "/" not in name)}
    for name in (name for name in names if "/" in name):
        if (package := definitions.package_at(instance.store, name)) is not None:
            wanted.add(package.prefix + name.partition("/")[0])
    repository, known = instance.store.repository, tracked_refs(instance.store.repository, remote.name)
    for name, oid in repository.refs(without=layout.REMOTES).items():
        if name.startswith(layout.FOLDED):
            belongs = archives.names(repository, oid) <= threads
        else:
            belongs = not layout.is_thread_ref(name) and (
                name in known or instance.threads.projects.has_definition(name)
            )
        if belongs:
            wanted.add(name)
    return wanted


def _refs_of_threads(instance: Instance, fits: Callable[[str], bool]) -> set[str]:
    heads = instance.threads.meant(archived=True)
    return refs_of(
        instance, [head.thread for head in heads if isinstance(head, Head) and fits(head.row.name or "")]
    )


def push(exchange: Exchange, what: Plan) -> PushReport:
    """Push a plan. Moves refs of the remote and its tracking refs. Raises RemoteFailed if nothing could be
    pushed; before pushing Invalid for an oversized blob or a secret that was stored before it was known,
    RequirementUnmet as `require_none_sent`."""
    (instance, remote, git), repository = exchange, exchange.repository
    what, outgoing = readable(exchange, what)
    way = f"push others by name: uwf push {remote.name} ID"
    refuse_secrets(instance, git, what.updates, outgoing.others, way)
    require_none_sent(instance, outgoing.commits)
    note_sent(instance, what.updates)
    updates = {name: oid for name, oid in what.updates.items() if name not in what.replaced}
    here = repository.refs(without=layout.REMOTES) if len(updates) > FEW else {}
    others = here.keys() - updates.keys()
    results = send(git, remote, updates, others, at_most(exchange, updates))
    results.update(replace(git, remote, {n: (old, what.updates[n]) for n, old in what.replaced.items()}))
    refused = tuple(Rejected(name, _ENDED_THERE, lost=True) for name in sorted(what.refused))
    broken = tuple(Rejected(name, problem) for name, problem in sorted(what.broken.items()))
    if not results and not what.deletions:
        return PushReport((), refused, outgoing.large, held=what.held, ended=what.ended, broken=broken)
    listed = list_refs(git, repository, remote)
    gone = _kept_there(exchange, listed, what.deletions)
    results.update(remove(git, remote, gone, at_most(exchange, gone)))
    ended = _ended_there(instance, listed, results)
    remove(git, remote, {name: what.updates[name] for name in ended if _is_made(results[name])})
    results.update(ended)
    taken = tuple(
        _listed(remote, listed, result) for result in results.values() if isinstance(result, Pushed)
    )
    _remember(instance, remote, listed, taken)
    rejected = refused + tuple(result for result in results.values() if isinstance(result, Rejected))
    # One that moved here meanwhile is the next push's.
    missing = {
        name for name in what.updates.keys() - results.keys() if repository.ref(name) == what.updates[name]
    }
    rejected += tuple(Rejected(name, "the connection was lost before it") for name in sorted(missing))
    arrived = (_target(instance, item.ref, item.object) for item in taken if item.object is not None)
    steps = _steps(instance, outgoing.commits, arrived, whole=not rejected)
    return PushReport(taken, rejected, outgoing.large, steps, what.held, what.ended, broken=broken)


def _is_made(result: Pushed | Rejected) -> bool:
    return isinstance(result, Pushed) and result.made


def _steps(instance: Instance, commits: Sequence[bytes], tips: Iterable[Oid | None], whole: bool) -> int:
    index = instance.store.index
    if commits and index.commit(commits[0]) is None:
        instance.store.sync()  # the index was thrown away, or git made the ref
    if whole:
        return index.steps_among(commits)
    contents, count = set(commits), 0
    for tip in tips:
        at = tip.raw if tip is not None else None
        while at in contents:
            contents.remove(at)
            row = index.commit(at)
            count += row is not None and row.kind == "step"
            at = row.parent if row is not None else None
    return count


class Outgoing(NamedTuple):
    """What a remote lacks: blobs above 1 MB, the commits, and other objects."""

    large: tuple[LargeBlob, ...]
    commits: tuple[bytes, ...]
    others: tuple[bytes, ...] = ()


def readable(exchange: Exchange, what: Plan) -> tuple[Plan, Outgoing]:
    """Return a plan without the refs of which some object cannot be read, and what is new to the remote of the rest.
    Raises Invalid as `look_through`."""
    try:
        return what, look_through(exchange, what.updates.values())
    except StoreDamaged:
        what = what.without(_unreadable(exchange, what.updates))
        return what, look_through(exchange, what.updates.values())


def _unreadable(exchange: Exchange, updates: Mapping[str, Oid]) -> dict[str, str]:
    """Return the problems of those refs that cannot be read whole."""
    try:
        look_through(exchange, updates.values())
    except StoreDamaged as error:
        names = list(updates)
        if len(names) == 1:
            return {names[0]: error.message}
        parts = names[: len(names) // 2], names[len(names) // 2 :]
        each_part = ({name: updates[name] for name in part} for part in parts)
        return {name: why for part in each_part for name, why in _unreadable(exchange, part).items()}
    except Invalid:  # too large, which is told of all
        pass
    return {}


def raise_if_broken(broken: Sequence[Rejected]) -> None:
    """Raise StoreDamaged for the first of the refs that were not pushed since they are broken."""
    if broken:
        first, more = broken[0], f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
        hint = "uwf doctor --fix repairs it, or says how to restore it"
        if layout.is_thread_ref(first.ref):
            hint += f"; or give it up: uwf thread rm {layout.thread_of(first.ref)} --yes"
        raise StoreDamaged(f"{first.ref} is broken, and was not pushed: {first.reason}{more}", hint)


def look_through(exchange: Exchange, tips: Iterable[Oid]) -> Outgoing:
    """Return what is new to a remote of everything reachable. Raises Invalid for a blob above `uwf.maxBlob`
    (95 MB), which forges refuse, StoreDamaged for missing objects."""
    (instance, remote, git), repository = exchange, exchange.repository
    known = f"--glob={layout.REMOTES}{remote.name}/*"
    orders = "".join(f"{tip}\n" for tip in tips)
    if not orders:
        return Outgoing((), ())
    done = git.run(
        "rev-list",
        "--objects",
        f"--filter=blob:limit={ADVISED_BLOB}",
        "--filter-print-omitted",
        "--stdin",
        "--not",
        known,
        stdin=orders.encode(),
        check=False,
    )
    if done.code:
        raise StoreDamaged(
            f"what is to be pushed cannot be read: {done.reason}",
            f"uwf doctor --fix repairs it; until then others can be pushed by name: uwf push {remote.name} ID",
        )
    blobs = [line[1:].decode() for line in done.out.splitlines() if line.startswith(b"~")]
    large = tuple(
        LargeBlob(blob, repository.size(Oid(hex=blob)), instance.store.index.node_of_blob(Oid(hex=blob).raw))
        for blob in blobs
    )
    at_most = repository.config.max_blob
    for large_blob in large:
        if large_blob.size > at_most:
            what = f"node {large_blob.node}" if large_blob.node else f"blob {large_blob.blob}"
            raise Invalid(
                f"{what} has {large_blob.size / 1_000_000:.0f} MB, more than forges take",
                f"fork the thread before that step, or allow it: {repository.config.to_raise('uwf.maxBlob', '200m')}",
            )
    # In the list, only commits have no name and no space before it.
    objects = [(len(line) == 40, line[:40]) for line in done.out.splitlines() if not line.startswith(b"~")]
    commits, others = (
        tuple(bytes.fromhex(oid.decode()) for is_commit, oid in objects if is_commit is kind)
        for kind in (True, False)
    )
    return Outgoing(large, commits, (*others, *map(bytes.fromhex, blobs)))


def at_most(exchange: Exchange, refs: Collection[str]) -> int | None:
    """Return how many refs one push to a remote may name; None for no limit."""
    if len(refs) <= MOST_OF_A_FORGE:
        return None
    from uwf_git.config.forges import is_forge

    instance, remote, git = exchange
    url = git.run("remote", "get-url", "--push", remote.name).out
    rewritten = url.decode("utf-8", "surrogateescape").strip()
    known = any(is_forge(url, instance.config.forges) for url in (remote.push_url, rewritten))
    return MOST_OF_A_FORGE if known else None


def _is_superseded(instance: Instance, name: str, oid: Oid) -> bool:
    thread = layout.thread_of(name)
    if name.startswith(layout.PAUSED):
        return was_lifted(instance, thread, oid) or instance.threads.has_ended(thread)
    if name.startswith(layout.THREADS):
        return instance.threads.has_ended(thread)
    return instance.store.folded(thread) is not None


def _kept_there(exchange: Exchange, listed: RemoteListing, doomed: Mapping[str, Oid]) -> dict[str, Oid]:
    (instance, _, git), repository = exchange, exchange.repository
    lifted = {
        name: oid
        for name, oid in doomed.items()
        if name.startswith(layout.PAUSED) and was_lifted(instance, layout.thread_of(name), oid)
    }
    ended = {name: oid for name, oid in doomed.items() if _has_its_end(instance, listed, name)}
    targets = {name: target for name, oid in ended.items() if (target := _target(instance, name, oid))}
    if not targets:
        return lifted
    keepers = {oid for name, oid in listed.refs.items() if name not in ended and repository.has(oid)}
    orders = [str(target) for target in targets.values()] + [f"^{oid}" for oid in keepers]
    lost = git.run("rev-list", "--stdin", stdin="\n".join(orders).encode() + b"\n").out.decode().split()
    return {
        **lifted,
        **{name: ended[name] for name, target in targets.items() if str(target) not in set(lost)},
    }


def _has_its_end(instance: Instance, listed: RemoteListing, name: str) -> bool:
    thread = layout.thread_of(name)
    repository, folded = instance.store.repository, instance.store.folded(thread)
    if folded is not None and listed.refs.get(folded.ref) == repository.ref(folded.ref):
        return not name.startswith(layout.FORKS) or folded.fork is not None
    archive = repository.ref(layout.ARCHIVE + thread)
    return (
        name.startswith((layout.THREADS, layout.PAUSED))
        and archive is not None
        and listed.refs.get(layout.ARCHIVE + thread) == archive
    )


def _target(instance: Instance, name: str, oid: Oid) -> Oid | None:
    if not instance.store.repository.has(oid):
        return None
    is_tag = name.startswith((layout.ARCHIVE, layout.FORKS, layout.PAUSED))
    return tagged_commit(instance.store, oid) if is_tag else oid


def _listed(remote: Remote, listed: RemoteListing, pushed: Pushed) -> Pushed:
    """Return a pushed ref if the remote lists it or its successor, since it may have been deleted by an end
    or a resume. Raises RemoteFailed."""
    if pushed.object is not None and pushed.ref not in listed.refs and _is_hidden(pushed.ref, listed):
        raise RemoteFailed(
            f"{remote.name} said it took {pushed.ref}, but does not list it",
            "ask its administrator about hidden refs (transfer.hideRefs), or share by branch: uwf publish",
        )
    return pushed


def _is_hidden(name: str, listed: RemoteListing) -> bool:
    likes = layout.NAMESPACE if name.startswith(layout.PAUSED) else layout.namespace_of(name)
    of_thread = {prefix + layout.thread_of(name) for prefix in layout.of_threads()}
    return not any(ref.startswith(likes) or ref in of_thread for ref in listed.refs)


def _remember(instance: Instance, remote: Remote, listed: RemoteListing, taken: Iterable[Pushed]) -> None:
    repository = instance.store.repository
    for item in taken:
        there = listed.refs.get(item.ref)
        if there == item.object:
            repository.set_ref(layout.tracking(remote.name, item.ref), there)
        if item.ref.startswith(layout.FOLDED) and there == item.object:
            tracking.agree(instance, remote.name, item.ref, there)
        if item.ref == layout.POLICY and item.object is not None:
            note_policy_of(repository, remote.name, item.object)
        if item.object is not None:
            tracking.unmark(instance, remote, item.ref)
    Seen(repository.private, remote.name).note(
        {
            entry.ref: entry.object
            for entry in taken
            if entry.object is not None
            and listed.refs.get(entry.ref) == entry.object
            and not entry.ref.startswith(layout.PAUSED)
        }
    )


def _ended_there(
    instance: Instance, listed: RemoteListing, results: Mapping[str, object]
) -> dict[str, Rejected]:
    """Return the active refs that arrived beside another end of their thread."""
    pushed = {
        layout.thread_of(name): name
        for name, result in results.items()
        if isinstance(result, Pushed) and result.object is not None and name.startswith(layout.THREADS)
    }
    ended = tracking.ended_there(instance, listed.refs, pushed) if pushed else set()
    return {pushed[thread]: Rejected(pushed[thread], _ENDED_THERE, lost=True) for thread in sorted(ended)}


def refusal(remote: Remote, rejected: Sequence[Rejected]) -> RemoteFailed:
    """Return the error for a server's refusal, with what to ask its administrator."""
    first = rejected[0]
    hint = (
        "ask its administrator to allow pushes to refs/uwf/* (receive.hideRefs and hooks), or share by branch: "
        "uwf publish"
    )
    return RemoteFailed(f"{remote.name} refuses {first.ref}: {first.reason}", hint_if_locked(first) or hint)


def hint_if_locked(rejected: Rejected) -> str:
    """Return the hint for a lock on the remote, else ""."""
    if rejected.reason != LOCKED:
        return ""
    return (
        f"push again; if it lasts, a git was killed there, and its administrator removes {rejected.ref}.lock"
    )
