"""A repository of uwf's own that reads a project's objects, and has none of its configuration, attributes and hooks."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uwf_git.workspaces.project import Project


def make_scratch_repository(
    project: Project, git_dir: Path, object_id: str, head: str, is_bare: bool
) -> None:
    """Make one in a folder that has none. Its objects are named as `object_id`, and `head` is in its HEAD."""
    for name in ("objects/info", "refs/heads"):
        (git_dir / name).mkdir(parents=True)
    (git_dir / "objects/info/alternates").write_bytes(os.fsencode(project.common / "objects") + b"\n")
    (git_dir / "HEAD").write_text(f"{head}\n", encoding="ascii")
    extension = "" if len(object_id) == 40 else "[extensions]\n\tobjectFormat = sha256\n"
    (git_dir / "config").write_text(
        f"[core]\n\tbare = {str(is_bare).lower()}\n\trepositoryformatversion = {int(extension != '')}\n{extension}",
        encoding="ascii",
    )
    if (shallow := project.common / "shallow").is_file():
        shutil.copy2(shallow, git_dir / "shallow")
