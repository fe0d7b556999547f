"""The code of fan-outs. A fork names the code at which its branches begin, a join the merge of what they left.

Every machine that has the code makes the same merge: by index, with the fork's commit as base, by no configuration of
its own, and with the times of what it merges. One that lacks the code leaves the join to another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from uwf_git.base.errors import NotFound, RemoteFailed, UwfError, Waiting, WorkspaceFailed
from uwf_git.format.fan_out import COMPLETED, JoinedBranch
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.kinds import Revision
from uwf_git.format.types import USER
from uwf_git.store.history import Position
from uwf_git.store.instance import Instance
from uwf_git.workspaces.notes import Notes
from uwf_git.workspaces.options import FOLDER, WORKTREE

if TYPE_CHECKING:
    from uwf_git.workspaces.project import Project
    from uwf_git.workspaces.step_workspace import StepWorkspace


def code_at_fork(instance: Instance, at: Position) -> Revision | None:
    """Return the code at which the branches of a fork that is next begin, None if its thread has no worktree. Raises
    NotFound if only a worktree could tell, and its project is not here."""
    from uwf_git.workspaces.step_workspace import code_begun, workspace_of

    notes = Notes(instance.store.repository.private)
    note = notes.read(at.head.thread)
    if note is not None and note.kind != WORKTREE:
        return None
    if (code := code_begun(instance, at.history)) is not None:
        return code._replace(base=code.commit)
    if not notes.any():
        return None
    work = workspace_of(instance, at)
    return work.begins_at() if work is not None and work.is_worktree else None


def folder_of_branches(instance: Instance, thread: ThreadId) -> Path | None:
    """Return the folder in which branches of a thread without a worktree work, None if none is known: that of its
    agents."""
    note = Notes(instance.store.repository.private).read(thread)
    if note is not None and note.kind == FOLDER:
        folder = Path(note.place, thread)
        folder.mkdir(parents=True, exist_ok=True)
        return folder
    return instance.folders.recall(thread)


def merge_branches(
    instance: Instance, at: Position, branches: Sequence[JoinedBranch]
) -> tuple[list[JoinedBranch], Revision | None]:
    """Merge what the completed branches of the fork at `at` left. Return the branches, those whose code conflicts with
    that of others before them marked, and the code of the join; None if nobody changed any. Raises Waiting if the code
    is not here."""
    step = at.history.steps[-1]
    detail = instance.store.detail(step.detail)
    begun = detail.code if detail is not None else None
    if begun is None:
        return list(branches), None
    from uwf_git.workspaces.merging import merging

    changed: dict[int, str] = {}
    for position, each in enumerate(branches):
        if each.status != COMPLETED or each.step is None or (code := _code_of(instance, each.step)) is None:
            continue
        if code.is_later(begun):
            changed[position] = code.commit
        elif code.commit != begun.commit:
            instance.warn(f"the code of branch {each.thread} is of another project, and not merged")
    if not changed:
        return list(branches), None
    try:
        project = _project(instance, at, begun, {branches[each].thread: c for each, c in changed.items()})
        with merging(project, begun.commit) as merges:
            merged = merges.merge(step.hash, begun.commit, changed)
            merges.keep(merged)
    except (NotFound, RemoteFailed, WorkspaceFailed, OSError) as error:
        why = error.message if isinstance(error, UwfError) else str(error)
        raise Waiting(
            f"thread {at.head.thread} waits to be joined where its code is: {why}",
            f"in a clone of {begun.remote or 'its project'} that has it: uwf thread run {at.head.thread}",
        ) from None
    marked = list(branches)
    for position, conflict in merged.conflicts.items():
        text = instance.redactor.text(conflict.text)[0]
        marked[position] = branches[position]._replace(conflict=conflict._replace(text=text))
    return marked, begun._replace(commit=merged.commit, tree=merged.tree)


def _code_of(instance: Instance, node: Hash) -> Revision | None:
    from uwf_git.workspaces.step_workspace import code_left

    for past in instance.threads.past(node):
        if past.step.role != USER and (code := code_left(instance, past.step.detail)) is not None:
            return code
    return None


def _project(instance: Instance, at: Position, begun: Revision, wanted: Mapping[ThreadId, str]) -> Project:
    """Return the project that has the code of a fork and of branches, which is fetched if it is not here. Raises
    NotFound and RemoteFailed."""
    from uwf_git.workspaces.changes import projects_with
    from uwf_git.workspaces.merging import merging

    thread = at.head.thread
    work = _worktree(instance, at)
    project = work.project if work is not None else next(projects_with(instance, thread, begun), None)
    if project is None or not project.common.is_dir():
        raise NotFound(f"commit {begun.commit[:12]} is not here")
    with merging(project, begun.commit) as merges:
        missing = set(merges.missing([begun.commit, *wanted.values()]))
    remote = work.remote if work is not None else project.remote_at(begun.remote)
    if missing and remote:
        project.fetch(remote, thread, *(each for each, commit in wanted.items() if commit in missing))
        missing = {each for each in missing if not project.commit(each)}
    if missing:
        branch = next((each for each, commit in wanted.items() if commit in missing), thread)
        raise NotFound(f"commit {min(missing)[:12]} of thread {branch} is not in project {project.common}")
    return project


def _worktree(instance: Instance, at: Position) -> StepWorkspace | None:
    from uwf_git.workspaces.step_workspace import workspace_of

    work = workspace_of(instance, at)
    return work if work is not None and work.is_worktree else None


def advance(instance: Instance, at: Position) -> None:
    """Let the worktree of a thread follow its join, the last step at `at`, to the code of that. What hinders it is a
    warning: the next step does so too."""
    detail = instance.store.detail(at.history.steps[-1].detail)
    if detail is None or detail.code is None:
        return
    try:
        if (work := _worktree(instance, at)) is not None:
            work.advance(detail.code.base, detail.code.commit)
    except (UwfError, OSError) as error:
        instance.warn(f"the worktree of thread {at.head.thread} is left as it is: {error}")
