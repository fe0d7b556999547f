"""Checking the StartNode of a crew's workflow. The limits on a step's tools follow from its persona, so a
thread without one is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uwf_git.base.text import one_line
from uwf_git.engine.step_parts import parts_of
from uwf_git.format.kinds import Start
from uwf_git.store import layout
from uwf_git.verify.findings import Report
from uwf_git.verify.nodes import row_of
from uwf_git.verify.objects import FOLDER, Objects

if TYPE_CHECKING:
    from uwf_git.verify.verified import Known, Record


def check_speaking(known: Known, version: Record, start: Start, report: Report) -> None:
    """Report a missing or unexpected persona, and `data` that no menu could have added. Raises Bad."""
    workflow = known.definition(version).workflow
    if workflow.crew is None:
        if start.persona or start.data is not None:
            report("wrong-persona", f"the StartNode is a crew's, and {workflow.name} is of no crew")
        return
    if not start.persona:
        report("wrong-persona", f"the StartNode names no persona, and {workflow.name} is of a crew")
    elif start.persona not in workflow.personas:
        shown = one_line(start.persona, 80)
        report("wrong-persona", f"the StartNode names persona {shown!r}, which {workflow.name} does not have")
    if start.data is not None:
        tree = version.tree
        parts = parts_of(workflow)
        assert parts is not None, workflow.kind
        problem = parts.data_problem(
            start.data, lambda path: _file(known.objects, tree, layout.INCLUDED + path)
        )
        if problem is not None:
            report("wrong-data", f"the StartNode brings along what no menu does: {problem}")


def _file(objects: Objects, tree: bytes, path: str) -> bytes | None:
    *folders, name = path.split("/")
    for each in folders:
        row = row_of(objects, tree, each)
        if row is None or row[0] != FOLDER:
            return None
        tree = row[2]
    row = row_of(objects, tree, name)
    return objects.blob(row[2]) if row is not None and row[0] != FOLDER else None
