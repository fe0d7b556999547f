"""Packing: git's own, in the background when loose objects have piled up, or at once for who asks.

A step is a small pack, and small packs are joined as they come (`git/packing`); what an agent says on the way is a file
each. When there are many such files, or joined packs that have become large, `git gc --auto` makes one pack of all and
packs the refs; objects that nothing refers to are kept two weeks, as git does. What it then deletes, the index forgets,
and what it leaves behind when it is killed can be found and removed.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path
from typing import NamedTuple

from uwf_git.base import log
from uwf_git.base.errors import Busy
from uwf_git.git.database import files_of_loose_objects
from uwf_git.git.durable import ASIDE
from uwf_git.git.repository import NAMESPACE, Oid, Repository, StoreUnwritable
from uwf_git.sandbox.programs import find_program, trusted_path
from uwf_git.store.taking_in import Store

KEPT = "2.weeks.ago"  # younger objects that nothing refers to stay: a step may be about to name them
STALE_SECONDS = 24 * 60 * 60
LIMIT = 2000  # loose objects; git's own default is 6,700, ours are smaller and come more steadily
PACKS = 8  # large packs of ours

# What git's packing fails at beside others: a pack was joined into another since a part of it had begun, or an object
# was found in no file, and then in one that somebody had just written, which git takes for damage.
_DISTURBED = re.compile(
    r"fatal: (?:unable to (?:add|mark) recent objects|cannot open pack index|loose object \w+ .* is corrupt)"
)
_TRIES = 4


class Counts(NamedTuple):
    """What a repository is made of: loose objects, packs, the bytes of both on disk, refs of uwf."""

    loose: int
    packs: int
    bytes: int
    refs: int


def counts(repository: Repository) -> Counts:
    """What a repository is made of. Raises RemoteFailed where git is not installed."""
    from uwf_git.git.program import Git

    said = Git(repository.path).run("count-objects", "-v").out.decode("ascii", "replace")
    found = {
        key: int(value)
        for key, _, value in (line.partition(": ") for line in said.splitlines())
        if value.isdigit()
    }
    size = 1024 * (found["size"] + found["size-pack"])
    return Counts(found["count"], found["packs"], size, len(repository.ref_names(NAMESPACE)))


def collect(store: Store, shared: bool, prune: bool = False) -> None:
    """Packs objects and refs, and deletes what nothing has referred to for two weeks, in a repository that is shared
    with code for as long as the user's own settings of git say; with `prune`, what nothing refers to now. Raises Busy
    while another gc runs, StoreUnwritable where git can't."""
    from uwf_git.git.program import Git, telling_line

    git = Git(store.repository.path)
    store.repository.lockfiles.remove_left(thorough=True)  # over one from before a power cut git would fail
    _tidy_refs(store.repository.path)
    for path in leftovers(store.repository):
        if path.is_file():
            path.unlink(missing_ok=True)
    how = ["--prune=now"] if prune else [] if shared else [f"--prune={KEPT}"]
    for _ in range(_TRIES):
        done = git.run("gc", "--quiet", *how, check=False)
        if done.code == 0 or not _DISTURBED.search(done.err):
            break
    if "gc is already running" in done.err or "gc.pid.lock': File exists" in done.err:
        raise Busy("another git gc is at work on the store", "repeat when it is done")
    if done.code != 0:
        raise StoreUnwritable(f"git gc failed: {telling_line(done.err)}", "uwf doctor says why")
    git.run("pack-refs", "--all", check=False)
    forget_deleted(store)


def _tidy_refs(git_dir: Path) -> None:
    """Removes the `packed-refs.new` of a git that was killed, over which every git after it fails: while one is at work
    on that file, there is a lock beside it."""
    if not (git_dir / "packed-refs.lock").exists():
        with contextlib.suppress(OSError):
            (git_dir / "packed-refs.new").unlink(missing_ok=True)


def forget_deleted(store: Store) -> int:
    """Takes nodes and commits out of the index whose objects are gone. Returns how many."""
    has, index = store.repository.has, store.index
    nodes = [node for node, blob in index.blobs() if not has(Oid(raw=blob))]
    commits = [oid for oid in index.commit_ids() if not has(Oid(raw=oid))]
    index.forget(nodes, commits)
    return len(nodes) + len(commits)


def leftovers(repository: Repository, now: float | None = None) -> list[Path]:
    """What was left behind by a kill a day ago or more: temporary files among the objects, and
    folders beside the store in which one was being made."""
    before = (time.time() if now is None else now) - STALE_SECONDS
    objects = repository.path / "objects"
    loose = (path for path in files_of_loose_objects(objects) if path.name.startswith("tmp_obj_"))
    found = [*objects.glob("pack/tmp_*"), *objects.glob("pack/.tmp-*"), *loose]
    begun = repository.path.parent.glob(f"{repository.path.name}.*{ASIDE}")
    left = [*filter(Path.is_file, found), *filter(Path.is_dir, begun)]
    return sorted(path for path in left if _is_older(path, before))


def _is_older(path: Path, time: float) -> bool:
    """Whether a file or folder is there that was changed last before a time: what somebody is writing at this moment is
    given its name, or removed."""
    try:
        return path.stat().st_mtime < time
    except OSError:
        return False


def loose_objects(repository: Repository) -> int:
    """About how many loose objects there are: as git does, one folder of 256 stands for all."""
    try:
        return 256 * len(os.listdir(repository.path / "objects" / "17"))  # noqa: PTH208
    except OSError:
        return 0


def large_packs(repository: Repository) -> int:
    """How many packs of ours are as large as they get."""
    from uwf_git.git.packing import LARGE, ours

    return sum(size >= LARGE for size, _ in ours(repository.path / "objects" / "pack"))


def maintain(repository: Repository, shared: bool, limit: int = LIMIT) -> bool:
    """Starts git's packing in the background where it is due; returns whether it did. A repository that
    is shared with code is packed by the user's own settings. Never waits, never raises."""
    loose, packs = loose_objects(repository), large_packs(repository)
    if (loose <= limit and packs <= PACKS) or (git := find_program("git")) is None:
        return False
    import subprocess

    from uwf_git.git.program import settings_of

    log.info("FY5GR1YK", "git packs about {loose} objects in the background", loose=loose, packs=packs)
    command = ["gc", "--auto", "--quiet"]
    settings = [] if shared or repository.config.value("gc.auto") else ["-c", f"gc.auto={limit}"]
    # What it says of files that came and went meanwhile, it would keep in a gc.log, and then not begin for a day.
    settings += ["-c", "gc.autoDetach=false"]
    if packs > PACKS and not shared and not repository.config.value("gc.autoPackLimit"):
        settings += ["-c", f"gc.autoPackLimit={PACKS}"]
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
