"""Making a new worktree usable: files of the user's checkout copied, then a command."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from uwf_git.base.errors import AgentFailed, WorkspaceFailed
from uwf_git.base.text import last_line, listed
from uwf_git.sandbox.child import run_command
from uwf_git.sandbox.programs import trusted_path
from uwf_git.sandbox.results import shown
from uwf_git.workspaces.copying import Copier

if TYPE_CHECKING:
    from uwf_git.config.secrets import Secrets
    from uwf_git.config.settings import WorkspaceSettings
    from uwf_git.format.ids import ThreadId

_AGAIN = "mend that in config.yaml, workspace, then step again"
_NAMED = 5  # files in a message
_LARGE = 1_000_000_000  # bytes


def set_up(
    folder: Path,
    checkout: Path | None,
    settings: WorkspaceSettings,
    thread: ThreadId,
    secrets: Secrets,
    warn: Callable[[str], None] = lambda _: None,
) -> None:
    """Copy and run what the settings say. What the worktree has already stays; what the checkout lacks is skipped.
    `warn` gets what was left out. Raises WorkspaceFailed, Unavailable for a secret."""
    if checkout is not None and settings.copy:
        copier = Copier(checkout, folder, time.monotonic() + settings.timeout)
        try:
            for path in settings.copy:
                _bring(copier, folder, checkout / path, folder / path)
            copier.remove_links_out()
        except OSError as error:
            raise WorkspaceFailed(
                f"the files for worktree {folder} cannot be copied: {error}", _AGAIN
            ) from None
        if copier.omitted:
            omitted = listed(list(map(shown, copier.omitted)), _NAMED)
            warn(f"the worktree of thread {thread} lacks, of workspace.copy: {omitted}")
        if copier.size > _LARGE:
            warn(
                f"{copier.size / 1e9:.1f} GB were copied to the worktree of thread {thread}; a copy takes no room if"
                " project and storage root are on one btrfs or XFS"
            )
    if settings.setup:
        _run(folder, checkout, settings, thread, secrets.environment(settings.env))


def _bring(copier: Copier, folder: Path, source: Path, target: Path) -> None:
    if not source.exists():
        return
    with contextlib.suppress(OSError):
        target.rmdir()  # the empty folder of a submodule
    if os.path.lexists(target):
        return
    if not target.parent.resolve().is_relative_to(folder.resolve()):
        raise OSError(f"{target.parent} leads out of it")
    target.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):  # it was removed meanwhile
        copier.copy(source, target)


def _run(
    folder: Path,
    checkout: Path | None,
    settings: WorkspaceSettings,
    thread: ThreadId,
    environ: Mapping[str, str],
) -> None:
    command = settings.setup
    own = {"UWF_THREAD": thread, "UWF_CHECKOUT": str(checkout or ""), "PATH": trusted_path(folder)}
    try:
        done = run_command(
            command, cwd=folder, env={**environ, **own}, timeout=settings.timeout, guarded=True
        )
    except AgentFailed as error:
        raise WorkspaceFailed(f"the setup of worktree {folder} failed: {error.message}", _AGAIN) from None
    if done.timed_out or done.returncode != 0:
        why = (
            f"{command[0]} {done.overran} {done.told}"
            if done.timed_out
            else f"it exited with {done.returncode}"
        )
        complaint = last_line((done.stdout_tail + b"\n" + done.stderr_tail).decode("utf-8", "replace"))
        raise WorkspaceFailed(
            f"the setup of worktree {folder} failed: {why}" + (f": {complaint}" if complaint else ""), _AGAIN
        )
