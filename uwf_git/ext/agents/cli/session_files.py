"""The files of a program's session, read and written only below the program's own folder: by descriptors, without
following links, under names that the row's patterns allow. An agent may have put links there, and a restored session
may come from any teammate."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path

from uwf_git.ext.agents.cli.session_lines import Unusable
from uwf_git.plugin import confined_paths, system

LIMIT = 32 * 1024 * 1024  # bytes of a session
MOST = 100  # files of a session
_READS = 3  # of a file that changes meanwhile
_MARK = ".project_root"
_LONGEST_SLUG = 200  # characters, beyond which programs shorten it in ways of their own
_VARIABLE = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")
_ID = re.compile(r"\{session(?::(\d+))?\}")


def session_folder(
    places: Sequence[str], cwd: str, env: Mapping[str, str], make: bool = False
) -> Path | None:
    """Return a program's folder of the sessions of a working folder: the first place whose variables are set,
    None if it isn't there. `make` makes it. Raises Unusable, OSError."""
    for place in places:
        if any(not env.get(name) for name in _VARIABLE.findall(place)):
            continue
        text = _VARIABLE.sub(lambda match: env[match[1]], place)
        if text.startswith("~/"):
            text = env.get("HOME", "") + text[1:]
        if not text.startswith("/"):
            continue
        slug = re.sub(r"[^A-Za-z0-9]", "-", cwd)
        if "{slug}" in text and len(slug) > _LONGEST_SLUG:
            raise Unusable(f"the path of the folder {cwd} is too long for its program")
        folder = _project(text.replace("{slug}", slug), cwd, make)
        if folder is not None and make:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return None if folder is None or not folder.is_dir() else Path(os.path.realpath(folder))
    return None


def _project(text: str, cwd: str, make: bool) -> Path | None:
    before, mark, after = text.partition("/{project}")
    if not mark:
        return Path(text)
    base, after = Path(before), after.strip("/")
    for folder in sorted(base.iterdir()) if base.is_dir() else ():
        with (
            suppress(OSError),
            os.fdopen(system.open_file(folder / _MARK, confined_paths.FILE), "rb") as file,
        ):
            if file.read(confined_paths.LONGEST + 1).strip() == os.fsencode(cwd):
                return folder / after
    if not make:
        return None
    folder = base / hashlib.sha256(cwd.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileExistsError), (folder / _MARK).open("x", encoding="utf-8") as file:
        file.write(cwd)
    return folder / after


def patterns_for(files: Sequence[str], session: str) -> list[list[str]]:
    """Return the names of each pattern of a session. Raises Unusable if the id cannot be a file's name."""
    if not session or "/" in session or not session.isprintable() or session.startswith("."):
        raise Unusable("its id is not a file's name")

    def literal(match: re.Match[str]) -> str:
        return re.sub(r"([*?[])", r"[\1]", session[: int(match[1] or len(session))])

    return [[_ID.sub(literal, name) for name in file.split("/")] for file in files]


def fits(path: str, patterns: Sequence[Sequence[str]]) -> bool:
    """Return whether a path is one that the patterns find, and stays below their folder."""
    names = path.split("/")
    if not path.isprintable() or any(name in ("", ".", "..") or "\\" in name for name in names):
        return False
    return any(len(names) == len(pattern) and all(map(fnmatchcase, names, pattern)) for pattern in patterns)


def read_files(folder: Path, patterns: Sequence[Sequence[str]]) -> dict[str, bytes]:
    """Return a session's files by path. Raises Unusable, OSError."""
    contents: dict[str, bytes] = {}
    size = 0
    with confined_paths.opened_below(folder, ()) as descriptor:
        for pattern in patterns:
            for path, inside in _matches(descriptor, pattern, ""):
                if path in contents:
                    continue
                contents[path] = _read(path.rpartition("/")[2], inside)
                size += len(contents[path])
                if size > LIMIT or len(contents) > MOST:
                    raise Unusable(f"it has more than {LIMIT >> 20} MB")
    return contents


def _matches(folder: int, names: Sequence[str], above: str) -> Iterator[tuple[str, int]]:
    name, *rest = names
    for entry in sorted(os.listdir(folder)):
        if not fnmatchcase(entry, name):
            continue
        path = f"{above}/{entry}" if above else entry
        if not rest:
            yield path, folder
            continue
        try:
            with confined_paths.opened(entry, folder) as inner:
                yield from _matches(inner, rest, path)
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP, errno.ENOENT):
                raise


def _read(name: str, folder: int) -> bytes:
    for _ in range(_READS):
        try:
            descriptor = system.open_file(name, confined_paths.FILE, dir_fd=folder)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise Unusable(f"its file {name} is a link") from None
            raise
        with os.fdopen(descriptor, "rb") as file:
            before = os.fstat(file.fileno())
            if not stat.S_ISREG(before.st_mode) or before.st_nlink != 1 or before.st_uid != system.user():
                raise Unusable(f"its file {name} is not a plain file of its own")
            if before.st_size > LIMIT:
                raise Unusable(f"it has more than {LIMIT >> 20} MB")
            data = file.read(LIMIT + 1)
            after = os.fstat(file.fileno())
        if before.st_size == after.st_size == len(data) and before.st_mtime_ns == after.st_mtime_ns:
            return data
    raise Unusable(f"its file {name} changes while it is read")


def place_file(folder: Path, path: str, data: bytes, replace: bool = False) -> None:
    """Write a file below a folder, whole or not at all; only with `replace` over one that is there. Raises
    FileExistsError, OSError."""
    *above, name = path.split("/")
    with confined_paths.opened_below(folder, ()) as top:
        inside = os.dup(top)
        try:
            for item in above:
                with suppress(FileExistsError):
                    os.mkdir(item, 0o700, dir_fd=inside)
                inner = system.open_file(item, confined_paths.FOLDER, dir_fd=inside)
                os.close(inside)
                inside = inner
            new = f".uwf-{secrets.token_hex(8)}"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | system.O_NOFOLLOW | system.O_CLOEXEC
            with os.fdopen(system.open_file(new, flags, 0o600, dir_fd=inside), "wb") as file:
                try:
                    file.write(data)
                    file.flush()
                    if replace:
                        os.rename(new, name, src_dir_fd=inside, dst_dir_fd=inside)
                        return
                    os.link(new, name, src_dir_fd=inside, dst_dir_fd=inside, follow_symlinks=False)
                finally:
                    with suppress(FileNotFoundError):
                        os.unlink(new, dir_fd=inside)
        finally:
            os.close(inside)
