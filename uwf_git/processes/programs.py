"""Programs that uwf starts by itself, such as git, bwrap and temporal: found on PATH, but never where an agent may have
put one, below the working folder or its project. Agents, hooks and judges are the user's to name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path


def find_program(name: str, *folders: Path | None, environ: Mapping[str, str] | None = None) -> str | None:
    """Return the path of a program on the `trusted_path`, or None if it isn't there."""
    for folder in trusted_path(*folders, environ=environ).split(os.pathsep):
        path = os.path.join(folder, name)  # noqa: PTH118
        if folder and os.path.isfile(path) and os.access(path, os.X_OK):  # noqa: PTH113
            return path
    return None


def trusted_path(*folders: Path | None, environ: Mapping[str, str] | None = None) -> str:
    """Return PATH without relative entries, and without those in the projects of the working folder and `folders`."""
    path = (os.environ if environ is None else environ).get("PATH", os.defpath)
    projects = set(_projects(folders))
    entries = [entry for entry in path.split(os.pathsep) if os.path.isabs(entry)]  # noqa: PTH117
    return os.pathsep.join(
        entry for entry in entries if not any(reaches_into(Path(entry), each) for each in projects)
    )


def _projects(folders: tuple[Path | None, ...]) -> Iterator[Path]:
    """What may be written to by agents: the repository around each folder, or the folder itself. The home folder and
    those above it are no projects, whatever repository they are."""
    home = Path.home().resolve()
    for folder in (None, *folders):
        try:
            here = (folder or Path.cwd()).resolve()
        except FileNotFoundError:  # the working folder is gone, and nothing is in it
            continue
        around = next((each for each in (here, *here.parents) if os.path.lexists(each / ".git")), here)
        project = here if home.is_relative_to(around) else around
        if not home.is_relative_to(project):
            yield project


def reaches_into(path: Path, project: Path) -> bool:
    """Return whether a path is in a project, as it is written or where its links lead."""
    return Path(os.path.normpath(path)).is_relative_to(project) or path.resolve().is_relative_to(project)
