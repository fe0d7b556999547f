"""Making a new worktree usable: files of the user's checkout copied or linked, then a command."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from uwf_git.base.errors import AgentFailed, WorkspaceFailed
from uwf_git.base.text import last_line
from uwf_git.sandbox.child import run_command
from uwf_git.sandbox.programs import trusted_path

if TYPE_CHECKING:
    from uwf_git.config.settings import WorkspaceSettings
    from uwf_git.format.ids import ThreadId

_AGAIN = "mend that in config.yaml, workspace, then step again"


def set_up(folder: Path, checkout: Path | None, settings: WorkspaceSettings, thread: ThreadId) -> None:
    """Copy, link and run what the settings say. What the worktree has already stays; what the checkout lacks
    is skipped. Raises WorkspaceFailed."""
    try:
        if checkout is not None:
            for path in settings.copy:
                _bring(folder, checkout / path, folder / path, linked=False)
            for path in settings.link:
                _bring(folder, checkout / path, folder / path, linked=True)
    except (OSError, shutil.Error) as error:
        raise WorkspaceFailed(f"the files for worktree {folder} cannot be copied: {error}", _AGAIN) from None
    if settings.setup:
        _run(folder, checkout, settings, thread)


def _bring(folder: Path, source: Path, target: Path, linked: bool) -> None:
    if not source.exists():
        return
    with contextlib.suppress(OSError):
        target.rmdir()  # the empty folder of a submodule
    if os.path.lexists(target):
        return
    if not target.parent.resolve().is_relative_to(folder.resolve()):
        raise OSError(f"{target.parent} leads out of it")
    target.parent.mkdir(parents=True, exist_ok=True)
    if linked:
        target.symlink_to(source)
    elif source.is_dir():
        shutil.copytree(source, target, symlinks=True)
    else:
        shutil.copy2(source, target)


def _run(folder: Path, checkout: Path | None, settings: WorkspaceSettings, thread: ThreadId) -> None:
    command = settings.setup
    own = {"UWF_THREAD": thread, "UWF_CHECKOUT": str(checkout or ""), "PATH": trusted_path(folder)}
    try:
        done = run_command(
            command, cwd=folder, env={**os.environ, **own}, timeout=settings.timeout, guarded=True
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
