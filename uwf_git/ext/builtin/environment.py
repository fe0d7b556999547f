"""The built-in agent's environment: the step's folder, the workflow's files, and a toolbox of standard and
MCP tools, under one merged policy for the prompt, visibility and enforcement."""

from __future__ import annotations

import contextlib
import os
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import TYPE_CHECKING

from uwf_git.ext.builtin.mcp_servers import servers_of
from uwf_git.ext.builtin.tools.command import COMMAND
from uwf_git.ext.builtin.tools.extract import extract_tool
from uwf_git.ext.builtin.tools.fetch import FETCH
from uwf_git.ext.builtin.tools.files import FILES
from uwf_git.ext.builtin.tools.patch import PATCH
from uwf_git.ext.builtin.tools.search import SEARCH
from uwf_git.ext.builtin.tools.tool import Tool, Toolbox, ToolContext
from uwf_git.plugin import (
    DEFINITIONS,
    EXTRACT,
    OUTPUT_MOUNT,
    PRIVATE_FOLDER,
    STATE_MOUNT,
    WORKFLOW_MOUNT,
    Mount,
    ToolOutputs,
    ToolPolicy,
    Workspace,
    WorkspaceLimits,
    bubblewrap,
    confined_paths,
    resolve_model,
)

if TYPE_CHECKING:
    from uwf_git.plugin import Context, IndexedStore, ThreadId

PRIVATE = (".env", "config.yaml", "store.git")
"""What no tool may touch in the storage root where the root is the project itself."""

_MOST_FILES = 1000  # that a workflow includes

STANDARD: tuple[Tool, ...] = (*FILES, *PATCH, *SEARCH, *COMMAND, *FETCH)


def standard_tools(
    project: Path,
    policy: ToolPolicy,
    *,
    others: Sequence[Mount] = (),
    crew: bool = False,
    hidden: Sequence[Path] = (),
    root: Path | None = None,
    store: Path | None = None,
    deadline: float | None = None,
    environ: Mapping[str, str] | None = None,
    given: Mapping[str, str] = MappingProxyType({}),
    clean: Callable[[str], str] = str,
    show: Callable[[bytes], object] = bytes,
) -> Toolbox:
    """Return a toolbox of the standard tools, to be closed by the caller.

    `others` are folders besides @project; in a `crew`'s step they are the only known ones, and long results
    go to @state. `hidden`, `root` and `store` cannot be touched; if uwf's places are inside the project and
    not its own repository, no command runs. Commands get some variables of `environ`, and those `given`.
    `deadline` is on time.monotonic(); `clean` redacts texts before cutting; `show` gets commands' output.
    """
    kept = next((other.path / "output" for other in others if crew and other.name == STATE_MOUNT), None)
    outputs = ToolOutputs(clean, kept, f"{STATE_MOUNT}/output") if kept is not None else ToolOutputs(clean)
    try:
        real = project.resolve(strict=True)
        own = _own(real, root, store)
        mounts = others if kept is not None else (*others, Mount(OUTPUT_MOUNT, outputs.path))
        limits = WorkspaceLimits(policy.max_read, policy.max_write)
        workspace = Workspace(project, mounts, (*hidden, *_untouched(real, own, root)), limits, crew)
        variables = os.environ if environ is None else environ
        seen = _visible(real, variables) if policy.run_command else bubblewrap.Visible()
    except BaseException:
        outputs.close()
        raise
    notes = None if store is None else store / PRIVATE_FOLDER / "commands"
    context = ToolContext(
        workspace, policy, outputs, deadline, variables, seen, own[0] if own else None, show, notes, given
    )
    return Toolbox(STANDARD, context)


def _visible(project: Path, environ: Mapping[str, str]) -> bubblewrap.Visible:
    from uwf_git.plugin import folders_beside

    return bubblewrap.Visible(
        bubblewrap.toolchains(project, environ.get("PATH") or os.defpath), tuple(folders_beside(project))
    )


def _own(project: Path, root: Path | None, store: Path | None) -> tuple[Path, ...]:
    return tuple(
        path
        for path in (root, store)
        if path is not None
        and not (path == store and path.resolve() == (project / ".git").resolve())
        and any(place.is_relative_to(project) for place in confined_paths.places(path))
    )


def _untouched(project: Path, own: Sequence[Path], root: Path | None) -> Iterable[Path]:
    for path in own:
        if path == root and path.resolve() == project:
            yield from (path / name for name in PRIVATE)
        else:
            yield path


@contextlib.contextmanager
def step_tools(ctx: Context) -> Iterator[tuple[Toolbox, Sequence[str]]]:
    """Yield a step's tools, and notes such as tools not offered. Raises AgentFailed if a permitted MCP server
    cannot start."""
    from tempfile import TemporaryDirectory

    policy = ctx.policy
    environ = ctx.instance.secrets.environment(ctx.env)
    with contextlib.ExitStack() as stack:
        if ctx.mounts is not None:
            others = ctx.mounts.for_tools(policy)
        else:
            folder = TemporaryDirectory(prefix="uwf-workflow-", ignore_cleanup_errors=True)
            workflow = Path(stack.enter_context(folder))
            write_workflow(ctx.store, ctx.thread, workflow)
            others = [Mount(WORKFLOW_MOUNT, workflow, told="read only")]
        toolbox = standard_tools(
            ctx.cwd,
            policy,
            others=others,
            crew=ctx.mounts is not None,
            root=ctx.config.path.parent,
            store=ctx.store.repository.path,
            deadline=ctx.deadline,
            environ=environ,
            given={name: environ[name] for name in ctx.env if name in environ},
            clean=lambda text: ctx.instance.redactor.text(text)[0],
            show=ctx.show,
        )
        stack.enter_context(toolbox)
        if resolve_model(ctx.config, EXTRACT) is not None:
            toolbox.add([extract_tool(ctx.extract)])
        notes: Sequence[str] = ()
        if configured := servers_of(ctx.config):
            from uwf_git.ext.builtin.tools.mcp_client import McpServers

            servers = stack.enter_context(
                McpServers(
                    configured.values(),
                    policy,
                    ChainMap(environ, ctx.instance.secrets),
                    ctx.cwd,
                    ctx.deadline,
                )
            )
            toolbox.add(servers.tools())
            notes = servers.notes
        yield toolbox, notes


def write_workflow(store: IndexedStore, thread: ThreadId, folder: Path) -> None:
    """Write a workflow's definition and included files into a folder."""
    from uwf_git.plugin import Threads, walk_tree

    repository = store.repository
    tree = repository.root(Threads(store).active_head(thread).commit)
    for name in DEFINITIONS.values():
        if (source := repository.file(tree, name)) is not None:
            (folder / name).write_bytes(repository.blob(source))
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
