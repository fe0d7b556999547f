"""A thread's worktree, and commits of its files.

Its files are read with an index of uwf's own, `worktrees/<ULID>/uwf-index`, which has no entry for a
repository that an agent left: git would enter such a repository, run commands of its configuration as the
user, and commit it as a mere id. What is ignored by git is not kept, nor what `apart` names.

    worktrees/<ULID>/uwf-index   the files as they were last read
    worktrees/<ULID>/uwf-state   the tree of that index; the commit that was last checked out, and its tree; the
                                 submodules' folders; filters that are off; the store whose thread this is

Each call of git costs more than what it does, so what is known is not asked for again. Objects are written without
syncing, and then synced side by side before a ref leads to them.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import secrets
import shutil
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from uwf_git.base import log
from uwf_git.base.errors import AgentFailed, WorkspaceFailed
from uwf_git.format.ids import ThreadId
from uwf_git.git.fsync import sync
from uwf_git.git.objects import Person
from uwf_git.git.program import Git, telling_line
from uwf_git.sandbox.results import shown
from uwf_git.workspaces.project import Project, branch_of, committed_by

if TYPE_CHECKING:
    from uwf_git.store.instance import Instance
    from uwf_git.workspaces.notes import Note

_INDEX, _STATE, _NEW = "uwf-index", "uwf-state", "uwf-index.new"
_EXCLUDED, _UNFINISHED = "uwf-excluded", "uwf-unfinished"
_LINK = "160000"  # the mode of a submodule
_LINK_IN_INDEX = b"\x00\x00\xe0\x00"  # the same in an index, and maybe part of a hash
_UNSYNCED = ("-c", "core.fsync=none")
_NOTHING = re.compile(rb"nothing (?:added )?to commit|no changes added")
_VERBATIM = ("--cleanup=verbatim", "-F", "-")
_PLAIN = ("-c", "i18n.commitEncoding=utf-8", "-c", "core.commentChar=#")
_SIDE_BY_SIDE = 32
_TRIES = 8
_FEW = 100  # objects that are synced one by one
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
    """`tree` is that of the index whose `signature` is its time and size. `commit` was last checked out by uwf and has
    `committed` as tree; `links` are the submodules' folders, `off` git's options that switch filters off
    for a repository's `config` of these times and sizes, as are `sparse` those of the patterns of a sparse
    checkout; `store` is its thread's."""

    signature: tuple[int, int]
    tree: str
    commit: str
    committed: str
    links: tuple[str, ...]
    off: tuple[str, ...]
    config: tuple[int, ...]
    sparse: tuple[int, ...]
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
        self._apart = tuple(apart)
        self._store = str(store)

    @property
    def used(self) -> float:
        """The Unix time at which a step of the thread last read it."""
        return (self.admin / _STATE).stat().st_mtime

    @property
    def commit_known(self) -> str:
        """The commit that uwf last checked out, "" without one."""
        state = self._state()
        return state.commit if state is not None else ""

    # Making and removing it

    @property
    def exists(self) -> bool:
        """Whether it is whole: a process that was killed may have left half of one."""
        is_whole = (self.admin / _STATE).is_file() and not (self.admin / _UNFINISHED).exists()
        return is_whole and self.folder.is_dir()

    def finish(self) -> None:
        """Note that it is set up."""
        (self.admin / _UNFINISHED).unlink(missing_ok=True)

    def add(self, commit: str) -> None:
        """Make it at a commit, on the thread's branch. Moves `refs/heads/uwf/work/<ULID>`."""
        self._check_owner()
        off = self.project.filters_off(commit)
        is_broken = (self.admin / _INDEX).exists() and self._state() is None
        is_forgotten = not self.admin.exists() or is_broken
        if self.folder.is_dir() and is_forgotten and any(self.folder.iterdir()):
            aside = self.folder.with_name(f"{self.folder.name}.{secrets.token_hex(4)}")
            self.folder.rename(aside)  # git has forgotten it, and what is in it may be nowhere else
            log.warning(
                "H5TX8QWD",
                "what was in {folder} is now in {aside}",
                folder=str(self.folder),
                aside=str(aside),
            )
        if self.folder.exists() or self.admin.exists():
            self._discard()
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        self._unlock()
        self.project.set_ref(self.branch, commit)
        self._add(off)
        links, tree = self._links(commit, "index"), self.project.tree(commit)
        shutil.copy2(self.admin / "index", self.admin / _INDEX)
        (self.admin / _UNFINISHED).touch()
        self._note(
            _State(
                _signature(self.admin / _INDEX),
                tree,
                commit,
                tree,
                links,
                off,
                self._config(),
                self._sparse(),
                self._store,
            )
        )

    def _add(self, off: Sequence[str]) -> None:
        name = self.branch.removeprefix("refs/heads/")
        for tries in range(1, _TRIES + 1):
            try:
                self.project.run(*off, "worktree", "add", "-q", "--force", str(self.folder), name)
                return
            except WorkspaceFailed as error:
                self._discard()
                # git reads all worktrees, and trips over one that another git is about to make.
                if tries == _TRIES or "commondir" not in error.message:
                    raise
                time.sleep(tries * random.uniform(0.01, 0.05))

    def _links(self, commit: str, index: str) -> tuple[str, ...]:
        """Return the submodules' folders in a commit, of which there is an index."""
        if _LINK_IN_INDEX not in (self.admin / index).read_bytes():
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
            value = dict(zip(_State._fields, json.loads((self.admin / _STATE).read_bytes()), strict=True))
            for name in ("signature", "links", "off", "config", "sparse"):
                value[name] = tuple(value[name])
            return _State(**value)
        return None

    def _note(self, state: _State) -> None:
        new = self.admin / f"{_STATE}.new"
        new.write_text(json.dumps(state), encoding="ascii")
        new.replace(self.admin / _STATE)

    def _git(self, index: str = _INDEX) -> Git:
        return self.project.git(self.admin, self.folder, self._variables(index))

    def _variables(self, index: str) -> dict[str, str]:
        # Not what the worktree's own files say, which its agent may have changed.
        return {"GIT_INDEX_FILE": str(self.admin / index), "GIT_COMMON_DIR": str(self.project.common)}

    def head(self) -> str:
        """Return the commit that is checked out. Raises WorkspaceFailed if there is none."""
        with contextlib.suppress(OSError):
            text = (self.admin / "HEAD").read_text(encoding="ascii", errors="replace").strip()
            if text.startswith("ref: refs/"):
                text = (self.project.common / text.removeprefix("ref: ")).read_text(encoding="ascii").strip()
            if len(text) in (40, 64) and not text.strip("0123456789abcdef"):
                return text
        head, state = self.project.commit("HEAD", self._git()), self._state()
        if not head and state is not None:  # somebody has deleted the branch
            self.project.set_ref(self.branch, state.commit)
            head = self.project.commit("HEAD", self._git())
        if not head:
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
        with self._read() as (state, is_changed):
            if not is_changed:
                return state.tree
            tree = (
                self.project.run(*_UNSYNCED, *state.off, "write-tree", git=self._git(_NEW))
                .out.decode("ascii")
                .strip()
            )
            if tree != state.tree and self._may_have_links():
                self._check_links(state.tree, tree)
            self._keep_index(state._replace(tree=tree))
            return tree

    @contextlib.contextmanager
    def _read(self) -> Iterator[tuple[_State, bool]]:
        """Read the files into a copy of the index; tell whether that has changed."""
        self.check()
        state = self._state()
        assert state is not None
        for link in state.links:
            self._check_link(link)
        self._check_index(state)
        own, new = self.admin / _INDEX, self.admin / _NEW
        try:
            self._unlock()
            shutil.copy2(own, new)  # with its time, since git reads a file again that is as new as the index
            before = new.stat()
            state = self._with_filters(state)
            words = (*self._excluding(), "add", "-A")
            done = self.project.run(*_UNSYNCED, *state.off, *words, check=False, git=self._git(_NEW))
            if done.code:
                raise self._unreadable(done.err)
            after = new.stat()
            is_changed = (before.st_ino, before.st_mtime_ns) != (after.st_ino, after.st_mtime_ns)
            yield state, is_changed or _signature(own) != state.signature
        except OSError as error:
            raise WorkspaceFailed(
                f"worktree {self.folder} cannot be read: {error}", f"mend that, and {AGAIN}"
            ) from None
        finally:
            new.unlink(missing_ok=True)

    def _excluding(self) -> tuple[str, ...]:
        """Return git's options for not keeping `apart`, besides what the user excludes everywhere."""
        if not self._apart:
            return ()
        users = self.project.line("config", "--path", "--get", "core.excludesFile")
        home = Path(os.environ.get("XDG_CONFIG_HOME") or Path("~/.config").expanduser())
        path, lines = Path(users) if users else home / "git/ignore", b""
        with contextlib.suppress(OSError):
            lines = path.read_bytes()
        own = "".join(f"/{_escaped(each)}\n" for each in self._apart)
        (self.admin / _EXCLUDED).write_bytes(lines + b"\n" + os.fsencode(own))
        return "-c", f"core.excludesFile={self.admin / _EXCLUDED}"

    def _with_filters(self, state: _State) -> _State:
        """Return the state with the filters of the repository's configuration of now."""
        config = self._config()
        if config == state.config:
            return state
        state = state._replace(config=config, off=self.project.own_filters_off(self._git()))
        self._note(state)
        return state

    def _config(self) -> tuple[int, ...]:
        found = (self.project.common / "config", self.admin / "config.worktree")
        return tuple(number for path in found if path.exists() for number in _signature(path))

    def _unreadable(self, err: str) -> WorkspaceFailed:
        if found := re.search(r"error: '(.*)/' does not have a commit checked out", err):
            return self._has_repository(f"{found[1]}/.git")
        hint = "make room" if "No space left" in err else "mend that"
        return WorkspaceFailed(
            f"worktree {self.folder} cannot be read: {telling_line(err)}", f"{hint}, and {AGAIN}"
        )

    def _has_repository(self, path: str) -> WorkspaceFailed:
        path = shown(path)
        return WorkspaceFailed(
            f"worktree {self.folder} is not kept: it has a git repository of its own, {path}",
            f"move {path} out of it, or remove it; {AGAIN}",
        )

    def _may_have_links(self) -> bool:
        return _LINK_IN_INDEX in (self.admin / _NEW).read_bytes()

    def _keep_index(self, state: _State) -> None:
        (self.admin / _NEW).replace(self.admin / _INDEX)
        self._note(state._replace(signature=_signature(self.admin / _INDEX)))

    def check(self) -> None:
        """Raise WorktreeGone if it was removed or moved, WorkspaceFailed if its `.git` was replaced, or if it
        is of another store."""
        self._check_owner()
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

    def _check_index(self, state: _State) -> None:
        if self._sparse() != state.sparse:
            raise WorkspaceFailed(
                f"worktree {self.folder} is not kept: its sparse checkout has changed, so that files are missing",
                f"git -C {self.folder} sparse-checkout disable; {AGAIN}",
            )
        if _LINK_IN_INDEX in (self.admin / _INDEX).read_bytes():
            rows = self.project.run("ls-files", "--stage", "-z", git=self._git()).out
            listed = rows.decode("utf-8", "surrogateescape").split("\0")
            for link in (row.partition("\t")[2] for row in listed if row.startswith(_LINK)):
                if link not in state.links:
                    raise self._has_repository(f"{link}/.git")

    def _sparse(self) -> tuple[int, ...]:
        patterns = self.admin / "info/sparse-checkout"
        if not patterns.is_file():
            return ()
        is_on = self.project.line("config", "--bool", "--get", "core.sparseCheckout", git=self._git())
        return _signature(patterns) if is_on == "true" else ()

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
                raise self._has_repository(f"{path}/.git")

    # Changing it

    def commit(self, tree: str, message: str, author: Person, committer: Person) -> str:
        """Commit a tree, that of its files, on what is checked out, unless that has the tree already. Return
        the commit that is then checked out, on the thread's branch. Moves `refs/heads/uwf/work/<ULID>`."""
        commit = self.write(tree, self.head(), message, author, committer)
        state = self._state()
        assert state is not None
        if commit != state.commit:
            self._note(state._replace(commit=commit, committed=tree))
        self._check_out(commit)
        return commit

    def commit_files(self, message: str, author: Person, committer: Person) -> str:
        """Commit the files as they are, as `commit` does with `tree`, by fewer calls of git."""
        with self._read() as (state, is_changed):
            head = self.head()
            if not is_changed and head == state.commit and state.tree == state.committed:
                self._check_out(head)
                return head
            if is_changed and self._may_have_links():
                tree = self.project.run(*_UNSYNCED, *state.off, "write-tree", git=self._git(_NEW)).out
                self._check_links(state.tree, tree.decode("ascii").strip())
            self._attach(head)
            known = {**committed_by(author, committer), **self._variables(_NEW)}
            git = self.project.git(self.admin, self.folder, known)
            words = ("commit", "-q", "--no-verify", "--no-gpg-sign", "--untracked-files=no", *_VERBATIM)
            text = message.encode("utf-8", "replace")
            done = self.project.run(*_UNSYNCED, *_PLAIN, *state.off, *words, stdin=text, check=False, git=git)
            commit = self.head()
            if done.code != 0 and (done.code != 1 or not _NOTHING.search(done.out)):
                raise WorkspaceFailed(
                    f"worktree {self.folder} cannot be committed: {telling_line(done.err)}",
                    f"mend that, and {AGAIN}",
                )
            if commit != state.commit:
                self._sync(commit, state.commit)
            tree_id = self.tree_of(commit)
            self._keep_index(state._replace(tree=tree_id, commit=commit, committed=tree_id))
            self._check_out(commit)
            return commit

    def write(self, tree: str, parent: str, message: str, author: Person, committer: Person) -> str:
        """Return a commit of a tree, that of its files, on another; that itself if it has the tree. Waits for
        the disk. Touches no ref."""
        state, commit = self._state(), parent
        if tree != self.tree_of(parent):
            commit = self.project.write_commit(tree, parent, message, author, committer, synced=False)
        if state is not None and commit != state.commit:
            self._sync(commit, state.commit)
        return commit

    def tree_of(self, commit: str) -> str:
        """Return the tree of a commit, which is known for the one last checked out."""
        state = self._state()
        if state is not None and state.commit == commit:
            return state.committed
        return self._tree_in(commit) or self.project.tree(commit)

    def _tree_in(self, commit: str) -> str:
        """Return the tree of a commit that is a loose object, "" if it isn't."""
        import zlib

        with contextlib.suppress(OSError, zlib.error):
            data = zlib.decompress((self.project.common / "objects" / commit[:2] / commit[2:]).read_bytes())
            first = data.partition(b"\0")[2].partition(b"\n")[0]
            if first.startswith(b"tree "):
                return first.removeprefix(b"tree ").decode("ascii")
        return ""

    def _sync(self, commit: str, base: str) -> None:
        words = ("rev-list", "--objects", "--no-object-names", commit, f"^{base}")
        names = self.project.run(*words).out.decode("ascii").split()
        objects = self.project.common / "objects"
        loose = {name: path for name in names if (path := objects / name[:2] / name[2:]).is_file()}
        if len(loose) > _FEW:  # one pack waits for the disk once
            listed = "".join(f"{name}\n" for name in loose).encode("ascii")
            self.project.run("pack-objects", "-q", "--window=0", str(objects / "pack/pack"), stdin=listed)
            for path in loose.values():
                path.unlink(missing_ok=True)
            return
        paths = [*loose.values(), *([ref] if (ref := self.project.common / self.branch).is_file() else [])]
        with ThreadPoolExecutor(min(_SIDE_BY_SIDE, len(paths) or 1)) as pool:
            for _ in pool.map(sync, paths):
                pass

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
        tree = self.project.tree(commit)
        self._note(
            state._replace(
                signature=_signature(self.admin / _INDEX),
                tree=tree,
                commit=commit,
                committed=tree,
                links=self._links(commit, _INDEX),
                off=off,
                config=self._config(),
            )
        )
        self._check_out(commit)

    def _check_out(self, commit: str) -> None:
        self._unlock()
        self._attach(commit)
        if self.head() != commit:
            self.project.set_ref(self.branch, commit)
        own, theirs = self.admin / _INDEX, self.admin / "index"
        if own.stat().st_mtime_ns != theirs.stat().st_mtime_ns if theirs.exists() else True:
            shutil.copy2(own, self.admin / _NEW)
            (self.admin / _NEW).replace(theirs)

    def _attach(self, commit: str) -> None:
        """Let HEAD be the thread's branch, wherever the agent's is."""
        head = f"ref: {self.branch}"
        if (self.admin / "HEAD").read_text(encoding="ascii", errors="replace").strip() != head:
            self.project.set_ref(self.branch, commit)
            self.project.run("symbolic-ref", "HEAD", self.branch, git=self._git())

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


def _escaped(path: str) -> str:
    return re.sub(r"([\\*?\[\]!# ])", r"\\\1", path)


def _signature(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_mtime_ns, status.st_size


def worktree_of(instance: Instance, note: Note, thread: ThreadId) -> Worktree:
    """Return the worktree of a note; a sub-workflow's is its parent's."""
    owner = ThreadId(note.owner or thread)
    settings = instance.config.workspace.of(Path(note.checkout) if note.checkout else None)
    folder = instance.location.root / "workspaces" / owner
    apart = (*settings.copy, *settings.link)
    return Worktree(Project(Path(note.project)), folder, owner, apart, instance.location.git_dir)


def remote_of(instance: Instance, note: Note) -> str:
    """Return the project's remote for a thread's branch, "" for none."""
    checkout = Path(note.checkout) if note.checkout else None
    return note.remote or configured_remote(instance, Project(Path(note.project)), checkout)


def configured_remote(instance: Instance, project: Project, checkout: Path | None) -> str:
    """Return the remote that config.yaml names for a project, "" for none. One that it names for all projects has no
    effect in those without a remote of that name."""
    settings = instance.config.workspace
    remote, is_own = settings.of(checkout).remote, checkout is not None and checkout in settings.projects
    if is_own and "remote" in settings.projects[checkout or Path()]:
        return remote
    return remote if project.has_remote(remote) else ""


def _make_removable(remove: object, path: str, error: object) -> None:
    """Make an entry's folder writable and try again; agents leave read-only folders."""
    with contextlib.suppress(OSError):
        os.chmod(os.path.dirname(path), 0o700)  # noqa: PTH101, PTH120
        if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114
            os.chmod(path, 0o700)  # noqa: PTH101
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)  # noqa: PTH108
