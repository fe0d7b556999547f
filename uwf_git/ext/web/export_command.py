"""`uwf export --html`."""

from __future__ import annotations

from pathlib import Path

from uwf_cli.exchange import find_head
from uwf_cli.files import write_whole
from uwf_cli.invocation import Invocation

from uwf_git.ext.web.page.thread import page


def export(invocation: Invocation, thread: str, file: Path, force: bool) -> None:
    """Write a thread's page to a file, or `-`. Raises Invalid."""
    instance = invocation.instance
    head = find_head(invocation, thread)
    data = page(instance, head).encode("utf-8", "replace")
    if str(file) == "-":
        invocation.write(data.decode("utf-8"))
        return
    write_whole(file, data, force)
    invocation.emit(
        {"thread": head.thread, "file": str(file), "bytes": len(data)},
        lambda value: f"{value['file']}: {value['bytes']:,} bytes",
    )
