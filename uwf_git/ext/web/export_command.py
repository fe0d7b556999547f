"""`uwf export --html`."""

from __future__ import annotations

from pathlib import Path

from uwf_git.ext.web.page.thread import page
from uwf_git.plugin import Invocation, find_head, write_whole


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
