"""Fixtures: folders of files for cases, stored as git trees, laid out for agents and judges, and stored again
afterwards.

A folder's own .gitignore applies, except to the fixture's own files; git's folders are left out, and the
user's ignore rules don't apply. A laid out folder is a repository with one commit, so that agents and judges
can use git diff.

Nothing in a folder is trusted. git never runs in one that agents had (it could block on a FIFO named
.gitignore); it is walked by descriptors, so no link leads out, and git gets only names and copied rules. What
verify would refuse is neither stored nor laid out.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple, NoReturn

from uwf_git.ext.evaluation.suite_check import DEEPEST, LINK, PROGRAM, files_of_fixture, link_problem
from uwf_git.plugin import (
    BLOB_MODE,
    TREE_MODE,
    BadObject,
    CallResult,
    Entry,
    Git,
    Instance,
    Invalid,
    Oid,
    Repository,
    StoreDamaged,
    StoreUnwritable,
    UwfError,
    confined_paths,
    git_failure,
    one_line,
    system,
    verified_objects,
)

GONE = "their folder is gone, or something else is in its place"
MOST_FILES = 20_000
MOST_BYTES = 256 << 20
_MOST_NOTES = 20
_LONGEST_NAME = 255  # bytes that systems take
_LONGEST_PATH = 3000  # bytes; the system takes no more than 4096 with the way to the folder
_MOST_RULES = 1 << 20  # bytes of a .gitignore
_AT_ONCE = 10_000  # names that git is asked about
_PROGRAM, _LINK = PROGRAM.decode(), LINK.decode()
_NAMED = ("-c", "user.name=uwf", "-c", "user.email=uwf@localhost", "-c", "commit.gpgSign=false")
_OUT_OF_IT = "leave out by a .gitignore in it what isn't needed"
# Errors of a name or file, not of the disk.
_OF_A_NAME = (
    *(errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG),
    *(errno.EILSEQ, errno.EINVAL, errno.ELOOP),
)

_LeaveOut = Callable[[str, str], object]
"""Is told a path and why that isn't taken."""


class FinalTree(NamedTuple):
    """A folder's final tree, None if it cannot be stored, and notes on omissions."""

    tree: str | None
    notes: tuple[str, ...] = ()


def store_folder(instance: Instance, folder: Path) -> str:
    """Store a folder's files; return the tree. Raises Invalid: too large, a link leading out, a secret, an
    invalid name."""
    if not folder.is_dir():
        raise Invalid(f"{one_line(str(folder))} is not a folder", "a fixture is a folder of files")

    def refuse(path: str, why: str) -> NoReturn:
        raise Invalid(
            f"{one_line(str(folder))}/{_shown(path)} {why}", "remove it, or name it in a .gitignore there"
        )

    with instance.store.together():
        files = _stored(instance, folder.resolve(), (), refuse)
        if not files:
            raise Invalid(f"{one_line(str(folder))} holds no files", "a fixture is a folder of files")
        return _grown(instance, files)


def of_texts(instance: Instance, texts: dict[str, str]) -> str:
    """Store files given as texts; return the tree. Raises Invalid."""
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
    return _grown(instance, files)


def _check_path(path: str) -> None:
    for part in path.split("/"):
        name = part.encode("utf-8")
        is_long = len(name) > _LONGEST_NAME or len(path.encode("utf-8")) > _LONGEST_PATH
        if problem := verified_objects.name_problem(name) or ("is too long" if is_long else None):
            shown = one_line(path, 80)
            raise Invalid(
                f"{shown!r} is not a path of a file below a folder: {one_line(part, 40)!r} {problem}",
                "as in src/app.py",
            )


def store_final_tree(instance: Instance, folder: Path, fixture: str) -> FinalTree:
    """Store a fixture's folder as it was left. Unstorable files, such as ones with secrets, are omitted and
    noted; nothing is stored if there is too much."""
    notes: list[str] = []

    def note(path: str, why: str) -> None:
        notes.append(instance.redactor.text(f"{_shown(path)} is not kept: it {why}")[0])

    if not is_folder(folder):
        return FinalTree(None, (GONE,))
    try:
        tracked = _paths(instance.store.repository, Oid(hex=fixture))
        with instance.store.together():
            tree = _grown(instance, _stored(instance, folder, tracked, note))
    except Invalid as error:
        return FinalTree(None, (error.message,))
    if len(notes) > _MOST_NOTES:
        notes[_MOST_NOTES - 1 :] = [f"and {len(notes) - _MOST_NOTES + 1} more are not kept"]
    return FinalTree(tree, tuple(notes))


def is_folder(path: Path) -> bool:
    with contextlib.suppress(OSError):
        return stat.S_ISDIR(path.lstat().st_mode)
    return False


def _paths(repository: Repository, tree: Oid, prefix: str = "") -> Iterator[str]:
    for entry in repository.tree(tree):
        if entry.mode == TREE_MODE:
            yield from _paths(repository, entry.oid, f"{prefix}{entry.name}/")
        else:
            yield prefix + entry.name


def _shown(path: str) -> str:
    return verified_objects.shown_name(os.fsencode(path))


def _grown(instance: Instance, files: dict[str, Entry]) -> str:
    repository = instance.store.repository
    tree = repository.grown(None, files)
    try:
        for _ in files_of_fixture(
            verified_objects.Objects(repository, repository.config.max_blob), tree.raw, _refuse
        ):
            pass
    except BadObject as bad:
        raise Invalid(f"the files cannot be kept: {bad.message}", _OUT_OF_IT) from None
    return str(tree)


def _refuse(code: str, message: str, at: object = None, path: str = "", line: int = 0) -> NoReturn:
    raise BadObject(code, message, at)


# Gone through


def _stored(
    instance: Instance, folder: Path, tracked: Iterable[str], leave_out: _LeaveOut
) -> dict[str, Entry]:
    most = instance.store.repository.config.max_blob
    sizes = _listed(folder, leave_out)
    for path in tracked:
        with contextlib.suppress(OSError), confined_paths.opened_below(folder, path.split("/")[:-1]) as inner:
            status = os.stat(path.rpartition("/")[2], dir_fd=inner, follow_symlinks=False)
            if _is_file(status):
                sizes.setdefault(path, status.st_size)
    _check_size(folder, len(sizes), sum(size for size in sizes.values() if size <= most))
    files: dict[str, Entry] = {}
    total = 0
    for path in sorted(sizes):
        try:
            mode, content = _content(folder, path, most)
        except OSError as error:
            if error.errno != errno.ENOENT:  # else it went meanwhile
                leave_out(path, f"cannot be read: {error.strerror}")
            continue
        total += len(content) if len(content) <= most else 0
        _check_size(folder, len(files), total)
        if not mode:
            leave_out(path, "is not a file")
        elif len(content) > most:
            leave_out(path, f"is larger than {most:,} bytes, which uwf.maxBlob allows")
        elif mode == _LINK and (problem := link_problem(path, content)):
            leave_out(path, f"is {problem}")
        elif spot := instance.redactor.first(path):
            leave_out(path, f"has a name that holds {spot}")
        elif spot := instance.redactor.first(content):
            leave_out(path, f"holds {spot}, in line {spot.line}")
        else:
            files[path] = Entry(mode, "", instance.store.repository.write_blob(content))
    return files


def _check_size(folder: Path, files: int, size: int) -> None:
    if files > MOST_FILES or size > MOST_BYTES:
        raise Invalid(
            f"folder {one_line(folder.name)} holds more than {MOST_FILES:,} files or {MOST_BYTES >> 20} MiB",
            _OUT_OF_IT,
        )


def _content(folder: Path, path: str, most: int) -> tuple[str, bytes]:
    """Return a file's mode ("" if not a file) and content, read to slightly over `most`. Others may replace
    it by a FIFO or link at any time. Raises OSError."""
    *parts, name = path.split("/")
    with confined_paths.opened_below(folder, parts) as inner:
        mode = os.stat(name, dir_fd=inner, follow_symlinks=False).st_mode
        if stat.S_ISLNK(mode):
            return _LINK, os.fsencode(os.readlink(name, dir_fd=inner))
        if not stat.S_ISREG(mode):
            return "", b""
        with open(system.open_file(name, confined_paths.FILE, dir_fd=inner), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                return "", b""
            return _PROGRAM if status.st_mode & stat.S_IXUSR else BLOB_MODE, file.read(most + 1)


def _is_file(status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)


class _Found(NamedTuple):
    """An entry of a folder; folders' paths end in a slash."""

    path: str
    size: int
    is_file: bool


def _listed(folder: Path, leave_out: _LeaveOut) -> dict[str, int]:
    """Return the sizes of files that aren't ignored. Raises Invalid for too many."""
    sizes: dict[str, int] = {}
    with _Rules() as rules:
        level, folders = [""], 0
        for depth in range(1, DEEPEST + 1):
            entries = (entry for prefix in level for entry in _entries(folder, prefix, rules, leave_out))
            deeper: list[str] = []
            while some := list(islice(entries, _AT_ONCE)):
                for path, size, is_file in rules.without_ignored(some):
                    name = path.rstrip("/").rpartition("/")[2]
                    if problem := verified_objects.name_problem(os.fsencode(name)):
                        leave_out(path, f"has a name that {problem}")
                    elif len(os.fsencode(path)) > _LONGEST_PATH or (path[-1] == "/" and depth == DEEPEST):
                        leave_out(path, "is too deep")
                    elif path[-1] == "/":
                        deeper.append(path)
                        folders += 1
                    elif is_file:
                        sizes[path] = size
                    else:
                        leave_out(path, "is not a file")
                _check_size(
                    folder, len(sizes) if folders <= verified_objects.COUNT_LIMIT else MOST_FILES + 1, 0
                )
            level = deeper
    return sizes


def _entries(folder: Path, prefix: str, rules: _Rules, leave_out: _LeaveOut) -> Iterator[_Found]:
    try:
        with confined_paths.opened_below(folder, prefix.split("/")[:-1]) as inner:
            rules.learn(inner, prefix, leave_out)
            with os.scandir(inner) as entries:
                for entry in entries:
                    if entry.name == ".git":
                        continue
                    with contextlib.suppress(FileNotFoundError):  # it went meanwhile
                        status = entry.stat(follow_symlinks=False)
                        slash = "/" if stat.S_ISDIR(status.st_mode) else ""
                        yield _Found(f"{prefix}{entry.name}{slash}", status.st_size, _is_file(status))
    except OSError as error:
        if error.errno != errno.ENOENT:
            leave_out(prefix or ".", f"cannot be read: {error.strerror}")


class _Rules:
    """The .gitignore rules of a folder, evaluated by git on copies elsewhere."""

    def __init__(self) -> None:
        try:
            self._made = tempfile.TemporaryDirectory(prefix="uwf-")
            self._copies = Path(self._made.name) / "copies"
            for name in ("copies", "git/objects", "git/refs"):
                (self._copies.parent / name).mkdir(parents=True)
            (self._copies.parent / "git/HEAD").write_text("ref: refs/heads/main\n")
        except OSError as error:
            raise _unwritable(error) from None
        self._git = Git(self._copies.parent / "git", cwd=self._copies)

    def __enter__(self) -> _Rules:
        return self

    def __exit__(self, *_: object) -> None:
        self._made.cleanup()

    def learn(self, folder: int, prefix: str, leave_out: _LeaveOut) -> None:
        name = ".gitignore"
        try:
            if not stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                return
            with open(system.open_file(name, confined_paths.FILE, dir_fd=folder), "rb") as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    return
                content = file.read(_MOST_RULES + 1)
        except OSError:
            return
        if len(content) > _MOST_RULES:
            leave_out(prefix + name, "is too large for a list of what to ignore")
            return
        try:
            (self._copies / prefix).mkdir(parents=True, exist_ok=True)
            (self._copies / prefix / name).write_bytes(content)
        except OSError as error:
            raise _unwritable(error) from None

    def without_ignored(self, entries: list[_Found]) -> Iterator[_Found]:
        names = {item: b"./" + os.fsencode(item.path) for item in entries}
        content = b"".join(name + b"\0" for name in names.values())
        options = (f"--work-tree={self._copies}", "-c", f"core.excludesFile={os.devnull}")
        done = _run(
            self._git, *options, "check-ignore", "-z", "--stdin", "--no-index", stdin=content, fine=(0, 1)
        )
        ignored = set(done.out.split(b"\0"))
        return (item for item, name in names.items() if name not in ignored)


def _run(git: Git, *args: str, stdin: bytes = b"", fine: tuple[int, ...] = (0,)) -> CallResult:
    done = git.run(*args, stdin=stdin, check=False)
    if done.code not in fine:
        message = git_failure(args, done).message
        if "No space left" in message:
            raise StoreUnwritable(message, "check free space")
        raise Invalid(message, "git cannot work with the files of the case")
    return done


def _unwritable(error: OSError) -> StoreUnwritable:
    return StoreUnwritable(f"cannot make {error.filename}: {error.strerror}", "check free space")


# Laid out


def create_folder(repository: Repository, folder: Path, fixture: str | None, work: str | None = None) -> None:
    """Make a folder with a fixture's files as a repository of one commit; with `work` its files are that
    tree's. Empty without either. Atomic. Raises Invalid, StoreDamaged, StoreUnwritable."""
    aside = _aside(folder)
    try:
        discard(aside)
        aside.mkdir(parents=True)
        if fixture is not None:
            _write(repository, fixture, aside)
            git = Git(aside / ".git", cwd=aside)
            _run(git, "init", "-q")
            _run(git, "add", "-A", "-f")
            _run(git, *_NAMED, "commit", "-q", "--no-verify", "--allow-empty", "-m", "The fixture")
            if work is not None:
                for path in aside.iterdir():
                    if path.name != ".git":
                        discard(path)
                _write(repository, work, aside)
        if not is_folder(folder):
            discard(folder)
        aside.replace(folder)
    except OSError as error:
        discard(aside)
        if error.errno in _OF_A_NAME:
            why = f"{error.strerror}: {_shown(str(error.filename))}"
            raise Invalid(f"the files of the case cannot be laid out: {why}", "import it without") from None
        raise StoreUnwritable(f"cannot make {folder}: {error.strerror}", "check free space") from None
    except UwfError:
        discard(aside)
        raise


def _write(repository: Repository, tree: str, folder: Path) -> None:
    objects = verified_objects.Objects(repository, repository.config.max_blob)
    links: list[tuple[Path, bytes]] = []
    try:
        for path, mode, blob in files_of_fixture(objects, bytes.fromhex(tree), _refuse):
            place, content = folder / path, objects.blob(blob)
            place.parent.mkdir(parents=True, exist_ok=True)
            if mode == LINK:
                links.append((place, content))
                continue
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | system.O_NOFOLLOW
            descriptor = system.open_file(place, flags, 0o777 if mode == PROGRAM else 0o666)
            with open(descriptor, "wb") as file:
                file.write(content)
    except BadObject as bad:
        if bad.code == "damaged":
            raise StoreDamaged(bad.message, "see: uwf verify") from None
        raise Invalid(f"the files of the case are refused: {bad.message}", "see: uwf verify") from None
    for place, content in links:  # last, so that none is gone through
        place.symlink_to(os.fsdecode(content))


def remove_folder(folder: Path) -> None:
    """Remove a folder atomically: half of one would be taken for an agent's work."""
    aside = _aside(folder)
    with contextlib.suppress(OSError):
        folder.replace(aside)
    discard(aside)


def _aside(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.{os.getpid()}")


def discard(path: Path) -> None:
    """Remove a folder or file, even if unwritable or very deep; best effort."""
    with contextlib.suppress(OSError):
        if not is_folder(path):
            path.unlink(missing_ok=True)
            return
        path.chmod(0o700)
        with confined_paths.opened(path) as folder:
            while _cleared(folder):
                pass
        path.rmdir()


def _cleared(top: int) -> bool:
    done = False
    for name in os.listdir(top):
        with contextlib.suppress(OSError):
            if _unlinked(name, top):
                done = True
                continue
            with confined_paths.opened(name, top) as folder:
                for item in os.listdir(folder):  # noqa: PTH208
                    with contextlib.suppress(OSError):
                        if not _unlinked(item, folder):
                            os.rename(item, secrets.token_hex(8), src_dir_fd=folder, dst_dir_fd=top)
                        done = True
            os.rmdir(name, dir_fd=top)
            done = True
    return done


def _unlinked(name: str, folder: int) -> bool:
    if not stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=folder)
        return True
    os.chmod(name, 0o700, dir_fd=folder)
    return False
