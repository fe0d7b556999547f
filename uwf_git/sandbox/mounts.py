"""The folders of a step, under the names that its agents know them by.

@project    the folder that the step works in
@workflow   the workflow's own files, read only
@output     texts that were too long for a tool's result, read only
@pkg        the files of the crew's package, read only
@state      the run of a crew's workflow: workflow.md, which the agent may write
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

PROJECT, PACKAGE, STATE = "@project", "@pkg", "@state"
WORKFLOW, OUTPUT = "@workflow", "@output"
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


class Places(NamedTuple):
    """The paths of a crew's folders on this machine. They need not exist yet."""

    project: Path
    package: Path
    state: Path

    @property
    def named(self) -> dict[str, Path]:
        """The folders by their names."""
        return {PROJECT: self.project, PACKAGE: self.package, STATE: self.state}

    @property
    def variables(self) -> dict[str, str]:
        """The variables by which commands find them: UWF_PROJECT, UWF_PKG and UWF_STATE."""
        return {variable(name): str(path) for name, path in self.named.items()}


def variable(name: str) -> str:
    """The variable by which commands find the folder of that name."""
    return f"UWF_{name.removeprefix('@').upper()}"


def named(path: str) -> str:
    """A path of a package with the folder's name in place of a placeholder."""
    first, slash, rest = path.partition("/")
    return PLACEHOLDERS.get(first, first) + slash + rest
