"""libgit2, through those parts of pygit2 that a store needs.

`import pygit2` loads all of it, and what it talks to remotes with: TLS, and the certificates of the machine. That takes
longer than a small command does (85 ms, its parts 16), and here git talks to remotes. So its parts are loaded without
the package that they stand in; a program that imports `pygit2` gets all of it as ever. pygit2 has no import of its own
for that. This breaks if its modules `_pygit2`, `errors` or `ffi` come to import the package, or lose a name that is
imported here: at once, with an ImportError.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

_alone = "pygit2" not in sys.modules and importlib.util.find_spec("pygit2")
if _alone:
    sys.modules["pygit2"] = importlib.util.module_from_spec(_alone)
try:
    from pygit2._pygit2 import (
        LIBGIT2_VERSION,
        GitError,
        Odb,
        OdbBackendPack,
        Oid,
        Repository,
        discover_repository,
        init_file_backend,
        reference_is_valid_name,
    )
    from pygit2.errors import check_error
    from pygit2.ffi import C, ffi
finally:
    if _alone:
        for _name in ("pygit2", "pygit2.errors", "pygit2.ffi"):
            sys.modules.pop(_name, None)

__all__ = [
    "LIBGIT2_VERSION",
    "Config",
    "GitError",
    "Odb",
    "OdbBackendPack",
    "Oid",
    "Repository",
    "all_objects",
    "discover_repository",
    "init_bare",
    "open_repository",
    "reference_is_valid_name",
]

_NO_SEARCH = 1 << 0  # GIT_REPOSITORY_OPEN_NO_SEARCH
_WINDOW, _MAPPED = 4 << 20, 16 << 20  # bytes of a pack that are mapped at once, and of all packs


def open_repository(path: str) -> Repository:
    """The repository in a folder, none above it. What libgit2 writes from now on is synced. Raises GitError."""
    _set_up()
    return Repository(init_file_backend(path, _NO_SEARCH))


def init_bare(path: str, settings: Mapping[str, str]) -> None:
    """Makes a bare repository with some configuration. Raises GitError."""
    import pygit2

    made = pygit2.init_repository(path, bare=True)
    for key, value in settings.items():
        made.config[key] = value


def all_objects(repository: Repository) -> Odb:
    """The objects of a repository, wherever they stand."""
    import pygit2  # noqa: F401 -- which has the names of their kinds

    return repository.odb


def _set_up() -> None:
    """Tells libgit2 what holds for every repository."""
    tell = C.git_libgit2_opts
    # It syncs nothing unless told; a step that was reported must survive a power cut.
    tell(C.GIT_OPT_ENABLE_FSYNC_GITDIR, ffi.cast("int", 1))
    # And it maps packs whole: what has been read of them would count as memory of every command.
    tell(C.GIT_OPT_SET_MWINDOW_SIZE, ffi.cast("size_t", _WINDOW))
    tell(C.GIT_OPT_SET_MWINDOW_MAPPED_LIMIT, ffi.cast("size_t", _MAPPED))


class Config:
    """A configuration of git: that of a repository with all that holds for it, or one file. libgit2 reads its files
    again where they have changed. Raises GitError, as all it does, for one that can't be read."""

    def __init__(self, of: Repository | str) -> None:
        found = ffi.new("git_config **")
        if isinstance(of, str):
            check_error(C.git_config_open_ondisk(found, of.encode("utf-8", "surrogateescape")))
        else:
            pointer = ffi.new("git_repository **")
            ffi.buffer(pointer)[:] = of._pointer[:]  # type: ignore[attr-defined]
            check_error(C.git_repository_config(found, pointer[0]))
        self._config = ffi.gc(found[0], C.git_config_free)

    def value(self, key: str) -> str | None:
        """What is said of a key, "" for one without a value; None where nothing is."""
        with self._entry(key) as entry:
            return None if entry is None else _text(entry.value)

    def entries(self) -> list[tuple[str, str]]:
        """All that is said, of several values of a key each: keys with "" for what has no value, in git's order, in
        which what is said last counts."""
        made, entry = ffi.new("git_config_iterator **"), ffi.new("git_config_entry **")
        check_error(C.git_config_iterator_new(made, self._config))
        found: list[tuple[int, str, str]] = []
        try:
            while (code := C.git_config_next(entry, made[0])) != C.GIT_ITEROVER:
                check_error(code)
                found.append((entry[0].level, _text(entry[0].name), _text(entry[0].value)))
        finally:
            C.git_config_iterator_free(made[0])
        found.sort(key=lambda each: each[0])
        return [(key, value) for _, key, value in found]

    def flag(self, key: str) -> bool | None:
        """What is said of a key that is true or false. Raises GitError for anything else."""
        parsed = ffi.new("int *")
        with self._entry(key) as entry:
            if entry is None:
                return None
            check_error(C.git_config_parse_bool(parsed, entry.value))
        return bool(parsed[0])

    @contextmanager
    def _entry(self, key: str) -> Iterator[Any]:
        """What is said of a key as libgit2 has it, for the block; None where nothing is."""
        found = ffi.new("git_config_entry **")
        code = C.git_config_get_entry(found, self._config, key.encode())
        if code == C.GIT_ENOTFOUND:
            yield None
            return
        check_error(code)
        try:
            yield found[0]
        finally:
            C.git_config_entry_free(found[0])


def _text(told: object) -> str:
    """What a pointer of C leads to, "" where it leads nowhere."""
    return "" if told == ffi.NULL else ffi.string(told).decode("utf-8", "surrogateescape")
