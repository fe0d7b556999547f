"""What the built-in agent works in: the folder of the step, the workflow's own files, and its tools.

One policy decides what the model is told, what it sees, and what it may do. It is merged from the configuration's for
all agents, its own for this agent, and the workflow's for the role.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from uwf_git.config.policy import ToolPolicy, parse_policy, tighten

if TYPE_CHECKING:
    from uwf_git.agents.builtin.tools.mcp_client import McpServers
    from uwf_git.agents.builtin.tools.tool import Toolbox
    from uwf_git.kit.context import Context
    from uwf_git.store.taking_in import Store
    from uwf_git.values.ids import ThreadId

_MOST_FILES = 1000


class Surroundings(NamedTuple):
    """The tools of a step, which close with the block that made them. `description` is what the model is told of them;
    `servers` are the MCP servers that some of them come from."""

    toolbox: Toolbox
    description: str
    servers: McpServers | None

    @property
    def notes(self) -> tuple[str, ...]:
        """What the step's notes should say of the tools, such as one that was not offered."""
        return tuple(self.servers.notes) if self.servers is not None else ()


def effective_policy(ctx: Context) -> ToolPolicy:
    """The policy for this agent at this step."""
    configured = ctx.config.agents.get(ctx.alias)
    role = parse_policy(ctx.workflow_policy, of_role=True)[0] if ctx.workflow_policy is not None else None
    return tighten(ctx.config.tools, configured.tools if configured is not None else None, role)


@contextlib.contextmanager
def surroundings(ctx: Context) -> Iterator[Surroundings]:
    """The tools of a step. Raises AgentFailed where an MCP server that the policy permits can't be
    started."""
    from tempfile import TemporaryDirectory

    from uwf_git.agents.builtin.tools.standard import standard_tools

    policy = effective_policy(ctx)
    environ = {**ctx.secrets, **os.environ}
    with contextlib.ExitStack() as stack:
        folder = TemporaryDirectory(prefix="uwf-workflow-", ignore_cleanup_errors=True)
        workflow = Path(stack.enter_context(folder))
        write_workflow(ctx.store, ctx.thread, workflow)
        toolbox = standard_tools(
            ctx.cwd,
            policy,
            workflow=workflow,
            root=ctx.config.path.parent,
            store=ctx.store.repository.path,
            deadline=ctx.deadline,
            environ=environ,
            clean=lambda text: ctx.instance.redactor.text(text)[0],
        )
        stack.enter_context(toolbox)
        servers = None
        if ctx.config.mcp_servers:
            from uwf_git.agents.builtin.tools.mcp_client import McpServers

            configured = ctx.config.mcp_servers.values()
            servers = stack.enter_context(McpServers(configured, policy, environ, ctx.cwd, ctx.deadline))
            toolbox.add(servers.tools())
        yield Surroundings(toolbox, toolbox.describe(), servers)


def write_workflow(store: Store, thread: ThreadId, folder: Path) -> None:
    """Writes the definition of a thread's workflow, and the files that it includes, into a folder, as they
    lay beside each other."""
    from uwf_git.store.threads import Threads
    from uwf_git.store.versions import walk_tree

    repository = store.repository
    tree = repository.root(Threads(store).active_head(thread).commit)
    source = repository.file(tree, "workflow.yaml")
    if source is not None:
        (folder / "workflow.yaml").write_bytes(repository.blob(source))
    include = repository.file(tree, "workflow/include")
    if include is None:
        return
    for number, (path, entry) in enumerate(walk_tree(repository, include)):
        # A tree that was made by hand may hold names that lead elsewhere.
        parts = PurePosixPath(path).parts
        if number >= _MOST_FILES or path.startswith("/") or not {"..", ".git"}.isdisjoint(parts):
            continue
        target = folder.joinpath(*parts)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(repository.blob(entry.oid))
