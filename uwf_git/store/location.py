"""The storage root and the store's repository. Decided once; agents get the result in their environment.

root     --root > UWF_STORAGE_ROOT > UNCAGED_WORKFLOW_STORAGE_ROOT > WORKFLOW_STORAGE_ROOT
         > ~/.uncaged/workflow; holds config.yaml and .env
store    <root>/store.git, unless none of the first four is set and the current folder is
         inside a repository that `uwf init --here` enabled
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from uwf_git.base.errors import Invalid, NotFound, StoreGone
from uwf_git.git.fsync import ASIDE
from uwf_git.git.repository import PRIVATE, Repository
from uwf_git.git.worktree import project_of
from uwf_git.store.private_files import write_private

ROOT_VARIABLES = ("UWF_STORAGE_ROOT", "UNCAGED_WORKFLOW_STORAGE_ROOT", "WORKFLOW_STORAGE_ROOT")
"""Name the storage root; the first that is set counts."""
STORE_VARIABLE = "UWF_STORE"
ALLOWED = "allowed"
"""The folder of the storage root with the set-ups of projects that the user has allowed; see `setups`."""
FORMAT = "1"
CEILINGS = "GIT_CEILING_DIRECTORIES"


class Location(NamedTuple):
    """The storage root, the store's git directory, and whether that belongs to a project."""

    root: Path
    git_dir: Path
    here: bool = False

    def environment(self) -> dict[str, str]:
        """The variables that give a child process the same location."""
        return {"UWF_STORAGE_ROOT": str(self.root), STORE_VARIABLE: str(self.git_dir)}


def locate(root: str | None, environ: Mapping[str, str], cwd: Path) -> Location:
    """Return the location for options, environment and current folder. Creates nothing."""
    if root:
        chosen = Path(root).expanduser().absolute()
        return Location(chosen, chosen / "store.git")
    named = next((environ[name] for name in ROOT_VARIABLES if environ.get(name)), None)
    if named:
        chosen = Path(named).expanduser().absolute()
        handed = environ.get(STORE_VARIABLE)
        git_dir = Path(handed) if handed else chosen / "store.git"
        return Location(chosen, git_dir, here=bool(handed) and git_dir != chosen / "store.git")
    home = Path(environ.get("HOME") or Path("~").expanduser())
    chosen = home / ".uncaged" / "workflow"
    enclosing = enclosing_repository(cwd)
    if enclosing is not None and is_enabled(enclosing):
        return Location(chosen, enclosing, here=True)
    return Location(chosen, chosen / "store.git")


def ceilings(root: Path) -> str:
    """Return GIT_CEILING_DIRECTORIES for agents: one that has removed the .git of its worktree reaches no repository
    above."""
    return os.pathsep.join(filter(None, (os.environ.get(CEILINGS, ""), str(root / "workspaces"))))


def searched_folders(folder: Path) -> Iterator[Path]:
    """Yield a folder and its parents up to GIT_CEILING_DIRECTORIES, as git searches for a repository."""
    named = os.environ.get(CEILINGS, "").split(os.pathsep)
    ceilings = {path for item in named if item for path in (Path(item), Path(item).resolve())}
    yield folder
    for parent in folder.parents:
        if parent in ceilings:
            return
        yield parent


def enclosing_repository(folder: Path) -> Path | None:
    """Return the git directory around a folder; for a worktree, the main repository's."""
    for parent in searched_folders(folder):
        pointer = parent / ".git"
        if pointer.is_dir():
            # As for git, a folder of that name is not enough.
            if os.path.lexists(pointer / "HEAD"):
                return pointer
            continue
        if pointer.is_file():
            text = pointer.read_text(encoding="utf-8", errors="replace").strip()
            if text.startswith("gitdir:"):
                git_dir = (parent / text.removeprefix("gitdir:").strip()).resolve()
                common = git_dir / "commondir"
                if not common.is_file():
                    return project_of(git_dir)
                return (git_dir / common.read_text().strip()).resolve()
    return None


class Checkout(NamedTuple):
    """A working tree: its folder, its git directory and the repository's. In a bare repository `top` is None."""

    top: Path | None
    git_dir: Path
    common: Path


def checkout_around(folder: Path) -> Checkout | None:
    """Return the checkout around a folder, or the bare repository in which it is."""
    for parent in searched_folders(folder.absolute()):
        if not os.path.lexists(f"{parent}/.git") and not os.path.lexists(f"{parent}/HEAD"):
            continue
        pointer = parent / ".git"
        if pointer.is_dir() and os.path.lexists(pointer / "HEAD"):
            return Checkout(parent, pointer, pointer)
        if pointer.is_file():
            text = first_line(pointer)
            if text.startswith("gitdir:"):
                git_dir = (parent / text.removeprefix("gitdir:").strip()).resolve()
                common = project_of((git_dir / first_line(git_dir / "commondir")).resolve())
                return Checkout(parent, git_dir, common) if (common / "HEAD").is_file() else None
        if (parent / "HEAD").is_file() and (parent / "objects").is_dir() and (parent / "refs").is_dir():
            return Checkout(None, parent, parent)
    return None


def first_line(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return os.fsdecode(file.read(8192)).strip()
    except OSError:
        return ""


def is_enabled(git_dir: Path) -> bool:
    """Return whether a repository has a store."""
    return (git_dir / PRIVATE / "format").is_file()


def enable(repository: Repository) -> None:
    """Mark a repository as a store: `format` in the private folder is the layout's version."""
    marker = repository.private / "format"
    if not marker.exists() or not marker.stat().st_size:
        write_private(marker, f"{FORMAT}\n".encode("ascii"), synced=True)


def check_format(git_dir: Path) -> None:
    """Raise NotFound without a store, StoreGone if one with threads stood there, Invalid if a later version made it."""
    marker = git_dir / PRIVATE / "format"
    if not git_dir.is_dir():
        from uwf_git.store.witness import IF_RIGHT, removed_store

        if gone := removed_store(git_dir, os.environ):
            raise StoreGone(f"no store at {git_dir}: {gone}", IF_RIGHT)
        raise NotFound(f"no store at {git_dir}", "make one with: uwf init")
    if not marker.is_file():
        return
    version = marker.read_text(encoding="utf-8", errors="replace").strip()
    if version and version != FORMAT:  # an empty one was left by a power cut
        raise Invalid(
            f"store {git_dir} has format {version[:20]!r}, this uwf knows {FORMAT}", "upgrade uwf-git"
        )


def init(location: Location) -> Repository:
    """Create and mark the store's repository if needed."""
    repository = Repository(location.git_dir) if location.here else Repository.create(location.git_dir)
    check_format(location.git_dir)
    is_new = not is_enabled(location.git_dir) and not repository.refs()
    enable(repository)
    if is_new:
        from uwf_git.store.witness import Witness

        Witness(repository, location.here, os.environ, named=location.git_dir).born()
    return repository


def abandon(location: Location) -> None:
    """Delete a root's new store, unless it has refs or cannot be deleted."""
    import shutil

    aside = location.git_dir.with_name(f"{location.git_dir.name}.{os.urandom(4).hex()}{ASIDE}")
    with contextlib.suppress(OSError):
        location.git_dir.rename(aside)  # from here on no other process starts anything in it
        if Repository(aside).refs():
            aside.rename(location.git_dir)
        shutil.rmtree(aside, ignore_errors=True)
