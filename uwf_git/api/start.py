"""Starting threads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.base.text import with_closed_fence
from uwf_git.base.thread_states import ThreadState
from uwf_git.format.casting import Cast
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.kinds import Start as StartNode
from uwf_git.git.repository import Oid
from uwf_git.store.instance import Instance
from uwf_git.workspaces.options import SHARED, WorkspaceOption

if TYPE_CHECKING:
    from uwf_git.api.issue import IssueText
    from uwf_git.config.resolve import AgentOptions
    from uwf_git.config.settings import Config
    from uwf_git.engine.kit.agent import Agent
    from uwf_git.format.kinds import Workflow
    from uwf_git.workspaces.choice import Choice

ADVISED = 1 << 20
"""Bytes of a prompt above which forges may refuse its file."""


class Start(NamedTuple):
    """The input of a thread. `budget` is by the names of `format.amounts`; `agent` overrides the
    configuration. `max_rounds` is for code workflows. For crews, `persona` is the default speaker's id,
    `data` a menu's file, and `origin` the head of the conversation before. `workspace` says where its agents
    work; without one it is chosen for the folder `place` in which the thread is started, None for no choice. The text
    of an `issue` follows the prompt, which may be empty then."""

    prompt: str
    budget: Mapping[str, float] = {}
    cwd: Path | None = None
    agent: str | Agent | AgentOptions | None = None
    max_rounds: int | None = None
    persona: str = ""
    data: Mapping[str, Any] | None = None
    origin: Oid | None = None
    workspace: WorkspaceOption | None = None
    place: Path | None = None
    issue: IssueText | None = None

    def cast(self, workflow: Workflow) -> Cast:
        return Cast(workflow, self.persona)

    @property
    def where(self) -> Path | None:
        """The folder for which a workspace is chosen, None for no choice."""
        if self.workspace is None and self.place is None:
            return None
        return self.cwd or self.place or Path.cwd()


class Started(NamedTuple):
    """A started thread and its workspace, None for the folder in which it is stepped."""

    thread: ThreadId
    workspace: Choice | None


class Version(NamedTuple):
    """A workflow version: commit, node and value."""

    commit: Oid
    node: Hash
    workflow: Workflow


def start(instance: Instance, version: Version, what: Start) -> Started:
    """Start a thread. Makes `refs/uwf/threads/<new ULID>`, and with a worktree
    `refs/uwf/work/<new ULID>` of the project. Warns of removed secrets, a large prompt, and an
    unenforceable cost limit. Raises what `workspaces.choice.choose` raises."""
    instance.warn_of_setup()
    chosen = _chosen(instance, version.workflow, what)
    prompt = clean_prompt(instance, what.prompt, "the prompt")
    issue = None
    if what.issue is not None:
        issue, text = what.issue
        prompt = f"{with_closed_fence(prompt.rstrip())}\n\n{text}" if prompt.strip() else text
    node = StartNode(version.node, prompt, what.budget, what.max_rounds, what.persona, what.data, issue=issue)
    projects = instance.threads.projects
    project = "" if what.origin is not None else projects.label_at(what.cwd or what.place or Path.cwd())
    thread = instance.threads.start(version.commit, node, what.origin, project)
    warn_of_unknown_costs(instance, version.workflow, what)
    _warn_of_code(instance, version.workflow, prompt, what.agent is None)
    _settle(instance, [thread], chosen, what.cwd)
    return Started(thread, chosen)


def _warn_of_code(instance: Instance, workflow: Workflow, prompt: str, by_settings: bool) -> None:
    """Warn of what the code of a workflow can't do with a prompt, or with the agents of the settings."""
    if workflow.code is not None:
        from uwf_git.api.compilers import compiler

        for warning in compiler(workflow.code.language).start_warnings(
            workflow, prompt, instance.config if by_settings else None
        ):
            instance.warn(warning)


def _chosen(instance: Instance, workflow: Workflow, what: Start) -> Choice | None:
    if what.where is None:
        return None
    from uwf_git.workspaces.choice import choose

    return choose(instance, what.cast(workflow), what.where, what.workspace, what.agent)


def _settle(instance: Instance, threads: Sequence[ThreadId], chosen: Choice | None, cwd: Path | None) -> None:
    if chosen is not None:
        from uwf_git.workspaces.choice import begin

        begin(instance, chosen, threads)
    if cwd is not None and (chosen is None or chosen.note.kind == SHARED):
        for thread in threads:
            instance.folders.remember(thread, cwd)
    _call_people(instance, threads)


def _call_people(instance: Instance, threads: Sequence[ThreadId]) -> None:
    """Run the hook of threads whose first role is a person's."""
    if not instance.config.hooks.commands:
        return
    from uwf_git.engine.hooks import announce
    from uwf_git.engine.human_turn import persons_role
    from uwf_git.engine.next_turn import outlook

    for thread in threads:
        head = instance.threads.head(thread)
        if persons_role(instance, head):
            announce(instance, thread, ThreadState.PERSONS_TURN, outlook(instance, head))


def clean_prompt(instance: Instance, prompt: str, what: str) -> str:
    """Return a prompt without secrets. `what` names it in warnings."""
    clean = instance.without_secrets(prompt, what)
    if len(clean.encode("utf-8", "replace")) > ADVISED:
        instance.warn(f"{what} is larger than 1 MiB, which is more than forges like in one file")
    return clean


def warn_of_unknown_costs(instance: Instance, workflow: Workflow, what: Start) -> None:
    """Warn if a thread with a cost limit has agents with unknown cost."""
    from uwf_git.engine.budget import COST
    from uwf_git.engine.performer import missing_price_reason

    config = instance.config_at(what.where or Path.cwd())
    configured = (amounts for _, amounts in config.budgets_by_source(workflow.name))
    if any(COST in limit for limit in (what.budget, workflow.budget or {}, *configured)):
        cast = what.cast(workflow)
        warn_of_limit(instance, missing_price_reason(config, cast, workflow.roles, what.agent))


def warn_of_limit(instance: Instance, reasons: Sequence[str]) -> None:
    """Warn of an unenforceable cost limit for these reasons, if any."""
    from uwf_git.engine.budget import UNTOLD_HINT

    if reasons:
        instance.warn(f"cannot enforce maxCost: {'; '.join(reasons)} — {UNTOLD_HINT}")


def require_agent(config: Config, agent: str | AgentOptions) -> None:
    """Raise Usage for an unusable agent, before a thread exists."""
    from uwf_git.config.resolve import named_agent, present_agent

    for name in (agent,) if isinstance(agent, str) else agent.names:
        present_agent(named_agent(config, name))


def start_all(
    instance: Instance,
    version: Version,
    starts: Sequence[StartNode],
    folders: Sequence[Path | None],
    what: Start = Start(""),  # noqa: B008
) -> list[Started]:
    """Start threads of a version, all or none, each with its folder, and the workspace of `what`. Warns and raises as
    `start`."""
    choices = {
        folder: _chosen(instance, version.workflow, what._replace(cwd=folder)) for folder in set(folders)
    }
    labels = {
        folder: instance.threads.projects.label_at(folder or what.place or Path.cwd()) for folder in choices
    }
    threads = instance.threads.start_all(version.commit, starts, [labels[folder] for folder in folders])
    limited = {key: value for start in starts for key, value in (start.budget or {}).items()}
    warn_of_unknown_costs(instance, version.workflow, Start("", limited, persona=starts[0].persona))
    for folder, choice in choices.items():
        own = [thread for thread, item in zip(threads, folders, strict=True) if item == folder]
        _settle(instance, own, choice, folder)
    return [Started(thread, choices[folder]) for thread, folder in zip(threads, folders, strict=True)]
