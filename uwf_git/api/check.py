"""Verifying a store, some of its threads, or what was fetched from a remote."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.format.ids import ThreadId
from uwf_git.git.repository import Oid
from uwf_git.store import layout
from uwf_git.store.instance import Instance
from uwf_git.verify.findings import UNCHECKED as UNCHECKED
from uwf_git.verify.findings import Finding
from uwf_git.verify.whole import VerifyResult, missing_refs

if TYPE_CHECKING:
    from uwf_git.trust.signatures import Signed


REWRITTEN = ("rewritten", "rolled-back")


class Report(NamedTuple):
    """A verification's result: the verified `refs`, the `findings`, and the signatures in `signed`, None if
    not requested."""

    refs: Mapping[str, Oid | None]
    verified: VerifyResult
    findings: list[Finding]
    signed: list[Signed] | None = None

    @property
    def is_damaged(self) -> bool:
        """Whether there are findings other than unchecked and rewritten ones."""
        return any(finding.code not in (UNCHECKED, *REWRITTEN) for finding in self.findings)

    @property
    def is_rewritten(self) -> bool:
        """Whether a remote has other history than was seen there."""
        return any(finding.code in REWRITTEN for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        found = self.verified
        value: dict[str, Any] = {
            "verified": {"threads": found.threads, "steps": found.steps, "nodes": found.nodes},
            "findings": [finding.as_json() for finding in self.findings],
            "warnings": [finding.as_json() for finding in found.warnings],
            "notes": [finding.as_json() for finding in found.notes],
        }
        if self.signed is not None:
            value["signatures"] = [_as_json(each) for each in self.signed]
        return value


def check(
    instance: Instance,
    threads: Collection[ThreadId] = (),
    remote: str | None = None,
    on_commit: Callable[[], None] = lambda: None,
) -> Report:
    """Verify some threads with their folds and code, what was last fetched from a remote, or the whole store,
    without cached results. Raises NotFound."""
    from uwf_git.verify.code import check_code, check_diffs, projects_of
    from uwf_git.verify.whole import verify_refs

    repository = instance.store.repository
    refs = _refs(instance, threads) if remote is None else _refs_of_remote(instance, remote)
    verified = verify_refs(repository, refs, repository.config.max_blob, on_commit)
    if remote is not None:
        return Report(refs, verified, [*verified.findings, *_rewritten(instance, remote, refs, verified)])
    code = check_code(verified.code, projects_of(instance, verified.code))
    diffs = check_diffs(verified.diffs, projects_of(instance, verified.code))
    missing = missing_refs(instance.store, threads)
    verified = verified._replace(notes=(*verified.notes, *code.notes))
    rewritten = [] if threads else _rewritten_in_a_mirror(instance, refs, verified)
    return Report(refs, verified, [*missing, *verified.findings, *code.findings, *diffs, *rewritten])


def _rewritten(
    instance: Instance, remote: str, refs: Mapping[str, Oid | None], verified: VerifyResult
) -> list[Finding]:
    from uwf_git.sync.rewritten import rewrites

    wrong = {finding.ref for finding in verified.findings}
    sound = {name: oid for name, oid in refs.items() if oid is not None and name not in wrong}
    instance.store.sync()
    return [
        Finding(
            REWRITTEN[each.is_rollback],
            each.thread,
            None,
            str(each.now),
            f"{each.message}; {each.hint}",
            each.ref,
        )
        for each in rewrites(instance, remote, sound)
    ]


def _rewritten_in_a_mirror(
    instance: Instance, refs: Mapping[str, Oid | None], verified: VerifyResult
) -> list[Finding]:
    """Compare the refs of a mirror, which plain `git fetch` moves to anything, with those of the last verification,
    and record them."""
    from uwf_git.sync.seen import Seen

    repository, found = instance.store.repository, []
    for key, value in repository.config.entries("remote."):
        name = key.removeprefix("remote.").removesuffix(".mirror")
        if not key.endswith(".mirror") or value.lower() not in ("", "true", "yes", "on", "1"):
            continue
        found += _rewritten(instance, name, refs, verified)
        wrong = {finding.ref for finding in (*verified.findings, *found)}
        Seen(repository.private, name).note(
            {
                ref: oid
                for ref, oid in refs.items()
                if oid is not None and ref not in wrong and not ref.startswith(layout.PAUSED)
            }
        )
    return found


def verify(instance: Instance, threads: Collection[ThreadId] = ()) -> list[Finding]:
    """Return the findings of some threads, or the whole store."""
    return check(instance, threads).findings


def with_signatures(instance: Instance, report: Report) -> Report:
    """Return a report with signatures; bad ones become findings."""
    from uwf_git.trust.signatures import signed_records

    refs = {name: oid for name, oid in report.refs.items() if oid is not None}
    signed = signed_records(instance.store.repository, refs)
    return report._replace(findings=[*report.findings, *_bad(signed)], signed=signed)


def _refs(instance: Instance, threads: Collection[ThreadId]) -> dict[str, Oid | None]:
    from uwf_git.verify.whole import local_refs, thread_refs

    repository = instance.store.repository
    if not threads:
        return local_refs(repository)
    refs = thread_refs(repository, threads)
    for thread in threads:
        folded = instance.store.folded(thread)
        if folded is not None and layout.ARCHIVE + thread not in refs:
            refs[folded.ref] = repository.ref(folded.ref)
    return refs


def _refs_of_remote(instance: Instance, remote: str) -> dict[str, Oid | None]:
    from uwf_git.sync.tracking import tracked_refs

    # A branch's content becomes a record only when it is accepted.
    tracked = tracked_refs(instance.store.repository, instance.remotes.get(remote).name).items()
    return {ref: oid for ref, oid in tracked if not ref.startswith(layout.BRANCHES)}


def _bad(signed: list[Signed]) -> list[Finding]:
    return [
        Finding(
            "bad-signature",
            each.thread,
            each.node if each.kind == "step" else None,
            str(each.object),
            f"the signature of {each.kind} {each.node or each.thread or each.object} is bad",
            each.ref,
        )
        for each in signed
        if each.signature.state == "bad"
    ]


def _as_json(signed: Signed) -> dict[str, Any]:
    record = {**signed._asdict(), "object": str(signed.object)}
    del record["signature"]
    return {**record, **signed.signature._asdict()}


def check_tree(path: Path, revision: str = "HEAD", on_commit: Callable[[], None] = lambda: None) -> Report:
    """Verify a commit of the checkout or repository at a path, by what uwf published in it. No store is
    needed, and nothing is written. Raises NothingToVerify, NotFound, Invalid."""
    from uwf_git.verify.checkout import open_checkout
    from uwf_git.verify.published import verify_commit

    checkout = open_checkout(path)
    commit = checkout.commit(revision)
    verified = verify_commit(checkout.repository, commit, revision, on_commit)
    return Report({revision: commit}, verified, list(verified.findings))
