"""Packing: git's own, in the background, when loose objects have piled up.

A step writes about ten small files. Every few hundred steps `git gc --auto` turns them into a pack and
packs the refs; objects that nothing refers to are kept two weeks, as git does.
"""

from __future__ import annotations

import os
import shutil
import subprocess

from uwf_git.repository import Repository

LIMIT = 2000  # loose objects; git's own default is 6,700, ours are smaller and come more steadily


def loose_objects(repository: Repository) -> int:
    """About how many loose objects there are: as git does, one folder of 256 stands for all."""
    try:
        return 256 * len(os.listdir(repository.path / "objects" / "17"))  # noqa: PTH208
    except OSError:
        return 0


def maintain(repository: Repository, shared: bool, limit: int = LIMIT) -> bool:
    """Starts git's packing in the background where it is due; returns whether it did. A repository that
    is shared with code is packed by the user's own settings. Never waits, never raises."""
    if loose_objects(repository) <= limit or (git := shutil.which("git")) is None:
        return False
    settings = [] if shared or repository.configured("gc.auto") else ["-c", f"gc.auto={limit}"]
    try:
        subprocess.Popen(
            [git, "--git-dir", str(repository.path), *settings, "gc", "--auto", "--quiet"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return False
    return True
