"""Whether this process runs within a step: as an agent's command, or as something that one started. No person is
behind it, so it does nothing in the user's name.

Three marks tell: the nonce that the engine gives to agents, in this process's environment; a thread's lock that it
inherited; and either of them in a process that it descends from, since a script can unset a variable for its own
children only. A program that leaves its ancestors, closes the lock and clears its environment is not recognised.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from uwf_git.base.errors import RequirementUnmet
from uwf_git.sandbox.process_table import content, has_table, parents_of
from uwf_git.sandbox.programs import find_program

NONCE_VARIABLE = "UWF_NONCE"
WITHHELD = "withheld"
"""The nonce of commands that run within a step, and don't make it."""

OWN_STORE = "made-within-a-step"
"""A file in a storage root that a step made, beside `store.git`: nothing of the user's is there."""

_LOCK = re.compile(r".*/uwf/locks/([0-9A-HJKMNP-TV-Z]{26})(?: \(deleted\))?")
_NONCE = NONCE_VARIABLE.encode() + b"="
_THREAD = b"UWF_THREAD="
_SOMEWHERE = "another thread"


def enclosing_step(environ: Mapping[str, str] | None = None) -> str | None:
    """Return the thread whose step this process runs within, None if it doesn't. `environ` replaces this process's
    environment."""
    environ = os.environ if environ is None else environ
    if environ.get(NONCE_VARIABLE):
        return environ.get("UWF_THREAD") or _SOMEWHERE
    for descriptor, path in _files("self"):
        # One of ours is closed in children; that of an agent's engine was passed to it.
        if (lock := _LOCK.fullmatch(path)) and os.get_inheritable(descriptor):
            return lock[1]
    return next(filter(None, map(_marked, parents_of(os.getpid()))), None)


def require_person(
    what: str, root: Path, environ: Mapping[str, str] | None = None, shared: bool = False
) -> None:
    """Raise RequirementUnmet within a step, which may not do `what`, a clause such as "kills thread X". A storage
    root that was made within a step is the step's own, unless its store is `shared`."""
    thread = enclosing_step(environ)
    if thread is None or ((root / OWN_STORE).is_file() and not shared):
        return
    where = thread if thread == _SOMEWHERE else f"thread {thread}"
    raise RequirementUnmet(
        f"this command runs within a step of {where}, and only a person {what}",
        "do it yourself, in a terminal outside of the step",
    )


def claim_root(root: Path) -> None:
    """Note that a storage root is made within a step, if that is so. Called before anything is written there."""
    if not any((root / name).exists() for name in ("config.yaml", "store.git")) and enclosing_step():
        root.mkdir(parents=True, exist_ok=True)
        (root / OWN_STORE).touch()


def _marked(process: int) -> str | None:
    variables = _environment(process)
    if any(each.startswith(_NONCE) and each != _NONCE for each in variables):
        named = next((each for each in variables if each.startswith(_THREAD)), b"")
        return named[len(_THREAD) :].decode("ascii", "replace") or _SOMEWHERE
    for descriptor, path in _files(str(process)):
        if (lock := _LOCK.fullmatch(path)) and not _is_closed_in_children(process, descriptor):
            return lock[1]
    return None


def _environment(process: int) -> list[bytes]:
    """Return the variables that a process was started with. Those of another user's are not readable."""
    try:
        if has_table():
            return content(f"/proc/{process}/environ").split(b"\0")
        if program := find_program("ps"):
            import subprocess

            shown = [program, "-E", "-ww", "-o", "command=", "-p", str(process)]
            return subprocess.run(shown, capture_output=True, check=False).stdout.split()
    except OSError:
        pass
    return []


def _files(process: str) -> Iterator[tuple[int, str]]:
    folder = Path(f"/proc/{process}/fd")
    try:
        links = list(folder.iterdir())
    except OSError:
        return
    for link in links:
        try:
            yield int(link.name), str(link.readlink())
        except OSError:
            continue


def _is_closed_in_children(process: int, descriptor: int) -> bool:
    try:
        told = content(f"/proc/{process}/fdinfo/{descriptor}").split(b"flags:")[1].split()[0]
    except (OSError, IndexError):
        return True
    return bool(int(told, 8) & os.O_CLOEXEC)
