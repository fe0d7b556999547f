"""Threads' branches on the remote of their project, where `workspace.remote` or `--workspace-remote` names one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from uwf_git.format.ids import ThreadId
from uwf_git.workspaces.notes import Note, Notes
from uwf_git.workspaces.options import WORKTREE
from uwf_git.workspaces.project import BRANCHES, Project, branch_of, tracking

if TYPE_CHECKING:
    from uwf_git.store.instance import Instance


def push_code(instance: Instance, threads: Collection[ThreadId] | None = None) -> list[ThreadId]:
    """Push the branches of these threads' worktrees, or of all, which have a remote that lacks them; return
    the threads. Moves `refs/heads/uwf/work/<ULID>` there. Raises RemoteFailed."""
    pushed: list[ThreadId] = []
    for (project, remote), found in _changed(instance, threads).items():
        if remote:
            Project(Path(project)).push(remote, sorted(found))
            pushed += found
    return pushed


def unshared(instance: Instance, threads: Collection[ThreadId] | None = None) -> list[ThreadId]:
    """Return the threads, of these or of all, whose code stays here although their project has a remote."""
    found = _changed(instance, threads)
    return [
        thread
        for (project, remote), own in found.items()
        if not remote and Project(Path(project)).url()
        for thread in own
    ]


def branch_left(instance: Instance, thread: ThreadId) -> str:
    """Return the name of the branch with a thread's commits, "" if it made none here."""
    note = Notes(instance.store.repository.private).read(thread)
    if note is None or note.kind != WORKTREE or note.owner != thread:
        return ""
    tip = Project(Path(note.project)).commit(branch_of(thread))
    return branch_of(thread).removeprefix("refs/heads/") if tip not in ("", note.base) else ""


def remote_of(instance: Instance, note: Note) -> str:
    """Return the project's remote for a thread's branch, "" for none."""
    checkout = Path(note.checkout) if note.checkout else None
    return note.remote or instance.config.workspace.of(checkout).remote


def _changed(
    instance: Instance, threads: Collection[ThreadId] | None
) -> dict[tuple[str, str], list[ThreadId]]:
    """Return the threads whose branch is not at their remote, by project and remote, "" for none."""
    notes = Notes(instance.store.repository.private)
    if threads is None:
        known = dict(notes.all())
    else:
        known = {thread: note for thread in threads if (note := notes.read(thread)) is not None}
    groups: dict[tuple[str, str], dict[ThreadId, Note]] = defaultdict(dict)
    for thread, note in known.items():
        if note.kind == WORKTREE and note.owner == thread:
            groups[note.project, remote_of(instance, note)][thread] = note
    found = {}
    for (where, remote), own in groups.items():
        prefixes = [BRANCHES, *([tracking(remote, ThreadId(""))] if remote else [])]
        words = ("for-each-ref", "--format=%(refname) %(objectname)", *prefixes)
        lines = Project(Path(where)).line(*words).splitlines()
        tips = dict(line.split(" ", 1) for line in lines)
        found[where, remote] = [
            thread
            for thread, note in own.items()
            if (tip := tips.get(branch_of(thread)))
            and tip != note.base
            and (not remote or tips.get(tracking(remote, thread)) != tip)
        ]
    return {key: own for key, own in found.items() if own}
