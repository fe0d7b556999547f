"""A checkout of one commit for commands to run in, made as a thread's worktree is, and removed after it.

It has a repository of its own that reads the project's objects, with the project's branches and tags and a detached
HEAD. So a command there sees a commit that no branch has yet, and its git reaches nothing of the project's.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from uwf_git.sandbox.child import run_command
from uwf_git.sandbox.programs import trusted_path
from uwf_git.workspaces.scratch_repository import make_scratch_repository
from uwf_git.workspaces.setup import set_up

if TYPE_CHECKING:
    from uwf_git.config.secrets import Secrets
    from uwf_git.config.settings import WorkspaceSettings
    from uwf_git.format.ids import ThreadId
    from uwf_git.workspaces.project import Project

LOG_BYTES = 1 << 20
"""Bytes of a command's output that are kept, the last ones."""


class Trial(NamedTuple):
    """What a command did in a checkout: its exit status, below 0 for a signal, None if it ran out of time, and its
    output and errors as they came."""

    status: int | None
    log: bytes


@contextmanager
def checked_out(
    project: Project,
    commit: str,
    folder: Path,
    settings: WorkspaceSettings,
    checkout: Path | None,
    thread: ThreadId,
    secrets: Secrets,
) -> Iterator[Path]:
    """Check a commit out in a new folder, set up as `settings` say, and remove it at the end. What a process that was
    killed left there is removed first. Raises WorkspaceFailed, Invalid for filters that don't run."""
    shutil.rmtree(folder, ignore_errors=True)
    try:
        _check_out(project, commit, folder)
        set_up(folder, checkout, settings, thread, secrets)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def try_command(argv: Sequence[str], folder: Path, environ: Mapping[str, str], seconds: float) -> Trial:
    """Run a command in a checkout, without input. Raises AgentFailed if it cannot be started."""
    log = bytearray()

    def hear(data: bytes) -> None:
        log.extend(data)
        del log[:-LOG_BYTES]

    environment = {**environ, "PATH": trusted_path(folder)}
    done = run_command(
        argv,
        stdin=b"",
        cwd=folder,
        env=environment,
        timeout=seconds,
        on_stdout=hear,
        on_stderr=hear,
        guarded=True,
    )
    return Trial(None if done.timed_out else done.returncode, bytes(log))


def _check_out(project: Project, commit: str, folder: Path) -> None:
    git_dir = folder / ".git"
    make_scratch_repository(project, git_dir, commit, commit, is_bare=False)
    names = ("refs/heads/", "refs/remotes/", "refs/tags/")
    rows = project.run("for-each-ref", "--sort=refname", "--format=%(objectname) %(refname)", *names).out
    (git_dir / "packed-refs").write_bytes(b"# pack-refs with: sorted \n" + rows)
    off = project.filters_off(commit)
    variables = {"GIT_INDEX_FILE": str(git_dir / "index"), "GIT_WORK_TREE": str(folder)}
    git = project.git(cwd=folder, variables=variables)
    project.run(*off, "read-tree", "--reset", "-u", commit, git=git)
