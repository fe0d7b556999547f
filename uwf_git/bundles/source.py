"""The file of a thread's bundle."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

from uwf_git.errors import StoreDamaged
from uwf_git.values.types import PYTHON

if TYPE_CHECKING:
    from uwf_git.store.history import History
    from uwf_git.store.opened import Instance


class Source(NamedTuple):
    """A bundle's file: what it is called in messages, and its text."""

    name: str
    text: str


def source_of(instance: Instance, history: History) -> Source:
    """The file of a history's bundle, which is exactly the one that its Workflow node names. Raises StoreDamaged,
    NotFound."""
    code = history.workflow.code
    assert code is not None
    data = instance.registry.source(instance.registry.commit_for(history.workflow_hash))
    if hashlib.sha256(data).hexdigest() != code.sha256:
        raise StoreDamaged(
            f"the file of workflow {history.workflow.name} is not the one that was registered",
            "see: uwf verify",
        )
    suffix = "py" if code.language == PYTHON else "esm.js"
    return Source(f"{history.workflow.name}.{suffix}", data.decode("utf-8", "replace"))
