"""The file of a bundle: its language and name, by what it is called."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from uwf_git.base.errors import Invalid
from uwf_git.base.text import one_line
from uwf_git.format.ids import is_hash
from uwf_git.format.types import JAVASCRIPT, PYTHON

if TYPE_CHECKING:
    from uwf_git.format.kinds import Workflow

SUFFIXES = {".esm.js": JAVASCRIPT, ".mjs": JAVASCRIPT, ".js": JAVASCRIPT, ".py": PYTHON}
"""What the names of bundles end in, longest first, and their language."""
MAX_BYTES = 4 << 20


def language_of(path: Path) -> str | None:
    """The language of a bundle, by its file's name; None for what is no bundle."""
    name = path.name.lower()
    return next((language for suffix, language in SUFFIXES.items() if name.endswith(suffix)), None)


def name_of(path: Path) -> str:
    """A file's name without what says that it is a bundle."""
    suffix = next((each for each in SUFFIXES if path.name.lower().endswith(each)), path.suffix)
    return path.name[: len(path.name) - len(suffix)]


def name_in_root(workflow: Workflow) -> str:
    """What the file of a bundle is called in `bundles/` of a storage root: its id, as the first engine had it. Raises
    Invalid for an id that is none."""
    code = workflow.code
    assert code is not None
    if not is_hash(code.id):
        raise Invalid(f"{one_line(code.id)} is no bundle's id")
    return code.id + workflow.file.removeprefix("workflow")
