"""The file of a thread's bundle, and the program that runs it."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from uwf_git.bundles.confinement import Program
from uwf_git.bundles.describe import HARNESSES, NODE_FLAGS, PYTHON_FLAGS, node_program
from uwf_git.errors import StoreDamaged
from uwf_git.values.types import PYTHON
from uwf_git.workflow import define

if TYPE_CHECKING:
    from uwf_git.store.opened import Instance
    from uwf_git.store.threads import History
    from uwf_git.values.kinds import Code


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


def program_of(instance: Instance, code: Code) -> Program:
    """The program that runs bundles of a language. Raises NotFound."""
    harness = HARNESSES[code.language]
    if code.language == PYTHON:
        # That of an environment would bring in what is installed there.
        program = str(Path(sys.executable).resolve())
        return Program(program, PYTHON_FLAGS, (harness, Path(define.__file__)))
    options = (*NODE_FLAGS, "--no-addons")
    return Program(node_program(instance.config), options, (harness, harness.with_name("library.mjs")))
