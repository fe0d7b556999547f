"""Files of code workflows: language and name, and the node that names the file."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uwf_git.base.errors import Invalid
from uwf_git.format.ids import Hash
from uwf_git.format.types import CODE, JAVASCRIPT, PYTHON

if TYPE_CHECKING:
    from uwf_git.workflow.compile import Compiled

SUFFIXES = {".esm.js": JAVASCRIPT, ".mjs": JAVASCRIPT, ".js": JAVASCRIPT, ".py": PYTHON}
"""What the names of bundles end in, longest first, and their language."""
MAX_BYTES = 4 << 20
"""The size of a code workflow, at most."""


def language_of(path: Path) -> str | None:
    """Return the language of a code workflow by file name, else None."""
    name = path.name.lower()
    return next((language for suffix, language in SUFFIXES.items() if name.endswith(suffix)), None)


def name_of(path: Path) -> str:
    """Return a file's name without the code workflow suffix."""
    suffix = next((item for item in SUFFIXES if path.name.lower().endswith(item)), path.suffix)
    return path.name[: len(path.name) - len(suffix)]


def stored_code(payload: dict[str, Any], schemas: Mapping[Hash, Any], text: bytes) -> Compiled:
    """Return a code workflow from stored nodes and its file, without evaluation. Raises Invalid if the file
    doesn't match its node."""
    from uwf_git.format.document import Document
    from uwf_git.format.kinds import parse_workflow
    from uwf_git.format.node import file_id, hash_of
    from uwf_git.workflow.compile import Compiled
    from uwf_git.workflow.source import Source

    workflow = parse_workflow(payload)
    code = workflow.code
    if code is None or hashlib.sha256(text).hexdigest() != code.sha256 or file_id(text) != code.id:
        raise Invalid(f"{workflow.file} is not the file that the Bundle node names")
    source = Source(workflow.file, text, None, Document(workflow.file, None, {}, {}, {}), {})
    return Compiled(payload, hash_of(CODE, payload), schemas, workflow, source)
