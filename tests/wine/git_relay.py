"""The git of this machine for Windows' programs under wine, which `git_client` calls: paths of the drive Z are this
machine's."""

from __future__ import annotations

import json
import os
import re
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any


@contextmanager
def git_relay(home: Path) -> Iterator[int]:
    """Answer calls for the block; yields the port. git's own configuration is in `home`."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_serve, args=(server, home), daemon=True).start()
        yield server.getsockname()[1]


def _serve(server: socket.socket, home: Path) -> None:
    while True:
        try:
            channel, _ = server.accept()
        except OSError:  # it is closed
            return
        threading.Thread(target=_answer, args=(channel, home), daemon=True).start()


def _answer(channel: socket.socket, home: Path) -> None:
    requests, turn = channel.makefile("rb"), threading.Lock()
    call: dict[str, Any] = json.loads(_part(requests))
    variables = {name: _here(value) for name, value in call["variables"].items()}
    child = subprocess.Popen(
        ["git", *map(_here, call["argv"])],
        cwd=_here(call["folder"]),
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            **variables,
            "GIT_CONFIG_GLOBAL": str(home / ".gitconfig"),
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert child.stdin and child.stdout and child.stderr

    def tell(stream: int, source: IO[bytes]) -> None:
        while data := source.read1(1 << 16):  # type: ignore[attr-defined]
            with turn:
                channel.sendall(struct.pack(">BI", stream, len(data)) + data)

    def hand_on(target: IO[bytes]) -> None:
        with target:
            while data := _part(requests):
                target.write(data)
                target.flush()

    threading.Thread(target=hand_on, args=(child.stdin,), daemon=True).start()
    readers = [threading.Thread(target=tell, args=pair) for pair in ((1, child.stdout), (2, child.stderr))]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    channel.sendall(struct.pack(">BI", 3, child.wait() & 255))
    channel.close()


def _part(source: IO[bytes]) -> bytes:
    (size,) = struct.unpack(">I", source.read(4))
    return source.read(size)


def _here(text: str) -> str:
    if text == "nul" or text.endswith("=nul"):
        return f"{text.removesuffix('nul')}/dev/null"
    return re.sub(r"(?i)\bz:([\\/]\S*)", lambda match: match[1].replace("\\", "/"), text)
