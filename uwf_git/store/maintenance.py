"""Packing with git's own gc, in the background when loose objects accumulate, or on request.

A step is a small pack, and small packs are joined (`git/packing`); turns recorded during a step are loose
objects. When there are many of these, or joined packs have become large, `git gc --auto` packs everything;
unreachable objects are kept two weeks, as git does. Refs that are files of their own are packed when there are
many, since each command that writes reads all. The index forgets deleted objects, and leftovers of a killed gc are
removed.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path
from typing import NamedTuple

from uwf_git.base import log
from uwf_git.base.errors import Busy, StoreUnwritable
from uwf_git.git.database import files_of_loose_objects
from uwf_git.git.fsync import ASIDE
from uwf_git.git.refs import PACKED
from uwf_git.git.repository import NAMESPACE, Oid, Repository
from uwf_git.sandbox.programs import find_program, trusted_path
from uwf_git.store import layout
from uwf_git.store.indexing import Store

KEPT = "2.weeks.ago"  # younger objects that nothing refers to stay: a step may be about to name them
STALE_SECONDS = 24 * 60 * 60
LIMIT = 2000  # loose objects; git's own default is 6,700, ours are smaller and come more steadily
PACKS = 8  # large packs of ours
LOOSE_REFS = 250  # or as many as packed-refs has KB, since writing it anew takes longer, up to 8 times that

# Failures of git's packing beside other processes: a pack was joined into another, or an object appeared in a file
# after it was missing, which git takes for damage.
_DISTURBED = (
    r"fatal: (?:unable to (?:add|mark) recent objects|cannot open pack index|loose object \w+ .* is corrupt)"
)
_TRIES = 4


class Counts(NamedTuple):
    """A repository's loose objects, packs, bytes of both, and uwf refs."""

    loose: int
    packs: int
    bytes: int
    refs: int


def counts(repository: Repository) -> Counts:
    """Count a repository's objects and refs. Raises RemoteFailed if git is not installed."""
    from uwf_git.git.program import Git

    output = Git(repository.path).run("count-objects", "-v").out.decode("ascii", "replace")
    numbers = {
        key: int(value)
        for key, _, value in (line.partition(": ") for line in output.splitlines())
        if value.isdigit()
    }
    size = 1024 * (numbers["size"] + numbers["size-pack"])
    return Counts(numbers["count"], numbers["packs"], size, len(repository.ref_names(NAMESPACE)))


def collect(store: Store, shared: bool, prune: bool = False) -> None:
    """Pack objects and refs, and delete objects unreachable for two weeks (in a repository shared with code,
    as git is configured); with `prune` all unreachable ones. Raises Busy during another gc, StoreUnwritable.
    """
    from uwf_git.git.program import Git

    git = Git(store.repository.path)
    store.repository.lockfiles.remove_stale(thorough=True)  # over one from before a power cut git would fail
    _tidy_refs(store.repository.path)
    for path in leftovers(store.repository):
        if path.is_file():
            path.unlink(missing_ok=True)
    how = ["--prune=now"] if prune else [] if shared else [f"--prune={KEPT}"]
    for _ in range(_TRIES):
        done = git.run("gc", "--quiet", *how, check=False)
        if done.code == 0 or not re.search(_DISTURBED, done.err):
            break
    if "gc is already running" in done.err or "gc.pid.lock': File exists" in done.err:
        raise Busy("another git gc is working on the store", "repeat when it is done")
    if done.code != 0:
        raise StoreUnwritable(f"git gc failed: {done.reason}", "uwf doctor says why")
    git.run("pack-refs", "--all", check=False)
    forget_deleted(store)


def _tidy_refs(git_dir: Path) -> None:
    if not (git_dir / "packed-refs.lock").exists():
        with contextlib.suppress(OSError):
            (git_dir / "packed-refs.new").unlink(missing_ok=True)


def forget_deleted(store: Store) -> int:
    """Remove nodes and commits whose objects are gone from the index. Return how many."""
    has, index = store.repository.has, store.index
    nodes = [node for node, blob in index.blobs() if not has(Oid(raw=blob))]
    commits = [oid for oid in index.commit_ids() if not has(Oid(raw=oid))]
    index.forget(nodes, commits)
    return len(nodes) + len(commits)


def leftovers(repository: Repository) -> list[Path]:
    """Return temporary files and unfinished stores that were left at least a day ago."""
    before = time.time() - STALE_SECONDS
    objects = repository.path / "objects"
    loose = (path for path in files_of_loose_objects(objects) if path.name.startswith("tmp_obj_"))
    paths = [*objects.glob("pack/tmp_*"), *objects.glob("pack/.tmp-*"), *loose]
    begun = repository.path.parent.glob(f"{repository.path.name}.*{ASIDE}")
    old = [*filter(Path.is_file, paths), *filter(Path.is_dir, begun)]
    return sorted(path for path in old if _is_older(path, before))


def _is_older(path: Path, time: float) -> bool:
    try:
        return path.stat().st_mtime < time
    except OSError:
        return False


def loose_objects(repository: Repository) -> int:
    """Estimate the number of loose objects from one of 256 folders, as git does."""
    try:
        return 256 * len(os.listdir(f"{repository.path}/objects/17"))  # noqa: PTH208
    except OSError:
        return 0


def large_packs(repository: Repository) -> int:
    """Return the number of our packs at the size limit."""
    from uwf_git.git.packing import LARGE, ours, packs_of

    return sum(size >= LARGE for size, _ in ours(packs_of(repository.path), joined=False))


def has_many_loose_refs(repository: Repository) -> bool:
    """Return whether the threads whose refs are files of their own are so many that packing these is worth a new
    packed-refs."""
    loose = sum(_count_entries(repository.path / prefix) for prefix in (layout.THREADS, layout.ARCHIVE))
    if loose <= LOOSE_REFS:
        return False
    try:
        packed = (repository.path / PACKED).stat().st_size
    except OSError:
        return True
    return loose > min(packed >> 10, 8 * LOOSE_REFS)


def _count_entries(folder: Path) -> int:
    try:
        return len(os.listdir(folder))  # noqa: PTH208
    except OSError:  # git has removed it, since it was empty
        return 0


def maintain(repository: Repository, shared: bool, limit: int = LIMIT) -> bool:
    """Start git's packing in the background if due; return whether it did. A repository shared with code
    follows the user's settings. Never waits, never raises."""
    loose, packs = loose_objects(repository), large_packs(repository)
    settings: list[str] = []
    if loose > limit or packs > PACKS:
        what, command = f"about {loose} objects", ["gc", "--auto", "--quiet"]
        settings += [] if shared or repository.config.value("gc.auto") else ["-c", f"gc.auto={limit}"]
        # git would write messages about vanished files to gc.log, and then skip gc for a day.
        settings += ["-c", "gc.autoDetach=false"]
        if packs > PACKS and not shared and not repository.config.value("gc.autoPackLimit"):
            settings += ["-c", f"gc.autoPackLimit={PACKS}"]
    elif not shared and has_many_loose_refs(repository) and repository.config.value("gc.auto") != "0":
        what, command = "refs", ["pack-refs", "--all"]
    else:
        return False
    if (git := find_program("git")) is None:
        return False
    import subprocess

    from uwf_git.git.program import settings_of

    log.info("FY5GR1YK", "git packs {what} in the background", what=what, packs=packs)
    try:
        with repository.lockfiles.git() as held:
            subprocess.Popen(
                [git, "--git-dir", str(repository.path), *settings_of(command), *settings, *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PATH": trusted_path()},
                start_new_session=True,
                pass_fds=held,
            )
    except OSError:
        return False
    return True
