"""A model server on loopback that says what its script tells it, to whoever asks in whichever protocol:
OpenAI's chat completions and responses, Anthropic's messages, Gemini's generateContent; streamed or not.

    with serving([Call("read_file", {"path": "a.txt"}), Say("Done.")]) as server:
        ...                       # server.openai_url, server.url; afterwards server.asked, server.usage

Clients ask more than their users know: a title for the session, whether the quota lasts, which model is fit.
Such requests get a polite answer from `aside`, cost no turn of the script and no tokens, and stand in
`server.asides`. Requests of no protocol stand in `server.strays`.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import model_wire as wire
from model_script import (
    Asked,
    Body,
    Call,
    Drop,
    Endless,
    Fail,
    Garbage,
    Hang,
    Huge,
    Message,
    Played,
    Raw,
    Say,
    Script,
    Several,
    Tokens,
    ToolCall,
    ToolResult,
    Turn,
    by_prompt,
    dripping,
    pieces,
    refuses,
    repeating,
    says,
    status,
)

__all__ = [
    "Asked", "Body", "Call", "Drop", "Endless", "Fail", "Garbage", "Hang", "Huge", "Message",
    "ModelServer", "Raw", "Say", "Script", "Several", "Tokens", "ToolCall", "ToolResult", "Turn", "aside",
    "by_prompt", "dripping", "refuses", "repeating", "says", "serving", "status",
]  # fmt: skip

MODELS = ("scripted",)
_FREE = Tokens(0, 0, 0)
_GEMINI = re.compile(
    r"/v1(?:beta|alpha)?/models/([^/:]+):(generateContent|streamGenerateContent|countTokens)$"
)


class _Protocol(NamedTuple):
    asked: Callable[[Mapping[str, Any], Mapping[str, str]], Asked]
    body: Callable[[Asked, wire.Answer], Any]
    events: Callable[[Asked, wire.Answer], Iterable[wire.Event]]
    error: Callable[[int, str, str], Any]


_CHAT = _Protocol(wire.chat_asked, wire.chat_body, wire.chat_events, wire.openai_error)
_RESPONSES = _Protocol(wire.responses_asked, wire.responses_body, wire.responses_events, wire.openai_error)
_MESSAGES = _Protocol(wire.messages_asked, wire.messages_body, wire.messages_events, wire.messages_error)
_GENERATE = _Protocol(wire.gemini_asked, wire.gemini_body, wire.gemini_events, wire.gemini_error)
_POSTED = {
    "/v1/chat/completions": _CHAT,
    "/v1/responses": _RESPONSES,
    "/v1/messages": _MESSAGES,
}


def aside(asked: Asked) -> Turn | None:
    """The answer to what a client asks on its own account, or None for what its user asked."""
    if asked.max_tokens == 1:
        return Say("ok")
    shape = _demanded(asked.body)
    text = asked.prompt if asked.tools else asked.text
    for fields, pattern, answer in _ASIDES:
        if shape == fields or re.search(pattern, text, re.IGNORECASE):
            return Say(answer)
    return None


# What clients demand when they ask for something of their own: the fields of the answer, or how they put it;
# and what satisfies them.
_ASIDES = (
    ({"title"}, r"generate a (very )?short title|you are a title generator", '{"title": "A task"}'),
    ({"isNewTopic", "title"}, r"indicates a new conversation topic", '{"isNewTopic": false, "title": null}'),
    (None, r"reply with only the suggestion", ""),
    ({"reasoning", "next_speaker"}, r"next_speaker", '{"reasoning": "It is done.", "next_speaker": "user"}'),
)


def _demanded(body: Mapping[str, Any]) -> set[str]:
    """The fields of the JSON object that a request demands for an answer, on any wire."""
    found: Any = (
        body.get("output_config"),
        body.get("text"),
        body.get("response_format"),
        body.get("generationConfig"),
    )
    for each in (given for given in found if isinstance(given, dict)):
        inner = each.get("format") or each.get("json_schema") or each
        schema = inner.get("schema") or inner.get("responseJsonSchema") or inner.get("responseSchema") or {}
        return set(schema.get("properties") or ())
    return set()


class ModelServer(ThreadingHTTPServer):
    """Answers by `script`. `key` is the one that requests must carry (None: any, or none)."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(
        self,
        script: Script = (),
        *,
        key: str | None = None,
        aside: Callable[[Asked], Turn | None] = aside,
    ) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[Asked] = []
        self.asides: list[Asked] = []
        self.strays: list[str] = []
        self.usage = _FREE  # of all answers by the script that were not failures
        self.key = key
        self.aside = aside
        self.over = threading.Event()
        self.connections = 0
        self._lock = threading.Lock()
        self._serial = 0
        self._played = Played(script)

    @property
    def url(self) -> str:
        """Without a path: what Anthropic's and Google's clients take."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def openai_url(self) -> str:
        return f"{self.url}/v1"

    @property
    def chat_url(self) -> str:
        return f"{self.openai_url}/chat/completions"

    @property
    def left(self) -> int:
        """Turns of the script that nobody has asked for yet."""
        return self._played.left

    def play(self, script: Script) -> None:
        """A new script, and nothing asked yet."""
        with self._lock:
            self._played = Played(script)
            self.asked, self.asides, self.strays, self.usage = [], [], [], _FREE

    def decide(self, asked: Asked) -> tuple[Turn, int, bool]:
        """The turn for a request, its number, and whether it is an aside."""
        answer = self.aside(asked)
        with self._lock:
            self._serial += 1
            serial = self._serial
            (self.asked if answer is None else self.asides).append(asked)
        return (self._played.next(asked) if answer is None else answer), serial, answer is not None

    def count(self, usage: Tokens) -> None:
        with self._lock:
            self.usage += usage

    def handle_error(self, *_: Any) -> None:
        """Clients that leave early are part of the tests."""


@contextlib.contextmanager
def serving(script: Script | Turn = (), **options: Any) -> Iterator[ModelServer]:
    """A server for the block. `script` may be a single turn, which is given to every request."""
    if isinstance(script, Turn):
        script = repeating(script)
    with ModelServer(script, **options) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.over.set()
            server.shutdown()
            thread.join()


class _Cut(Exception):
    """As many bytes as were wanted are out."""


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: ModelServer
    _room: int | None = None  # bytes of body that may still go out; None: any number

    def setup(self) -> None:
        super().setup()
        self.server.connections += 1

    def do_HEAD(self) -> None:
        self._send(200, b"", "text/plain")

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if re.fullmatch(r"(/v1|/v1beta)?/models(/[^/]+)?", path):
            self._json(200, _models(path))
        else:
            self._stray()

    def do_CONNECT(self) -> None:
        """For clients that are told to take this server as their proxy: nobody reaches the world outside."""
        self.server.strays.append(f"CONNECT {self.path}")
        self._send(403, b"", "text/plain")

    def do_POST(self) -> None:
        data = self._body()
        address = urlsplit(self.path)
        google = _GEMINI.search(address.path)
        if address.path == "/v1/messages/count_tokens":
            self._json(200, {"input_tokens": len(data) // 4})
        elif google and google[2] == "countTokens":
            self._json(200, {"totalTokens": len(data) // 4})
        elif google:
            stream = google[2].startswith("stream")
            asking = partial(wire.gemini_asked, model=google[1], stream=stream)
            self._speak(_GENERATE._replace(asked=asking), data, parse_qs(address.query))
        elif address.path in _POSTED:
            self._speak(_POSTED[address.path], data, {})
        else:
            self._stray()

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        data = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            data += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return data

    def _stray(self) -> None:
        self.server.strays.append(f"{self.command} {self.path}")
        self._json(404, wire.openai_error(404, f"nothing is served at {self.path}"))

    def _speak(self, protocol: _Protocol, data: bytes, query: Mapping[str, list[str]]) -> None:
        headers = {name.lower(): text for name, text in self.headers.items()}
        try:
            body = json.loads(data)
            asked = protocol.asked(body, headers)._replace(path=self.path)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            self._json(400, protocol.error(400, f"not a request of this protocol: {error!r}", ""))
            return
        if not self._admitted(headers, query):
            self._json(401, protocol.error(401, "invalid api key", ""))
            return
        turn, serial, is_aside = self.server.decide(asked)
        try:
            self._take(protocol, asked, turn, serial, is_aside)
        except (_Cut, OSError):
            self._close()

    def _admitted(self, headers: Mapping[str, str], query: Mapping[str, list[str]]) -> bool:
        given = [
            headers.get("authorization", "").removeprefix("Bearer "),
            headers.get("x-api-key"),
            headers.get("x-goog-api-key"),
            *query.get("key", ()),
        ]
        return self.server.key is None or self.server.key in given

    def _take(self, protocol: _Protocol, asked: Asked, turn: Turn, serial: int, is_aside: bool) -> None:
        if isinstance(turn, Hang):
            self.server.over.wait(turn.seconds)
            if turn.then is None or self.server.over.is_set():
                raise _Cut
            self._take(protocol, asked, turn.then, serial, is_aside)
        elif isinstance(turn, Drop):
            self._room = turn.after_bytes
            try:
                self._take(protocol, asked, turn.turn, serial, is_aside)
            except _Cut:
                self.server.over.wait(turn.hold)
            raise _Cut
        elif isinstance(turn, Fail):
            again = {} if turn.retry_after is None else {"Retry-After": str(turn.retry_after)}
            self._json(turn.status, protocol.error(turn.status, turn.message, turn.code), again)
        elif isinstance(turn, Body):
            self._send(turn.status, turn.body, turn.content_type, turn.headers)
        elif isinstance(turn, Raw):
            turn.act(self)
        elif isinstance(turn, Endless) and asked.stream:
            self._stream(self._endless(protocol, asked, turn, serial))
        else:
            answer = wire.resolve(turn, asked, serial)
            if is_aside:
                answer = answer._replace(usage=_FREE)
            if self._room is None:  # before it goes out: who has it may look at once
                self.server.count(answer.usage)
            if not asked.stream:
                self._json(200, protocol.body(asked, answer))
            elif asked.wire == "gemini" and "alt=sse" not in self.path:
                self._json(200, [data for _, data in protocol.events(asked, answer)])
            else:
                self._stream(protocol.events(asked, answer))
            if self._room is not None:
                self.server.count(answer.usage)

    def _endless(self, protocol: _Protocol, asked: Asked, turn: Endless, serial: int) -> Iterator[wire.Event]:
        """The stream of an answer in which the first piece of text comes again and again."""
        text = turn.text * (4096 // len(turn.text) + 1)
        piece = pieces(text)[0]
        for event in protocol.events(asked, wire.resolve(Say(text), asked, serial)):
            yield event
            if json.dumps(piece) in json.dumps(event[1]):
                for _ in range(turn.limit // len(piece) + 1):
                    yield event
                    if self.server.over.is_set():
                        raise _Cut
                raise _Cut

    def _json(self, status: int, value: Any, headers: Mapping[str, str] | None = None) -> None:
        self._send(status, json.dumps(value).encode(), "application/json", headers or {})

    def _send(self, status: int, data: bytes, kind: str, headers: Mapping[str, str] | None = None) -> None:
        self._head(status, kind, {"Content-Length": str(len(data)), **(headers or {})})
        if self.command != "HEAD":
            self._write(data)

    def _stream(self, events: Iterable[wire.Event]) -> None:
        self._head(200, "text/event-stream", {"Transfer-Encoding": "chunked", "Cache-Control": "no-cache"})
        for name, data in events:
            text = data if isinstance(data, str) else json.dumps(data)
            frame = (f"event: {name}\n" if name else "") + f"data: {text}\n\n"
            self._chunk(frame.encode())
        self._chunk(b"")

    def _head(self, status: int, kind: str, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, text in {"Content-Type": kind, "request-id": "req_scripted", **headers}.items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.flush()

    def _chunk(self, data: bytes) -> None:
        sent = data if self._room is None else data[: self._room]
        self.wfile.write(b"%x\r\n%s\r\n" % (len(sent), sent) if sent or not data else b"")
        self.wfile.flush()
        self._spend(data)

    def _write(self, data: bytes) -> None:
        self.wfile.write(data if self._room is None else data[: self._room])
        self.wfile.flush()
        self._spend(data)

    def _spend(self, data: bytes) -> None:
        if self._room is not None:
            if len(data) >= self._room:
                raise _Cut
            self._room -= len(data)

    def _close(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, *_: Any) -> None:
        pass


def _models(path: str) -> Any:
    """The models on offer, in the shapes of all three providers at once."""
    last = path.rsplit("/", 1)[1]
    names = MODELS if last == "models" else (last,)
    if path.startswith("/v1beta"):
        found = [
            {"name": f"models/{name}", "supportedGenerationMethods": ["generateContent"]} for name in names
        ]
        return {"models": found} if last == "models" else found[0]
    listed = [
        {
            "id": name, "object": "model", "created": 1_700_000_000, "owned_by": "tests", "type": "model",
            "display_name": name, "created_at": "2024-01-01T00:00:00Z",
        }
        for name in names
    ]  # fmt: skip
    ends = {"has_more": False, "first_id": names[0], "last_id": names[-1]}
    return {"object": "list", "data": listed, **ends} if last == "models" else listed[0]
