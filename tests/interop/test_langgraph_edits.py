"""Edits of a LangGraph thread at rest, by the yardstick of the package `agent-memory-integrity`."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from agmi.check import run
from langgraph.checkpoint.base import empty_checkpoint

from uwf_git.ext.langgraph import UwfSaver

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from integrity import JUDGED, PlainAttacker


class Paths(NamedTuple):
    """What an attacker uses of a `Lab`."""

    root: Path
    git_dir: Path


class CheckpointAttacker(PlainAttacker):
    """Checkpoints as records. Edits with git alone."""

    note_at = ("values",)

    def setup(self) -> None:
        self._top = Path(tempfile.mkdtemp())
        self.__dict__.pop("_git", None)
        self._environ: Any = {
            "PATH": os.environ["PATH"],
            "HOME": str(self._top),
            "XDG_STATE_HOME": str(self._top / "state"),
            "UWF_STORAGE_ROOT": str(self._top / "root"),
        }
        self._lab: Any = Paths(self._top / "root", self._top / "root" / "store.git")
        self._parents: dict[str, Any] = {}
        self._count = 0
        self._thread = self._put("one", 0)

    def _put(self, name: str, count: int) -> Any:
        """Store checkpoints as the user's program does, and return the thread's id."""
        old = {key: os.environ.get(key) for key in self._environ}
        os.environ.update(self._environ)
        try:
            with UwfSaver(self._lab.root) as saver:
                for _ in range(count):
                    parent = self._parents.get(
                        name, {"configurable": {"thread_id": name, "checkpoint_ns": ""}}
                    )
                    self._count += 1
                    number = self._count
                    checkpoint: Any = {
                        **empty_checkpoint(),
                        "channel_values": {"note": f"{name} {number}"},
                        "channel_versions": {"note": number},
                    }
                    self._parents[name] = saver.put(parent, checkpoint, {"step": number}, {"note": number})
                threads = saver._threads
                return saver._run(threads.find, name) or saver._run(threads._began, name)
        finally:
            os.environ.update({key: value for key, value in old.items() if value is not None})

    def seed(self, n: int) -> None:
        self._put("one", n)

    def seed_other(self, n: int) -> None:
        self._other = self._put("other", n)

    def append_genuine(self) -> None:
        self._put("one", 1)


@pytest.mark.timeout(300)
def test_verify_reports_each_edit_of_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    rows = run(CheckpointAttacker())
    assert len(rows) == 9
    assert {row["edit"]: row["verdict"] for row in rows if row["verdict"] not in JUDGED[:2]} == {}
