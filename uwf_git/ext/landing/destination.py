"""Where a thread's work lands: a remote of its project, and the repository there if that is on a known forge."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from uwf_git.plugin import Invalid, Usage

if TYPE_CHECKING:
    from uwf_git.plugin import ForgeRepository, Instance, Project, StepWorkspace, ThreadPosition


class Destination(NamedTuple):
    """The project's `remote` and its `url`, "" for the project itself. `repository` is None off known forges."""

    workspace: StepWorkspace
    remote: str
    url: str
    repository: ForgeRepository | None

    @property
    def project(self) -> Project:
        return self.workspace.project

    def place(self, branch: str) -> str:
        """Return the target of an effect that moves a branch here; see `branch_at`."""
        return f"{self.url}#{branch}"


def branch_at(place: str) -> str:
    """Return the branch of a `Destination.place`."""
    return place.partition("#")[2]


def destination_of(instance: Instance, at: ThreadPosition, remote: str = "") -> Destination:
    """Return where the work of a thread at a position lands. Raises Invalid for a thread without a worktree, NotFound
    for an unknown remote, Usage if the project has several and none is usual."""
    from uwf_git.plugin import workspace_at

    workspace = workspace_at(instance, at)
    if workspace is None or not workspace.is_worktree:
        raise Invalid(
            f"thread {at.head.thread} worked in a folder without a history of its own",
            "commit and push there with git",
        )
    project = workspace.project
    if remote:
        project.require_remote(remote)
    remote = remote or workspace.remote or project.usual_remote()
    if not remote and (several := project.line("remote").split()):
        raise Usage(
            f"the project has the remotes {', '.join(several)}", "say on which to land: --remote NAME"
        )
    url = project.url(remote) if remote else ""
    return Destination(workspace, remote, url, repository_at(instance, url))


def raise_if_unknown(instance: Instance, destination: Destination) -> None:
    """Raise Invalid for a remote at a host of which it is not known whether it has requests: the work would go to the
    branch itself, past everybody's review."""
    from uwf_git.plugin import locate_remote, parse_repository

    url, config = destination.url, instance.config
    if destination.repository is None and locate_remote(url, config.forges) is not None:
        try:
            parse_repository(url, config)
        except Invalid as error:
            hint = f"{error.hint}; or push to the branch itself: --no-forge"
            raise Invalid(error.message, hint) from None


def repository_at(instance: Instance, url: str) -> ForgeRepository | None:
    """Return the repository of a remote's URL, None if it is not on a known forge."""
    from uwf_git.plugin import parse_repository

    try:
        return parse_repository(url, instance.config) if url else None
    except Invalid:
        return None
