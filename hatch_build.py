"""What pyproject.toml can't say about a build: the commands that are installed, `uwf` and one for each agent of the
registry, and the man pages and completions of the wheel, which are made from the commands."""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

ROOT = Path(__file__).parent
sys.path[:0] = [str(ROOT), str(ROOT / "cli")]


class Commands(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        from uwf_git.base.extensions import agent_programs

        agents = {program.name: f"{program.module}:main" for program in agent_programs()}
        metadata["scripts"] = {"uwf": "uwf_cli.main:main", **agents}


class SharedFiles(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        sys.path.append(str(ROOT / "docs/reference/commands"))
        from shared_files import write

        self._folder = TemporaryDirectory()
        for path in write(Path(self._folder.name)):
            build_data["shared_data"][str(path)] = str(path.relative_to(self._folder.name))

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if version != "editable":
            self._folder.cleanup()


def get_metadata_hook() -> type[MetadataHookInterface]:
    return Commands


def get_build_hook() -> type[BuildHookInterface]:
    return SharedFiles
