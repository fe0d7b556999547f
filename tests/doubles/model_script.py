"""What a scripted model is told to answer, and what it was asked, whatever the wire between.

A script is a list of turns, taken one a request, or a function from `Asked` to a turn. A turn in a list may
be such a function too. Nothing here knows HTTP.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

Wire = Literal["chat", "responses", "messages", "gemini"]


class Tokens(NamedTuple):
    """What one request cost. `cached` is a part of `input` on every wire but Anthropic's, which has it apart."""

    input: int
    output: int
    cached: int

    def __add__(self, other: object) -> Tokens:
        assert isinstance(other, Tokens)
        return Tokens(self.input + other.input, self.output + other.output, self.cached + other.cached)


class ToolCall(NamedTuple):
    """A call in the history that a client sent."""

    id: str
    name: str
    arguments: Any  # parsed; the text itself where it is no JSON


class ToolResult(NamedTuple):
    """A tool's result in the history that a client sent."""

    id: str
    text: str
    failed: bool = False


class Message(NamedTuple):
    """One message of a conversation; `role` is user, assistant or tool."""

    role: str
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    results: tuple[ToolResult, ...] = ()


class Asked(NamedTuple):
    """A request, parsed. `system` is all that stands outside the conversation; `tools` are the names offered;
    `headers` have lower-case names; `body` is the request as it came."""

    wire: Wire
    model: str
    system: str
    messages: tuple[Message, ...]
    tools: tuple[str, ...]
    stream: bool
    max_tokens: int | None
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    path: str = ""

    @property
    def usage(self) -> Tokens:
        """Input: 100 and 10 for each message. Output: 7. From the cache: 10 for each message but the last."""
        count = len(self.messages)
        return Tokens(100 + 10 * count, 7, 10 * max(0, count - 1))

    @property
    def text(self) -> str:
        """Everything that was said, the system's words first; results of tools are not in it."""
        return "\n".join((self.system, *(each.text for each in self.messages)))

    @property
    def prompt(self) -> str:
        """The last thing that a user said."""
        return next((each.text for each in reversed(self.messages) if each.role == "user" and each.text), "")

    @property
    def results(self) -> tuple[ToolResult, ...]:
        """What the tools gave since the model's last turn."""
        found: list[ToolResult] = []
        for message in reversed(self.messages):
            if message.role == "assistant":
                break
            found[:0] = message.results
        return tuple(found)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """All calls in the history, in order."""
        return tuple(call for message in self.messages for call in message.calls)


class Say(NamedTuple):
    """An answer. `finish` is "stop", "length" (cut off by the limit of tokens) or "refusal" (a filter of the provider,
    or the model itself, refuses to answer)."""

    text: str
    finish: str = "stop"


class Call(NamedTuple):
    """A call of a tool, after `text`. Arguments that are a text go out as they are, JSON or not (where the
    wire carries values, as Gemini's does, under the name "input")."""

    name: str
    arguments: Mapping[str, Any] | str = {}
    text: str = ""
    id: str = ""


class Several(NamedTuple):
    """Calls of several tools in one turn; their own texts are left out."""

    calls: tuple[Call, ...]
    text: str = ""


class Fail(NamedTuple):
    """An error in the wire's own form. `code` is what OpenAI says besides the status."""

    status: int
    message: str = "scripted failure"
    retry_after: float | str | None = None
    code: str = ""


class Hang(NamedTuple):
    """Nothing for so many seconds (less when the server ends), then another turn, or the connection closed."""

    seconds: float
    then: Turn | None = None


class Drop(NamedTuple):
    """The connection closed after so many bytes of the body of another turn, or silent for `hold` seconds before that
    (less when the server ends)."""

    after_bytes: int = 0
    turn: Turn = Say("This sentence is not going to be heard to its end, however long one listens.")
    hold: float = 0.0


class Body(NamedTuple):
    """An answer of HTTP as it goes out, whatever the wire would have."""

    body: bytes
    content_type: str = "application/json"
    status: int = 200
    headers: Mapping[str, str] = {}


class Raw(NamedTuple):
    """Whatever this does with the server's side of the connection, a `BaseHTTPRequestHandler`."""

    act: Callable[[Any], None]


class Endless(NamedTuple):
    """A stream that goes on with this text until the client leaves or `limit` bytes of text are sent. Without
    streaming it is one answer of `limit` bytes."""

    text: str = "and on "
    limit: int = 100_000_000


Turn = Say | Call | Several | Fail | Hang | Drop | Body | Raw | Endless
Decide = Callable[[Asked], Turn]
Script = Sequence[Turn | Decide] | Decide


def Huge(size: int = 10_000_000) -> Say:
    """An answer of so many bytes."""
    return Say("x" * size)


def Garbage() -> Body:
    """A page that no client of a model expects."""
    return Body(b"<html><body>Welcome to the hotel's network</body></html>", "text/html")


def status(
    number: int, body: str | bytes = "{}", content_type: str = "application/json", **headers: str
) -> Body:
    """An answer with this status. The names of headers have `_` for `-`."""
    data = body.encode() if isinstance(body, str) else body
    return Body(data, content_type, number, {name.replace("_", "-"): text for name, text in headers.items()})


def says(content: Any, **more: Any) -> Body:
    """A chat completion of `small-2024` with content of any form, and no usage but what `more` brings."""
    choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
    return status(200, json.dumps({"id": "x", "model": "small-2024", "choices": [choice], **more}))


def refuses(text: str = "", finish: str = "stop") -> Body:
    """A chat completion in which the model, or a filter, refuses to answer."""
    message = {"role": "assistant", "content": None, "refusal": text or None}
    choice = {"index": 0, "message": message, "finish_reason": finish}
    usage = {"prompt_tokens": 100, "completion_tokens": 10}
    return status(200, json.dumps({"id": "x", "model": "small-2024", "choices": [choice], "usage": usage}))


def dripping(head: bytes, piece: bytes, pause: float = 0.02) -> Raw:
    """The head of an answer, and then the same piece again and again until one of both sides ends."""

    def act(handler: Any) -> None:
        handler.close_connection = True
        handler.wfile.write(head)
        while not handler.server.over.wait(pause):
            handler.wfile.write(piece)

    return Raw(act)


def repeating(*turns: Turn) -> Decide:
    """A script whose last turn is the answer to all further requests."""
    waiting = list(turns)
    return lambda _: waiting.pop(0) if len(waiting) > 1 else waiting[0]


def by_prompt(roles: Mapping[str, Script]) -> Decide:
    """One script for several roles: the first key that stands in the system's or a user's words decides which
    of the scripts goes on."""
    played = {key: Played(script) for key, script in roles.items()}

    def decide(asked: Asked) -> Turn:
        for key, script in played.items():
            if key in asked.text:
                return script.next(asked)
        return Fail(400, f"no script for this prompt; have: {', '.join(roles)}")

    return decide


class Played:
    """A script as it is consumed. Where a list has ended, every further request gets a 400, which no client
    repeats."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._given = 0
        self._lock = threading.Lock()

    @property
    def left(self) -> int:
        """Turns of the list not yet given; 0 for a function."""
        return 0 if callable(self._script) else len(self._script) - self._given

    def next(self, asked: Asked) -> Turn:
        if callable(self._script):
            return self._script(asked)
        with self._lock:
            if self._given >= len(self._script):
                return Fail(400, f"the script is over: it had {len(self._script)} turns")
            turn = self._script[self._given]
            self._given += 1
        return turn(asked) if callable(turn) else turn


def pieces(text: str, most: int = 4) -> list[str]:
    """A text as it is streamed: up to `most` pieces, none of them empty, cut without regard to words."""
    size = max(1, -(-len(text) // most))
    return [text[start : start + size] for start in range(0, len(text), size)]
