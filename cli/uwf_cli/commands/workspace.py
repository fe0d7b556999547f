"""`uwf workspace` list, path, remove."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import click

from uwf_cli import terminal
from uwf_cli.command import command
from uwf_cli.completers import complete_thread
from uwf_cli.invocation import Invocation, adopt_news, find_thread
from uwf_cli.options import THREAD
from uwf_cli.selection import Selection, on_each, short_ids
from uwf_cli.views import Table
from uwf_git.api.listing import Filters

if TYPE_CHECKING:
    from uwf_git.format.ids import ThreadId


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
