"""`uwf verify`."""

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
from uwf_git.base.errors import RequirementUnmet, Rewritten, StoreDamaged, Undecided, Usage, UwfError
from uwf_git.base.text import counted

if TYPE_CHECKING:
    pass

EVERY = 100  # commits between two signs of life
UNCOLLECTED = 20_000  # objects between two garbage collections: kept ones rarely form cycles


@command(
    "uwf verify                   everything in the store",
    "uwf verify 01JK7M            one thread, with all that it depends on",
    "uwf verify --remote origin   what was last fetched from there",
    "uwf verify --signatures      and who signed which step",
    "uwf verify --require signed  that every record is signed, by whom git trusts",
    "uwf verify --strict          a warning is a failure",
)
@click.argument("threads", metavar="[ID]...", nargs=-1, shell_complete=complete_thread)
@click.option("--all", "everything", is_flag=True, help="Verify the whole store; the default without an ID.")
@click.option("--remote", metavar="NAME", help="Verify what was last fetched from this remote.")
@click.option("--signatures", is_flag=True, help="Also check who signed each commit and archive tag.")
@click.option("--require", metavar="RULE", help="Require a signature: signed, or signed-by=NAME[,NAME].")
@click.option("--strict", is_flag=True, help="Exit 1 if there are warnings.")
def verify(
    invocation: Invocation,
    threads: tuple[str, ...],
    everything: bool,
    remote: str | None,
    signatures: bool,
    require: str | None,
    strict: bool,
) -> None:
    """Verify every node, commit, page and decision.

    Cached results are not used. Exit 7 if something is wrong, 12 if a remote has rewritten what was seen there,
    14 if something is not signed as the trust policy or --require says, 125 if checks were left undone after a
    minute of slow ones (git config uwf.maxVerify). Generated outputs of uwf-rehearse are a warning. The code of
    code workflows is not run.
    """
    from uwf_git.api.check import check, with_requirements, with_signatures

    if (bool(threads) + everything + (remote is not None)) > 1:
        raise Usage("threads, --all and --remote exclude each other", "give one of them")
    instance = invocation.instance
    progress = _Progress()
    gc.set_threshold(UNCOLLECTED)
    try:
        report = check(instance, [instance.threads.find(each) for each in threads], remote, progress.commit)
    finally:
        progress.end()
    if signatures:
        report = with_signatures(instance, report)
    report = with_requirements(instance, report, require)
    invocation.emit(report.to_json(), _text)
    if report.is_damaged:
        raise Exit(StoreDamaged.exit_status)
    if report.is_rewritten:
        raise Exit(Rewritten.exit_status)
    if report.is_untrusted:
        raise Exit(RequirementUnmet.exit_status)
    if report.findings:
        raise Exit(Undecided.exit_status)
    if strict and report.verified.warnings:
        raise Exit(UwfError.exit_status)


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
    from uwf_git.api.check import UNCHECKED

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
        about = f"thread {each['thread']}: " if each["thread"] else ""
        parts.append(terminal.style(f"{each['code']}  {about}{each['message']}", "dim"))
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
    """A progress line on a terminal."""

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
