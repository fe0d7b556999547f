"""Checking the branches among all threads: their ids, and their ends against their joins."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from uwf_git.format.endings import LEFT
from uwf_git.format.ids import ThreadId, branch_id
from uwf_git.git.repository import Oid
from uwf_git.verify.findings import Finding
from uwf_git.workflow.turn import begins_threads

if TYPE_CHECKING:
    from uwf_git.verify.refs import Claim, Verifier


def branches_together(
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
        said = [each for each in record.step.output["branches"] if each["status"] != LEFT]
        for each, tip in zip(said, record.joined, strict=True):
            claim = heads.get(each["thread"])
            if claim is None or claim.commit != tip or claim.status in ("", each["status"]):
                continue
            message = f"branch {claim.thread} is {claim.status}, and {each['status']} in its join"
            commit = str(Oid(raw=record.row.oid))
            yield Finding("wrong-join", claim.thread, record.row.node, commit, message, claim.ref)
