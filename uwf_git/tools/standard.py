"""The tools that the built-in agent has of its own."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from uwf_git.policy import ToolPolicy
from uwf_git.tools.command import COMMAND
from uwf_git.tools.fetch import FETCH
from uwf_git.tools.files import FILES
from uwf_git.tools.outputs import Outputs
from uwf_git.tools.patch import PATCH
from uwf_git.tools.search import SEARCH
from uwf_git.tools.tool import Tool, Toolbox, ToolContext
from uwf_git.tools.workspace import Workspace

STANDARD: tuple[Tool, ...] = (*FILES, *PATCH, *SEARCH, *COMMAND, *FETCH)


def standard_tools(
    project: Path,
    policy: ToolPolicy,
    *,
    workflow: Path | None = None,
    hidden: Sequence[Path] = (),
    deadline: float | None = None,
    environ: Mapping[str, str] | None = None,
    further: Iterable[Tool] = (),
) -> Toolbox:
    """A box of the standard tools and of `further` ones, for one step in one folder. `hidden` are folders
    and files inside that no tool may touch: the storage root, which holds keys. `deadline` is on
    time.monotonic()'s clock. To be closed, or used as a context manager."""
    outputs = Outputs()
    try:
        workspace = Workspace(project, workflow, outputs.path, hidden)
    except BaseException:
        outputs.close()
        raise
    context = ToolContext(workspace, policy, outputs, deadline, os.environ if environ is None else environ)
    return Toolbox((*STANDARD, *further), context)
