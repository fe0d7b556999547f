"""The folders of a crew's step, by the names that agents use.

    @project   the working folder; results belong below @project/artifacts
    @pkg       the package's files, read only
    @state     the run: workflow.md, fresh for each step, in which an agent may record progress

`@pkg` is written once per version into the private folder, atomically, and compared with the tree's blobs at
each use, so it heals. `@state` is per thread.

    packages/<tree>/      a package's files, by tree id
    states/<ULID>/        a thread's, during a step and after a failed one
    states/<ULID>.begun   its document at the step's start
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from uwf_git.plugin import (
    ASIDE_FOLDER,
    BLOB,
    DOCUMENT_MOUNT,
    PACKAGE_MOUNT,
    PROJECT_MOUNT,
    RUN_TOOL,
    STATE_MOUNT,
    WRITING_TOOLS,
    Invalid,
    Mount,
    Oid,
    Repository,
    StepFolders,
    StoreDamaged,
    StoreUnwritable,
    ToolFailure,
    ToolPolicy,
    id_of,
    make_folders,
    system,
)

if TYPE_CHECKING:
    from uwf_git.ext.crews.state import Changes, RunState
    from uwf_git.plugin import Head, History, Instance, Role

MOST_FILES = 10_000
LARGEST = 1_000_000  # bytes of the document

_FILE_MODES = ("100644", "100755", "100664")
_READ = os.O_RDONLY | system.O_NOFOLLOW | system.O_NONBLOCK | system.O_CLOEXEC
_FRONTMATTER = re.compile(r"\A\ufeff?---[ \t]*\r?\n.*?^---[ \t]*$", re.DOTALL | re.MULTILINE)


def places(repository: Repository, head: Head, project: Path) -> StepFolders:
    """Return the folders of a thread's next step, without making them. Raises StoreDamaged if the package is
    lost."""
    private = repository.private
    package = _packages(repository) / str(_tree(repository, head))
    return StepFolders(project, package, private / "states" / head.thread)


class Mounts:
    """The folders of one step, made on demand. A context manager: removes the step's own unless it failed;
    one that `carries_on` finds what was written. Without `has_document` there is none, as in a conversation.
    """

    def __init__(
        self,
        repository: Repository,
        head: Head,
        history: History,
        role: Role,
        project: Path,
        has_document: bool = True,
        carries_on: bool = False,
    ) -> None:
        self._repository = repository
        self._tree = _tree(repository, head)
        self._history = history
        self._role = role
        self._describe: str | None = None
        self._before: RunState | None = None
        self.places = places(repository, head, project)
        self.has_document = has_document
        self._carries_on = carries_on
        self._begun = self.places.state.with_suffix(".begun")

    def __enter__(self) -> Mounts:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()

    def prepare(self) -> StepFolders:
        """Make the folders: the package, and the state as the step began. Raises StoreUnwritable,
        StoreDamaged."""
        materialise(self._repository, self._tree)
        if self._describe is None:
            document = self._render() if self.has_document else ""
            if not (self._carries_on and self._is_left(document)):
                self._write(document)
            self._describe = document
        return self.places

    def _is_left(self, document: str) -> bool:
        try:
            state = self.places.state.lstat()
            return stat.S_ISDIR(state.st_mode) and self._begun.read_bytes() == document.encode()
        except OSError:
            return False

    def _render(self) -> str:
        from uwf_git.ext.crews.state import reached, render

        self._before = reached(self._history, self._role.name)
        return render(self._history, self._before, self._body())

    def check(self, text: str) -> Changes:
        """Parse a text as the document. Raises Invalid with all problems."""
        from uwf_git.ext.crews.state import read_back

        assert self._before is not None
        return read_back(text, self._before, self._history.workflow)

    def written(self) -> Changes | None:
        """Return the agent's changes, None if none. Raises Invalid."""
        if not self._describe:
            return None
        text = self._read()
        return None if text is None or text == self._describe else self.check(text)

    def for_tools(self, policy: ToolPolicy) -> list[Mount]:
        """Return the folders besides @project. In @state only the document is writable, with valid content.
        Raises StoreUnwritable, StoreDamaged."""

        def check(names: tuple[str, ...], data: bytes | None) -> None:
            if names != (DOCUMENT_MOUNT,):
                raise ToolFailure(
                    "read_only",
                    f"in {STATE_MOUNT} only {DOCUMENT_MOUNT} can be written; write to {PROJECT_MOUNT}",
                )
            if data is None:
                raise ToolFailure(
                    "read_only", f"{STATE_MOUNT}/{DOCUMENT_MOUNT} can be written, but not deleted"
                )
            try:
                self.check(data.decode("utf-8"))
            except UnicodeDecodeError:
                raise ToolFailure("binary", f"{STATE_MOUNT}/{DOCUMENT_MOUNT} is UTF-8 text") from None
            except Invalid as error:
                message = " — ".join(filter(None, (error.message, error.hint)))
                raise ToolFailure("invalid_arguments", f"{message}; nothing was written") from None

        where = self.prepare()
        package = "the package, read only"
        if not self.has_document:
            return [Mount(PACKAGE_MOUNT, where.package, told=package), Mount(STATE_MOUNT, where.state)]
        access = f"this run: {DOCUMENT_MOUNT} says how far it is, "
        access += (
            "and what you change there counts as a part of your answer" if _writes(policy) else "read only"
        )
        commands = policy.permits(RUN_TOOL)
        return [
            Mount(PACKAGE_MOUNT, where.package, told=package + ("; $UWF_PKG in commands" * commands)),
            Mount(STATE_MOUNT, where.state, True, access + ("; $UWF_STATE in commands" * commands), check),
        ]

    def close(self) -> None:
        if self._describe is not None:
            _remove(self.places.state)
            _remove(self._begun)

    def _body(self) -> str:
        crew = self._history.workflow.crew
        if crew is None or not crew.entry.endswith(".md"):
            return ""
        oid = self._repository.file(self._tree, crew.entry)
        text = "" if oid is None else self._repository.blob(oid).decode("utf-8", "replace")
        return _FRONTMATTER.sub("", text, count=1)

    def _write(self, text: str) -> None:
        folder = self.places.state
        try:
            _remove(folder)
            make_folders(folder, 0o700)
            self._begun.write_bytes(text.encode())
            if text:
                (folder / DOCUMENT_MOUNT).write_text(text, encoding="utf-8", newline="\n")
        except OSError as error:
            raise _unwritable(folder, error) from None

    def _read(self) -> str | None:
        name = f"{STATE_MOUNT}/{DOCUMENT_MOUNT}"
        try:
            with open(system.open_file(self.places.state / DOCUMENT_MOUNT, _READ), "rb") as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise Invalid(f"{name} is not a regular file", "write a file there")
                data = file.read(LARGEST + 1)
        except FileNotFoundError:
            return None
        except OSError:
            raise Invalid(f"{name} cannot be read", "write a regular file there") from None
        if len(data) > LARGEST:
            raise Invalid(f"{name} holds more than {LARGEST} bytes", "keep it short")
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            raise Invalid(f"{name} is not UTF-8 text", "write it anew") from None


def _writes(policy: ToolPolicy) -> bool:
    return any(policy.permits(tool) for tool in WRITING_TOOLS)


def materialise(repository: Repository, tree: Oid) -> Path:
    """Return the folder of a package's tree, made or repaired atomically. Raises StoreUnwritable,
    StoreDamaged."""
    folder = _packages(repository) / str(tree)
    expected = dict(_files(repository, tree))
    try:
        for _ in range(3):
            if _is_whole(folder, expected):
                return folder
            _make(repository, folder, expected)
    except OSError as error:
        raise _unwritable(folder, error) from None
    if not _is_whole(folder, expected):
        raise StoreUnwritable(f"another process keeps changing {folder}", "stop it, and repeat")
    return folder


def collect(instance: Instance) -> None:
    """Remove leftovers of threads that are gone, and idle packages' folders."""
    repository, known = instance.store.repository, instance.threads.ids()
    folder = repository.private / "states"
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.stem not in known:
            _remove(path)
    if not instance.locks.held():
        _remove(_packages(repository))


def _packages(repository: Repository) -> Path:
    return repository.private / "packages"


def _tree(repository: Repository, head: Head) -> Oid:
    tree = repository.file(repository.root(head.commit), "workflow/include")
    if tree is None:
        raise StoreDamaged(f"thread {head.thread} has lost the package of its crew", "see: uwf doctor")
    return tree


def _files(repository: Repository, tree: Oid) -> Iterator[tuple[str, Oid]]:
    from uwf_git.plugin import walk_tree

    for number, (path, entry) in enumerate(walk_tree(repository, tree)):
        if entry.mode not in _FILE_MODES or not all(map(_is_plain, path.split("/"))):
            raise StoreDamaged(
                f"the package in tree {tree} holds what no package may: {path!r}", "uwf verify"
            )
        if number >= MOST_FILES:
            raise StoreDamaged(f"the package in tree {tree} holds over {MOST_FILES} files", "uwf verify")
        yield path, entry.oid


def _is_plain(name: str) -> bool:
    return name not in ("", ".", "..") and "\0" not in name and name.casefold() not in (".git", "git~1")


def _is_whole(folder: Path, expected: Mapping[str, Oid]) -> bool:
    count = 0
    pending: list[tuple[Path, str]] = [(folder, "")]
    folders = {"", *(path[: at.start() + 1] for path in expected for at in re.finditer("/", path))}
    while pending:
        here, prefix = pending.pop()
        if prefix not in folders:
            return False
        try:
            if not stat.S_ISDIR(here.lstat().st_mode):
                return False
            with os.scandir(here) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        pending.append((here / entry.name, f"{prefix}{entry.name}/"))
                        continue
                    oid = expected.get(prefix + entry.name)
                    if oid is None or not _holds(here / entry.name, oid):
                        return False
                    count += 1
        except OSError:
            return False
    return count == len(expected)


def _holds(path: Path, oid: Oid) -> bool:
    with open(system.open_file(path, _READ), "rb") as file:
        status = os.fstat(file.fileno())
        plain = stat.S_ISREG(status.st_mode) and status.st_nlink == 1
        return plain and id_of(BLOB, file.read()) == oid


def _make(repository: Repository, folder: Path, files: Mapping[str, Oid]) -> None:
    make_folders(folder.parent)
    aside, old = (folder.with_name(f"{folder.name}.{os.urandom(4).hex()}{ASIDE_FOLDER}") for _ in range(2))
    aside.mkdir(mode=0o700)
    try:
        for path, oid in files.items():
            target = aside / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(repository.blob(oid))
            target.chmod(0o444)
        for within, _, _ in os.walk(aside, topdown=False):
            if Path(within) != aside:  # to rename a folder one has to be able to write it
                Path(within).chmod(0o555)
        with contextlib.suppress(FileNotFoundError):
            folder.rename(old)
        try:
            aside.rename(folder)
        except OSError as error:  # another process was faster
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                raise
    finally:
        _remove(aside)
        _remove(old)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        if not stat.S_ISDIR(path.lstat().st_mode):
            path.unlink()
            return
        for within, _, _ in os.walk(path):
            Path(within).chmod(0o700)
        shutil.rmtree(path, ignore_errors=True)


def _unwritable(folder: Path, error: OSError) -> StoreUnwritable:
    return StoreUnwritable(
        f"cannot write {folder}: {error.strerror or error}", "check permissions and free space"
    )
