"""Remarks of people to threads at work: files of the private folder, in which they wait for an agent that takes them,
or for the next prompt. One is there until a step of its thread has it, so a kill at any moment loses none; see
`engine.steering`.

    remarks/<ULID>/<ULID of the remark>.json    {text, by, head, secrets}
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from uwf_git.base.errors import Usage
from uwf_git.base.text import iso
from uwf_git.format.ids import Hash, ThreadId, is_thread_id, milliseconds_of, new_thread_id
from uwf_git.format.kinds import TurnRecord
from uwf_git.store.private import REMARKS
from uwf_git.store.private_files import read_private, write_private

MOST = 20  # remarks of one thread that wait
LONGEST = 20_000  # characters of one
_MINE = 0o600


class Remark(NamedTuple):
    """A remark that waits. `by` is its author's name and address, `head` the thread's when it was said; `secrets` were
    taken out of it."""

    id: ThreadId
    text: str
    by: str
    head: Hash
    secrets: int = 0

    @property
    def at(self) -> float:
        """When it was said, in Unix seconds."""
        return milliseconds_of(self.id) / 1000

    @property
    def turn(self) -> TurnRecord:
        """The turn that it is in the record of a step."""
        return TurnRecord("user", self.text, arguments={"by": self.by, "at": iso(self.at)}, call=self.id)


class Mailbox:
    """The remarks of one store."""

    def __init__(self, private: Path) -> None:
        self._folder = private / REMARKS

    def put(self, thread: ThreadId, text: str, by: str, head: Hash, secrets: int = 0) -> Remark:
        """Write a remark to the disk. Raises Usage for one too many or too long, StoreUnwritable."""
        if len(text) > LONGEST:
            raise Usage(
                f"the remark to thread {thread} has {len(text):,} characters, and a running agent takes {LONGEST:,}",
                "write the rest to a file that the agent can read, and name it",
            )
        if len(self.all(thread)) >= MOST:
            raise Usage(
                f"{MOST} remarks to thread {thread} wait already", f"see them: uwf thread show {thread}"
            )
        remark = Remark(new_thread_id(), text, by, head, secrets)
        value = {key: item for key, item in remark._asdict().items() if key != "id"}
        path = self._folder / thread / f"{remark.id}.json"
        write_private(
            path, json.dumps(value).encode(), f"cannot keep the remark to {thread}", synced=True, mode=_MINE
        )
        return remark

    def all(self, thread: ThreadId) -> list[Remark]:
        """Return the remarks of a thread, oldest first; damaged ones are left out."""
        try:
            paths = sorted((self._folder / thread).iterdir())
        except OSError:
            return []
        return [remark for path in paths if (remark := _read(path)) is not None]

    def remove(self, thread: ThreadId, remark: ThreadId) -> None:
        folder = self._folder / thread
        with suppress(OSError):
            (folder / f"{remark}.json").unlink()
        with suppress(OSError):  # another waits there
            folder.rmdir()


def _read(path: Path) -> Remark | None:
    if path.suffix != ".json" or not is_thread_id(path.stem):
        return None
    try:
        match json.loads(read_private(path)):
            case {"text": str(text), "by": str(by), "head": str(head), "secrets": int(secrets)}:
                return Remark(ThreadId(path.stem), text[:LONGEST], by[:200], Hash(head), secrets)
    except (OSError, ValueError, RecursionError):
        pass
    return None
