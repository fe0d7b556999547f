"""`uwf fleet files`."""

from __future__ import annotations

from pathlib import Path

import click

from uwf_git.plugin import Invocation, command, write_whole

_FILES = Path(__file__).parents[1] / "deploy"


@command("uwf fleet files service")
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.option("--force", is_flag=True, help="Write over files that are there.")
def files(invocation: Invocation, folder: Path, force: bool) -> None:
    """Write what a fleet and the pages are deployed by into a folder.

    That is a file for an image, one for podman-compose or docker compose, and systemd units.
    """
    folder.mkdir(parents=True, exist_ok=True)
    sources = sorted(path for path in _FILES.iterdir() if path.is_file())
    for source in sources:
        write_whole(folder / source.name, source.read_bytes(), force)
    written = [str(folder / source.name) for source in sources]
    invocation.emit({"files": written}, lambda value: "\n".join(value["files"]))
