"""Finding programs that uwf starts by itself, such as git, bwrap and temporal, on PATH but never where an
agent may have put one: the working folder, threads' folders, and their projects. Agents, hooks and judges are
the user's choice."""

# ruff: noqa: PTH113, PTH114, PTH115, PTH117, PTH118, PTH120
# Each call of git searches, and paths as objects take several times as long as strings.

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path

_STARTED_BY_GIT = ("git", "ssh", "ssh-keygen", "gpg", "gpgsm", "sh")
_MOST_LINKS = 40  # as many as Linux follows
_LONGEST_POINTER = 8 * 1024
# `git rev-parse --local-env-vars`: set inside hooks and aliases, they would lead to another repository.
_LOCAL = (
    r"GIT_(ALTERNATE_OBJECT_DIRECTORIES|COMMON_DIR|CONFIG|DIR|GRAFT_FILE|IMPLICIT_WORK_TREE|INDEX_FILE"
    r"|INTERNAL_SUPER_PREFIX|NAMESPACE|OBJECT_DIRECTORY|PREFIX|QUARANTINE_PATH|REPLACE_REF_BASE|SHALLOW_FILE"
    r"|WORK_TREE|ATTR_SOURCE|(?:LITERAL|GLOB|NOGLOB|ICASE)_PATHSPECS)"
)
# Paths are compared as POSIX writes them; a drive of Windows is a folder of the root then.
_SUFFIX = ""
if sys.platform == "win32":
    _SUFFIX = ".exe"

    def _plain(path: str) -> str:
        return "/" + os.path.normcase(path).replace("\\", "/").lstrip("/")

    def _native(place: str) -> str:
        return place[1:] or "/"
else:
    _plain = _native = str

_folders: set[Path] = set()
_sources: dict[Path, Callable[[], Iterable[Path]]] = {}


def elsewhere(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without the variables that lead git to the repository of a surrounding hook or command."""
    return {
        name: value
        for name, value in environ.items()
        if not (name.startswith("GIT_") and re.fullmatch(_LOCAL, name))
    }


def avoid(folder: Path) -> None:
    """Never take programs from a folder's project in this process."""
    _folders.add(folder.absolute())


def avoid_all(key: Path, folders: Callable[[], Iterable[Path]]) -> None:
    """As `avoid`, for folders determined at each search. `key` identifies the source."""
    _sources[key] = folders


def find_program(name: str, *folders: Path | None, environ: Mapping[str, str] | None = None) -> str | None:
    """Return a program's path on the `trusted_path`, or None."""
    projects = _projects(folders)
    return _program(name, _entries(projects, environ), projects)


def trusted_path(*folders: Path | None, environ: Mapping[str, str] | None = None) -> str:
    """Return PATH without relative entries and entries in or linking through these projects."""
    projects = _projects(folders)
    return _trusted(_entries(projects, environ), projects)


def find_with_path(name: str, folder: Path | None) -> tuple[str | None, str]:
    """Return `find_program` and `trusted_path` for a folder, by one search."""
    projects = _projects((folder,))
    entries = list(_entries(projects, None))
    return _program(name, entries, projects), _trusted(entries, projects)


def _program(name: str, entries: Iterable[str], projects: Collection[str]) -> str | None:
    for folder in entries:
        path = os.path.join(folder, name + _SUFFIX)
        if os.path.isfile(path) and os.access(path, os.X_OK) and not _leads_into(path, projects):
            return path
    return None


def _trusted(entries: Iterable[str], projects: Collection[str]) -> str:
    return os.pathsep.join(
        entry
        for entry in entries
        if not any(
            os.path.islink(link) and _leads_into(link, projects)
            for link in (f"{entry}/{name}" for name in _STARTED_BY_GIT)
        )
    )


def reaches_into(path: Path, project: Path) -> bool:
    """Return whether an absolute path, or any link on its way, is in a project. The project's path has no
    links."""
    return _leads_into(str(path), {_plain(str(project))})


def _entries(projects: Collection[str], environ: Mapping[str, str] | None) -> Iterator[str]:
    path = (os.environ if environ is None else environ).get("PATH", os.defpath)
    for entry in path.split(os.pathsep):
        if os.path.isabs(entry) and not _leads_into(entry, projects):
            yield entry


def _leads_into(path: str, projects: Collection[str]) -> bool:
    return any(place in projects for place in _places(_plain(path)))


def _places(path: str) -> Iterator[str]:
    here, rest, links = "", path.split("/")[::-1], 0
    yield "/"
    while rest:
        part = rest.pop()
        if part in ("", "."):
            continue
        place = here.rpartition("/")[0] if part == ".." else f"{here}/{part}"
        yield place or "/"
        try:
            target = _plain_link(os.readlink(_native(place)))
        except (OSError, ValueError):
            here = place
            continue
        links += 1
        if links > _MOST_LINKS:
            return
        rest += target.split("/")[::-1]
        if target.startswith("/"):
            here = ""


def _plain_link(target: str) -> str:
    """Return where a link leads; a relative way stays one."""
    return _plain(target) if os.path.isabs(target) else target.replace(os.sep, "/")


def _projects(folders: Iterable[Path | None]) -> frozenset[str]:
    home = _plain(os.path.realpath(Path.home()))
    here = frozenset(folder.absolute() if folder else _working_folder() for folder in (None, *folders))
    avoided = frozenset(_folders).union(*(source() for source in _sources.values()))
    return _projects_of(here, home) | _projects_avoided(avoided, home)


def _working_folder() -> Path:
    try:
        return Path.cwd()
    except OSError:  # it is gone, and nothing is in it
        return Path("/")


def _projects_of(folders: Iterable[Path], home: str) -> frozenset[str]:
    homes, repositories, projects = {home, *_above(home)}, _Repositories(), set[str]()
    for folder in folders:
        here = _plain(os.path.realpath(folder))
        around = repositories.around(here) - homes
        projects |= around or {here} - homes
    return frozenset(projects)


_projects_avoided = lru_cache(maxsize=8)(_projects_of)


class _Repositories(dict[str, frozenset[str]]):
    """The checkouts with a `.git` in a folder: the folder itself, and a worktree's main one."""

    def around(self, folder: str) -> frozenset[str]:
        return frozenset().union(*(self[item] for item in (folder, *_above(folder))))

    def __missing__(self, folder: str) -> frozenset[str]:
        self[folder] = frozenset()  # cycles end here
        pointer = f"{folder}/.git"
        if os.path.lexists(_native(pointer)):
            main = _main(pointer)
            self[folder] = frozenset((folder, *((main, *self.around(main)) if main else ())))
        return self[folder]


def _above(folder: str) -> Iterator[str]:
    while folder != "/":
        folder = folder.rpartition("/")[0] or "/"
        yield folder


def _main(pointer: str) -> str | None:
    pointer = _native(pointer)
    git_dir = _line(pointer).removeprefix("gitdir:").strip()
    if not git_dir:
        return None
    folder = os.path.join(os.path.dirname(pointer), git_dir)
    try:
        common = _plain(os.path.realpath(os.path.join(folder, _line(f"{folder}/commondir") or ".")))
    except ValueError:  # no path
        return None
    within, _, name = common.rpartition("/uwf-worktrees/")  # the git directory of a thread's worktree
    return (within if name and "/" not in name else common).removesuffix("/.git") or None


def _line(path: str) -> str:
    try:
        if not os.path.isfile(path):  # a pipe would be waited for
            return ""
        with open(path, "rb") as file:
            return os.fsdecode(file.read(_LONGEST_POINTER)).strip()
    except (OSError, ValueError):
        return ""
