"""`uwf verify`: is everything what it says it is?"""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Any

import click
from click.exceptions import Exit

from uwf_cli import terminal
from uwf_cli.command import command
from uwf_cli.completers import complete_thread
from uwf_cli.invocation import Invocation
from uwf_git.base.errors import StoreDamaged, Undecided, Usage, UwfError
from uwf_git.base.text import counted

if TYPE_CHECKING:
    from uwf_git.format.ids import ThreadId
    from uwf_git.git.repository import Oid
    from uwf_git.verify.findings import Finding
    from uwf_git.verify.signatures import Signed

EVERY = 100  # commits between two signs of life
UNCOLLECTED = 20_000  # objects made between two looks for cycles: what is kept has next to none


@command(
    "uwf verify                   everything in the store",
    "uwf verify 01JK7M            one thread, with all that it stands on",
    "uwf verify --remote origin   what was last fetched from there",
    "uwf verify --signatures      and who signed which step",
    "uwf verify --strict          a warning is a failure",
)
@click.argument("threads", metavar="[ID]...", nargs=-1, shell_complete=complete_thread)
@click.option("--all", "everything", is_flag=True, help="Everything in the store, as without an ID.")
@click.option("--remote", metavar="NAME", help="What was last fetched from a remote.")
@click.option("--signatures", is_flag=True, help="Who signed each commit and archive tag.")
@click.option("--strict", is_flag=True, help="Exit 1 where there is nothing but warnings.")
def verify(
    invocation: Invocation,
    threads: tuple[str, ...],
    everything: bool,
    remote: str | None,
    signatures: bool,
    strict: bool,
) -> None:
    """Check every node, commit, page and decision.

    Nothing that was found out before is believed. Exit 7 if something is wrong, 125 if nothing is but slow checks
    were left after a minute of them (git config uwf.maxVerify). Answers that uwf-rehearse made up are a warning.
    Of a workflow that is code it is only told that its code isn't run again.
    """
    from uwf_git.api.check import verify_refs
    from uwf_git.verify.findings import UNCHECKED
    from uwf_git.verify.whole import missing_refs

    if (bool(threads) + everything + (remote is not None)) > 1:
        raise Usage("threads, --all and --remote exclude each other", "give one of them")
    repository = invocation.instance.store.repository
    progress = _Progress()
    gc.set_threshold(UNCOLLECTED)
    try:
        named = [invocation.instance.threads.find(each) for each in threads]
        refs = _refs(invocation, named, remote)
        found = verify_refs(invocation.instance, refs, progress.commit)
    finally:
        progress.end()
    signed = []
    if signatures:
        from uwf_git.verify.signatures import signed_records

        signed = signed_records(repository, {name: oid for name, oid in refs.items() if oid is not None})
    missing = missing_refs(invocation.instance.store, named) if remote is None else []
    findings = [*missing, *found.findings, *_bad(signed)]
    value: dict[str, Any] = {
        "verified": {"threads": found.threads, "steps": found.steps, "nodes": found.nodes},
        "findings": [finding.as_json() for finding in findings],
        "warnings": [finding.as_json() for finding in found.warnings],
        "notes": [finding.as_json() for finding in found.notes],
    }
    if signatures:
        value["signatures"] = [_as_json(each) for each in signed]
    invocation.emit(value, _text)
    if any(finding.code != UNCHECKED for finding in findings):
        raise Exit(StoreDamaged.exit_status)
    if findings:
        raise Exit(Undecided.exit_status)
    if strict and found.warnings:
        raise Exit(UwfError.exit_status)


def _refs(invocation: Invocation, threads: list[ThreadId], remote: str | None) -> dict[str, Oid | None]:
    from uwf_git.api.check import refs_to_verify
    from uwf_git.store import layout

    instance = invocation.instance
    repository = instance.store.repository
    if remote is not None:
        from uwf_git.store.remotes import Remotes
        from uwf_git.sync.tracking import tracked_refs

        name = Remotes(repository, invocation.location.here).get(remote).name
        # What is on a branch becomes a record only when it is accepted.
        tracked = tracked_refs(repository, name).items()
        return {ref: oid for ref, oid in tracked if not ref.startswith(layout.BRANCHES)}
    return refs_to_verify(instance, threads)


def _bad(signed: list[Signed]) -> list[Finding]:
    from uwf_git.verify.findings import Finding

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


def _text(value: Any) -> str:
    return _signatures(value.get("signatures", ())) + _findings(value)


def _signatures(value: Any) -> str:
    rows = [
        (
            terminal.style(each["state"], "red" if each["state"] == "bad" else "dim"),
            each["kind"],
            each["node"] or each["thread"] or "",
            each["object"][:10],
            each["signer"] or each["key"],
        )
        for each in value
    ]
    return terminal.table(rows) + "\n" if rows else ""


def _findings(value: Any) -> str:
    from uwf_git.verify.findings import UNCHECKED

    counts = value["verified"]
    done = ", ".join(_count(counts[name], name.removesuffix("s")) for name in ("threads", "steps", "nodes"))
    parts = []
    for each in value["findings"]:
        where = [each["ref"] or "", f"step {each['step']}" if each["step"] else "", each["object"]]
        parts.append(f"{terminal.style(each['code'], 'red')}  {each['message']}")
        parts.append("  " + terminal.style("  ".join(filter(None, where)), "dim"))
    for each in value["warnings"]:
        parts.append(f"{terminal.style(each['code'], 'yellow')}  thread {each['thread']}: {each['message']}")
    for each in value["notes"]:
        parts.append(terminal.style(f"{each['code']}  thread {each['thread']}: {each['message']}", "dim"))
    wrong = _count(len(value["findings"]), "finding") if value["findings"] else "nothing is wrong"
    left = [each["thread"] or each["ref"] for each in value["findings"] if each["code"] == UNCHECKED]
    if left:
        wrong += f", not checked: {', '.join(dict.fromkeys(left))}"
    if value["warnings"]:
        wrong += f", {counted(len(value['warnings']), 'warning')}"
    return "\n".join([*parts, f"{done}: {wrong}"]) + "\n"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("" if number == 1 else "s")


class _Progress:
    """How far it is, on a terminal."""

    def __init__(self) -> None:
        self._shown = terminal.is_terminal(sys.stderr)
        self._commits = 0

    def commit(self) -> None:
        self._commits += 1
        if self._shown and self._commits % EVERY == 0:
            sys.stderr.write(f"\rverified {self._commits:,} commits")
            sys.stderr.flush()

    def end(self) -> None:
        if self._shown and self._commits >= EVERY:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
