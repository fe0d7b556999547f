"""The folders of a step, by the names that agents use."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

PROJECT = "@project"
"""The working folder."""
PACKAGE = "@pkg"
"""The files of the crew's package, read only."""
STATE = "@state"
"""The run of a crew's workflow: `workflow.md`, writable."""
WORKFLOW = "@workflow"
"""The workflow's own files, read only."""
OUTPUT = "@output"
"""Texts too long for a tool's result, read only."""
NAMES = (PROJECT, WORKFLOW, OUTPUT, PACKAGE, STATE)
DOCUMENT = "workflow.md"
"""The file in @state that an agent may write."""

PLACEHOLDERS: Mapping[str, str] = {
    "{project-root}": PROJECT,
    "{artifacts-root}": f"{PROJECT}/artifacts",
    "{package-root}": PACKAGE,
    "{state-root}": STATE,
}
"""Packages of crews write these in their paths for the folders."""


class StepFolders(NamedTuple):
    """The paths of a step's folders on this machine, which may not exist yet."""

    project: Path
    package: Path
    state: Path

    @property
    def named(self) -> dict[str, Path]:
        return {PROJECT: self.project, PACKAGE: self.package, STATE: self.state}

    @property
    def variables(self) -> dict[str, str]:
        """UWF_PROJECT, UWF_PKG and UWF_STATE, for commands."""
        return {variable(name): str(path) for name, path in self.named.items()}


def variable(name: str) -> str:
    return f"UWF_{name.removeprefix('@').upper()}"


def named(path: str) -> str:
    """Replace a placeholder in a package's path with the folder's name."""
    first, slash, rest = path.partition("/")
    return PLACEHOLDERS.get(first, first) + slash + rest
