"""The outcomes of actions that pages show afterwards."""

from __future__ import annotations

import secrets
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from uwf_git.ext.web.actions import ActionFailed
from uwf_git.plugin import Busy, Head, ThreadId

if TYPE_CHECKING:
    from uwf_git.plugin import Failure

_Key = TypeVar("_Key", bound=Hashable)
_Note = TypeVar("_Note")

_KEPT = 200  # notes of a kind

RESULT = "done"
"""The name in a query of the result that a page shows."""


class StartRefused(NamedTuple):
    """Why agents didn't start, at `head`; `follows`: only an action before it was asked for, such as an answer."""

    head: str
    why: ActionFailed
    follows: bool


class CommandNote(NamedTuple):
    """The outcome of a command of an extension that was begun at `head`: its `text`, or `why` it failed; neither while
    it is at work."""

    head: str
    command: str
    text: str = ""
    why: ActionFailed | None = None

    @property
    def is_at_work(self) -> bool:
        return not self.text and self.why is None


class Outcome(NamedTuple):
    """What an action came to for a thread of a `title`: `why` it was not done, or None, and the `news` of the thread
    since the page showed it, as `thread_news` returns them. `after` is the thread that goes on, itself or a fork."""

    thread: str
    title: str
    why: Failure | None = None
    news: Mapping[str, Any] | None = None
    after: str = ""


class ActionResult(NamedTuple):
    """The outcomes of an action for its threads. `runs`: it was started, and agents are at work."""

    label: str
    runs: bool
    outcomes: tuple[Outcome, ...]

    @property
    def done(self) -> int:
        return sum(outcome.why is None for outcome in self.outcomes)


class Notes:
    """The newest outcomes. `version` grows with each change of a thread's."""

    def __init__(self) -> None:
        self.refused: dict[ThreadId, StartRefused] = {}
        self._commands: dict[ThreadId, CommandNote] = {}
        self._results: dict[str, ActionResult] = {}
        self.version = 0

    def failed(self) -> list[ThreadId]:
        """Return the threads whose agents didn't start, or for which a command failed, before they may have moved."""
        commands = (thread for thread, note in self._commands.items() if note.why is not None)
        return list(dict.fromkeys((*self.refused, *commands)))

    def refused_at(self, head: Head) -> StartRefused | None:
        """Return why agents didn't start last, None once the thread moved."""
        refused = self.refused.get(head.thread)
        return refused if refused is not None and refused.head == head.node else None

    def command_at(self, head: Head) -> CommandNote | None:
        """Return the outcome of the last command of an extension, None once the thread moved."""
        note = self._commands.get(head.thread)
        return note if note is not None and (note.is_at_work or note.head == head.node) else None

    def require_no_command(self, thread: ThreadId) -> None:
        """Raise Busy while a command of an extension is at work on a thread."""
        note = self._commands.get(thread)
        if note is not None and note.is_at_work:
            raise Busy(f"{note.command} is at work", "wait for its end")

    def put_command(self, thread: ThreadId, note: CommandNote) -> None:
        _keep(self._commands, thread, note)
        self.version += 1

    def put_refused(self, thread: ThreadId, refused: StartRefused | None) -> None:
        before = self.refused.pop(thread, None)
        if refused is not None:
            _keep(self.refused, thread, refused)
        self.version += (before, refused) != (None, None)

    def put_result(self, result: ActionResult) -> str:
        """Return the name by which a result is kept."""
        name = secrets.token_hex(4)  # an address outlives the server, and must not name another result then
        _keep(self._results, name, result)
        return name

    def result(self, name: str) -> ActionResult | None:
        return self._results.get(name)


def with_result(address: str, name: str) -> str:
    """Return the address of a page that shows a result."""
    return f"{address}{'&' if '?' in address else '?'}{RESULT}={name}"


def _keep(notes: dict[_Key, _Note], key: _Key, note: _Note) -> None:
    """Add a note, and forget the oldest ones."""
    notes.pop(key, None)
    notes[key] = note
    for oldest in list(notes)[:-_KEPT]:
        del notes[oldest]
