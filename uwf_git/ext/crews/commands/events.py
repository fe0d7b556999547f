"""A session's events, for people or as JSON lines. A model's words are streamed; before the first one, a line
shows the agent."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from uwf_git.plugin import describe_failure, numbered_lines, one_line, print_error, terminal

if TYPE_CHECKING:
    from uwf_git.plugin import Invocation, ThreadId, TurnRecord

_SHOWN = 200  # characters of a tool's arguments, and of why it failed


class EventPrinter:
    """Prints events. `status` is the exit status of the last error since `begin`, or 0."""

    def __init__(self, invocation: Invocation) -> None:
        self._invocation = invocation
        self._text = invocation.format == "text"
        self._live: ExitStack | None = None
        self._within = False  # a line of text that has no end yet
        self._words = False  # something was said since `begin`
        self._fields: FieldFilter | None = None
        self._thread: ThreadId | None = None
        self.status = 0

    def event(
        self, kind: str, value: Mapping[str, Any], text: Callable[[Any], str] | None = None, **shown: Any
    ) -> None:
        """Print an event. `text` formats it with `shown` for people; without, they don't see it."""
        if self._text and text is None:
            return
        self.rest()
        value = {"type": kind, **value}
        self._invocation.emit(value, text, {**value, **shown}, compact=True)

    def error(self, error: Exception) -> None:
        """Print an error; the session continues."""
        failure = describe_failure(error)
        self.status = failure.status
        self.rest()
        if self._text:
            print_error(self._invocation, failure)
        else:
            failure_value = {"code": failure.code, "message": failure.message, "hint": failure.hint}
            self.event("error", {"error": failure_value})

    def begin(self) -> None:
        self.status, self._words = 0, False

    # While a step is made

    @contextmanager
    def working(self, thread: ThreadId, fields: bool = False) -> Iterator[None]:
        """Show a step's agent and stream its words. A field block at the beginning is hidden with `fields`."""
        instance = self._invocation.instance
        self._fields = FieldFilter() if fields and self._text else None
        instance.listener, before = self, instance.listener
        self._thread = thread
        try:
            if self._text and terminal.colours():
                self._live = ExitStack()
                self._live.enter_context(_live_line(self._invocation, thread))
            yield
        finally:
            instance.listener = before
            self.rest()

    @property
    def heard(self) -> bool:
        """Whether words were streamed since `begin`."""
        return self._words

    def said(self, text: str) -> None:
        if self._text:
            text = terminal.escape(text if self._fields is None else self._fields.feed(text))
            if not text:
                return
            self._end_live()
            sys.stdout.write(text)
            sys.stdout.flush()
            self._within = not text.endswith("\n")
        else:
            self._invocation.emit({"type": "delta", "thread": self._thread, "text": text}, compact=True)
        self._words = True

    def dropped(self) -> None:
        if self._fields is not None:
            self._fields = FieldFilter()
        value = {"thread": self._thread}
        self.event("dropped", value, lambda _: terminal.style("… broken off; it is asked again", "dim"))

    def called(self, turn: TurnRecord) -> None:
        value = {
            "thread": self._thread,
            "tool": turn.tool,
            "arguments": turn.arguments,
            "failed": turn.failed,
            "result": turn.result,
        }
        self.event("tool", value, _tool_line)
        if self._fields is not None:
            self._fields = FieldFilter()

    def rest(self) -> None:
        self._end_live()
        if self._within:
            sys.stdout.write("\n")
            sys.stdout.flush()
            self._within = False

    def _end_live(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            live.close()


class FieldFilter:
    """Removes the leading field block from a streamed text."""

    def __init__(self) -> None:
        self._held = ""
        self._over = False

    def feed(self, text: str) -> str:
        if self._over:
            return text
        self._held += text
        top = self._held.lstrip()
        if not top.startswith("---"[: len(top)]):
            self._over = True
            return self._held
        first, *lines = top.split("\n")
        for place, line in enumerate(lines[:-1]):
            if line.rstrip() == "---":
                rest = "\n".join(lines[place + 1 :]).lstrip("\n")
                self._over = bool(rest)
                return rest
        if first.rstrip() != "---" and lines:
            self._over = True
            return self._held
        return ""


def _live_line(invocation: Invocation, thread: ThreadId) -> Any:
    from uwf_git.plugin import Watch, step_lines

    watch = Watch(invocation.instance)

    def compose() -> list[str]:
        step = watch.step(thread)
        return [step_lines.step_line(step)] if step else []

    return step_lines.Lines(compose)


def _tool_line(value: Any) -> str:
    argument = value["arguments"]
    if isinstance(argument, dict) and len(argument) == 1:
        argument = next(iter(argument.values()))
    shown = one_line(
        argument if isinstance(argument, str) else json.dumps(argument, ensure_ascii=False), _SHOWN
    )
    sign = terminal.style("✗", "red") if value["failed"] else terminal.style("→", "dim")
    line = f"{sign} {value['tool']} {shown}".rstrip()
    error = value["result"].get("error") if value["failed"] and isinstance(value["result"], dict) else None
    if isinstance(error, dict) and error.get("message"):
        line += f": {one_line(str(error['message']), _SHOWN)}"
    room = terminal.width()
    return line if room is None else terminal.cut(line, room - 1)


def question_lines(question: str, options: Sequence[str]) -> str:
    lines = [line for item in question.splitlines() if (line := item.strip())]
    return "\n".join([*lines, *(f"  {option}" for option in numbered_lines(options))])
