"""Merging the code of branches by three-way merges, without a worktree.

git merges in a repository of uwf's own, in a temporary folder, that reads the project's objects as alternates. So no
configuration, attributes, merge drivers or files of the project play a part, nor those of the user: every machine comes
to the same commit, and nothing is written to the project until it is wanted.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from uwf_git.base.errors import RemoteFailed, WorkspaceFailed
from uwf_git.format.fan_out import Conflict
from uwf_git.format.ids import Hash
from uwf_git.format.quick_schema import OBJECT_ID
from uwf_git.format.types import UWF
from uwf_git.git.program import Git
from uwf_git.store import layout
from uwf_git.workspaces.project import Project

FORK_TRAILER = "Uwf-Fork"
_is_object_id = re.compile(OBJECT_ID).search
_MOST_PARENTS = 499  # of one commit, besides the first
_MOST_PATHS = 100  # of a conflict that are named
_MOST_TEXT = 4_000  # characters of conflicting lines, a branch
_MOST_BYTES = 1 << 20  # of conflicting files, a branch, in which lines are looked for
_AROUND = 2  # lines shown before and after a conflict
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


class _Commit(NamedTuple):
    tree: str
    time: int


class Merging:
    """Merges of commits of one project."""

    def __init__(self, project: Project, folder: Path, object_id: str) -> None:
        self._project = project
        self._objects = folder / "objects"
        self._new_hash = hashlib.sha1 if len(object_id) == 40 else hashlib.sha256
        self._refs = folder / "refs/heads"
        for each in (self._objects / "info", self._refs):
            each.mkdir(parents=True)
        (folder / "HEAD").write_text("ref: refs/heads/none\n")
        format_ = "sha1" if len(object_id) == 40 else "sha256"
        extension = f"[extensions]\n\tobjectFormat = {format_}\n"
        config = f"[core]\n\tbare = true\n\trepositoryformatversion = {int(format_ != 'sha1')}\n"
        (folder / "config").write_text(config + (extension if format_ != "sha1" else ""))
        (self._objects / "info/alternates").write_bytes(os.fsencode(project.common / "objects") + b"\n")
        if (shallow := project.common / "shallow").is_file():
            shutil.copy2(shallow, folder / "shallow")
        self._git = Git(folder, cwd=folder, variables=_ALONE)

    def missing(self, commits: Iterable[str]) -> list[str]:
        """Return those that are not commits of the project."""
        commits = list(commits)
        known = self._commits(filter(_is_object_id, commits))
        return [each for each in commits if each not in known]

    def merge(self, fork: Hash, base: str, branches: Mapping[int, str]) -> Merged:
        """Merge the commits of branches, in order of their indexes, each with what was merged before it; `base` is the
        commit at which all began, `fork` the StepNode of their fork. The result has it as first parent and the merged
        commits as others; over 499 of them, as many of such commits on each other. Raises WorkspaceFailed for commits
        that are not here."""
        commits = self._commits([base, *branches.values()])
        for commit in (base, *branches.values()):
            if commit not in commits:
                raise WorkspaceFailed(
                    f"project {self._project.common}: commit {commit} is not here", "fetch it"
                )
        root = commits[base].tree
        at, trees = root, dict[str, str]()  # the tree after each merged commit
        conflicts: dict[int, Conflict] = {}
        for position, commit in sorted(branches.items()):
            tree = commits[commit].tree
            if at == root or tree == at:
                at = tree
            elif tree != root:
                found = self._three_way(root, at, tree, position)
                if isinstance(found, Conflict):
                    conflicts[position] = found._replace(commit=commit)
                    continue
                at = found
            trees[commit] = at
        when = max(commits[each].time for each in (base, *trees))
        return Merged(self._written(fork, base, trees, when), at, conflicts)

    def keep(self, merged: Merged, base: str) -> None:
        """Write a merge to the project. Waits for the disk; touches no ref."""
        wanted = f"{merged.commit}\n" + "".join(f"^{each}\n" for each in self._parents(merged.commit, base))
        pack = str(self._project.common / "objects/pack/pack")
        self._run("pack-objects", "-q", "--revs", "--window=0", pack, stdin=wanted.encode("ascii"))

    def _parents(self, commit: str, base: str) -> list[str]:
        """Return the parents of a merge that were there before."""
        found, pending = [base], [commit]
        while pending:
            lines = (
                self._run("cat-file", "commit", pending.pop())
                .partition(b"\n\n")[0]
                .decode("ascii", "replace")
            )
            first, *others = (line[7:] for line in lines.splitlines() if line.startswith("parent "))
            found += others
            pending += [first] if first != base else []
        return found

    def _written(self, fork: Hash, base: str, trees: Mapping[str, str], when: int) -> str:
        ident = layout.agent_author(UWF).at(when, utc=True)
        merged, commit = list(trees), base
        for begin in range(0, len(merged), _MOST_PARENTS):
            others = merged[begin : begin + _MOST_PARENTS]
            what = "code of a branch" if len(merged) == 1 else f"code of {len(merged):,} branches"
            text = layout.message(f"merge the {what}", {FORK_TRAILER: fork})
            commit = self._write_commit(trees[others[-1]], (commit, *others), ident, text)
        return commit

    def _three_way(self, root: str, ours: str, theirs: str, position: int) -> str | Conflict:
        """Return the tree of a merge, or a conflict whose commit is to be set."""
        ident = layout.agent_author(UWF).at(0, utc=True)
        base = self._write_commit(root, (), ident, "base")
        names = "merged", f"branch-{position}"  # as the lines of a conflict say
        for name, side in zip(names, (ours, theirs), strict=True):
            (self._refs / name).write_text(self._write_commit(side, (base,), ident, name) + "\n")
        words = (*_NO_ATTRIBUTES, "merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", *names)
        done = self._git.run(*words, check=False)
        tree, *paths = done.out.removesuffix(b"\0").split(b"\0")
        if done.code not in (0, 1) or not _is_object_id(tree.decode("ascii", "replace")):
            lines = done.err.strip().splitlines()
            raise WorkspaceFailed(
                f"project {self._project.common}: git cannot merge branch {position}: {lines[0] if lines else ''}",
                "see whether git works there",
            )
        if done.code == 0:
            return tree.decode("ascii")
        paths = [path for path in paths if path]
        shown = tuple(os.fsdecode(path).encode("utf-8", "replace").decode() for path in paths[:_MOST_PATHS])
        return Conflict("", shown, self._lines(tree.decode("ascii"), paths[:_MOST_PATHS]))

    def _lines(self, tree: str, paths: Sequence[bytes]) -> str:
        """Return the conflicting lines of a merge's files, in part."""
        parts: list[str] = []
        left = _MOST_TEXT
        for path in paths:
            if left <= 0 or b"\n" in path:
                continue
            words = ("cat-file", "blob", f"{tree}:{os.fsdecode(path)}")
            found = self._git.run(*words, check=False, at_most=_MOST_BYTES).out
            shown = "" if b"\0" in found else "".join(_conflicting(found.decode("utf-8", "replace")))
            said = path.decode("utf-8", "replace") + (
                f":\n{shown}" if shown else ": there are no lines to merge\n"
            )
            parts.append(said[:left] if len(said) <= left else f"{said[:left].rpartition(chr(10))[0]}\n…\n")
            left -= len(said)
        return "\n".join(parts)

    def _commits(self, ids: Iterable[str]) -> dict[str, _Commit]:
        """Return the commits of these that are here."""
        wanted = list(dict.fromkeys(ids))
        data = self._run("cat-file", "--batch", stdin="".join(f"{each}\n" for each in wanted).encode("ascii"))
        found: dict[str, _Commit] = {}
        at = 0
        for each in wanted:
            end = data.index(b"\n", at)
            words = data[at:end].split()
            at = end + 1
            if len(words) != 3:
                continue  # missing
            size = int(words[2])
            body, at = data[at : at + size].partition(b"\n\n")[0], at + size + 1
            time = _TIME.search(body)
            if words[1] == b"commit" and words[0].decode("ascii") == each and time is not None:
                found[each] = _Commit(body[5 : body.index(b"\n")].decode("ascii"), int(time[1]))
        return found

    def _write_commit(self, tree: str, parents: Sequence[str], ident: str, text: str) -> str:
        lines = [
            f"tree {tree}",
            *(f"parent {each}" for each in parents),
            f"author {ident}",
            f"committer {ident}",
        ]
        body = "\n".join((*lines, "", text)).encode()
        data = b"commit %d\0%b" % (len(body), body)
        name = self._new_hash(data).hexdigest()
        path = self._objects / name[:2] / name[2:]
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(zlib.compress(data, 1))
        return name

    def _run(self, *args: str, stdin: bytes = b"") -> bytes:
        try:
            return self._git.run(*args, stdin=stdin).out
        except RemoteFailed as error:
            raise WorkspaceFailed(f"project {self._project.common}: {error.message}", error.hint) from None


@contextmanager
def merging(project: Project, object_id: str) -> Iterator[Merging]:
    """Return merges of a project's commits, of which `object_id` is one."""
    with tempfile.TemporaryDirectory(prefix="uwf-merge-", ignore_cleanup_errors=True) as folder:
        yield Merging(project, Path(folder), object_id)


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
