"""Checking the fields of a StartNode that some kinds of workflow have."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from uwf_git.engine.step_parts import parts_of
from uwf_git.format.kinds import Start
from uwf_git.store import layout
from uwf_git.verify.findings import Report
from uwf_git.verify.nodes import row_of
from uwf_git.verify.objects import FOLDER, Objects

if TYPE_CHECKING:
    from uwf_git.verify.verified import Known, Record


def check_start_parts(known: Known, version: Record, start: Start, report: Report) -> None:
    """Report the fields of a StartNode that only some kinds of workflow have, if they are missing, wrong or another
    kind's. Raises Bad."""
    workflow = known.definition(version).workflow
    parts = parts_of(workflow)
    if parts is not None:
        included = partial(_included, known.objects, version.tree)
        for code, problem in parts.start_problems(workflow, start, included):
            report(code, problem)
    elif start.has_parts:
        report("wrong-persona", f"the StartNode is a crew's, and {workflow.name} is of no crew")


def _included(objects: Objects, tree: bytes, path: str) -> bytes | None:
    *folders, name = f"{layout.INCLUDED}{path}".split("/")
    for each in folders:
        row = row_of(objects, tree, each)
        if row is None or row[0] != FOLDER:
            return None
        tree = row[2]
    row = row_of(objects, tree, name)
    return objects.blob(row[2]) if row is not None and row[0] != FOLDER else None
