"""Notes of steps that have been made, from which another process sends spans: nothing of a step waits for a collector.

With `OTEL_EXPORTER_OTLP_ENDPOINT` set, each step leaves a note in the private folder, and starts a sender unless one is
at work. The note says what the step has added to the history, so that steps that came by a pull are never sent.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from uwf_git.plugin import Head, Instance, Oid, ThreadId

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
TRACES_ENDPOINT = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
_FOLDER, _LOCK, _SUFFIX = "traces", "lock", ".json"
_MOST = 10_000  # notes that wait, beyond which none is left


class Note(NamedTuple):
    """What a step has added to a thread: the StepNodes after `since`, up to `until`, the attempts after the first
    `tried`, up to `tries`, and its end. `above` are the forks that it is a branch of, the outermost first, each with
    its thread."""

    thread: str
    since: str
    until: str
    tried: int
    tries: int
    ended: bool
    above: tuple[tuple[str, str], ...] = ()


def observe(instance: Instance, thread: ThreadId) -> AbstractContextManager[None] | None:
    """Return what leaves a note of the step that is made within it, None if nobody wants any."""
    return _noting(instance, thread) if is_wanted(os.environ) else None


def is_wanted(environ: Mapping[str, str]) -> bool:
    if not (environ.get(TRACES_ENDPOINT) or environ.get(ENDPOINT)):
        return False
    is_off = environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    return not is_off and environ.get("OTEL_TRACES_EXPORTER", "otlp") != "none"


@contextlib.contextmanager
def _noting(instance: Instance, thread: ThreadId) -> Iterator[None]:
    from uwf_git.plugin import UwfError, log

    before = _stand(instance, thread)
    above: tuple[tuple[str, str], ...] = ()
    with contextlib.suppress(UwfError):
        above = _forks_above(instance, before[0]) if before is not None else ()
    try:
        yield
    finally:
        try:
            after = _stand(instance, thread)
            if before is not None and after is not None and after != before:
                _leave(instance, _note(instance, before, after, above))
        except (UwfError, OSError) as error:
            log.warning("6QFCZN3M", "leaves no note for a trace: {why}", thread=thread, why=str(error))


def _stand(instance: Instance, thread: ThreadId) -> tuple[Head, Oid | None] | None:
    from uwf_git.plugin import UwfError

    try:
        return instance.threads.head(thread), instance.attempts.tip(thread)
    except UwfError:
        return None


def _note(
    instance: Instance,
    before: tuple[Head, Oid | None],
    after: tuple[Head, Oid | None],
    above: tuple[tuple[str, str], ...],
) -> Note:
    count, head = instance.attempts.count, after[0]
    ended = head.archive is not None and before[0].archive is None
    return Note(head.thread, before[0].node, head.node, count(before[1]), count(after[1]), ended, above)


def _forks_above(instance: Instance, head: Head) -> tuple[tuple[str, str], ...]:
    """Return the threads that wait for a branch, each with its fork. Once they are joined, nothing leads to them."""
    from uwf_git.plugin import DEEPEST, parents_of

    above: list[tuple[str, str]] = []
    while len(above) < DEEPEST and (parents := parents_of(instance, head)):
        head = instance.threads.head(parents[0])
        above.insert(0, (head.thread, head.node))
    return tuple(above)


def folder_of(private: Path) -> Path:
    return private / _FOLDER


def notes(folder: Path) -> list[Path]:
    """Return the notes that wait, oldest first."""
    return sorted(folder.glob(f"*{_SUFFIX}"))


def parse_note(data: bytes) -> Note:
    """Parse a note. Raises ValueError, TypeError."""
    value = Note(**json.loads(data))
    return value._replace(above=tuple((str(thread), str(fork)) for thread, fork in value.above))


def _leave(instance: Instance, note: Note) -> None:
    from uwf_git.plugin import write_private

    folder = folder_of(instance.store.repository.private)
    if len(notes(folder)) > _MOST:
        return
    name = f"{time.time_ns():020}-{os.getpid()}{_SUFFIX}"
    write_private(folder / name, json.dumps(note._asdict()).encode())
    with holding(folder) as is_free:
        pass
    if is_free:
        environ: dict[str, Any] = {**os.environ, **instance.location.environment()}
        subprocess.Popen(
            [sys.executable, "-P", "-m", "uwf_git.ext.traces.sender"],
            env=environ,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


@contextlib.contextmanager
def holding(folder: Path) -> Iterator[bool]:
    """Yield whether this process is the only sender during the block."""
    from uwf_git.plugin import system

    descriptor = system.open_file(folder / _LOCK, os.O_RDWR | os.O_CREAT | system.O_CLOEXEC, 0o600)
    try:
        try:
            system.lock(descriptor)
        except OSError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)
