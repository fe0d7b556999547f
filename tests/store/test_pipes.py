"""A pipe, a socket or a folder in place of a file that is read is no file, and nobody waits for it."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from cli_samples import ONE
from conftest import Uwf

pytestmark = pytest.mark.extended

SECONDS = 30
RUNS = [f"store.git/uwf/runs/{{}}.{suffix}" for suffix in ("json", "result", "turns", "log", "now", "off")]
PLACES = [
    *("config.yaml", ".env", "store.git/HEAD", "store.git/config", "store.git/packed-refs"),
    *("store.git/refs/uwf/threads/{}", "store.git/refs/uwf/threads/{}.lock", "store.git/uwf/locks/{}"),
    *("store.git/uwf/index.db", "store.git/uwf/index.db-wal", "store.git/uwf/format"),
    *("store.git/uwf/folders/{}", "store.git/uwf/packed-refs.seen", "store.git/objects/info/alternates"),
    *RUNS,
]


@pytest.mark.parametrize("kind", ["pipe", "socket", "folder"])
def test_nobody_waits_for_what_stands_in_place_of_a_file(
    uwf: Uwf, root: Path, hermetic: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    (hermetic / "one.yaml").write_text(ONE)
    uwf("workflow", "put", hermetic / "one.yaml")
    for place in PLACES:
        thread = str(uwf("thread", "start", "one", "-p", "Do it").json["thread"])
        path = root / place.format(thread)
        aside = path.with_name("aside")
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            path.rename(aside)
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "folder":
            path.mkdir()
        else:
            monkeypatch.chdir(path.parent)  # the names of sockets are short
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(path.name)
        done = uwf("thread", "step", thread, check=None, timeout=SECONDS)
        assert "internal error" not in done.err, (place, done.err)
        assert done.code == 0 or len(done.err.splitlines()) == 1, (place, done.err)
        stepped = done.code == 0
        for command in (["thread", "list"], ["doctor", "--quick"]):
            assert "internal" not in uwf(*command, check=None, timeout=SECONDS).err, place
        if os.path.lexists(path) and not path.is_file():
            path.rmdir() if kind == "folder" else path.unlink()
        if aside.exists():
            aside.replace(path)
        if place in RUNS and kind != "folder":
            assert stepped, place
        assert uwf("thread", "show", thread).json["thread"] == thread, place
