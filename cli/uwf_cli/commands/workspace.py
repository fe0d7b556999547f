"""`uwf workspace` list, path, remove, and `uwf clean`."""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING, Any

import click

from uwf_cli import terminal
from uwf_cli.command import command
from uwf_cli.completers import complete_thread
from uwf_cli.failures import Failures
from uwf_cli.invocation import Invocation, adopt_news, find_thread
from uwf_cli.options import THREAD
from uwf_cli.selection import Selection, on_each, short_ids
from uwf_cli.views import Table
from uwf_git.api.listing import Filters
from uwf_git.base.text import counted, listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from uwf_git.format.ids import ThreadId

_NAMED = 5  # files in a line


@command("uwf workspace list", "uwf workspace list --all")
@click.option("--all", "removed", is_flag=True, help="Include workspaces that do not exist now.")
def list_(invocation: Invocation, removed: bool) -> None:
    """List the threads' worktrees and folders on this machine, newest thread first."""
    from uwf_git.api.workspaces import listed

    adopt_news(invocation)
    instance = invocation.instance

    names = cache(lambda: short_ids(instance))
    view = Table(
        ("thread", lambda place: names()(place["thread"])),
        ("status", lambda place: terminal.status(place["status"] or "removed")),
        "kind",
        ("path", lambda place: place["path"] + ("" if place["exists"] else " (does not exist)")),
        "branch",
        empty="no workspaces",
    )
    invocation.emit(listed(instance, removed), view)


@command("cd $(uwf workspace path @)", "git -C $(uwf workspace path 01JK7M) diff")
@THREAD
def path(invocation: Invocation, thread: str) -> None:
    """Print the folder that a thread's agents work in, if it has one of its own. JSON only on request."""
    from uwf_git.api.workspaces import folder

    thread_id = find_thread(invocation, thread)
    place = str(folder(invocation.instance, thread_id))
    invocation.emit_document(place, {"thread": thread_id, "path": place})


@command("uwf workspace remove 01JK7M", "uwf workspace remove 01JK7M 01JK9Q")
@click.argument("threads", metavar="ID...", nargs=-1, required=True, shell_complete=complete_thread)
def remove(invocation: Invocation, threads: tuple[str, ...]) -> None:
    """Remove the worktrees of threads. A thread's next step makes it again.

    Its commits stay. Uncommitted changes are kept as a commit under a ref, which is printed; ignored files are
    deleted.
    """
    from uwf_git.api import workspaces
    from uwf_git.api.removal import find_here_or_removed

    instance = invocation.instance

    def removed(thread: ThreadId) -> dict[str, Any]:
        return workspaces.remove(instance, thread)

    on_each(
        invocation,
        Selection(threads, Filters()),
        removed,
        "removed {path}; its commits are at {branch}",
        find=lambda text: find_here_or_removed(instance, text),
    )


@command(
    "uwf clean                          list what may go; on a terminal, ask",
    "uwf clean --remote --yes           on the project's remote too",
    "uwf clean 01JK7M --discard --yes   also what only this thread has",
)
@click.argument("threads", metavar="[ID]...", nargs=-1, shell_complete=complete_thread)
@click.option(
    "--discard",
    is_flag=True,
    help="Also what is nowhere else, of killed, failed and removed threads, and of those that are named.",
)
@click.option(
    "--remote",
    "there",
    is_flag=True,
    help="Also on remotes: code that was pushed, and branches of requests that were merged.",
)
@click.option("--yes", is_flag=True, help="Remove it without a question.")
def clean(invocation: Invocation, threads: tuple[str, ...], discard: bool, there: bool, yes: bool) -> None:
    """Remove what ended threads have left: worktrees, and code that is merged.

    Code counts as merged if a branch has its commits, or what they change. What would be lost is named, and goes only
    with --discard. Without --yes nothing is removed, unless you say so on a terminal.
    """
    from uwf_git.api import workspaces
    from uwf_git.api.removal import find_here_or_removed

    instance = invocation.instance
    ids = [find_here_or_removed(instance, text) for text in threads]
    candidates = workspaces.leftovers(instance, ids, invocation.place, discard, there)
    items = [item for item in candidates if ids or item.removes or item.losses]
    kept = workspaces.kept_code(instance, [] if ids else candidates)
    if not yes:
        _show(invocation, [workspaces.leftovers_value(instance, item) for item in items])
        _note_kept(invocation, kept)
        if not _agrees(invocation, sum(len(item.removes) for item in items)):
            return
    failures = Failures(invocation)
    results = []
    for item, error in workspaces.clean(instance, items):
        if error is not None:
            failures.add(error)
        results.append(workspaces.leftovers_value(instance, item, is_removed=error is None))
    _show(invocation, results)
    if yes:
        _note_kept(invocation, kept)
    failures.end()


def _show(invocation: Invocation, items: list[dict[str, Any]]) -> None:
    invocation.emit(items, _leftovers_text)
    if any({loss["place"] for loss in item["loses"]} - set(item["removes"]) for item in items):
        invocation.note("what is only here stays: --discard removes it")


def _note_kept(invocation: Invocation, threads: list[ThreadId]) -> None:
    if threads:
        code = f"the code of {listed(threads, _NAMED)}"
        invocation.note(f"merged, and kept for uwf blame: {code}; uwf clean ID --discard removes it")


def _agrees(invocation: Invocation, places: int) -> bool:
    """Return whether a person at a terminal wants places removed that were listed."""
    if places and invocation.format == "text":
        if terminal.is_terminal(sys.stdin) and terminal.is_terminal(sys.stderr):
            return click.confirm(f"Remove {counted(places, 'place')}?", err=True)
        invocation.note("nothing was removed: --yes removes it")
    return False


def _leftovers_text(items: Any) -> str:
    return "\n".join(line for item in items for line in _lines(item)) or "nothing to remove"


def _lines(item: Any) -> Iterator[str]:
    merged = item["merged"]
    form = f"merged into {merged['into']}" if merged and merged["commits"] else ""
    form = form or (f"{merged['into']} has what it changes" if merged else "not merged")
    yield f"{item['thread']}  {terminal.status(item['status'] or 'removed')}, {form}"
    losses = {loss["place"]: loss for loss in item["loses"]}
    for place in item["removes"]:
        yield f"  {'removed' if item['removed'] else 'removes'}    {place}{_loss(losses.pop(place, None))}"
    for place, loss in losses.items():
        yield f"  only here  {place}{_loss(loss)}"
    for part in item["stays"]:
        yield f"  stays      {part['place']}: {part['reason']}"


def _loss(loss: Any) -> str:
    """Return the end of a line with the commits and files that are nowhere else."""
    if loss is None:
        return ""
    commits = f"{counted(loss['commits'], 'commit')} up to {loss['commit'][:12]}, " if loss["commits"] else ""
    return f": {commits}changing {listed(loss['files'], _NAMED) or 'no file'}"
