"""Requests of running agents for leave to do something, and what people decide: files of the private folder, which
their user alone may write, since a decision lets an agent act as this user.

    permissions/<ULID>/<id>.json        {role, agent, kind, title, command, paths, unread, at, until}, locked by
                                        the process that waits, so that one of a dead process is known
    permissions/<ULID>/<id>.decision    {granted, always, by, at}; the first one counts
    permissions/<ULID>/always-<hash>    the same, for every equal request of a role
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from uwf_git.base import system
from uwf_git.base.errors import NotFound, StoreUnwritable
from uwf_git.format.ids import ThreadId, is_thread_id
from uwf_git.store.locks import is_locked
from uwf_git.store.private import PERMISSIONS
from uwf_git.store.private_files import read_private, write_private

MOST = 20  # open requests of a thread
_MINE = 0o600


class Wish(NamedTuple):
    """What an agent asks leave for. `command` is None if it is none; `paths` are absolute; `unread` is the whole input,
    as JSON, if it has or may have more than the command or the paths."""

    kind: str
    title: str
    command: str | None
    paths: tuple[str, ...]
    unread: str = ""

    @property
    def subject(self) -> list[str] | None:
        """The command or the paths that an equal request has, None if it names neither for certain."""
        if self.unread:
            return None
        return [self.command] if self.command else sorted(self.paths) or None


class OpenRequest(NamedTuple):
    """A request that waits for a person until a Unix time."""

    id: str
    thread: ThreadId
    role: str
    agent: str
    wish: Wish
    at: float
    until: float


class Decision(NamedTuple):
    """A person's decision. `by` is a name and address."""

    granted: bool
    always: bool
    by: str
    at: float


class PermissionFiles:
    """The requests of one store."""

    def __init__(self, private: Path) -> None:
        self._folder = private / PERMISSIONS

    def put(self, request: OpenRequest) -> int:
        """Write a request, and return the descriptor of its file, which is locked: the request is open until it is
        closed. Raises StoreUnwritable."""
        value = request._asdict() | request.wish._asdict()
        for key in ("id", "thread", "wish"):
            del value[key]
        path = self._path(request.thread, f"{request.id}.json")
        self._write(path, value)
        try:
            descriptor = system.open_file(path, os.O_RDONLY | system.O_NONBLOCK | system.O_CLOEXEC)
            system.lock(descriptor, wait=True)
        except OSError as error:
            raise StoreUnwritable(f"cannot lock {path}: {error}", "check permissions") from None
        return descriptor

    def is_open(self, request: OpenRequest) -> bool:
        """Return whether a process waits for a decision, and its time isn't over."""
        is_held = is_locked(self._path(request.thread, f"{request.id}.json"))
        return is_held and time.time() < request.until

    def waiting(self, thread: ThreadId | None = None) -> list[OpenRequest]:
        """Return the open requests of all threads or of one, oldest first."""
        requests = self.all() if thread is None else self.of(thread)
        return sorted(filter(self.is_open, requests), key=lambda item: (item.at, item.id))

    def all(self) -> Iterator[OpenRequest]:
        """Yield the requests of all threads, also those of steps that are gone."""
        with suppress(OSError):
            for folder in sorted(self._folder.iterdir()):
                if is_thread_id(folder.name):
                    yield from self.of(ThreadId(folder.name))

    def of(self, thread: ThreadId) -> list[OpenRequest]:
        """Return the requests of a thread that nobody has decided, oldest first; damaged ones are left out."""
        try:
            names = {path.name for path in (self._folder / thread).iterdir()}
        except OSError:
            return []
        ids = [name.removesuffix(".json") for name in names if name.endswith(".json")]
        requests = [self._read(thread, item) for item in ids if f"{item}.decision" not in names]
        return sorted((item for item in requests if item is not None), key=lambda item: (item.at, item.id))

    def decide(self, request: OpenRequest, decision: Decision) -> bool:
        """Record a decision; return whether it is the first. Raises NotFound if the request was withdrawn meanwhile,
        StoreUnwritable."""
        path = self._path(request.thread, f"{request.id}.decision")
        draft = path.with_name(f"{path.name}.{os.getpid()}-{os.urandom(4).hex()}")
        self._write(draft, decision._asdict())
        try:
            os.link(draft, path)
        except FileExistsError:
            return False
        except OSError as error:
            raise StoreUnwritable(f"cannot record the decision: {error}", "check permissions") from None
        finally:
            draft.unlink(missing_ok=True)
        # Who withdraws a request removes it, then takes the decision away: what can be removed here came too late.
        if not self._path(request.thread, f"{request.id}.json").exists():
            with suppress(OSError):
                path.unlink()
                raise NotFound(
                    f"request {request.id} of thread {request.thread} waits no longer", "see: uwf inbox"
                )
        return True

    def decision(self, thread: ThreadId, request: str) -> Decision | None:
        return _decision(self._path(thread, f"{request}.decision"))

    def withdraw(self, thread: ThreadId, request: str) -> Decision | None:
        """Remove a request; return the decision if there is one in the last moment."""
        taken = self._path(thread, f"{request}.taken")
        with suppress(OSError):
            self._path(thread, f"{request}.json").unlink()
        with suppress(OSError):
            self._path(thread, f"{request}.decision").rename(taken)
        decision = _decision(taken)
        with suppress(OSError):
            taken.unlink()
        with suppress(OSError):  # there are others, or what always holds
            (self._folder / thread).rmdir()
        return decision

    def hold(self, thread: ThreadId, role: str, wish: Wish, decision: Decision) -> None:
        """Record what always holds for a wish of a role. Raises StoreUnwritable."""
        if (path := self._standing(thread, role, wish)) is not None:
            self._write(path, decision._asdict())

    def standing(self, thread: ThreadId, role: str, wish: Wish) -> Decision | None:
        """Return what always holds for a wish of a role, None for nothing."""
        path = self._standing(thread, role, wish)
        return None if path is None else _decision(path)

    def _standing(self, thread: ThreadId, role: str, wish: Wish) -> Path | None:
        if wish.subject is None:
            return None
        kind = "command" if wish.command else "paths"
        key = json.dumps([role, wish.kind, kind, wish.subject]).encode()
        return self._path(thread, f"always-{hashlib.sha256(key).hexdigest()}")

    def _path(self, thread: ThreadId, name: str) -> Path:
        return self._folder / thread / name

    def _write(self, path: Path, value: Mapping[str, Any]) -> None:
        content = json.dumps(value).encode()
        write_private(path, content, f"cannot write {path}", synced=True, mode=_MINE, shared=False)

    def _read(self, thread: ThreadId, name: str) -> OpenRequest | None:
        try:
            match json.loads(read_private(self._path(thread, f"{name}.json"))):
                case {
                    "role": str(role),
                    "agent": str(agent),
                    "kind": str(kind),
                    "title": str(title),
                    "command": str() | None as command,
                    "paths": list(paths),
                    "unread": str(unread),
                    "at": float(at),
                    "until": float(until),
                }:
                    wish = Wish(kind, title, command, tuple(map(str, paths)), unread)
                    return OpenRequest(name, thread, role, agent, wish, at, until)
        except (OSError, ValueError, RecursionError):
            pass
        return None


def _decision(path: Path) -> Decision | None:
    try:
        match json.loads(read_private(path)):
            case {"granted": bool(granted), "always": bool(always), "by": str(by), "at": float(at)}:
                return Decision(granted, always, by[:200], at)
    except (OSError, ValueError, RecursionError):
        pass
    return None
