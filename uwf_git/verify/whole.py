"""Verifying many refs: a store, some threads, or a remote's. `verify_refs` begins with an empty index and
trusts nothing; a ReceivedRefsVerifier extends the store's index and hands over valid records."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from uwf_git.base.text import counted
from uwf_git.format.endings import LEFT
from uwf_git.format.ids import Hash, ThreadId, branch_id
from uwf_git.format.kinds import REHEARSE, Revision
from uwf_git.git.config import MAX_BLOB
from uwf_git.git.repository import Oid, Repository
from uwf_git.store import layout, ref_kinds
from uwf_git.store.history import own_forks
from uwf_git.store.index import Overlay
from uwf_git.store.indexing import Store
from uwf_git.verify.calls import WRONG_CALL
from uwf_git.verify.code import RecordedCode, merge_of
from uwf_git.verify.findings import Finding, ShownDiff
from uwf_git.verify.refs import Claim, Verifier
from uwf_git.verify.verified import Record
from uwf_git.workflow.turn import begins_threads

_Say = Callable[[Verifier, Record, "ThreadId | None", Oid, str], Iterator[Finding]]
_LAST = 1 << 30  # place of objects in no transfer


class VerifyResult(NamedTuple):
    """Numbers of threads, steps and nodes; findings, warnings, notes on what could not be checked, the code
    of steps and attempts, for `check_code`, and the diffs that people were shown, for `check_diffs`."""

    threads: int
    steps: int
    nodes: int
    findings: tuple[Finding, ...]
    warnings: tuple[Finding, ...]
    notes: tuple[Finding, ...]
    code: tuple[RecordedCode, ...]
    diffs: tuple[ShownDiff, ...] = ()


def local_refs(repository: Repository) -> dict[str, Oid | None]:
    """Return every ref of the store that is or looks shared; None if it has no object id."""
    oids: dict[str, Oid | None] = dict.fromkeys(repository.broken_refs())
    oids.update(repository.refs(without=layout.REMOTES))
    return {name: oid for name, oid in oids.items() if oid is None or not layout.is_local_ref(name)}


def thread_refs(repository: Repository, threads: Iterable[ThreadId]) -> dict[str, Oid | None]:
    """Return the refs of threads: active, archive, attempts, fork and pause."""
    every = local_refs(repository)
    names = [prefix + thread for thread in threads for prefix in layout.of_threads()]
    return {name: every[name] for name in names if name in every}


def missing_refs(store: Store, threads: Collection[ThreadId] = ()) -> list[Finding]:
    """Return findings for refs that disappeared although no `uwf` deleted them."""
    return [
        Finding(
            "missing-ref",
            layout.thread_of(name) if layout.is_thread_ref(name) else None,
            None,
            str(oid),
            f"{name} is gone, though no uwf deleted it; uwf doctor --fix brings it back",
            name,
        )
        for name, oid in store.missed().items()
        if not threads or (layout.is_thread_ref(name) and layout.thread_of(name) in threads)
    ]


def verify_refs(
    repository: Repository,
    refs: Mapping[str, Oid | None],
    blob_limit: int = MAX_BLOB,
    on_commit: Callable[[], None] = lambda: None,
) -> VerifyResult:
    """Verify refs as returned by `local_refs` and `thread_refs`, or a remote's. `blob_limit` is in bytes;
    `on_commit` is called per commit. After `uwf.maxVerify` seconds of slow checks, the rest is `unchecked`.
    Moves no ref, trusts no index."""
    store = Store(repository, Overlay())
    seconds = repository.config.max_verify
    verifier = Verifier(store, blob_limit=blob_limit, on_commit=on_commit, fresh=True, seconds=seconds)
    findings: list[Finding] = []
    newer: list[Finding] = []
    for name, oid in sorted(refs.items(), key=_order):
        if oid is not None and layout.is_newer_ref(name):
            message = f"{name} was made by a newer uwf, and isn't checked"
            newer.append(Finding("newer", None, None, str(oid), message, name))
        elif oid is None:
            findings.append(Finding("wrong-ref", None, None, "", f"{name} holds no object id", name))
        else:
            findings.extend(verifier.ref(name, oid))
    heads = _heads(verifier)
    findings.extend(_together(verifier, heads))
    wrong = {finding.thread for finding in findings}
    forks = {layout.thread_of(name) for name in refs if name.startswith(layout.FORKS)}
    forks |= {claim.thread for claim in verifier.claims if claim.prefix == layout.FORKS}
    for claim in heads.values():
        if claim.thread not in wrong | forks:
            findings.extend(misnamed(verifier, claim))
    warnings = tuple(_of_heads(verifier, heads.values(), made_up))
    notes = (*_of_heads(verifier, heads.values(), coded), *verifier.unjudged, *newer)
    code = tuple(_code(verifier, [*heads.values(), *verifier.claims]))
    store.index.close()
    return VerifyResult(
        len(verifier.threads),
        verifier.steps,
        verifier.nodes,
        tuple(findings),
        warnings,
        notes,
        code,
        tuple(verifier.diffs),
    )


def _heads(verifier: Verifier) -> dict[ThreadId, Claim]:
    heads: dict[ThreadId, Claim] = {}
    for prefix in (layout.ARCHIVE, layout.THREADS):  # ended threads count as ended
        for claim in verifier.claims:
            if claim.prefix == prefix:
                heads.setdefault(claim.thread, claim)
    return heads


def made_up(
    verifier: Verifier, record: Record, thread: ThreadId | None, commit: Oid, ref: str
) -> Iterator[Finding]:
    """Yield the warning about generated outputs of a thread with this last record."""
    if not record.row.rehearsed:
        return
    count, last = record.row.rehearsed, record
    while last.row.parent is not None:
        before = verifier.record(Oid(raw=last.row.parent))
        if before is None or before.row.rehearsed < count:
            break
        last = before
    which = f"{count} of {counted(record.row.number, 'step')} {'was' if count == 1 else 'were'}"
    message = f"{which} made up by {REHEARSE}, the last for {last.row.role}"
    yield Finding("rehearsed", thread, last.row.node, str(commit), message, ref)


def coded(
    verifier: Verifier, record: Record, thread: ThreadId | None, commit: Oid, ref: str
) -> Iterator[Finding]:
    """Yield the note about a thread whose steps are routed by code."""
    if record.row.number and verifier.is_coded(record):
        yield Finding("coded", thread, None, str(commit), "routed by code: not replayed", ref)


def _of_heads(verifier: Verifier, heads: Iterable[Claim], say: _Say) -> Iterator[Finding]:
    for claim in heads:
        record = verifier.record(claim.commit)
        if record is not None:
            yield from say(verifier, record, claim.thread, claim.commit, claim.ref)


def _code(verifier: Verifier, claims: Iterable[Claim]) -> Iterator[RecordedCode]:
    seen: dict[bytes, tuple[Claim, Record]] = {}
    tips = [(claim, claim.commit.raw) for claim in claims]
    for claim, tip in tips:  # sub-workflows without a claim of their own are appended meanwhile
        at: bytes | None = tip
        while at is not None and at not in seen:
            record = verifier.record(Oid(raw=at))
            if record is None:
                break
            seen[at] = claim, record
            if record.row.merged is not None:
                tips.append((claim, record.row.merged))
            tips += [(claim, tip.raw) for tip in record.joined]
            at = record.row.parent
    by_node = {record.row.node: record for _, record in seen.values() if record.row.kind == "step"}

    def newest(node: Hash) -> Revision | None:
        at: Record | None = by_node[node]
        while at is not None and at.row.kind == "step":
            child = seen.get(at.row.merged) if at.row.merged is not None else None
            code = at.code or (newest(child[1].row.node) if child and child[1].row.kind == "step" else None)
            if code is not None:
                return code
            at = seen[at.row.parent][1] if at.row.parent in seen else None
        return None

    for at, (claim, record) in seen.items():
        row, code = record.row, record.code
        before = seen[row.parent][1] if row.parent in seen else None
        merge = merge_of(before, record, newest)
        if before is not None and merge is not None:
            code = code or before.code
        if code is not None:
            commit = str(Oid(raw=at))
            yield RecordedCode(row.kind, row.node, code, commit, claim.thread, claim.ref, merge)


def _together(verifier: Verifier, heads: Mapping[ThreadId, Claim]) -> Iterator[Finding]:
    circular = own_forks({item.thread: {item.origin} for item in verifier.claims if item.origin is not None})
    for claim in verifier.claims:

        def finding(code: str, message: str, claim: Claim = claim) -> Finding:
            return Finding(code, claim.thread, None, str(claim.commit), message, claim.ref)

        head = heads.get(claim.thread)
        if claim.prefix != layout.FORKS:
            if head is not None and _start(verifier, claim) != _start(verifier, head):
                kind = ref_kinds.kind_of(claim.prefix)
                what = kind.word if kind is not None else "ref"
                yield finding("wrong-ref", f"its {what} and {head.ref} have different beginnings")
            continue
        if head is not None and not verifier.leads_to(head.commit, claim.commit):
            yield finding("wrong-tag", f"{head.ref} has not parted from another at {claim.commit}")
        if claim.thread in circular:
            yield finding("wrong-tag", "a thread is not a fork of its own forks")
    forked = {claim.thread for claim in verifier.claims if claim.prefix == layout.FORKS}
    yield from _branches_together(verifier, heads, forked)


def misnamed(verifier: Verifier, claim: Claim) -> Iterator[Finding]:
    """Yield the finding about a thread that is no fork, and has another id than its start says, or than follows from
    what was asked in a call of code."""
    record = verifier.record(claim.commit)
    branch = verifier.branch(record) if record is not None else None
    named = verifier.thread_named(claim.commit)
    # The id of a branch follows from its fork, which may be committed again. A thread that goes on from another's end
    # has that one's start.
    if (
        named not in (None, claim.thread)
        and (branch is None or branch.id not in (None, claim.thread))
        and (record is None or not verifier.may_be_resumed(record))
    ):
        message = f"its start is that of thread {named}, and no fork's tag says why it has another id"
        yield Finding("wrong-name", claim.thread, None, str(claim.commit), message, claim.ref)
    if record is not None and verifier.is_call_elsewhere(record, claim.thread):
        message = "it is a call of code under another id than follows from what was asked"
        yield Finding(WRONG_CALL, claim.thread, None, str(claim.commit), message, claim.ref)


def _start(verifier: Verifier, claim: Claim) -> Hash | None:
    record = verifier.record(claim.commit)
    return record.row.start if record is not None else None


def _order(item: tuple[str, Oid | None]) -> tuple[int, str]:
    kind = ref_kinds.kind_of(item[0])
    return kind.order if kind is not None and kind.is_shared else _LAST, item[0]


class ReceivedRefsVerifier:
    """Verifies received refs one by one; commits known to `store` are trusted. `steps` counts the new ones."""

    def __init__(self, store: Store) -> None:
        index = store.index
        self.steps = 0
        self._overlay = Overlay(index)
        self._verifier = Verifier(
            Store(store.repository, self._overlay),
            lambda commit: index.commit(commit.raw) is not None,
            store.repository.config.max_blob,
            seconds=store.repository.config.max_verify,
        )

    def findings(
        self, name: str, oid: Oid, is_fork: Callable[[ThreadId], bool] = lambda _: True
    ) -> tuple[Finding, ...]:
        """Return a ref's findings. Without any, its objects are indexed. A thread that `is_fork` says is none must have
        the id that its start names, and a call of code the one that follows from what was asked."""
        before = len(self._verifier.claims)
        findings = self._verifier.ref(name, oid)
        claims = self._verifier.claims[before:]
        forked = {item.thread for item in claims if item.prefix == layout.FORKS}
        for claim in claims if not findings else ():
            is_head = claim.prefix in (layout.THREADS, layout.ARCHIVE)
            if is_head and claim.thread not in forked and not is_fork(claim.thread):
                findings += misnamed(self._verifier, claim)
        if not findings:
            self.steps += self._overlay.settle()
        return tuple(findings)

    def close(self) -> None:
        """Discard what was not handed over."""
        self._overlay.close()


def _branches_together(
    verifier: Verifier, heads: Mapping[ThreadId, Claim], forked: Collection[ThreadId]
) -> Iterator[Finding]:
    """Yield findings about the ids of branches, which `forked` threads need not have, and about ends that joins tell
    otherwise."""
    ids: dict[ThreadId, tuple[bytes, int]] = {}
    for record in verifier.records():
        if (
            begins_threads(record.row.role)
            and record.step is not None
            and isinstance(record.step.output, dict)
        ):
            oid, when = Oid(raw=record.row.oid), record.row.time
            items = record.step.output.get("items")
            for position in range(len(items) if isinstance(items, list) else 0):
                ids[branch_id(str(oid), when, position)] = record.row.oid, position
    for thread, claim in heads.items():
        tip = verifier.record(claim.commit)
        if tip is None:
            continue
        origin = verifier.branch(tip)
        message = ""
        if thread in ids:
            fork, position = ids[thread]
            own = (origin.fork.raw, origin.branch.position) if origin is not None and origin.fork else None
            if own != (fork, position):
                message = f"its id is that of branch {position} of fork {Oid(raw=fork)}, which it is not"
        elif origin is not None and origin.id is not None and thread not in forked:
            branch = heads.get(origin.id)
            if not tip.row.number or (branch is not None and verifier.leads_to(branch.commit, claim.commit)):
                message = f"it is branch {origin.id} under another id"
        if message:
            yield Finding("wrong-branch", thread, None, str(claim.commit), message, claim.ref)
    yield from _told_otherwise(verifier, heads)


def _told_otherwise(verifier: Verifier, heads: Mapping[ThreadId, Claim]) -> Iterator[Finding]:
    """Yield a finding for each branch whose end is another than its join says."""
    for record in verifier.records():
        if not record.joined or record.step is None:
            continue
        named = [branch for branch in record.step.output["branches"] if branch["status"] != LEFT]
        for item, tip in zip(named, record.joined, strict=True):
            claim = heads.get(item["thread"])
            if claim is None or claim.commit != tip or claim.status in ("", item["status"]):
                continue
            message = f"branch {claim.thread} is {claim.status}, and {item['status']} in its join"
            commit = str(Oid(raw=record.row.oid))
            yield Finding("wrong-join", claim.thread, record.row.node, commit, message, claim.ref)
