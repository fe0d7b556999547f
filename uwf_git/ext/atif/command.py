"""`uwf import atif` and `uwf export --atif`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from uwf_git.plugin import Invalid, Invocation, NotFound, Table, command, find_head, write_whole

_LIMIT = 256 << 20  # bytes of a trajectory


@command("uwf import atif trajectory.json", "uwf import atif runs/*/trajectory.json")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path))
def import_atif(invocation: Invocation, files: tuple[Path, ...]) -> None:
    """Import trajectories of the Agent Trajectory Interchange Format (ATIF), as threads.

    Each message and the work on it become a step of the workflow session, and the thread then waits for your next
    message. What has no place in a step is kept beside it, so an export of the thread has it again. Secrets are
    removed. Safe to repeat: only new messages are added.
    """
    from uwf_git.ext.atif.reading import read_trajectory
    from uwf_git.plugin import store_session

    read = (read_trajectory(*_read(file), str(file)) for file in files)
    sessions = [session._replace(folder=Path.cwd()) for session in read]
    instance = invocation.instance_for_writing()
    stored = [(session, store_session(instance, session)) for session in sessions]
    invocation.emit(
        [{"agent": session.agent, "session": session.session, **item._asdict()} for session, item in stored],
        _IMPORTED,
    )


def _read(file: Path) -> tuple[bytes, int]:
    """Return a file, and when it was written in Unix milliseconds."""
    try:
        with file.open("rb") as opened:
            data = opened.read(_LIMIT + 1)
        when = int(file.stat().st_mtime * 1000)
    except OSError as error:
        raise NotFound(f"cannot read {file}: {error.strerror}", "name a file of the format ATIF") from None
    if len(data) > _LIMIT:
        raise Invalid(f"{file} has more than {_LIMIT >> 20} MB")
    return data, when


def export(invocation: Invocation, thread: str, file: Path, force: bool) -> None:
    """Write a thread as a trajectory."""
    from uwf_git.ext.atif.writing import trajectory
    from uwf_git.plugin import as_json

    head = find_head(invocation, thread)
    value, _ = invocation.instance.redactor.value(trajectory(invocation.instance, head))
    text = as_json(value) + "\n"
    if str(file) == "-":
        invocation.write(text)
        return
    write_whole(file, text.encode("utf-8"), force)
    written = {"thread": head.thread, "file": str(file), "steps": len(value["steps"])}
    invocation.emit(written, "{file}: {steps:counted step}")


def _state(item: Any) -> str:
    from uwf_git.plugin import describe_stored

    return describe_stored(item)


_IMPORTED = Table("thread", "agent", ("", "{steps:counted step}"), ("", _state))
