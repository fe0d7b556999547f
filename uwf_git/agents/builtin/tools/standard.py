"""The standard tools of the built-in agent, in a toolbox for one step."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from uwf_git.agents.builtin.tools.command import COMMAND
from uwf_git.agents.builtin.tools.fetch import FETCH
from uwf_git.agents.builtin.tools.files import FILES
from uwf_git.agents.builtin.tools.patch import PATCH
from uwf_git.agents.builtin.tools.path import places
from uwf_git.agents.builtin.tools.results import Outputs
from uwf_git.agents.builtin.tools.sandbox import Visible, visible
from uwf_git.agents.builtin.tools.search import SEARCH
from uwf_git.agents.builtin.tools.tool import Tool, Toolbox, ToolContext
from uwf_git.agents.builtin.tools.workspace import Workspace
from uwf_git.config.policy import ToolPolicy

PRIVATE = (".env", "config.yaml", "store.git")
"""What no tool may touch in the storage root where the root is the project itself."""

STANDARD: tuple[Tool, ...] = (*FILES, *PATCH, *SEARCH, *COMMAND, *FETCH)


def standard_tools(
    project: Path,
    policy: ToolPolicy,
    *,
    workflow: Path | None = None,
    hidden: Sequence[Path] = (),
    root: Path | None = None,
    store: Path | None = None,
    deadline: float | None = None,
    environ: Mapping[str, str] | None = None,
    further: Iterable[Tool] = (),
    clean: Callable[[str], str] = str,
) -> Toolbox:
    """A toolbox of the standard tools and of `further` ones, for one step in one folder; the caller closes it.
    `hidden` are folders and files in the project that no tool may touch. Neither may a tool touch `root` and `store`,
    uwf's own; where one of these is in the project and isn't the project's own repository, no command runs.
    `deadline` is on time.monotonic()'s clock; `clean` takes secrets out of a text before it is cut."""
    outputs = Outputs(clean)
    try:
        real = project.resolve(strict=True)
        own = _own(real, root, store)
        workspace = Workspace(project, workflow, outputs.path, (*hidden, *_untouched(real, own, root)))
        given = os.environ if environ is None else environ
        seen = visible(real, given.get("PATH") or os.defpath) if policy.run_command else Visible()
    except BaseException:
        outputs.close()
        raise
    context = ToolContext(workspace, policy, outputs, deadline, given, seen, own[0] if own else None)
    return Toolbox((*STANDARD, *further), context)


def _own(project: Path, root: Path | None, store: Path | None) -> tuple[Path, ...]:
    """Those of uwf's places that are in the project, or that a link in the project leads to."""
    return tuple(
        path
        for path in (root, store)
        if path is not None
        and not (path == store and path.resolve() == (project / ".git").resolve())
        and any(place.is_relative_to(project) for place in places(path))
    )


def _untouched(project: Path, own: Sequence[Path], root: Path | None) -> Iterable[Path]:
    """What no tool may touch of uwf's places in the project."""
    for path in own:
        if path == root and path.resolve() == project:
            yield from (path / name for name in PRIVATE)
        else:
            yield path
