"""`uwf chat`: how long until somebody can type, and how much later than the model sent them words are shown."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import socketserver
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from crews import small_crew
from measure import Turn, fastest, process
from rows import Row, Size, compared, cost
from stores import UWF, Lab

_PATIENCE = 60  # seconds for anything to appear
_PROMPT = re.compile(rb"\x1b\[\?2004h.*>.*\x1b\[\?25h", re.DOTALL)
"""What the line editor sends from its beginning until it waits: its prompt is drawn and the cursor shown."""
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


def talking(folder: Path, size: Size) -> Iterator[Row]:
    """The prompt, against bare imports; and a word's way from the model to whoever reads."""
    lab = Lab(folder)
    with _Server() as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        (folder / "config.yaml").write_text(
            f"providers: {{here: {{baseUrl: 'http://127.0.0.1:{server.server_address[1]}/v1'}}}}\n"
            "models: {quick: {provider: here, name: m}}\ndefaultModel: quick\n"
        )
        small_crew(lab)
        bare = process([sys.executable, "-c", "import pygit2, click"], lab.environ)
        prompt, menu, imports = fastest(size.turns, _to_the_prompt(lab), _to_the_prompt(lab, "turns"), bare)
        yield compared("uwf chat to its prompt / import pygit2, click", prompt, imports, 2.5)
        yield compared("uwf chat with a crew to its prompt / the same", menu, imports, 2.5)
        for where, lags in (("on a terminal", _shown), ("as JSON lines", _written)):
            late = max(min(each) for each in zip(*(lags(lab, server) for _ in range(3)), strict=True))
            yield cost(f"a model's words in uwf chat, after they were sent, {where}", late, 0.05)
        server.shutdown()


def _to_the_prompt(lab: Lab, *whom: str) -> Turn:
    def turn() -> float:
        began = time.monotonic()
        with Terminal([UWF, "chat", *whom], lab.environ) as screen:
            return screen.shows(_PROMPT) - began

    return turn


def _shown(lab: Lab, server: _Server) -> list[float]:
    """How much later than it was sent each piece of an answer stood on a terminal, in seconds."""
    server.sent.clear()
    with Terminal([UWF, "chat"], lab.environ) as screen:
        screen.shows(_PROMPT)
        screen.type(b"Talk.\r")
        read = [screen.shows(re.compile(b"word %d " % number)) for number in range(_PIECES)]
    return [later - sent for sent, later in zip(server.sent, read, strict=True)]


def _written(lab: Lab, server: _Server) -> list[float]:
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


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, argv: Sequence[str], environ: Mapping[str, str]) -> None:
        self._master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (40, 120))
        # Whoever opens it first in a session of its own is steered by it.
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.ttyname(slave), os.O_RDWR, 0),
            (os.POSIX_SPAWN_DUP2, 0, 1),
            (os.POSIX_SPAWN_DUP2, 0, 2),
        ]
        settings = {**environ, "TERM": "xterm-256color"}
        self._pid = os.posix_spawn(argv[0], argv, settings, file_actions=actions, setsid=True)
        os.close(slave)
        self._unseen = b""

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.close(self._master)
        os.waitpid(self._pid, 0)

    def type(self, keys: bytes) -> None:
        """Types."""
        os.write(self._master, keys)

    def shows(self, wanted: re.Pattern[bytes]) -> float:
        """When something appeared that wasn't waited for yet. Raises TimeoutError, OSError at the end."""
        while not (found := wanted.search(self._unseen)):
            if not select.select([self._master], [], [], _PATIENCE)[0]:
                raise TimeoutError(f"{wanted.pattern!r} never appeared after {self._unseen!r}")
            self._unseen += os.read(self._master, 1 << 16)
        self._unseen = self._unseen[found.end() :]
        return time.monotonic()
