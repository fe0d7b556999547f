"""Merging the code of branches, and making commits again on others, by three-way merges without a worktree.

git merges in a repository of uwf's own, in a temporary folder, that reads the project's objects as alternates. So no
configuration, attributes, merge drivers or files of the project play a part, nor those of the user: every machine comes
to the same commit, and nothing is written to the project until it is wanted.
"""

from __future__ import annotations

import os
import re
import shlex
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from uwf_git.base.errors import RemoteFailed, WorkspaceFailed
from uwf_git.format.credit import Credit
from uwf_git.format.fan_out import Conflict
from uwf_git.format.ids import Hash
from uwf_git.format.quick_schema import OBJECT_ID
from uwf_git.format.types import UWF
from uwf_git.git.config import BOUNDS, Bounds
from uwf_git.git.program import Git
from uwf_git.store import layout
from uwf_git.store.threads import MOST_PARENTS
from uwf_git.workspaces.project import Project, remote_in_hint, write_commit
from uwf_git.workspaces.scratch_repository import make_scratch_repository

FORK_TRAILER = "Uwf-Fork"
_is_object_id = re.compile(OBJECT_ID).search
_MOST_PATHS = 100  # of a conflict that are named
_MOST_TEXT = 4_000  # characters of conflicting lines, a branch
_MOST_BYTES = 1 << 20  # of conflicting files, a branch, in which lines are looked for
_AROUND = 2  # lines shown before and after a conflict
_MOST_OUTPUT = 256 << 20  # bytes that git may print at once
_SECONDS = 60.0  # for one call of git
_TIME = re.compile(rb"(?m)^committer .* (\d+) [+-]\d{4}$")
_ALONE = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1",
}
_NO_ATTRIBUTES = ("-c", f"core.attributesFile={os.devnull}")


class Merged(NamedTuple):
    """A merge of branches: its commit and tree, and the conflicts by the branches' indexes."""

    commit: str
    tree: str
    conflicts: Mapping[int, Conflict]


class Pick(NamedTuple):
    """The changes from the tree of one commit to that of another, to be made again as a commit with this `message`,
    author and committer, as git writes them, with their times. `commit` is called so in a conflict."""

    base: str
    commit: str
    author: str
    committer: str
    message: str


class Rebased(NamedTuple):
    """What was made again on another commit: the last `commit` and its tree, the number of new `commits`, and
    the conflict at which it stopped."""

    commit: str
    tree: str
    commits: int
    conflict: Conflict | None = None


class Unmergeable(WorkspaceFailed):
    """git cannot merge the commit of the branch at an index here, as it takes too much time or memory."""

    def __init__(self, position: int, message: str, hint: str) -> None:
        super().__init__(message, hint)
        self.position = position


class _Commit(NamedTuple):
    tree: str
    time: int


class _Changes:
    """The changes of a tree against that of the base: modes and objects by path, None for a file that is gone."""

    def __init__(self) -> None:
        self.entries: dict[bytes, tuple[str, str] | None] = {}
        self._folders: set[bytes] = set()
        self._adds = self._removes = False

    def put(self, path: bytes, status: str, mode: str, oid: str) -> None:
        self.entries[path] = None if status == "D" else (mode, oid)
        self._folders.update(_folders(path))
        self._adds |= status not in "DM"
        self._removes |= status not in "AM"

    def add(self, other: _Changes) -> None:
        self.entries |= other.entries
        self._folders |= other._folders
        self._adds |= other._adds
        self._removes |= other._removes

    def is_apart(self, other: _Changes) -> bool:
        """Return whether a merge with other changes has both as they are. If one adds files and the other removes some,
        git may find that a file or a folder was renamed."""
        if (self._adds and other._removes) or (self._removes and other._adds):
            return not self.entries
        return all(
            path not in self._folders
            and self.entries.get(path, entry) == entry
            and not any(folder in self.entries for folder in _folders(path))
            for path, entry in other.entries.items()
        )

    def index_info(self, length: int) -> bytes:
        """Return them as input of `git update-index -z --index-info`; object ids have a length."""
        rows = ((entry or ("0", "0" * length), path) for path, entry in self.entries.items())
        return b"".join(f"{mode} {oid}\t".encode() + path + b"\0" for (mode, oid), path in rows)


def _folders(path: bytes) -> Iterator[bytes]:
    while b"/" in path:
        path = path.rpartition(b"/")[0]
        yield path


class Merging:
    """Merges of commits of one project."""

    def __init__(
        self, project: Project, folder: Path, object_id: str, bounds: Bounds, seconds: float | None = None
    ) -> None:
        self._project = project
        self._objects = folder / "objects"
        self._refs = folder / "refs/heads"
        make_scratch_repository(project, folder, object_id, "ref: refs/heads/none", is_bare=True)
        self._parents: list[str] = []
        limit = _SECONDS if seconds is None else seconds
        self._git = Git(folder, cwd=folder, variables=_ALONE, bounds=bounds, seconds=limit)
        # What is kept is written beside its place: the temporary folder may be on another file system.
        there = {
            "GIT_OBJECT_DIRECTORY": str(project.common / "objects"),
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(self._objects),
        }
        self._keeping = Git(folder, cwd=folder, variables={**_ALONE, **there}, bounds=bounds, seconds=limit)

    def missing(self, commits: Iterable[str]) -> list[str]:
        """Return those that are not commits of the project."""
        commits = list(commits)
        known = self._commits(filter(_is_object_id, commits))
        return [commit for commit in commits if commit not in known]

    def merge(self, fork: Hash, base: str, branches: Mapping[int, str]) -> Merged:
        """Merge the commits of branches, in order of their indexes, each with what was merged before it; `base` is the
        commit at which all began, `fork` the StepNode of their fork. The result has it as first parent and the merged
        commits as others; over 499 of them, as many of such commits on each other. Raises WorkspaceFailed for commits
        that are not here, and Unmergeable for one that git cannot merge here."""
        commits = self._required([base, *branches.values()])
        root, order = commits[base].tree, [position for position, _ in sorted(branches.items())]
        changes = self._changes_of(root, {item: commits[branches[item]].tree for item in order})
        done, tree = _Changes(), root  # the tree is "" until it is needed
        merged: list[str] = []
        trees: dict[int, str] = {}  # after so many of them
        conflicts: dict[int, Conflict] = {}
        for position in order:
            commit = branches[position]
            change = changes[commits[commit].tree]
            if done.is_apart(change):
                done.add(change)
                tree = tree if not change.entries else ""
            else:
                with _merging(position):
                    tree = tree or self._tree(root, done)
                    sides = ("merged", tree), (f"branch-{position}", commits[commit].tree)
                    result, paths = self._three_way(root, *sides, f"branch {position}")
                    if paths:
                        conflicts[position] = Conflict(commit, _names(paths), self._lines(result, paths))
                        continue
                    tree, done = result, self._changes(root, [result])[result]
            merged.append(commit)
            if len(merged) % MOST_PARENTS == 0:
                trees[len(merged)] = tree = tree or self._tree(root, done)
        trees[len(merged)] = tree = tree or self._tree(root, done)
        when = max(commits[item].time for item in (base, *merged))
        self._parents = [base, *merged]
        return Merged(self._written(fork, base, merged, trees, when), tree, conflicts)

    def rebase(self, onto: str, picks: Sequence[Pick]) -> Rebased:
        """Make picks again on a commit, in their order. Those whose changes are there already make no commit. Raises
        WorkspaceFailed for commits that are not here, or that git cannot merge here."""
        commits = self._required([onto, *(item for pick in picks for item in (pick.base, pick.commit))])
        commit, tree, count = onto, commits[onto].tree, 0
        for pick in picks:
            sides = ("target", tree), (pick.commit[:12], commits[pick.commit].tree)
            result, paths = self._three_way(commits[pick.base].tree, *sides, f"commit {pick.commit[:12]}")
            if paths:
                conflict = Conflict(pick.commit, _names(paths), self._lines(result, paths))
                return Rebased(commit, tree, count, conflict)
            if result != tree:
                idents = pick.author, pick.committer
                commit = self._write_commit(result, (commit,), idents, pick.message)
                tree, count = result, count + 1
        self._parents = [onto]
        return Rebased(commit, tree, count)

    def conflicting(self, ours: str, theirs: str) -> tuple[str, ...]:
        """Return the paths in which a merge of two commits, with their own base, would conflict. Raises
        WorkspaceFailed, RemoteFailed if git can't merge them here."""
        return _names(self._merge_tree(ours, theirs, "the commits")[1])

    def adds_nothing(self, ours: str, theirs: str) -> bool:
        """Return whether a merge of `theirs` would leave `ours` as it is. Raises as `conflicting`."""
        tree, conflicts = self._merge_tree(ours, theirs, "the commits")
        return not conflicts and tree == self._commits([ours])[ours].tree

    def keep(self, merged: Merged | Rebased) -> None:
        """Write the last merge, or what was rebased last, to the project. Waits for the disk; touches no ref."""
        wanted = "".join(f"{item}\n" for item in (merged.commit, *(f"^{parent}" for parent in self._parents)))
        pack = str(self._project.common / "objects/pack/pack")
        words = ("pack-objects", "-q", "--revs", "--window=0", pack)
        self._run(*words, stdin=wanted.encode("ascii"), git=self._keeping)

    def _written(
        self, fork: Hash, base: str, merged: Sequence[str], trees: Mapping[int, str], when: int
    ) -> str:
        ident = layout.agent_author(Credit(UWF)).at(when, utc=True)
        count = f"{len(merged):,} {'branch' if len(merged) == 1 else 'branches'}"
        text = layout.message(f"merge the code of {count}", {FORK_TRAILER: fork})
        commit = base
        for begin in range(0, len(merged), MOST_PARENTS):
            others = merged[begin : begin + MOST_PARENTS]
            tree = trees[begin + len(others)]
            commit = self._write_commit(tree, (commit, *dict.fromkeys(others)), (ident, ident), text)
        return commit

    def _changes_of(self, root: str, trees: Mapping[int, str]) -> dict[str, _Changes]:
        """Return the changes of the trees of branches, by their indexes, against that of the base."""
        with suppress(WorkspaceFailed):  # then single calls tell of which branch
            return self._changes(root, trees.values())
        changes: dict[str, _Changes] = {}
        for position, tree in trees.items():
            with _merging(position):
                changes |= self._changes(root, [tree])
        return changes

    def _changes(self, root: str, trees: Iterable[str]) -> dict[str, _Changes]:
        """Return the changes of trees against that of the base."""
        by_tree = {root: _Changes()}
        pairs = "".join(f"{root} {tree}\n" for tree in dict.fromkeys(trees) if tree != root)
        data = self._run(
            "diff-tree", "--stdin", "-r", "-z", "--raw", "--no-renames", stdin=pairs.encode("ascii")
        )
        at, changes = 0, _Changes()
        while at < len(data):
            if data[at : at + 1] != b":":
                end = data.index(b"\n", at)
                changes = by_tree[data[at:end].decode("ascii").split()[1]] = _Changes()
                at = end + 1
                continue
            end = data.index(b"\0", at)
            _, mode, _, oid, status = data[at:end].decode("ascii").split()
            path_end = data.index(b"\0", end + 1)
            changes.put(data[end + 1 : path_end], status, mode, oid)
            at = path_end + 1
        return by_tree

    def _tree(self, root: str, changes: _Changes) -> str:
        """Return the tree of the base with changes, by an index."""
        self._run("read-tree", root)
        self._run("update-index", "--replace", "-z", "--index-info", stdin=changes.index_info(len(root)))
        return self._run("write-tree").decode("ascii").strip()

    def _three_way(
        self, root: str, ours: tuple[str, str], theirs: tuple[str, str], what: str
    ) -> tuple[str, list[bytes]]:
        """Return the tree of a merge of two trees, each after its name in the lines of a conflict, and the paths that
        conflict, as `_merge_tree`."""
        ident = layout.agent_author(Credit(UWF)).at(0, utc=True)
        base = self._write_commit(root, (), (ident, ident), "base")
        for name, side in (ours, theirs):
            commit = self._write_commit(side, (base,), (ident, ident), name)
            (self._refs / name).write_text(f"{commit}\n")
        return self._merge_tree(ours[0], theirs[0], what)

    def _merge_tree(self, ours: str, theirs: str, what: str) -> tuple[str, list[bytes]]:
        """Return the tree of a merge, and at most 100 paths that conflict."""
        words = ("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", ours, theirs)
        done = self._git.run(*_NO_ATTRIBUTES, *words, check=False, bounded=True)
        tree, *paths = done.out.removesuffix(b"\0").split(b"\0")
        if done.code not in (0, 1) or not _is_object_id(tree.decode("ascii", "replace")):
            lines = done.err.strip().splitlines()
            raise WorkspaceFailed(
                f"project {self._project.common}: git cannot merge {what}: {lines[0] if lines else ''}",
                "it takes git 2.38 or later; see whether git works there",
            )
        return tree.decode("ascii"), list(filter(None, paths))[:_MOST_PATHS] if done.code else []

    def _lines(self, tree: str, paths: Sequence[bytes]) -> str:
        """Return the conflicting lines of a merge's files, in part."""
        parts: list[str] = []
        room = _MOST_TEXT
        for path in paths:
            if room <= 0 or b"\n" in path:
                continue
            words = ("cat-file", "blob", f"{tree}:{os.fsdecode(path)}")
            content = self._git.run(*words, check=False, at_most=_MOST_BYTES).out
            shown = "" if b"\0" in content else "".join(_conflicting(content.decode("utf-8", "replace")))
            title = path.decode("utf-8", "replace") + (
                f":\n{shown}" if shown else ": there are no lines to merge\n"
            )
            parts.append(
                title[:room] if len(title) <= room else f"{title[:room].rpartition(chr(10))[0]}\n…\n"
            )
            room -= len(title)
        return "\n".join(parts)

    def _required(self, ids: Sequence[str]) -> dict[str, _Commit]:
        """Return these commits. Raises WorkspaceFailed for one that is not here."""
        commits = self._commits(ids)
        if missing := [item for item in ids if item not in commits]:
            git = f"git -C {shlex.quote(str(self._project.common))}"
            name, names = remote_in_hint(self._project.usual_remote(), git)
            raise WorkspaceFailed(
                f"project {self._project.common}: commit {missing[0]} is not here",
                f"{git} fetch {name} {missing[0]}{names}",
            )
        return commits

    def _commits(self, ids: Iterable[str]) -> dict[str, _Commit]:
        """Return the commits of these that are here."""
        wanted = list(dict.fromkeys(ids))
        data = self._run(
            "cat-file", "--batch", stdin="".join(f"{entry}\n" for entry in wanted).encode("ascii")
        )
        commits: dict[str, _Commit] = {}
        at = 0
        for item in wanted:
            end = data.index(b"\n", at)
            words = data[at:end].split()
            at = end + 1
            if len(words) != 3:
                continue  # missing
            size = int(words[2])
            body, at = data[at : at + size].partition(b"\n\n")[0], at + size + 1
            time = _TIME.search(body)
            if words[1] == b"commit" and words[0].decode("ascii") == item and time is not None:
                commits[item] = _Commit(body[5 : body.index(b"\n")].decode("ascii"), int(time[1]))
        return commits

    def _write_commit(self, tree: str, parents: Sequence[str], idents: tuple[str, str], text: str) -> str:
        path = write_commit(self._objects, tree, parents, idents, text)
        return path.parent.name + path.name

    def _run(self, *args: str, stdin: bytes = b"", git: Git | None = None) -> bytes:
        try:
            content = (git or self._git).run(*args, stdin=stdin, bounded=True, at_most=_MOST_OUTPUT).out
        except RemoteFailed as error:
            raise WorkspaceFailed(f"project {self._project.common}: {error.message}", error.hint) from None
        if len(content) == _MOST_OUTPUT:
            raise WorkspaceFailed(
                f"project {self._project.common}: git {args[0]} lists more than {_MOST_OUTPUT >> 20} MiB",
                "let branches change fewer files",
            )
        return content


def _names(paths: Sequence[bytes]) -> tuple[str, ...]:
    return tuple(os.fsdecode(path).encode("utf-8", "replace").decode() for path in paths)


@contextmanager
def merging(
    project: Project, object_id: str, bounds: Bounds = BOUNDS, seconds: float | None = None
) -> Iterator[Merging]:
    """Return merges of a project's commits, of which `object_id` is one. `bounds` and `seconds`, for a call, are
    git's."""
    with tempfile.TemporaryDirectory(prefix="uwf-merge-", ignore_cleanup_errors=True) as folder:
        yield Merging(project, Path(folder), object_id, bounds, seconds)


@contextmanager
def _merging(position: int) -> Iterator[None]:
    """Raise the errors of a block as Unmergeable."""
    try:
        yield
    except (RemoteFailed, WorkspaceFailed) as error:
        raise Unmergeable(position, error.message, error.hint) from None


def _conflicting(text: str) -> Iterator[str]:
    """Yield the lines between markers, with a few around them."""
    lines = text.splitlines(keepends=True)
    shown: set[int] = set()
    begin: int | None = None
    for number, line in enumerate(lines):
        if line.startswith("<<<<<<< "):
            begin = number
        elif line.startswith(">>>>>>> ") and begin is not None:
            shown.update(range(max(0, begin - _AROUND), min(len(lines), number + _AROUND + 1)))
            begin = None
    last = -1
    for number in sorted(shown):
        if last >= 0 and number > last + 1:
            yield "…\n"
        yield lines[number] if lines[number].endswith("\n") else f"{lines[number]}\n"
        last = number
