"""What a push, a pull and a clone say to somebody who reads it: one line, what collided, and how far they are."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import threading
from pathlib import Path

import git_servers
import pytest
from commands import git_that_fails
from conftest import Uwf
from test_pull_cases import Pair

TEXT = ("--format", "text")


@pytest.fixture
def pair(uwf: Uwf, tmp_path: Path, lasting: Path) -> Pair:
    return Pair(uwf, tmp_path, lasting)


def said(text: str) -> list[str]:
    """Lines with words for ids, which differ from run to run."""
    return re.sub(r"01[0-9A-Z]{24}", "ID", text).splitlines()


def test_one_line_counts_what_went_over_and_more_is_told_of_what_collided(pair: Pair, tmp_path: Path) -> None:
    ended = pair.ada.starts("another", workflow="loop")
    pair.works(pair.ada, "its first", thread=ended)
    pair.ada("thread", "kill", ended)
    pair.works(pair.ada, "by ada")
    assert said(pair.ada("push", *TEXT).out) == ["pushed to origin: 2 threads (1 ended), 2 steps"]
    assert said(pair.ada("push", *TEXT).out) == ["nothing new for origin"]
    pair.works(pair.bob, "by bob")
    assert said(pair.bob("push", *TEXT, check=4).out) == ["refused  thread ID: fetch first"]
    assert said(pair.bob("pull", *TEXT).out) == [
        "pulled from origin: 2 threads (1 new, 1 diverged), 2 steps",
        "diverged   thread ID; your 1 step went on as thread ID",
    ]
    assert said(pair.bob("pull", *TEXT).out) == ["nothing new on origin"]
    assert said(pair.bob("push", "-v", *TEXT).out) == [
        "pushed to origin: thread ID, 1 step",
        "pushed   forks/ID",
        "pushed   thread ID",
    ]
    cloned = said(pair.ada("clone", pair.shared, "--root", tmp_path / "clone", *TEXT).out)
    assert cloned == ["pulled from origin: workflow loop, 3 threads (3 new), 4 steps"]


@pytest.mark.parametrize("gone", ["paused", "threads"])
def test_what_somebody_deletes_there_as_soon_as_it_arrives_was_pushed_all_the_same(
    pair: Pair, gone: str
) -> None:
    hook = pair.shared / "hooks" / "post-receive"
    hook.write_text(
        f"#!/bin/sh\nwhile read -r old new ref; do case $ref in refs/uwf/{gone}/*) git update-ref -d $ref; esac; done\n"
    )
    hook.chmod(0o755)
    pair.ada.starts("another", workflow="loop")
    pair.ada("thread", "pause", pair.thread)
    pushed = {each["ref"].split("/")[2] for each in pair.ada("push").json["pushed"]}
    assert pushed == {"paused", "threads"}


def test_a_fetch_that_a_gc_disturbs_is_done_once_more(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.works(pair.bob, "by bob")
    pair.bob("push")
    calls = git_that_fails(tmp_path / "bin", "fetch", "fatal: failed to write object")
    monkeypatch.setenv("PATH", f"{calls.parent}{os.pathsep}{os.environ['PATH']}")
    assert [each["case"] for each in pair.ada("pull").json["adopted"]] == ["behind"]
    assert calls.exists()


def test_steps_are_counted_also_where_the_index_was_thrown_away(pair: Pair) -> None:
    pair.works(pair.ada, "by ada")
    for file in (pair.ada.store / "uwf").glob("index.db*"):
        file.unlink()
    assert said(pair.ada("push", *TEXT).out) == ["pushed to origin: thread ID, 1 step"]


def test_a_fold_deletes_nothing_and_what_is_deleted_there_is_said_to_be_here(pair: Pair) -> None:
    pair.ada("thread", "kill", pair.thread)
    pair.ada("push")
    pair.bob("pull")
    pair.ada("gc", "--fold-before", "2100-01-01")
    pushed = pair.ada("push", *TEXT).out
    pulled = pair.bob("pull", *TEXT).out
    assert re.fullmatch(r"pushed to origin: archives of \d+-\d+\nfolded on origin too: thread \w+\n", pushed)
    assert re.fullmatch(r"pulled from origin: archives of \d+-\d+\n", pulled)
    other = pair.ada.starts("another", workflow="loop")
    pair.ada("push")
    pair.bob("pull")
    gone = f"deleted on origin: thread {other}; what is here stays\n"
    assert pair.ada("push", "origin", other, "--delete", *TEXT).out == gone
    assert pair.bob("pull", *TEXT).out == gone


def test_who_was_first_is_you_where_it_was_another_store_of_yours(pair: Pair) -> None:
    pair.works(pair.ada, "by ada")
    pair.works(pair.bob, "by bob")
    pair.ada("push")
    assert "Ada Example (you, from another store)" in pair.bob("push", check=4).error["message"]
    git_servers.git("--git-dir", pair.bob.store, "config", "user.name", "Bob Example")
    assert "by Ada Example: 0002" in pair.bob("push", check=4).error["message"]


def on_a_terminal(*words: str, environment: dict[str, str]) -> str:
    """Both streams of `uwf` on a terminal of 80 columns."""
    outer, inner = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "uwf_cli.main", *words],
        env={**os.environ, **environment, "TERM": "xterm", "COLUMNS": "80"},
        stdin=inner,
        stdout=inner,
        stderr=inner,
        start_new_session=True,
    )
    os.close(inner)
    shown = bytearray()

    def read() -> None:
        try:
            while data := os.read(outer, 4096):
                shown.extend(data)
        except OSError:  # the other end is closed
            pass

    reader = threading.Thread(target=read)
    reader.start()
    assert child.wait(60) == 0
    reader.join()
    os.close(outer)
    return shown.decode()


def left_on_screen(shown: str) -> list[str]:
    """The lines of a terminal afterwards, of one that knows carriage return and how to erase a line."""
    lines = []
    for line in re.sub(r"\x1b\[[0-9;]*m", "", shown).replace("\r\n", "\n").split("\n"):
        text = ""
        for part in line.split("\r"):
            written, erased, after = part.partition("\x1b[K")
            text = written + after if erased else written + text[len(written) :]
        lines.append(text)
    return [line for line in lines if line]


def test_what_takes_a_while_shows_how_far_it_is_on_one_line_that_goes(pair: Pair) -> None:
    hook = pair.shared / "hooks" / "pre-receive"
    hook.write_text(
        "#!/bin/sh\nprintf 'Weighing every ref:  10%% (1/10)\\r' >&2; sleep 1.2\n"
        "printf 'Weighing every ref:  50%% (5/10)\\r' >&2; sleep 0.2\n"
        "printf 'Weighing every ref: 100%% (10/10), done.\\n' >&2\n"
        "printf 'Welcome to \\033[31mthe server\\n' >&2\n"
    )
    hook.chmod(0o755)
    pair.works(pair.ada, "second")
    shown = on_a_terminal("push", environment=pair.ada.environment)
    drawn = re.findall(r"weighing every ref .*?(?=\x1b\[K)", shown)
    assert drawn and all(len(line) < 80 for line in drawn)
    assert any("##########··········  50%  5 of 10" in line for line in drawn)
    assert "10%" not in shown, "it had not taken a second"
    assert said("\n".join(left_on_screen(shown))) == [
        r"remote: Welcome to \x1b[31mthe server",
        "pushed to origin: thread ID, 1 step",
    ]
    pair.works(pair.bob, "by bob")
    quick = on_a_terminal("pull", environment=pair.bob.environment)
    assert "\x1b[K" not in quick and "%" not in quick
