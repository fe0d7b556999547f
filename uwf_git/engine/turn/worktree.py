"""The folder of a step: the thread's worktree, whose code the step records, or a folder that isn't uwf's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from uwf_git.base.errors import Invalid, NotFound, UwfError, WorkspaceFailed
from uwf_git.config.resolve import shipped
from uwf_git.engine.turn.hooks import Part, Work
from uwf_git.format.kinds import HUMAN, REHEARSE, SUBWORKFLOW, Revision, may_have_code
from uwf_git.sandbox.programs import avoid
from uwf_git.store.location import checkout_around
from uwf_git.workspaces.notes import Notes

if TYPE_CHECKING:
    from uwf_git.engine.new_step import NewStep
    from uwf_git.workspaces.step_workspace import StepWorkspace

_LOOKED_AT = 20  # steps in which the code of a thread is looked for


class Worktree(Part):
    """Prepares the folder in which an agent works, and adds the code that it left there to the step's detail: agents
    don't know of that."""

    def prepare(self, work: Work) -> None:
        if work.result is not None or work.config is None:
            return
        if work.config.command == HUMAN:
            _prepare_for_person(work)
        else:
            _prepare_for_agent(work)

    def complete(self, work: Work, new: NewStep) -> NewStep:
        order, store = work.order, work.instance.store
        if order is None or not order.base:
            return new
        workspace = work.workspace or workspace_of_thread(work)
        if workspace is None:
            return new
        from uwf_git.engine.fan_out_code import left_out
        from uwf_git.store.pages import verdict
        from uwf_git.workspaces.step_workspace import Maker

        role, output = new.step.role, store.get(new.step.output).payload
        credit = work.at.history.cast.role(role).credit(new.step.agent)
        code = workspace.record(order.base, Maker(role, credit, verdict(output)))
        if code is None:
            return new
        if note := left_out(work.instance, work.at, role, output, workspace, code.commit):
            work.instance.warn(f"thread {work.thread}: role {role} {note}")
        detail = store.detail(new.step.detail)
        if detail is None:
            return new
        notes = (*detail.notes, note) if note else detail.notes
        return new.with_detail(work.instance, detail._replace(code=code, notes=notes))


def failed_code(work: Work) -> Revision | None:
    """Keep the files that a failed attempt left in the thread's worktree, None if it changed none there."""
    order = work.order
    if order is None or not order.base:
        return None
    try:
        workspace = work.workspace or workspace_of_thread(work)
        return workspace.keep_failed(order.base) if workspace is not None else None
    except (UwfError, OSError) as error:
        work.instance.warn(f"what the attempt changed is not kept: {error}")
        return None


def workspace_of_thread(work: Work, cwd: Path | None = None) -> StepWorkspace | None:
    """Return the workspace of the thread on this machine, None if it has none. Raises NotFound, WorkspaceFailed."""
    store, history = work.instance.store, work.at.history
    has_code = any(may_have_code(store.get(step.detail)) for step in history.steps[-_LOOKED_AT:])
    has_code = has_code or history.start.branch is not None  # it begins at its fork's
    if not has_code and not Notes(store.repository.private).any():
        return None
    from uwf_git.workspaces.step_workspace import workspace_of

    return workspace_of(work.instance, work.at, cwd)


def _prepare_for_agent(work: Work) -> None:
    config, cwd, location = work.config, work.turn.cwd, work.turn.ahead.location
    assert config is not None
    folders = work.instance.folders
    workspace = work.workspace = workspace_of_thread(work, cwd) or _late_worktree(work)
    if workspace is not None:
        workspace.prepare(work.order, _goes_on(work), work.turn.files)
        folder = workspace.folder(location)
    else:
        if cwd is not None:
            folders.remember(work.thread, cwd.absolute())
        base = cwd or folders.recall(work.thread) or current_folder()
        folder = base / location if location else base
        if checkout_around(folder) is not None:
            _share_checkout(work, folder, config.command == REHEARSE)
    if not folder.is_dir():
        raise Invalid(f"the working directory of {work.role!r}, {folder}, is not a folder", "create it first")
    avoid(folder)
    work.folder, work.base = folder.absolute(), workspace.base if workspace is not None else ""


def _share_checkout(work: Work, folder: Path, is_rehearsal: bool) -> None:
    """Warn of others who may work in a checkout too, and keep the user's stash."""
    from uwf_git.workspaces.shared_folder import announcement, sharing, sparing_stash

    if beside := sharing(work.instance, work.thread, folder):
        work.instance.warn(beside)
    if is_rehearsal:
        return
    is_own = folder.absolute().is_relative_to(work.instance.location.root)  # such as a trial's
    if not is_own and (place := announcement(work.thread, folder)):
        work.instance.warn(place)
    work.held.enter_context(sparing_stash(work.instance, work.thread, folder))


def _prepare_for_person(work: Work) -> None:
    """A person answers anywhere, also where the project isn't; only a worktree that is here is recorded."""
    work.folder = work.instance.location.root
    if not Notes(work.instance.store.repository.private).has(work.thread):
        return
    try:
        workspace = workspace_of_thread(work)
        if workspace is not None and workspace.exists:
            workspace.prepare(work.order, lambda: False, work.turn.files, is_persons=True)
            work.workspace, work.base = workspace, workspace.base
            work.folder = workspace.folder(work.turn.ahead.location)
    except (NotFound, WorkspaceFailed) as error:
        work.instance.warn(f"the worktree is left as it is: {error.message}")


def _goes_on(work: Work) -> Callable[[], bool]:
    """Return whether the agent resumes the session of a failed attempt, whose files it needs then."""
    from uwf_git.engine.kit.memory import resumes_session

    def resumes() -> bool:
        earlier, config = work.order, work.config
        assert config is not None
        if earlier is not None and work.instance.runs.answers(work.thread, earlier):
            return earlier.command == (config.command, *config.args)  # they belong to the files
        return resumes_session(work.instance, work.at, work.role, work.name)

    return resumes


def _late_worktree(work: Work) -> StepWorkspace | None:
    """Return the workspace of a thread that was started elsewhere, or before an agent that may change files was known;
    None for the folder itself."""
    instance, history, config = work.instance, work.at.history, work.config
    assert config is not None
    role = history.workflow.roles.get(work.role)
    is_within = history.start.branch is not None or history.start.call is not None
    if role is None or is_within or instance.sessions.owner(SUBWORKFLOW, work.thread):
        return None
    if Notes(instance.store.repository.private).has(work.thread):
        return None
    program, settings = shipped(config.command), instance.config_of(work.at.head.row).workspace
    is_writing = program is not None and program.writes
    if not (is_writing or history.workflow.workspace or settings.kind or settings.projects):
        return None
    from uwf_git.workspaces.choice import begin, choose_late

    where = work.turn.cwd or instance.folders.recall(work.thread) or current_folder()
    choice = choose_late(instance, work.at, config, role, where)
    if choice is None:
        return None
    begin(instance, choice, [work.thread], is_late=True)
    if told := choice.told():
        instance.warn(f"thread {work.thread} {told}")
    return workspace_of_thread(work)


def current_folder() -> Path:
    """Return the current folder. Raises Invalid if it is gone."""
    try:
        return Path.cwd()
    except OSError:
        raise Invalid("the current folder is gone", "cd to one that exists, or give one with --cwd") from None
