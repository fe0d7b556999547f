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

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from uwf_git.base.errors import NothingToVerify, StoreDamaged
from uwf_git.base.text import counted
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.git.repository import Oid, Repository
from uwf_git.store import layout, ref_kinds
from uwf_git.store.index import Overlay
from uwf_git.store.indexing import Store
from uwf_git.verify.branch_history import BranchHistory, ForeignCommit, Survey
from uwf_git.verify.branch_names import Branch
from uwf_git.verify.edited_definition import edit_of
from uwf_git.verify.findings import UNCHECKED, Bad, Finding
from uwf_git.verify.nodes import row_of
from uwf_git.verify.objects import CommitObject
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
)
from uwf_git.verify.verified import Record
from uwf_git.verify.whole import VerifyResult, coded, made_up

_MOST_TREES = 20  # trees of foreign commits that are checked, besides the newest


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
    forges. `tree` is the commit's, and `own_names` the names in its root that are uwf's, None for all. `files` are
    those of a checkout that are as they were committed, None if there is no checkout."""

    verified: VerifyResult
    subjects: tuple[Subject, ...]
    commits: int
    pages: int
    merges: int
    tree: bytes
    own_names: frozenset[str] | None
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
        self._history = BranchHistory(repository, self._objects)
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
        self._uwf_names: frozenset[str] | None = None
        self._tops: list[tuple[Record, Oid]] = []

    def check(self, commit: Oid, heads: Mapping[ThreadId, Iterable[Oid]]) -> Published:
        tip = self._history.read(commit)
        survey = self._history.survey(commit, self._seconds)
        try:
            for item in survey.records.values():
                self._check_record(item)
            if commit.raw not in survey.records:
                self._check_foreign(tip, survey)
        except Bad as bad:
            oid = bad.at if isinstance(bad.at, Oid) else commit
            self._find(bad.code, oid, bad.message, bad.path)
        if not self._subjects and not self._findings:
            hint = "see: git branch --all --list '*uwf/*', and git ls-remote origin 'refs/heads/uwf/*'"
            limits = ", and not all of its history was looked at" if survey.left or survey.absent else ""
            raise NothingToVerify(f"nothing that uwf published is in {self._branch.name}{limits}", hint)
        self._check_name()
        self._check_thread(heads)
        if survey.left:
            more = self._repository.config.to_raise("uwf.maxVerify", "600")
            self._note_unchecked(
                commit, f"looking through its history took over {self._seconds} s: allow more: {more}"
            )
        self._check_heads()
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
        return Published(
            verified, subjects, commits, self._objects.pages, self._merges, tip.tree, self._uwf_names
        )

    def _unique(self, findings: Iterable[Finding]) -> tuple[Finding, ...]:
        thread = self._branch.thread
        ref = self._branch.ref or self._branch.name
        named = (finding._replace(thread=finding.thread or thread, ref=ref) for finding in findings)
        unique = list(dict.fromkeys(self._without_absent(named)))
        if len(unique) > MOST:
            last = unique[MOST]
            more = Finding("too-many", thread, None, last.object, f"{len(unique) - MOST} more findings", ref)
            unique = [*unique[:MOST], more]
        return tuple(unique)

    def _without_absent(self, findings: Iterable[Finding]) -> Iterator[Finding]:
        """In a partial clone, an object that was left out is not damage."""
        for finding in findings:
            if (
                finding.code == "damaged"
                and self._history.is_partial
                and not self._repository.has(Oid(hex=finding.object))
            ):
                message = f"object {finding.object} was left out of this partial clone; {_FETCH_LEFT_OUT}"
                yield finding._replace(code=UNCHECKED, message=message)
            else:
                yield finding

    # The commits

    def _check_record(self, tip: CommitObject) -> None:
        """Check a record with its past, as far as it is here."""
        if not all(self._check_boundary(boundary) for boundary in self._history.boundaries(tip)):
            return
        problems = self._verifier.commit(tip.oid)
        self._findings += (self._as_foreign(problem) for problem in problems)
        record = self._verifier.record(tip.oid)
        if record is not None:
            by = "nodes" if tip.oid.raw in self._ends else "commits"
            self._add(record, tip.oid, by)

    def _as_foreign(self, finding: Finding) -> Finding:
        """Describe a commit between records that is none."""
        if finding.code != "no-record":
            return finding
        try:
            commit = self._history.read(Oid(hex=finding.object))
        except (StoreDamaged, ValueError):
            return finding
        return finding._replace(
            code="foreign-commit",
            message=f"{commit.description} is not uwf's; {self._history.changes(commit)}",
        )

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
        if self._history.is_partial:
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

    def _check_foreign(self, tip: ForeignCommit, survey: Survey) -> None:
        is_projects = self._is_projects(tip, survey)
        if is_projects:
            self._uwf_names = self._own_names(tip.tree)
        whole = self._tree_of(tip, is_projects)
        if whole is not None and whole.kind:
            self._findings += whole.findings
            if whole.record is not None and not whole.findings:
                self._add(whole.record, tip.oid, "nodes")
        self._check_lost(tip, whole)
        if whole is not None and is_projects and whole.kind == THREAD:
            self._note_page(tip, whole)
        if not is_projects:
            self._classify(tip, whole, survey)
        else:
            self._note("project", tip.oid, _of_project(self._uwf_names or frozenset(), survey))

    def _is_projects(self, tip: ForeignCommit, survey: Survey) -> bool:
        """Return whether the branch is a project's, with something of uwf's in it."""
        if self._branch.purpose or self._branch.is_into_ours:
            return False
        first = tip
        while (
            first.parents
            and first.oid not in self._history.shallow
            and first.parents[0].raw in survey.foreign
        ):
            first = survey.foreign[first.parents[0].raw]
        if not first.parents:
            return not kind_of_tree(self._objects, first.tree)
        if first.parents[0].raw in survey.records or not survey.absent:
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
        for thread in threads:
            if record is None or _kind_of(record) != THREAD:
                self._find(
                    "changed-file", tip.oid, f"{tip.description} took the thread out of the branch", START
                )
            elif record.row.start != thread.row.start:
                self._find(
                    "other-thread", tip.oid, f"{tip.description} put another thread into its place", START
                )
            elif record.row.number < thread.row.number:
                lost = counted(thread.row.number - record.row.number, "step")
                self._find(
                    "changed-file",
                    tip.oid,
                    f"{tip.description} took the last {lost} out of the thread",
                    STEPS,
                )
            elif self._node_at(record, thread.row.number) != thread.row.node:
                self._find(
                    "changed-file", tip.oid, f"{tip.description} put other steps into the thread", STEPS
                )

    def _node_at(self, record: Record, number: int) -> Hash | None:
        at: Record | None = record
        while at is not None and at.row.number > number:
            at = self._known.records.get(at.row.parent) if at.row.parent else None
        return at.row.node if at is not None else None

    def _classify(self, tip: ForeignCommit, whole: TreeCheck | None, survey: Survey) -> None:
        for commit in survey.foreign.values():
            if len(self._findings) > MOST:
                return
            is_tip = commit.oid == tip.oid
            is_threads = self._branch.purpose == "threads" and not (is_tip and self._branch.merged)
            result = whole if is_tip else self._tree_of(commit, False)
            if not is_threads and self._is_merge(commit):
                self._merges += 1
                if all(parent.raw in survey.absent for parent in commit.parents):
                    joined = f"the commits that {commit.description} joins"
                    message = f"{joined} are not in this clone: not checked; {_FETCH_ALL}"
                    self._warn("shallow", commit.oid, message)
            elif is_threads:
                self._find(
                    "foreign-commit",
                    commit.oid,
                    f"{commit.description} is not the thread's; {self._history.changes(commit)}",
                )
            elif result is None:
                self._note_unchecked(
                    commit.oid, f"{commit.description}: more foreign commits than are checked"
                )
            elif (
                not result.kind or result.findings or result.record is None or self._history.is_empty(commit)
            ):
                self._find(
                    "foreign-commit",
                    commit.oid,
                    f"{commit.description} is not uwf's; {self._history.changes(commit)}",
                )
            elif result.kind == THREAD:
                steps = counted(result.record.row.number, "step")
                message = (
                    f"{commit.description} holds {steps}, which were verified by their nodes: they have no commits of"
                    f" their own here, so who made them, when, and signatures were not checked{_children(result)}"
                )
                self._warn("squashed", commit.oid, message)
            elif not self._is_edited(commit):
                of = f"{result.kind} {result.record.row.name}"
                message = (
                    f"{commit.description} holds a version of {of} that is not registered yet: uwf pull does"
                )
                self._warn("unregistered", commit.oid, message)

    def _is_edited(self, commit: ForeignCommit) -> bool:
        return any(
            warning.code == "edited-source" and warning.object == str(commit.oid)
            for warning in self._warnings
        )

    def _is_merge(self, commit: ForeignCommit) -> bool:
        if len(commit.parents) < 2:
            return False
        trees = [self._history.tree_of(parent) for parent in commit.parents]
        if all(tree is None for tree in trees):
            result = self._checked.get(commit.tree)
            return result is not None and bool(result.kind) and not result.findings
        return commit.tree in trees

    # Definitions that were edited on a forge

    def _edited(self, commit: ForeignCommit, result: TreeCheck) -> TreeCheck:
        """Return the check of a definition's tree again, as an edit of the newest version below it."""
        kind = result.kind
        below = next((record for record, _ in self._tops if record.row.kind == kind), None)
        edit = (
            edit_of(self._repository, self._objects, commit, kind, below.tree) if below is not None else None
        )
        if edit is None:
            return result
        if edit.problem is not None:
            return result._replace(findings=(edit.problem,))
        message = (
            f"{edit.path} was edited by {commit.description}; it compiles, but the page and the nodes beside it are"
            f" those of the version before: uwf pull registers it, or {ref_kinds.registering(kind).commands} accept"
        )
        self._warn("edited-source", commit.oid, message, edit.path)
        return TreeCheck(kind, below)

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
            elif record.row.name != self._branch.named_after:
                message = f"{kind.owner} {record.row.name!r}, its branch {self._branch.named_after!r}"
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
            further = [count for head in known if (count := self._history.distance(head, tip)) is not None]
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

    # Results

    def _add(self, record: Record, oid: Oid, by: str) -> None:
        kind = _kind_of(record)
        row = record.row
        key = (kind, str(row.start or row.node))
        known = self._subjects.get(key)
        if known is None or known.steps < row.number:
            self._subjects[key] = Subject(kind, row.name or "", row.number, str(oid), by)
            self._tops.append((record, oid))

    def _check_heads(self) -> None:
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
    return f", nor whether the sub-workflows and branches of {counted(result.children, 'step')} had ended"


def _of_project(own_names: Iterable[str], survey: Survey) -> str:
    names = ", ".join(sorted(own_names))
    commits = counted(len(survey.foreign), "commit")
    where = f"of its files, {names} are uwf's" if names else "none of its files is uwf's"
    return f"the branch is a project's: {where}; its other files and {commits} of its own were not verified"
