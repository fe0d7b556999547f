"""A chat completions server on loopback that behaves as it is told, well or otherwise."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Behaviour = Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    """Does what the next behaviour in the server's list says; the last one is repeated."""

    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self) -> None:
        self.server.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.headers.append(dict(self.headers))
        behaviours = self.server.behaviours
        (behaviours.pop(0) if len(behaviours) > 1 else behaviours[0])(self)

    def answer(self, status: int, body: bytes | str, **headers: str) -> None:
        data = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.behaviours: list[Behaviour] = []
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.over = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1/chat/completions"

    def handle_error(self, *_: Any) -> None:
        pass


@contextlib.contextmanager
def serving() -> Iterator[Server]:
    """A server for the block."""
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.over.set()
        running.shutdown()
        thread.join()


def says(text: Any, **more: Any) -> Behaviour:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    value = {"id": "x", "model": "small-2024", "choices": [choice], **more}
    return lambda handler: handler.answer(200, json.dumps(value))


def status(number: int, body: str = "{}", **headers: str) -> Behaviour:
    return lambda handler: handler.answer(number, body, **headers)
