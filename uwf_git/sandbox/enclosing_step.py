"""Whether this process runs within a step: as an agent's command, or as something that one started. No person is
behind it, so it does nothing in the user's name.

Three marks tell: the nonce that the engine gives to agents, in this process's environment; a thread's lock that it
inherited; and either of them in a process that it descends from, since a script can unset a variable for its own
children only. On Linux, a program that leaves its ancestors descends from the engine, which has the lock; see
`orphans`. Elsewhere, one that closes the lock and clears its environment, too, is not recognised.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from uwf_git.base import system
from uwf_git.base.errors import RequirementUnmet
from uwf_git.sandbox.process_table import parents_of, started_at
from uwf_git.sandbox.step_variables import HOOK_VARIABLE, NONCE_VARIABLE

_LOCK = r".*/uwf/locks/([0-9A-HJKMNP-TV-Z]{26})(?: \(deleted\))?"
_NONCE = NONCE_VARIABLE.encode() + b"="
_HOOK = HOOK_VARIABLE.encode() + b"="
_THREAD = b"UWF_THREAD="
_SOMEWHERE = "another thread"


def enclosing_step(environ: Mapping[str, str] | None = None) -> str | None:
    """Return the thread whose step this process runs within, None if it doesn't. `environ` replaces this process's
    environment."""
    environ = os.environ if environ is None else environ
    if environ.get(NONCE_VARIABLE):
        return environ.get("UWF_THREAD") or _SOMEWHERE
    for descriptor, path in system.files_of(os.getpid()):
        # One of ours is closed in children; that of an agent's engine was passed to it.
        if (lock := re.fullmatch(_LOCK, path)) and os.get_inheritable(descriptor):
            return lock[1]
    return next((thread for _, thread in _members()), None)


def require_person(
    what: str,
    root: Path,
    environ: Mapping[str, str] | None = None,
    shared: bool = False,
    answers: bool = False,
) -> None:
    """Raise RequirementUnmet within a step, which may not do `what`, a clause such as "kills thread X", and within a
    hook if that `answers`. The store of a root that is younger than the step is the step's own, unless it is `shared`.
    """
    thread = enclosing_step(environ)
    if thread is not None and (shared or not is_made_within(root)):
        raise RequirementUnmet(
            f"this command runs within a step of {_named(thread)}, and only a person {what}",
            "do it yourself, in a terminal outside of the step",
        )
    if thread is None and answers and _is_within_hook(os.environ if environ is None else environ):
        raise RequirementUnmet(
            f"this command runs within a hook, and only a person {what}",
            "do it yourself, in a terminal; a hook may tell you that it is your turn",
        )


def is_made_within(root: Path) -> bool:
    """Return whether a storage root's store, or without one its configuration, is younger than the step that this
    process runs within. There may be neither yet."""
    store, settings = root / "store.git", root / "config.yaml"
    if store.exists():
        return is_younger(store)
    return not settings.exists() or _are_younger(settings)


def is_younger(git_dir: Path) -> bool:
    """Return whether a store was made by the step that this process runs within."""
    return _are_younger(git_dir, git_dir / "refs", git_dir / "objects")


def _are_younger(*paths: Path) -> bool:
    """Return whether files were made since the step began, as far as that is known: the oldest process that belongs to
    it is the first that the engine started."""
    oldest = [os.getpid(), *(process for process, _ in _members())][-1]
    began, times = started_at(oldest), [_made_at(path) for path in paths]
    return began is not None and all(item is not None and began <= item <= time.time() for item in times)


def _is_within_hook(environ: Mapping[str, str]) -> bool:
    return bool(environ.get(HOOK_VARIABLE)) or any(
        variable.startswith(_HOOK)
        for process in parents_of(os.getpid())
        for variable in _environment(process)
    )


def _named(thread: str) -> str:
    return thread if thread == _SOMEWHERE else f"thread {thread}"


def _members() -> Iterator[tuple[int, str]]:
    """Yield the processes of steps that this one descends from, nearest first, and the thread of each. A child of an
    engine that holds a thread's lock is one, too: an orphan that it has adopted has no other mark."""
    below = os.getpid()
    for process in parents_of(below):
        variables = _environment(process)
        if any(variable.startswith(_NONCE) and variable != _NONCE for variable in variables):
            named = next((variable for variable in variables if variable.startswith(_THREAD)), b"")
            yield process, named[len(_THREAD) :].decode("ascii", "replace") or _SOMEWHERE
        else:
            locks = [
                (number, lock[1])
                for number, path in system.files_of(process)
                if (lock := re.fullmatch(_LOCK, path))
            ]
            passed = (thread for number, thread in locks if not system.is_closed_in_children(process, number))
            if thread := next(passed, None):
                yield process, thread
            else:
                yield from ((below, thread) for _, thread in locks)
        below = process


def _environment(process: int) -> list[bytes]:
    try:
        return system.environment_of(process).split(b"\0")
    except OSError:  # another user's
        return []


def _made_at(path: Path) -> float | None:
    try:
        return system.made_at(path)
    except OSError:
        return None
