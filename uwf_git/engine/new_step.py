"""A step before it is in its thread."""

from __future__ import annotations

from typing import NamedTuple

from uwf_git.format.ids import Hash
from uwf_git.format.kinds import Detail, Step
from uwf_git.format.types import DETAIL, STEPNODE
from uwf_git.git.repository import Oid
from uwf_git.store.instance import Instance


class NewStep(NamedTuple):
    """A StepNode that isn't in its thread yet: its hash, and its payload. `merged` are the further parents of its
    commit."""

    node: Hash
    step: Step
    merged: tuple[Oid, ...] = ()

    def with_detail(self, instance: Instance, detail: Detail) -> NewStep:
        """Return the step with another detail. Both nodes become drafts of the store."""
        store = instance.store
        with store.registering():
            step = self.step._replace(detail=store.draft(DETAIL, detail.payload()))
            return self._replace(node=store.draft(STEPNODE, step.payload()), step=step)
