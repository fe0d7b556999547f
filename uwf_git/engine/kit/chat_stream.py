"""Reassembling a streamed chat completion from server-sent events.

    data: {"choices": [{"delta": {"content": "Hel"}}]}      → the value that the endpoint would have
    data: [DONE]                                              answered in one piece

Endpoints differ: if a tool call's index is missing or always 0, its id and name tell calls apart; usage may
be in any chunk. Ambiguous pieces are joined into one call, which then fails to run.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from uwf_git.base.line_buffer import LineBuffer

MAX_CALLS = 128
_MAX_LINE = 16_000_000  # bytes of one event


TOO_LONG = "ask for less at once; one that never ends may come from the model: try another"
"""What to do about an answer that is larger than it may be."""


class StreamProblem(Exception):
    """The stream is not a completion. `passing`: a retry may help. `shown` is the part at fault."""

    def __init__(self, problem: str, shown: str = "", passing: bool = False, hint: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.shown = shown
        self.passing = passing
        self.hint = hint


class Stream:
    """Parses a stream incrementally. `done`: the end mark was read. `ended`: the model finished, although the
    mark may be missing. `begun`: an event was read. `hear` gets the answer's text."""

    def __init__(self, at_most: int, hear: Callable[[str], object] | None = None) -> None:
        self.done = False
        self.begun = False
        self._at_most = at_most  # characters of the answer, its tool calls included
        self._size = 0
        self._lines = LineBuffer()
        self._data: list[str] = []
        self._text: list[str] = []
        self._hear = hear
        self._half = ""  # of a pair of surrogates, which JSON can bring one by one
        self._refusal: list[str] = []
        self._reasoning: list[str] = []
        self._calls = _Calls()
        self._finish = ""
        self._model: str | None = None
        self._usage: Any = None

    @property
    def ended(self) -> bool:
        return self.done or bool(self._finish)

    def feed(self, data: bytes) -> None:
        """Parse the next bytes, split anywhere. Bytes after the end mark are ignored. Raises StreamProblem."""
        if self.done:
            return
        if self._lines.size + len(data) > _MAX_LINE:
            raise StreamProblem("streamed an event without end")
        for line in self._lines.add(data):
            self._line(line.rstrip(b"\r"))
            if self.done:
                return

    def close(self) -> None:
        """End of input: an unterminated event counts."""
        if not self.done:
            self._line(self._lines.take().rstrip(b"\r"))
            self._dispatch()

    def value(self) -> dict[str, Any]:
        """Return the completion in the form of a response that was not streamed."""
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self._text) or None}
        for name, parts in (("refusal", self._refusal), ("reasoning_content", self._reasoning)):
            if parts:
                message[name] = "".join(parts)
        if calls := self._calls.listed():
            message["tool_calls"] = calls
        choice = {"index": 0, "message": message, "finish_reason": self._finish or None}
        return {"model": self._model, "choices": [choice], "usage": self._usage}

    def _line(self, line: bytes) -> None:
        if not line:
            self._dispatch()
        elif line.startswith(b"data:"):
            if text := line[5:].decode("utf-8", "replace").strip():
                self._data.append(text)
        elif line[:1] == b":" or line.split(b":", 1)[0] in (b"event", b"id", b"retry"):
            return
        else:
            raise StreamProblem("streamed what is not an event", line[:800].decode("utf-8", "replace"))

    def _dispatch(self) -> None:
        data, self._data = self._data, []
        if not data:
            return
        values = [whole] if (whole := _parsed("\n".join(data))) is not None else map(_parsed, data)
        for value, text in zip(values, data, strict=False):
            if text == "[DONE]":
                self.done = True
                return
            if not isinstance(value, dict):
                raise StreamProblem("streamed what is not JSON", text[:800])
            self._chunk(value)

    def _chunk(self, value: dict[str, Any]) -> None:
        self.begun = True
        if error := value.get("error"):
            raise _error(error)
        if isinstance(model := value.get("model"), str) and model:
            self._model = model
        if isinstance(usage := value.get("usage"), dict):
            self._usage = usage
        choices = value.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict) and choice.get("index") in (0, None):
                self._choice(choice)

    def _choice(self, choice: dict[str, Any]) -> None:
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            delta = choice.get("message")
        if isinstance(delta, dict):
            for parts, text in (
                (self._text, text_of_parts(delta.get("content"))),
                (self._refusal, delta.get("refusal")),
            ):
                self._add(parts, text)
                self._notify(text)
            self._add(self._reasoning, delta.get("reasoning_content"))
            listed = delta.get("tool_calls")
            for part in listed if isinstance(listed, list) else ():
                if isinstance(part, dict):
                    self._count(self._calls.add(part))
        if isinstance(finish := choice.get("finish_reason"), str) and finish:
            self._finish = finish

    def _add(self, parts: list[str], text: object) -> None:
        if isinstance(text, str) and text:
            self._count(len(text))
            parts.append(text)

    def _notify(self, text: object) -> None:
        if self._hear is None or not isinstance(text, str) or not text:
            return
        text, self._half = self._half + text, ""
        if "\ud800" <= text[-1] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        if text := surrogates_joined(text):
            self._hear(text)

    def _count(self, size: int) -> None:
        self._size += size
        if self._size > self._at_most:
            raise StreamProblem(f"answered more than {self._at_most // 1_000_000 or 1} MB", hint=TOO_LONG)


class _Calls:
    def __init__(self) -> None:
        self._calls: list[_Call] = []

    def add(self, part: dict[str, Any]) -> int:
        function = part.get("function")
        function = function if isinstance(function, dict) else {}
        name, arguments = function.get("name"), function.get("arguments")
        if isinstance(arguments, dict):
            arguments = json.dumps(arguments)
        name = name if isinstance(name, str) else ""
        arguments = arguments if isinstance(arguments, str) else ""
        identity = part.get("id")
        call = self._call(part.get("index"), identity if isinstance(identity, str) else "", name)
        call.take(name, arguments)
        if isinstance(extra := part.get("extra_content"), dict):
            call.extra = extra
        return len(name) + len(arguments)

    def listed(self) -> list[dict[str, Any]]:
        return [call.value() for call in self._calls]

    def _call(self, index: Any, identity: str, name: str) -> _Call:
        known = type(index) is int
        same = [call for call in self._calls if call.index == index] if known else self._calls
        if identity:
            for call in same:
                if call.identity == identity:
                    return call
        last = same[-1] if same else None
        if last is None or last.is_followed_by(identity, name):
            if len(self._calls) >= MAX_CALLS:
                raise StreamProblem(f"called more than {MAX_CALLS} tools at once")
            last = _Call(index if known else None, identity)
            self._calls.append(last)
        last.identity = last.identity or identity
        return last


class _Call:
    def __init__(self, index: int | None, identity: str) -> None:
        self.index = index
        self.identity = identity
        self.name = ""
        self.extra: dict[str, Any] | None = None
        self._arguments: list[str] = []

    def is_followed_by(self, identity: str, name: str) -> bool:
        if identity and self.identity and identity != self.identity:
            return True
        if not name or not self._arguments:
            return False
        if name != self.name:
            return True
        # The same name again: some repeat it in every piece, some begin the next call without an id.
        whole = self._arguments[-1].rstrip().endswith("}") and _parsed("".join(self._arguments))
        return isinstance(whole, dict)

    def take(self, name: str, arguments: str) -> None:
        if name and name != self.name:
            self.name += name
        if arguments:
            self._arguments.append(arguments)

    def value(self) -> dict[str, Any]:
        function = {"name": self.name, "arguments": "".join(self._arguments)}
        value: dict[str, Any] = {"id": self.identity, "type": "function", "function": function}
        return value | {"extra_content": self.extra} if self.extra else value


def text_of_parts(content: Any) -> object:
    """Return the text of a list of parts; any other value unchanged."""
    if not isinstance(content, list):
        return content
    texts = [part.get("text") for part in content if isinstance(part, dict)]
    return "".join(text for text in texts if isinstance(text, str))


def surrogates_joined(text: str) -> str:
    """Join surrogate pairs that JSON delivered in halves, and replace lone halves with U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _error(error: Any) -> StreamProblem:
    complaint = error.get("message") if isinstance(error, dict) else error
    code = error.get("code") if isinstance(error, dict) else None
    kind = str(error.get("type") or "") if isinstance(error, dict) else ""
    refused = type(code) is int and 400 <= code < 500 and code not in (408, 409, 425, 429)
    refused = refused or "invalid" in kind or "insufficient_quota" in f"{code} {kind}"
    return StreamProblem("answered an error", str(complaint or error)[:800], passing=not refused)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
