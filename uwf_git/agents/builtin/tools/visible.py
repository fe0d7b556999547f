"""What of the machine a command sees beside the system's own: toolchains, and git's folder of a worktree.

It is decided once, when the tools are made, and from what no command can write: the user's PATH, folders
outside of the project. What stands in the project may have been written by a model, in this step or in an
earlier one, so nothing in there widens it: the Python of a virtual environment is shown only where it is an
installation of Python, and a repository only where it says itself that the project is its worktree.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

# Of an installation, what programs need: beside these there may be anybody's files, as in ~/.local.
_PARTS = ("bin", "include", "lib", "lib32", "lib64", "libexec", "pyvenv.cfg", "conda-meta", "ssl")
_NO_PROGRAMS = ("/", "/dev", "/etc", "/home", "/proc", "/root", "/run", "/sys", "/tmp", "/var", "/var/tmp")
_INSTALLED = (
    "pyvenv.cfg",
    "conda-meta",
    "lib/node_modules",
)  # marks of a folder that holds a bin/ of its own
_ENVIRONMENTS = (".venv", "venv")


class Visible(NamedTuple):
    """Folders and files that a command can read: `toolchains`, where they are there, and `git`."""

    toolchains: tuple[Path, ...] = ()
    git: tuple[Path, ...] = ()


def visible(project: Path, path: str, system: tuple[str, ...]) -> Visible:
    """What commands in a project see, which is free of symbolic links, under a PATH. `system` are the
    folders that they see anyway."""
    return Visible(tuple(_toolchains(project, path, system)), tuple(_git_beside(project)))


def outside(path: str, project: Path) -> str:
    """A PATH without the folders that a command could have put programs into."""
    entries = (Path(entry) for entry in path.split(os.pathsep) if entry.startswith("/"))
    return os.pathsep.join(str(entry) for entry in entries if not _reaches_into(entry, project))


def _reaches_into(path: Path, project: Path) -> bool:
    normal = Path(os.path.normpath(path))
    return normal.is_relative_to(project) or path.resolve().is_relative_to(project)


def _toolchains(project: Path, path: str, system: tuple[str, ...]) -> Iterator[Path]:
    home = Path.home().resolve()
    seen: set[Path] = set()
    entries = [Path(entry) for entry in path.split(os.pathsep) if entry.startswith("/")]
    mine = [entry for entry in entries if _reaches_into(entry, project)]
    found = [
        *(folder for entry in entries if entry not in mine for folder in _around(entry, home)),
        *(folder for entry in mine if entry.name == "bin" for folder in _python_of(entry.parent, home)),
        *(folder for name in _ENVIRONMENTS for folder in _python_of(project / name, home)),
    ]
    for folder in found:
        real = folder.resolve()
        inside = _reaches_into(folder, project) or any(real.is_relative_to(name) for name in system)
        around = home.is_relative_to(real) or project.is_relative_to(real) or str(real) in _NO_PROGRAMS
        if folder not in seen and not inside and not around and real.exists():
            seen.add(folder)
            yield folder


def _around(entry: Path, home: Path) -> Iterator[Path]:
    """A folder of PATH, and what an environment or a version manager has around it."""
    yield entry
    prefix = entry.parent
    if entry.name == "bin" and prefix != home:
        if any((prefix / mark).exists() for mark in _INSTALLED) or any(prefix.glob("lib/python3*")):
            yield from (prefix / part for part in _PARTS)
        if prefix.name == ".cargo":
            yield home / ".rustup"
        if (prefix / "pyvenv.cfg").exists():
            yield from _python_of(prefix, home)
    elif entry.name == "shims":
        yield prefix  # of pyenv, rbenv, asdf: the versions stand beside it


def _python_of(environment: Path, home: Path) -> Iterator[Path]:
    """The Python that a virtual environment was made with."""
    try:
        program = (environment / "bin" / "python").resolve(strict=True)
    except (OSError, RuntimeError):
        return
    base = program.parent.parent
    if program.parent.name != "bin" or not program.name.startswith("python") or home.is_relative_to(base):
        return
    if not any(base.glob("lib*/python3*/os.py")):
        return
    # The way there may lead through a folder that has the version's short name, as uv's do.
    named = _home_of(environment / "pyvenv.cfg")
    for folder in dict.fromkeys((base, *([named] if named is not None and named.resolve() == base else []))):
        yield from (folder / part for part in _PARTS)


def _home_of(configuration: Path) -> Path | None:
    try:
        lines = configuration.read_text(encoding="utf-8", errors="replace")[:10_000].splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, value = line.partition("=")
        if name.strip() == "home" and value.strip().startswith("/"):
            return Path(value.strip()).parent
    return None


def _git_beside(project: Path) -> Iterator[Path]:
    """Git's folders of a worktree or a submodule, which stand elsewhere."""
    link = project / ".git"
    try:
        if not link.is_file() or not (text := _line(link)).startswith("gitdir: "):
            return
        folder = (project / text.removeprefix("gitdir: ")).resolve(strict=True)
        common = folder / "commondir"
        shared = (folder / _line(common)).resolve(strict=True) if common.exists() else folder
        if any(each.is_relative_to(project) or project.is_relative_to(each) for each in (folder, shared)):
            return
        if shared == folder:
            trusted = _names_worktree(folder, project)
        else:
            trusted = folder.parent == shared / "worktrees" and _is_same(
                folder, _line(folder / "gitdir"), link
            )
        if trusted and (shared / "HEAD").is_file() and (shared / "objects").is_dir():
            yield from dict.fromkeys((shared, folder))
    except (OSError, ValueError, RuntimeError):
        return


def _names_worktree(folder: Path, project: Path) -> bool:
    """Whether the configuration of a repository names the project, as that of a submodule does."""
    import pygit2

    try:
        named = pygit2.Config(str(folder / "config"))["core.worktree"]
    except (KeyError, pygit2.GitError):
        return False
    return named is not None and _is_same(folder, named, project)


def _is_same(folder: Path, named: str, expected: Path) -> bool:
    return (folder / named).resolve() == expected.resolve()


def _line(path: Path) -> str:
    with path.open(encoding="utf-8") as file:
        return file.read(10_000).strip()
