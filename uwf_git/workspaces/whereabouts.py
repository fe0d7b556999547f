"""Where the code of a thread's last step is: at which ref, and whether that is still at it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from uwf_git.format.ids import ThreadId
from uwf_git.workspaces.changes import projects_with
from uwf_git.workspaces.notes import Notes
from uwf_git.workspaces.project import Project, tracking, work_name, work_ref

if TYPE_CHECKING:
    from uwf_git.format.kinds import Revision
    from uwf_git.store.instance import Instance


class Whereabouts(NamedTuple):
    """A `commit` that is in `project`. `branch` is the name of a ref at it, the thread's own or a fetched one, "" if
    there is none; `other` is the thread's own with its `tip` if that is at another commit. `has_moved`: a step
    didn't leave it there."""

    project: Project
    commit: str
    branch: str = ""
    other: str = ""
    tip: str = ""
    has_moved: bool = False

    @property
    def revision(self) -> str:
        """What `git merge` takes."""
        return self.branch or self.commit[:12]

    @property
    def warning(self) -> str:
        """A line on the thread's ref if that is elsewhere, else ""."""
        return f"{self.other} is at another commit, {self.tip[:12]}" if self.other else ""


def whereabouts(instance: Instance, thread: ThreadId, code: Revision) -> Whereabouts | None:
    """Return where code is, None if it is not on this machine."""
    project = next(projects_with(instance, thread, code), None)
    if project is None:
        return None
    note = Notes(instance.store.repository.private).read(thread)
    owner = ThreadId((note.owner if note is not None else "") or thread)
    own, fetched = work_ref(owner), tracking("*", owner)
    rows = project.line("for-each-ref", "--format=%(objectname) %(refname)", own, fetched).splitlines()
    tips = {name: tip for tip, _, name in (row.partition(" ") for row in rows)}
    at = sorted((name for name, tip in tips.items() if tip == code.commit), key=lambda name: name != own)
    branch = at[0].removeprefix("refs/") if at else ""
    tip = tips.get(own, code.commit)
    if tip == code.commit:
        return Whereabouts(project, code.commit, branch)
    has_moved = not project.is_ancestor(tip, code.commit)
    return Whereabouts(project, code.commit, branch, work_name(owner), tip, has_moved)
