"""The parts of pygit2 that a store needs.

`import pygit2` loads everything, including TLS and certificates for remotes, which git handles here. It takes
85 ms, its parts 16, and pygit2 has no import for them. So parts are loaded without their package; a program
that imports `pygit2` still gets all of it. This breaks, with an ImportError, if its modules `_pygit2`,
`errors` or `ffi` import the package or lose a name imported here.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable, Iterator, Mapping
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
    "indexed",
    "init_bare",
    "open_repository",
    "reference_is_valid_name",
]

_NO_SEARCH = 1 << 0  # GIT_REPOSITORY_OPEN_NO_SEARCH
_OPEN = 64  # packs
_WINDOW, _MAPPED = 4 << 20, 16 << 20  # bytes of a pack that are mapped at once, and of all packs


def open_repository(path: str) -> Repository:
    """Open the repository in a folder, not above. libgit2 syncs its writes from now on. Raises GitError."""
    _set_up()
    return Repository(init_file_backend(path, _NO_SEARCH))


def indexed(git_dir: str, paths: Iterable[str]) -> frozenset[str]:
    """Return which of these paths the index in a git directory has. Raises GitError if it cannot be read."""
    index = ffi.new("git_index **")
    check_error(C.git_index_open(index, f"{git_dir}/index".encode()))
    try:
        return frozenset(path for path in paths if C.git_index_find(ffi.NULL, index[0], path.encode()) == 0)
    finally:
        C.git_index_free(index[0])


def init_bare(path: str, settings: Mapping[str, str]) -> None:
    """Make a bare repository with settings. Raises GitError."""
    import pygit2

    repository = pygit2.init_repository(path, bare=True)
    for key, value in settings.items():
        repository.config[key] = value


def all_objects(repository: Repository) -> Odb:
    import pygit2  # noqa: F401 -- which has the names of their kinds

    return repository.odb


def _set_up() -> None:
    tell = C.git_libgit2_opts
    # libgit2 doesn't sync by default; reported steps must survive a power cut.
    tell(C.GIT_OPT_ENABLE_FSYNC_GITDIR, ffi.cast("int", 1))
    # It also maps whole packs, which would count as memory of every command.
    tell(C.GIT_OPT_SET_MWINDOW_SIZE, ffi.cast("size_t", _WINDOW))
    tell(C.GIT_OPT_SET_MWINDOW_MAPPED_LIMIT, ffi.cast("size_t", _MAPPED))
    # And it keeps the file of each open, those that were joined since too.
    tell(C.GIT_OPT_SET_MWINDOW_FILE_LIMIT, ffi.cast("size_t", _OPEN))


class Config:
    """Git's configuration of a repository, or one file, read again after changes. Raises GitError."""

    def __init__(self, of: Repository | str) -> None:
        out = ffi.new("git_config **")
        if isinstance(of, str):
            check_error(C.git_config_open_ondisk(out, of.encode("utf-8", "surrogateescape")))
        else:
            pointer = ffi.new("git_repository **")
            ffi.buffer(pointer)[:] = of._pointer[:]  # type: ignore[attr-defined]
            check_error(C.git_repository_config(out, pointer[0]))
        self._config = ffi.gc(out[0], C.git_config_free)

    def value(self, key: str) -> str | None:
        """Return a value, "" for a key without one, None if unset."""
        with self._entry(key) as entry:
            return None if entry is None else _text(entry.value)

    def entries(self) -> list[tuple[str, str]]:
        """Return all entries in git's order; the last wins."""
        iterator, entry = ffi.new("git_config_iterator **"), ffi.new("git_config_entry **")
        check_error(C.git_config_iterator_new(iterator, self._config))
        entries: list[tuple[int, str, str]] = []
        try:
            while (code := C.git_config_next(entry, iterator[0])) != C.GIT_ITEROVER:
                check_error(code)
                entries.append((entry[0].level, _text(entry[0].name), _text(entry[0].value)))
        finally:
            C.git_config_iterator_free(iterator[0])
        entries.sort(key=lambda item: item[0])
        return [(key, value) for _, key, value in entries]

    def flag(self, key: str) -> bool | None:
        """Return a boolean. Raises GitError for other values."""
        parsed = ffi.new("int *")
        with self._entry(key) as entry:
            if entry is None:
                return None
            check_error(C.git_config_parse_bool(parsed, entry.value))
        return bool(parsed[0])

    @contextmanager
    def _entry(self, key: str) -> Iterator[Any]:
        pointer = ffi.new("git_config_entry **")
        code = C.git_config_get_entry(pointer, self._config, key.encode())
        if code == C.GIT_ENOTFOUND:
            yield None
            return
        check_error(code)
        try:
            yield pointer[0]
        finally:
            C.git_config_entry_free(pointer[0])


def _text(told: object) -> str:
    return "" if told == ffi.NULL else ffi.string(told).decode("utf-8", "surrogateescape")
