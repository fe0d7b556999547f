"""Findings for records that a policy's rules apply to and that don't meet them."""

from __future__ import annotations

from collections.abc import Iterable

from uwf_git.format.ids import ThreadId
from uwf_git.git.repository import Oid
from uwf_git.store.new_record import ANSWERS, STEPS
from uwf_git.trust.judgement import MET, UNMET, Judgement
from uwf_git.verify.findings import Finding


def findings_of(judged: Iterable[Judgement]) -> list[Finding]:
    """Return a finding for each unmet record."""
    return [
        Finding(
            each.outcome,
            each.record.thread,
            each.record.node if {STEPS, ANSWERS} & {*each.record.of} else None,
            str(each.record.object),
            each.reason,
            each.record.ref,
        )
        for each in judged
        if each.outcome != MET
    ]


def unmet(ref: str, thread: ThreadId | None, oid: Oid, message: str) -> Finding:
    """Return the finding for a ref as a whole."""
    return Finding(UNMET, thread, None, str(oid), message, ref)
