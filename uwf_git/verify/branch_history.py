"""The commits of a branch: records of uwf's, and foreign ones above and between them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import NamedTuple

from uwf_git.base.errors import StoreDamaged
from uwf_git.base.text import one_line
from uwf_git.git.foreign import ForeignRepository, shallow_commits
from uwf_git.git.objects import parse_commit
from uwf_git.git.repository import COMMIT, Oid, Repository, TooLarge
from uwf_git.verify.findings import Bad
from uwf_git.verify.objects import FOLDER, MESSAGE_LIMIT, CommitObject, Objects, shown_name
from uwf_git.verify.uncommitted import WORKFLOW, last_step

_MOST_PATHS = 20  # changed paths that a message names
_MOST_CHANGED = 10_000  # entries of trees that are compared for a message
_LONG_WAY = 100_000  # commits of a thread that are walked to find a branch's


class ForeignCommit(NamedTuple):
    """A commit that is no record. `author` is for people."""

    oid: Oid
    tree: bytes
    parents: tuple[Oid, ...]
    author: str
    subject: str

    @property
    def description(self) -> str:
        return f"commit {self.oid} by {self.author}: {self.subject!r}"


class Survey(NamedTuple):
    """The commits of a branch that are no records, newest first, and the first records below them. `absent` are parents
    that are not here. `left` says whether some were not looked at."""

    foreign: Mapping[bytes, ForeignCommit]
    records: Mapping[bytes, CommitObject]
    absent: frozenset[bytes]
    left: bool


class BranchHistory:
    """Reads the commits of a branch. `shallow` are those whose parents were not fetched; `is_partial` says whether
    objects may have been left out."""

    def __init__(self, repository: Repository, objects: Objects) -> None:
        self._repository = repository
        self._objects = objects
        self.shallow = shallow_commits(repository.path)
        self.is_partial = isinstance(repository, ForeignRepository) and repository.is_partial

    def survey(self, tip: Oid, seconds: float) -> Survey:
        """Walk from the tip to the first records, for at most N seconds. Raises StoreDamaged."""
        foreign: dict[bytes, ForeignCommit] = {}
        records: dict[bytes, CommitObject] = {}
        absent: set[bytes] = set()
        pending, seen = [tip], {tip.raw}
        until = time.monotonic() + seconds
        for oid in pending:  # grows while it is walked
            if len(foreign) % 1000 == 999 and time.monotonic() > until:
                return Survey(foreign, records, frozenset(absent), True)
            if not self._repository.has(oid):
                absent.add(oid.raw)
                continue
            record = self.record(oid)
            if record is not None:
                records[oid.raw] = record
                continue
            commit = foreign[oid.raw] = self.read(oid)
            if oid in self.shallow:
                absent.update(parent.raw for parent in commit.parents)
                continue
            for parent in commit.parents:
                if parent.raw not in seen:
                    seen.add(parent.raw)
                    pending.append(parent)
        return Survey(foreign, records, frozenset(absent), False)

    def read(self, oid: Oid) -> ForeignCommit:
        """Return a commit that anybody made. Raises StoreDamaged."""
        try:
            kind, data = self._repository.read_within(oid, MESSAGE_LIMIT)
            if kind != COMMIT:
                raise StoreDamaged(f"object {oid} is not a commit", "give a branch, a tag or a commit")
            commit = parse_commit(data)
        except TooLarge as error:
            raise StoreDamaged(error.message, error.hint) from None
        except ValueError:
            raise StoreDamaged(f"commit {oid} is not well formed", "look at it: git fsck") from None
        line = next(
            (part[7:] for part in data.split(b"\n\n", 1)[0].split(b"\n") if part.startswith(b"author ")), b""
        )
        author = one_line(line.decode("utf-8", "replace").rsplit(" ", 2)[0], 120)
        subject = one_line(commit.message.split("\n", 1)[0], 80)
        return ForeignCommit(oid, commit.tree.raw, commit.parents, author, subject)

    def record(self, oid: Oid) -> CommitObject | None:
        """Return a commit that is a record, None for others, such as a squash that has the trailers of one."""
        commit = self._declared(oid)
        return None if commit is None or self._is_squash(commit) else commit

    def _declared(self, oid: Oid) -> CommitObject | None:
        """Return a commit that says it is a record."""
        try:
            commit = self._objects.commit(oid)
        except Bad:
            return None
        return commit if commit.trailers is not None else None

    def _is_squash(self, commit: CommitObject) -> bool:
        """Return whether a commit has the trailers of a step or a start and adds something else: a forge keeps the
        messages of what it squashes."""
        if commit.trailers is None or commit.trailers.kind not in ("start", "step"):
            return False
        try:
            number = last_step(self._objects, commit.tree)
            if not commit.parents or not self._repository.has(commit.parents[0]):
                begin = f"{number:04d} " if commit.trailers.kind == "step" else "start "
                return not commit.message.startswith(begin)
            before = self._objects.commit(commit.parents[0])
            kind = before.trailers.kind if before.trailers is not None else ""
            if commit.trailers.kind == "start":
                return kind == WORKFLOW and number > 0
            if kind in ("start", "step"):
                return number > last_step(self._objects, before.tree) + 1
            return kind == WORKFLOW
        except Bad:
            return False

    def boundaries(self, tip: CommitObject) -> list[CommitObject]:
        """Return the records whose parents are not here, without those below others."""
        if self.is_partial:
            return [tip]
        if not self.shallow:
            return []
        objects: list[CommitObject] = []
        pending, seen = [tip], {tip.oid.raw}
        for commit in pending:  # grows while it is walked
            if commit.oid in self.shallow:
                objects.append(commit)
                continue
            for parent in commit.parents:
                if parent.raw not in seen and (record := self.record(parent)) is not None:
                    seen.add(parent.raw)
                    pending.append(record)
        return objects

    def distance(self, head: Oid, commit: Oid) -> int | None:
        """Return how many steps a head is further than a commit, None if it doesn't come from it."""
        at: Oid | None = head
        for count in range(_LONG_WAY):
            if at is None or at == commit:
                return None if at is None else count
            record = self._declared(at) if self._repository.has(at) else None
            at = record.parents[0] if record is not None and record.parents else None
        return None

    def tree_of(self, oid: Oid) -> bytes | None:
        try:
            return self.read(oid).tree
        except StoreDamaged:
            return None

    def is_empty(self, commit: ForeignCommit) -> bool:
        """Return whether a commit has the tree of its only parent."""
        return len(commit.parents) == 1 and self.tree_of(commit.parents[0]) == commit.tree

    def changes(self, commit: ForeignCommit) -> str:
        """Return the paths that a commit changed, as far as they are known, in words."""
        before = self.tree_of(commit.parents[0]) if commit.parents else None
        if commit.parents and before is None:
            return "what it changed is not known here"
        paths = self._changed_paths(commit.tree, before)
        if not paths:
            return "it changes no file"
        shown = ", ".join(one_line(path, 120) for path in paths[:_MOST_PATHS])
        more = f" and {len(paths) - _MOST_PATHS} more" if len(paths) > _MOST_PATHS else ""
        return f"it changes {shown}{more}"

    def _changed_paths(self, tree: bytes, before: bytes | None) -> list[str]:
        paths: list[str] = []
        pending = [("", tree, before)]
        budget = _MOST_CHANGED
        while pending and budget > 0:
            prefix, now, then = pending.pop()
            try:
                rows = {row[1]: row for row in self._objects.tree(now)} if now else {}
                old = {row[1]: row for row in self._objects.tree(then)} if then else {}
            except Bad:
                paths.append(prefix or "/")
                continue
            budget -= len(rows) + len(old) + 1
            for name in sorted(rows.keys() | old.keys()):
                one, other = rows.get(name), old.get(name)
                if one == other:
                    continue
                path = prefix + shown_name(name)
                folders = [
                    item[2] if item is not None and item[0] == FOLDER else None for item in (one, other)
                ]
                if any(folders) and all(item is None or item[0] == FOLDER for item in (one, other)):
                    pending.append((f"{path}/", folders[0] or b"", folders[1]))
                else:
                    paths.append(path)
        return sorted(paths)
