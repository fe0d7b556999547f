"""`uwf templates`, and the files that `uwf init --template` writes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from uwf_cli.command import command
from uwf_cli.invocation import Invocation
from uwf_cli.views import Table
from uwf_git.base.errors import Invalid

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

TEMPLATES = {
    "bugfix": "Reproduce a bug, fix it, test, review, and have a person decide.",
    "develop": "Plan in phases, implement each, review, test, commit.",
    "release": "Prepare a release, test it, ask a person, publish, try what was published.",
    "review": "Review a change, check each finding, and fail if it must not be merged.",
    "triage": "Sort a report, look into it, and draft the answer that a person sends.",
}
"""The workflows in the folder `templates`, and what each does."""


@command("uwf templates", "uwf init --template bugfix")
def templates(invocation: Invocation) -> None:
    """List the workflows that uwf init --template writes: each with its setup, ready to run."""
    invocation.emit(
        [{"template": each, "about": about} for each, about in TEMPLATES.items()],
        Table(("", "template"), ("", "about")),
    )


def files_of(template: str, folder: Path) -> Mapping[Path, bytes]:
    """Return the files of a template by path. Raises Invalid if another file is at one of the paths."""
    from uwf_git.api.workflows import FOLDER

    where = _source(template)
    sources = {f"{template}.yaml": f"{template}.yaml", f"{template}.md": "README.md"}
    files = {folder / FOLDER / name: (where / source).read_bytes() for name, source in sources.items()}
    for path, content in files.items():
        if os.path.lexists(path) and not _has(path, content):
            raise Invalid(
                f"{path} is there already, and is not overwritten",
                "rename it first, or work in another folder",
            )
    return files


def write_files(files: Mapping[Path, bytes]) -> None:
    """Write the files that are not there yet, with their folder. Raises Invalid."""
    for path, content in files.items():
        try:
            path.parent.mkdir(exist_ok=True)
            if not _has(path, content):
                _write(path, content)
        except OSError as error:
            raise Invalid(f"cannot write {path}: {error}", "check the folder and free space") from None


def _write(path: Path, content: bytes) -> None:
    with path.open("xb") as file:
        try:
            file.write(content)
            file.flush()
        except OSError:  # of a full disk; half a file would be taken for another one
            path.unlink()
            raise


def _has(path: Path, content: bytes) -> bool:
    return path.is_file() and path.read_bytes() == content


def _source(template: str) -> Traversable:
    from importlib.resources import files

    return files("uwf_cli") / "templates" / template
