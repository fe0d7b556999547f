"""`kill -9` at every point where the store is written leaves the old head or the new one.

The process is stopped from inside at its n-th write, for every n there is: before the write happens and
just after it. What counts as a write: an object, a ref, a change of the index, a file of the private
folder.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_samples import ONE
from commands import git
from conftest import Uwf
from faults import DRIVER

from uwf_git.store.location import locate
from uwf_git.store.opened import Instance


@pytest.fixture
def thread(uwf: Uwf, hermetic: Path) -> str:
    (hermetic / "one.yaml").write_text(ONE)
    uwf("workflow", "put", hermetic / "one.yaml")
    return str(uwf("thread", "start", "one", "-p", "Do it").json["thread"])


def stopped_at_each_write(*command: str) -> Callable[[], bool]:
    """A function that runs the command again and again, stopped one write later each time; it returns
    False when the command got through."""
    number, after = 0, True

    def run() -> bool:
        nonlocal number, after
        after = not after
        number += not after
        argv = [sys.executable, "-c", DRIVER, str(number), "after" if after else "before", *command]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert done.returncode in (0, -9), done.stderr
        return done.returncode == -9

    return run


def consistent(root: Path) -> Instance:
    """The store as another process finds it: git sees nothing wrong, every thread reads to its start."""
    git("--git-dir", root / "store.git", "fsck", "--strict", "--connectivity-only", "--no-dangling")
    instance = Instance(locate(None, os.environ, Path.cwd()))
    for head in instance.threads.all(archived=True):
        assert not isinstance(head, tuple) or hasattr(head, "row"), head
        instance.threads.history(head)  # type: ignore[arg-type]
    return instance


def test_a_step_that_is_killed_anywhere_leaves_the_old_head_or_the_new(
    uwf: Uwf, root: Path, thread: str
) -> None:
    old = uwf("thread", "show", thread).json["head"]
    stop, kills, last = stopped_at_each_write("thread", "step", thread), 0, old
    while stop():
        kills += 1
        instance = consistent(root)
        head = instance.threads.head(instance.threads.find(thread))
        assert head.row.number == (0 if head.node == old else 1)
        assert not (last != old and head.node == old), "a step that was there is gone"
        last = head.node
        if head.archive or head.node != old:
            # From here on only the archiving is left: the next step finishes it.
            done = uwf("thread", "step", thread, check=None)
            assert done.code in (0, 1)
            assert uwf("thread", "show", thread).json["status"] == "completed"
            break
    assert kills > 15, "the driver must reach past the first writes"
    assert uwf("thread", "show", thread).json["status"] == "completed"
    assert len(uwf("thread", "steps", thread).json) == 1


def test_an_archiving_that_is_killed_anywhere_keeps_the_thread_readable(
    uwf: Uwf, root: Path, thread: str
) -> None:
    stop, kills = stopped_at_each_write("thread", "kill", thread), 0
    while stop():
        kills += 1
        instance = consistent(root)
        head = instance.threads.head(instance.threads.find(thread))
        if head.archive:
            break
    assert kills >= 2
    assert uwf("thread", "show", thread, check=0).json["status"] == "killed"
    assert [t["thread"] for t in uwf("thread", "list", "--all").json] == [thread]
    assert uwf("thread", "list").json == []


def test_a_start_that_is_killed_anywhere_leaves_a_whole_thread_or_none(
    uwf: Uwf, root: Path, thread: str
) -> None:
    stop, before = stopped_at_each_write("thread", "start", "one", "-p", "Another"), 1
    while stop():
        threads = consistent(root).threads.all()
        assert before <= len(threads) <= before + 1
        before = len(threads)
    assert len(uwf("thread", "list").json) == before + 1


def test_a_registration_that_is_killed_anywhere_leaves_a_whole_version_or_none(
    uwf: Uwf, hermetic: Path
) -> None:
    (hermetic / "one.yaml").write_text(ONE)
    stop = stopped_at_each_write("workflow", "put", str(hermetic / "one.yaml"))
    uwf("init")
    while stop():
        listed = uwf("workflow", "list").json
        assert [w["name"] for w in listed] in ([], ["one"])
        if listed:
            break
    put = uwf("workflow", "put", hermetic / "one.yaml").json
    assert json.loads(uwf("workflow", "history", "one").out)[0]["hash"] == put["hash"]
