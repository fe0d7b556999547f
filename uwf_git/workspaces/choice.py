"""Choosing a new thread's workspace: the option, else the workflow's, else that of config.yaml, else a worktree
if the folder is in a git checkout and a role's agent may change files, else the folder itself."""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.base.errors import NotFound, Usage, UwfError
from uwf_git.base.text import listed
from uwf_git.config.policy import RUN, WRITING, role_policies
from uwf_git.config.resolve import AgentOptions, narrowed, resolve_agent, shipped
from uwf_git.format.casting import Cast, CastRole
from uwf_git.format.ids import ThreadId
from uwf_git.format.kinds import HUMAN, SUBWORKFLOW
from uwf_git.format.types import USER
from uwf_git.store.instance import Instance
from uwf_git.store.location import checkout_around
from uwf_git.workspaces.notes import Note, Notes
from uwf_git.workspaces.options import FOLDER, SHARED, WORKTREE, WorkspaceOption
from uwf_git.workspaces.project import NO_REPOSITORY, Project, work_name, work_ref
from uwf_git.workspaces.worktree import configured_remote, worktree_note

if TYPE_CHECKING:
    from uwf_git.config.settings import AgentConfig, Config
    from uwf_git.format.kinds import Role
    from uwf_git.store.history import Position

_NAMED = 5  # folders in a message
_DEEPEST = 8  # workflows within each other that are looked at


class Choice(NamedTuple):
    """A workspace for new threads: their note, and the revision that a worktree begins at as people call it.
    `changes` is the number of uncommitted files that it begins without, -1 if they were included;
    `is_default`: nobody asked for it."""

    note: Note
    revision: str = ""
    has_changes: bool = False
    is_default: bool = False

    def as_json(self, thread: ThreadId) -> dict[str, Any]:
        """Return it as the `workspace` of a started thread."""
        value: dict[str, Any] = {"kind": self.note.kind}
        if self.note.kind == WORKTREE:
            value |= {"branch": work_name(thread), "base": self.note.base}
        return value

    def told(self) -> str:
        """Return a line for people, "" for a workspace that was asked for and has all files."""
        if self.note.kind != WORKTREE:
            return ""
        parts = []
        if self.is_default:
            parts.append(f"works in a git worktree that begins at {self.revision}")
        if self.has_changes:
            parts.append("the uncommitted changes here are not in it; --include-changes begins with them")
        if self.is_default:
            parts.append("--workspace shared works in this folder")
        return "; ".join(parts)


def choose(
    instance: Instance, cast: Cast, where: Path, option: WorkspaceOption | None = None, agent: object = None
) -> Choice | None:
    """Return the workspace of new threads that are started in a folder; None for that folder itself. `agent`
    overrides the configuration. With `changes`, a commit of the checkout's uncommitted files is made. Raises
    Usage, NotFound and Invalid for a workspace that cannot be made."""
    is_default = option is None
    if option is None:
        kind = cast.workflow.workspace or instance.config_at(where).workspace.of(_top(where)).kind
        if not kind:
            checkout = checkout_around(where)
            if (
                checkout is None
                or checkout.top is None
                or not _may_write(instance, instance.config_at(where), cast, agent)
            ):
                return None
            if not Project(checkout.common).commit("HEAD"):
                return None
            kind = WORKTREE
        option = WorkspaceOption(kind)
    return chosen(instance, where, option, is_default)


def choose_late(
    instance: Instance, at: Position, agent: AgentConfig, role: Role, where: Path
) -> Choice | None:
    """Return the workspace of a thread that has none here, as it was started elsewhere or without an agent: the one of
    its workflow or of config.yaml, else a worktree for an agent that may change files. None if its steps were made in
    the folder itself, or that isn't in a checkout with commits."""
    checkout = checkout_around(where)
    is_begun = any(step.agent != HUMAN and step.role != USER for step in at.history.steps)
    if is_begun or checkout is None or checkout.top is None or not Project(checkout.common).commit("HEAD"):
        return None
    config = instance.config_of(at.head.row)
    if kind := at.history.workflow.workspace or config.workspace.of(checkout.top).kind:
        return chosen(instance, where, WorkspaceOption(kind), is_default=True)
    program = shipped(agent.command)
    if program is None or not program.writes or not _writes(config, agent, at.history.cast.of(role)):
        return None
    return chosen(instance, where, WorkspaceOption(WORKTREE), is_default=True)


def _top(where: Path) -> Path | None:
    checkout = checkout_around(where)
    return checkout.top if checkout is not None else None


def chosen(instance: Instance, where: Path, option: WorkspaceOption, is_default: bool = False) -> Choice:
    """Return the workspace of an option. Raises as `choose`."""
    if option.kind == SHARED:
        return Choice(Note(SHARED))
    if option.kind == FOLDER:
        place = option.place or instance.location.root / "folders"
        return Choice(Note(FOLDER, place=str(place)))
    return _worktree(instance, where, option, is_default)


def _worktree(instance: Instance, where: Path, option: WorkspaceOption, is_default: bool) -> Choice:
    place = option.place or where
    checkout = checkout_around(place) if place.is_dir() else None
    if checkout is None:
        raise NotFound(f"{place} is not a git repository", f"git init {place}; {NO_REPOSITORY}")
    project = Project(checkout.common)
    git = project.git(checkout.git_dir)
    revision = option.revision or "HEAD"
    base = project.commit(revision, git)
    if not base:
        problem = "no commits yet" if revision == "HEAD" else f"no commit {revision}"
        raise NotFound(f"project {checkout.top or checkout.common} has {problem}", "commit something first")
    remote = option.remote or configured_remote(instance, project, checkout.top)
    if remote:
        project.require_remote(remote)
    project.filters_off(base)
    called = revision
    if revision == "HEAD":
        called = project.line("symbolic-ref", "-q", "--short", "HEAD", git=git) or "HEAD"
    dirty = False
    if option.changes:
        if checkout.top is None:
            raise Usage(f"project {checkout.common} is bare: it has no uncommitted changes", "leave them out")
        index = instance.store.repository.private / "workspaces" / f"index.{os.urandom(8).hex()}"
        base = project.snapshot(checkout, base, instance.store.repository.user, index)
        called += " with uncommitted changes"
    elif not option.revision and checkout.top is not None:
        dirty = project.has_changes(checkout)
    settings = instance.config_at(place).workspace.of(checkout.top)
    empty = [path for path in project.submodules(base) if path not in settings.copy]
    if empty and "submodule" not in " ".join(settings.setup):
        instance.warn(
            f"the folders of submodules are empty in worktrees: {listed(empty, _NAMED)}; workspace.setup can fill them:"
            " git submodule update --init"
        )
    if checkout.top is not None and not settings.copy and not settings.setup:
        from uwf_git.workspaces.requirements import warn_of_lacking

        warn_of_lacking(instance, project, checkout)
    note = worktree_note(project, checkout, where, base, project.root(base), remote)
    return Choice(note, f"{called} ({base[:7]})", dirty, is_default)


def begin(instance: Instance, choice: Choice, threads: Collection[ThreadId], is_late: bool = False) -> None:
    """Give new threads their workspaces, or one that is begun `is_late`. Makes `refs/uwf/work/<ULID>` of the project
    for each; a late one's may be there, from another machine."""
    notes = Notes(instance.store.repository.private)
    if choice.note.kind == WORKTREE:
        project = Project(Path(choice.note.project))
        new = [thread for thread in threads if not (is_late and project.commit(work_ref(thread)))]
        lines = "".join(f"create {work_ref(thread)} {choice.note.base}\n" for thread in new)
        project.run("update-ref", "--create-reflog", "--stdin", stdin=lines.encode("ascii"))
    for thread in threads:
        notes.write(thread, choice.note._replace(owner=thread))


def assign(instance: Instance, thread: ThreadId, option: WorkspaceOption, where: Path) -> None:
    """Give a thread that has no workspace here one, as `choose`; a worktree begins at its last code."""
    notes = Notes(instance.store.repository.private)
    if not notes.has(thread):
        notes.write(thread, chosen(instance, where, option).note._replace(owner=thread))


def reassign(instance: Instance, thread: ThreadId, option: WorkspaceOption, where: Path) -> None:
    """Give a thread another workspace. A worktree that it had is removed; what is uncommitted is kept. Raises
    as `chosen` and `removal.remove`."""
    from uwf_git.workspaces.removal import remove

    notes = Notes(instance.store.repository.private)
    new, old = chosen(instance, where, option).note._replace(owner=thread), notes.read(thread)
    if old is not None and old.kind == WORKTREE and old.owner == thread:
        if (new.kind, new.project) == (old.kind, old.project):
            return
        remove(instance, thread)
    notes.write(thread, new)


def share(instance: Instance, parent: ThreadId, child: ThreadId) -> None:
    """Let a sub-workflow's thread work in its parent's workspace."""
    notes = Notes(instance.store.repository.private)
    if (note := notes.read(parent)) is not None:
        notes.write(child, note)


def _may_write(instance: Instance, config: Config, cast: Cast, agent: object, depth: int = 0) -> bool:
    for role in cast.workflow.roles.values():
        if role.human:
            continue
        player = cast.of(role)
        with suppress(UwfError):  # reported by the step
            named = agent
            if isinstance(agent, AgentOptions):
                named = narrowed(config, player, agent)
            if not isinstance(named, str | None):  # a function of the caller's
                continue
            plays = resolve_agent(config, player, named)
            if plays.command == SUBWORKFLOW and plays.args and depth < _DEEPEST:
                child = instance.registry.current(plays.args[-1]).hash
                if _may_write(instance, config, Cast(instance.registry.workflow(child)), None, depth + 1):
                    return True
            elif _writes(config, plays, player):
                return True
    return False


def _writes(config: Config, agent: AgentConfig, role: CastRole) -> bool:
    program = shipped(agent.command)
    if program is None or not program.writes:
        return False
    named = config.named_agents.get(agent.args[0]) if agent.args else None
    if named is not None and named.command == agent.command and not named.writes:
        return False
    policy = config.policy(agent.tools, *role_policies(role))
    return any(policy.permits(tool) for tool in (*WRITING, RUN))
