"""Removing what a removed thread has in its project."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from uwf_git.base.errors import UwfError
from uwf_git.base.text import counted
from uwf_git.format.endings import FAILED, KILLED
from uwf_git.store.history import links
from uwf_git.workspaces.merged import landing
from uwf_git.workspaces.moved import checkout_of
from uwf_git.workspaces.notes import Notes
from uwf_git.workspaces.project import KEPT, Project, tracking, work_ref
from uwf_git.workspaces.removal import leave, own_worktree
from uwf_git.workspaces.step_workspace import last_code_commit
from uwf_git.workspaces.worktree import remote_of

if TYPE_CHECKING:
    from uwf_git.format.ids import ThreadId
    from uwf_git.store.instance import Instance


def discard(instance: Instance, thread: ThreadId) -> None:
    """Remove what a thread that was removed has in its project: worktree, code and what was kept of it. Commits that
    are nowhere else stay; a warning names their refs, unless a branch has what they change."""
    leave(instance, thread)
    tree = own_worktree(instance, thread)
    if tree is None or tree.exists or not tree.project.common.is_dir():
        return
    project = tree.project
    try:
        give_forks_their_code(instance, thread, project)
        refs = project.kept(thread)
        others = [ref for ref in refs if ref != tree.ref]
        doomed = {ref: refs[ref] for ref in others if not project.only_in(others, refs[ref])}
        tip = refs.get(tree.ref, "")
        count = project.only_in(refs, tip) if tip else 0
        if tip and not count:
            doomed[tree.ref] = tip
        stays = [ref for ref in refs if ref not in doomed]
        note = Notes(instance.store.repository.private).read(thread)
        if stays == [tree.ref] and note is not None:
            checkout = checkout_of(instance, thread, project)
            if landing(project, checkout, note.base, tip):
                stays = []  # it goes once the thread can't be restored
        if stays:
            at = f"git -C {shlex.quote(str(project.common))}"
            command = f"{at} update-ref -d {tree.ref}"
            if stays != [tree.ref]:
                listed = f"{at} for-each-ref --format='delete %(refname)' {tree.ref} {KEPT}{thread}"
                command = f"{listed} | {at} update-ref --stdin"
            why = f"{counted(count, 'commit')} nowhere else" if count else "what it keeps is nowhere else"
            instance.warn(
                f"the code of thread {thread} stays on {' and '.join(stays[:3])}, with {why}; remove it: {command}"
            )
        project.drop(doomed)
        remote = remote_of(instance, note) if note is not None else ""
        if remote and (pushed := project.commit(tracking(remote, thread))):
            project.drop({tracking(remote, thread): pushed})
            command = (
                f"git -C {shlex.quote(str(project.common))} push {shlex.quote(remote)} --delete {tree.ref}"
            )
            instance.warn(
                f"the code of thread {thread} is on {remote} of the project too; delete it there: {command}"
            )
    except UwfError as error:
        instance.warn(f"{error.message}; {error.hint}")


def give_forks_their_code(instance: Instance, thread: ThreadId, project: Project) -> None:
    """Let refs of their own keep the code of forks that were not stepped yet, and of their forks, unless they were
    killed or failed."""
    origins = {thread}
    for fork, link in sorted(links(instance.store).items()):
        if link.origin not in origins:
            continue
        origins.add(fork)
        if instance.threads.exists(fork) and not project.ref(work_ref(fork)):
            head = instance.threads.head(fork)
            if head.archive is not None and head.archive.status in (KILLED, FAILED):
                continue
            commit = last_code_commit(instance, instance.threads.history(head))
            if commit and project.commit(commit):
                project.set_ref(work_ref(fork), commit)
