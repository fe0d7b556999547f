"""The set-ups of projects: what a repository's `.uwf` has, and what the user has allowed of it.

    <checkout>/.uwf/               config.yaml, workflows/…; texts of at most 1 MB, no links
    <storage root>/allowed/<mark>  of each project, by its mark: the texts that were allowed last, and the digests of
                                   those before

Only texts that the user has seen count: those of the record, which are kept with it, or those of a checkout that have
the digest of one. So no change of a file, by an agent, a `git checkout` or a race, means anything until it is allowed.
The record lies beside the user's own settings, which has the same say; a store in a project's repository has none.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from uwf_git.base import system
from uwf_git.base.errors import Invalid, NotFound, StoreUnwritable
from uwf_git.base.text import one_line
from uwf_git.config.project import FOLDER, SETTINGS
from uwf_git.config.settings import FILE
from uwf_git.git.objects import stands_for_git
from uwf_git.git.refs import PRIVATE
from uwf_git.sandbox.path import FILE as FILE_FLAGS
from uwf_git.sandbox.path import opened
from uwf_git.store.location import ALLOWED, checkout_around
from uwf_git.store.private_files import content_of, write_private
from uwf_git.store.projects import Project, Projects, Repository, are_related, parse_label, repository_at

if TYPE_CHECKING:
    from uwf_git.config.project import ProjectSettings
    from uwf_git.config.settings import Config
    from uwf_git.store.location import Checkout, Location

HINT = "uwf allow"
_ELSE = ", and what you allowed goes on"
_YAML = ".yaml", ".yml"
_MOST_FILES, _MOST_BYTES, _DEEPEST = 100, 1 << 20, 4
_REMEMBERED = 100  # digests of earlier set-ups

Files = Mapping[str, str]
"""The texts of a set-up, by their paths below `.uwf`."""


def digest_of(files: Files) -> str:
    """Return the SHA-256 of a set-up, hexadecimal."""
    content = json.dumps(sorted(files.items()), ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(content.encode("ascii")).hexdigest()


class Setup(NamedTuple):
    """The set-up of a project, as it was read. `before` has the digests of those that were allowed earlier."""

    files: Files
    digest: str
    at: int = 0
    before: tuple[str, ...] = ()

    @classmethod
    def of(cls, files: Files) -> Setup:
        return cls(files, digest_of(files))

    @property
    def has_settings(self) -> bool:
        """Whether it has more than workflows, which are data."""
        return FILE in self.files

    def has_workflow(self, name: str) -> bool:
        return any(file in self.files for file in (f"workflows/{name}.yaml", f"workflows/{name}.yml"))

    def settings(self) -> ProjectSettings:
        """Return the settings. Raises Invalid."""
        from uwf_git.config.project import parse_settings

        return parse_settings(self.files.get(FILE, "").encode())


def read_setup(checkout: Checkout | None) -> Setup | None:
    """Read the set-up of a checkout, None if it has none. Nothing is followed that leads elsewhere. Raises Invalid for
    anything but texts."""
    if checkout is None or checkout.top is None or not os.path.lexists(checkout.top / FOLDER):
        return None
    files: dict[str, str] = {}
    try:
        with opened(checkout.top / FOLDER) as descriptor:
            _read_folder(descriptor, "", files)
    except OSError as error:
        raise _refused(FOLDER, "is no folder of its own", error) from None
    return Setup.of(files) if files else None


def _read_folder(descriptor: int, inside: str, files: dict[str, str]) -> None:
    with os.scandir(descriptor) as entries:
        names = sorted(entry.name for entry in islice(entries, _MOST_FILES + 1))
    if len(names) > _MOST_FILES:
        raise _too_large()
    folded = Counter(map(str.casefold, names))
    if twins := [name for name, count in folded.items() if count > 1]:
        raise _refused(f"{FOLDER}/{inside}{min(twins)}", "differs from another name by capitals alone")
    for name in names:
        path = f"{FOLDER}/{inside}{name}"
        if not name.isprintable() or "\\" in name:
            raise _refused(path, "has a name that cannot be shown")
        if stands_for_git(name):
            raise _refused(path, "is git's: a submodule, or a repository")
        try:
            if stat.S_ISDIR(os.lstat(name, dir_fd=descriptor).st_mode):
                if inside.count("/") >= _DEEPEST:
                    raise _refused(path, "is too deep")
                with opened(name, descriptor) as inner:
                    _read_folder(inner, f"{inside}{name}/", files)
            else:
                files[f"{inside}{name}"] = _read_file(descriptor, name, path)
        except OSError as error:
            raise _refused(path, "is no file of its own", error) from None
        if len(files) > _MOST_FILES or sum(map(len, files.values())) > _MOST_BYTES:
            raise _too_large()


def _read_file(folder: int, name: str, path: str) -> str:
    descriptor = system.open_file(name, FILE_FLAGS, dir_fd=folder)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _refused(path, "is no file")
        data = b""
        while len(data) <= _MOST_BYTES and (chunk := os.read(descriptor, 1 << 16)):
            data += chunk
    finally:
        os.close(descriptor)
    if len(data) > _MOST_BYTES:
        raise _refused(path, f"is larger than {_MOST_BYTES >> 20} MiB")
    if name.endswith(_YAML):
        data = data.replace(b"\r\n", b"\n")  # a checkout of Windows may have these, and they mean the same
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise _refused(path, "is no text") from None


def _too_large() -> Invalid:
    return _refused(FOLDER, f"has over {_MOST_FILES} files, or over {_MOST_BYTES >> 20} MiB")


def _refused(path: str, why: str, error: OSError | None = None) -> Invalid:
    more = f": {error.strerror}" if error is not None else ""
    return Invalid(f"{one_line(path, 200)} {why}{more}", "a set-up has plain texts alone: remove it")


class Setups:
    """The set-ups that the user has allowed, of a storage root. `private` is the store's folder that knows projects."""

    def __init__(self, root: Path, private: Path) -> None:
        self._folder = root / ALLOWED
        self._projects = Projects(private)
        self._related_marks: tuple[int, dict[str, str]] = -1, {}
        self._read: dict[str, tuple[bytes, Setup | None]] = {}

    @classmethod
    def of_location(cls, location: Location) -> Setups:
        return cls(location.root, location.git_dir / PRIVATE)

    @property
    def any(self) -> bool:
        """Whether anything was ever allowed here: otherwise nobody has to ask further."""
        return self._folder.is_dir()

    def of_label(self, label: str | None) -> Setup | None:
        """Return the allowed set-up of a thread's project, by the label that its start has: in the repository in which
        it was started what `at` returns there."""
        if not label or not self.any or (project := parse_label(label)) is None:
            return None
        if (started_in := self._projects.repository(project.mark)) is not None:
            return self._of(started_in)
        mark = project.mark if self._recorded(project.mark) is not None else self._related(project)
        repository = self._repository(mark) if mark else None
        is_there = repository is not None and repository.common.is_dir()
        return (self._of(repository) if repository is not None and is_there else None) or self._recorded(mark)

    def at(self, folder: Path) -> Setup | None:
        """Return the allowed set-up of the project around a folder."""
        repository = repository_at(folder)
        return self._of(repository) if repository is not None else None

    def state_at(self, folder: Path) -> SetupState:
        """Return what a checkout has, and what of it is allowed. If that was allowed before, as on another branch, it
        counts again. Raises Invalid, StoreUnwritable."""
        here, allowed = read_setup(checkout_around(folder)), self.at(folder)
        if here is not None and allowed is not None and here.digest in allowed.before:
            allowed = self.allow(folder, here)
        return SetupState(here, allowed)

    def allow(self, folder: Path, setup: Setup) -> Setup:
        """Record that the user allows a set-up, for the project around a folder. Raises NotFound, StoreUnwritable."""
        repository = repository_at(folder)
        project = self._projects.begin(repository) if repository is not None else None
        if repository is None or project is None:
            raise NotFound(f"{folder} is in no git repository that a set-up can belong to", "git init")
        old = self._of(repository)
        before = dict.fromkeys((old.digest, *old.before)) if old is not None else {}
        before.pop(setup.digest, None)
        digests = tuple(before)[:_REMEMBERED]
        allowed = setup._replace(at=time.time_ns(), before=digests)
        note = {
            "project": project.label,
            "folder": str(repository.common),
            "addresses": repository.addresses,
            "at": allowed.at,
            "digest": allowed.digest,
            "before": list(digests),
            "files": dict(setup.files),
        }
        data = json.dumps(note, indent=1, sort_keys=True, ensure_ascii=False).encode()
        failure = "cannot remember that the set-up is allowed"
        write_private(self._folder / project.mark, data, failure, synced=True, mode=0o600, shared=False)
        return allowed

    def revoke(self, folder: Path) -> Setup | None:
        """Forget what was allowed for a project; return it. Raises StoreUnwritable."""
        repository = repository_at(folder)
        old = self._of(repository) if repository is not None else None
        if repository is None or old is None:
            return None
        for mark in [*self._marks_of(repository)]:
            try:
                (self._folder / mark).unlink(missing_ok=True)
            except OSError as error:
                raise StoreUnwritable(f"cannot forget it: {error}", "check permissions") from None
        return old

    def _of(self, repository: Repository) -> Setup | None:
        """Return the set-up that was allowed last for a repository and its clones here."""
        setups = [setup for mark in self._marks_of(repository) if (setup := self._recorded(mark)) is not None]
        if len(setups) < 2:
            return next(iter(setups), None)
        newest = max(setups, key=lambda setup: setup.at)
        digests = dict.fromkeys(digest for setup in setups for digest in (setup.digest, *setup.before))
        return newest._replace(before=tuple(digest for digest in digests if digest != newest.digest))

    def _marks_of(self, repository: Repository) -> Iterator[str]:
        """Yield the marks of a repository and of its clones here, its own first."""
        mark, first = repository.noted
        if mark and not self._is_copy(mark, repository):
            yield mark
        else:
            mark = ""
        others = [other for other in self._marks() if other != mark]
        first = first or ([repository.first_commit] if others else [])
        for other in others:
            project, known = self._project(other), self._note(other).get("addresses")
            is_alike = project is not None and project.first != "" and project.first in first
            if is_alike and isinstance(known, list) and are_related([*map(str, known)], repository.addresses):
                yield other

    def _is_copy(self, mark: str, repository: Repository) -> bool:
        """Return whether the repository is a copied folder: what has the mark by right is still in its place."""
        original = self._repository(mark)
        with contextlib.suppress(OSError):
            is_there = original is not None and original.noted[0] == mark
            return is_there and original is not None and not original.common.samefile(repository.common)
        return False

    def _related(self, project: Project) -> str:
        """Return the mark of a project here, a clone of the project, for which something is allowed; "" for none."""
        changed = self._folder.stat().st_mtime_ns
        if changed != self._related_marks[0]:
            self._related_marks = changed, {}
        known = self._related_marks[1]
        if project.label not in known:
            known[project.label] = next(filter(partial(self._has, project), self._marks()), "")
        return known[project.label]

    def _has(self, project: Project, mark: str) -> bool:
        """Return whether the repository with a mark has a project."""
        own, repository = self._project(mark), self._repository(mark)
        # Others have nothing to do with it, and git isn't asked about them.
        is_alike = own is not None and own.first == project.first != ""
        return is_alike and repository is not None and self._projects.belongs(project, repository)

    def _project(self, mark: str) -> Project | None:
        return parse_label(str(self._note(mark).get("project")))

    def _marks(self) -> list[str]:
        with contextlib.suppress(OSError):
            return sorted(name for name in os.listdir(self._folder) if len(name) == 32)  # noqa: PTH208
        return []

    def _note(self, mark: str) -> Mapping[str, object]:
        with contextlib.suppress(ValueError, RecursionError):
            note = json.loads(content_of(self._folder / mark))
            if isinstance(note, dict):
                return note
        return {}

    def _repository(self, mark: str) -> Repository | None:
        folder = self._note(mark).get("folder")
        return Repository(Path(folder)) if isinstance(folder, str) else None

    def _recorded(self, mark: str) -> Setup | None:
        data = content_of(self._folder / mark)
        known = self._read.get(mark)
        if known is None or known[0] != data:
            known = self._read[mark] = data, _parsed(self._note(mark))
        return known[1]


def _parsed(note: Mapping[str, object]) -> Setup | None:
    files, before = note.get("files"), note.get("before")
    at = note.get("at")
    if not isinstance(files, dict) or not isinstance(before, list) or not isinstance(at, int):
        return None
    setup = Setup.of({str(path): str(text) for path, text in files.items()})
    return setup._replace(at=at, before=(*map(str, before),)) if setup.digest == note.get("digest") else None


def config_around(location: Location, folder: Path) -> Config:
    """Return the configuration in a folder, as `Instance.config_at`, also without a store. Raises Invalid."""
    return config_with(location, Setups.of_location(location).at(folder))


def config_with(location: Location, setup: Setup | None) -> Config:
    """Return the user's configuration with a set-up under it, whether or not they have allowed that. Raises Invalid."""
    from uwf_git.config.project import layered
    from uwf_git.config.read import load_config

    own = load_config(location.root)
    return layered(location.root, own, setup.settings()) if setup is not None else own


class SetupState(NamedTuple):
    """What a checkout has, and what the user has allowed of its project."""

    here: Setup | None
    allowed: Setup | None

    @property
    def is_allowed(self) -> bool:
        return self.here is not None and self.allowed is not None and self.here.digest == self.allowed.digest

    @property
    def problem(self) -> str:
        """Say in a line that the checkout has something that doesn't count, "" if all does."""
        if self.here is None or self.is_allowed:
            return ""
        if self.allowed is not None:
            return f"{FOLDER} has changed since you allowed it{_ELSE}"
        if self.here.has_settings:
            return f"this project has a set-up, {SETTINGS}, that you haven't allowed"
        return ""

    @property
    def refusal(self) -> str:
        """The problem, for what is refused because of it."""
        return self.problem.removesuffix(_ELSE)
