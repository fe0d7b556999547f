"""Finding threads: `uwf thread list`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from uwf_cli import terminal
from uwf_cli.command import command
from uwf_cli.exchange import adopt_news
from uwf_cli.invocation import Invocation
from uwf_cli.output import iso
from uwf_cli.selection import Filters, Listed, filters, listed

if TYPE_CHECKING:
    from uwf_git.store.threads import Damaged


@command(
    "uwf thread list",
    "uwf thread list --all --workflow solve-issue",
    "uwf thread list --status failed --status waiting --since 2d",
    "uwf thread list --search csv --author ada --limit 20",
)
@filters("Also the completed and killed.")
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help="At most so many.")
@click.option("--offset", type=click.IntRange(min=0), default=0, metavar="N", help="Leave out the first N.")
def list_(invocation: Invocation, filters: Filters, limit: int | None, offset: int) -> None:
    """List threads, newest first. A damaged one is listed as corrupt and keeps nothing from you."""
    adopt_news(invocation)
    found = listed(invocation.instance, filters)
    end = None if limit is None else offset + limit
    invocation.emit([_item(each) for each in found[offset:end]], _list_text)


def _item(each: Listed) -> dict[str, Any]:
    from uwf_git.store.threads import Damaged

    head = each.head
    if isinstance(head, Damaged):
        return _damaged(head)
    return {
        "thread": head.thread,
        "workflow": head.row.workflow,
        "head": head.node,
        "status": each.status,
        "name": head.row.name,
        "steps": head.row.number,
        "role": head.row.role,
        "updated": iso(head.updated),
    }


def _damaged(head: Damaged) -> dict[str, Any]:
    return {
        "thread": head.thread,
        "workflow": None,
        "head": None,
        "status": "corrupt",
        "name": None,
        "steps": None,
        "role": None,
        "updated": None,
        "problem": head.problem,
    }


def _list_text(value: Any) -> str:
    rows = [
        (
            each["thread"],
            terminal.status(each["status"]),
            str(each["steps"]) if each["steps"] is not None else "",
            each["updated"] or "",
            f"{each['name']}{': ' + each['role'] if each['role'] else ''}"
            if each["name"]
            else each["problem"],
        )
        for each in value
    ]
    if not rows:
        return "no such threads; uwf thread list --all shows every one"
    return terminal.table(rows, ("thread", "status", "steps", "updated", "workflow: last role"))
