"""An auditor's report about a thread: its record and texts, the findings of verification, and the open questions.

Its signature, in `signature`, is of all else in it as `canonical` bytes, by the key that signs commits, for the
namespace "uwf". Everything in `record` and `texts` is in the thread's commits; the rest is this machine's word.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from uwf_git.ext.attest.record import record
from uwf_git.ext.attest.statement import NAMESPACE, canonical
from uwf_git.plugin import (
    GOOD_SIGNATURE,
    REHEARSE,
    UNCHECKED,
    VERSION,
    Head,
    HeadMoved,
    Instance,
    Invalid,
    Report,
    StoreDamaged,
    Undecided,
    check,
    iso,
    sign,
    with_signatures,
)

FORMAT = "https://uwf-git.invalid/schemas/audit-report/v1"

_CLAIMED = "models, sessions, tokens, costs and durations are as agents reported them"
_CLOCKS = "times are those of the committers' clocks"


def attested(instance: Instance, head: Head) -> dict[str, Any]:
    """Return the record of a thread in which nothing is wrong. Raises StoreDamaged, Undecided, HeadMoved, and Invalid
    for one without steps or with a secret."""
    report = _verified(instance, head)
    if report.is_damaged:
        first = next(finding for finding in report.findings if finding.code != UNCHECKED)
        raise StoreDamaged(
            f"thread {head.thread} is damaged: {first.message}", f"see: uwf verify {head.thread} --signatures"
        )
    if report.findings:
        raise Undecided(
            f"thread {head.thread} is not verified: {report.findings[0].message}",
            f"allow more: {instance.store.repository.config.to_raise('uwf.maxVerify', '600')}",
        )
    record_here = record(instance, head)
    if not record_here["steps"]:
        raise Invalid(f"thread {head.thread} has no step to attest", f"uwf thread step {head.thread}")
    refuse_secrets(instance, head, record_here)
    return record_here


def report(instance: Instance, head: Head) -> dict[str, Any]:
    """Return the report of a thread, signed if commits are. Raises StoreDamaged if it cannot be read, Invalid if it has
    a secret, SigningFailed."""
    report = _verified(instance, head)
    record_here = record(instance, head)
    value: dict[str, Any] = {
        "format": FORMAT,
        "record": record_here,
        "texts": _texts(instance, head),
        "verification": _verification(report),
        "unknown": list(_unknown(record_here, report)),
    }
    refuse_secrets(instance, head, value)
    repository = instance.store.repository
    signature = None
    if repository.config.signs_commits:
        signature = sign(repository.config.signing, repository.user, canonical(value), NAMESPACE)
    return {**value, "signature": signature}


def _verified(instance: Instance, head: Head) -> Report:
    """Verify a thread with its signatures. Raises HeadMoved if it has gone on from `head` meanwhile."""
    report = with_signatures(instance, check(instance, [head.thread]))
    now = instance.threads.head(head.thread)
    if (now.commit, now.archive) != (head.commit, head.archive):
        raise HeadMoved(f"thread {head.thread} went on while it was verified", "repeat")
    return report


def refuse_secrets(instance: Instance, head: Head, value: Any) -> None:
    """Raise Invalid for a secret, which cannot be taken out: others compare each word with the thread."""
    if spot := instance.redactor.first(value):
        raise Invalid(
            f"thread {head.thread} holds {spot}, which would be published",
            "change that secret where it is used, then remove it from .env; if it is none, name its variable in"
            " notSecrets",
        )


def _texts(instance: Instance, head: Head) -> dict[str, Any]:
    history = instance.threads.history(head)
    steps = []
    for number, step in enumerate(history.steps, 1):
        detail = instance.store.detail(step.detail)
        instruction = detail.instruction if detail is not None else None
        steps.append({"number": number, "instruction": instruction, "output": step.output})
    return {"prompt": history.start.prompt, "steps": steps}


def _verification(report: Report) -> dict[str, Any]:
    value = report.to_json()
    return {
        "by": f"uwf {VERSION}",
        "time": iso(time.time()),
        **{name: value[name] for name in ("verified", "findings", "warnings", "notes")},
    }


def _unknown(record: Mapping[str, Any], report: Report) -> Iterator[str]:
    for state, says in (
        ("", "not signed"),
        ("unknown", "signed with a key that is not known here"),
        ("expired", "signed with a key that has expired"),
        ("revoked", "signed with a key that is revoked"),
        ("bad", "signed with a bad signature"),
    ):
        if names := list(_with_state(record, state)):
            yield f"{says}: {', '.join(names)}"
    for approval in record["approvals"]:
        for one in approval["given"] or [approval]:
            if (one["signature"] or {}).get("state") != GOOD_SIGNATURE:
                who, what = one["by"], "made" if one is approval else "approved"
                yield (
                    f"only git's configuration says that {who['name']} <{who['email']}> {what}"
                    f" step {approval['number']}"
                )
    if rehearsed := [str(step["number"]) for step in record["steps"] if step["agent"] == REHEARSE]:
        yield f"{REHEARSE} generated the outputs of steps {', '.join(rehearsed)}"
    yield from (note.message for note in report.verified.notes)
    yield _CLAIMED
    yield _CLOCKS


def _with_state(record: Mapping[str, Any], state: str) -> Iterator[str]:
    named = [("the start", record["start"])]
    named += [(f"step {step['number']}", step) for step in record["steps"]]
    named += [("the end", record["end"])] if record["end"] else []
    for name, item in named:
        if (item["signature"] or {"state": ""})["state"] == state:
            yield name
