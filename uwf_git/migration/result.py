"""What an import did, or would do."""

from __future__ import annotations

from typing import Any, NamedTuple

from uwf_git.migration.storage import Untaken
from uwf_git.values.ids import ThreadId

NEW, GROWN, HERE = "new", "grown", "here"


class TakenWorkflow(NamedTuple):
    """A workflow that came along: its name, the hash of its newest version here and of the Workflow node that this was
    made from, and how many versions there are. `state` is new, grown or here."""

    name: str
    hash: str
    source: str
    versions: int
    state: str


class TakenThread(NamedTuple):
    """A thread that came along: `steps` of the source's, `added` of them now. `status` is completed, killed or active;
    `state` is new, grown or here."""

    thread: ThreadId
    workflow: str
    steps: int
    added: int
    status: str
    state: str


class Imported(NamedTuple):
    """`nodes` were read, `taken` of them are new here as they were; `kept` names the fields that only the original
    nodes have; `warnings` are of threads that came along."""

    workflows: tuple[TakenWorkflow, ...]
    threads: tuple[TakenThread, ...]
    nodes: int
    taken: int
    kept: tuple[str, ...]
    warnings: tuple[tuple[ThreadId, str], ...]
    untaken: tuple[Untaken, ...]

    def to_json(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "workflows": [each._asdict() for each in self.workflows],
            "threads": [each._asdict() for each in self.threads],
            "nodes": self.nodes,
            "taken": self.taken,
            "kept": list(self.kept),
            "warnings": [{"thread": thread, "message": text} for thread, text in self.warnings],
            "untaken": [each._asdict() for each in self.untaken],
        }
