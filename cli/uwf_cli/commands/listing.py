"""Finding threads: `uwf thread list`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from uwf_cli import terminal
from uwf_cli.command import command
from uwf_cli.completers import complete_name
from uwf_cli.exchange import adopt_news
from uwf_cli.invocation import Invocation
from uwf_cli.output import iso
from uwf_git.errors import NotFound
from uwf_git.text import nearest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from uwf_git.store.opened import Instance
    from uwf_git.store.threads import Damaged

STATUSES = ("idle", "running", "waiting", "failed", "completed", "killed", "corrupt")


@command(
    "uwf thread list",
    "uwf thread list --all --workflow solve-issue",
    "uwf thread list --status failed --limit 20",
)
@click.option("--all", "archived", is_flag=True, help="Also the completed and killed.")
@click.option("--status", type=click.Choice(STATUSES), help="Only these; finds archived ones too.")
@click.option("--workflow", metavar="W", help="Only of this name or hash.", shell_complete=complete_name)
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help="At most so many.")
@click.option("--offset", type=click.IntRange(min=0), default=0, metavar="N", help="Leave out the first N.")
def list_(
    invocation: Invocation,
    archived: bool,
    status: str | None,
    workflow: str | None,
    limit: int | None,
    offset: int,
) -> None:
    """List threads, newest first. A damaged one is listed as corrupt and keeps nothing from you."""
    adopt_news(invocation)
    items = list(_items(invocation.instance, archived or status in ("completed", "killed")))
    if status is not None:
        items = [item for item in items if item["status"] == status]
    if workflow is not None:
        _require_known(invocation.instance, workflow)
        items = [item for item in items if _is_of(workflow, item["name"], item["workflow"])]
    end = None if limit is None else offset + limit
    invocation.emit(items[offset:end], _list_text)


def _is_of(workflow: str, name: str | None, node: str | None) -> bool:
    """Whether a text is a workflow's name, or four characters and more that its hash begins with."""
    return name == workflow or (len(workflow) >= 4 and (node or "").startswith(workflow.upper()))


def _require_known(instance: Instance, workflow: str) -> None:
    """Raises NotFound, with the nearest name, for a workflow that is neither registered nor any thread's."""
    from uwf_git.store.threads import Head

    rows = [head.row for head in instance.threads.all(archived=True) if isinstance(head, Head)]
    names = {*instance.registry.names(), *(row.name or "" for row in rows)}
    if workflow not in names and not any(_is_of(workflow, row.name, row.workflow) for row in rows):
        hint = nearest(workflow, sorted(names)) or "see: uwf workflow list"
        raise NotFound(f"no workflow {workflow!r}", hint)


def _items(instance: Instance, archived: bool) -> Iterator[dict[str, Any]]:
    from uwf_git.engine.budget import Budgets
    from uwf_git.engine.status import status_of
    from uwf_git.store.layout import ATTEMPTS
    from uwf_git.store.threads import Damaged

    heads = instance.threads.all(archived)
    running = instance.locks.held()
    tried = instance.store.index.tip_commits(ATTEMPTS)
    budgets = Budgets(instance)
    for head in heads:
        if isinstance(head, Damaged):
            yield _damaged(head)
            continue
        told = head.archive or head.thread in running or head.row.asks or ATTEMPTS + head.thread in tried
        if told or budgets.sources(head):
            state = status_of(instance, head, running, budgets)
        else:
            state = "idle"
        yield {
            "thread": head.thread,
            "workflow": head.row.workflow,
            "head": head.node,
            "status": state,
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
