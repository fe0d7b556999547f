"""Verifying a store, some of its threads, or what was fetched from a remote."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.base.errors import (
    NothingToVerify,
    RequirementUnmet,
    Rewritten,
    StoreDamaged,
    Undecided,
    Usage,
)
from uwf_git.format.ids import ThreadId
from uwf_git.git.repository import Oid
from uwf_git.store import layout
from uwf_git.store.instance import Instance
from uwf_git.trust.permission import has_policy
from uwf_git.verify.findings import UNCHECKED as UNCHECKED
from uwf_git.verify.findings import UNTRUSTED, Finding
from uwf_git.verify.whole import VerifyResult, missing_refs

if TYPE_CHECKING:
    from uwf_git.trust.signatures import SignatureReader, Signed
    from uwf_git.verify.branch_names import Branch
    from uwf_git.verify.checkout import OpenCheckout
    from uwf_git.verify.published import Published


REWRITTEN = ("rewritten", "rolled-back")
UNWITNESSED = "unwitnessed"


class Report(NamedTuple):
    """A verification's result: the verified `refs`, the `findings`, the signatures in `signed`, None if not
    requested, what a branch holds in `published`, None for a store, and the number of a remote's verified
    `branches`, None if it was not asked."""

    refs: Mapping[str, Oid | None]
    verified: VerifyResult
    findings: list[Finding]
    signed: list[Signed] | None = None
    published: Published | None = None
    branches: int | None = None

    @property
    def is_damaged(self) -> bool:
        """Whether something is wrong, beside what is unchecked, rewritten or not signed as required."""
        others = (UNCHECKED, UNWITNESSED, *REWRITTEN, *UNTRUSTED)
        return any(finding.code not in others for finding in self.findings)

    @property
    def exit_status(self) -> int:
        """The exit status of `uwf verify`: that of the most serious finding, 0 without findings."""
        codes = {finding.code for finding in self.findings}
        if self.is_damaged:
            return StoreDamaged.exit_status
        if codes & {*REWRITTEN}:
            return Rewritten.exit_status
        if codes & UNTRUSTED:
            return RequirementUnmet.exit_status
        return Undecided.exit_status if codes else 0

    def to_json(self) -> dict[str, Any]:
        result = self.verified
        value: dict[str, Any] = {
            "verified": {"threads": result.threads, "steps": result.steps, "nodes": result.nodes},
            "findings": [finding.as_json() for finding in self.findings],
            "warnings": [finding.as_json() for finding in result.warnings],
            "notes": [finding.as_json() for finding in result.notes],
        }
        if self.published is not None:
            value |= self.published.to_json()
            value["verified"] |= self.published.counts
        if self.branches is not None:
            value["verified"]["branches"] = self.branches
        if self.signed is not None:
            value["signatures"] = [_as_json(item) for item in self.signed]
        return value


def check(
    instance: Instance,
    threads: Collection[ThreadId] = (),
    remote: str | None = None,
    on_commit: Callable[[], None] = lambda: None,
    fetches: bool = True,
) -> Report:
    """Verify some threads with their folds and code, what was last fetched from a remote, or the whole store,
    without cached results. With `fetches`, the branches that uwf published on the remote are listed, fetched and
    verified too. Raises NotFound, NothingToVerify."""
    from uwf_git.verify.code import check_code, check_diffs
    from uwf_git.verify.replaced import replaced_objects
    from uwf_git.verify.whole import verify_refs
    from uwf_git.workspaces.clones import clones
    from uwf_git.workspaces.notes import Notes

    repository = instance.store.repository
    refs = _refs(instance, threads) if remote is None else _refs_of_remote(instance, remote)
    verified = verify_refs(repository, refs, repository.config.max_blob, on_commit)
    if remote is not None:
        from uwf_git.sync.admission import lost_policy

        lost = _rewritten(instance, remote, refs, verified)
        lost += lost_policy(instance, remote, refs) if refs else ()
        report = Report(refs, verified, [*verified.findings, *lost])
        return _with_branches(instance, remote, report, on_commit) if fetches else _something(report, remote)
    threads_with_code = [item.thread for item in verified.code]
    made_here = Notes(repository.private).recorded
    code = check_code(verified.code, clones(instance, threads_with_code), made_here)
    diffs = check_diffs(verified.diffs, clones(instance, threads_with_code))
    missing = missing_refs(instance.store, threads)
    replaced = replaced_objects(repository, refs, not (instance.location.here or threads))
    wrong = {finding.ref for finding in verified.findings}
    rewritten = [] if threads else _rewritten_in_a_mirror(instance, refs, verified)
    reported = {finding.ref for finding in (*missing, *rewritten)}
    doubted, unsure = _witnessed(instance, threads, wrong, reported)
    verified = verified._replace(warnings=(*verified.warnings, *unsure), notes=(*verified.notes, *code.notes))
    return _something(
        Report(
            refs,
            verified,
            [*missing, *doubted, *verified.findings, *replaced, *code.findings, *diffs, *rewritten],
        )
    )


def _witnessed(
    instance: Instance, threads: Collection[ThreadId], wrong: Collection[str], reported: Collection[str]
) -> tuple[list[Finding], list[Finding]]:
    """Return findings for heads that the user's log contradicts, and warnings for those that it may have lost, and if
    it could not be read or written."""
    from uwf_git.store.witness_log import LOST, UNSURE

    findings: list[Finding] = []
    warnings: list[Finding] = []
    for doubt in instance.witness.check():
        if (threads and doubt.thread not in threads) or doubt.ref in reported:
            continue
        if doubt.ref in wrong and doubt.kind != LOST:
            continue
        target = warnings if doubt.kind == UNSURE else findings
        target.append(
            Finding(doubt.code, doubt.thread, None, doubt.now or doubt.known, doubt.message, doubt.ref)
        )
    if instance.witness.problem:
        warnings.append(Finding(UNWITNESSED, None, None, "", instance.witness.problem))
    return findings, warnings


def _something(report: Report, remote: str = "") -> Report:
    """Return a report, unless there was nothing to verify. Raises NothingToVerify."""
    result = report.verified
    if report.findings or result.nodes or result.threads or result.notes or report.branches:
        return report
    if remote:
        raise NothingToVerify(f"nothing was fetched from {remote}", f"fetch it: uwf pull {remote}")
    raise NothingToVerify(
        "the store is empty",
        "for a checkout: uwf verify . — for what others pushed: uwf pull, then uwf verify",
    )


def _with_branches(instance: Instance, remote: str, report: Report, on_commit: Callable[[], None]) -> Report:
    from uwf_git.api.branches import verify_on_remote

    wrong = {finding.ref for finding in report.findings}
    sound = {ref: oid for ref, oid in report.refs.items() if oid is not None and ref not in wrong}
    branches = verify_on_remote(instance, instance.remotes.get(remote), sound, on_commit)
    if branches.failure is not None and not report.refs:
        raise branches.failure
    verified = report.verified
    verified = verified._replace(
        warnings=(*verified.warnings, *branches.warnings), notes=(*verified.notes, *branches.notes)
    )
    findings = [*report.findings, *branches.findings]
    return _something(
        report._replace(verified=verified, findings=findings, branches=branches.verified), remote
    )


def _rewritten(
    instance: Instance, remote: str, refs: Mapping[str, Oid | None], verified: VerifyResult
) -> list[Finding]:
    from uwf_git.sync.rewritten import rewrites

    wrong = {finding.ref for finding in verified.findings}
    sound = {name: oid for name, oid in refs.items() if oid is not None and name not in wrong}
    instance.store.sync()
    return [
        Finding(
            REWRITTEN[rewrite.is_rollback],
            rewrite.thread,
            None,
            str(rewrite.now),
            f"{rewrite.message}; {rewrite.hint}",
            rewrite.ref,
        )
        for rewrite in rewrites(instance, remote, sound)
    ]


def _rewritten_in_a_mirror(
    instance: Instance, refs: Mapping[str, Oid | None], verified: VerifyResult
) -> list[Finding]:
    """Compare the refs of a mirror, which plain `git fetch` moves to anything, with those of the last verification,
    and record them."""
    from uwf_git.sync.seen import Seen

    repository, findings = instance.store.repository, []
    for key, value in repository.config.entries("remote."):
        name = key.removeprefix("remote.").removesuffix(".mirror")
        if not key.endswith(".mirror") or value.lower() not in ("", "true", "yes", "on", "1"):
            continue
        findings += _rewritten(instance, name, refs, verified)
        wrong = {finding.ref for finding in (*verified.findings, *findings)}
        Seen(repository.private, name).note(
            {
                ref: oid
                for ref, oid in refs.items()
                if oid is not None and ref not in wrong and not ref.startswith(layout.PAUSED)
            }
        )
    return findings


def with_proofs(instance: Instance, report: Report, signatures: bool, require: str | None) -> Report:
    """Return a report with signatures, if wanted, and with what is required of them. git verifies each once. Raises
    Usage."""
    if not signatures and require is None and not has_policy(instance):
        return report
    read = signature_reader(instance)
    if signatures:
        report = with_signatures(instance, report, read)
    return with_requirements(instance, report, require, read)


def signature_reader(instance: Instance) -> SignatureReader:
    """Return a reader of signatures with the keys of the trust policy, else the user's."""
    from uwf_git.trust.policies import current
    from uwf_git.trust.signatures import SignatureReader

    policy = current(instance)
    return SignatureReader(instance.store.repository, policy.allowed_signers() if policy else None)


def with_signatures(instance: Instance, report: Report, read: SignatureReader | None = None) -> Report:
    """Return a report with signatures; bad ones become findings. `read` as of `signature_reader`, the default."""
    from uwf_git.trust.signatures import signed_records

    refs = {name: oid for name, oid in report.refs.items() if oid is not None}
    signed = signed_records(refs, read or signature_reader(instance))
    return report._replace(findings=[*report.findings, *_bad(signed)], signed=signed)


def with_requirements(
    instance: Instance, report: Report, require: str | None = None, read: SignatureReader | None = None
) -> Report:
    """Return a report with a finding for each record that isn't signed as the trust policy requires, and as
    `require` says: `signed`, or `signed-by=` with names of people and groups, without a policy of git's
    signers. `read` as for `with_signatures`. Raises Usage."""
    if require is None and not has_policy(instance):
        return report
    from uwf_git.store.index import Overlay
    from uwf_git.store.indexing import Store
    from uwf_git.sync.admission import findings_of
    from uwf_git.trust.judgement import Requirements, judge_by_git, with_rule
    from uwf_git.trust.policies import current

    policy = current(instance)
    store = Store(instance.store.repository, Overlay())
    refs = {name: oid for name, oid in report.refs.items() if oid is not None}
    read = read or signature_reader(instance)
    judged = []
    if policy is not None and policy.rules:
        judged += Requirements(store, policy, read=read).judge(refs)
    if require is not None:
        names = _names_in(require)
        if policy is None:
            judged += judge_by_git(store, refs, read, names)
        else:
            if unknown := [name for name in names if not policy.members([name])]:
                raise Usage(f"the trust policy has no person or group {unknown[0]!r}", "see: uwf trust show")
            judged += Requirements(store, with_rule(policy, names), read=read).judge(refs)
    return report._replace(findings=[*report.findings, *dict.fromkeys(findings_of(judged))])


def _names_in(require: str) -> list[str]:
    if require == "signed":
        return []
    word, equals, rest = require.partition("=")
    names = [name.strip() for name in rest.split(",") if name.strip()]
    if word != "signed-by" or not equals or not names:
        raise Usage(
            f"--require {require!r} is neither signed nor signed-by=NAME[,NAME]", "see: uwf verify --help"
        )
    return names


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
            item.thread,
            item.node if item.kind == "step" else None,
            str(item.object),
            f"the signature of {item.kind} {item.node or item.thread or item.object} is bad",
            item.ref,
        )
        for item in signed
        if item.signature.state == "bad"
    ]


def _as_json(signed: Signed) -> dict[str, Any]:
    record = {**signed._asdict(), "object": str(signed.object)}
    del record["signature"]
    return {**record, **signed.signature._asdict()}


def check_tree(
    path: Path,
    revision: str = "HEAD",
    branch: str = "",
    on_commit: Callable[[], None] = lambda: None,
    files: bool = True,
    target: str = "",
) -> Report:
    """Verify a commit of the checkout or repository at a path by what uwf published in it, and with HEAD the `files`
    of the checkout. `branch` names the one that a detached HEAD or a commit is of, as for a pull request, and
    `target` the one that it is to be merged into. No store is needed, and nothing is written. Raises NothingToVerify,
    NotFound, Invalid, StoreDamaged."""
    from uwf_git.verify.branch_names import HEADS
    from uwf_git.verify.checkout import open_checkout
    from uwf_git.verify.published import verify_branch

    checkout = open_checkout(path)
    target_branch = checkout.branch(revision, branch)
    if target:
        target_branch = target_branch._replace(target=HEADS + target.removeprefix(HEADS))
    commit = checkout.commit(target_branch)
    published = verify_branch(
        checkout.repository, commit, target_branch, checkout.heads(target_branch), on_commit
    )
    if files and revision == "HEAD" and checkout.top is not None:
        published = _with_folder(checkout, commit, published)
    return _report(target_branch, commit, published)


def _report(branch: Branch, commit: Oid, published: Published) -> Report:
    verified = published.verified
    return Report({branch.shown_ref: commit}, verified, list(verified.findings), published=published)


def _with_folder(checkout: OpenCheckout, commit: Oid, published: Published) -> Published:
    from uwf_git.verify.findings import Bad
    from uwf_git.verify.folder import check_folder

    try:
        folder = check_folder(checkout, commit, published.tree, published.own_names)
    except Bad as bad:
        finding = Finding(UNCHECKED, None, None, str(commit), f"the folder was not compared: {bad.message}")
        result = published.verified
        return published._replace(verified=result._replace(findings=(*result.findings, finding)))
    result = published.verified
    result = result._replace(
        findings=(*result.findings, *folder.findings), notes=(*result.notes, *folder.notes)
    )
    return published._replace(verified=result, files=folder.files)


def check_branch(instance: Instance, revision: str, on_commit: Callable[[], None] = lambda: None) -> Report:
    """Verify a branch, tag or commit of a store's repository. Raises NotFound, NothingToVerify, StoreDamaged."""
    from uwf_git.api.branches import known_heads
    from uwf_git.verify.checkout import OpenCheckout
    from uwf_git.verify.published import verify_branch

    repository = instance.store.repository
    opened = OpenCheckout(None, instance.location.git_dir, repository)
    branch = opened.branch(revision)
    commit = opened.commit(branch)
    heads = known_heads(instance, branch.thread) if branch.thread is not None else {}
    return _report(branch, commit, verify_branch(repository, commit, branch, heads, on_commit))
