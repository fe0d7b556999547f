"""Verifying refs: every reachable commit that isn't trusted yet, oldest first.

Nothing about these commits is taken from the index, and no ref is moved. Problems become findings, not
exceptions; a ref without findings is valid with its whole past.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from uwf_git.base.errors import UnknownWord, UwfError
from uwf_git.base.extensions import RefKind
from uwf_git.base.text import one_line
from uwf_git.base.timelimit import Budget, BudgetExceeded
from uwf_git.engine.census import FAILURES, of_calls
from uwf_git.format.endings import COMPLETED, FAILED
from uwf_git.format.ids import ThreadId, is_thread_id
from uwf_git.format.types import USER
from uwf_git.git.config import MAX_BLOB
from uwf_git.git.repository import Oid
from uwf_git.store import layout, ref_kinds
from uwf_git.store.indexing import Store
from uwf_git.store.node_rows import NodeRow
from uwf_git.store.threads import MOST_PARENTS
from uwf_git.verify.fan_outs import BranchOrigin
from uwf_git.verify.findings import Bad, Finding, Report, ShownDiff
from uwf_git.verify.objects import CommitObject, Objects, TagObject, parse_tag
from uwf_git.verify.records import Records
from uwf_git.verify.verified import Known, Record
from uwf_git.workflow.moderator import WorkflowEnded

if TYPE_CHECKING:
    from uwf_git.store.archives import FoldedThread

MOST = 100  # findings per ref; more would not help

_ENDED = re.compile(
    rf"(completed|failed|killed)(?:(?<=failed|killed): (.+)|(?<=completed): ({FAILURES} .+))?\n?"
)
_PAUSED = re.compile(r"paused(?:: (.+))?\n?")


class Claim(NamedTuple):
    """What a ref, or a fold in its place, says of a thread. `prefix` is the ref's; `commit` the head, the
    newest attempt, or the commit of a fork or pause; `origin` the thread that a fork came from; `status` that of an
    end."""

    ref: str
    prefix: str
    thread: ThreadId
    commit: Oid
    origin: ThreadId | None
    status: str = ""


OWN_TIME = "own-time"
_OWN_TIME = "begin at another time: they are signed, or an earlier version began them"


class Verifier:
    """Verifies refs one by one, remembering verified commits."""

    def __init__(
        self,
        store: Store,
        trusted: Callable[[Oid], bool] = lambda _: False,
        blob_limit: int = MAX_BLOB,
        on_commit: Callable[[], None] = lambda: None,
        fresh: bool = False,
        seconds: float = math.inf,
        known: Known | None = None,
    ) -> None:
        """`blob_limit` is in bytes; `on_commit` is called for each checked commit; `seconds` limits slow
        checks in all, after which commits are unchecked. With `fresh` the store's index is empty and stays
        so; otherwise verified records are indexed. `known` is a fresh one of the caller's. `threads`, `steps`,
        `claims`, `diffs` and `unjudged` records hold the results so far.
        """
        self._store = store
        self._known = known or Known(Objects(store.repository, blob_limit), store, fresh)
        self._objects = self._known.objects
        self._records = Records(self._known)
        self._trusted = trusted
        self._on_commit = on_commit
        self._fresh = fresh
        self._budget, self._seconds = Budget(seconds), seconds
        self._found: dict[bytes, tuple[Finding, ...]] = {}
        self._rows: dict[bytes, _Rows] = {}
        self._tips: list[Oid] = []
        self._name = ""
        self.threads: set[str] = set()
        self.claims: list[Claim] = []
        self.unjudged: list[Finding] = []
        self._forks_with_own_times: set[Oid] = set()
        self.diffs: list[ShownDiff] = []
        self.steps = 0

    @property
    def nodes(self) -> int:
        return len(self._known.nodes)

    def is_coded(self, record: Record) -> bool:
        """Return whether a code workflow called for a thread's steps. Raises Bad."""
        return self._known.definition(record).workflow.code is not None

    def ref(self, name: str, oid: Oid) -> list[Finding]:
        """Return the findings of a shared ref. Without any, it may be indexed."""
        findings: list[Finding] = []
        self._name = name
        kind = ref_kinds.kind_of(name)
        prefix = kind.prefix if kind is not None else ""
        thread = ThreadId(name.removeprefix(prefix)) if is_thread_id(name.removeprefix(prefix)) else None

        def report(code: str, message: str, at: object = None, path: str = "", line: int = 0) -> None:
            findings.append(Finding(code, thread, None, str(at or oid), message, "", path, line))

        try:
            if kind is None or not layout.is_shared_ref(name):
                raise Bad("wrong-ref", "no ref of that name is shared", oid)
            self._target(kind, name.removeprefix(prefix), oid, findings, report)
        except Bad as bad:
            report(bad.code, bad.message, bad.at, bad.path)
        except UNFORESEEN as error:
            report("malformed", f"{type(error).__name__}: {error}", oid)
        if not self._fresh and not findings:
            if kind is not None and kind.target == "end":
                self._store.index_tag(oid)
            self._take_in(self._tips)
        self._tips = []
        notes, diffs = self._records.open_questions
        self.unjudged += [note._replace(thread=thread, ref=name) for note in notes]
        notes.clear()
        own_times = self._records.fan_outs.own_times
        self.unjudged += [
            Finding(OWN_TIME, thread, None, str(start), f"branches of fork {fork} {_OWN_TIME}", name)
            for fork, start in own_times.items()
            if fork not in self._forks_with_own_times
        ]
        self._forks_with_own_times.update(own_times)
        own_times.clear()
        self.diffs += [
            diff._replace(finding=diff.finding._replace(thread=thread, ref=name)) for diff in diffs
        ]
        diffs.clear()
        unique = list(
            dict.fromkeys(finding._replace(thread=finding.thread or thread, ref=name) for finding in findings)
        )
        if len(unique) > MOST:
            more = Finding("too-many", thread, None, str(oid), f"{len(unique) - MOST} more findings", name)
            unique = [*unique[:MOST], more]
        return unique

    def commit(self, oid: Oid) -> tuple[Finding, ...]:
        """Return the findings of a commit and its past, whatever record it is."""
        findings: list[Finding] = []
        try:
            self._reach(self._commit(oid), findings)
        except Bad as bad:
            findings.append(Finding(bad.code, None, None, str(bad.at or oid), bad.message, path=bad.path))
        return tuple(dict.fromkeys(findings))

    def check_made(self, commit: CommitObject) -> Record | None:
        """Check a commit that need not be in the repository, after its parents, and return its record."""
        self._check(commit, tuple(parent for parent in commit.parents if parent.raw in self._found))
        self._known.nodes.rows.clear()
        self._on_commit()
        return self.record(commit.oid)

    def found(self, oid: Oid) -> tuple[Finding, ...]:
        """Return the findings of a commit that was checked, and its past."""
        return self._found.get(oid.raw, ())

    def thread_pages(self, record: Record) -> Iterator[Callable[[], bytes]]:
        """Return the valid pages of a thread after a step that changed its page."""
        return self._records.thread_pages(record)

    def record(self, oid: Oid) -> Record | None:
        """Return a verified commit's record, as far as readable."""
        return self._known.records.get(oid.raw)

    def records(self) -> Iterator[Record]:
        """Yield all records that were read."""
        return (record for record in self._known.records.values() if record is not None)

    def branch(self, record: Record) -> BranchOrigin | None:
        """Return the branch that a verified thread is, None if it is none, or what it stands on is not valid."""
        try:
            return self._records.fan_outs.origin(record)
        except (Bad, *UNFORESEEN):
            return None

    def thread_named(self, head: Oid) -> ThreadId | None:
        """Return the thread that the start of a verified head names, None if it names none or can't be read."""
        try:
            record = self._known.records.get(head.raw)
            begin = self._known.begin_of(record) if record is not None else None
            commit = self._objects.commit(Oid(raw=begin.oid)) if begin is not None else None
            return layout.thread_named(commit.message) if commit is not None else None
        except (Bad, *UNFORESEEN):
            return None

    def may_be_resumed(self, record: Record) -> bool:
        """Return whether a verified thread goes on from another's end, or may: an answer to the question of an end
        looks like any other."""
        row = record.row
        while row.resumed is None and row.kind == "step" and row.parent is not None:
            before = self._known.row_at(row.parent)
            if row.role == USER and before.asks:
                return True
            row = before
        return row.resumed is not None

    def is_call_elsewhere(self, record: Record, thread: ThreadId) -> bool:
        """Return whether a verified thread is a call of code under another id than follows from what was asked."""
        try:
            return not self._records.calls.is_named(record, thread)
        except (Bad, *UNFORESEEN):
            return False

    def leads_to(self, tip: Oid, commit: Oid) -> bool:
        """Return whether a verified head's history has another commit's record. Nodes are compared, since a
        step may have two commits."""
        base = self._known.records.get(commit.raw)
        at: bytes | None = tip.raw
        while base is not None and at is not None:
            record = self._known.records.get(at)
            if record is None or record.row.node == base.row.node:
                return record is not None
            at = record.row.parent
        return False

    # Targets of ref kinds

    def _target(self, kind: RefKind, name: str, oid: Oid, findings: list[Finding], report: Report) -> None:
        tags = {
            "end": self._archive,
            "fork": self._fork,
            "pause": self._paused,
            "fold": self._fold,
            "policy": self._policy,
        }
        if (check := tags.get(kind.target)) is not None:
            check(name, oid, findings, report)
        else:
            self._pointed_at(kind, name, oid, findings, report)

    def _pointed_at(
        self, kind: RefKind, name: str, oid: Oid, findings: list[Finding], report: Report
    ) -> None:
        if kind is ref_kinds.THREADS:
            self.threads.add(name)
        record = self._reached(self._commit(oid), kind.records, findings, report)
        if record is None:
            return
        if kind.of_thread and record.row.start is not None:
            self._claim(kind.prefix, name, oid)
        elif kind.names == "node" and (node := record.row.node) != name:
            report("wrong-name", f"the commit keeps node {node}, its ref is called {name}", oid)
        elif kind.name_field and record.row.name != name:
            report("wrong-name", f"{kind.owner} {record.row.name!r}, its ref {name!r}", oid)

    def _archive(self, name: str, oid: Oid, findings: list[Finding], report: Report) -> None:
        self._ended(name, self._tag(oid), findings, report)

    def _ended(self, name: str, tag: TagObject, findings: list[Finding], report: Report) -> None:
        self.threads.add(name)
        self._check_name(name, tag, report)
        match = _ENDED.fullmatch(tag.message)
        if match is None or not (match[2] or match[3] or "").isprintable():
            report(
                "wrong-tag",
                "the tag's message is neither completed, failed nor killed, with a reason",
                tag.oid,
            )
        status = match[1] if match is not None else ""
        record = self._reached(self._commit(tag.target), ("start", "step"), findings, report)
        if record is None:
            return
        self._claim(layout.ARCHIVE, name, tag.target, status=status)
        if status not in (COMPLETED, FAILED) or not record.decided:
            return
        try:
            with self._budget.spend():
                decision = self._known.decision(record)
        except BudgetExceeded:
            self._known.forget_unfinished()
            report("unchecked", self._unchecked(f"whether {record.row.node} is the end"), tag.oid)
        else:
            if not isinstance(decision, WorkflowEnded):
                if status != FAILED or not self._drops(record):
                    report(
                        "wrong-tag", f"{status}, but the workflow goes on after {record.row.node}", tag.oid
                    )
            elif decision.failed != (status == FAILED):
                wanted = FAILED if decision.failed else COMPLETED
                report("wrong-tag", f"{status}, but the workflow ends as {wanted} there", tag.oid)
            elif (
                decision.failed
                and tag.message.rstrip() != layout.end_message(status, decision.reason).rstrip()
            ):
                report("wrong-tag", "the reason of the failure is not the workflow's", tag.oid)
            elif status == COMPLETED:
                self._check_failures(tag, record, report)

    def _check_failures(self, tag: TagObject, record: Record, report: Report) -> None:
        """Check that the end of a code workflow says how many of its calls failed that may not."""
        definition = self._known.definition(record)
        if definition.workflow.code is None:
            return
        ending = of_calls(record.calls).ending if record.calls is not None else ""
        if tag.message.rstrip() != layout.end_message(COMPLETED, ending).rstrip():
            report("wrong-tag", f"the tag does not say: completed {ending}".rstrip(), tag.oid)

    def _drops(self, record: Record) -> bool:
        """Return whether a thread is a branch that ends if its step fails."""
        try:
            fork = self._records.fan_outs.fork_behind(record)
        except Bad:
            return False  # reported
        return fork is not None and fork.failure_policy.ends_branch

    def _fork(self, name: str, oid: Oid, findings: list[Finding], report: Report) -> None:
        self._forked(name, self._tag(oid), findings, report)

    def _forked(self, name: str, tag: TagObject, findings: list[Finding], report: Report) -> None:
        self._check_name(name, tag, report)
        origin = layout.fork_origin(tag.message)
        if origin is None:
            report("wrong-tag", "the tag's first line is not `fork of` a thread", tag.oid)
        elif origin == name:
            report("wrong-tag", "a thread is not a fork of itself", tag.oid)
        elif not layout.is_fork_message(tag.message, origin):
            report(
                "wrong-tag", "the tag's message has other lines than `fork of` and `forked by hand`", tag.oid
            )
        else:
            self._claim(layout.FORKS, name, tag.target, origin)
        self._reached(self._commit(tag.target), ("start", "step"), findings, report)

    def _paused(self, name: str, oid: Oid, findings: list[Finding], report: Report) -> None:
        tag = self._tag(oid)
        self._check_name(name, tag, report)
        match = _PAUSED.fullmatch(tag.message)
        if match is None or not (match[1] or "").isprintable():
            report("wrong-tag", "the tag's message is not `paused`, with a reason", tag.oid)
        elif len(match[1] or "") > layout.LONGEST_REASON:
            report("wrong-tag", f"the reason has more than {layout.LONGEST_REASON} characters", tag.oid)
        if self._reached(self._commit(tag.target), ("start", "step"), findings, report):
            self._claim(layout.PAUSED, name, tag.target)

    def _fold(self, name: str, oid: Oid, findings: list[Finding], report: Report) -> None:
        from uwf_git.store.archives import entries as entries_of
        from uwf_git.store.archives import message, read

        self._objects.commit(self._commit(oid))
        known: dict[bytes, list[FoldedThread]] = {}
        try:
            fold = read(self._store.repository, oid, name)
            for link in fold.chain:
                commit = self._objects.commit(link)
                if commit.tree not in known:
                    known[commit.tree] = list(entries_of(self._store.repository, link))
                if commit.message != message(name, len(known[commit.tree])):
                    report("wrong-message", f"the message of fold {link} is not what it holds", link)
        except UwfError as error:
            raise Bad("wrong-ref", error.message, oid) from None
        now = set(fold.threads.values())
        every = dict.fromkeys(
            [*fold.threads.values(), *(thread for some in known.values() for thread in some)]
        )
        for entry in every:
            self._folded(entry, oid, findings, entry in now)
        self._held(fold.held, findings, report)

    def _folded(self, entry: FoldedThread, fold: Oid, findings: list[Finding], counts: bool) -> None:
        inside: list[Finding] = []

        def note(code: str, message: str, at: object = None, path: str = "", line: int = 0) -> None:
            inside.append(Finding(code, entry.thread, None, str(at or fold), message, "", path, line))

        claims = len(self.claims)
        try:
            self._ended(entry.thread, parse_tag(entry.tag, entry.raw), inside, note)
            if entry.attempts is not None:
                self._pointed_at(ref_kinds.ATTEMPTS, entry.thread, entry.attempts, inside, note)
            if entry.fork is not None:
                self._forked(entry.thread, parse_tag(fold, entry.fork), inside, note)
        except Bad as bad:
            note(bad.code, bad.message, bad.at, bad.path)
        if not counts:
            del self.claims[claims:]
        findings.extend(finding._replace(thread=entry.thread) for finding in inside)

    def _held(self, held: Iterable[Oid], findings: list[Finding], report: Report) -> None:
        for oid in sorted(held, key=str):
            try:
                self._reached(self._commit(oid), ("start", "step", "attempt"), findings, report)
            except Bad as bad:
                report(bad.code, bad.message, bad.at, bad.path)

    def _policy(self, name: str, oid: Oid, policy: list[Finding], report: Report) -> None:
        from uwf_git.trust.policies import problems

        self._commit(oid)
        for problem in problems(self._store.repository, oid):
            report(problem.code, problem.message, problem.at)

    def _claim(
        self, prefix: str, thread: str, commit: Oid, origin: ThreadId | None = None, status: str = ""
    ) -> None:
        self.claims.append(Claim(self._name, prefix, ThreadId(thread), commit, origin, status))

    def _check_name(self, name: str, tag: TagObject, report: Report) -> None:
        expected = layout.tag_name(name)
        if tag.name != expected:
            report("wrong-tag", f"the tag is called {one_line(tag.name, 80)!r}, not {expected}", tag.oid)

    def _reached(
        self, oid: Oid, kinds: tuple[str, ...], findings: list[Finding], report: Report
    ) -> Record | None:
        record = self._reach(oid, findings)
        if record is None or (kind := record.row.kind) in kinds:
            return record
        report("wrong-ref", f"commit {oid} records a {kind}, not a {' or '.join(kinds)}", oid)
        return None

    def _commit(self, oid: Oid) -> Oid:
        if (kind := self._objects.kind(oid)) != "commit":
            raise Bad("wrong-ref", f"object {oid} is a {kind}, not a commit", oid)
        return oid

    def _tag(self, oid: Oid) -> TagObject:
        if (kind := self._objects.kind(oid)) != "tag":
            raise Bad("wrong-ref", f"object {oid} is a {kind}, not an annotated tag", oid)
        return self._objects.tag(oid)

    # The commits

    def _reach(self, tip: Oid, findings: list[Finding]) -> Record | None:
        waiting: dict[bytes, CommitObject] = {}
        pending = [tip]
        while pending:
            oid = pending[-1]
            if oid.raw in self._found:
                pending.pop()
                continue
            if self._trusted(oid):
                self._take(oid)
                continue
            try:
                commit = waiting.get(oid.raw) or self._objects.commit(oid)
            except Bad as bad:
                self._settle(
                    oid,
                    None,
                    (Finding(bad.code, None, None, str(bad.at or oid), bad.message, path=bad.path),),
                )
                continue
            entered = _entered(commit)
            missing = [parent for parent in entered if parent.raw not in self._found]
            if missing and oid.raw not in waiting:
                waiting[oid.raw] = commit
                pending.extend(missing)
                continue
            pending.pop()
            waiting.pop(oid.raw, None)
            self._check(commit, entered)
            if not self._fresh:
                self._rows[oid.raw] = _Rows(entered, tuple(self._known.nodes.rows))
            self._known.nodes.rows.clear()
            self._on_commit()
        self._tips.append(tip)
        findings.extend(self._found[tip.raw])
        return self._known.records.get(tip.raw)

    def _take_in(self, tips: Iterable[Oid]) -> None:
        index, pending = self._store.index, list(tips)
        with index.transaction():
            while pending:
                oid = pending.pop()
                rows, record = self._rows.pop(oid.raw, None), self._known.records.get(oid.raw)
                if rows is not None and record is not None:
                    index.add_nodes(rows.nodes)
                    index.add_commit(record.row)
                    pending.extend(rows.entered)

    def _take(self, oid: Oid) -> None:
        try:
            self._settle(oid, self._known.in_store(oid), ())
        except Bad as bad:
            self._settle(
                oid, None, (Finding(bad.code, None, None, str(bad.at or oid), bad.message, path=bad.path),)
            )
        except UNFORESEEN as error:
            code = "unknown-word" if isinstance(error, UnknownWord) else "damaged"
            self._settle(oid, None, (Finding(code, None, None, str(oid), str(error)),))

    def _check(self, commit: CommitObject, entered: tuple[Oid, ...]) -> None:
        own: list[Finding] = []
        trailers = commit.trailers
        step = trailers.node if trailers is not None and trailers.kind == "step" else None
        self.steps += step is not None

        def report(code: str, message: str, at: object = None, path: str = "", line: int = 0) -> None:
            # Objects known only by a hash are in this commit.
            where = at if isinstance(at, Oid) else commit.oid
            own.append(Finding(code, None, step, str(where), message, "", path, line))

        record = None
        try:
            with self._budget.spend():
                record = self._records.check(commit, report)
        except BudgetExceeded:
            record = None
            own.clear()
            self._known.forget_unfinished()
            report("unchecked", self._unchecked(f"commit {commit.oid}"), commit.oid)
        except Bad as bad:
            report(bad.code, bad.message, bad.at, bad.path)
        except UnknownWord as error:
            report("unknown-word", f"{error.message}; {error.hint}", commit.oid)
        except UNFORESEEN as error:
            report("malformed", f"commit {commit.oid}: {type(error).__name__}: {error}", commit.oid)
        before = [self._found[parent.raw] for parent in entered]
        earlier = before[0] if before else ()
        for item in before[1:]:
            earlier = earlier + item if item else earlier
        if record is None and not own and not earlier:
            report("malformed", f"commit {commit.oid} cannot be read", commit.oid)
        if own and len(earlier) <= MOST:
            earlier = (*earlier, *own)
        self._settle(commit.oid, record, earlier)

    def _unchecked(self, what: str) -> str:
        more = self._store.repository.config.to_raise("uwf.maxVerify", "600")
        return f"{what} was not checked, as checks have taken {self._seconds:g} s; allow more: {more}"

    def _settle(self, oid: Oid, record: Record | None, findings: tuple[Finding, ...]) -> None:
        self._known.records[oid.raw] = record
        self._found[oid.raw] = findings


class _Rows(NamedTuple):
    """Index rows of a commit: its nodes, after its parents."""

    entered: tuple[Oid, ...]
    nodes: tuple[NodeRow, ...]


# Unforeseen exceptions of libraries are findings too.
UNFORESEEN = (
    UwfError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    MemoryError,
)


def _entered(commit: CommitObject) -> tuple[Oid, ...]:
    trailers = commit.trailers
    if trailers is None:
        return ()
    if trailers.kind in ("step", "part"):  # a join has many
        return commit.parents[: MOST_PARENTS + 1]
    kind = ref_kinds.kind_of_record(trailers.kind)
    most = 2 if kind is None or kind.of_thread else kind.record_parents
    return commit.parents[:most]
