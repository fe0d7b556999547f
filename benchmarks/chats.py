"""`uwf chat`: how long until somebody can type, and how much later than the model sent them words are shown."""

from __future__ import annotations

import os
import pty
import signal
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from agents import UWF, Compared, Cost
from measure import Turn, fastest, process
from stores import Lab

_PIECES = 20
_PAUSE = 0.03  # seconds between two pieces
_EVENT = 'data: {{"choices":[{{"index":0,"delta":{{"content":"word {number} "}}}}]}}\n\n'
_END = 'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


class _Model(socketserver.StreamRequestHandler):
    """Says a word now and then, and notes when."""

    disable_nagle_algorithm = True
    server: _Server

    def handle(self) -> None:
        size = 0
        while (line := self.rfile.readline()).strip():
            if line.lower().startswith(b"content-length:"):
                size = int(line.split(b":")[1])
        self.rfile.read(size)
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        for number in range(_PIECES):
            time.sleep(_PAUSE)
            self.server.sent.append(time.monotonic())
            self.wfile.write(_EVENT.format(number=number).encode())
        self.wfile.write(_END.encode())


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Model)
        self.sent: list[float] = []


def talking(folder: Path, turns: int) -> Iterator[Compared | Cost]:
    """The prompt, against bare imports; and a word's way from the model to whoever reads."""
    lab = Lab(folder)
    with _Server() as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        (folder / "config.yaml").write_text(
            f"providers: {{here: {{baseUrl: 'http://127.0.0.1:{server.server_address[1]}/v1'}}}}\n"
            "models: {quick: {provider: here, name: m}}\ndefaultModel: quick\n"
        )
        bare = process([sys.executable, "-c", "import pygit2, click"], lab.environ)
        prompt, imports = fastest(turns, _to_the_prompt(lab), bare)
        yield Compared("uwf chat to its prompt / import pygit2, click", prompt, imports, 2.5)
        late = max(min(each) for each in zip(*(_lags(lab, server) for _ in range(3)), strict=True))
        yield Cost("a model's words in uwf chat, after they were sent", late, 0.05)
        server.shutdown()


def _to_the_prompt(lab: Lab) -> Turn:
    def turn() -> float:
        began = time.perf_counter()
        child, terminal = pty.fork()
        if child == 0:
            os.execve(UWF, [UWF, "chat"], {**lab.environ, "TERM": "xterm"})
        shown = b""
        while b"\x1b[?2004h" not in shown:
            shown += os.read(terminal, 1 << 16)
        seconds = time.perf_counter() - began
        os.kill(child, signal.SIGKILL)
        os.close(terminal)
        os.waitpid(child, 0)
        return seconds

    return turn


def _lags(lab: Lab, server: _Server) -> list[float]:
    """How much later than it was sent each piece of an answer could be read, in seconds."""
    server.sent.clear()
    with subprocess.Popen(
        [UWF, "chat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=lab.environ, text=True
    ) as talk:
        assert talk.stdin and talk.stdout
        talk.stdin.write("Talk.\n")
        talk.stdin.close()
        read = [time.monotonic() for line in talk.stdout if line.startswith('{"type":"delta"')]
    return [later - sent for sent, later in zip(server.sent, read, strict=True)]
