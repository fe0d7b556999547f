"""The step in progress: agent, start, latest output; and whether any ref has changed. Reads only the private
folder and the times of ref folders, never the store."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.base.text import last_line, whole_lines
from uwf_git.format.ids import ThreadId, is_thread_id
from uwf_git.git.refs import PACKED
from uwf_git.store.layout import NAMESPACE
from uwf_git.store.private import LOG_END, EngineOrder

if TYPE_CHECKING:
    from uwf_git.format.credit import Credit
    from uwf_git.store.instance import Instance

_DEEPEST = 8  # workflows within each other
_RACY = 2_000_000_000  # nanoseconds: no file system's clock is coarser
_FINE, _COARSE = 100_000_000, 10_000_000  # a time that is no multiple of the second is finer than the first


class Freshness:
    """Whether refs have changed, by the modification times of their folders and of `packed-refs`. `folders`
    are below the git directory, by default those of all refs; `also` are other files and folders."""

    def __init__(self, git_dir: Path, folders: Sequence[str] = (), also: Sequence[Path] = ()) -> None:
        self._top = git_dir / NAMESPACE.rstrip("/")
        self._folders = [git_dir / folder for folder in folders]
        self._also = (*also, git_dir / PACKED)
        self._inside: dict[Path, tuple[tuple[int, ...], list[Path]]] = {}
        self._mark: tuple[int, ...] = ()

    def changed(self) -> bool:
        """Return whether refs may have changed since the last call. Call it before reading refs, so that no
        change is missed."""
        mark, before = self.mark(), self._mark
        self._mark = mark
        return mark != before

    def mark(self) -> tuple[int, ...]:
        """Return a value that differs if a ref changed in between. File systems have coarse clocks, so a change that
        is more recent than theirs can tell has a unique mark. Clocks of other machines may be off, so each change has
        one more mark later."""
        signatures = [_changed(path) for path in (*self._folders, *self._also)]
        signatures += () if self._folders else self._all()
        now = time.time_ns()
        recent = [signature[0] for signature in signatures if abs(now - signature[0]) < _RACY]
        is_racy = any(abs(now - changed) < _FINE or changed % _COARSE == 0 for changed in recent)
        return *(number for signature in signatures for number in signature), now if is_racy else bool(recent)

    def _all(self) -> Iterator[tuple[int, ...]]:
        waiting = [self._top]
        while waiting:
            folder = waiting.pop()
            yield (now := _changed(folder))
            known = self._inside.get(folder)
            if known is None or known[0] != now or abs(time.time_ns() - now[0]) < _RACY:
                known = self._inside[folder] = now, list(_folders_in(folder))
            waiting += known[1]


def _folders_in(folder: Path) -> Iterator[Path]:
    with suppress(OSError):
        yield from (Path(entry.path) for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False))


def _changed(path: Path) -> tuple[int, ...]:
    """Return a file's or folder's time and identity: an empty ref folder is deleted and made again."""
    try:
        status = path.stat()
    except OSError:
        return (0,)
    return status.st_mtime_ns, status.st_ino


class Progress(NamedTuple):
    """The step in progress, the `number`th of its thread. `since` is in Unix seconds; `model` is "" if
    unknown; `turns` and `tokens` are the model's so far; `last` is one line, `heard` when anything was last said or
    printed, in Unix seconds too. `child` is the step of a sub-workflow's thread."""

    thread: ThreadId
    number: int
    role: str
    credit: Credit
    since: float
    model: str
    turns: int
    tokens: int
    last: str
    heard: float
    child: Progress | None


class _Heard(NamedTuple):
    agent: str = ""
    model: str = ""
    turns: int = 0
    tokens: int = 0
    said: str = ""
    child: ThreadId | None = None


class Watch:
    """Reads steps in progress, without secrets. Results are cached while nothing changes."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._runs = instance.runs
        self._orders: dict[ThreadId, tuple[float, EngineOrder]] = {}
        self._logs: dict[ThreadId, tuple[tuple[bytes, float], str]] = {}
        self._heard: dict[ThreadId, tuple[tuple[int, float], _Heard]] = {}

    def step(self, thread: ThreadId, depth: int = 0) -> Progress | None:
        runs = self._runs
        since = runs.began(thread)
        order = None if since is None else self._order(thread, since)
        if since is None or order is None:
            return None
        noted = runs.noted(thread)
        heard = self._notes(thread, noted)
        now = runs.now(thread)
        lines = [(noted[1], heard.said), self._logged(thread)]
        if now is not None:
            lines.append((now.time, now.line))
        lines.sort(key=lambda line: line[0])
        agent = heard.agent or (now.agent if now else "")
        return Progress(
            thread,
            order.number,
            order.role,
            order.credit._replace(agent=agent) if agent else order.credit,
            since,
            heard.model or (now.model if now else ""),
            heard.turns,
            max(heard.tokens, now.tokens if now else 0),
            next((line for _, line in reversed(lines) if line), ""),
            max(since, lines[-1][0], runs.streamed(thread)[0]),
            self.step(heard.child, depth + 1) if heard.child and depth < _DEEPEST else None,
        )

    def _logged(self, thread: ThreadId) -> tuple[float, str]:
        """Return when an agent's program last wrote to standard error, and the last whole line, not yet
        redacted."""
        log, logged = self._runs.logged(thread)
        known = self._logs.get(thread)
        if known is None or known[0] != (log, logged):
            text = whole_lines(log.decode("utf-8", "replace"))
            clean = self._instance.redactor.text(text)[0] if text else ""
            line = last_line(clean[LOG_END // 2 :] if len(log) == LOG_END else clean)
            known = self._logs[thread] = (log, logged), line
        return logged, known[1]

    def _order(self, thread: ThreadId, since: float) -> EngineOrder | None:
        known = self._orders.get(thread)
        if known is None or known[0] != since:
            order = self._runs.read_order(thread)
            if order is None:
                return None
            known = self._orders[thread] = since, order
        return known[1]

    def _notes(self, thread: ThreadId, noted: tuple[int, float]) -> _Heard:
        known = self._heard.get(thread)
        if known is None or known[0] != noted:
            heard = _Heard()
            for note in self._runs.notes(thread) if noted[0] else ():
                heard = _with(heard, note)
            known = self._heard[thread] = noted, heard
        return known[1]


def _with(heard: _Heard, note: Mapping[str, Any]) -> _Heard:
    if "turn" not in note:
        child = note["session"]
        return heard._replace(agent=note["agent"], child=ThreadId(child) if is_thread_id(child) else None)
    return heard._replace(
        agent=note["agent"],
        model=note["model"] or heard.model,
        turns=heard.turns + (note["role"] == "assistant"),
        tokens=heard.tokens + note["tokens"],
        said=note["said"] or heard.said,
    )
