"""The project of a thread: the git repository in which it was started.

A repository is known by its mark, a random number that moves with it, and by its first commit, which its clones share:

    <git directory>/uwf-project   the mark; then the first commits that the repository had when a thread was started
    <private folder>/projects/    a file for each mark of this machine: where the repository is, and its remotes; and
                                  for each definition the labels of the projects that registered it: workflows/NAME

The start of a thread names both, and steps, branches and calls inherit them: see `CommitRow.project`. So a thread is at
home in its repository whatever becomes of its first commit, and in the clones of it. First commits alone don't tell a
clone from the copy of a template. Of two repositories of this machine with the same one, the threads of one belong to
the other only if it has the one as a remote, or the one's origin; a fork is such a copy until it has. So is a copied
folder (`cp -r`), though it has the mark: the note says where the original is, and the copy's first thread begins a mark
of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from uwf_git.base.errors import UwfError
from uwf_git.base.text import one_line
from uwf_git.store.location import enclosing_repository, is_enabled, searched_folders
from uwf_git.store.private_files import content_of, read_private, write_private

if TYPE_CHECKING:
    from uwf_git.store.history import Head

FILE = "uwf-project"
_MARK = r"[0-9a-f]{32}"
_COMMIT = r"[0-9a-f]{40}(?:[0-9a-f]{24})?"
_MOST = 100  # first commits that a repository may have had
_SCHEME = r"(?i)[a-z][a-z0-9+.-]*://(?:[^/@]*@)?"
_SCP = r"(?:[^/@:]+@)?([^/:]+):(?!/)"


class Project(NamedTuple):
    """A project: the mark of the repository, its first commit, "" if it had none, and the name of its
    folder."""

    mark: str
    first: str
    name: str

    @property
    def label(self) -> str:
        """The text of a start's trailer."""
        return f"{self.mark} {self.first or '-'} {self.name}"

    @property
    def id(self) -> str:
        return self.first or self.mark


def parse_label(text: str) -> Project | None:
    """The inverse of `Project.label`; None if it is none."""
    mark, _, rest = text.partition(" ")
    first, _, name = rest.partition(" ")
    first = "" if first == "-" else first
    if (
        not re.fullmatch(_MARK, mark)
        or (first and not re.fullmatch(_COMMIT, first))
        or name != _folder_name(name)
    ):
        return None
    return Project(mark, first, name)


def _folder_name(name: str) -> str:
    return one_line(name, 60).strip() or "project"


class Repository:
    """A user's repository, by its git directory."""

    def __init__(self, common: Path) -> None:
        self.common = common

    @property
    def name(self) -> str:
        inside = self.common.name.startswith(".")
        return _folder_name(self.common.parent.name if inside else self.common.name.removesuffix(".git"))

    @cached_property
    def first_commit(self) -> str:
        """The first commit on the first parents of HEAD, or of any branch if HEAD has none; "" without one and in a
        shallow clone, which doesn't have it."""
        if (self.common / "shallow").exists():
            return ""
        for start in ("HEAD", "--branches"):
            if lines := self._lines("rev-list", "--max-parents=0", "--first-parent", start, "--"):
                return lines[-1]
        return ""

    @cached_property
    def noted(self) -> tuple[str, list[str]]:
        """The mark, "" if it has none, and the first commits that it has had."""
        mark, *rest = content_of(self.common / FILE).decode("ascii", "replace").split("\n")[: _MOST + 1]
        if re.fullmatch(_MARK, mark):
            return mark, [line for line in rest if re.fullmatch(_COMMIT, line)]
        return "", []

    @cached_property
    def addresses(self) -> list[str]:
        """The addresses by which other repositories may know it: its folder, origin (or the only remote), the other
        remotes; the second is "" without remotes."""
        listed = (line.partition(" ") for line in self._lines("config", "--get-regexp", r"^remote\..*\.url$"))
        named = {name.removeprefix("remote.").removesuffix(".url"): _address(url) for name, _, url in listed}
        own = named.pop("origin", next(iter(named.values())) if len(named) == 1 else "")
        return [_address(str(self.common)), own, *named.values()]

    def _lines(self, *args: str) -> list[str]:
        with contextlib.suppress(UwfError, OSError):
            from uwf_git.git.program import Git

            done = Git(self.common).run(*args, check=False)
            return os.fsdecode(done.out).splitlines() if done.code == 0 else []
        return []

    def begin(self, is_copy: bool = False) -> Project | None:
        """Return the project of a new thread, None if it cannot be marked. Writes the mark, another one in a copy."""
        mark, before = self.noted
        first = self.first_commit
        mark = "" if is_copy else mark
        if not mark or (first and first not in before):
            mark = mark or os.urandom(16).hex()
            lines = [mark, *([first] if first else []), *before]
            with contextlib.suppress(UwfError):
                write_private(self.common / FILE, "".join(f"{line}\n" for line in lines).encode("ascii"))
                return Project(mark, first, self.name)
            return None
        return Project(mark, first, self.name)


def repository_at(folder: Path) -> Repository | None:
    """Return the repository around a folder, which may be a bare one; None outside of any, and in a store."""
    with contextlib.suppress(OSError):
        folder = folder.absolute()
        if (common := enclosing_repository(folder) or _bare_repository(folder)) is not None:
            return Repository(common)
    return None


def _bare_repository(folder: Path) -> Path | None:
    for parent in searched_folders(folder):
        if (parent / "HEAD").is_file() and (parent / "objects").is_dir() and (parent / "refs").is_dir():
            return None if is_enabled(parent) else parent
    return None


def _address(url: str) -> str:
    """Return an address without what differs between ways to the same repository."""
    from uwf_git.store.remotes import without_password

    bare = re.sub(_SCP, r"\1/", re.sub(_SCHEME, "", without_password(url)), count=1)
    return bare.rstrip("/").removesuffix(".git").rstrip("/")


def are_related(one: Sequence[str], other: Sequence[str]) -> bool:
    """Return whether one repository knows the other's folder or origin as its own or as a remote."""
    return not {*filter(None, one[:2])}.isdisjoint(other) or not {*filter(None, other[:2])}.isdisjoint(one)


class Projects:
    """The projects of a store's threads. `here` is the repository whose threads are meant if none is named, None for
    all threads."""

    def __init__(self, private: Path) -> None:
        self._private = private
        self.here: Repository | None = None
        self._is_here: dict[Project, bool] = {}

    @property
    def mark_here(self) -> str:
        """The mark of `here`, "" if it has none of its own."""
        return self.here.noted[0] if self.here is not None and not self.is_copy(self.here) else ""

    def label_at(self, folder: Path) -> str:
        """Return the label of a thread that is started in a folder, "" outside of a repository. Marks the
        repository, and notes it."""
        repository = repository_at(folder)
        return self._label(repository) if repository is not None else ""

    def begin(self, repository: Repository) -> Project | None:
        """Return the project of a new thread, None if it cannot be marked. Marks the repository, and notes it if there
        is a store."""
        project = repository.begin(self.is_copy(repository))
        if project is not None and self._private.is_dir():
            self._note(project.mark, repository)
        return project

    def _label(self, repository: Repository) -> str:
        project = self.begin(repository)
        return project.label if project is not None else ""

    def label_of(self, head: Head) -> str:
        """Return the label of a thread that another one starts."""
        project = self.of(head)
        return project.label if project is not None else ""

    def of(self, head: Head) -> Project | None:
        """Return a thread's project, None for one that was started outside of any."""
        return parse_label(head.row.project or "")

    def is_here(self, head: Head) -> bool:
        """Return whether a thread is meant if none is named."""
        if self.here is None:
            return True
        if (project := self.of(head)) is None:
            return False
        if project not in self._is_here:
            self._is_here[project] = self.belongs(project, self.here)
        return self._is_here[project]

    def belongs(self, project: Project, here: Repository) -> bool:
        """Return whether a project is that of a repository, or of another clone of it."""
        mark, before = here.noted
        if mark and project.mark == mark and not self.is_copy(here):
            return True
        if not project.first or project.first not in (here.first_commit, *before):
            return False
        known = self._addresses(project.mark)  # of another machine nothing is known
        return not known or are_related(known, here.addresses)

    def is_copy(self, repository: Repository) -> bool:
        """Return whether the mark is that of another repository, of which this one is a copied folder."""
        mark = repository.noted[0]
        original, _ = self._noted(mark)
        if original is None or original.common == repository.common or original.noted[0] != mark:
            return False
        with contextlib.suppress(OSError):
            return not original.common.samefile(repository.common)
        return False

    def repository(self, mark: str) -> Repository | None:
        """Return the repository that has a mark, None if it isn't where it was last."""
        repository, _ = self._noted(mark)
        with contextlib.suppress(OSError):
            return repository if repository is not None and repository.noted[0] == mark else None
        return None

    def _addresses(self, mark: str) -> list[str]:
        repository, addresses = self._noted(mark)
        return addresses if repository is None or repository.noted[0] != mark else repository.addresses

    def _noted(self, mark: str) -> tuple[Repository | None, list[str]]:
        """Return where a mark's repository was last, and its addresses then; None and none if nothing is noted."""
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError, RecursionError):
            if mark:
                note = json.loads(read_private(self._private / "projects" / mark))
                return Repository(Path(str(note["folder"]))), [str(address) for address in note["addresses"]]
        return None, []

    def _note(self, mark: str, repository: Repository) -> None:
        value = {"folder": str(repository.common), "addresses": repository.addresses}
        data, path = json.dumps(value).encode("ascii"), self._private / "projects" / mark
        with contextlib.suppress(UwfError):
            if content_of(path) != data:
                write_private(path, data)

    def note_definition(self, ref: str) -> None:
        """Note that a definition was registered in the project."""
        if self.here is None or (label := self._label(self.here)) in (known := self._labels(ref)):
            return
        with contextlib.suppress(UwfError):
            write_private(self._of_definition(ref), "".join(f"{item}\n" for item in (*known, label)).encode())

    def has_definition(self, ref: str) -> bool:
        """Return whether a definition was registered in the project."""
        here = self.here
        projects = (parse_label(label) for label in self._labels(ref))
        return here is None or any(
            project is not None and self.belongs(project, here) for project in projects
        )

    def _labels(self, ref: str) -> list[str]:
        return content_of(self._of_definition(ref)).decode("utf-8", "replace").splitlines()

    def _of_definition(self, ref: str) -> Path:
        return self._private / "projects" / ref.removeprefix("refs/uwf/")
