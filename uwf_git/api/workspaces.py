"""Threads' workspaces on this machine, and the code of their steps, as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uwf_git.base import extensions
from uwf_git.base.errors import NotFound, UwfError
from uwf_git.format.kinds import parse_attempt, parse_step
from uwf_git.format.types import is_kind
from uwf_git.store.location import checkout_around
from uwf_git.workspaces.changes import Changes as Changes
from uwf_git.workspaces.changes import changes as changes
from uwf_git.workspaces.changes import step_code, thread_code
from uwf_git.workspaces.notes import Notes
from uwf_git.workspaces.options import FOLDER, WORKTREE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from uwf_git.format.ids import Hash, ThreadId
    from uwf_git.format.kinds import Revision
    from uwf_git.store.history import Head
    from uwf_git.store.instance import Instance
    from uwf_git.workspaces.cleaning import Leftovers as Leftovers
    from uwf_git.workspaces.removal import Workspace

# Workspaces


def listed(instance: Instance, removed: bool = False) -> list[dict[str, Any]]:
    """Return the workspaces that exist here, newest thread first; with `removed` also those that don't. The
    threads of sub-workflows, which work in their parent's, are left out."""
    from uwf_git.workspaces import removal

    return [
        {
            "thread": workspace.thread,
            "status": _status(instance, workspace.thread),
            **workspace_value(workspace),
        }
        for workspace in removal.workspaces(instance)
        if (removed or workspace.exists) and workspace.branch.rpartition("/")[2] in ("", workspace.thread)
    ]


def workspace_of(instance: Instance, thread: ThreadId) -> dict[str, Any] | None:
    """Return a thread's workspace, None if it works in the folder of uwf's call."""
    note = Notes(instance.store.repository.private).read(thread)
    if note is None or note.kind not in (FOLDER, WORKTREE):
        return None
    from uwf_git.workspaces.removal import find_workspace

    return workspace_value(find_workspace(instance, thread))


def workspace_value(workspace: Workspace) -> dict[str, Any]:
    return {
        "kind": workspace.kind,
        "path": str(workspace.path),
        "branch": workspace.branch or None,
        "exists": workspace.exists,
    }


def folder(instance: Instance, thread: ThreadId) -> Path:
    """Return the folder in which a thread's agents work. Raises NotFound if it has none of its own, or if
    that was removed."""
    from uwf_git.workspaces import removal

    workspace = removal.find_workspace(instance, thread)
    if not workspace.exists:
        raise NotFound(
            f"workspace {workspace.path} of thread {thread} does not exist now",
            f"its commits are at {workspace.branch}"
            if workspace.branch
            else f"uwf thread step {thread} makes it",
        )
    return workspace.path


def remove(instance: Instance, thread: ThreadId) -> dict[str, Any]:
    """Remove a thread's worktree. Moves refs and raises as `workspaces.removal.remove`."""
    from uwf_git.workspaces import removal

    return {"thread": thread, **workspace_value(removal.remove(instance, thread))}


# Cleaning


def leftovers(
    instance: Instance,
    threads: Collection[ThreadId] = (),
    folder: Path | None = None,
    discards: bool = False,
    remote: bool = False,
) -> list[Leftovers]:
    """Return what threads have left that may go or is kept, by default of the project around a folder, or of all
    projects. Raises as `workspaces.cleaning.leftovers`."""
    from uwf_git.workspaces.cleaning import Scope, leftovers

    checkout = checkout_around(folder) if folder is not None else None
    project = checkout.common if checkout is not None else None
    return list(leftovers(instance, Scope(threads, project, discards, remote)))


def kept_code(instance: Instance, items: Collection[Leftovers]) -> list[ThreadId]:
    """Return the completed threads that keep code of work that is recorded as merged or landed."""
    threads = [item.thread for item in items if item.keeps_code and instance.threads.exists(item.thread)]
    states = extensions.work_states(instance, [instance.threads.head(thread) for thread in threads])
    return [thread for thread in threads if thread in states and states[thread].state in ("merged", "landed")]


def leftovers_value(instance: Instance, item: Leftovers, is_removed: bool = False) -> dict[str, Any]:
    """Return a thread's leftovers as JSON; `removed` says whether those of `removes` are gone."""
    return {
        "thread": item.thread,
        "status": _status(instance, item.thread),
        "project": str(item.project),
        "merged": {"into": item.landing.branch, "commits": item.landing.has_commits}
        if item.landing
        else None,
        "removes": item.removes,
        "loses": [{**loss._asdict(), "files": list(loss.files)} for loss in item.losses],
        "stays": [{"place": place, "reason": reason} for place, reason in item.stays.items()],
        "removed": is_removed and item.removes != [],
    }


def clean(instance: Instance, items: list[Leftovers]) -> Iterator[tuple[Leftovers, UwfError | None]]:
    """Remove what goes of threads' leftovers, first on remotes; yield each with why it stays, None if it is gone. Moves
    refs as `workspaces.cleaning.unshare` and `remove`. Raises RemoteFailed if a remote can't be reached, and
    RequirementUnmet within a step."""
    from uwf_git.workspaces import cleaning

    instance.require_person("cleans up")
    refusals = cleaning.unshare(instance, items)
    for item in items:
        error = refusals.get(item.thread)
        if error is None and item.removes:
            try:
                cleaning.remove(instance, item)
            except UwfError as failure:
                error = failure
        yield item, error


def _status(instance: Instance, thread: ThreadId) -> str | None:
    """Return a thread's status, None if it was removed."""
    from uwf_git.base.thread_states import ThreadState
    from uwf_git.engine.thread_state import thread_state

    try:
        return thread_state(instance, instance.threads.head(thread)).word
    except NotFound:
        return None
    except UwfError:
        return ThreadState.CORRUPT.word


# Code


def code_of_node(
    instance: Instance, thread: ThreadId | None, node: Hash, with_patch: bool = False
) -> Changes | None:
    """Return what a step or failed attempt changed, None if no code is recorded."""
    content = instance.store.get(node)
    code: Revision | None
    if is_kind(content.type, "attempt"):
        code = parse_attempt(content.payload).code
    else:
        code = step_code(instance, parse_step(content.payload).detail)
    return changes(instance, thread, code, with_patch) if code is not None else None


def recorded(instance: Instance, head: Head) -> Revision | None:
    """Return a thread's newest code with the base of its first, None if its steps left none."""
    return thread_code(instance, head.node)


def code_between(instance: Instance, a: Head, b: Head, with_patch: bool = False) -> dict[str, Any] | None:
    """Return the commits of two threads' code and the files that differ; `files` is None if one of them has
    no code, or if a commit is not here. None if neither has code."""
    one, other = (thread_code(instance, head.node) for head in (a, b))
    if one is None and other is None:
        return None
    value: dict[str, Any] = {
        "a": one.commit if one else None,
        "b": other.commit if other else None,
        "files": None,
    }
    if one is not None and other is not None:
        difference = changes(instance, b.thread, other._replace(base=one.commit), with_patch)
        if difference.here:
            value["files"] = [file.as_json() for file in difference.files]
            if with_patch:
                value["patch"] = difference.patch
    return value


def changes_value(changes: Changes, with_patch: bool = False) -> dict[str, Any]:
    """Return changes as JSON: the recorded Revision, whether it is `here`, its `files`."""
    value = {
        **changes.code.payload(),
        "here": changes.here,
        "files": [file.as_json() for file in changes.files],
    }
    return {**value, "patch": changes.patch} if with_patch and changes.here else value
