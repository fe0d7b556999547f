"""What ended and removed threads have left on this machine, and its removal.

What is elsewhere goes without loss: a worktree, whose files are kept first, and refs to commits that branches have too.
If a branch has only what the code changes, as after a squash, the code's ref stays as long as the thread, whose steps
name its commits. Anything else is nowhere else. It goes only if that is asked for, as do such commits. Refs of other
threads are no other place, as they may go later: each thread keeps what its own steps name.
"""

from __future__ import annotations

import shlex
import shutil
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from uwf_git.base import extensions
from uwf_git.base.errors import Busy, Invalid, NotFound, RemoteFailed, UwfError
from uwf_git.base.text import one_line
from uwf_git.format.endings import FAILED, KILLED
from uwf_git.format.ids import ThreadId
from uwf_git.store import layout
from uwf_git.store.removed import kept_threads
from uwf_git.workspaces.discarding import give_forks_their_code
from uwf_git.workspaces.merged import Landing, landing
from uwf_git.workspaces.moved import checkout_of, targets
from uwf_git.workspaces.notes import Note, Notes
from uwf_git.workspaces.options import WORKTREE
from uwf_git.workspaces.project import KEPT, TRACKING, Project, tracking, work_ref
from uwf_git.workspaces.removal import ignored_of, put_away
from uwf_git.workspaces.worktree import Worktree, worktree_of

if TYPE_CHECKING:
    from uwf_git.store.instance import Instance
    from uwf_git.store.location import Checkout

_MOST_FILES = 100
_OF_THREADS = (f"{layout.WORK}*", "refs/uwf/local/*")
_OWN = "attempts and agents left it, and it is nowhere else"


class Scope(NamedTuple):
    """The leftovers that are asked for: of `threads`, or of all of the `project` with this git directory, None for any.
    With `discards`, what is nowhere else of dropped threads goes too, and with `remote` what their projects' remotes
    have of what goes or is merged."""

    threads: Collection[ThreadId] = ()
    project: Path | None = None
    discards: bool = False
    remote: bool = False


class RemoteHeads(NamedTuple):
    """The `branches` of a remote, with their commits, but for its default branch, which is in `usual`."""

    usual: Mapping[str, str]
    branches: Mapping[str, str]


class Loss(NamedTuple):
    """What no branch has: at a ref of this thread the `commits` up to `commit` and the files that they change, or in a
    folder the files."""

    place: str
    commit: str
    commits: int
    files: tuple[str, ...]


class Leftovers(NamedTuple):
    """What a thread has left. `refs` and the folder `worktree`, "" for none, go without loss, and the `losses` if it
    `discards` them. `pushed` is the commit of its code on `remote`, "" without one, which goes if it `unshares` it, as
    do the merged `branches` of its requests, by remote and name. `stays` has reasons by ref or folder; if it
    `keeps_code`, that of a completed thread is among these."""

    thread: ThreadId
    project: Path
    landing: Landing | None
    worktree: str
    refs: Mapping[str, str]
    losses: tuple[Loss, ...]
    stays: Mapping[str, str]
    remote: str
    pushed: str
    discards: bool
    unshares: bool
    branches: Mapping[tuple[str, str], str]
    keeps_code: bool

    @property
    def removes(self) -> list[str]:
        """The folders and refs that go."""
        lost = (loss.place for loss in self.losses if self.discards)
        there = [self.ref_there] if self.unshares else []
        landed = (f"{branch} on {remote}" for remote, branch in self.branches)
        return list(dict.fromkeys((*filter(None, [self.worktree]), *self.refs, *lost, *there, *landed)))

    @property
    def ref_there(self) -> str:
        return f"{work_ref(self.thread)} on {self.remote}"


def leftovers(instance: Instance, scope: Scope) -> Iterator[Leftovers]:
    """Yield what threads have left, newest thread first. Raises NotFound for one that is named and has no worktree of
    its own here, Invalid for one that hasn't ended."""
    notes = Notes(instance.store.repository.private)
    refs: dict[str, dict[ThreadId, dict[str, str]]] = {}
    heads: dict[tuple[Path, str], RemoteHeads] = {}
    for thread in scope.threads:
        _require(instance, notes.read(thread), thread)
    for thread, note in notes.all():
        is_meant = thread in scope.threads or not scope.threads
        if not is_meant or not _is_candidate(instance, thread, note):
            continue
        if scope.project is not None and not scope.threads and Path(note.project) != scope.project:
            continue
        if note.project not in refs:
            refs[note.project] = _refs_by_thread(Project(Path(note.project)))
        own = refs[note.project].get(thread, {})
        yield _Look(instance, thread, note, scope, heads).leftovers(own)


def _require(instance: Instance, note: Note | None, thread: ThreadId) -> None:
    if note is None or note.kind != WORKTREE or note.owner != thread:
        raise NotFound(
            f"thread {thread} has no worktree of its own here", "uwf workspace list --all lists them"
        )
    if instance.threads.exists(thread) and not instance.threads.has_ended(thread):
        raise Invalid(
            f"thread {thread} has not ended",
            f"uwf workspace remove {thread} removes its worktree until the next step",
        )


def _is_candidate(instance: Instance, thread: ThreadId, note: Note) -> bool:
    if note.kind != WORKTREE or note.owner != thread or not Path(note.project).is_dir():
        return False
    return not instance.threads.exists(thread) or instance.threads.has_ended(thread)


def _refs_by_thread(project: Project) -> dict[ThreadId, dict[str, str]]:
    """Return the refs of threads in a project, with those for what remotes have."""
    rows = project.line("for-each-ref", "--format=%(refname) %(objectname)", layout.WORK, KEPT, TRACKING)
    by_thread: dict[ThreadId, dict[str, str]] = defaultdict(dict)
    for name, _, oid in (row.partition(" ") for row in rows.splitlines()):
        parts = name.split("/")
        thread = parts[4] if name.startswith(KEPT) else parts[-1]
        by_thread[ThreadId(thread)][name] = oid
    return by_thread


class _Look:
    """A look at what one thread has left."""

    def __init__(
        self,
        instance: Instance,
        thread: ThreadId,
        note: Note,
        scope: Scope,
        heads: dict[tuple[Path, str], RemoteHeads],
    ) -> None:
        """`heads` are the remotes that were listed, by project and name."""
        self._instance, self._thread, self._note, self._scope = instance, thread, note, scope
        self._heads = heads
        self._usual: dict[str, str] = {}
        """The default branches of remotes that were looked at, as they are there."""
        self._tree = worktree_of(instance, note, thread)
        self._project = self._tree.project

    def leftovers(self, refs: Mapping[str, str]) -> Leftovers:
        """Return them, of which `refs` are the thread's."""
        tree, project, scope = self._tree, self._project, self._scope
        pushed = next((name for name in refs if name.startswith(TRACKING)), "")
        own = {name: oid for name, oid in refs.items() if not name.startswith(TRACKING)}
        tip, there = own.get(tree.ref, ""), refs.get(pushed, "")
        is_dropped = self._is_dropped()
        branches = dict(self._merged_branches()) if scope.remote else {}
        needs_changes = is_dropped or (scope.remote and (pushed != "" or bool(branches)))
        merged = self._landing(tip, needs_changes)
        merged_there = merged if there == tip else self._landing(there, needs_changes)
        discards = scope.discards and is_dropped
        unshares = scope.remote and pushed != "" and (merged_there is not None or discards)
        staying = [pushed] if pushed and is_dropped and not unshares else []
        safe: dict[str, str] = {}
        losses: list[Loss] = []
        stays: dict[str, str] = {}
        for name, oid in sorted(own.items(), key=lambda row: row[0] != tree.ref):
            is_merged = name == tree.ref and merged is not None and not merged.has_commits
            count = 0 if is_merged and not discards else project.only_in(_OF_THREADS, oid, staying)
            if is_merged and not discards and self._is_kept():
                stays[name] = (
                    "the steps name its commits, of which a branch has the changes; --discard removes it"
                )
            elif not count:
                safe[name] = oid
            elif is_dropped:
                losses.append(Loss(name, oid, count, self._files(oid, staying)))
            else:
                stays[name] = "no branch has its commits" if name == tree.ref else _OWN
            if name == tree.ref and name not in safe and not (discards and losses):
                staying.append(name)
        remote = pushed.removeprefix(TRACKING).rpartition("/")[0]
        ref_there = f"{tree.ref} on {remote}"
        is_lost_there = unshares and merged_there is None and there != tip
        if is_lost_there and (count := project.only_in(_OF_THREADS, there, staying)):
            losses.append(Loss(ref_there, there, count, self._files(there, staying)))
        ignored = ignored_of(self._instance, self._thread)
        if files := _files_in(ignored):
            if is_dropped:
                losses.append(Loss(str(ignored), "", 0, files))
            else:
                stays[str(ignored)] = "workspace.keepIgnored keeps it"
        if pushed and not unshares:
            stays[ref_there] = "--remote deletes it once it is merged or discarded"
        worktree = str(tree.folder) if tree.exists or tree.is_half else ""
        return Leftovers(
            self._thread,
            project.common,
            merged or merged_there,
            worktree,
            safe,
            tuple(losses),
            stays,
            remote,
            there,
            discards,
            unshares,
            branches,
            keeps_code=tree.ref in stays and not is_dropped,
        )

    def _merged_branches(self) -> Iterator[tuple[tuple[str, str], str]]:
        """Yield branches of remotes, with their commits, that the thread pushed and that others have by now. May fetch
        default branches. Raises RemoteFailed."""
        project = self._project
        checkout = checkout_of(self._instance, self._thread, project)
        for (url, branch), own in extensions.pushed(self._instance, self._thread).items():
            remote = project.remote_at(url)
            if not remote:
                continue
            if (project.common, remote) not in self._heads:
                usual, branches = project.heads_at(remote, "*")
                default = {usual: branches.pop(usual)} if usual in branches else {}
                self._heads[project.common, remote] = RemoteHeads(default, branches)
            heads = self._heads[project.common, remote]
            commit = heads.branches.get(branch, "")
            aliases = (branch, f"{remote}/{branch}")
            if commit not in own or {*aliases} & targets(project, None, self._note.base).keys():
                continue
            for name, tip in heads.usual.items():
                if not project.commit(tip):
                    project.fetch_branch(remote, name, f"refs/remotes/{remote}/{name}")
                if project.commit(tip):
                    self._usual[f"{remote}/{name}"] = tip
            if self._merged(checkout, commit, without=aliases):
                yield (remote, branch), commit

    def _landing(self, commit: str, needs_changes: bool) -> Landing | None:
        """Return the branch that has a commit, or, which takes longer to find out, has its changes."""
        if not commit:
            return None
        checkout = checkout_of(self._instance, self._thread, self._project)
        return self._merged(checkout, commit, needs_changes)

    def _merged(
        self, checkout: Checkout | None, commit: str, by_changes: bool = True, without: Collection[str] = ()
    ) -> Landing | None:
        recorded = extensions.landed(self._instance, [self._thread]) if by_changes else {}
        return landing(
            self._project,
            checkout,
            self._note.base,
            commit,
            by_changes,
            without,
            self._usual,
            recorded.get(self._thread, ()),
        )

    def _is_dropped(self) -> bool:
        """Return whether nobody waits for the thread's code, or it is named."""
        threads = self._instance.threads
        if self._thread in self._scope.threads or not threads.exists(self._thread):
            return True
        archive = threads.head(self._thread).archive
        return archive is not None and archive.status in (KILLED, FAILED)

    def _is_kept(self) -> bool:
        """Return whether the thread is here or can be restored."""
        return self._instance.threads.exists(self._thread) or is_restorable(self._instance, self._thread)

    def _files(self, commit: str, staying: Iterable[str]) -> tuple[str, ...]:
        excluded = (f"--exclude={name}" for name in _OF_THREADS)
        words = ("log", "--format=", "--name-only", "-z", "-m", "--first-parent", "--no-renames", commit)
        done = self._project.run(*words, "--not", *excluded, "--all", *staying, check=False)
        names = done.out.decode("utf-8", "replace").replace("\n", "\0").split("\0")
        return tuple(sorted(set(filter(None, names)))[:_MOST_FILES])


def is_restorable(instance: Instance, thread: ThreadId) -> bool:
    return thread in kept_threads(instance.store.repository)


def _files_in(folder: Path) -> tuple[str, ...]:
    with suppress(OSError):
        names = (str(path.relative_to(folder)) for path in sorted(folder.rglob("*")) if not path.is_dir())
        return tuple(name for name, _ in zip(names, range(_MOST_FILES), strict=False))
    return ()


def unshare(instance: Instance, items: Iterable[Leftovers]) -> dict[ThreadId, UwfError]:
    """Delete what remotes of projects have of threads' code, and the branches of their requests, if they are where they
    were seen; return the refusals. Later pushes leave that code out. Raises RemoteFailed if a remote can't be
    reached."""
    notes = Notes(instance.store.repository.private)
    groups: dict[tuple[Path, str], dict[str, tuple[ThreadId, str]]] = defaultdict(dict)
    for item in items:
        for (remote, branch), commit in item.branches.items():
            groups[item.project, remote][f"refs/heads/{branch}"] = item.thread, commit
        if item.unshares and (note := notes.read(item.thread)) is not None:
            notes.write(item.thread, note._replace(unshared=item.pushed))
            groups[item.project, item.remote][work_ref(item.thread)] = item.thread, item.pushed
    refusals: dict[ThreadId, UwfError] = {}
    for (common, remote), refs in groups.items():
        project = Project(common)
        reasons = project.delete_there(remote, {ref: commit for ref, (_, commit) in refs.items()})
        gone = {tracking(remote, own): at for ref, (own, at) in refs.items() if ref == work_ref(own)}
        project.drop(
            {name: at for name, at in gone.items() if work_ref(layout.thread_of(name)) not in reasons}
        )
        for ref, reason in reasons.items():
            refusals[refs[ref][0]] = RemoteFailed(
                f"{ref} of thread {refs[ref][0]} stays on {remote}: {one_line(reason, 200)}",
                f"git -C {shlex.quote(str(common))} ls-remote {shlex.quote(remote)} {shlex.quote(ref)}",
            )
    return refusals


def remove(instance: Instance, item: Leftovers) -> None:
    """Remove what goes of a thread's leftovers on this machine. Deletes refs of its project, and makes
    `refs/uwf/local/work/<ULID>/<commit>` for uncommitted files of a worktree. Raises Busy, and WorkspaceFailed for a
    worktree that has others in it, and if a ref was moved since."""
    notes = Notes(instance.store.repository.private)
    with instance.locks.hold(item.thread):
        note = notes.read(item.thread)
        if note is None or not _is_candidate(instance, item.thread, note):
            raise Busy(f"thread {item.thread} was resumed", "look again: uwf clean")
        tree = worktree_of(instance, note, item.thread)
        if tree.exists:
            put_away(instance, tree)
        elif tree.is_half:
            tree.remove()
        _drop(instance, notes, tree, item)
        if item.discards:
            shutil.rmtree(ignored_of(instance, item.thread), ignore_errors=True)
        refs = tree.project.kept(item.thread)
        if not any(name.startswith(f"{KEPT}{item.thread}/own-") for name in refs):
            tree.forget()
        is_gone = not instance.threads.exists(item.thread) and not is_restorable(instance, item.thread)
        if is_gone and not (refs or tree.exists or item.pushed):
            notes.forget(item.thread)


def _drop(instance: Instance, notes: Notes, tree: Worktree, item: Leftovers) -> None:
    refs, project = dict(item.refs), tree.project
    lost = {
        loss.place: loss.commit
        for loss in item.losses
        if loss.commit and loss.place in project.kept(item.thread)
    }
    if item.discards and lost:
        refs |= lost
        give_forks_their_code(instance, item.thread, project)
        notes.forget_code(item.thread, project.only_commits_in(_OF_THREADS, lost.values()))
    if refs:
        project.drop(refs)
