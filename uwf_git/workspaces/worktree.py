"""A thread's worktree, and commits of its files.

Its files are read with an index of uwf's own, `worktrees/<ULID>/uwf-index`, which has no entry for a
repository that an agent left: git would enter such a repository, run commands of its configuration as the
user, and commit it as a mere id. What is ignored by git is not kept, nor what `apart` names.

    worktrees/<ULID>/uwf-index   the files as they were last read
    worktrees/<ULID>/uwf-state   the tree of that index, the submodules' folders, and the store whose thread this is
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from uwf_git.base import log
from uwf_git.base.errors import AgentFailed, WorkspaceFailed
from uwf_git.format.ids import ThreadId
from uwf_git.git.objects import Person
from uwf_git.git.program import Git
from uwf_git.sandbox.results import shown
from uwf_git.workspaces.project import Project, branch_of

if TYPE_CHECKING:
    from uwf_git.store.instance import Instance
    from uwf_git.workspaces.notes import Note

_INDEX, _STATE, _NEW = "uwf-index", "uwf-state", "uwf-index.new"
_LINK = "160000"  # the mode of a submodule
_OPERATIONS = {
    "MERGE_HEAD": "merge",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
    "BISECT_LOG": "bisect",
}
AGAIN = "step again: what the agent answered is kept"


class _State(NamedTuple):
    """`tree` is that of the index, `links` are the submodules' folders, `store` is its thread's."""

    tree: str
    links: tuple[str, ...]
    store: str


class WorktreeGone(AgentFailed):
    """A worktree was removed or moved while its agent worked."""


class Worktree:
    """The worktree of a thread in `folder`, which bears its id. `apart` are paths that are never committed;
    `store` is the git directory of the thread's store."""

    def __init__(
        self, project: Project, folder: Path, thread: ThreadId, apart: Sequence[str], store: Path
    ) -> None:
        self.project = project
        self.folder = folder
        self.thread = thread
        self.branch = branch_of(thread)
        self.admin = project.common / "worktrees" / folder.name
        self._apart = tuple(f":(top,exclude,literal){path}" for path in apart)
        self._store = str(store)
        self._options: tuple[str, ...] | None = None

    @property
    def used(self) -> float:
        """The Unix time at which a step of the thread last read it."""
        return (self.admin / _STATE).stat().st_mtime

    # Making and removing it

    @property
    def exists(self) -> bool:
        """Whether it is whole: a process that was killed may have left half of one."""
        return (self.admin / _STATE).is_file() and self.folder.is_dir()

    def add(self, commit: str) -> None:
        """Make it at a commit, on the thread's branch. Moves `refs/heads/uwf/work/<ULID>`."""
        self._check_owner()
        off = self.project.filters_off(commit)
        if self.folder.exists() or self.admin.exists():
            self._discard()
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        self._unlock()
        self.project.set_ref(self.branch, commit)
        name = self.branch.removeprefix("refs/heads/")
        try:
            self.project.run(*off, "worktree", "add", "-q", "--force", str(self.folder), name)
        except WorkspaceFailed:
            self._discard()
            raise
        links = self._links(commit)
        shutil.copy2(self.admin / "index", self.admin / _INDEX)
        self._note(_State(self.project.tree(commit), links, self._store))

    def _links(self, commit: str) -> tuple[str, ...]:
        if not self.project.line("rev-parse", "--verify", "-q", f"{commit}:.gitmodules"):
            return ()
        rows = self.project.run("ls-tree", "-r", "-z", commit).out.decode("utf-8", "surrogateescape")
        found = (row.partition("\t") for row in rows.split("\0"))
        return tuple(path for mode, _, path in found if mode.startswith(_LINK))

    def remove(self) -> None:
        """Remove it with its ignored files; its branch stays."""
        self._check_owner()
        self._discard()

    def _discard(self) -> None:
        if self.folder.is_symlink():
            self.folder.unlink()
        elif self.folder.exists():
            shutil.rmtree(self.folder, onerror=_make_removable)
        if self.admin.exists():
            shutil.rmtree(self.admin, ignore_errors=True)

    def _check_owner(self) -> None:
        if (state := self._state()) is not None and state.store != self._store:
            raise WorkspaceFailed(
                f"worktree {self.folder} belongs to thread {self.thread} of store {state.store}",
                "step it there, or work in the folder itself: --workspace shared",
            )

    # Reading it

    def _state(self) -> _State | None:
        with contextlib.suppress(OSError, ValueError, TypeError):
            tree, links, store = json.loads((self.admin / _STATE).read_bytes())
            return _State(tree, tuple(links), store)
        return None

    def _note(self, state: _State) -> None:
        new = self.admin / f"{_STATE}.new"
        new.write_text(json.dumps(state), encoding="ascii")
        new.replace(self.admin / _STATE)

    def _git(self, index: str = _INDEX) -> Git:
        return self.project.git(self.admin, self.folder, {"GIT_INDEX_FILE": str(self.admin / index)})

    def _off(self) -> tuple[str, ...]:
        if self._options is None:
            self._options = self.project.filters_off(self.head())
        return self._options

    def head(self) -> str:
        """Return the commit that is checked out. Raises WorkspaceFailed if there is none."""
        with contextlib.suppress(OSError):
            text = (self.admin / "HEAD").read_text(encoding="ascii", errors="replace").strip()
            if text.startswith("ref: refs/"):
                text = (self.project.common / text.removeprefix("ref: ")).read_text(encoding="ascii").strip()
            if len(text) in (40, 64) and not text.strip("0123456789abcdef"):
                return text
        if not (head := self.project.commit("HEAD", self._git())):
            raise WorkspaceFailed(
                f"worktree {self.folder} has no commit checked out", f"git -C {self.folder} status"
            )
        return head

    def operation(self) -> str:
        """Return the operation that is in progress, such as "merge", "" if none."""
        return next((what for name, what in _OPERATIONS.items() if (self.admin / name).exists()), "")

    def tree(self) -> str:
        """Return the tree of the files as they are. Raises WorkspaceFailed if a repository was left there,
        WorktreeGone if it was removed."""
        self.check()
        state = self._state()
        assert state is not None
        for link in state.links:
            self._check_link(link)
        own, new = self.admin / _INDEX, self.admin / _NEW
        try:
            self._unlock()
            shutil.copy2(
                own, new
            )  # with its time, by which git notices a file that changed in the same second
            before = new.stat()
            git = self._git(_NEW)
            self.project.run(*self._off(), "add", "-A", "--", ".", *self._apart, git=git)
            after = new.stat()
            if (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns):
                return state.tree
            tree = self.project.run("write-tree", git=git).out.decode("ascii").strip()
            if tree != state.tree:
                self._check_links(state.tree, tree)
            new.replace(own)
            self._note(state._replace(tree=tree))
            return tree
        except OSError as error:
            raise WorkspaceFailed(
                f"worktree {self.folder} cannot be read: {error}", f"mend that, and {AGAIN}"
            ) from None
        finally:
            new.unlink(missing_ok=True)

    def check(self) -> None:
        """Raise WorktreeGone if it was removed or moved, WorkspaceFailed if its `.git` was replaced."""
        pointer = self.folder / ".git"
        if not self.exists or not os.path.lexists(pointer):
            raise WorktreeGone(
                f"worktree {self.folder} was removed or moved",
                f"uwf thread step {self.thread} makes it again",
            )
        leads = ""
        with contextlib.suppress(OSError, ValueError):
            if pointer.is_file() and not pointer.is_symlink():
                with pointer.open("rb") as file:
                    leads = os.fsdecode(file.read(8192)).removeprefix("gitdir:").strip()
                leads = str(Path(leads).resolve())
        if leads != str(self.admin.resolve()):
            raise WorkspaceFailed(
                f"worktree {self.folder} is not kept: its .git has changed",
                f"move that away, and git -C {self.project.common} worktree repair; {AGAIN}",
            )

    def _check_link(self, link: str) -> None:
        folder = self.folder / link
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            if folder.is_symlink() or any(folder.iterdir()):
                path = shown(link)
                raise WorkspaceFailed(
                    f"worktree {self.folder} is not kept: there are files in the folder of submodule {path}",
                    f"move them out of {path}; {AGAIN}",
                )

    def _check_links(self, before: str, after: str) -> None:
        words = ("diff-tree", "-r", "-z", "--no-renames", "--no-ext-diff", before, after)
        parts = self.project.run(*words).out.decode("utf-8", "surrogateescape").split("\0")
        for row, path in zip(parts[::2], parts[1::2], strict=False):
            if row.split(" ")[1] == _LINK:
                path = shown(f"{path}/.git")
                raise WorkspaceFailed(
                    f"worktree {self.folder} is not kept: it has a git repository of its own, {path}",
                    f"move {path} out of it, or remove it; {AGAIN}",
                )

    # Changing it

    def commit(self, tree: str, message: str, author: Person, committer: Person) -> str:
        """Commit a tree, that of its files, on what is checked out, unless that has the tree already. Return
        the commit that is then checked out, on the thread's branch. Moves `refs/heads/uwf/work/<ULID>`."""
        head = self.head()
        if tree != self.project.tree(head):
            head = self.project.write_commit(tree, head, message, author, committer)
        self._check_out(head)
        return head

    def reset(self, commit: str) -> None:
        """Check out a commit; what is not ignored and not in it is removed. Moves
        `refs/heads/uwf/work/<ULID>`."""
        self.tree()
        self._unlock()
        off = self.project.filters_off(commit)
        self.project.run(*off, "read-tree", "--reset", "-u", commit, git=self._git())
        for name in _OPERATIONS:
            path = self.admin / name
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        state = self._state()
        assert state is not None
        self._note(state._replace(tree=self.project.tree(commit), links=self._links(commit)))
        self._check_out(commit)

    def _check_out(self, commit: str) -> None:
        self._unlock()
        head = f"ref: {self.branch}"
        if (self.admin / "HEAD").read_text(encoding="ascii", errors="replace").strip() != head:
            self.project.set_ref(self.branch, commit)
            self.project.run("symbolic-ref", "HEAD", self.branch, git=self._git())
        elif self.head() != commit:
            self.project.set_ref(self.branch, commit)
        own, theirs = self.admin / _INDEX, self.admin / "index"
        if own.stat().st_mtime_ns != theirs.stat().st_mtime_ns if theirs.exists() else True:
            shutil.copy2(own, self.admin / _NEW)
            (self.admin / _NEW).replace(theirs)

    def unlock(self) -> None:
        """Remove what a git that was killed has left. The caller holds the thread's lock, and no agent runs."""
        self._unlock("index", "HEAD")

    def _unlock(self, *names: str) -> None:
        branch = self.project.common / self.branch
        for path in (*(self.admin / name for name in (_NEW, _INDEX, *names)), branch):
            lock = path.with_name(f"{path.name}.lock")
            with contextlib.suppress(FileNotFoundError):
                lock.unlink()
                log.warning(
                    "K4T9WQ2X", "a git that was killed has left {lock}, which is removed", lock=str(lock)
                )


def worktree_of(instance: Instance, note: Note, thread: ThreadId) -> Worktree:
    """Return the worktree of a note; a sub-workflow's is its parent's."""
    owner = ThreadId(note.owner or thread)
    settings = instance.config.workspace.of(Path(note.checkout) if note.checkout else None)
    folder = instance.location.root / "workspaces" / owner
    apart = (*settings.copy, *settings.link)
    return Worktree(Project(Path(note.project)), folder, owner, apart, instance.location.git_dir)


def _make_removable(remove: object, path: str, error: object) -> None:
    """Make an entry's folder writable and try again; agents leave read-only folders."""
    with contextlib.suppress(OSError):
        os.chmod(os.path.dirname(path), 0o700)  # noqa: PTH101, PTH120
        if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114
            os.chmod(path, 0o700)  # noqa: PTH101
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)  # noqa: PTH108
