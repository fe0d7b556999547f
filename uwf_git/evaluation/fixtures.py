"""Folders of files that cases begin with: taken in as git trees, laid out for agents and judges, and taken in again as
they were left.

What a folder's own .gitignore leaves out is left out, but for the fixture's own files, and so is git's own folder,
whatever the user's git ignores besides. In a folder that is laid out the files are the one commit of a repository,
so that agents and judges can ask git for what was changed. Nothing in it is believed: agents can write there what
they like.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from uwf_git.errors import Invalid, StoreDamaged
from uwf_git.git.objects import stands_for_git
from uwf_git.git.program import Git
from uwf_git.git.repository import BLOB_MODE, TREE_MODE, Entry, Oid, Repository, StoreUnwritable
from uwf_git.store.opened import Instance
from uwf_git.text import one_line
from uwf_git.verify.suites import leads_out

MOST_FILES = 20_000
MOST_BYTES = 256 << 20
_PROGRAM, _LINK = "100755", "120000"
_NOT_THE_USERS = ("-c", f"core.excludesFile={os.devnull}")
_NAMED = ("-c", "user.name=uwf", "-c", "user.email=uwf@localhost", "-c", "commit.gpgSign=false")


class Left(NamedTuple):
    """What a folder was left as: the id of a git tree, None where it can't be kept, and why, or what of it isn't."""

    tree: str | None
    notes: tuple[str, ...] = ()


def take_in(instance: Instance, folder: Path) -> str:
    """The id of the git tree of a folder's files, which are stored. Raises Invalid for what can't be kept: too much of
    it, a link that leads out, a file that holds a secret."""
    if not folder.is_dir():
        raise Invalid(f"{one_line(str(folder))} is no folder", "a fixture is a folder of files")
    files: dict[str, Entry] = {}
    for path, mode, content in _files(folder):
        shown = one_line(f"{folder}/{path}", 200)
        if mode == _LINK and leads_out(path, os.fsdecode(content)):
            raise Invalid(f"{shown} is a link that leads out of the folder", "put a copy there")
        instance.redactor.refuse(content, shown, "a fixture")
        files[path] = Entry(mode, "", instance.store.repository.write_blob(content))
    if not files:
        raise Invalid(f"{one_line(str(folder))} holds no files", "a fixture is a folder of files")
    return str(instance.store.repository.grown(None, files))


def of_texts(instance: Instance, texts: dict[str, str]) -> str:
    """The id of the git tree of files that are given by their paths and texts, which are stored. Raises Invalid."""
    files: dict[str, Entry] = {}
    for path, text in texts.items():
        _check_path(path)
        content = text.encode("utf-8")
        instance.redactor.refuse(content, path, "a fixture")
        mode = _PROGRAM if text.startswith("#!") else BLOB_MODE
        files[path] = Entry(mode, "", instance.store.repository.write_blob(content))
    for path in files:
        if any(str(parent) in files for parent in Path(path).parents):
            raise Invalid(f"{path!r} is below what is a file", "name another path")
    return str(instance.store.repository.grown(None, files))


def _check_path(path: str) -> None:
    parts = path.split("/")
    if any(part in ("", ".", "..") or stands_for_git(part) or not part.isprintable() for part in parts):
        raise Invalid(f"{one_line(path, 80)!r} is no path of a file below a folder", "as in src/app.py")


def left_in(instance: Instance, folder: Path, fixture: str) -> Left:
    """What the folder of a fixture was left as; its files are stored. What can't be kept of it, such as a file with a
    secret, is left out and noted; of too much nothing is kept."""
    files: dict[str, Entry] = {}
    notes: list[str] = []
    try:
        tracked = _paths(instance.store.repository, Oid(hex=fixture))
        for path, mode, content in _files(folder, tracked):
            if mode == _LINK and leads_out(path, os.fsdecode(content)):
                notes.append(f"{one_line(path, 80)} is not kept: a link that leads out of its folder")
            elif spot := instance.redactor.first(content):
                notes.append(f"{one_line(path, 80)} is not kept: it holds {spot}")
            else:
                files[path] = Entry(mode, "", instance.store.repository.write_blob(content))
    except Invalid as error:
        return Left(None, (error.message,))
    return Left(str(instance.store.repository.grown(None, files)), tuple(notes[:20]))


def _paths(repository: Repository, tree: Oid, prefix: str = "") -> Iterator[str]:
    """The paths of the files in a git tree."""
    for entry in repository.tree(tree):
        if entry.mode == TREE_MODE:
            yield from _paths(repository, entry.oid, f"{prefix}{entry.name}/")
        else:
            yield prefix + entry.name


def _is_below(folder: Path, path: str) -> bool:
    """Whether no link leads to a path below a folder."""
    return not any((folder / parent).is_symlink() for parent in Path(path).parents if parent.name)


def _files(folder: Path, tracked: Iterable[str] = ()) -> Iterator[tuple[str, str, bytes]]:
    """The files in a folder that aren't ignored, or are `tracked` all the same: path, mode, content. Raises Invalid
    where there are too many."""
    size = 0
    listed = {*_listed(folder), *(path for path in tracked if _is_below(folder, path))}
    for number, path in enumerate(sorted(listed), 1):
        try:
            status = os.lstat(folder / path)
            if stat.S_ISLNK(status.st_mode):
                mode, content = _LINK, os.fsencode((folder / path).readlink())
            elif stat.S_ISREG(status.st_mode):
                size += status.st_size
                if number > MOST_FILES or size > MOST_BYTES:
                    raise Invalid(
                        f"{one_line(str(folder))} holds more than {MOST_FILES:,} files or {MOST_BYTES >> 20} MiB",
                        "leave out by a .gitignore in it what isn't needed",
                    )
                mode = _PROGRAM if status.st_mode & stat.S_IXUSR else BLOB_MODE
                content = _content(folder / path)
            else:
                continue
        except OSError as error:
            if isinstance(error, FileNotFoundError | NotADirectoryError):  # it went meanwhile
                continue
            raise Invalid(f"{one_line(f'{folder}/{path}', 200)} can't be read: {error.strerror}") from None
        if any(stands_for_git(part) for part in path.split("/")):
            continue
        yield path, mode, content


def _content(path: Path) -> bytes:
    # Whoever works there may put a pipe or a link in a file's place at any moment.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        return file.read(MOST_BYTES + 1)


def _listed(folder: Path) -> list[str]:
    """The paths of what isn't ignored, as git lists them for a repository in which nothing is known: what the folder's
    own configuration names isn't run."""
    folder = folder.absolute()
    with tempfile.TemporaryDirectory(prefix="uwf-") as made:
        empty = Path(made)
        for name in ("objects", "refs"):
            (empty / name).mkdir()
        (empty / "HEAD").write_text("ref: refs/heads/main\n")
        git = Git(empty, cwd=folder)
        listed = git.run(
            f"--work-tree={folder}", *_NOT_THE_USERS, "ls-files", "-z", "-o", "--exclude-standard"
        ).out
    return [os.fsdecode(each) for each in listed.split(b"\0") if each and not each.endswith(b"/")]


# Laid out


def lay_out(repository: Repository, folder: Path, fixture: str | None, work: str | None = None) -> None:
    """Makes a folder with the files of a fixture, as a git repository of one commit; with `work` its files are those of
    that tree instead, and the commit is still the fixture. Without either it is an empty folder. It is there as a whole
    or not at all. Raises StoreDamaged, StoreUnwritable."""
    aside = _aside(folder)
    try:
        discard(aside)
        aside.mkdir(parents=True)
        if fixture is not None:
            _write(repository, Oid(hex=fixture), aside)
            git = Git(aside / ".git", cwd=aside)
            git.run("init", "-q")
            git.run("add", "-A", "-f")
            git.run(*_NAMED, "commit", "-q", "--no-verify", "--allow-empty", "-m", "The fixture")
            if work is not None:
                for each in aside.iterdir():
                    if each.name != ".git":
                        discard(each)
                _write(repository, Oid(hex=work), aside)
        aside.replace(folder)
    except OSError as error:
        discard(aside)
        raise StoreUnwritable(f"can't make {folder}: {error.strerror}", "check free space") from None


def _write(repository: Repository, tree: Oid, folder: Path) -> None:
    for entry in repository.tree(tree):
        name = entry.name
        if name in ("", ".", "..") or "/" in name or "\0" in name or stands_for_git(name):
            raise StoreDamaged(f"tree {tree} holds a file called {one_line(name, 60)!r}", "see: uwf verify")
        path = folder / name
        if entry.mode == TREE_MODE:
            path.mkdir()
            _write(repository, entry.oid, path)
        elif entry.mode == _LINK:
            path.symlink_to(os.fsdecode(repository.blob(entry.oid)))
        elif entry.mode in (BLOB_MODE, _PROGRAM):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            descriptor = os.open(path, flags, 0o777 if entry.mode == _PROGRAM else 0o666)
            with open(descriptor, "wb") as file:
                file.write(repository.blob(entry.oid))
        else:
            raise StoreDamaged(f"tree {tree} holds {one_line(name, 60)!r}, no file", "see: uwf verify")


def put_away(folder: Path) -> None:
    """Removes a folder as a whole or not at all, whoever is killed at that: half of one would be taken for what agents
    left."""
    aside = _aside(folder)
    with contextlib.suppress(OSError):
        folder.replace(aside)
    discard(aside)


def _aside(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.{os.getpid()}")


def discard(path: Path) -> None:
    """Removes a folder or a file, also what agents have made unwritable. What stays all the same does no harm."""
    if not path.is_symlink() and path.is_dir():
        for inner, folders, _ in os.walk(path):
            for folder in (Path(inner, name) for name in folders):
                with contextlib.suppress(OSError):
                    if not folder.is_symlink():
                        folder.chmod(0o700)
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
