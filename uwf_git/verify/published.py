"""A branch that uwf published, or that holds what uwf published: verified by the commits and nodes in it, without a
store.

Every commit on a branch of uwf's must be a record, but for what a forge makes of a pull request. Commits that are no
records are foreign:

    a merge that takes the tree of one of its parents   the merge of a forge; it is counted
    any other on a branch named uwf/threads/…           a finding
    one with a whole tree of uwf's                      a squash: a warning, as it has no commits of its steps
    an edit of a definition's source                    what a proposal may be: a warning
    any other                                           a finding

A branch is a project's if its first parents lead to a commit that holds nothing of uwf's, and neither it nor the branch
that it is to be merged into is named as ours are. Its own commits and files are its own; those of uwf in it are
verified, and steps that were merged into it must still be there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from uwf_git.base.errors import NothingToVerify, StoreDamaged, UwfError
from uwf_git.base.text import counted, one_line
from uwf_git.base.timelimit import TimeExceeded, time_limit
from uwf_git.format.ids import Hash, ThreadId, is_thread_id
from uwf_git.git.foreign import ForeignRepository, shallow_commits
from uwf_git.git.objects import parse_commit
from uwf_git.git.repository import COMMIT, Oid, Repository, TooLarge
from uwf_git.store import layout, ref_kinds
from uwf_git.store.index import Overlay
from uwf_git.store.indexing import Store
from uwf_git.verify.definition import SECONDS, line_in
from uwf_git.verify.findings import UNCHECKED, Bad, Finding
from uwf_git.verify.nodes import row_of
from uwf_git.verify.objects import COUNT_LIMIT, FILE, FOLDER, MESSAGE_LIMIT, CommitObject, shown_name
from uwf_git.verify.refs import MOST, Verifier
from uwf_git.verify.uncommitted import (
    ATTRIBUTES,
    DEFINITION_FILES,
    PAGE,
    START,
    STEPS,
    THREAD,
    WORKFLOW,
    MadeKnown,
    MadeObjects,
    TreeCheck,
    TreeHistory,
    kind_of_tree,
    last_step,
)
from uwf_git.verify.verified import Record
from uwf_git.verify.whole import VerifyResult, coded, made_up

HEADS = "refs/heads/"
_WORK = layout.BRANCHES + "work/"  # the code of worktrees
_MOST_TREES = 20  # trees of foreign commits that are checked, besides the newest
_MOST_PATHS = 20  # changed paths that a message names
_MOST_CHANGED = 10_000  # entries of trees that are compared for a message
_LONG_WAY = 100_000  # commits of a thread that are walked to find a branch's


class Branch(NamedTuple):
    """What is verified: a `name` for messages, and the branch's full name, "" for a commit of none. With `merged`, the
    commit may be what a forge would make of the branch, as in a checkout for a pull request. `at` is the ref here that
    leads to it, "" for none. `target` is the full name of the branch that it is to be merged into, "" if unknown."""

    name: str
    ref: str = ""
    merged: bool = False
    at: str = ""
    target: str = ""

    @property
    def purpose(self) -> str:
        """What uwf keeps on branches so named: "threads", "base", "proposals", "workflows", …; "" for others."""
        return self.ref.removeprefix(layout.BRANCHES).split("/", 1)[0] if self._is_ours else ""

    @property
    def of(self) -> str:
        """The thread or definition that the branch is called after, "" for none."""
        return self.ref.removeprefix(layout.BRANCHES).partition("/")[2] if self._is_ours else ""

    @property
    def thread(self) -> ThreadId | None:
        """The thread that the branch shows."""
        return ThreadId(self.of) if self.purpose == "threads" and is_thread_id(self.of) else None

    @property
    def shown(self) -> str:
        """The ref of a store that the branch shows: that of its thread or definition, else a branch's name."""
        kind = next(
            (each for each in ref_kinds.versioned().values() if self.ref.startswith(each.branches)), None
        )
        if kind is not None:
            return kind.prefix + self.ref.removeprefix(kind.branches)
        return layout.THREADS + self.thread if self.thread is not None else self.ref or f"{HEADS}{self.name}"

    @property
    def is_into_ours(self) -> bool:
        """Whether it is to be merged into a branch of a thread or definition."""
        return self.target.startswith(layout.BRANCHES) and not self.target.startswith(_WORK)

    @property
    def _is_ours(self) -> bool:
        return self.ref.startswith(layout.BRANCHES)


class Subject(NamedTuple):
    """Something that was verified: its `kind` ("thread", "workflow", "crew", …), the workflow's or its own name, the
    steps of a thread, the commit that has it, and whether its commits were verified too or the nodes alone."""

    kind: str
    name: str
    steps: int
    commit: str
    by: str

    def to_json(self) -> dict[str, Any]:
        value = self._asdict()
        if self.kind != THREAD:
            del value["steps"]
        return value


class Published(NamedTuple):
    """The result for a branch: findings, warnings and notes in `verified`, and what there was. `merges` are those of
    forges. `tree` is the commit's, and `mine` the names in its root that are uwf's, None for all. `files` are those
    of a checkout that are as they were committed, None if there is no checkout."""

    verified: VerifyResult
    subjects: tuple[Subject, ...]
    commits: int
    pages: int
    merges: int
    tree: bytes
    mine: frozenset[str] | None
    files: int | None = None

    @property
    def counts(self) -> dict[str, int]:
        """Numbers besides those of a store."""
        counts = {
            "definitions": sum(subject.kind != THREAD for subject in self.subjects),
            "commits": self.commits,
            "merges": self.merges,
            "pages": self.pages,
        }
        return counts if self.files is None else {**counts, "files": self.files}

    def to_json(self) -> dict[str, Any]:
        return {"subjects": [subject.to_json() for subject in self.subjects]}


class ForeignCommit(NamedTuple):
    """A commit that is no record. `author` is for people."""

    oid: Oid
    tree: bytes
    parents: tuple[Oid, ...]
    author: str
    subject: str

    @property
    def words(self) -> str:
        return f"commit {self.oid} by {self.author}: {self.subject!r}"


class _Survey(NamedTuple):
    """The commits of a branch that are no records, newest first, and the first records below them. `absent` are parents
    that are not here. `left` says whether some were not looked at."""

    foreign: Mapping[bytes, ForeignCommit]
    records: Mapping[bytes, CommitObject]
    absent: frozenset[bytes]
    left: bool


def verify_branch(
    repository: Repository,
    commit: Oid,
    branch: Branch,
    heads: Mapping[ThreadId, Iterable[Oid]],
    on_commit: Callable[[], None] = lambda: None,
) -> Published:
    """Verify a commit with its past. `heads` are known heads of threads. Raises NothingToVerify, StoreDamaged if the
    commit is not here."""
    return _BranchCheck(repository, branch, on_commit).check(commit, heads)


class _BranchCheck:
    """The verification of one branch."""

    def __init__(self, repository: Repository, branch: Branch, on_commit: Callable[[], None]) -> None:
        config = repository.config
        self._repository = repository
        self._branch = branch
        self._seconds = config.max_verify
        self._objects = MadeObjects(repository, config.max_blob)
        store = Store(repository, Overlay())
        self._known = MadeKnown(self._objects, store)
        self._verifier = Verifier(
            store,
            blob_limit=config.max_blob,
            on_commit=on_commit,
            fresh=True,
            seconds=config.max_verify,
            known=self._known,
        )
        self._trees = TreeHistory(self._verifier, self._known)
        self._checked: dict[bytes, TreeCheck] = {}  # by tree
        self._ends: dict[bytes, TreeCheck] = {}  # by commit: those where history ends here
        self._findings: list[Finding] = []
        self._warnings: list[Finding] = []
        self._notes: list[Finding] = []
        self._subjects: dict[tuple[str, str], Subject] = {}
        self._merges = 0
        self._shallow = shallow_commits(repository.path)
        self._is_partial = isinstance(repository, ForeignRepository) and repository.is_partial
        self._mine: frozenset[str] | None = None
        self._tops: list[tuple[Record, Oid]] = []

    def check(self, commit: Oid, heads: Mapping[ThreadId, Iterable[Oid]]) -> Published:
        tip = self._read(commit)
        found = self._survey(commit)
        try:
            for each in found.records.values():
                self._check_record(each)
            if commit.raw not in found.records:
                self._check_foreign(tip, found)
        except Bad as bad:
            oid = bad.at if isinstance(bad.at, Oid) else commit
            self._find(bad.code, oid, bad.message, bad.path)
        if not self._subjects and not self._findings:
            hint = "see: git branch --all --list '*uwf/*', and git ls-remote origin 'refs/heads/uwf/*'"
            left = ", and not all of its history was looked at" if found.left or found.absent else ""
            raise NothingToVerify(f"nothing that uwf published is in {self._branch.name}{left}", hint)
        self._check_name()
        self._check_thread(heads)
        if found.left:
            more = self._repository.config.to_raise("uwf.maxVerify", "600")
            self._note_unchecked(
                commit, f"looking through its history took over {self._seconds} s: allow more: {more}"
            )
        self._made_up()
        records = self._known.records.items()
        steps = {record.row.node for _, record in records if record is not None and record.step is not None}
        commits = sum(record is not None and raw not in self._objects.commits for raw, record in records)
        threads = sum(subject.kind == THREAD for subject in self._subjects.values())
        verified = VerifyResult(
            threads,
            len(steps),
            self._verifier.nodes,
            self._unique(self._findings),
            self._unique(self._warnings),
            self._unique([*self._notes, *self._verifier.unjudged]),
            (),
        )
        subjects = tuple(self._subjects.values())
        return Published(verified, subjects, commits, self._objects.pages, self._merges, tip.tree, self._mine)

    def _unique(self, found: Iterable[Finding]) -> tuple[Finding, ...]:
        thread = self._branch.thread
        ref = self._branch.ref or self._branch.name
        named = (each._replace(thread=each.thread or thread, ref=ref) for each in found)
        unique = list(dict.fromkeys(self._without_absent(named)))
        if len(unique) > MOST:
            last = unique[MOST]
            more = Finding("too-many", thread, None, last.object, f"{len(unique) - MOST} more findings", ref)
            unique = [*unique[:MOST], more]
        return tuple(unique)

    def _without_absent(self, found: Iterable[Finding]) -> Iterator[Finding]:
        """In a partial clone, an object that was left out is not damage."""
        for each in found:
            if each.code == "damaged" and self._is_partial and not self._repository.has(Oid(hex=each.object)):
                message = f"object {each.object} was left out of this partial clone; {_FETCH_LEFT_OUT}"
                yield each._replace(code=UNCHECKED, message=message)
            else:
                yield each

    # The commits

    def _survey(self, tip: Oid) -> _Survey:
        """Walk from the tip to the first records."""
        foreign: dict[bytes, ForeignCommit] = {}
        records: dict[bytes, CommitObject] = {}
        absent: set[bytes] = set()
        pending, seen = [tip], {tip.raw}
        until = time.monotonic() + self._seconds
        for oid in pending:  # grows while it is walked
            if len(foreign) % 1000 == 999 and time.monotonic() > until:
                return _Survey(foreign, records, frozenset(absent), True)
            if not self._repository.has(oid):
                absent.add(oid.raw)
                continue
            record = self._record(oid)
            if record is not None:
                records[oid.raw] = record
                continue
            each = foreign[oid.raw] = self._read(oid)
            if oid in self._shallow:
                absent.update(parent.raw for parent in each.parents)
                continue
            for parent in each.parents:
                if parent.raw not in seen:
                    seen.add(parent.raw)
                    pending.append(parent)
        return _Survey(foreign, records, frozenset(absent), False)

    def _record(self, oid: Oid) -> CommitObject | None:
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

    def _read(self, oid: Oid) -> ForeignCommit:
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
            (each[7:] for each in data.split(b"\n\n", 1)[0].split(b"\n") if each.startswith(b"author ")), b""
        )
        author = one_line(line.decode("utf-8", "replace").rsplit(" ", 2)[0], 120)
        subject = one_line(commit.message.split("\n", 1)[0], 80)
        return ForeignCommit(oid, commit.tree.raw, commit.parents, author, subject)

    def _check_record(self, tip: CommitObject) -> None:
        """Check a record with its past, as far as it is here."""
        if not all(self._check_boundary(boundary) for boundary in self._boundaries(tip)):
            return
        found = self._verifier.commit(tip.oid)
        self._findings += (self._as_foreign(each) for each in found)
        record = self._verifier.record(tip.oid)
        if record is not None:
            by = "nodes" if tip.oid.raw in self._ends else "commits"
            self._add(record, tip.oid, by)

    def _as_foreign(self, finding: Finding) -> Finding:
        """Describe a commit between records that is none."""
        if finding.code != "no-record":
            return finding
        try:
            commit = self._read(Oid(hex=finding.object))
        except (StoreDamaged, ValueError):
            return finding
        return finding._replace(
            code="foreign-commit", message=f"{commit.words} is not uwf's; {self._changes(commit)}"
        )

    def _boundaries(self, tip: CommitObject) -> list[CommitObject]:
        """Return the records whose parents are not here, without those below others."""
        if self._is_partial:
            return [tip]
        if not self._shallow:
            return []
        found: list[CommitObject] = []
        pending, seen = [tip], {tip.oid.raw}
        for commit in pending:  # grows while it is walked
            if commit.oid in self._shallow:
                found.append(commit)
                continue
            for parent in commit.parents:
                if parent.raw not in seen and (record := self._record(parent)) is not None:
                    seen.add(parent.raw)
                    pending.append(record)
        return found

    def _check_boundary(self, commit: CommitObject) -> bool:
        """Check a record whose past is not here by its tree. Return False if that says nothing."""
        assert commit.trailers is not None
        kind = ref_kinds.kind_of_record(commit.trailers.kind)
        if commit.oid.raw in self._ends or not commit.parents:
            return True
        if commit.trailers.kind not in ("start", "step") and (kind is None or not kind.versions):
            self._note_unchecked(
                commit.oid, f"a {commit.trailers.kind} is verified with all of its commits; {_FETCH_ALL}"
            )
            return False
        result = self._ends[commit.oid.raw] = self._trees.check(commit.tree, commit, is_record=True)
        self._findings += result.findings
        number = result.record.row.number if result.record is not None else 0
        what, fetch = "the commits before", _FETCH_ALL
        if self._is_partial:
            what, fetch = "all trees of the commits before", _FETCH_LEFT_OUT
        steps = (
            f"; the {counted(number, 'step')} up to it {'was' if number == 1 else 'were'} verified by nodes"
            if number
            else ""
        )
        message = (
            f"{what} {commit.oid} are not in this clone: their messages, authors and order were not checked{steps}"
            f"{_children(result)}; {fetch}"
        )
        self._warn("shallow", commit.oid, message)
        return True

    # Foreign commits

    def _check_foreign(self, tip: ForeignCommit, found: _Survey) -> None:
        is_projects = self._is_projects(tip, found)
        if is_projects:
            self._mine = self._own_names(tip.tree)
        whole = self._tree_of(tip, is_projects)
        if whole is not None and whole.kind:
            self._findings += whole.findings
            if whole.record is not None and not whole.findings:
                self._add(whole.record, tip.oid, "nodes")
        self._check_lost(tip, whole)
        if whole is not None and is_projects and whole.kind == THREAD:
            self._note_page(tip, whole)
        if not is_projects:
            self._classify(tip, whole, found)
        else:
            self._note("project", tip.oid, _of_project(self._mine or frozenset(), found))

    def _is_projects(self, tip: ForeignCommit, found: _Survey) -> bool:
        """Return whether the branch is a project's, with something of uwf's in it."""
        if self._branch.purpose or self._branch.is_into_ours:
            return False
        first = tip
        while first.parents and first.oid not in self._shallow and first.parents[0].raw in found.foreign:
            first = found.foreign[first.parents[0].raw]
        if not first.parents:
            return not kind_of_tree(self._objects, first.tree)
        if first.parents[0].raw in found.records or not found.absent:
            return False
        row = row_of(self._objects, tip.tree, ATTRIBUTES)
        return row is None or row != self._objects.attributes

    def _own_names(self, tree: bytes) -> frozenset[str]:
        """Return the names in a tree's root that are uwf's, in a project."""
        kind = kind_of_tree(self._objects, tree)
        names = {row[1].decode("utf-8", "replace") for row in self._objects.tree(tree)}
        if kind == THREAD:
            return frozenset(names & {START, STEPS, WORKFLOW, *DEFINITION_FILES})
        return frozenset(names & {WORKFLOW, *DEFINITION_FILES} if kind == WORKFLOW else ())

    def _tree_of(self, commit: ForeignCommit, apart: bool) -> TreeCheck | None:
        """Check a foreign commit's tree, unless it is that of a record; None for too many."""
        known = self._checked.get(commit.tree)
        if known is not None:
            return known
        if len(self._checked) > _MOST_TREES:
            return None
        sound = self._sound(commit.tree)
        if sound is not None:
            result = TreeCheck(_kind_of(sound), sound)
        else:
            result = self._trees.check(commit.tree, commit.oid, apart=apart)
            kind = ref_kinds.kind_of_record(result.kind) if result.kind not in ("", THREAD) else None
            if kind is not None and kind.branches and result.findings:
                result = self._edited(commit, result)
        self._checked[commit.tree] = result
        return result

    def _sound(self, tree: bytes) -> Record | None:
        """Return a verified record with this tree."""
        for raw, record in self._known.records.items():
            is_it = record is not None and record.tree == tree and raw not in self._objects.commits
            if is_it and not self._verifier.found(Oid(raw=raw)):
                return record
        return None

    def _check_lost(self, tip: ForeignCommit, whole: TreeCheck | None) -> None:
        """Report steps of the threads below the tip that its tree doesn't have, or has otherwise."""
        threads = [record for record, _ in self._tops if _kind_of(record) == THREAD]
        record = whole.record if whole is not None else None
        if record is None and whole is not None and whole.findings:
            return
        for each in threads:
            if record is None or _kind_of(record) != THREAD:
                self._find("changed-file", tip.oid, f"{tip.words} took the thread out of the branch", START)
            elif record.row.start != each.row.start:
                self._find("other-thread", tip.oid, f"{tip.words} put another thread into its place", START)
            elif record.row.number < each.row.number:
                lost = counted(each.row.number - record.row.number, "step")
                self._find(
                    "changed-file", tip.oid, f"{tip.words} took the last {lost} out of the thread", STEPS
                )
            elif self._node_at(record, each.row.number) != each.row.node:
                self._find("changed-file", tip.oid, f"{tip.words} put other steps into the thread", STEPS)

    def _node_at(self, record: Record, number: int) -> Hash | None:
        at: Record | None = record
        while at is not None and at.row.number > number:
            at = self._known.records.get(at.row.parent) if at.row.parent else None
        return at.row.node if at is not None else None

    def _classify(self, tip: ForeignCommit, whole: TreeCheck | None, found: _Survey) -> None:
        for each in found.foreign.values():
            if len(self._findings) > MOST:
                return
            is_tip = each.oid == tip.oid
            is_threads = self._branch.purpose == "threads" and not (is_tip and self._branch.merged)
            result = whole if is_tip else self._tree_of(each, False)
            if not is_threads and self._is_merge(each):
                self._merges += 1
                if all(parent.raw in found.absent for parent in each.parents):
                    message = f"the commits that {each.words} joins are not in this clone: not checked; {_FETCH_ALL}"
                    self._warn("shallow", each.oid, message)
            elif is_threads:
                self._find(
                    "foreign-commit", each.oid, f"{each.words} is not the thread's; {self._changes(each)}"
                )
            elif result is None:
                self._note_unchecked(each.oid, f"{each.words}: more foreign commits than are checked")
            elif not result.kind or result.findings or result.record is None or self._is_empty(each):
                self._find("foreign-commit", each.oid, f"{each.words} is not uwf's; {self._changes(each)}")
            elif result.kind == THREAD:
                steps = counted(result.record.row.number, "step")
                message = (
                    f"{each.words} holds {steps}, which were verified by their nodes: they have no commits of their own"
                    f" here, so who made them, when, and signatures were not checked{_children(result)}"
                )
                self._warn("squashed", each.oid, message)
            elif not self._is_edited(each):
                of = f"{result.kind} {result.record.row.name}"
                message = f"{each.words} holds a version of {of} that is not registered yet: uwf pull does"
                self._warn("unregistered", each.oid, message)

    def _is_edited(self, commit: ForeignCommit) -> bool:
        return any(each.code == "edited-source" and each.object == str(commit.oid) for each in self._warnings)

    def _is_merge(self, commit: ForeignCommit) -> bool:
        if len(commit.parents) < 2:
            return False
        trees = [self._tree_here(parent) for parent in commit.parents]
        if all(tree is None for tree in trees):
            result = self._checked.get(commit.tree)
            return result is not None and bool(result.kind) and not result.findings
        return commit.tree in trees

    def _is_empty(self, commit: ForeignCommit) -> bool:
        return len(commit.parents) == 1 and self._tree_here(commit.parents[0]) == commit.tree

    def _tree_here(self, oid: Oid) -> bytes | None:
        try:
            return self._read(oid).tree
        except StoreDamaged:
            return None

    # Definitions that were edited on a forge

    def _edited(self, commit: ForeignCommit, result: TreeCheck) -> TreeCheck:
        """Return the check of a definition's tree again, as an edit of the newest version below it: its source may
        have changed and must compile, what uwf makes of it must be as it was."""
        kind = result.kind
        below = next((record for record, _ in self._tops if record.row.kind == kind), None)
        if below is None:
            return result
        now, then = self._files(commit.tree), self._files(below.tree)
        changed = sorted(path for path in now.keys() | then.keys() if now.get(path) != then.get(path))
        folders = ref_kinds.registering(kind).foreign
        sources = [path for path in changed if path in DEFINITION_FILES or path.startswith(folders)]
        if not sources or len(sources) != len(changed):
            return result
        problem = self._compile_problem(commit, kind, sources[0])
        if problem is not None:
            return result._replace(findings=(problem,))
        message = (
            f"{sources[0]} was edited by {commit.words}; it compiles, but the page and the nodes beside it are those of"
            f" the version before: uwf pull registers it, or {ref_kinds.registering(kind).commands} accept"
        )
        self._warn("edited-source", commit.oid, message, sources[0])
        return TreeCheck(kind, below)

    def _files(self, tree: bytes) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        pending = [("", tree)]
        for prefix, folder in pending:  # grows while it is walked
            if len(pending) > COUNT_LIMIT:
                break
            for mode, name, oid in self._objects.tree(folder):
                path = prefix + shown_name(name)
                if mode == FOLDER:
                    pending.append((f"{path}/", oid))
                else:
                    found[path] = oid if mode == FILE else mode + oid
        return found

    def _compile_problem(self, commit: ForeignCommit, kind: str, path: str) -> Finding | None:
        from uwf_git.store.definitions import class_of
        from uwf_git.store.version_files import VersionFiles

        files = VersionFiles(self._repository, Oid(raw=commit.tree), "the branch")
        line = 0
        try:
            with time_limit(SECONDS):
                class_of(kind).read(files)
            return None
        except TimeExceeded:
            problem = f"takes over {SECONDS:g} s to compile"
        except UwfError as error:
            problem = f"does not compile: {error.message}"
            line = line_in(error.message, path)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError, MemoryError) as error:
            problem = f"does not compile: {type(error).__name__}"
        message = f"{path}, as {commit.words} left it, {problem}"
        return Finding("bad-source", None, None, str(commit.oid), message, "", path, line)

    # Names

    def _check_name(self) -> None:
        """Check that a branch of uwf's holds what its name says."""
        if self._branch.purpose == "threads":
            is_thread = any(_kind_of(record) == THREAD for record, _ in self._tops)
            for record, oid in self._tops[: 0 if is_thread else 1]:
                message = f"commit {oid} records a {record.row.kind}, and the branch is called after a thread"
                self._find("wrong-ref", oid, message)
        prefix = f"{layout.BRANCHES}{self._branch.purpose}/"
        kind = next((kind for kind in ref_kinds.versioned().values() if kind.branches == prefix), None)
        for record, oid in self._tops if kind is not None else ():
            assert kind is not None
            if record.row.kind != kind.records[0]:
                message = f"commit {oid} records a {record.row.kind}, not a {kind.records[0]}"
                self._find("wrong-ref", oid, message)
            elif record.row.name != self._branch.of:
                message = f"{kind.owner} {record.row.name!r}, its branch {self._branch.of!r}"
                self._find("wrong-name", oid, message)

    def _check_thread(self, heads: Mapping[ThreadId, Iterable[Oid]]) -> None:
        """Compare a thread's branch with the heads of the thread that are known here."""
        thread = self._branch.thread
        if thread is None:
            return
        known = list(heads.get(thread, ()))
        tips = [oid for record, oid in self._tops if record.row.kind in ("start", "step")]
        if not known:
            message = f"thread {thread} itself is not here, so whether the branch is of it was not checked"
            self._note("thread-elsewhere", next(iter(tips), Oid(raw=bytes(20))), message)
            return
        for tip in tips:
            further = [count for head in known if (count := self._distance(head, tip)) is not None]
            if further and min(further) > 0:
                steps = counted(min(further), "step")
                message = (
                    f"thread {thread} has {steps} more than its branch shows: uwf publish thread {thread}"
                )
                self._warn("behind", tip, message)
            elif not further:
                message = (
                    f"commit {tip} is not one of thread {thread}, which is at {' and '.join(map(str, known))}"
                )
                self._find("other-thread", tip, message)

    def _distance(self, head: Oid, commit: Oid) -> int | None:
        """Return how many steps a head is further than a commit, None if it doesn't come from it."""
        at: Oid | None = head
        for count in range(_LONG_WAY):
            if at is None or at == commit:
                return None if at is None else count
            record = self._declared(at) if self._repository.has(at) else None
            at = record.parents[0] if record is not None and record.parents else None
        return None

    # Results

    def _add(self, record: Record, oid: Oid, by: str) -> None:
        kind = _kind_of(record)
        row = record.row
        key = (kind, str(row.start or row.node))
        known = self._subjects.get(key)
        if known is None or known.steps < row.number:
            self._subjects[key] = Subject(kind, row.name or "", row.number, str(oid), by)
            self._tops.append((record, oid))

    def _made_up(self) -> None:
        name = self._branch.ref or self._branch.name
        seen: set[str] = set()
        for record, oid in self._tops:
            if _kind_of(record) != THREAD or record.row.node in seen:
                continue
            seen.add(record.row.node)
            self._warnings += made_up(self._verifier, record, self._branch.thread, oid, name)
            self._notes += coded(self._verifier, record, self._branch.thread, oid, name)

    def _note_page(self, tip: ForeignCommit, whole: TreeCheck) -> None:
        if not whole.own_page:
            message = f"{PAGE} in the root is the project's, not the page of the thread: it was not verified"
            self._warn("projects-page", tip.oid, message, PAGE)

    def _changes(self, commit: ForeignCommit) -> str:
        """Return the paths that a commit changed, as far as they are known, in words."""
        before = self._tree_here(commit.parents[0]) if commit.parents else None
        if commit.parents and before is None:
            return "what it changed is not known here"
        paths = self._changed_paths(commit.tree, before)
        if not paths:
            return "it changes no file"
        shown = ", ".join(one_line(path, 120) for path in paths[:_MOST_PATHS])
        more = f" and {len(paths) - _MOST_PATHS} more" if len(paths) > _MOST_PATHS else ""
        return f"it changes {shown}{more}"

    def _changed_paths(self, tree: bytes, before: bytes | None) -> list[str]:
        found: list[str] = []
        pending = [("", tree, before)]
        budget = _MOST_CHANGED
        while pending and budget > 0:
            prefix, now, then = pending.pop()
            try:
                rows = {row[1]: row for row in self._objects.tree(now)} if now else {}
                old = {row[1]: row for row in self._objects.tree(then)} if then else {}
            except Bad:
                found.append(prefix or "/")
                continue
            budget -= len(rows) + len(old) + 1
            for name in sorted(rows.keys() | old.keys()):
                one, other = rows.get(name), old.get(name)
                if one == other:
                    continue
                path = prefix + shown_name(name)
                folders = [
                    each[2] if each is not None and each[0] == FOLDER else None for each in (one, other)
                ]
                if any(folders) and all(each is None or each[0] == FOLDER for each in (one, other)):
                    pending.append((f"{path}/", folders[0] or b"", folders[1]))
                else:
                    found.append(path)
        return sorted(found)

    def _find(self, code: str, oid: Oid, message: str, path: str = "") -> None:
        self._findings.append(Finding(code, None, None, str(oid), message, "", path))

    def _warn(self, code: str, oid: Oid, message: str, path: str = "") -> None:
        self._warnings.append(Finding(code, None, None, str(oid), message, "", path))

    def _note(self, code: str, oid: Oid, message: str) -> None:
        self._notes.append(Finding(code, None, None, str(oid), message))

    def _note_unchecked(self, oid: Oid, message: str) -> None:
        self._findings.append(Finding(UNCHECKED, None, None, str(oid), message))


_FETCH_ALL = "fetch them: git fetch --unshallow"
_FETCH_LEFT_OUT = "fetch what was left out: git fetch --refetch --no-filter"


def _kind_of(record: Record) -> str:
    return THREAD if record.row.kind in ("start", "step") else record.row.kind


def _children(result: TreeCheck) -> str:
    if not result.children:
        return ""
    return f", nor whether the sub-workflows of {counted(result.children, 'step')} had ended"


def _of_project(mine: Iterable[str], found: _Survey) -> str:
    names = ", ".join(sorted(mine))
    commits = counted(len(found.foreign), "commit")
    where = f"of its files, {names} are uwf's" if names else "none of its files is uwf's"
    return f"the branch is a project's: {where}; its other files and {commits} of its own were not verified"
