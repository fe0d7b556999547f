"""Removing worktrees. What is uncommitted in one is kept as a commit first, and its commits stay. What git ignores
goes, and is named; what `workspace.keepIgnored` names is kept in `<storage root>/ignored/<ULID>`."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from uwf_git.base import log
from uwf_git.base.errors import Busy, Invalid, NotFound, UwfError, WorkspaceFailed
from uwf_git.format.ids import ThreadId
from uwf_git.store.removed import kept_threads
from uwf_git.workspaces.notes import Note, Notes
from uwf_git.workspaces.options import FOLDER, WORKTREE
from uwf_git.workspaces.project import work_name
from uwf_git.workspaces.worktree import Worktree, worktree_of

if TYPE_CHECKING:
    from uwf_git.store.instance import Instance


class Workspace(NamedTuple):
    """A thread's workspace on this machine. `path` is where its agents work, whether it `exists` or not;
    `branch` is the name of a worktree's code for git, else ""."""

    thread: ThreadId
    kind: str
    path: Path
    branch: str
    project: str
    exists: bool


def workspaces(instance: Instance) -> list[Workspace]:
    """Return the workspaces of threads that were given one here, newest first."""
    notes = Notes(instance.store.repository.private)
    return [found for thread, note in notes.all() if (found := _workspace(instance, thread, note))]


def find_workspace(instance: Instance, thread: ThreadId) -> Workspace:
    """Return a thread's workspace. Raises NotFound if it has none of its own."""
    note = Notes(instance.store.repository.private).read(thread)
    workspace = _workspace(instance, thread, note) if note is not None else None
    if workspace is None:
        raise NotFound(
            f"thread {thread} has no workspace of its own here", "its agents work in the folder of uwf's call"
        )
    return workspace


def _workspace(instance: Instance, thread: ThreadId, note: Note) -> Workspace | None:
    if note.kind == FOLDER:
        path = Path(note.place, thread)
        return Workspace(thread, note.kind, path, "", "", path.is_dir())
    if note.kind != WORKTREE:
        return None
    tree = worktree_of(instance, note, thread)
    branch = work_name(note.owner)
    project = note.checkout or note.project
    return Workspace(thread, note.kind, tree.folder / note.inside, branch, project, tree.exists)


def leave(instance: Instance, thread: ThreadId) -> None:
    """Remove the worktree of a thread that has ended or was removed; a failure is a warning. The caller holds
    the thread's lock."""
    tree = own_worktree(instance, thread)
    if tree is None or not tree.exists:
        return
    try:
        put_away(instance, tree)
    except UwfError as error:
        instance.warn(f"{error.message}; {error.hint}")


def put_away(instance: Instance, tree: Worktree) -> None:
    """Remove a worktree, with what is uncommitted kept as a commit. Raises WorkspaceFailed. The caller holds the
    thread's lock."""
    try:
        _save(instance, tree)
        tree.remove()
    except OSError as error:
        raise WorkspaceFailed(
            f"worktree {tree.folder} cannot be removed: {error}", "mend that, then: uwf gc"
        ) from None


def tidy(instance: Instance) -> list[ThreadId]:
    """Remove the worktrees of threads that have ended or are gone, and the notes of the latter; return the
    threads whose worktree is gone. Failures are warnings."""
    notes, threads = Notes(instance.store.repository.private), instance.threads
    remaining: list[ThreadId] = []
    restorable = kept_threads(instance.store.repository)
    for thread, note in notes.all():
        is_gone = not threads.exists(thread)
        if not is_gone and not threads.has_ended(thread):
            continue
        tree = own_worktree(instance, thread)
        if tree is not None and tree.exists:
            with suppress(Busy), instance.locks.hold(thread, wait=0):
                leave(instance, thread)
                if not tree.exists:
                    remaining.append(thread)
        elif tree is not None and tree.is_half:
            with suppress(UwfError, OSError), instance.locks.hold(thread, wait=0):
                tree.remove()
        if is_gone and thread not in restorable and (tree is None or not tree.exists):
            stays = False
            if tree is not None and tree.project.common.is_dir():
                with suppress(UwfError):
                    refs = tree.project.kept(thread)
                    tree.project.drop({ref: refs[ref] for ref in refs if ref != tree.ref})
                    tree.forget()
                    stays = not _drop_code(instance, tree, note)
            shutil.rmtree(ignored_of(instance, thread), ignore_errors=True)
            if not stays:
                notes.forget(thread)
    return remaining


def _drop_code(instance: Instance, tree: Worktree, note: Note) -> bool:
    """Delete the ref of a removed thread's code, unless that is nowhere else; return whether it is gone."""
    from uwf_git.workspaces.merged import landing
    from uwf_git.workspaces.moved import checkout_of

    project = tree.project
    if tip := project.ref(tree.ref):
        checkout = checkout_of(instance, tree.thread, project)
        if project.only_in([tree.ref], tip) and not landing(project, checkout, note.base, tip):
            return False
        project.drop({tree.ref: tip})
    return True


def remove(instance: Instance, thread: ThreadId) -> Workspace:
    """Remove a thread's worktree; the thread's next step makes it again. Makes
    `refs/uwf/local/work/<ULID>/<commit>` if files in it were changed by hand. Raises NotFound, Busy, WorkspaceFailed,
    Invalid for a folder."""
    workspace = find_workspace(instance, thread)
    if workspace.kind == FOLDER:
        raise Invalid(
            f"workspace {workspace.path} is a folder, which has no history", f"rm -r {workspace.path}"
        )
    tree = own_worktree(instance, thread)
    if tree is None:
        raise Invalid(
            f"thread {thread} works in the worktree of another", f"its code is at {workspace.branch}"
        )
    with instance.locks.hold(thread):
        if tree.exists:
            put_away(instance, tree)
    return workspace._replace(exists=False)


def make_room(instance: Instance, most: int) -> None:
    """Remove worktrees of idle threads, the least recently used first, until at most so many are left."""
    notes = Notes(instance.store.repository.private)
    trees = []
    for thread, note in notes.all():
        if note.kind == WORKTREE and note.owner == thread:
            tree = worktree_of(instance, note, thread)
            if tree.exists:
                trees.append((tree.used, thread, tree))
    for _, thread, tree in sorted(trees, key=lambda item: item[:2]):
        if len(trees) <= most:
            return
        try:
            with instance.locks.hold(thread, wait=0):
                put_away(instance, tree)
            most += 1
            log.info("W2HQ8T5K", "removes worktree {folder} to make room", folder=str(tree.folder))
        except UwfError as error:
            log.info(
                "N6RD3ZXV", "worktree {folder} stays: {error}", folder=str(tree.folder), error=str(error)
            )


def own_worktree(instance: Instance, thread: ThreadId) -> Worktree | None:
    """Return a thread's own worktree, whether it exists or not; None if it has none."""
    note = Notes(instance.store.repository.private).read(thread)
    if note is None or note.kind != WORKTREE or note.owner != thread:
        return None
    return worktree_of(instance, note, thread)


def ignored_of(instance: Instance, thread: ThreadId) -> Path:
    """Return the folder for what is kept of a thread's ignored files."""
    return instance.location.root / "ignored" / thread


def _save(instance: Instance, tree: Worktree) -> None:
    """Keep commits that no ref leads to, and what no commit holds, under a ref, and ignored files as
    `workspace.keepIgnored` says. What failed attempts left is kept already."""
    tree.keep_ignored(ignored_of(instance, tree.thread))
    head, present = tree.head(), tree.tree()
    user = instance.store.repository.user
    commit = tree.write(present, head, "what was in a worktree that was removed\n", user, user)
    if commit == head and not tree.project.only_in((), commit):
        return
    kept = tree.project.keep(tree.thread, commit)
    what = "uncommitted" if commit != head else "committed by hand"
    instance.warn(f"what was {what} in the worktree of thread {tree.thread} is kept as {kept}")
