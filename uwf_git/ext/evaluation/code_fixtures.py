"""The code that a recorded step began with, as the fixture of its case."""

from __future__ import annotations

import tempfile
from pathlib import Path

from uwf_git.ext.evaluation.cases import CaseDraft
from uwf_git.ext.evaluation.fixtures import store_folder
from uwf_git.plugin import Instance, Project, Revision, UwfError, clones_of, code_left


def with_code(instance: Instance, draft: CaseDraft) -> CaseDraft:
    """Return a case with the code that its step, or its thread's first step, began with. Warns if that is not
    here, or no fixture can be made of it."""
    code = _code(instance, draft)
    if code is None:
        return draft
    name = draft.case.name
    for project in map(Project, clones_of(instance)):
        if project.commit(code.base):
            with tempfile.TemporaryDirectory() as folder:
                try:
                    place = Path(folder, "files")
                    project.lay_out(code.base, place, Path(folder, "index"))
                    return draft._replace(case=draft.case._replace(fixture=store_folder(instance, place)))
                except UwfError as error:
                    instance.warn(f"case {name} has no files of its code: {error.message}; give --fixture")
                    return draft
    instance.warn(
        f"case {name} has no files: its code, commit {code.base[:12]}, is not here; give them with --fixture"
    )
    return draft


def _code(instance: Instance, draft: CaseDraft) -> Revision | None:
    step = draft.case.step
    if step is None:
        return None
    if draft.case.role is not None:
        return code_left(instance, instance.store.step(step).detail)
    found = [code_left(instance, past.step.detail) for past in instance.threads.past(step)]
    return next((code for code in reversed(found) if code is not None), None)
