"""Folders of files that cases begin with: taken in as git trees, laid out for agents and judges, and taken in again as
they were left.

What a folder's own .gitignore leaves out is left out, but for the fixture's own files, and so are git's own folders,
whatever the user's git ignores besides; of a repository in it the files are taken. In a folder that is laid out the
files are the one commit of a repository, so that agents and judges can ask git for what was changed.

Nothing in a folder is believed: agents can write there what they like. No git is run in one that they had: it would
wait for a pipe that is called .gitignore. It is gone through by descriptors, so that no link leads out of it, and git
is only told names, and the rules that stand in plain files. What verify would find wrong is neither kept nor laid out.
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

from uwf_git.base.errors import Invalid, StoreDamaged, UwfError
from uwf_git.base.text import one_line
from uwf_git.ext.evaluation.suite_check import DEEPEST, LINK, PROGRAM, files_of_fixture, link_problem
from uwf_git.git.program import Done, Git, failure
from uwf_git.git.repository import BLOB_MODE, TREE_MODE, Entry, Oid, Repository, StoreUnwritable
from uwf_git.sandbox.path import FILE, opened, opened_below
from uwf_git.store.opened import Instance
from uwf_git.verify.findings import Bad
from uwf_git.verify.objects import COUNT_LIMIT, Objects, name_problem, shown_name

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
# What is wrong with a name or a file, and not with the disk.
_OF_A_NAME = (
    *(errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG),
    *(errno.EILSEQ, errno.EINVAL, errno.ELOOP),
)

_LeaveOut = Callable[[str, str], object]
"""Is told a path and why that isn't taken."""


class Left(NamedTuple):
    """What a folder was left as: the id of a git tree, None where it can't be kept, and why, or what of it isn't."""

    tree: str | None
    notes: tuple[str, ...] = ()


def take_in(instance: Instance, folder: Path) -> str:
    """The id of the git tree of a folder's files, which are stored. Raises Invalid for what can't be kept: too much of
    it, a link that leads out, a file that holds a secret, a name that verify refuses."""
    if not folder.is_dir():
        raise Invalid(f"{one_line(str(folder))} is no folder", "a fixture is a folder of files")

    def refuse(path: str, why: str) -> NoReturn:
        raise Invalid(
            f"{one_line(str(folder))}/{_shown(path)} {why}", "take it out, or name it in a .gitignore there"
        )

    with instance.store.together():
        files = _stored(instance, folder.resolve(), (), refuse)
        if not files:
            raise Invalid(f"{one_line(str(folder))} holds no files", "a fixture is a folder of files")
        return _grown(instance, files)


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
    return _grown(instance, files)


def _check_path(path: str) -> None:
    for part in path.split("/"):
        name = part.encode("utf-8")
        is_long = len(name) > _LONGEST_NAME or len(path.encode("utf-8")) > _LONGEST_PATH
        if problem := name_problem(name) or ("is too long" if is_long else None):
            shown = one_line(path, 80)
            raise Invalid(
                f"{shown!r} is no path of a file below a folder: {one_line(part, 40)!r} {problem}",
                "as in src/app.py",
            )


def left_in(instance: Instance, folder: Path, fixture: str) -> Left:
    """What the folder of a fixture was left as; its files are stored. What can't be kept of it, such as a file with a
    secret, is left out and noted; of too much nothing is kept."""
    notes: list[str] = []

    def note(path: str, why: str) -> None:
        notes.append(instance.redactor.text(f"{_shown(path)} is not kept: it {why}")[0])

    if not is_folder(folder):
        return Left(None, (GONE,))
    try:
        tracked = _paths(instance.store.repository, Oid(hex=fixture))
        with instance.store.together():
            tree = _grown(instance, _stored(instance, folder, tracked, note))
    except Invalid as error:
        return Left(None, (error.message,))
    if len(notes) > _MOST_NOTES:
        notes[_MOST_NOTES - 1 :] = [f"and {len(notes) - _MOST_NOTES + 1} more are not kept"]
    return Left(tree, tuple(notes))


def is_folder(path: Path) -> bool:
    """Whether a folder is there, and no link to one."""
    with contextlib.suppress(OSError):
        return stat.S_ISDIR(path.lstat().st_mode)
    return False


def _paths(repository: Repository, tree: Oid, prefix: str = "") -> Iterator[str]:
    """The paths of the files in a git tree."""
    for entry in repository.tree(tree):
        if entry.mode == TREE_MODE:
            yield from _paths(repository, entry.oid, f"{prefix}{entry.name}/")
        else:
            yield prefix + entry.name


def _shown(path: str) -> str:
    return shown_name(os.fsencode(path))


def _grown(instance: Instance, files: dict[str, Entry]) -> str:
    """The tree of these files, as verify takes it too. Raises Invalid for one that is too large."""
    repository = instance.store.repository
    tree = repository.grown(None, files)
    try:
        for _ in files_of_fixture(Objects(repository, repository.config.max_blob), tree.raw, _refuse):
            pass
    except Bad as bad:
        raise Invalid(f"the files can't be kept: {bad.message}", _OUT_OF_IT) from None
    return str(tree)


def _refuse(code: str, message: str, at: object = None) -> NoReturn:
    raise Bad(code, message, at)


# Gone through


def _stored(
    instance: Instance, folder: Path, tracked: Iterable[str], leave_out: _LeaveOut
) -> dict[str, Entry]:
    """The files in a folder that aren't ignored, or are `tracked` all the same, by their paths; they are stored. Raises
    Invalid where there are too many."""
    most = instance.store.repository.config.max_blob
    sizes = _listed(folder, leave_out)
    for path in tracked:
        with contextlib.suppress(OSError), opened_below(folder, path.split("/")[:-1]) as inner:
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
                leave_out(path, f"can't be read: {error.strerror}")
            continue
        total += len(content) if len(content) <= most else 0
        _check_size(folder, len(files), total)
        if not mode:
            leave_out(path, "is no file")
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
    """A file's mode, "" for what is none, and its content, of one that is larger only a little more than `most` bytes.
    Whoever works there may put a pipe or a link in a file's place at any moment. Raises OSError."""
    *parts, name = path.split("/")
    with opened_below(folder, parts) as inner:
        mode = os.stat(name, dir_fd=inner, follow_symlinks=False).st_mode
        if stat.S_ISLNK(mode):
            return _LINK, os.fsencode(os.readlink(name, dir_fd=inner))
        if not stat.S_ISREG(mode):
            return "", b""
        with open(os.open(name, FILE, dir_fd=inner), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                return "", b""
            return _PROGRAM if status.st_mode & stat.S_IXUSR else BLOB_MODE, file.read(most + 1)


def _is_file(status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)


class _Found(NamedTuple):
    """What is in a folder: a path, of a folder with a slash at its end."""

    path: str
    size: int
    is_file: bool


def _listed(folder: Path, leave_out: _LeaveOut) -> dict[str, int]:
    """The paths of the files in a folder that aren't ignored, with their sizes; folders that are aren't entered. Raises
    Invalid where there are too many."""
    sizes: dict[str, int] = {}
    with _Rules() as rules:
        level, folders = [""], 0
        for depth in range(1, DEEPEST + 1):
            found = (each for prefix in level for each in _entries(folder, prefix, rules, leave_out))
            deeper: list[str] = []
            while some := list(islice(found, _AT_ONCE)):
                for path, size, is_file in rules.without_ignored(some):
                    name = path.rstrip("/").rpartition("/")[2]
                    if problem := name_problem(os.fsencode(name)):
                        leave_out(path, f"has a name that {problem}")
                    elif len(os.fsencode(path)) > _LONGEST_PATH or (path[-1] == "/" and depth == DEEPEST):
                        leave_out(path, "is too deep")
                    elif path[-1] == "/":
                        deeper.append(path)
                        folders += 1
                    elif is_file:
                        sizes[path] = size
                    else:
                        leave_out(path, "is no file")
                _check_size(folder, len(sizes) if folders <= COUNT_LIMIT else MOST_FILES + 1, 0)
            level = deeper
    return sizes


def _entries(folder: Path, prefix: str, rules: _Rules, leave_out: _LeaveOut) -> Iterator[_Found]:
    """What is in the folder at a path, whose rules are learnt first."""
    try:
        with opened_below(folder, prefix.split("/")[:-1]) as inner:
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
            leave_out(prefix or ".", f"can't be read: {error.strerror}")


class _Rules:
    """What the .gitignore files of a folder say, which git is asked by their copies in a folder that is nobody's."""

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
        """Takes over what the .gitignore says of the folder at a path. What is no plain file has no rules."""
        name = ".gitignore"
        try:
            if not stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                return
            with open(os.open(name, FILE, dir_fd=folder), "rb") as file:
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

    def without_ignored(self, found: list[_Found]) -> Iterator[_Found]:
        """Those that aren't ignored; the folders that they are in aren't."""
        names = {each: b"./" + os.fsencode(each.path) for each in found}
        asked = b"".join(name + b"\0" for name in names.values())
        given = (f"--work-tree={self._copies}", "-c", f"core.excludesFile={os.devnull}")
        done = _run(
            self._git, *given, "check-ignore", "-z", "--stdin", "--no-index", stdin=asked, fine=(0, 1)
        )
        ignored = set(done.out.split(b"\0"))
        return (each for each, name in names.items() if name not in ignored)


def _run(git: Git, *args: str, stdin: bytes = b"", fine: tuple[int, ...] = (0,)) -> Done:
    """Has git do something here, which has nothing to do with a remote. Raises Invalid, StoreUnwritable."""
    done = git.run(*args, stdin=stdin, check=False)
    if done.code not in fine:
        message = failure(args, done).message
        if "No space left" in message:
            raise StoreUnwritable(message, "check free space")
        raise Invalid(message, "git can't work with the files of the case")
    return done


def _unwritable(error: OSError) -> StoreUnwritable:
    return StoreUnwritable(f"can't make {error.filename}: {error.strerror}", "check free space")


# Laid out


def lay_out(repository: Repository, folder: Path, fixture: str | None, work: str | None = None) -> None:
    """Makes a folder with the files of a fixture, as a git repository of one commit; with `work` its files are those of
    that tree instead, and the commit is still the fixture. Without either it is an empty folder. It is there as a whole
    or not at all. Raises Invalid for files that
    can't be laid out, StoreDamaged, StoreUnwritable."""
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
                for each in aside.iterdir():
                    if each.name != ".git":
                        discard(each)
                _write(repository, work, aside)
        if not is_folder(folder):
            discard(folder)
        aside.replace(folder)
    except OSError as error:
        discard(aside)
        if error.errno in _OF_A_NAME:
            why = f"{error.strerror}: {_shown(str(error.filename))}"
            raise Invalid(f"the files of the case can't be laid out: {why}", "import it without") from None
        raise StoreUnwritable(f"can't make {folder}: {error.strerror}", "check free space") from None
    except UwfError:
        discard(aside)
        raise


def _write(repository: Repository, tree: str, folder: Path) -> None:
    objects = Objects(repository, repository.config.max_blob)
    links: list[tuple[Path, bytes]] = []
    try:
        for path, mode, blob in files_of_fixture(objects, bytes.fromhex(tree), _refuse):
            place, content = folder / path, objects.blob(blob)
            place.parent.mkdir(parents=True, exist_ok=True)
            if mode == LINK:
                links.append((place, content))
                continue
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            descriptor = os.open(place, flags, 0o777 if mode == PROGRAM else 0o666)
            with open(descriptor, "wb") as file:
                file.write(content)
    except Bad as bad:
        if bad.code == "damaged":
            raise StoreDamaged(bad.message, "see: uwf verify") from None
        raise Invalid(f"the files of the case are refused: {bad.message}", "see: uwf verify") from None
    for place, content in links:  # last, so that none is gone through
        place.symlink_to(os.fsdecode(content))


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
    """Removes a folder or a file, also what agents have made unwritable, and however deep. What stays all the same does
    no harm."""
    with contextlib.suppress(OSError):
        if not is_folder(path):
            path.unlink(missing_ok=True)
            return
        path.chmod(0o700)
        with opened(path) as folder:
            while _cleared(folder):
                pass
        path.rmdir()


def _cleared(top: int) -> bool:
    """Removes the files in a folder and in its folders, and has what is below those come up; whether there was any. No
    way is too long for that, and no link is followed."""
    done = False
    for name in os.listdir(top):
        with contextlib.suppress(OSError):
            if _unlinked(name, top):
                done = True
                continue
            with opened(name, top) as folder:
                for each in os.listdir(folder):  # noqa: PTH208
                    with contextlib.suppress(OSError):
                        if not _unlinked(each, folder):
                            os.rename(each, secrets.token_hex(8), src_dir_fd=folder, dst_dir_fd=top)
                        done = True
            os.rmdir(name, dir_fd=top)
            done = True
    return done


def _unlinked(name: str, folder: int) -> bool:
    """Removes a file, or makes a folder one that can be emptied."""
    if not stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=folder)
        return True
    os.chmod(name, 0o700, dir_fd=folder)
    return False
