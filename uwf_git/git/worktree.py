"""Git folders of a worktree or submodule that are outside of it. A `.git` file can name any folder, so it
counts only if its repository names the worktree in turn.

The worktree of a thread has a git directory of its own, `uwf-worktrees/<ULID>` in that of its project."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from uwf_git.git.libgit2 import Config, GitError


def folders_beside(project: Path) -> Iterator[Path]:
    """Yield git's folders of a worktree or submodule, outside of the project."""
    link = project / ".git"
    try:
        if not link.is_file() or not (text := _line(link)).startswith("gitdir: "):
            return
        folder = (project / text.removeprefix("gitdir: ")).resolve(strict=True)
        common = folder / "commondir"
        shared = (folder / _line(common)).resolve(strict=True) if common.exists() else folder
        if any(path.is_relative_to(project) or project.is_relative_to(path) for path in (folder, shared)):
            return
        owner = project_of(folder)
        if owner != folder:
            shared = owner / "objects"
            trusted = _is_same(folder, _line(folder / "gitdir"), link)
        elif shared == folder:
            trusted = _names_worktree(folder, project)
        else:
            trusted = folder.parent == shared / "worktrees" and _is_same(
                folder, _line(folder / "gitdir"), link
            )
        place = owner if owner != folder else shared
        if trusted and (place / "HEAD").is_file() and (place / "objects").is_dir():
            yield from dict.fromkeys((shared, folder))
    except (OSError, ValueError, RuntimeError):
        return


def of_threads(common: Path) -> Path:
    """Return the folder for the git directories of threads' worktrees in that of their project."""
    return common / "uwf-worktrees"


def project_of(git_dir: Path) -> Path:
    """Return the git directory of the project if this is that of a thread's worktree, else itself."""
    common = git_dir.parent.parent
    return common if git_dir.parent == of_threads(common) else git_dir


def _names_worktree(folder: Path, project: Path) -> bool:
    try:
        named = Config(str(folder / "config")).value("core.worktree")
    except GitError:
        return False
    return named is not None and named != "" and _is_same(folder, named, project)


def _is_same(folder: Path, named: str, expected: Path) -> bool:
    return (folder / named).resolve() == expected.resolve()


def _line(path: Path) -> str:
    with path.open(encoding="utf-8") as file:
        return file.read(10_000).strip()
