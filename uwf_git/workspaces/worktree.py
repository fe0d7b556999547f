"""A thread's worktree, and commits of its files.

Agents work in it with a git directory of their own (`thread_repository`). uwf reads the files with the project's
git directory and configuration, this folder as its working tree, and an index of its own, which has no entry for
a repository that an agent left: git would enter such a repository, run commands of its configuration as the
user, and commit it as a mere id. What is ignored by git is not kept, nor what `apart` names.

    uwf-worktrees/<ULID>/uwf-index   the files as they were last read
    uwf-worktrees/<ULID>/uwf-times   the times of these files then, see `file_times`
    uwf-worktrees/<ULID>/uwf-state   the tree of that index; the commit that was last checked out, and its tree;
                                     the submodules' folders; filters that are off; the store whose thread this is

Each call of git costs more than what it does, so what is known is not asked for again. Objects are written without
syncing, and then synced side by side before a ref leads to them.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import os
import re
import shlex
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from uwf_git.base import log, system
from uwf_git.base.errors import AgentFailed, WorkspaceFailed
from uwf_git.base.text import listed
from uwf_git.format.ids import ThreadId
from uwf_git.git.fsync import sync_all
from uwf_git.git.index_file import blobs_in, entries_in, index_trees
from uwf_git.git.objects import Person
from uwf_git.git.program import CallResult, Git, hint_for
from uwf_git.sandbox.results import shown
from uwf_git.workspaces.file_times import MOST, FileTimes, can_tell, states, take
from uwf_git.workspaces.notes import Note
from uwf_git.workspaces.options import WORKTREE
from uwf_git.workspaces.project import Project, work_name, work_ref, write_loose
from uwf_git.workspaces.thread_repository import ThreadRepository

if TYPE_CHECKING:
    from uwf_git.config.settings import WorkspaceSettings
    from uwf_git.store.instance import Instance
    from uwf_git.store.location import Checkout

_INDEX, _STATE, _NEW = "uwf-index", "uwf-state", "uwf-index.new"
_EXCLUDED, _UNFINISHED, _IGNORED, _KEPT = "uwf-excluded", "uwf-unfinished", "uwf-ignored", "uwf-kept"
_TIMES = "uwf-times"
_HOMES = ("HOME", "XDG_CONFIG_HOME")
_LINK = "160000"  # the mode of a submodule
_FILES = (b"100644", b"100755", b"120000")  # those of files and links
_LINK_IN_INDEX = b"\x00\x00\xe0\x00"  # the same in an index, and maybe part of a hash
_UNSYNCED = ("-c", "core.fsync=none")
_PACKING = ("pack-objects", "-q", "--window=0", "--threads=1")
_NAMED = 5  # files in a message
_SHA1 = 40  # letters of an id
_MAX_RATIO = 1032  # of a file's size to that of its compressed object
_UNCACHED = 16  # trees that are computed again at each reading
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

    signature: tuple[int, ...]
    tree: str
    commit: str
    committed: str
    links: tuple[str, ...]
    off: tuple[str, ...]
    config: tuple[int, ...]
    sparse: tuple[int, ...]
    store: str


class _Loose(NamedTuple):
    """The file of a loose object, and its bytes."""

    path: str
    size: int


class WorktreeGone(AgentFailed):
    """A worktree was removed or moved while its agent worked."""


class Worktree:
    """The worktree of a thread in `folder`, which bears its id. What `settings` copy is never committed;
    `store` is the git directory of the thread's store; `warn` gets lines for the user."""

    def __init__(
        self,
        project: Project,
        folder: Path,
        thread: ThreadId,
        settings: WorkspaceSettings,
        store: Path,
        warn: Callable[[str], None],
    ) -> None:
        self.project = project
        self.folder = folder
        self.thread = thread
        self.ref = work_ref(thread)
        self.branch = f"refs/heads/{work_name(thread)}"
        """In its own repository, the branch that agents are on."""
        self._repository = ThreadRepository(project, folder)
        self.admin = self._repository.git_dir
        self._settings = settings
        self._apart = settings.copy
        self._store = str(store)
        self._warn = warn
        self._new = _NEW
        self._is_peek = False
        self._new_objects: tuple[str, str, list[str]] = "", "", []
        """A tree, the commit it was made from, and the objects that this one lacks."""
        self._state_read: tuple[tuple[int, ...], _State | None] = (), None
        """The state that was last read, by the signature of its file."""
        self._read_at: FileTimes | None = None
        self._known_times: FileTimes | None = None
        self._is_known = False

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

    @property
    def is_half(self) -> bool:
        """Whether its folder is gone, and not by uwf."""
        return (self.admin / _STATE).is_file() and not self.folder.is_dir()

    def finish(self) -> None:
        """Note that it is set up."""
        (self.admin / _UNFINISHED).unlink(missing_ok=True)

    def add(self, commit: str) -> None:
        """Make it at a commit, on a branch of its own. Moves `refs/uwf/work/<ULID>`."""
        self._check_owner()
        settings = self.project.settings()
        off = self.project.filters_off(commit, settings)
        is_forgotten = self._state() is None
        if self.folder.is_dir() and is_forgotten and any(self.folder.iterdir()):
            aside = self.folder.with_name(f"{self.folder.name}.{os.urandom(4).hex()}")
            self.folder.rename(aside)  # git has forgotten it, and what is in it may be nowhere else
            self._warn(
                f"worktree {self.folder} had lost its git directory, and is made again; its files are in {aside}"
            )
        self._discard()
        self._known_times, self._is_known = None, True
        self.project.publish(self.thread, commit)
        try:
            self._repository.make(settings)
            (self.admin / _UNFINISHED).touch()
            self.folder.mkdir(parents=True)
            self._repository.point()
            self._lay_out(off, commit)
        except BaseException:
            self._discard()
            raise
        links, tree = tuple(self._links(commit, _INDEX)), self.project.tree(commit)
        signature = _signature(self.admin / _INDEX)
        sparse = self._sparse()
        self._note(_State(signature, tree, commit, tree, links, off, self._config(), sparse, self._store))
        self._check_out(commit)

    def _lay_out(self, off: Sequence[str], commit: str) -> None:
        try:
            self.project.run(*off, "read-tree", "--reset", "-u", commit, git=self._git())
        except WorkspaceFailed as error:
            if match := re.search(r"unable to write file (.+)$", error.message):  # git doesn't say why
                size = self.project.line("cat-file", "-s", f"{commit}:{match[1]}")
                if why := _unwritable(self.folder, int(size or 0)):
                    raise WorkspaceFailed(f"{error.message}: {why}", hint_for(why)) from None
            raise

    def refresh(self) -> None:
        """Bring the project's refs and configuration of now along."""
        self._repository.refresh()

    def _links(self, commit: str, index: str) -> dict[str, str]:
        """Return the submodules in a commit, of which there is an index: their commits by folder."""
        if _LINK_IN_INDEX not in (self.admin / index).read_bytes():
            return {}
        rows = self.project.run("ls-tree", "-r", "-z", commit).out.decode("utf-8", "surrogateescape")
        rows_of_links = (row.partition("\t") for row in rows.split("\0"))
        return {path: mode.split(" ")[2] for mode, _, path in rows_of_links if mode.startswith(_LINK)}

    def remove(self) -> None:
        """Remove it with its ignored files; its commits stay. Raises WorkspaceFailed if other worktrees are in it, or
        belong to it."""
        self._check_owner()
        if inner := self._repository.worktrees():
            raise WorkspaceFailed(
                f"worktree {self.folder} stays, since worktree {inner[0]} belongs to it",
                f"git -C {_typed(self.folder)} worktree remove {_typed(inner[0])}; then uwf gc",
            )
        if self._repository.git_dir.is_dir() and (own := sorted(self._repository.own(self.branch))):
            names = listed([name.removeprefix("refs/").removeprefix("heads/") for name in own], _NAMED)
            self._warn(
                f"what agents of thread {self.thread} kept besides its branch stays ({names}):"
                f" git -C {_typed(self.project.common)} fetch {_typed(self._repository.git_dir)} {own[0]}"
            )
        self._discard()

    def _discard(self) -> None:
        if self.folder.is_symlink():
            self.folder.unlink()
        elif self.folder.exists():
            shutil.rmtree(self.folder, onerror=_make_removable)
        repository = self._repository
        keeps = repository.git_dir.is_dir() and (repository.own(self.branch) or repository.worktrees())
        for name in (_INDEX, "index", _STATE, _TIMES, _UNFINISHED) if keeps else ():
            (self.admin / name).unlink(missing_ok=True)
        if self.admin.exists() and not keeps:
            shutil.rmtree(self.admin, ignore_errors=True)

    def forget(self) -> None:
        """Remove what is left of a worktree that was removed, with what its agents keep in their git directory, unless
        other worktrees belong to that."""
        if not self.folder.exists() and not self._repository.worktrees():
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
            path = self.admin / _STATE
            if (signature := _signature(path)) == self._state_read[0]:
                return self._state_read[1]
            value = dict(zip(_State._fields, json.loads(path.read_bytes()), strict=True))
            for name in ("signature", "links", "off", "config", "sparse"):
                value[name] = tuple(value[name])
            self._state_read = signature, _State(**value)
            return self._state_read[1]
        return None

    def _note(self, state: _State) -> None:
        if self._is_peek:
            return
        new = self.admin / f"{_STATE}.new"
        new.write_text(json.dumps(state), encoding="ascii")
        new.replace(self.admin / _STATE)
        self._state_read = (), None

    @property
    def git(self) -> Git:
        """git for the project, which knows the commits of agents that are not there yet."""
        return self._git()

    def _git(self, index: str = _INDEX) -> Git:
        return self.project.git(None, self.folder, self._variables(index))

    def _variables(self, index: str) -> dict[str, str]:
        """Return the variables that lead git to the files and to what the agent's git wrote, with the project's
        configuration: that of the worktree may be its agent's."""
        variables = {"GIT_INDEX_FILE": str(self.admin / index), "GIT_WORK_TREE": str(self.folder)}
        if self._repository.objects.is_dir():
            text = str(self._repository.objects).replace("\\", "\\\\").replace('"', '\\"')
            variables["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = f'"{text}"'
        return variables

    def head(self) -> str:
        """Return the commit that is checked out, which is in the project then. Raises WorkspaceFailed if there is
        none."""
        state = self._state()
        head = self._repository.commit("HEAD")
        if not head and state is not None:  # somebody has deleted the branch
            head = state.commit
        if not head:
            raise WorkspaceFailed(
                f"worktree {self.folder} has no commit checked out", f"git -C {_typed(self.folder)} status"
            )
        if state is not None and head != state.commit and not self.project.commit(head):
            self._sync(head, state.commit)
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
            tree = self._written(state)
            self._keep_index(state._replace(tree=tree))
            return tree

    def peek(self) -> tuple[str, str]:
        """Return the commit that is checked out and the tree of the files. Unlike `head` and `tree`, for a reader that
        doesn't hold the thread's lock: no note, index or ref changes. Raises WorkspaceFailed, WorktreeGone."""
        reader = copy.copy(self)
        reader._new, reader._is_peek = f"{_NEW}.{os.urandom(4).hex()}", True
        with reader._read() as (state, is_changed):
            tree = reader._written(state) if is_changed else state.tree
            return self._repository.commit("HEAD") or state.commit, tree

    def patch(self, before: str, after: str) -> str:
        """Return the patch between two trees or commits, which agents may have made, at most 1 MiB of it."""
        from uwf_git.workspaces.changes import PATCH, PATCH_BYTES

        done = self.git.run(*PATCH, before, after, "--", at_most=PATCH_BYTES)
        return done.out.decode("utf-8", "replace")

    @contextlib.contextmanager
    def _read(self) -> Iterator[tuple[_State, bool]]:
        """Read the files into a copy of the index; tell whether that has changed."""
        self.check()
        state = self._state()
        assert state is not None
        times = self._times(state)
        is_known = times is not None and self._known is not None and times.same_as(self._known)
        own_commit = self._repository.commit("HEAD")
        has_commits = own_commit not in ("", state.commit)
        if is_known and not has_commits and _signature(self.admin / _INDEX) == state.signature:
            yield state, False
            return
        recorded = self._recorded_links(state)
        submodules = dict(self._submodules(state, recorded))
        own, new = self.admin / _INDEX, self.admin / self._new
        try:
            if not self._is_peek:
                self._unlock()
            shutil.copy2(own, new)  # with its time, since git reads a file again that is as new as the index
            before = new.stat()
            state = self._follow_sparse(self._with_filters(state))
            moved = {path: commit for path, commit in submodules.items() if commit != recorded.get(path)}
            for path, commit in moved.items():
                self.project.run(
                    "update-index", "--cacheinfo", f"{_LINK},{commit},{path}", git=self._git(self._new)
                )
            if has_commits:
                self._add_ignored(state, own_commit)
            # git would enter the folders of submodules.
            paths = [f":(exclude,top,literal){path}" for path in submodules]
            words = (*self._excluding(), *self._adding(state), *(("--", ".", *paths) if paths else ()))
            done = self.project.run(*_UNSYNCED, *state.off, *words, check=False, git=self._git(self._new))
            if done.code:
                raise self._unreadable(done)
            after = new.stat()
            is_changed = (before.st_ino, before.st_mtime_ns) != (after.st_ino, after.st_mtime_ns)
            is_changed = is_changed or _signature(own) != state.signature
            self._read_at = times
            if not is_changed:
                self._note_times()
            yield state, is_changed
        except OSError as error:
            raise WorkspaceFailed(
                f"worktree {self.folder} cannot be read: {error}", f"mend that, and {AGAIN}"
            ) from None
        finally:
            new.unlink(missing_ok=True)

    def _add_ignored(self, state: _State, commit: str) -> None:
        """Take files that git ignores, and that the agent has committed all the same, into uwf's new index."""
        git, apart = self._git(self._new), set(self._apart)
        diff = ("diff-tree", "-r", "-z", "--no-renames", "--no-ext-diff", "--diff-filter=AM")
        parts = self.project.run(*diff, state.commit, commit, git=git).out.split(b"\0")
        paths = [path for row, path in zip(parts[::2], parts[1::2], strict=False) if row.split()[1] in _FILES]
        if not paths:
            return
        check = (*self._excluding(), "check-ignore", "-z", "--stdin")
        ignored = self.project.run(*check, stdin=b"\0".join(paths) + b"\0", check=False, git=git).out
        names = [os.fsdecode(path) for path in ignored.split(b"\0") if path]
        names = [name for name in names if self._is_present(name) and apart.isdisjoint(_places(name))]
        lines = b"".join(os.fsencode(name) + b"\0" for name in names)
        update = (*_UNSYNCED, *state.off, "update-index", "--add", "-z", "--stdin")
        done = self.project.run(*update, stdin=lines, check=False, git=git)
        if done.code:
            raise self._unreadable(done)

    def _is_present(self, path: str) -> bool:
        """Return whether a file is there, in folders of the worktree."""
        file = self.folder / path
        links = (parent.is_symlink() for parent in file.parents if parent != self.folder)
        return (file.is_symlink() or file.is_file()) and not any(links)

    def _times(self, state: _State) -> FileTimes | None:
        """Return the state of the files that git reads, None if it can't be told without git."""
        try:
            if state.links or not can_tell(self.folder) or entries_in(self.admin / _INDEX) > MOST:
                return None
            return take(self.folder, self._rules(), self._known, self._ignored_folders)
        except (OSError, WorkspaceFailed):
            return None

    @property
    def _known(self) -> FileTimes | None:
        """What is known of the files as git last read them. It is taken off the disk, where an agent could write it,
        until `keep_times`."""
        if not self._is_known:
            self._is_known = True
            with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
                text = (self.admin / _TIMES).read_bytes()
                if not self._is_peek:
                    (self.admin / _TIMES).unlink()
                self._known_times = FileTimes.parse(text)
        return self._known_times

    def keep_times(self) -> None:
        """Keep what is known of the files for the next step. No agent runs."""
        new = self.admin / f"{_TIMES}.new"
        with contextlib.suppress(OSError):
            (self.admin / _TIMES).unlink(missing_ok=True)
            if self._known_times is not None:
                new.write_bytes(self._known_times.as_json())
                new.replace(self.admin / _TIMES)

    def _note_times(self) -> None:
        """Note the state that the files had before git read them into uwf's index."""
        if (times := self._read_at) is not None:
            rules = times.rules | states([self.admin / _INDEX])
            self._known_times, self._is_known, self._read_at = times._replace(rules=rules), True, None

    def _rules(self) -> dict[str, list[int]]:
        """Return the state of the files outside the worktree that decide what git reads there."""
        names = sorted(name for name in os.environ if name.startswith("GIT_") or name in _HOMES)
        around = repr(([(name, os.environ[name]) for name in names], self._apart))
        key = f"\0{hashlib.sha256(os.fsencode(around)).hexdigest()}"
        if self._known is not None and key in self._known.rules:
            rules = states(self._known.rules)
            if rules == self._known.rules:
                return rules
        own = (_INDEX, "info/exclude", "info/sparse-checkout", "config.worktree")
        return states([*self.project.rule_files(), *(str(self.admin / name) for name in own), key])

    def _ignored_folders(self, folders: Collection[str]) -> list[str]:
        """Return those folders that git ignores and has no file of."""
        lines = b"".join(os.fsencode(folder) + b"\0" for folder in folders if folder)
        words = (*self._excluding(), "check-ignore", "-z", "--stdin")
        rows = self.project.run(*words, stdin=lines, check=False, git=self._git()).out.split(b"\0")
        index = _bytes(self.admin / _INDEX)
        return [os.fsdecode(row) for row in rows if row and row + b"/" not in index]

    def _adding(self, state: _State) -> tuple[str, ...]:
        return ("-c", "core.sparseCheckout=true", "add", "-A", "--sparse") if state.sparse else ("add", "-A")

    def _excluding(self) -> tuple[str, ...]:
        """Return git's options for not keeping `apart`, nor what the agent's git excludes, besides what the user
        excludes everywhere."""
        theirs = _bytes(self.admin / "info/exclude")
        if theirs == _bytes(self.project.common / "info/exclude"):
            theirs = b""
        if not self._apart and not theirs:
            return ()
        users = self.project.line("config", "--path", "--get", "core.excludesFile")
        home = Path(os.environ.get("XDG_CONFIG_HOME") or Path("~/.config").expanduser())
        lines = _bytes(Path(users) if users else home / "git/ignore") + b"\n" + theirs
        own = "".join(f"/{_escaped(item)}\n" for item in self._apart)
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
        files = (self.project.common / "config", self.project.common / "config.worktree")
        return tuple(number for path in files if path.exists() for number in _signature(path))

    def _unreadable(self, done: CallResult) -> WorkspaceFailed:
        if match := re.search(r"error: '(.*)/' does not have a commit checked out", done.err):
            return self._has_repository(f"{match[1]}/.git")
        return WorkspaceFailed(
            f"worktree {self.folder} cannot be read: {done.reason}", f"{hint_for(done.err)}; {AGAIN}"
        )

    def _has_repository(self, path: str) -> WorkspaceFailed:
        path = shown(path)
        return WorkspaceFailed(
            f"worktree {self.folder} is not kept: it has a git repository of its own, {path}",
            f"move {path} out of it, or remove it; {AGAIN}",
        )

    def _may_have_links(self) -> bool:
        return _LINK_IN_INDEX in (self.admin / self._new).read_bytes()

    def _keep_index(self, state: _State) -> None:
        (self.admin / _NEW).replace(self.admin / _INDEX)
        self._note(state._replace(signature=_signature(self.admin / _INDEX)))
        self._note_times()

    def check(self) -> None:
        """Raise WorktreeGone if it was removed or moved, WorkspaceFailed if its `.git` was replaced, or if it
        is of another store."""
        self._check_owner()
        if not self.exists:
            raise WorktreeGone(
                f"worktree {self.folder} was removed or moved",
                f"uwf thread step {self.thread} makes it again",
            )
        pointer, leads = self.folder / ".git", None
        with contextlib.suppress(OSError, ValueError):
            if pointer.is_file() and not pointer.is_symlink():
                with pointer.open("rb") as file:
                    named = Path(os.fsdecode(file.read(8192)).removeprefix("gitdir:").strip())
                if named == self.admin:
                    return
                leads = named.resolve()
        if leads == self.admin.resolve():
            return
        if os.path.lexists(pointer) and (leads is None or leads.exists()):
            raise WorkspaceFailed(
                f"worktree {self.folder} is not kept: its .git has changed",
                f"mv {pointer} {pointer.parent.with_suffix('.git')}; {AGAIN}",
            )
        self._repository.point()
        if leads is None:
            self._warn(f"the .git of worktree {self.folder} was removed, and is made again")

    def _recorded_links(self, state: _State) -> dict[str, str]:
        """Return the submodules' commits in uwf's index. Raises WorkspaceFailed if it has other repositories."""
        if _LINK_IN_INDEX not in (self.admin / _INDEX).read_bytes():
            return {}
        rows = self.project.run("ls-files", "--stage", "-z", git=self._git()).out
        entries = rows.decode("utf-8", "surrogateescape").split("\0")
        links = {row.partition("\t")[2]: row.split(" ")[1] for row in entries if row.startswith(_LINK)}
        for link in links:
            if link not in state.links:
                raise self._has_repository(f"{link}/.git")
        return links

    def _sparse(self) -> tuple[int, ...]:
        files = (self.admin / "info/sparse-checkout", self.admin / "config.worktree")
        return tuple(number for path in files if path.is_file() for number in _signature(path))

    def _follow_sparse(self, state: _State) -> _State:
        """Let uwf's new index leave out the files that the agent's own sparse checkout does."""
        if (sparse := self._sparse()) == state.sparse:
            return state
        skipped: list[dict[str, bool]] = []
        for name in (self._new, "index"):
            done = self.project.run("ls-files", "-t", "-z", check=False, git=self._git(name))
            if done.code:
                raise WorkspaceFailed(
                    f"worktree {self.folder} is not kept: its sparse checkout has changed, and its index cannot be"
                    f" read: {done.reason}",
                    f"git -C {_typed(self.folder)} sparse-checkout disable; {AGAIN}",
                )
            rows = done.out.decode("utf-8", "surrogateescape").split("\0")
            skipped.append({row[2:]: row.startswith("S ") for row in rows if row})
        ours, theirs = skipped
        for option, is_out in (("--skip-worktree", True), ("--no-skip-worktree", False)):
            paths = [
                path for path, out in ours.items() if out != is_out and theirs.get(path, False) == is_out
            ]
            if paths:
                lines = "".join(f"{path}\0" for path in paths).encode("utf-8", "surrogateescape")
                self.project.run(
                    "update-index", "-z", option, "--stdin", stdin=lines, git=self._git(self._new)
                )
        state = state._replace(sparse=sparse)
        self._note(state)
        return state

    def _submodules(self, state: _State, recorded: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """Yield the folders of submodules that have files, and the commit that each is at. Raises WorkspaceFailed for
        files that no commit of a submodule's remote has."""
        for link in state.links:
            folder = self.folder / link
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                if folder.is_symlink() or any(folder.iterdir()):
                    yield link, self._submodule_at(link, folder, recorded.get(link, ""))

    def _submodule_at(self, link: str, folder: Path, recorded: str) -> str:
        if link in self._apart:
            return recorded
        module, path = self._module_in(folder), shown(link)
        if module is None:
            raise WorkspaceFailed(
                f"worktree {self.folder} is not kept: there are files in the folder of submodule {path}",
                f"move them out of {path}; {AGAIN}",
            )
        head = self.project.commit("HEAD", module)
        off = self.project.own_filters_off(module)
        words = ("status", "--porcelain", "--untracked-files=no", "--ignore-submodules=dirty")
        if self.project.run(*off, *words, git=module).out:
            raise WorkspaceFailed(
                f"worktree {self.folder} is not kept: files of submodule {path} have changed",
                f"commit and push them in {folder}, or git -C {_typed(folder)} stash; {AGAIN}",
            )
        shared = ("for-each-ref", "--count=1", f"--contains={head}", "refs/remotes", "refs/tags")
        if head != recorded and not (head and self.project.line(*shared, git=module)):
            raise WorkspaceFailed(
                f"worktree {self.folder} is not kept: its submodule {path} is at a commit that its remote lacks",
                f"push it from {folder}, or git -C {_typed(folder)} checkout {recorded[:12]}; {AGAIN}",
            )
        return head

    def _module_in(self, folder: Path) -> Git | None:
        """Return git for a submodule that the worktree's git made, None for other files."""
        with contextlib.suppress(OSError, ValueError):
            pointer = folder / ".git"
            if pointer.is_file() and not (folder.is_symlink() or pointer.is_symlink()):
                named = pointer.read_text(encoding="utf-8", errors="surrogateescape").removeprefix("gitdir:")
                module = (folder / named.strip()).resolve()
                if module.is_relative_to((self.admin / "modules").resolve()):
                    return self.project.git(module, folder, {"GIT_WORK_TREE": str(folder)})
        return None

    def _check_links(self, state: _State, after: str) -> None:
        words = ("diff-tree", "-r", "-z", "--no-renames", "--no-ext-diff", state.tree, after)
        parts = self.project.run(*words).out.decode("utf-8", "surrogateescape").split("\0")
        for row, path in zip(parts[::2], parts[1::2], strict=False):
            if row.split(" ")[1] == _LINK and path not in state.links:
                raise self._has_repository(f"{path}/.git")

    # Changing it

    def commit(self, tree: str, message: str, author: Person, committer: Person) -> str:
        """Commit a tree, that of its files, on what is checked out, unless that has the tree already. Return
        the commit that is then checked out, on its branch. Moves `refs/uwf/work/<ULID>`."""
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
            tree = self._written(state) if is_changed else state.tree
            commit = self.write(tree, head, message, author, committer)
            state = state._replace(tree=tree, commit=commit, committed=tree)
            if is_changed:
                self._keep_index(state)
            else:
                self._note(state)
            self._check_out(commit)
            return commit

    def _written(self, state: _State) -> str:
        """Return the tree of the files that were read."""
        tree = self._plainly_written(state)
        if not tree:
            words = (*_UNSYNCED, *state.off, "write-tree")
            tree = self.project.run(*words, git=self._git(self._new)).out.decode("ascii").strip()
        if tree != state.tree and self._may_have_links():
            self._check_links(state, tree)
        return tree

    def _plainly_written(self, state: _State) -> str:
        """Note what is new in the index that git has just written on uwf's own, and write its trees. Return its tree;
        "" if git has to write them, also if they are many: it caches them in the index."""
        own, objects = self.admin / _INDEX, self.project.common / "objects"
        if len(state.tree) != _SHA1 or _signature(own) != state.signature:
            return ""
        try:
            index = index_trees((self.admin / self._new).read_bytes())
            blobs = index.blobs - blobs_in(own.read_bytes())
        except ValueError:
            return ""
        tree = index.root.hex()
        if state.tree == state.committed:
            self._new_objects = tree, state.commit, [oid.hex() for oid in (*index.trees, *blobs)]
        if len(index.trees) > _UNCACHED:
            return ""
        for content in index.trees.values():
            write_loose(objects, b"tree", content)
        return tree

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
        return self.project.tree(commit)

    def _sync(self, commit: str, base: str) -> None:
        """Bring what is new in a commit to the disk, and what the agent's git wrote to the project."""
        tree, on, names = self._new_objects
        if on == base and self.project.header(commit)[:2] == [f"tree {tree}", f"parent {base}"]:
            loose = self._loose(names)
            if all(0 < loose[name].size * _MAX_RATIO <= self._settings.max_file for name in names):
                self._save([commit, *names], loose)
                return
        rows = self._listed(commit, f"^{base}")
        if large := [name[1:] for name in rows if name.startswith("~")]:
            self._warn_of_large(large, commit, base)
        self._save([name.removeprefix("~") for name in rows])

    def _loose(self, names: Iterable[str]) -> dict[str, _Loose]:
        """Return the files of objects, in the project or as the agent's git wrote them; "" for those without."""
        places = [f"{place}/" for place in (self.project.common / "objects", self._repository.objects)]
        loose = {}
        for name in names:
            loose[name] = _Loose("", 0)
            for place in places:
                path = f"{place}{name[:2]}/{name[2:]}"
                with contextlib.suppress(OSError):
                    loose[name] = _Loose(path, os.stat(path).st_size)  # noqa: PTH116 -- of thousands
                    break
        return loose

    def _listed(self, commit: str, *known: str) -> list[str]:
        """Return the objects of a commit that `known` leads not to, large ones with `~`."""
        most = f"--filter=blob:limit={int(self._settings.max_file) + 1}"
        words = (
            "rev-list",
            "--objects",
            "--no-object-names",
            most,
            "--filter-print-omitted",
            commit,
            *known,
        )
        done = self.project.run(*words, check=False, git=self._git())
        if done.code:
            raise self._incomplete(done)
        return done.out.decode("ascii").split()

    def _save(self, names: Sequence[str], known: Mapping[str, _Loose] = {}) -> None:
        """Wait until objects are on the disk, and in the project. `known` are the files of some."""
        objects = f"{self.project.common}/objects"
        loose: dict[str, str] = {}
        others: list[str] = []
        for name, (path, _) in {**self._loose(name for name in names if name not in known), **known}.items():
            if not path:
                others.append(name)
                continue
            loose[name] = f"{objects}/{name[:2]}/{name[2:]}"
            if path != loose[name]:
                _bring(Path(path), Path(loose[name]))
        packed = others if any(self._repository.objects.glob("pack/*.pack")) else []
        if packed or len(loose) > _FEW:  # one pack waits for the disk once
            head = loose.pop(names[0], "")  # the commit stays where it is read
            lines = "".join(f"{name}\n" for name in (*packed, *loose)).encode("ascii")
            self.project.run(*_PACKING, f"{objects}/pack/pack", stdin=lines, git=self._git())
            for path in loose.values():
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)  # noqa: PTH108
            loose = {names[0]: head} if head else {}
        with contextlib.ExitStack() as opened:
            files = []
            for path in loose.values():
                files.append(system.open_file(path, os.O_RDONLY | system.O_CLOEXEC))
                opened.callback(os.close, files[-1])
            sync_all(files)

    def _incomplete(self, done: CallResult) -> WorkspaceFailed:
        shallow = self._repository.git_dir / "shallow"
        if _bytes(shallow).split() != _bytes(self.project.common / "shallow").split():
            return WorkspaceFailed(
                f"worktree {self.folder} is not kept: its commits go back to some that were fetched without their past",
                f"git -C {_typed(self.folder)} fetch --unshallow; {AGAIN}",
            )
        return WorkspaceFailed(
            f"the commits of worktree {self.folder} cannot be read: {done.reason}",
            f"git -C {_typed(self.folder)} fsck names what is missing; {AGAIN}",
        )

    def _warn_of_large(self, blobs: Sequence[str], commit: str, base: str) -> None:
        """Name the files that are larger than `workspace.maxFile`."""
        words = ("diff-tree", "-r", "-z", "--no-renames", "--no-ext-diff", base, commit)
        parts = self.project.run(*words, git=self._git()).out.decode("utf-8", "replace").split("\0")
        paths = {row.split(" ")[3]: path for row, path in zip(parts[::2], parts[1::2], strict=False)}
        sizes = (int(self.project.line("cat-file", "-s", blob, git=self._git())) for blob in blobs)
        files = [
            f"{paths.get(blob, blob)} ({size / 1e6:,.0f} MB)" for blob, size in zip(blobs, sizes, strict=True)
        ]
        self._warn(
            f"the code of thread {self.thread} has {listed(files, _NAMED)}, over {self._settings.max_file / 1e6:g} MB"
            " (workspace.maxFile): ignore it, or use Git LFS"
        )

    # What git ignores

    def ignored(self, *paths: str) -> list[str]:
        """Return what git ignores in it, whole folders with a slash, or the single files of `paths`. Caches and what
        was copied are left out."""
        whole = () if paths else ("--directory", "--no-empty-directory")
        words = ("ls-files", "-o", "-i", "--exclude-standard", *whole, "-z", "--", *paths)
        rows = self.project.run(*self._excluding(), *words, git=self._git()).out
        names = (row for row in rows.decode("utf-8", "surrogateescape").split("\0") if row)
        return [name for name in names if name.rstrip("/") not in self._apart and not self._is_cache(name)]

    def note_ignored(self) -> None:
        """Note what is ignored as no result of an agent."""
        (self.admin / _IGNORED).write_bytes("\0".join(self.ignored()).encode("utf-8", "surrogateescape"))

    def keep_ignored(self, place: Path) -> None:
        """Move what `workspace.keepIgnored` names to a folder. Name what else of agents is ignored, and goes."""
        kept = self.ignored(*self._settings.keep_ignored) if self._settings.keep_ignored else []
        for name in kept:
            target = place / name.rstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.is_dir() and not target.is_symlink():
                shutil.rmtree(target)
            shutil.move(self.folder / name.rstrip("/"), target)
        if kept:
            self._warn(f"ignored files of thread {self.thread} are kept in {place}: {listed(kept, _NAMED)}")
        if line := self.goes_with_it():
            self._warn(line)

    def goes_with_it(self) -> str:
        """Return a line on what agents left that git ignores and `workspace.keepIgnored` doesn't name, "" for
        nothing."""
        known = set(_bytes(self.admin / _IGNORED).decode("utf-8", "surrogateescape").split("\0"))
        ignored = [name for name in self.ignored() if name not in known]
        if ignored and self._settings.keep_ignored:
            kept = set(self.ignored(*self._settings.keep_ignored))
            files = set(self.ignored(*(f":(literal){name.rstrip('/')}" for name in ignored))) - kept
            ignored = [
                name
                for name in ignored
                if any(f"{file}/".startswith(f"{name.rstrip('/')}/") for file in files)
            ]
        if not ignored:
            return ""
        return (
            f"what git ignores goes with the worktree of thread {self.thread}:"
            f" {listed(list(map(shown, ignored)), _NAMED)}; workspace.keepIgnored names what is to be kept"
        )

    def _is_cache(self, name: str) -> bool:
        is_pythons = name.endswith(("__pycache__/", ".pyc"))
        return is_pythons or (name.endswith("/") and (self.folder / name / "CACHEDIR.TAG").is_file())

    def reset(self, commit: str) -> None:
        """Check out a commit; what is not ignored and not in it is removed. Moves
        `refs/uwf/work/<ULID>`."""
        self.tree()
        self._unlock()
        off = self.project.filters_off(commit)
        self._lay_out(off, commit)
        for name in _OPERATIONS:
            path = self.admin / name
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        state = self._state()
        assert state is not None
        tree, links = self.project.tree(commit), self._links(commit, _INDEX)
        for link, recorded in links.items():
            module = self._module_in(self.folder / link)
            if module is not None and self.project.commit("HEAD", module) != recorded:
                off = self.project.own_filters_off(module)
                self.project.run(*off, "checkout", "-q", "-f", "--detach", recorded, check=False, git=module)
        self._note(
            state._replace(
                signature=_signature(self.admin / _INDEX),
                tree=tree,
                commit=commit,
                committed=tree,
                links=tuple(links),
                off=off,
                config=self._config(),
                sparse=self._sparse(),
            )
        )
        self._check_out(commit)

    def _check_out(self, commit: str) -> None:
        self._unlock()
        self._repository.set_head(self.branch, commit)
        self.project.publish(self.thread, commit)
        own, theirs = self.admin / _INDEX, self.admin / "index"
        if own.stat().st_mtime_ns != theirs.stat().st_mtime_ns if theirs.exists() else True:
            shutil.copy2(own, self.admin / _NEW)
            (self.admin / _NEW).replace(theirs)
        self._keep_own()

    def _keep_own(self) -> None:
        """Let refs of the project keep what the agent keeps for itself: git's gc there would remove what both share."""
        repository, note = self._repository, self.admin / _KEPT
        before, _, rest = _bytes(note).decode("ascii").partition("\n")
        if before == (now := repository.signature(self.branch)):
            return
        kept, objects = set(rest.split()), repository.own_objects(self.branch)
        for oid in sorted(objects - kept):
            try:
                self._save([name.removeprefix("~") for name in self._listed(oid, "--not", "--all")])
            except WorkspaceFailed as error:  # it was incomplete before
                log.info("Q8V3XN6R", "{object} is not kept: {error}", object=oid, error=error.message)
                objects.discard(oid)
        self.project.keep_own(self.thread, objects - kept, kept - objects)
        note.write_text("\n".join((now, *sorted(objects))), encoding="ascii")

    def unlock(self) -> None:
        """Remove what a git that was killed has left. The caller holds the thread's lock, and no agent runs."""
        self._unlock("index", "HEAD")

    def _unlock(self, *names: str) -> None:
        heads = self.project.common / self.ref, self.admin / self.branch
        for path in (*(self.admin / name for name in (_NEW, _INDEX, *names)), *heads):
            lock = path.with_name(f"{path.name}.lock")
            with contextlib.suppress(FileNotFoundError):
                lock.unlink()
                log.warning(
                    "K4T9WQ2X", "a git that was killed has left {lock}, which is removed", lock=str(lock)
                )


def _unwritable(folder: Path, size: int) -> str:
    """Return why a file of a size cannot be written in a folder, "" if it can."""
    import tempfile

    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, max(size, 1))
    except OSError as error:
        return os.strerror(error.errno or 0)
    return ""


def _bytes(path: Path) -> bytes:
    with contextlib.suppress(OSError):
        return path.read_bytes()
    return b""


def _bring(source: Path, target: Path) -> None:
    """Give an object that an agent's git wrote to the project."""
    target.parent.mkdir(exist_ok=True)
    new = target.with_name(f"tmp_obj_{os.urandom(6).hex()}")
    shutil.copyfile(source, new)
    new.chmod(0o444)
    new.replace(target)


def _places(path: str) -> Iterator[str]:
    """Yield a path, and those of the folders that it is in."""
    while path:
        yield path
        path = path.rpartition("/")[0]


def _typed(path: Path) -> str:
    """Return a path as a shell takes it."""
    return shlex.quote(str(path))


def _escaped(path: str) -> str:
    return re.sub(r"([\\*?\[\]!# ])", r"\\\1", path)


def _signature(path: Path) -> tuple[int, int, int, int]:
    """Return what changes with a file. Its time of change is none that an agent can set."""
    status = path.stat()
    return status.st_mtime_ns, status.st_size, status.st_ctime_ns, status.st_ino


def worktree_of(instance: Instance, note: Note, thread: ThreadId) -> Worktree:
    """Return the worktree of a note; a sub-workflow's is its parent's."""
    owner = ThreadId(note.owner or thread)
    settings = instance.config_at(Path(note.project)).workspace.of(note.top)
    folder = instance.location.root / "workspaces" / owner
    store = instance.location.git_dir
    return Worktree(Project(Path(note.project)), folder, owner, settings, store, instance.warn)


def remote_of(instance: Instance, note: Note) -> str:
    """Return the project's remote for a thread's code, "" for none."""
    return note.remote or configured_remote(instance, Project(Path(note.project)), note.top)


def configured_remote(instance: Instance, project: Project, checkout: Path | None) -> str:
    """Return the remote that config.yaml names for a project, "" for none. One that it names for all projects has no
    effect in those without a remote of that name."""
    settings = instance.config.workspace
    remote, is_own = settings.of(checkout).remote, checkout is not None and checkout in settings.projects
    if is_own and "remote" in settings.projects[checkout or Path()]:
        return remote
    return remote if project.has_remote(remote) else ""


def worktree_note(
    project: Project, checkout: Checkout, where: Path, base: str, root: str, remote: str
) -> Note:
    """Return the note of a worktree that begins at a commit, in which agents work where a folder is in the
    checkout."""
    inside = Path()
    if checkout.top is not None and where.absolute().is_relative_to(checkout.top):
        inside = where.absolute().relative_to(checkout.top)
    folder = str(inside) if inside.parts else ""
    top = str(checkout.top or "")
    return Note(WORKTREE, str(project.common), top, folder, base, root, remote, url=project.url(remote))


def _make_removable(remove: object, path: str, error: object) -> None:
    """Make an entry's folder writable and try again; agents leave read-only folders."""
    with contextlib.suppress(OSError):
        os.chmod(os.path.dirname(path), 0o700)  # noqa: PTH101, PTH120
        if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114
            os.chmod(path, 0o700)  # noqa: PTH101
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)  # noqa: PTH108
