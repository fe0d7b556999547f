"""Whether a branch of the project has a thread's code: its commits, or what they change, as a forge leaves it that
squashes, rebases or cherry-picks."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from uwf_git.base.errors import UwfError
from uwf_git.git.program import Git
from uwf_git.store.location import Checkout
from uwf_git.workspaces.changes import NO_FETCH, PATCH, PATCH_BYTES
from uwf_git.workspaces.moved import targets
from uwf_git.workspaces.project import Project

_SEARCHED = 1000  # commits of a branch that may be the squashed one
_SEARCHED_BYTES = 64 << 20  # of their patches
_SECONDS = 10.0  # for a merge
_MOST_RECORDED = 20  # commits


class Landing(NamedTuple):
    """The `branch` that has a thread's code; `has_commits` is false if it has only what they change."""

    branch: str
    has_commits: bool


def landing(
    project: Project,
    checkout: Checkout | None,
    base: str,
    commit: str,
    by_changes: bool = True,
    without: Collection[str] = (),
    also: Mapping[str, str] | None = None,
    recorded: Collection[str] = (),
) -> Landing | None:
    """Return the branch that has the code up to a commit, first one with its commits, then one that has what they
    change, unless that isn't asked for; None if none has, or git can't tell. `base` is the commit at which it began;
    branches `without` don't count, those in `also` do, with their tips. The `recorded` commits, those that records say
    it was merged as, are compared too if a branch has them."""
    branches = {**targets(project, checkout, base), **(also or {})}
    branches = {name: tip for name, tip in branches.items() if name not in without}
    for name, tip in branches.items():
        if project.is_ancestor(commit, tip):
            return Landing(name, has_commits=True)
    for name, tip in branches.items() if by_changes else ():
        with suppress(UwfError, OSError):
            if any(_has_changes(project, tip, commit, recorded)):
                return Landing(name, has_commits=False)
    return None


def _has_changes(project: Project, tip: str, commit: str, recorded: Collection[str]) -> Iterator[bool]:
    """Yield whether a branch has what a commit changes, by one test after the other."""
    if not (fork := project.line("merge-base", tip, commit)):
        return
    yield _adds_nothing(project, tip, commit)
    yield _has_patches(project, tip, commit, fork)
    yield _has_squashed(project, tip, commit, fork)
    for name in sorted(recorded)[:_MOST_RECORDED]:
        merge = project.commit(name)
        yield bool(merge) and project.is_ancestor(merge, tip) and _adds_nothing(project, merge, commit)


def _adds_nothing(project: Project, tip: str, commit: str) -> bool:
    from uwf_git.workspaces.merging import merging

    with merging(project, commit, seconds=_SECONDS) as merges:
        return merges.adds_nothing(tip, commit)


def _has_patches(project: Project, tip: str, commit: str, fork: str) -> bool:
    """Return whether a branch has a commit with the patch of each commit, as after a rebase."""
    if project.line("rev-list", "--min-parents=2", "--max-count=1", commit, f"^{fork}"):
        return False  # git cherry leaves merges out
    rows = project.line("cherry", tip, commit, fork).splitlines()
    return bool(rows) and all(row.startswith("- ") for row in rows)


def _has_squashed(project: Project, tip: str, commit: str, fork: str) -> bool:
    """Return whether a commit of a branch has the patch of all commits, as after a squash."""
    git = project.git(variables=NO_FETCH)
    others = git.run("rev-list", "--first-parent", f"--max-count={_SEARCHED}", tip, f"^{fork}").out
    patch = git.run(*PATCH, fork, commit, "--", at_most=PATCH_BYTES).out
    if len(patch) == PATCH_BYTES:
        return False
    own = _patch_ids(git, patch)
    return bool(own) and own <= _patch_ids(
        git, git.run(*PATCH, "--stdin", stdin=others, at_most=_SEARCHED_BYTES).out
    )


def _patch_ids(git: Git, patches: bytes) -> set[str]:
    rows = git.run("patch-id", "--stable", stdin=patches).out.decode("ascii").splitlines()
    return {row.split(" ")[0] for row in rows}
