"""Reading the code of steps: which files changed between two commits of the project, and the patch.

Revisions may come from other machines: their commits are looked up only if they are whole object ids, and git
runs no program that a repository or its attributes name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.base.errors import RemoteFailed
from uwf_git.format.kinds import parse_detail, parse_step
from uwf_git.format.types import USER, is_kind
from uwf_git.workspaces.clones import MOST, clones
from uwf_git.workspaces.notes import Notes

if TYPE_CHECKING:
    from uwf_git.format.ids import Hash, ThreadId
    from uwf_git.format.kinds import Revision, StepContext
    from uwf_git.format.node import Node
    from uwf_git.store.instance import Instance
    from uwf_git.workspaces.project import Project

PATCH_BYTES = 1 << 20
"""Bytes of a patch that are read."""

RAW_DIFF = ("diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", "--no-ext-diff", "--no-textconv")
"""The words of git whose output, with two commits after them, is a raw diff."""

RAW_BYTES = 64 << 20
"""Bytes of a raw diff that are read."""

_LOOK_BACK = 200  # steps in which a thread's newest code is looked for
_ID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
NO_FETCH = {"GIT_NO_LAZY_FETCH": "1"}
"""Variables of git by which objects that a partial clone lacks are not here."""
_DIFF = (
    # Larger files count as binary: git would hold them in memory.
    *("-c", "core.bigFileThreshold=16m", "-c", "core.quotePath=false"),
    *("diff-tree", "-r", "-M", "-l1000", "--no-ext-diff", "--no-textconv", "--no-color"),
    *("--submodule=short", "--src-prefix=a/", "--dst-prefix=b/"),
)
PATCH = (*_DIFF, "-U3")
"""The words of git for a patch."""


class ChangedFile(NamedTuple):
    """A changed file. `status` is git's letter: A, D, M, R (renamed) or T (another type). `added` and
    `deleted` are numbers of lines, None for a binary file. `old` is the path before a renaming, else ""."""

    status: str
    path: str
    added: int | None
    deleted: int | None
    old: str = ""

    @property
    def is_binary(self) -> bool:
        return self.added is None

    def as_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "status": self.status,
            "added": self.added,
            "deleted": self.deleted,
            "binary": self.is_binary,
            **({"from": self.old} if self.old else {}),
        }


class Changes(NamedTuple):
    """The changes between the commits of a Revision. If they are not `here`, on this machine, there are no
    files and no patch; they are `lost` if the commit was made here. `patch` is "" unless it was asked for; a longer
    one than PATCH_BYTES is cut, and its last line says so."""

    code: Revision
    here: bool
    files: tuple[ChangedFile, ...] = ()
    patch: str = ""
    lost: bool = False

    @property
    def absence(self) -> str:
        """Why there are no changes to show, in a line; "" if they are here."""
        if self.here:
            return ""
        commit = f"commit {self.code.commit[:12]}"
        if self.lost:
            return f"{commit} was made here, and is gone from its project"
        return f"{commit} is not on this machine{doubted(self.code)}"


def address_of(code: Revision) -> str:
    """Return the address of the project's remote, "" for none, and for a relative path: that is of another machine."""
    is_address = code.remote.startswith("/") or ":" in code.remote.partition("/")[0]
    return code.remote if is_address else ""


def doubted(code: Revision) -> str:
    """Return the end of a sentence on code that is not here: that its project's remote need not have it."""
    address = address_of(code)
    return f", and not known to be at {address}" if address else ""


def absent(instance: Instance, code: Revision) -> Changes:
    """Return the changes of code that is not on this machine."""
    lost = code.commit in Notes(instance.store.repository.private).recorded()
    return Changes(code, False, lost=lost)


def changes(instance: Instance, thread: ThreadId | None, code: Revision, with_patch: bool = False) -> Changes:
    """Return the changes from `code.base` to `code.commit`. They are looked for in each of `clones`."""
    from uwf_git.base.errors import WorkspaceFailed

    for project in projects_with(instance, thread, code):
        try:
            files = _files(project, code)
            return Changes(code, True, files, _patch(project, code) if with_patch else "")
        except (WorkspaceFailed, RemoteFailed):  # a shallow or partial clone, or a repository that is gone
            continue
    return absent(instance, code)


def projects_with(instance: Instance, thread: ThreadId | None, code: Revision) -> Iterator[Project]:
    """Yield the projects on this machine that have the commits of a Revision, the thread's own first."""
    from uwf_git.base.errors import WorkspaceFailed
    from uwf_git.workspaces.project import Project

    for place in clones(instance, [thread] if thread is not None else ()):
        project = Project(place)
        with suppress(WorkspaceFailed, RemoteFailed):
            if _has(project, code.commit, code.base):
                yield project


def clones_of(instance: Instance, thread: ThreadId, code: Revision) -> Iterator[tuple[Project, str]]:
    """Yield the repositories here that are of the project of a Revision, with the remote that may have it."""
    from uwf_git.base.errors import WorkspaceFailed
    from uwf_git.workspaces.project import Project

    for place in islice(clones(instance, [thread]), MOST):
        project = Project(place)
        with suppress(WorkspaceFailed, RemoteFailed):
            remote = project.remote_at(code.remote)
            if not remote and code.root and project.commit(code.root):
                remote = project.usual_remote()
            if remote:
                yield project, remote


def fetch_code(instance: Instance, thread: ThreadId, code: Revision) -> bool:
    """Fetch the commit of a Revision into a clone that is here; return whether its changes are here then."""
    from uwf_git.base.errors import WorkspaceFailed

    for project, remote in clones_of(instance, thread, code):
        with suppress(WorkspaceFailed, RemoteFailed):
            if project.fetch_commit(remote, thread, code.commit) and _has(project, code.commit, code.base):
                return True
    return False


def raw_diff(instance: Instance, thread: ThreadId | None, code: Revision) -> bytes | None:
    """Return the raw diff whose digest an approval has, None if the commits are not on this machine, or it is larger
    than RAW_BYTES."""
    for project in projects_with(instance, thread, code):
        with suppress(RemoteFailed):  # a shallow or partial clone
            git = project.git(variables=NO_FETCH)
            content = git.run(*RAW_DIFF, code.base, code.commit, "--", at_most=RAW_BYTES + 1).out
            return content if len(content) <= RAW_BYTES else None
    return None


def step_code(instance: Instance, detail: Hash) -> Revision | None:
    """Return the code in a step's detail, None if it has none. That of a sub-workflow has the base of its
    first step."""
    content = instance.store.get(detail)
    if is_kind(content.type, "step"):
        return thread_code(instance, detail)
    has_code = is_kind(content.type, "detail") and "code" in content.payload
    return parse_detail(content.payload).code if has_code else None


def thread_code(instance: Instance, node: Hash) -> Revision | None:
    """Return the code of a thread up to a node of it: the commit of its newest step with code, and the base
    of the first one. None if the newest steps have none."""
    steps = (past.step.detail for past in instance.threads.past(node) if past.step.role != USER)
    newest: Revision | None = None
    for detail in islice(steps, _LOOK_BACK):
        if (newest := step_code(instance, detail)) is not None:
            break
    if newest is None:
        return None
    for detail in reversed(list(steps)):
        if (first := step_code(instance, detail)) is not None:
            return newest._replace(base=first.base)
    return newest


def code_before(steps: Sequence[StepContext], get: Callable[[Hash], Node]) -> Revision | None:
    """Return the code that steps left: the commit of the newest one with code, and the base of the first. None
    without any."""
    newest = next((code for step in reversed(steps) if (code := _code(step.detail, get))), None)
    if newest is None:
        return None
    first = next(code for step in steps if (code := _code(step.detail, get, first=True)))
    return newest._replace(base=first.base)


def _code(detail: Hash, get: Callable[[Hash], Node], first: bool = False) -> Revision | None:
    content = get(detail)
    if is_kind(content.type, "detail"):
        return parse_detail(content.payload).code if "code" in content.payload else None
    revision: Revision | None = None
    while is_kind(content.type, "step"):  # of a sub-workflow, newest first
        step = parse_step(content.payload)
        if (code := _code(step.detail, get, first)) is not None:
            revision = code
            if not first:
                return revision
        if step.prev is None:
            break
        content = get(step.prev)
    return revision


def _has(project: Project, *commits: str) -> bool:
    if not all(map(_ID.fullmatch, commits)):
        return False
    git = project.git(variables=NO_FETCH)
    lines = "".join(f"{commit}\n" for commit in commits).encode("ascii")
    content = project.run("cat-file", "--batch-check=%(objecttype)", stdin=lines, git=git).out
    return content.split() == [b"commit"] * len(commits)


def _files(project: Project, code: Revision) -> tuple[ChangedFile, ...]:
    words = (*_DIFF, "--raw", "--numstat", "-z", code.base, code.commit, "--")
    content = project.run(*words, git=project.git(variables=NO_FETCH)).out
    parts = iter(content.decode("utf-8", "replace").split("\0"))
    letters: dict[str, tuple[str, str]] = {}
    files = []
    for part in parts:
        if part.startswith(":"):
            letter, path, old = part.rpartition(" ")[2][:1], next(parts), ""
            if letter in "RC":
                old, path = path, next(parts)
            letters[path] = letter, old
        elif part:
            added, deleted, path = part.split("\t", 2)
            if not path:
                _, path = next(parts), next(parts)
            letter, old = letters[path]
            if added == "-":
                files.append(ChangedFile(letter, path, None, None, old))
            else:
                files.append(ChangedFile(letter, path, int(added), int(deleted), old))
    return tuple(files)


def _patch(project: Project, code: Revision) -> str:
    git = project.git(variables=NO_FETCH)
    words = (*PATCH, code.base, code.commit, "--")
    patch = git.run(*words, at_most=PATCH_BYTES + 1).out
    if len(patch) <= PATCH_BYTES:
        return patch.decode("utf-8", "replace")
    whole = patch[:PATCH_BYTES].rpartition(b"\n")[0].decode("utf-8", "replace")
    return f"{whole}\n\\ cut after 1 MiB; all of it: git diff {code.base[:12]} {code.commit[:12]}\n"
