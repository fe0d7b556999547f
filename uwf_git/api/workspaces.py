"""Threads' workspaces on this machine, and the code of their steps, as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uwf_git.base.errors import NotFound, UwfError
from uwf_git.format.kinds import parse_attempt, parse_step
from uwf_git.format.types import is_kind
from uwf_git.workspaces.changes import Changes as Changes
from uwf_git.workspaces.changes import changes as changes
from uwf_git.workspaces.changes import step_code, thread_code
from uwf_git.workspaces.notes import Notes
from uwf_git.workspaces.options import FOLDER, WORKTREE

if TYPE_CHECKING:
    from pathlib import Path

    from uwf_git.format.ids import Hash, ThreadId
    from uwf_git.format.kinds import Revision
    from uwf_git.store.history import Head
    from uwf_git.store.instance import Instance
    from uwf_git.workspaces.removal import Workspace

# Workspaces


def listed(instance: Instance, removed: bool = False) -> list[dict[str, Any]]:
    """Return the workspaces that exist here, newest thread first; with `removed` also those that don't. The
    threads of sub-workflows, which work in their parent's, are left out."""
    from uwf_git.workspaces import removal

    return [
        {"thread": each.thread, "status": _status(instance, each.thread), **workspace_value(each)}
        for each in removal.workspaces(instance)
        if (removed or each.exists) and each.branch.rpartition("/")[2] in ("", each.thread)
    ]


def workspace_of(instance: Instance, thread: ThreadId) -> dict[str, Any] | None:
    """Return a thread's workspace, None if it works in the folder of uwf's call."""
    note = Notes(instance.store.repository.private).read(thread)
    if note is None or note.kind not in (FOLDER, WORKTREE):
        return None
    from uwf_git.workspaces.removal import find_workspace

    return workspace_value(find_workspace(instance, thread))


def workspace_value(found: Workspace) -> dict[str, Any]:
    return {
        "kind": found.kind,
        "path": str(found.path),
        "branch": found.branch or None,
        "exists": found.exists,
    }


def folder(instance: Instance, thread: ThreadId) -> Path:
    """Return the folder in which a thread's agents work. Raises NotFound if it has none of its own, or if
    that was removed."""
    from uwf_git.workspaces import removal

    found = removal.find_workspace(instance, thread)
    if not found.exists:
        raise NotFound(
            f"workspace {found.path} of thread {thread} does not exist now",
            f"its commits are on branch {found.branch}"
            if found.branch
            else f"uwf thread step {thread} makes it",
        )
    return found.path


def remove(instance: Instance, thread: ThreadId) -> dict[str, Any]:
    """Remove a thread's worktree. Moves refs and raises as `workspaces.removal.remove`."""
    from uwf_git.workspaces import removal

    return {"thread": thread, **workspace_value(removal.remove(instance, thread))}


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
        found = changes(instance, b.thread, other._replace(base=one.commit), with_patch)
        if found.here:
            value["files"] = [each.as_json() for each in found.files]
            if with_patch:
                value["patch"] = found.patch
    return value


def changes_value(found: Changes, with_patch: bool = False) -> dict[str, Any]:
    """Return changes as JSON: the recorded Revision, whether it is `here`, its `files`."""
    value = {
        **found.code.payload(),
        "here": found.here,
        "files": [each.as_json() for each in found.files],
    }
    return {**value, "patch": found.patch} if with_patch and found.here else value
