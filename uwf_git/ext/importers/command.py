"""`uwf import`."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from uwf_git.plugin import Invocation, ProgressMeter, Table, command, counted

if TYPE_CHECKING:
    from uwf_git.plugin import Instance, Location


@command(
    "uwf import ~/.uncaged/workflow --dry-run    what would be taken, what not",
    "uwf import ~/.uncaged/workflow",
)
@click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Print what would be imported; store nothing.")
def import_(invocation: Invocation, folder: Path, dry_run: bool) -> None:
    """Import workflows and threads of an older program.

    FOLDER is its storage root, which is not changed. Workflows are imported with all versions, threads with
    the times of their steps, nodes under their hashes. Anything that cannot be imported is listed with the
    reason. Safe to repeat.
    """

    from uwf_git.ext.importers.importing import opened as opened_root
    from uwf_git.ext.importers.importing import take

    meter = ProgressMeter()
    with ExitStack() as resources:
        # Before creating a store, which is only done if something can be imported.
        source = resources.enter_context(opened_root(folder))
        if dry_run and not invocation.location.git_dir.exists():
            instance = _temporary_store(invocation.location, resources)
        else:
            instance = invocation.instance if dry_run else invocation.instance_for_writing()
        resources.callback(meter.clear)
        report = take(instance, source, dry_run, meter.step)
    invocation.emit({**report.to_json(), "dryRun": dry_run}, _imported_text)


def _temporary_store(location: Location, resources: ExitStack) -> Instance:
    from uwf_git.plugin import Instance, init_store

    folder = Path(resources.enter_context(TemporaryDirectory()))
    temporary = location._replace(git_dir=folder / "store.git", here=False)
    init_store(temporary)
    return Instance(temporary)


def _imported_text(value: Any) -> str:
    taken = "would be taken" if value["dryRun"] else "taken"
    read = f"{counted(value['nodes'], 'node')} read, {value['taken']:,} {taken}"
    if value["kept"]:
        read += f"; only these have {', '.join(value['kept'])}"
    parts = [
        *(_WORKFLOWS(value["workflows"]), _THREADS(value["threads"]), read),
        *(_NOTES(value["warnings"]), _UNTAKEN(value["untaken"])),
    ]
    return "\n\n".join(part.strip("\n") for part in parts if part)


_STATES = {"new": "new", "grown": "goes on", "here": "here already"}
_STATE = ("", lambda item: _STATES[item["state"]])
_WORKFLOWS = Table(("workflow", "name"), "hash", ("", "{versions:counted version}"), _STATE)
_THREADS = Table("thread", "workflow", ("", "{steps:counted step}"), ("", "{status:status}"), _STATE)
_NOTES = Table(("note", "thread"), ("", "message"))
_UNTAKEN = Table(("not taken", "kind"), ("", "name"), "reason")
