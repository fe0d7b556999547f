"""The board and the live output of one thread, read together. Called in the thread that reads the store."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from uwf_git.ext.top.board import Board, Watcher
from uwf_git.ext.top.filters import Filter
from uwf_git.ext.top.lines import Line
from uwf_git.ext.top.live import Live
from uwf_git.plugin import Instance, ThreadId, UwfError


class Wanted(NamedTuple):
    """The board's `filter`, the places of its rows that are in `sight`, and the thread to `follow`. With `again` the
    board is read again, with `all_lines` the lines are wanted even if there are no new ones."""

    filter: Filter
    sight: range
    follow: ThreadId | None
    again: bool
    all_lines: bool


class Feed:
    def __init__(self) -> None:
        self._watcher: Watcher | None = None
        self._live: Live | None = None

    def look(self, wanted: Wanted, instance: Instance) -> tuple[Board | None, Sequence[Line] | None]:
        """Return the board and the live lines, each None if it has not changed since the last call."""
        if self._watcher is None or self._watcher.instance is not instance:
            self._watcher, self._live = Watcher(instance), None
        board = self._watcher.look(wanted.filter, wanted.sight, wanted.again)
        live = None
        if wanted.follow is None:
            self._live = None
        else:
            with suppress(UwfError):  # it was removed, or can't be read: the list says so
                live = self._follow(instance, wanted.follow, wanted.all_lines)
        return board, live

    def _follow(self, instance: Instance, thread: ThreadId, all_lines: bool) -> Sequence[Line] | None:
        if self._live is None or self._live.thread != thread:
            self._live, all_lines = Live(instance, thread), True
        return self._live.lines() if self._live.look() or all_lines else None
