"""What came of the last try to land a thread's work, if it did not land: `<private folder>/landings/<ULID>`, a JSON
file each. Only this machine knows of it: nothing was sent, so there is no record of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from uwf_git.ext.landing import EXTENSION
from uwf_git.plugin import (
    Project,
    ThreadId,
    UwfError,
    is_thread_id,
    one_line,
    read_private,
    thread_code,
    workspace_at,
    write_private,
)

if TYPE_CHECKING:
    from uwf_git.plugin import Head, Instance

_LONGEST = 500  # characters of a reason


class LastTry(NamedTuple):
    """A try at a `head`. `onto` is the branch that has the work already; else `why` says what went wrong. `project` is
    the git directory of a project with the `commit` that was to land, "" if it is not known."""

    head: str
    why: str
    onto: str = ""
    project: str = ""
    commit: str = ""

    @property
    def is_merged(self) -> bool:
        """Whether the work was merged by hand since."""
        if self.project and self.commit:
            with suppress(UwfError, OSError):
                return Project(Path(self.project)).has_merged(self.commit)
        return False


class LastTries:
    """The last tries of a store."""

    def __init__(self, instance: Instance) -> None:
        self._folder = instance.store.repository.private / EXTENSION.notes

    def threads(self) -> frozenset[ThreadId]:
        """Return the threads of which there is one."""
        with suppress(OSError):
            names = (path.name for path in self._folder.iterdir())
            return frozenset(ThreadId(name) for name in names if is_thread_id(name))
        return frozenset()

    def at(self, head: Head) -> LastTry | None:
        """Return the last try to land what a thread has at a head; None if there is none, or it is broken."""
        with suppress(OSError, ValueError, TypeError, RecursionError):
            last = LastTry(**json.loads(read_private(self._folder / head.thread)))
            if all(isinstance(text, str) for text in last) and last.head == head.node:
                return last
        return None

    def put(self, thread: ThreadId, last: LastTry) -> None:
        """Raises StoreUnwritable."""
        content = json.dumps(last._asdict(), ensure_ascii=True).encode("ascii")
        write_private(self._folder / thread, content, f"cannot note how thread {thread} landed")

    def forget(self, thread: ThreadId) -> None:
        with suppress(OSError):
            (self._folder / thread).unlink(missing_ok=True)


@contextmanager
def noted(instance: Instance, head: Head) -> Iterator[None]:
    """Note why what is done inside does not land a thread's work; forget it if it does, also of threads with which this
    one goes on. All exceptions are passed on."""
    from uwf_git.ext.landing.landing import CheckFailed, Conflict, InTarget

    tries = LastTries(instance)
    try:
        yield
    except UwfError as error:
        why = error.why if isinstance(error, Conflict | CheckFailed) else error.message
        onto = error.onto if isinstance(error, InTarget) else ""
        with suppress(UwfError):
            tries.put(head.thread, LastTry(head.node, one_line(why, _LONGEST), onto, *_place(instance, head)))
        raise
    steps = {step.hash for step in instance.threads.history(head).steps}
    for thread in tries.threads():
        with suppress(UwfError):
            if thread == head.thread or instance.threads.head(thread).node in steps:
                tries.forget(thread)


def _place(instance: Instance, head: Head) -> tuple[str, str]:
    """Return the git directory of a thread's project, and the commit of its code; "" for what is not known."""
    with suppress(UwfError):
        workspace = workspace_at(instance, instance.threads.position(head))
        code = thread_code(instance, head.node)
        if workspace is not None and workspace.is_worktree and code is not None:
            return str(workspace.project.common), code.commit
    return "", ""


def forget_removed(instance: Instance) -> None:
    """Forget the tries of threads that are gone."""
    tries, known = LastTries(instance), instance.threads.ids()
    for thread in tries.threads() - known:
        tries.forget(thread)
