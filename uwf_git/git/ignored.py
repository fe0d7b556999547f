"""The files of a work tree that git ignores."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from uwf_git.git.libgit2 import GitError, discover_repository, open_repository


def ignored_below(folder: Path) -> Callable[[str], bool] | None:
    """Return git's ignore test for paths below a folder, those of folders ending in a slash; None without a readable
    repository around it."""
    # The library, not the program: a project's git configuration can name commands to run.
    try:
        where = discover_repository(str(folder), False, os.environ.get("GIT_CEILING_DIRECTORIES", ""))
        repository = open_repository(where) if where else None
        if repository is None or repository.workdir is None:
            return None
        below = folder.relative_to(Path(repository.workdir).resolve()).as_posix()
    except (GitError, KeyError, ValueError, OSError):
        return None
    prefix = "" if below == "." else below + "/"

    def is_ignored(path: str) -> bool:
        try:
            return bool(repository.path_is_ignored(prefix + path))
        except (GitError, ValueError, UnicodeError):
            return False

    return is_ignored
