"""No server of a forge or a tracker holds a call up: whole answers are bounded in time and in size."""

from __future__ import annotations

import contextlib
import gzip
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from itertools import repeat
from pathlib import Path

import pytest
from cli_samples import PAIR, write
from conftest import Uwf
from forge_server import TOKEN

from uwf_git.base.errors import RemoteFailed
from uwf_git.forge import rest
from uwf_git.forge.address import Forge, ForgeRepository, IssueAddress
from uwf_git.forge.client import ForgeClient
from uwf_git.forge.jira import JiraIssue
from uwf_git.forge.login import Login
from uwf_git.forge.rest import ForgeUnavailable

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"
ISSUE = b'{"number": 42, "title": "It fails"}'
TICK = 0.02


class SlowServer:
    """Answers each call with the pieces of `answer`, for as long as its caller listens. `calls` and `sent`, in bytes,
    are counted."""

    def __init__(self, answer: Callable[[], Iterator[bytes]]) -> None:
        self._answer = answer
        self.calls = self.sent = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.api = f"http://127.0.0.1:{self._socket.getsockname()[1]}/api/v1"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.calls += 1
            threading.Thread(target=self._send, args=(connection,), daemon=True).start()

    def _send(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.recv(1 << 16)
            for piece in self._answer():
                connection.sendall(piece)
                self.sent += len(piece)


@contextlib.contextmanager
def slow_server(answer: Callable[[], Iterator[bytes]]) -> Iterator[SlowServer]:
    server = SlowServer(answer)
    try:
        yield server
    finally:
        server.close()


def drip(piece: bytes) -> Iterator[bytes]:
    while True:
        yield piece
        time.sleep(TICK)


def dripped_body() -> Iterator[bytes]:
    yield OK + b"\r\n"
    yield from drip(b" ")


def dripped_headers() -> Iterator[bytes]:
    yield OK
    yield b"X-Long: "
    yield from drip(b"x")


def dripped_chunks() -> Iterator[bytes]:
    yield OK + b"Transfer-Encoding: chunked\r\n\r\n"
    yield from drip(b"1\r\n \r\n")


def dripped_gzip() -> Iterator[bytes]:
    """A compressed answer that never comes to its first byte: its header has a file name without end."""
    yield OK + b"Content-Encoding: gzip\r\n\r\n"
    head = bytearray(gzip.compress(ISSUE)[:10])
    head[3] = 8
    yield bytes(head)
    yield from drip(b"x")


def nothing() -> Iterator[bytes]:
    yield from drip(b"")


ANSWERS = (dripped_body, dripped_headers, dripped_chunks, dripped_gzip, nothing)


def client(api: str, patience: float) -> ForgeClient:
    repository = ForgeRepository(Forge("gitea", api.split("/")[2], api), "ann/work")
    return ForgeClient(repository, TOKEN, patience=patience)


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: answer.__name__)
def test_an_answer_without_end_is_given_up(answer: Callable[[], Iterator[bytes]]) -> None:
    with (
        slow_server(answer) as server,
        client(server.api, 0.5) as forge,
        pytest.raises(ForgeUnavailable, match=r"127\.0\.0\.1 is too slow: no whole answer in \S+ s") as slow,
    ):
        forge.issue(42)
    assert slow.value.hint == "see whether 127.0.0.1 answers in a browser, or repeat it later"


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: answer.__name__)
def test_an_answer_without_end_is_given_up_by_a_thread_too(answer: Callable[[], Iterator[bytes]]) -> None:
    errors = []

    def read() -> None:
        with slow_server(answer) as server, client(server.api, 0.5) as forge:
            try:
                forge.issue(42)
            except RemoteFailed as error:
                errors.append(error.message)

    thread = threading.Thread(target=read)
    thread.start()
    thread.join()
    assert len(errors) == 1
    assert "too slow" in errors[0]


@pytest.mark.parametrize("answer", [dripped_body, dripped_headers], ids=lambda answer: answer.__name__)
def test_a_command_gives_an_answer_without_end_up(
    uwf: Uwf, monkeypatch: pytest.MonkeyPatch, answer: Callable[[], Iterator[bytes]]
) -> None:
    write("fault/sitecustomize.py", "import uwf_git.forge.rest as rest\nrest._ANSWER = 0.5\n")
    uwf("workflow", "put", write("pair.yaml", PAIR))
    with slow_server(answer) as server:
        host = server.api.split("/")[2]
        uwf("config", "set", f"forges.{host}.kind", "gitea")
        uwf("config", "set", f"forges.{host}.api", server.api)
        monkeypatch.setenv("PYTHONPATH", str(Path("fault").absolute()), prepend=os.pathsep)
        error = uwf("thread", "start", "pair", f"http://{host}/ann/work/issues/42", check=8).error
    assert error["code"] == "remote"
    assert "127.0.0.1 is too slow: no whole answer in " in error["message"]


def test_a_slow_answer_is_awaited_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest, "_ANSWER", 0.5)
    with slow_server(dripped_body) as server, client(server.api, 600.0) as forge:
        with pytest.raises(ForgeUnavailable, match="too slow"):
            forge.issue(42)
        assert server.calls == 2


def test_a_slow_jira_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest, "_ANSWER", 0.5)
    with slow_server(dripped_body) as server:
        forge = Forge("jira", server.api.split("/")[2], server.api)
        address = IssueAddress(ForgeRepository(forge, "SHOP"), 42)
        with (
            JiraIssue(address, Login(TOKEN, ""), "") as issue,
            pytest.raises(ForgeUnavailable, match="too slow"),
        ):
            issue.read(10)


def test_a_large_answer_on_a_slow_line_is_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest, "_ANSWER", 2.0)
    monkeypatch.setattr(rest, "_SLOWEST", 1)

    def answer() -> Iterator[bytes]:
        yield OK + b"\r\n"
        end = time.monotonic() + 2.5
        while time.monotonic() < end:
            yield b" " * 1000
            time.sleep(TICK)
        yield ISSUE

    with slow_server(answer) as server, client(server.api, 600.0) as forge:
        assert forge.issue(42).title == "It fails"


def test_calls_count_into_the_patience_with_a_server() -> None:
    with slow_server(dripped_body) as server, client(server.api, 0.5) as forge:
        with pytest.raises(ForgeUnavailable, match="no whole answer"):
            forge.create_comment(42, "One")
        with pytest.raises(ForgeUnavailable, match=r"has kept this waiting for 0\.5 s in all"):
            forge.create_comment(42, "One")
        assert server.calls == 1


def test_answers_that_come_count_into_the_patience_too() -> None:
    def answer() -> Iterator[bytes]:
        time.sleep(TICK)
        yield OK + b"\r\n" + ISSUE

    with slow_server(answer) as server, client(server.api, 1.0) as forge:
        with pytest.raises(ForgeUnavailable, match=r"too slow|kept this waiting"):
            for _ in repeat(None, 200):
                forge.issue(42)
        assert 0 < server.calls <= 1.0 / TICK


def test_a_server_that_takes_no_connection_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest, "_CONNECT", 0.3)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server, contextlib.ExitStack() as waiting:
        for _ in range(4):  # more than the kernel queues
            connection = waiting.enter_context(socket.socket())
            connection.setblocking(False)
            connection.connect_ex(server.getsockname())
        api = f"http://127.0.0.1:{server.getsockname()[1]}/api/v1"
        with (
            client(api, 600.0) as forge,
            pytest.raises(ForgeUnavailable, match=r"cannot be reached: no connection within 0\.3 s"),
        ):
            forge.issue(42)


def test_an_endless_answer_is_refused_once_it_is_too_large() -> None:
    def answer() -> Iterator[bytes]:
        yield OK + b"\r\n"
        yield from repeat(b" " * 65536)

    with slow_server(answer) as server, client(server.api, 600.0) as forge:
        with pytest.raises(RemoteFailed, match=r"answered GET \S+/issues/42 with over 32 MiB") as large:
            forge.issue(42)
        assert (server.calls, server.sent < 48 << 20) == (1, True)
    assert "delete what is too large there" in large.value.hint
