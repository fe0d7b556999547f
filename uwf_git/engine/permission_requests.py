"""Requests of running agents for leave to do something, which wait for a person for as long as `permissionWait` says.
A decision that always holds does so for the same kind and command or paths, in one thread and role on this machine."""

from __future__ import annotations

import json
import os
import shlex
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from uwf_git.base.errors import Invalid, NotFound, StoreUnwritable, Usage
from uwf_git.base.text import iso, shortened, written_out
from uwf_git.base.thread_states import ThreadState
from uwf_git.engine.hooks import run_hook
from uwf_git.format.ids import ThreadId, new_thread_id
from uwf_git.store.permission_files import MOST, Decision, OpenRequest, Wish

if TYPE_CHECKING:
    from uwf_git.store.instance import Instance

LONGEST = 4000  # characters of a command or an input that a person is shown whole
_LONGEST_EDIT = 100_000  # and of an input that has what is written to a file
_LONGEST_PATH = 4096
_MOST_PATHS = 50
_SHOWN = 200
_DEEPEST = 4  # levels of an input whose keys have lines of their own


class PermissionDesk:
    """Where the requests of one step's agent wait. Wishes have their secrets removed before anything else."""

    def __init__(self, instance: Instance, thread: ThreadId, role: str, agent: str) -> None:
        self._instance = instance
        self._thread = thread
        self._role = role
        self._agent = agent
        self._files = instance.permission_files
        self._open: dict[str, int] = {}

    @property
    def patience(self) -> float | None:
        """The seconds that a request may wait for a person, None if none may."""
        runs = self._instance.runs
        return self._instance.config.permission_wait if runs.is_asked(self._thread) else None

    def standing(self, wish: Wish) -> Decision | None:
        """Return the decision that a person made for every equal request, None if nobody did."""
        return self._files.standing(self._thread, self._role, self._clean(wish))

    def put(self, wish: Wish, until: float) -> str | None:
        """Have a request wait until a Unix time, run the user's hook for a waiting thread, and return the request's
        id. None if there are too many, nobody can be shown all that it asks, or the disk refuses it."""
        wish = self._clean(wish)
        longest = _LONGEST_EDIT if wish.kind == "edit" else LONGEST
        if len(wish.command or "") + len(wish.unread) > longest or len(wish.paths) > _MOST_PATHS:
            return None
        if any(len(path) > _LONGEST_PATH for path in wish.paths):
            return None
        self._withdraw_leftovers()
        if len(self._files.of(self._thread)) >= MOST:
            return None
        request = OpenRequest(
            new_thread_id()[-8:], self._thread, self._role, self._agent, wish, time.time(), until
        )
        try:
            self._open[request.id] = self._files.put(request)
        except StoreUnwritable as error:
            self._instance.warn(f"{error.message}; the request is denied")
            return None
        run_hook(
            self._instance,
            self._thread,
            ThreadState.ASKING.hook,
            question=f"{self._agent} asks for leave to {line_of(wish)}",
            permission=request_value(request),
        )
        return request.id

    def decision(self, request: str) -> Decision | None:
        return self._files.decision(self._thread, request)

    def withdraw(self, request: str) -> Decision | None:
        """Withdraw a request; return the decision if a person makes one in the last moment."""
        decision = self._files.withdraw(self._thread, request)
        os.close(self._open.pop(request))
        return decision

    def _withdraw_leftovers(self) -> None:
        for request in self._files.of(self._thread):
            if not self._files.is_open(request):
                self._files.withdraw(self._thread, request.id)

    def _clean(self, wish: Wish) -> Wish:
        def clean(text: str) -> str:
            return self._instance.redactor.text(text)[0]

        return Wish(
            clean(wish.kind)[:40],
            clean(wish.title)[:500],
            None if wish.command is None else clean(wish.command),
            tuple(map(clean, wish.paths)),
            clean(wish.unread),
        )


def permission_requests(instance: Instance, thread: ThreadId | None = None) -> list[OpenRequest]:
    """Return the requests of steps in progress, or of one thread's, that wait for a person, oldest first."""
    return instance.permission_files.waiting(thread)


def decide(
    instance: Instance, thread: ThreadId, request: str, granted: bool, always: bool = False
) -> dict[str, Any]:
    """Allow or deny a request of a running agent, with `always` every equal one of its role in this thread; return
    that as JSON. Raises NotFound for a request that doesn't wait, Usage if an equal one cannot be told, Invalid if
    somebody else decided first, StoreUnwritable."""
    waiting = {item.id: item for item in permission_requests(instance, thread)}
    match = waiting.get(request.strip().upper())
    if match is None:
        raise NotFound(
            f"thread {thread} has no open request {shortened(ascii(request), 40)}",
            f"see: uwf thread show {thread}",
        )
    if always and match.wish.subject is None:
        raise Usage(
            f"request {match.id} of thread {thread} names no command and no file, so no other one equals it",
            f"decide this one: {_command(match, granted)}",
        )
    decision = Decision(granted, always, instance.user_name, time.time())
    files = instance.permission_files
    if not files.decide(match, decision):
        first = files.decision(thread, match.id)
        who = "" if first is None else f" by {first.by}: {'allowed' if first.granted else 'denied'}"
        raise Invalid(
            f"request {match.id} of thread {thread} was decided already{who}",
            f"see: uwf thread show {thread}",
        )
    if always:
        files.hold(thread, match.role, match.wish, decision)
    return {**request_value(match), "granted": granted, "always": always, "by": decision.by}


def request_value(request: OpenRequest) -> dict[str, Any]:
    """Return a request as JSON, with the commands that decide it."""
    wish = request.wish
    may_always = wish.subject is not None
    return {
        "thread": request.thread,
        "request": request.id,
        "role": request.role,
        "agent": request.agent,
        **wish_value(wish),
        "at": iso(request.at),
        "until": iso(request.until),
        "commands": {
            "allow": _command(request, True),
            "deny": _command(request, False),
            **({"always": f"{_command(request, True)} --always"} if may_always else {}),
        },
    }


def wish_value(wish: Wish) -> dict[str, Any]:
    """Return what is asked for as JSON."""
    return {
        "kind": wish.kind,
        "title": wish.title,
        "command": wish.command,
        "paths": [*wish.paths],
        "input": wish.unread or None,
        "line": line_of(wish),
    }


def request_lines(value: Mapping[str, Any]) -> list[str]:
    """Return all that a request asks for, as `wish_value` returns it, in lines that have yet to be escaped. A line end
    in a text is one here, and further lines of a text are indented below its first."""
    title, command = value["title"], value["command"]
    lines = [*_lines(value["kind"], title if command is None else command)]
    if command is not None and title.strip("`") not in ("", command):
        lines += _lines("title", title)
    for path in value["paths"]:
        lines += _lines("path", path)
    if value["input"]:
        for name, text in _entries("", _read(value["input"]), _DEEPEST):
            lines += _lines(name or "input", text)
    return [lines[0], *(f"  {line}" for line in lines[1:])]


def _lines(name: str, text: str) -> Iterator[str]:
    first, *rest = text.split("\n")
    yield f"{name}: {first}"
    yield from (f"    {line}" for line in rest)


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _entries(name: str, value: Any, depth: int) -> Iterator[tuple[str, str]]:
    """Yield the names and texts of a JSON value, those within it as `env.PATH`."""
    if depth and value and isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value, 1):
            part = str(key) if str(key).isalnum() or str(key).isidentifier() else json.dumps(key)
            yield from _entries(f"{name}.{part}" if name else part, item, depth - 1)
    else:
        yield name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def line_of(wish: Wish) -> str:
    """Return what is asked for in a line, cut if it is long. Line ends are `⏎` in it. It lacks what is written to a
    file."""
    if wish.command is not None:
        parts = [wish.command]
    else:
        hidden = [path for path in wish.paths if path not in wish.title]
        parts = [": ".join(filter(None, [wish.title, ", ".join(hidden)]))]
    if wish.kind != "edit":
        parts.append(wish.unread)
    what = " ".join(parts).strip().replace("\r\n", "\n").replace("\n", " ⏎ ").replace("\t", " ")
    return shortened(f"{wish.kind}: {written_out(' '.join(filter(None, what.split(' '))))}", _SHOWN)


def _command(request: OpenRequest, granted: bool) -> str:
    return shlex.join(
        ["uwf", "thread", "permit", request.thread, request.id, *(() if granted else ("--deny",))]
    )
