"""Whether the branch that a thread's code would be merged into has moved on, and conflicts with it, and whether the
code takes back what was there when it began. What counts is what is here and what was last fetched; nothing is fetched.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.base.errors import UwfError
from uwf_git.base.text import counted, one_line
from uwf_git.store.location import Checkout, checkout_around
from uwf_git.workspaces.notes import Notes
from uwf_git.workspaces.project import Project

if TYPE_CHECKING:
    from uwf_git.format.ids import ThreadId
    from uwf_git.format.kinds import Revision
    from uwf_git.store.instance import Instance

_SECONDS = 10.0  # for the merge
_LISTED = 5
_DEFAULTS = ("main", "master")


class MovedBranch(NamedTuple):
    """A branch has `ahead` commits that a thread's code lacks; a merge would conflict in `conflicts`."""

    branch: str
    ahead: int
    conflicts: tuple[str, ...] = ()

    @property
    def told(self) -> str:
        """The conflict in a line, "" if there is none."""
        if not self.conflicts:
            return ""
        files = ", ".join(one_line(path, 200) for path in self.conflicts[:_LISTED])
        more = f" and {len(self.conflicts) - _LISTED} more" if len(self.conflicts) > _LISTED else ""
        since = counted(self.ahead, "commit")
        return f"{self.branch} has moved on by {since}, and a merge will conflict in {files}{more}"

    def as_json(self) -> dict[str, Any]:
        return {**self._asdict(), "conflicts": list(self.conflicts)}


def moved_branch(
    instance: Instance, thread: ThreadId, project: Project, code: Revision
) -> MovedBranch | None:
    """Return the branch that has moved on, first one that conflicts; None if none has, or git can't tell in time."""
    try:
        branches = list(_moved(project, checkout_of(instance, thread, project), code))
    except (UwfError, OSError):
        return None
    return next((branch for branch in branches if branch.conflicts), branches[0] if branches else None)


def taken_back(project: Project, code: Revision) -> str:
    """Return a clause on the commits that code began with and has no more, as after `git reset`, "" without any: its
    changes take back what they did."""
    if not project.commit(code.base) or project.is_ancestor(code.base, code.commit):
        return ""
    words = ("log", "--format=%h %s", code.base, f"^{code.commit}")
    subjects = project.run(*words).out.decode("utf-8", "replace").splitlines()
    if not subjects:
        return ""
    newest = one_line(subjects[0], 80)
    rest = f" and {len(subjects) - 1} more" if len(subjects) > 1 else ""
    return f"it takes back what it began with: {newest}{rest}"


def checkout_of(instance: Instance, thread: ThreadId, project: Project) -> Checkout | None:
    """Return the checkout of the project in which a thread was started, None if it is gone."""
    note = Notes(instance.store.repository.private).read(thread)
    if note is not None and note.top is not None and note.top.is_dir():
        checkout = checkout_around(note.top)
        if checkout is not None and checkout.common == project.common:
            return checkout
    return None


def _moved(project: Project, checkout: Checkout | None, code: Revision) -> Iterator[MovedBranch]:
    from uwf_git.workspaces.merging import merging

    tips = {tip: name for name, tip in next(_targets(project, checkout, code.base), ())}
    tips = {tip: name for tip, name in tips.items() if not _is_one_line(project, tip, code.commit)}
    if not tips:
        return
    with merging(project, code.commit, seconds=_SECONDS) as merges:
        for tip, name in tips.items():
            ahead = project.line("rev-list", "--count", f"{code.commit}..{tip}")
            yield MovedBranch(name, int(ahead or 0), merges.conflicting(tip, code.commit))


def _is_one_line(project: Project, tip: str, commit: str) -> bool:
    return project.is_ancestor(tip, commit) or project.is_ancestor(commit, tip)


def targets(project: Project, checkout: Checkout | None, base: str) -> dict[str, str]:
    """Return the branches that code which began at `base` may be merged into, with their tips."""
    return dict(chain.from_iterable(_targets(project, checkout, base)))


def _targets(project: Project, checkout: Checkout | None, base: str) -> Iterator[tuple[tuple[str, str], ...]]:
    """Yield names and tips: of the branch that is checked out if it has the code's base, then of default branches; each
    with that of its upstream."""
    head = project.line("symbolic-ref", "-q", "HEAD", git=project.git(checkout.git_dir if checkout else None))
    for place, name in enumerate(_names(project, head)):
        tip = project.commit(name) if name else ""
        if not tip or (place == 0 and not project.is_ancestor(base, tip)):
            continue
        upstream = project.line("rev-parse", "-q", "--symbolic-full-name", f"{_short(name)}@{{upstream}}")
        fetched = project.commit(upstream) if upstream else ""
        yield ((_short(name), tip), *(((_short(upstream), fetched),) if fetched else ()))


def _names(project: Project, head: str) -> Iterator[str]:
    yield head
    there = f"refs/remotes/{remote}/" if (remote := project.usual_remote()) else ""
    if there:
        yield f"{there}HEAD"
    yield from (f"refs/heads/{name}" for name in _DEFAULTS)
    if there:  # after a first push by git, main may have no upstream, and the remote's HEAD isn't known here
        yield from (f"{there}{name}" for name in _DEFAULTS)


def _short(name: str) -> str:
    return name.removeprefix("refs/heads/").removeprefix("refs/remotes/").removesuffix("/HEAD")
