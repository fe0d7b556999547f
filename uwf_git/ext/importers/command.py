"""`uwf import` and `uwf export --json-cas`."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click
from uwf_cli import terminal
from uwf_cli.command import command
from uwf_cli.exchange import Meter, find_thread
from uwf_cli.invocation import Invocation

from uwf_git.base.text import counted

if TYPE_CHECKING:
    from uwf_git.store.instance import Instance
    from uwf_git.store.location import Location


@command(
    "uwf import ~/.uncaged/workflow --dry-run    what would be taken, what not",
    "uwf import ~/.uncaged/workflow",
    "uwf import ~/.uwf --nodes ~/.ocas           where the nodes are kept elsewhere",
)
@click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path))
@click.option(
    "--nodes",
    metavar="DIR",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Additional folder of nodes. Repeatable.",
)
@click.option("--dry-run", is_flag=True, help="Print what would be imported; store nothing.")
def import_(invocation: Invocation, folder: Path, nodes: tuple[Path, ...], dry_run: bool) -> None:
    """Import workflows and threads of an older program.

    FOLDER is its storage root, which is not changed. Workflows are imported with all versions, threads with
    the times of their steps, nodes under their hashes. Anything that cannot be imported is listed with the
    reason. Safe to repeat.
    """

    from uwf_git.ext.importers.importing import opened as opened_root
    from uwf_git.ext.importers.importing import take

    meter = Meter()
    with ExitStack() as opened:
        # Before creating a store, which is only done if something can be imported.
        old = opened.enter_context(opened_root(folder, nodes))
        if dry_run and not invocation.location.git_dir.exists():
            instance = _temporary_store(invocation.location, opened)
        else:
            instance = invocation.instance if dry_run else invocation.instance_for_writing()
        opened.callback(meter.clear)
        found = take(instance, old, dry_run, meter.step)
    invocation.emit({**found.to_json(), "dryRun": dry_run}, _imported_text)


def _temporary_store(location: Location, opened: ExitStack) -> Instance:
    from uwf_git.store.instance import Instance
    from uwf_git.store.location import init as make

    aside = location._replace(
        git_dir=Path(opened.enter_context(TemporaryDirectory())) / "store.git", here=False
    )
    make(aside)
    return Instance(aside)


def _imported_text(value: Any) -> str:
    workflows = [
        (each["name"], each["hash"], counted(each["versions"], "version"), _STATES[each["state"]])
        for each in value["workflows"]
    ]
    threads = [
        (
            each["thread"],
            each["workflow"],
            counted(each["steps"], "step"),
            terminal.status(each["status"]),
            _STATES[each["state"]],
        )
        for each in value["threads"]
    ]
    notes = [(each["thread"], each["message"]) for each in value["warnings"]]
    untaken = [(each["kind"], each["name"], each["reason"]) for each in value["untaken"]]
    taken = "would be taken" if value["dryRun"] else "taken"
    read = f"{counted(value['nodes'], 'node')} read, {value['taken']:,} {taken}"
    if value["kept"]:
        read += f"; only these have {', '.join(value['kept'])}"
    parts = [
        terminal.table(workflows, ("workflow", "hash", "", "")) if workflows else "",
        terminal.table(threads, ("thread", "workflow", "", "", "")) if threads else "",
        read,
        terminal.table(notes, ("note", "")) if notes else "",
        terminal.table(untaken, ("not taken", "", "reason")) if untaken else "",
    ]
    return "\n\n".join(part.strip("\n") for part in parts if part)


_STATES = {"new": "new", "grown": "goes on", "here": "here already"}


def export(invocation: Invocation, threads: tuple[str, ...], folder: Path, force: bool) -> None:
    """Write threads, or all nodes, into a storage root. Raises Invalid."""
    from uwf_git.ext.importers.export import export as write

    instance, meter = invocation.instance, Meter()
    chosen = [find_thread(invocation, each) for each in threads] or None
    total = instance.store.index.node_count()
    try:
        found = write(instance, folder, chosen, lambda done: meter.step("Writing nodes", done, total))
    finally:
        meter.clear()
    invocation.emit(
        {"folder": str(folder), **found._asdict()},
        lambda value: (
            f"{value['folder']}: {counted(value['threads'], 'thread')}, "
            f"{counted(value['written'], 'node')} written, {value['there']:,} there already"
        ),
    )
