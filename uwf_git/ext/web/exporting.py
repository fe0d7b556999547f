"""`uwf export --html`: a thread as one file."""

from __future__ import annotations

from pathlib import Path

from uwf_cli.exchange import find_thread
from uwf_cli.files import write_whole
from uwf_cli.invocation import Invocation

from uwf_git.ext.web.page.thread import page


def export(invocation: Invocation, threads: tuple[str, ...], file: Path, force: bool) -> None:
    """Write the page of a thread to a file, or to standard output if that is `-`. Raises Invalid."""
    instance = invocation.instance
    head = instance.threads.head(find_thread(invocation, threads[0]))
    data = page(instance, head).encode("utf-8", "replace")
    if str(file) == "-":
        invocation.write(data.decode("utf-8"))
        return
    write_whole(file, data, force)
    invocation.emit(
        {"thread": head.thread, "file": str(file), "bytes": len(data)},
        lambda value: f"{value['file']}: {value['bytes']:,} bytes",
    )
