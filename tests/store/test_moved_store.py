"""A store that is moved away while it is written to: no write makes a fragment of it at its old place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Uwf
from workflows import ONE

from uwf_git.base.errors import StoreUnwritable
from uwf_git.format.ids import ThreadId
from uwf_git.format.types import TEXT
from uwf_git.git.fsync import make_folders
from uwf_git.git.objects import Oid
from uwf_git.store.instance import Instance
from uwf_git.store.private_files import write_private

# Moves the store away while it is asked, the first time.
MOVER = """
import os, sys
with open("calls", "a") as calls:
    calls.write("x")
root = os.environ["UWF_STORAGE_ROOT"]
if os.path.getsize("calls") == 1:
    os.rename(root, root + ".moved")
print("---\\ntext: ok\\n---\\n\\ndone")
"""
THREAD = ThreadId("01M8NMNZDJHHA5S3NGFZC7C2PD")


def _together(instance: Instance, oid: Oid) -> None:
    with instance.store.together():
        instance.store.put(TEXT, "other")


def _large(instance: Instance, oid: Oid) -> None:
    import os

    with instance.store.repository.in_bulk():
        for _ in range(40):
            instance.store.repository.write_blob(os.urandom(1 << 18))


def _lock(instance: Instance) -> None:
    with instance.locks.hold(THREAD):
        pass


WRITES: dict[str, Callable[[Instance, Oid], object]] = {
    "loose": lambda instance, oid: instance.store.put(TEXT, "other"),
    "pack": _together,
    "large pack": _large,
    "new ref": lambda instance, oid: instance.store.repository.create_ref("refs/uwf/new/a", oid),
    "ref": lambda instance, oid: instance.store.repository.move_ref("refs/uwf/old/a", oid, oid),
    "delete": lambda instance, oid: instance.store.repository.delete_refs({"refs/uwf/old/a": oid}),
    "lock": lambda instance, oid: _lock(instance),
    "session": lambda instance, oid: instance.sessions.claim("agent", "s", THREAD),
    "private": lambda instance, oid: write_private(instance.store.repository.private / "a" / "b", b"c"),
    "folder": lambda instance, oid: make_folders(instance.store.repository.private / "states" / "a"),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_write_into_a_store_that_is_gone_makes_no_folder(
    instance: Instance, root: Path, write: str
) -> None:
    oid = instance.store.repository.write_blob(b"there")
    instance.store.put(TEXT, "there")
    instance.store.repository.create_ref("refs/uwf/old/a", oid)
    root.rename(root.with_name("moved"))

    with pytest.raises(StoreUnwritable):
        WRITES[write](instance, oid)

    assert not root.exists()
    root.with_name("moved").rename(root)
    WRITES[write](instance, oid)


@pytest.mark.parametrize("words", [["thread", "step"], ["thread", "run"]])
def test_a_step_whose_store_is_moved_away_says_so_and_is_asked_again_once_it_is_back(
    uwf: Uwf, root: Path, script: Callable[[str, str], Path], words: list[str]
) -> None:
    Path("one.yaml").write_text(ONE)
    uwf("init")
    uwf("workflow", "put", "one.yaml")
    thread = uwf("thread", "start", "one", "-p", "go").json["thread"]
    agent = f"uwf-exec {script('mover', MOVER)}"

    refused = uwf(*words, thread, "--agent", agent, check=None)

    assert refused.code == 1
    assert "is not there any more" in refused.error["message"]
    assert not root.exists()
    root.with_name("root.moved").rename(root)
    uwf(*words, thread, "--agent", agent)
    assert len(Path("calls").read_text()) == 2
    assert uwf("verify").json["findings"] == []
    assert uwf("thread", "show", thread).json["status"] == "completed"
    assert len(uwf("thread", "list", "--all").json) == 1
