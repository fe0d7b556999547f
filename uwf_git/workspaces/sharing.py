"""Threads' branches on the remote of their project, where it is configured."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from uwf_git.format.ids import ThreadId
from uwf_git.workspaces.notes import Notes
from uwf_git.workspaces.options import WORKTREE
from uwf_git.workspaces.project import Project, branch_of

if TYPE_CHECKING:
    from uwf_git.store.instance import Instance


def push_code(instance: Instance, thread: ThreadId) -> bool:
    """Push the branch of a thread's worktree, if it has a remote that lacks it. Return whether it was pushed.
    Moves `refs/heads/uwf/work/<ULID>` there. Raises RemoteFailed."""
    note = Notes(instance.store.repository.private).read(thread)
    if note is None or note.kind != WORKTREE or not note.remote or note.owner != thread:
        return False
    project = Project(Path(note.project))
    tip = project.commit(branch_of(thread))
    if not tip or tip in (note.base, project.theirs(note.remote, thread)):
        return False
    project.push(note.remote, thread)
    return True


def unshared(instance: Instance, threads: Iterable[ThreadId]) -> list[ThreadId]:
    """Return the threads whose steps left code that no remote of their project is configured to get."""
    notes = Notes(instance.store.repository.private)
    found = []
    for thread in threads:
        note = notes.read(thread)
        if note is None or note.kind != WORKTREE or note.remote or note.owner != thread:
            continue
        project = Project(Path(note.project))
        if project.url() and project.commit(branch_of(thread)) not in ("", note.base):
            found.append(thread)
    return found
