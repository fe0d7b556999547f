"""Exchanging threads and definitions with another store: a remote or a bundle."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.base.errors import NotFound, RemoteFailed
from uwf_git.base.text import counted
from uwf_git.format.ids import ALPHABET, ThreadId, complete, parse_thread_id
from uwf_git.git.program import Git as Git
from uwf_git.store import layout
from uwf_git.store.instance import Instance
from uwf_git.sync.exchange import Exchange as Exchange

if TYPE_CHECKING:
    from uwf_git.store.location import Location
    from uwf_git.store.remotes import Remote as Remote
    from uwf_git.sync.proposals import Accepted
    from uwf_git.sync.pull import Pulled
    from uwf_git.sync.push import LargeBlob as LargeBlob
    from uwf_git.sync.push import PushReport
    from uwf_git.workspaces.sharing import Code


class Refs(NamedTuple):
    """What to push: the refs `meant`, None for all; `called` are those named explicitly. With `again` also those that
    were deleted on the remote."""

    meant: set[str] | None = None
    called: Collection[str] = ()
    again: bool = False


class Census(NamedTuple):
    """What a push would send: refs, deletions, the number of new steps, and code to remotes of projects."""

    remote: Remote
    updates: Collection[str]
    deletions: Collection[str]
    steps: int
    code: Sequence[Code] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the printed form of a dry run."""
        url = remote_value(self.remote)
        return {
            "remote": self.remote.name,
            "url": url.get("pushUrl", url["url"]),
            "dryRun": True,
            "pushed": [],
            "wouldPush": sorted(self.updates),
            "wouldDelete": sorted(self.deletions),
            "steps": self.steps,
            **({"code": [code._asdict() for code in self.code]} if self.code else {}),
        }


def git_for(instance: Instance, heard: Callable[[str], None] | None = None) -> Git:
    """Return git for a store. `heard` gets its progress, and "" at the end."""
    repository = instance.store.repository
    return Git(repository.path, heard, bounds=repository.config.bounds)


def exchange_with(
    instance: Instance, remote: Remote | str | None, heard: Callable[[str], None] | None = None
) -> Exchange:
    """Return the exchange with a remote, by default `origin` or the only one. `heard` as in `git_for`. Raises NotFound,
    Usage."""
    there = instance.remotes.get(remote) if remote is None or isinstance(remote, str) else remote
    return Exchange(instance, there, git_for(instance, heard))


# Pulling


def pull(exchange: Exchange) -> list[ThreadId]:
    """Pull everything; return new and moved threads and forks of divergences. Moves and raises as
    `sync.pull.pull` and `raise_if_incomplete`."""
    from uwf_git.sync.pull import raise_if_incomplete
    from uwf_git.sync.reconcile import Case

    pulled = fetch(exchange)
    raise_if_incomplete(pulled)
    still = (Case.EQUAL, Case.AHEAD, Case.DELETED_THERE, Case.ENDED_HERE)
    moved = [item for item in pulled.adopted if item.case not in still and item.thread is not None]
    threads = [thread for item in moved for thread in (item.thread, item.fork) if thread is not None]
    return [thread for thread in dict.fromkeys(threads) if exchange.instance.threads.exists(thread)]


def fetch(
    exchange: Exchange,
    threads: Collection[ThreadId] | None = None,
    on_verified: Callable[[int, int], None] | None = None,
) -> Pulled:
    """Pull everything, or some threads, and return the report. `on_verified` gets the number of verified
    commits and their total. Moves and raises as `sync.pull.pull`."""
    from uwf_git.sync.pull import gather, pull

    return pull(exchange, on_verified) if threads is None else gather(exchange, threads, on_verified)


def fetch_branches(exchange: Exchange, thread: ThreadId) -> None:
    """Pull the branches that a thread waits for. Moves and raises as `sync.pull.gather`."""
    from uwf_git.engine.forks import begun_at
    from uwf_git.sync.pull import gather

    instance = exchange.instance
    head = instance.threads.head(thread)
    if head.waits_for_join:
        removed = instance.store.repository.ref_names(layout.REMOVED)
        wanted = [item for item in begun_at(instance, head.row) if layout.REMOVED + item not in removed]
        gather(exchange, wanted)


def trusted_first(instance: Instance, pulled: Pulled) -> str:
    """Return the first commit of the trust policy that a pull brought to a store without one, "" if none."""
    from uwf_git.sync.reconcile import Case

    if not any(item.ref == layout.POLICY and item.case == Case.UNKNOWN for item in pulled.adopted):
        return ""
    from uwf_git.sync.admission import first_followed

    return first_followed(instance)


def bring(exchange: Exchange, text: str) -> None:
    """Pull a thread that isn't here. Raises its problem."""
    from uwf_git.sync.pull import raise_if_refused

    if len(text.strip()) == 26 and not exchange.instance.threads.exists(thread := parse_thread_id(text)):
        raise_if_refused(fetch(exchange, [thread]))


def raise_if_not_pulled(instance: Instance, remote: Remote, thread: ThreadId) -> None:
    """Raise NotFound if a thread isn't here after a pull."""
    if instance.threads.exists(thread):
        return
    if instance.store.repository.ref(layout.REMOVED + thread) is None:
        raise NotFound(f"no thread {thread} on {remote.name}", "uwf pull brings all that is there")
    instance.threads.find(thread)


@contextmanager
def cloning(location: Location, url: str, opened: Callable[[], Instance]) -> Iterator[tuple[Remote, bool]]:
    """Create a store with a remote `origin` for a pull in the block; yield the remote and whether the store
    is new. `opened` opens it. If the block raises, it is undone unless something arrived."""
    from uwf_git.git.program import CHECK_ADDRESS
    from uwf_git.store.location import abandon, init

    root = location.root
    is_new, is_new_root = not location.git_dir.exists(), not root.exists()
    if is_new:
        init(location)
    instance = opened()
    known = {remote.name for remote in instance.remotes.all()}
    remote = instance.remotes.add("origin", url)
    try:
        yield remote, is_new
    except BaseException as error:
        is_unknown = isinstance(error, RemoteFailed) and remote.name not in known
        if isinstance(error, RemoteFailed) and error.hint == CHECK_ADDRESS:
            error.hint = "check the address with: git ls-remote URL"  # the remote is not kept
        if is_new and not instance.store.repository.refs():
            abandon(location)
            if is_new_root:
                with suppress(OSError):  # something else is in it by now
                    root.rmdir()
        elif is_unknown and not instance.store.repository.ref_names(layout.REMOTES):
            instance.remotes.remove(remote.name)
        raise


def accept_rewrite(instance: Instance, remote: Remote, name: str) -> Pulled:
    """Adopt the rewritten history of a thread or other ref. Moves and raises as `sync.resolution.accept`."""
    from uwf_git.sync.pull import Pulled
    from uwf_git.sync.resolution import accept

    instance.require_person(f"accepts the rewritten history of {name}")
    adopted, refused = accept(instance, remote, name)
    return Pulled(remote.name, adopted, refused)


def reject_rewrite(exchange: Exchange, name: str) -> list[str]:
    """Push our history in place of the rewritten one; return the moved refs. Moves and raises as
    `sync.resolution.reject`."""
    from uwf_git.sync.resolution import reject

    exchange.instance.require_person(f"overwrites the history of {name} on a remote")
    return reject(exchange, name)


# Pushing


def push(exchange: Exchange, threads: Collection[ThreadId] = ()) -> None:
    """Push everything missing, or some threads. Raises HeadMoved if the remote moved, and what
    `sync.push.push` and a refusal raise."""
    report = send(exchange, refs_of_threads(exchange.instance, threads))
    raise_if_rejected(exchange, report)


def refs_of_project(instance: Instance, remote: Remote) -> Refs:
    """Return the refs of the project's threads and what they need, with those of calls; all without a project."""
    from uwf_git.sync.push import refs_of_project

    if instance.threads.projects.here is None:
        return Refs()
    return Refs(refs_of_project(instance, remote))


def is_new(instance: Instance, remote: Remote) -> bool:
    """Return whether nothing is known of a remote yet, or only other projects have pushed to it from here."""
    if not instance.store.repository.ref_names(f"{layout.REMOTES}{remote.name}/"):
        return True
    mark, users = instance.threads.projects.mark_here, instance.remotes.projects_of(remote.name)
    return bool(mark and users) and mark not in users


def census(exchange: Exchange, refs: Refs) -> Census:
    """Return what a push of these refs would send. May ask the remote what it has; moves what `sync.tracking.note`
    does. Raises as `sync.push.push` does before it sends anything."""
    from uwf_git.sync.push import readable, replan

    instance, remote, _ = exchange
    with exchange.lock():
        what, outgoing = readable(exchange, replan(exchange, *refs))
    instance.store.sync()
    steps = instance.store.index.steps_among(outgoing.commits)
    return Census(remote, [*what.updates], [*what.deletions], steps, _code_of(instance, refs))


def left_out(instance: Instance, remote: Remote, refs: Refs) -> dict[str, Any]:
    """Return as JSON what a remote lacks of other projects: the number of threads, and further refs."""
    from uwf_git.sync.push import plan

    names = set() if refs.meant is None else plan(instance, remote).updates.keys() - refs.meant
    threads = {layout.thread_of(name) for name in names if layout.is_thread_ref(name)}
    others = sorted(name for name in names if not layout.is_thread_ref(name))
    return {"leftOut": {"threads": len(threads), "others": others}} if names else {}


def send(exchange: Exchange, refs: Refs) -> PushReport:
    """Push refs and return the report. Moves and raises as `sync.push.push`."""
    from uwf_git.sync.push import push, replan

    instance, remote, _ = exchange
    code = push_code_of(instance, refs)
    with exchange.lock():
        report = push(exchange, replan(exchange, *refs))
    if (mark := instance.threads.projects.mark_here) and not report.rejected:
        instance.remotes.note_project(remote.name, mark)
    return report._replace(code=tuple(code))


def push_code_of(instance: Instance, refs: Refs) -> list[Code]:
    """Push the code of threads before their steps, where a remote of their project is configured; return it. Warns
    of code that stays here. Raises RemoteFailed."""
    if not _have_worked_in_folders(instance):
        return []
    from uwf_git.config.edit import project_setting
    from uwf_git.workspaces.sharing import push_code, unshared

    threads = _threads_of(refs)
    pushed = push_code(instance, threads)
    for (checkout, remote), stays in unshared(instance, threads).items():
        command = project_setting(checkout, "remote", remote)
        instance.warn(f"the code of {counted(len(stays), 'thread')} stays here; to push it too: {command}")
    return pushed


def _code_of(instance: Instance, refs: Refs) -> list[Code]:
    if not _have_worked_in_folders(instance):
        return []
    from uwf_git.workspaces.sharing import code_to_push

    return code_to_push(instance, _threads_of(refs))


def _have_worked_in_folders(instance: Instance) -> bool:
    from uwf_git.workspaces.notes import Notes

    return Notes(instance.store.repository.private).any()


def _threads_of(refs: Refs) -> set[ThreadId] | None:
    if refs.meant is None:
        return None
    return {layout.thread_of(ref) for ref in refs.meant if layout.is_thread_ref(ref)}


def delete(exchange: Exchange, threads: Collection[ThreadId]) -> PushReport:
    """Delete threads on a remote and return the report. Moves and raises as `sync.removal.delete`."""
    from uwf_git.sync.removal import delete

    exchange.instance.require_person(f"deletes threads on {exchange.remote.name}")
    with exchange.lock():
        return delete(exchange, threads)


def refs_of_threads(instance: Instance, threads: Collection[ThreadId]) -> Refs:
    """Return the refs of threads, with calls of code workflows and the trust policy that judges them, or of all."""
    from uwf_git.sync.push import refs_of

    if not threads:
        return Refs()
    threads = [*threads, *_calls_of(instance, threads)]
    called = {prefix + thread for prefix in layout.of_threads() for thread in threads}
    return Refs(refs_of(instance, threads) | {layout.POLICY}, called)


def _calls_of(instance: Instance, threads: Collection[ThreadId]) -> Iterator[ThreadId]:
    from uwf_git.engine.calls import calls_of

    for thread in threads:
        with suppress(NotFound):
            yield from calls_of(instance, instance.threads.head(thread))


def refs_of_definition(instance: Instance, kind: str, name: str) -> Refs:
    """Return the refs of a "workflow", "crew" or "suite" and its threads. Raises NotFound."""
    from uwf_git.store import ref_kinds
    from uwf_git.sync.push import refs_of_kind, refs_of_workflow

    if kind == "workflow":
        meant = refs_of_workflow(instance, name)
    else:
        meant = refs_of_kind(instance, kind, name)
    if kind == "suite":
        return Refs(meant | {layout.POLICY}, meant)
    registered = tuple(kind.prefix for kind in ref_kinds.versioned().values())
    return Refs(meant | {layout.POLICY}, {ref for ref in meant if ref.startswith(registered)})


def raise_if_rejected(exchange: Exchange, report: PushReport, deletes: bool = False) -> None:
    """Raise HeadMoved for a moved ref, StoreDamaged for a broken one, or the remote's refusal; of a deletion only if
    the push `deletes`."""
    from uwf_git.sync.push import raise_if_broken, refusal

    rejected = [item for item in report.rejected if deletes or not item.deletion]
    if lost := [item for item in rejected if item.lost]:
        from uwf_git.sync.shared_step import explain_loss

        raise explain_loss(exchange, lost[0])
    raise_if_broken(report.broken)
    if refused := [item for item in rejected if not item.lost]:
        raise refusal(exchange.remote, refused)


# Review


def accept_proposal(instance: Instance, branch: str, exchange: Exchange | None, kind: str) -> Accepted:
    """Register a proposal: the local one, or a remote's branch. Raises RequirementUnmet within a step."""
    from uwf_git.sync.proposals import accept

    instance.require_person(f"accepts {branch}")
    return accept(instance, branch, exchange, kind)


# Naming


def remote_value(remote: Remote) -> dict[str, Any]:
    """Return a remote as JSON, without passwords."""
    from uwf_git.store.remotes import without_password

    value = {"name": remote.name, "url": without_password(remote.url)}
    if remote.push_url != remote.url:
        value["pushUrl"] = without_password(remote.push_url)
    return value


def remote_and_ids(
    instance: Instance, words: Sequence[str], may_be_unknown: bool = False
) -> tuple[Remote, list[str]]:
    """Split words into a remote (by default `origin` or the only one) and thread ids. A first word that is no
    thread here is a remote, unless `may_be_unknown`. In a project's own repository, its remote becomes one of the
    store's by being named. Raises NotFound, Usage."""
    from uwf_git.store.remotes import named

    remotes = instance.remotes.all()
    if words and (own := instance.remotes.of_project(words[0])) is not None:
        return instance.remotes.add(own.name, None), list(words[1:])
    if words and words[0] in {remote.name for remote in remotes}:
        return named(words[0], remotes), list(words[1:])
    if words:
        try:
            instance.threads.find(words[0])
        except NotFound:
            if not (may_be_unknown and _may_be_id(words[0])):
                return named(words[0], remotes), list(words[1:])
    return named(None, remotes), list(words)


def _may_be_id(text: str) -> bool:
    """Return whether a word may be part of a thread's id, which no remote is called."""
    return re.fullmatch(rf"[0-7][{ALPHABET}]{{3,25}}", text.upper()) is not None


def threads_there(exchange: Exchange, ids: Sequence[str]) -> list[ThreadId]:
    """Return the threads of these ids. Partial ids unknown here are looked up on the remote. Raises NotFound,
    Usage, RemoteFailed."""
    from uwf_git.store.threads import NEWEST

    instance, remote, git = exchange
    parsed: dict[ThreadId, None] = {}
    there: set[ThreadId] = set()
    for item in ids:
        if len(item) == 26:
            parsed[parse_thread_id(item)] = None
            continue
        try:
            parsed[instance.threads.find(item)] = None
        except NotFound:
            if item.startswith(NEWEST):
                raise
            if not there:
                from uwf_git.sync.tracking import list_refs

                refs = list_refs(git, instance.store.repository, remote).refs
                there = {layout.thread_of(name) for name in refs if layout.is_thread_ref(name)}
            try:
                parsed[ThreadId(complete(item, there, "thread", ends=True))] = None
            except NotFound:
                hint = "give the whole id of one that is folded there"
                raise NotFound(f"no thread {item}, neither here nor on {remote.name}", hint) from None
    return list(parsed)
