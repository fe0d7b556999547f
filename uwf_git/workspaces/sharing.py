"""The code of threads on the remote of their project, if `workspace.remote` or `--workspace-remote` names one."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from uwf_git.base.errors import Invalid, RemoteFailed, UwfError
from uwf_git.base.text import one_line
from uwf_git.format.endings import KILLED
from uwf_git.format.ids import ThreadId
from uwf_git.store import layout
from uwf_git.store.history import links
from uwf_git.workspaces.exposure import secrets_in
from uwf_git.workspaces.notes import Note, Notes
from uwf_git.workspaces.options import WORKTREE
from uwf_git.workspaces.project import Project, tracking, work_name, work_ref
from uwf_git.workspaces.worktree import remote_of

if TYPE_CHECKING:
    from uwf_git.store.instance import Instance


class Code(NamedTuple):
    """A thread's code and the remote that it goes to, of a project. `branch` is its ref, no branch for git."""

    thread: ThreadId
    branch: str
    project: str
    remote: str


def push_code(
    instance: Instance, threads: Collection[ThreadId] | None = None, strict: bool = False
) -> list[Code]:
    """Push the code of these threads' worktrees, or of all, which have a remote that lacks it; return it. Code that
    the remote has elsewhere or refuses is a warning, or with `strict` an error. Moves `refs/uwf/work/<ULID>` there;
    makes it here for a fork with code. Code with a secret stays here, with a warning; if these threads were named, or
    with `strict`, it raises Invalid, and nothing is pushed. Raises RemoteFailed; NotFound without that remote."""
    _give_refs(instance, threads)
    pushed: list[Code] = []
    waiting = code_to_push(instance, threads)
    notes, held = Notes(instance.store.repository.private), set[ThreadId]()
    for code in waiting:
        note = notes.read(code.thread)
        span = f"{note.base}..{work_ref(code.thread)}" if note is not None else work_ref(code.thread)
        exposed = secrets_in(instance, Project(Path(code.project)), span, "--not", f"--remotes={code.remote}")
        if not exposed:
            continue
        problem = f"the code of thread {code.thread} has {exposed[0]}"
        way = f"take it out of the commits of {work_name(code.thread)}"
        if strict or threads is not None:
            raise Invalid(f"{problem}, and would be pushed", way)
        instance.warn(f"{problem}, and is not pushed; {way}")
        held.add(code.thread)
    waiting = [code for code in waiting if code.thread not in held]
    for where, remote in dict.fromkeys((code.project, code.remote) for code in waiting):
        project = Project(Path(where))
        project.require_remote(remote)
        own = {code.thread: code for code in waiting if (code.project, code.remote) == (where, remote)}
        refused = project.push(remote, sorted(own))
        pushed += [code for thread, code in own.items() if thread not in refused]
        for thread, reason in refused.items():
            project.fetch(remote, thread)
            if project.is_ancestor(work_ref(thread), tracking(remote, thread)):
                continue  # it went on elsewhere, with what is here
            failed = _refusal(project, remote, thread, reason)
            if strict:
                raise failed
            instance.warn(f"{failed.message}; {failed.hint}" if reason else failed.message)
    return pushed


def _refusal(project: Project, remote: str, thread: ThreadId, reason: str) -> RemoteFailed:
    ref, code = work_ref(thread), f"the code of thread {thread} is not pushed"
    if not reason:
        return RemoteFailed(f"{code}: {remote} has another {ref}", f"uwf pull, then uwf thread step {thread}")
    as_branch = (
        f"git -C {shlex.quote(str(project.common))} push {shlex.quote(remote)} {ref}:refs/heads/work/{thread}"
    )
    return RemoteFailed(
        f"{code}: {remote} refuses {ref}: {one_line(reason, 200)}",
        f"ask its administrator to take refs below {layout.WORK}, or push it as a branch: {as_branch}",
    )


def code_to_push(instance: Instance, threads: Collection[ThreadId] | None = None) -> list[Code]:
    """Return the code of these threads, or of all, that a configured remote of their project lacks."""
    return [
        Code(thread, work_ref(thread), where, remote)
        for (where, remote), own in _changed(instance, threads).items()
        if remote
        for thread in own
    ]


def _give_refs(instance: Instance, threads: Collection[ThreadId] | None) -> None:
    """Make the refs of forks and other sides that were not stepped here, at the code of their last step."""
    from uwf_git.workspaces.step_workspace import last_code_commit, workspace_of

    notes = Notes(instance.store.repository.private)
    for thread in links(instance.store):
        if (threads is not None and thread not in threads) or not instance.threads.exists(thread):
            continue
        with suppress(UwfError):  # its code is not here
            position = instance.threads.position(instance.threads.head(thread))
            commit = last_code_commit(instance, position.history)
            if commit and not notes.has(thread):
                workspace_of(instance, position)
            note = notes.read(thread)
            if not commit or note is None or note.kind != WORKTREE or note.owner != thread:
                continue
            project = Project(Path(note.project))
            if project.commit(commit) and not project.commit(work_ref(thread)):
                project.set_ref(work_ref(thread), commit)


def unshared(
    instance: Instance, threads: Collection[ThreadId] | None = None
) -> dict[tuple[str, str], list[ThreadId]]:
    """Return the threads, of these or of all, whose code stays here although their project has a remote, by the
    project's checkout and that remote."""
    notes = Notes(instance.store.repository.private)
    by_remote: dict[tuple[str, str], list[ThreadId]] = defaultdict(list)
    for (project, remote), own in _changed(instance, threads).items():
        if not remote and (name := Project(Path(project)).usual_remote()):
            for thread in own:
                note = notes.read(thread)
                by_remote[(note.checkout if note is not None else "") or project, name].append(thread)
    return by_remote


def _is_dropped(instance: Instance, thread: ThreadId) -> bool:
    """Return whether a thread was killed or removed: its code stays here."""
    if not instance.threads.exists(thread):
        return True
    archive = instance.threads.head(thread).archive
    return archive is not None and archive.status == KILLED


def _changed(
    instance: Instance, threads: Collection[ThreadId] | None
) -> dict[tuple[str, str], list[ThreadId]]:
    """Return the threads whose code is not at their remote, by project and remote, "" for none."""
    notes = Notes(instance.store.repository.private)
    if threads is None:
        known = dict(notes.all())
    else:
        known = {thread: note for thread in threads if (note := notes.read(thread)) is not None}
    groups: dict[tuple[str, str], dict[ThreadId, Note]] = defaultdict(dict)
    for thread, note in known.items():
        if note.kind == WORKTREE and note.owner == thread and not _is_dropped(instance, thread):
            groups[note.project, remote_of(instance, note)][thread] = note
    by_remote = {}
    for (where, remote), own in groups.items():
        prefixes = [layout.WORK, *([tracking(remote, ThreadId(""))] if remote else [])]
        words = ("for-each-ref", "--format=%(refname) %(objectname)", *prefixes)
        lines = Project(Path(where)).line(*words).splitlines()
        tips = dict(line.split(" ", 1) for line in lines)
        by_remote[where, remote] = [
            thread
            for thread, note in own.items()
            if (tip := tips.get(work_ref(thread)))
            and tip not in (note.base, note.unshared)
            and (not remote or tips.get(tracking(remote, thread)) != tip)
            and (
                not remote
                or not tips.get(tracking(remote, thread))
                or not Project(Path(where)).is_ancestor(tip, tips[tracking(remote, thread)])
            )
        ]
    return {key: own for key, own in by_remote.items() if own}
