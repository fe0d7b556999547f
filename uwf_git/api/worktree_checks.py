"""Checks of `uwf doctor` on threads' worktrees on this machine."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from uwf_git.base.errors import UwfError
from uwf_git.base.text import counted
from uwf_git.format.ids import ThreadId, is_thread_id
from uwf_git.store.instance import Instance
from uwf_git.store.location import checkout_around
from uwf_git.verify.checks import ERROR, OK, WARNING, Check
from uwf_git.workspaces.changes import projects_with, thread_code
from uwf_git.workspaces.notes import Note, Notes
from uwf_git.workspaces.options import WORKTREE
from uwf_git.workspaces.project import Project
from uwf_git.workspaces.removal import tidy
from uwf_git.workspaces.requirements import lacking
from uwf_git.workspaces.worktree import Worktree, worktree_of

NAME = "worktrees"


def worktree_checks(instance: Instance, fix: bool) -> Iterator[Check]:
    """Yield the checks; with `fix`, remove the worktrees of ended and removed threads."""
    threads = instance.threads
    here: list[tuple[float, ThreadId]] = []
    paths: list[Path] = []
    for thread, note in Notes(instance.store.repository.private).all():
        if note.kind != WORKTREE or note.owner != thread:
            continue
        tree = worktree_of(instance, note, thread)
        is_active = threads.exists(thread) and not threads.has_ended(thread)
        if tree.exists:
            with contextlib.suppress(OSError):  # it may be removed meanwhile
                here.append((tree.used, thread))
            if not is_active:
                paths.append(tree.folder)
        elif not tree.project.common.is_dir():
            if is_active:
                message = f"thread {thread} works on project {note.checkout or note.project}, which is gone"
                step = f"uwf thread step {thread}"
                hint = f"if it was moved: {step} --cwd FOLDER; else: {step} --workspace shared"
                yield Check(NAME, WARNING, message, hint)
        else:
            yield from _half_of_one(tree, note, is_active)
    yield from _lost_code(instance)
    yield from _broken_notes(instance)
    if paths and fix:
        removed = tidy(instance)
        yield Check(NAME, OK, f"removed {counted(len(removed), 'worktree')} of ended threads")
    elif paths:
        what = f"{counted(len(paths), 'worktree')} of ended threads: {paths[0]}"
        yield Check(NAME, WARNING, what, "uwf doctor --fix")
    most = instance.config.workspace.keep
    if len(here) > most:
        message = f"{len(here)}, which is more than workspace.keep allows: {most}"
        yield Check(NAME, WARNING, message, f"uwf workspace remove {min(here)[1]}")
    elif here:
        yield Check(NAME, OK, f"{len(here)} of at most {most}")


def lacking_checks(instance: Instance, place: Path) -> Iterator[Check]:
    """Check that new worktrees of the project around a folder get files that it needs and git ignores, unless the
    configuration says what they get."""
    checkout = checkout_around(place)
    if checkout is None or checkout.top is None:
        return
    settings = instance.config_at(place).workspace.of(checkout.top)
    if settings.copy or settings.setup:
        return
    if (lack := lacking(Project(checkout.common), checkout)) is not None:
        message = f"new worktrees of {checkout.top} {lack.message}"
        yield Check(NAME, WARNING, message, lack.advice(checkout.top))


def _half_of_one(tree: Worktree, note: Note, is_active: bool) -> Iterator[Check]:
    """Check a worktree of which the folder or git's part is missing."""
    project = note.checkout or note.project
    if tree.is_half:
        if not is_active:
            message = f"worktree {tree.folder} of an ended thread is gone, and something of it is left"
            yield Check(NAME, WARNING, message, "uwf gc")
        else:
            message = f"worktree {tree.folder} is gone; if it was moved, move it back"
            yield Check(NAME, WARNING, message, f"to have it made again: uwf thread step {tree.thread}")
    elif tree.folder.is_dir() and not tree.admin.is_dir():
        message = f"{tree.folder} is no longer a worktree of {project}; a step of the thread empties it"
        yield Check(NAME, WARNING, message, f"keep what is in it: mv {tree.folder} {tree.folder}.old")


def _lost_code(instance: Instance) -> Iterator[Check]:
    """Check that the newest code of each thread that was made here is still in its project."""
    notes = Notes(instance.store.repository.private)
    recorded = notes.recorded()
    for thread, note in notes.all():
        if note.kind != WORKTREE or not instance.threads.exists(thread):
            continue
        with contextlib.suppress(UwfError):  # another check reports what cannot be read
            code = thread_code(instance, instance.threads.head(thread).node)
            if code is None or code.commit not in recorded:
                continue
            if next(projects_with(instance, thread, code._replace(base=code.commit)), None) is None:
                message = f"the code of thread {thread}, commit {code.commit[:12]}, is gone from its project"
                yield Check(NAME, ERROR, message, f"restore it from a copy; see: uwf verify {thread}")


def _broken_notes(instance: Instance) -> Iterator[Check]:
    private = instance.store.repository.private
    notes, folder = Notes(private), private / "workspaces"
    with contextlib.suppress(OSError):
        for path in sorted(folder.iterdir()):
            if is_thread_id(path.name) and notes.read(ThreadId(path.name)) is None:
                hint = f"uwf thread step {path.name} --workspace worktree:PROJECT"
                yield Check(NAME, WARNING, f"the note of a thread's workspace cannot be read: {path}", hint)
