"""Recording what a person said: it waits for others who record something, and is not lost if it cannot be recorded."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from uwf_git.base.errors import Busy, UwfError
from uwf_git.format.ids import ThreadId
from uwf_git.format.kinds import HUMAN
from uwf_git.store.instance import Instance
from uwf_git.store.private_files import write_private

PATIENCE = 120.0
"""Seconds in which another person may still be signing, with a key that is touched."""

_LONGEST_COMMAND = 400


@contextmanager
def hold_for_person(instance: Instance, thread: ThreadId) -> Iterator[int]:
    """Hold a thread's lock for the block, after others that record something: an approval, an answer, what a pull
    brought. Raises Busy during an agent's step."""
    locked = False
    try:
        with instance.locks.hold(thread, PATIENCE, lambda: is_stepped(instance, thread)) as lock:
            locked = True
            yield lock
    except Busy as busy:
        if not locked and not is_stepped(instance, thread):
            busy.message = f"thread {thread} is held by another process, which records something"
            busy.hint = "repeat when it is done"
        raise


def is_stepped(instance: Instance, thread: ThreadId) -> bool:
    """Return whether a process holds the thread for an agent's step."""
    if not instance.locks.is_held(thread):
        return False
    order = instance.runs.read_order(thread)
    return order is not None and order.command[:1] != (HUMAN,)


@contextmanager
def keeping(
    instance: Instance, thread: ThreadId, words: str, fields: Mapping[str, Sequence[str]] | None = None
) -> Iterator[None]:
    """Add to an error of the block the command that repeats an answer. A long one is written to
    `<private folder>/unsent/<ULID>.sh`."""
    try:
        yield
    except UwfError as error:
        options = [f"--field={name}={text}" for name, texts in (fields or {}).items() for text in texts]
        message = [f"--message={words}"] if words or not options else []
        command = shlex.join(["uwf", "thread", "answer", thread, *options, *message])
        if len(command) > _LONGEST_COMMAND or not command.isprintable():
            path = instance.store.repository.private / "unsent" / f"{thread}.sh"
            place = " ".join(
                f"{name}={shlex.quote(at)}" for name, at in instance.location.environment().items()
            )
            write_private(
                path, f"{place} {command}\n".encode("utf-8", "surrogateescape"), "cannot keep the answer"
            )
            command = f"sh {shlex.quote(str(path))}"
        loss = f"not recorded; to repeat it: {command}"
        error.hint = f"{error.hint}; {loss}" if error.hint else loss
        raise
