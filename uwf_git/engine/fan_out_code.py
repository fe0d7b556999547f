"""The code of fan-outs. A fork names the code at which its branches begin, a join the merge of what they left.

Every machine that has the code makes the same merge: by index, with the fork's commit as base, by no configuration of
its own, and with the times of what it merges. One that lacks the code leaves the join to another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uwf_git.base.errors import Invalid, NotFound, RemoteFailed, UwfError, Waiting, WorkspaceFailed
from uwf_git.base.text import listed
from uwf_git.format.endings import COMPLETED
from uwf_git.format.fan_out import JoinedBranch, parse_join
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.kinds import Revision, asks_human
from uwf_git.format.types import USER
from uwf_git.store.history import Position
from uwf_git.store.instance import Instance
from uwf_git.workflow.fan_out import LEAVE_OUT, MERGED, join_resolved
from uwf_git.workspaces.changes import address_of
from uwf_git.workspaces.notes import Notes
from uwf_git.workspaces.options import FOLDER, WORKTREE

_NAMED = 10  # branches that a message names

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
    is not here, or git cannot merge it here."""
    step = at.history.steps[-1]
    detail = instance.store.detail(step.detail)
    begun = detail.code if detail is not None else None
    if begun is None:
        return list(branches), None
    from uwf_git.workspaces.merging import Unmergeable, merging

    changed: dict[int, str] = {}
    for position, item in enumerate(branches):
        if item.status != COMPLETED or item.step is None or (code := _code_of(instance, item.step)) is None:
            continue
        if code.is_later(begun):
            changed[position] = code.commit
        elif code.commit != begun.commit:
            instance.warn(f"the code of branch {item.thread} is of another project, and not merged")
    if not changed:
        return list(branches), None
    try:
        project = _project(instance, at, begun, {branches[entry].thread: c for entry, c in changed.items()})
        with merging(project, begun.commit, instance.store.repository.config.bounds) as merges:
            merged = merges.merge(step.hash, begun.commit, changed)
            merges.keep(merged)
    except Unmergeable as error:
        branch = branches[error.position].thread
        raise Waiting(
            f"thread {at.head.thread} cannot be joined here: the code of branch {error.position} ({branch}),"
            f" commit {changed[error.position][:12]}, cannot be merged: {error.message}",
            f"{error.hint}; or ask all anew: uwf thread fork {at.head.thread} --at {len(at.history.steps) - 1}",
        ) from None
    except (NotFound, RemoteFailed, WorkspaceFailed, OSError) as error:
        why = error.message if isinstance(error, UwfError) else str(error)
        raise Waiting(
            f"thread {at.head.thread} waits to be joined where its code is: {why}",
            f"in a clone of {address_of(begun) or 'its project'} that has it: uwf thread run {at.head.thread}",
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
        project.fetch(remote, thread, *(item for item, commit in wanted.items() if commit in missing))
        missing = {item for item in missing if not project.commit(item)}
    if missing:
        branch = next((item for item, commit in wanted.items() if commit in missing), thread)
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


def settled(instance: Instance, at: Position, text: str) -> str:
    """Return the answer to the join at `at`, which asks about code that conflicts. One that leaves branches out names
    them. Raises Invalid for another while the worktree's commit lacks code of the join or of a branch; WorkspaceFailed
    for uncommitted changes and unfinished merges there, and NotFound if the code is not here."""
    thread, step = at.head.thread, at.history.steps[-1]
    named = dict(_conflicting(step.output))
    work = None
    if is_left_out(text):
        with suppress(NotFound):  # one may do without the code
            work = _worktree_here(instance, at)
        if work is None or not work.exists:
            return leaving_out(step.output)
        left = set(work.unmerged(named))
        return _leaving_out([name for commit, name in named.items() if commit in left])
    otherwise = f"or go on without that: uwf thread answer {thread} -m '{LEAVE_OUT}'"
    try:
        work = _worktree_here(instance, at)
    except NotFound as error:
        error.hint = f"answer where that is, {otherwise}"
        raise
    if work is None:
        raise Invalid(f"thread {thread} has no worktree here in which code may be merged", otherwise)
    detail = instance.store.detail(step.detail)
    if detail is not None and detail.code is not None:
        named = {detail.code.commit: "the other branches", **named}
    if not (missing := work.unmerged(named)):
        return text
    project, remote = work.project, work.remote
    owners = {
        branch.conflict.commit: branch.thread
        for branch in parse_join(step.output, step.hash)
        if branch.conflict
    }
    for commit in missing:
        if remote and commit in owners and not project.commit(commit):
            with suppress(RemoteFailed):
                project.fetch_commit(remote, owners[commit], commit)
    folder = work.top
    raise Invalid(
        f"not merged in {folder}: {_listed(named[item] for item in missing)}",
        f"git -C {folder} merge {missing[0]}, and commit that; {otherwise}",
    )


def _worktree_here(instance: Instance, at: Position) -> StepWorkspace | None:
    """As `_worktree`. Raises NotFound if the project of the worktree is not here."""
    try:
        work = _worktree(instance, at)
        gone = None if work is None or work.project.common.is_dir() else work.project.common
    except OSError as error:  # no git runs in a folder that is gone
        work, gone = None, error.filename
    if gone is not None:
        raise NotFound(f"thread {at.head.thread} works on code that is not here: {gone} is gone")
    return work


def is_left_out(text: str) -> bool:
    """Return whether an answer to a join leaves out what is not merged."""
    return text.strip().casefold() == LEAVE_OUT


def leaving_out(output: Any) -> str:
    """Return the answer that leaves out all code which conflicts at a join."""
    return _leaving_out([name for _, name in _conflicting(output)])


def left_out(
    instance: Instance, at: Position, role: str, output: Any, work: StepWorkspace, commit: str
) -> str:
    """Return a note on the branches whose code a role was to merge after the join before `at`, and that is not in the
    commit it left, "" if none. Its questions leave nothing out yet."""
    joined = () if asks_human(output) else join_resolved(at.history.steps, role)
    if not joined:
        return ""
    names = [
        name for item, name in _conflicting(joined[-1].output) if not work.project.is_ancestor(item, commit)
    ]
    return f"left out, since not merged: {_listed(names)}" if names else ""


def _conflicting(output: Any) -> Iterator[tuple[str, str]]:
    """Yield the commit and name of each branch of a join whose code conflicts."""
    for index, branch in enumerate(parse_join(output)):
        if branch.conflict is not None:
            yield (
                branch.conflict.commit,
                f"branch {index} ({branch.thread}, commit {branch.conflict.commit[:12]})",
            )


def _leaving_out(names: Sequence[str]) -> str:
    return f"{LEAVE_OUT}: {_listed(names)}" if names else MERGED


def _listed(names: Iterable[str]) -> str:
    return listed([*names], _NAMED)
