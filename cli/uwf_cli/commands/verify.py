"""`uwf verify`."""

from __future__ import annotations

import gc
import shlex
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.exceptions import Exit

from uwf_cli import terminal
from uwf_cli.command import command
from uwf_cli.completers import complete_thread
from uwf_cli.invocation import Invocation
from uwf_cli.selection import short_ids
from uwf_git.base.errors import NotFound, Usage, UwfError
from uwf_git.base.text import counted, one_line

if TYPE_CHECKING:
    from uwf_git.api.check import Report
    from uwf_git.format.ids import ThreadId

_MORE = ("definitions", "commits", "merges", "pages", "files", "branches")
EVERY = 100  # commits between two signs of life
UNCOLLECTED = 20_000  # objects between two garbage collections: kept ones rarely form cycles


@command(
    "uwf verify                   everything in the store",
    "uwf verify 01JK7M            one thread, with all that it depends on",
    "uwf verify uwf/threads/01M7  a branch, tag or commit, as it was published",
    "uwf verify .                 a checkout; no store is needed",
    "uwf verify --remote origin   what was fetched from there, and its branches",
    "uwf verify --merged main     the threads that commits of a branch stand on",
    "uwf verify --signatures      and who signed which step",
    "uwf verify --require signed  that every record is signed, by whom git trusts",
    "uwf verify --strict          a warning is a failure",
)
@click.argument("what", metavar="[ID|BRANCH|PATH]...", nargs=-1, shell_complete=complete_thread)
@click.option("--all", "everything", is_flag=True, help="Verify the whole store; the default without an ID.")
@click.option(
    "--remote", metavar="NAME", help="Verify what was last fetched from this remote, and its branches."
)
@click.option("--no-fetch", is_flag=True, help="With --remote: do not ask the remote for its branches.")
@click.option("--branch", metavar="NAME", help="With PATH: the branch that a detached HEAD is of.")
@click.option(
    "--merged", metavar="BRANCH", help="Verify the threads that the project's commits there stand on."
)
@click.option("--signatures", is_flag=True, help="Also check who signed each commit and archive tag.")
@click.option("--require", metavar="RULE", help="Require a signature: signed, or signed-by=NAME[,NAME].")
@click.option("--strict", is_flag=True, help="Exit 1 if there are warnings.")
def verify(
    invocation: Invocation,
    what: tuple[str, ...],
    everything: bool,
    remote: str | None,
    no_fetch: bool,
    branch: str | None,
    merged: str | None,
    signatures: bool,
    require: str | None,
    strict: bool,
) -> None:
    """Verify every node, commit, page and decision.

    A branch or a checkout is verified by what is in it: pages are generated again from the nodes, commits that are not
    uwf's are named, and so are files that differ from the commit that is checked out. Nothing is written there, and no
    program that its configuration names is run.

    Cached results are not used. Exit 7 if something is wrong, 12 if the store or a remote lacks history that was seen
    there, 13 if there is nothing to verify, 14 if something is not signed as the trust policy or --require says, 125 if
    it is uncertain: a head is unknown to your log of heads, or checks were left undone after a minute of slow ones
    (git config uwf.maxVerify). Generated outputs of uwf-rehearse, and commits
    that are not in a shallow clone, are a warning. The code of code workflows is not run.

    --merged lists the commits of a branch of this folder's project, since the oldest thread began or in a range A..B,
    with the threads that they stand on, by their id, patch or lines, and verifies these. A commit whose message claims
    a thread that changed something else is a finding.
    """
    from uwf_git.api.check import check, check_tree, with_proofs

    if (bool(what) + everything + (remote is not None) + (merged is not None)) > 1:
        raise Usage("threads, branches, --all, --remote and --merged exclude each other", "give one of them")
    if no_fetch and remote is None:
        raise Usage("--no-fetch is for --remote", "name the remote: --remote origin --no-fetch")
    path = _path(what)
    if branch is not None and path is None:
        raise Usage(
            "--branch is for a checkout", f"give its folder: uwf verify . --branch {shlex.quote(branch)}"
        )
    if (signatures or require) and path is not None:
        raise Usage(
            "whose keys count for signatures is configured in a store, not in a checkout",
            "call it in a store that has the thread",
        )
    progress = _Progress()
    gc.set_threshold(UNCOLLECTED)
    commits: dict[str, Any] = {}
    try:
        if merged is not None:
            from uwf_git.api.attribution import verify_merged

            landed = verify_merged(invocation.instance, Path.cwd(), merged, progress.commit, invocation.warn)
            report, commits = landed.report, landed.to_json()
        elif path is not None:
            report = check_tree(path, branch=branch or "", on_commit=progress.commit)
        else:
            threads, revision = _threads_or_branch(invocation, what)
            if revision is not None:
                report = _check_branch(invocation, revision, progress)
            else:
                report = check(invocation.instance, threads, remote, progress.commit, not no_fetch)
    finally:
        progress.end()
    if (signatures or require) and not _has_store(invocation):
        raise Usage("whose keys count for signatures is configured in a store", "make one with: uwf init")
    if (
        require
        and report.published is not None
        and not any(ref.startswith("refs/uwf/") for ref in report.refs)
    ):
        raise Usage(
            "--require is for threads and definitions, and the branch is called after none", "name its thread"
        )
    if signatures or (path is None and report.refs and _has_store(invocation)):
        report = with_proofs(invocation.instance, report, signatures, require)
    names = cache(lambda: short_ids(invocation.instance))
    invocation.emit({**report.to_json(), **commits}, lambda value: _commits(value, names) + _text(value))
    if status := report.exit_status:
        raise Exit(status)
    if strict and report.verified.warnings:
        raise Exit(UwfError.exit_status)


def _path(what: tuple[str, ...]) -> Path | None:
    """Return the folder that the arguments name, None for threads and branches. Raises Usage."""
    paths = [item for item in what if item in (".", "..", "~") or item.startswith(("/", "./", "../", "~/"))]
    if not paths:
        return None
    if len(what) > 1:
        raise Usage("a checkout is verified by itself", "call uwf verify once for each")
    return Path(paths[0]).expanduser()


def _threads_or_branch(invocation: Invocation, what: tuple[str, ...]) -> tuple[list[ThreadId], str | None]:
    """Return the threads that the arguments name, or a branch. Raises NotFound, Usage."""
    threads: list[ThreadId] = []
    for item in what:
        if len(what) == 1 and ("/" in item or item == "HEAD"):
            return [], item
        try:
            threads.append(invocation.instance.threads.find(item))
        except NotFound:
            if len(what) > 1 or not _names_commit(invocation, item):
                raise
            return [], item
    return threads, None


def _names_commit(invocation: Invocation, text: str) -> bool:
    from uwf_git.api.branches import is_revision

    return _has_store(invocation) and is_revision(invocation.instance, text)


def _has_store(invocation: Invocation) -> bool:
    try:
        return invocation.instance is not None
    except NotFound:
        return False


def _check_branch(invocation: Invocation, revision: str, progress: _Progress) -> Report:
    """Verify a branch of the store, or else of the repository around the current folder. Raises NotFound."""
    from uwf_git.api.check import check_branch, check_tree

    if _names_commit(invocation, revision):
        return check_branch(invocation.instance, revision, progress.commit)
    try:
        return check_tree(Path.cwd(), revision, on_commit=progress.commit, files=False)
    except NotFound as error:
        hint = "is it fetched? see: git branch --all; those of a remote: uwf verify --remote origin"
        if Path(revision).is_dir():
            hint = f"for the folder: uwf verify ./{revision}"
        raise NotFound(
            f"no branch, tag or commit {one_line(revision, 80)!r} in the store, nor around here", hint
        ) from error


def _commits(value: Any, names: Callable[[], Callable[[str], str]]) -> str:
    """Return a row for each commit of a branch: what it stands on, and how."""
    rows = []
    for item in value.get("commits", ()):
        on = ", ".join(
            f"{names()(share['thread'])} {_how(share, item['lines'])}" for share in item["threads"]
        )
        is_wrong = item["problems"] or not all(share["verified"] for share in item["threads"])
        rows.append((terminal.style(item["commit"][:10], "red" if is_wrong else "dim"), on, item["subject"]))
    more = "and older ones: give a range, A..B\n" if value.get("more") else ""
    return terminal.table(rows, free=2) + more


def _how(share: Any, lines: int) -> str:
    how = f"{share['lines']} of {counted(lines, 'line')}" if share["how"] == "lines" else share["how"]
    return how if share["verified"] else f"{how}, not verified"


def _text(value: Any) -> str:
    return _signatures(value.get("signatures", ())) + _findings(value)


def _signatures(value: Any) -> str:
    rows = [
        (
            terminal.style(item["state"], "red" if item["state"] == "bad" else "dim"),
            item["kind"],
            item["node"] or item["thread"] or "",
            item["object"][:10],
            item["signer"] or item["key"],
        )
        for item in value
    ]
    return terminal.table(rows) + "\n" if rows else ""


def _findings(value: Any) -> str:
    from uwf_git.api.check import UNCHECKED

    counts = value["verified"]
    always = ("threads", "steps", "nodes")
    done = ", ".join(
        _count(counts[name], name.removesuffix("es" if name.endswith("ches") else "s"))
        for name in (*always, *_MORE)
        if name in always or counts.get(name)
    )
    parts = []
    for item in value.get("subjects", ()):
        steps = f", {counted(item['steps'], 'step')}" if "steps" in item else ""
        how = "with its commits" if item["by"] == "commits" else "by its nodes, without its commits"
        kind = "thread of" if item["kind"] == "thread" else item["kind"]
        parts.append(f"{kind} {item['name']}{steps}, {how}: commit {item['commit']}")
    for item in value["findings"]:
        place = f"{item['path']}:{item['line']}" if item.get("line") else item.get("path", "")
        where = [place, item["ref"] or "", f"step {item['step']}" if item["step"] else "", item["object"]]
        parts.append(f"{terminal.style(item['code'], 'red')}  {item['message']}")
        parts.append("  " + terminal.style("  ".join(filter(None, where)), "dim"))
    for item in value["warnings"]:
        about = f"thread {item['thread']}: " if item["thread"] else ""
        parts.append(f"{terminal.style(item['code'], 'yellow')}  {about}{item['message']}")
    for item in value["notes"]:
        about = f"thread {item['thread']}: " if item["thread"] else ""
        parts.append(terminal.style(f"{item['code']}  {about}{item['message']}", "dim"))
    wrong = _count(len(value["findings"]), "finding") if value["findings"] else "nothing is wrong"
    unchecked = [
        finding["thread"] or finding["ref"] for finding in value["findings"] if finding["code"] == UNCHECKED
    ]
    if unchecked:
        wrong += f", not checked: {', '.join(dict.fromkeys(unchecked))}"
    if value["warnings"]:
        wrong += f", {counted(len(value['warnings']), 'warning')}"
    return "\n".join([*parts, f"{done}: {wrong}"]) + "\n"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("" if number == 1 else "es" if what.endswith("ch") else "s")


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
