"""Threads' branches on the remote of their project, where `workspace.remote` or `--workspace-remote` names one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from uwf_git.base.errors import Invalid
from uwf_git.format.ids import ThreadId
from uwf_git.workspaces.notes import Note, Notes
from uwf_git.workspaces.options import WORKTREE
from uwf_git.workspaces.project import BRANCHES, Project, branch_of, tracking

if TYPE_CHECKING:
    from uwf_git.store.instance import Instance

_SEARCHED = 64 << 20  # bytes of a thread's changes in which secrets are looked for


def push_code(instance: Instance, threads: Collection[ThreadId] | None = None) -> list[ThreadId]:
    """Push the branches of these threads' worktrees, or of all, which have a remote that lacks them; return
    the threads. Moves `refs/heads/uwf/work/<ULID>` there. Raises RemoteFailed, and Invalid for code with a
    known secret; then nothing is pushed."""
    pushed: list[ThreadId] = []
    changed = _changed(instance, threads)
    for (project, remote), found in changed.items():
        for thread in found if remote else ():
            _refuse_secrets(instance, Project(Path(project)), thread)
    for (project, remote), found in changed.items():
        if remote:
            Project(Path(project)).push(remote, sorted(found))
            pushed += found
    return pushed


def _refuse_secrets(instance: Instance, project: Project, thread: ThreadId) -> None:
    note = Notes(instance.store.repository.private).read(thread)
    since = f"{note.base}..{branch_of(thread)}" if note is not None else branch_of(thread)
    words = ("log", "-p", "--text", "--no-ext-diff", "--no-textconv", "--no-color", since)
    made = project.git().run(*words, at_most=_SEARCHED).out
    if spot := instance.redactor.first(made.decode("utf-8", "replace")):
        raise Invalid(
            f"the code of thread {thread} holds {spot}, and would be pushed",
            f"take it out of the commits of {branch_of(thread).removeprefix('refs/heads/')}",
        )


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
