"""`uwf thread branches`: the branches of a fan-out by the roles that they passed."""

from __future__ import annotations

from typing import Any

import click

from uwf_cli import terminal
from uwf_cli.command import command
from uwf_cli.invocation import Invocation, find_head
from uwf_cli.options import THREAD
from uwf_cli.output import branches_text, dollars
from uwf_git.base.text import counted, duration
from uwf_git.format.types import role_name

_ITEM, _VERDICT = 30, 24  # columns
_COLOUR = {"failed": "red", "running": "blue", "waiting": "yellow", "next": "dim"}


@command("uwf thread branches 01JK7M", "uwf thread branches 01JK7M --fork 2 --from 200")
@THREAD
@click.option("--fork", type=click.IntRange(min=1), metavar="STEP", help="Show the fan-out at this step.")
@click.option(
    "--from", "first", type=click.IntRange(min=0), default=0, metavar="N", help="Begin at branch N."
)
def branches(invocation: Invocation, thread: str, fork: int | None, first: int) -> None:
    """Show a fan-out as a matrix: a row per branch, a column per role.

    Shows the newest fan-out, 200 branches at once.
    """
    from uwf_git.api.cockpit.matrix import matrix

    invocation.emit(matrix(invocation.instance, find_head(invocation, thread), fork or 0, first), _text)


def _text(value: Any) -> str:
    roles = value["roles"]
    header = ("", "item", "status", *map(role_name, roles), "time", "cost")
    rows = [
        (
            str(row["index"]),
            terminal.cut(row["item"], _ITEM),
            terminal.status(row["status"]),
            *(_cell(row["cells"].get(role)) for role in roles),
            duration(row["seconds"]) if (row["seconds"] or 0) >= 0.05 else "",
            dollars(row["cost"], row["unpriced"] or 0) if row["cost"] is not None else "",
        )
        for row in value["rows"]
    ]
    joined = f", joined at step {value['joined']}" if value["joined"] else ""
    counts = branches_text(value["counts"], value["ended"])
    head = f"fan-out at step {value['fork']}{joined}: {counts}\n\n"
    more = ""
    if value["more"]:
        after = f"uwf thread branches {value['thread']} --fork {value['fork']} --from {value['first'] + len(rows)}"
        more = terminal.style(f"{counted(value['more'], 'more branch')}: {after}", "dim") + "\n"
    return f"{head}{terminal.table(rows, header)}{more}"


def _cell(cell: Any) -> str:
    if cell is None:
        return ""
    text = f"{cell['state']} {cell['verdict']}"
    if cell["state"] == "done" and cell["verdict"]:
        text = cell["verdict"]
    times = f"{cell['times']}× " if cell["times"] > 1 else ""
    words = times + terminal.cut(" ".join(text.split()), _VERDICT)
    return str(terminal.style(words, _COLOUR.get(cell["state"], "")))
