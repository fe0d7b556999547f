"""Starting threads as commands do: the workflow, its trust, and what is noted of the workspace."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_cli import resolve
from uwf_cli.invocation import Invocation
from uwf_git.base.errors import Usage
from uwf_git.format.ids import Hash, ThreadId

if TYPE_CHECKING:
    from uwf_git.api.start import Start
    from uwf_git.api.workflows import ResolvedWorkflow
    from uwf_git.config.resolve import AgentOptions
    from uwf_git.format.casting import Cast
    from uwf_git.format.ids import ThreadId
    from uwf_git.workspaces.choice import Choice


class StartedThread(NamedTuple):
    """A started thread, its workflow and its workspace, None for the folder of each step."""

    thread: ThreadId
    workflow: Hash
    name: str
    workspace: Choice | None

    def value(self) -> dict[str, Any]:
        value: dict[str, Any] = {"workflow": self.workflow, "thread": self.thread}
        if self.workspace is not None:
            value["workspace"] = self.workspace.as_json(self.thread)
        return value


def begin(
    invocation: Invocation,
    workflow: str | ResolvedWorkflow,
    what: Start,
    *,
    persona: str | None = None,
    to_run: bool = False,
    is_ready: Callable[[Cast], None] | None = None,
    issue: str | None = None,
) -> StartedThread:
    """Start a thread. If it is `to_run` at once, its code must be trusted; a file named by its path is.
    `persona` names the default speaker; `is_ready` may raise. An `issue`, by its URL or number, is read last."""
    from uwf_git.api.start import Version, start
    from uwf_git.api.workflows import speaker_of, version_of
    from uwf_git.approvals.gate import closed_to_starter

    resolved_workflow = startable(invocation, workflow, what.max_rounds is not None, to_run)
    instance = invocation.instance
    what = what._replace(persona=speaker_of(resolved_workflow, persona), place=what.place or Path.cwd())
    if is_ready is not None:
        is_ready(what.cast(resolved_workflow.workflow))
    if issue is not None:
        from uwf_git.api.issue import read_issue

        what = what._replace(issue=read_issue(instance, issue, what.where or Path.cwd()))
    version = Version(
        version_of(instance, resolved_workflow), resolved_workflow.hash, resolved_workflow.workflow
    )
    for warning in closed_to_starter(instance, resolved_workflow.workflow):
        invocation.warn(warning)
    started = start(instance, version, what)
    begun = StartedThread(
        started.thread, resolved_workflow.hash, resolved_workflow.workflow.name, started.workspace
    )
    if begun.workspace is not None and (note := begun.workspace.told()):
        invocation.note(note)
    return begun


def startable(
    invocation: Invocation, workflow: str | ResolvedWorkflow, has_rounds: bool, to_run: bool = False
) -> ResolvedWorkflow:
    """Return the workflow of new threads, trusted as in `begin`, with an open store. Raises Usage for
    --max-rounds without code."""
    from uwf_git.api.workflows import may_start

    resolved_workflow = resolve.find_workflow(invocation, workflow) if isinstance(workflow, str) else workflow
    resolved_workflow.require_allowed()
    instance = invocation.instance_for_writing()  # not before there is something to write
    if has_rounds:
        require_code(resolved_workflow, "--max-rounds")
    is_named = isinstance(workflow, str) and Path(workflow).is_file()
    if not may_start(instance, resolved_workflow, is_named, to_run):
        code = resolved_workflow.workflow.code
        named = (
            code.id
            if resolved_workflow.compiled is not None and code is not None
            else resolved_workflow.workflow.name
        )
        invocation.warn(f"before it is stepped here: uwf workflow trust {named}")
    return resolved_workflow


def require_code(workflow: ResolvedWorkflow, option: str) -> None:
    """Raise Usage for a limit on rounds unless the workflow is code."""
    if workflow.workflow.code is None:
        raise Usage(
            f"{option} is for code workflows, and {workflow.workflow.name} is not one",
            "give --max-steps in its place",
        )


def require_agent(invocation: Invocation, agent: str | AgentOptions) -> None:
    """Raise Usage for an unusable agent, before a thread exists."""
    from uwf_git.api.start import require_agent
    from uwf_git.store.setups import config_around

    require_agent(config_around(invocation.location, Path.cwd()), agent)
