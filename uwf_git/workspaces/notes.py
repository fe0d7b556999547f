"""What this machine knows of threads' workspaces: `<private folder>/workspaces/<ULID>`, a JSON file each, and the
commits of the steps that were recorded here, a line each of `<ULID>.code`."""

import contextlib
import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from uwf_git.format.ids import ThreadId, is_thread_id
from uwf_git.store.private_files import read_private, write_private


class Note(NamedTuple):
    """A thread's workspace. Of a worktree, `project` is the repository's git directory, `checkout` the user's
    checkout ("" for a bare repository), `inside` the agents' folder below it, `base` the commit that the
    thread begins at, `root` the repository's first commit, `url` the URL by which it is known, `remote` the
    project's remote for the code, "" for none, `unshared` the commit of it that was deleted there. `owner` is the
    thread whose worktree this is; a sub-workflow works in its parent's. Of a folder, `place` is that folder."""

    kind: str
    project: str = ""
    checkout: str = ""
    inside: str = ""
    base: str = ""
    root: str = ""
    remote: str = ""
    owner: str = ""
    place: str = ""
    url: str = ""
    unshared: str = ""

    @property
    def top(self) -> Path | None:
        """The folder of the user's checkout, None for a bare repository."""
        return Path(self.checkout) if self.checkout else None


class Notes:
    """The notes of one store."""

    def __init__(self, private: Path) -> None:
        self._folder = private / "workspaces"

    def write(self, thread: ThreadId, note: Note) -> None:
        """Raises StoreUnwritable."""
        value = {name: text for name, text in note._asdict().items() if text}
        data = json.dumps(value, ensure_ascii=True).encode("ascii")
        write_private(self._folder / thread, data, f"cannot note the workspace of {thread}", synced=True)

    def read(self, thread: ThreadId) -> Note | None:
        """Return a thread's note, None if there is none or it is broken."""
        with contextlib.suppress(OSError, ValueError, TypeError, AttributeError, RecursionError):
            value = json.loads(read_private(self._folder / thread))
            if all(isinstance(text, str) for text in value.values()):
                return Note(**value)
        return None

    def all(self) -> Iterator[tuple[ThreadId, Note]]:
        """Yield all notes, newest thread first."""
        with contextlib.suppress(OSError):
            for path in sorted(self._folder.iterdir(), reverse=True):
                if is_thread_id(path.name) and (note := self.read(ThreadId(path.name))) is not None:
                    yield ThreadId(path.name), note

    def has(self, thread: ThreadId) -> bool:
        return self.path(thread).is_file()

    def path(self, thread: ThreadId) -> Path:
        return self._folder / thread

    def any(self) -> bool:
        with contextlib.suppress(OSError):
            return any(is_thread_id(path.name) for path in self._folder.iterdir())
        return False

    def record(self, thread: ThreadId, commit: str) -> None:
        """Note that a step's commit was made here. Best effort: it only lets `uwf verify` miss the commit."""
        with contextlib.suppress(OSError), self._code(thread).open("a", encoding="ascii") as file:
            file.write(f"{commit}\n")

    def recorded(self) -> frozenset[str]:
        """Return the commits of the steps that were made here, in projects that are here."""
        commits: set[str] = set()
        for thread, note in self.all():
            if note.owner == thread and Path(note.project).is_dir():
                with contextlib.suppress(OSError, ValueError):
                    commits.update(self._code(thread).read_text(encoding="ascii").split())
        return frozenset(commits)

    def forget_code(self, thread: ThreadId, commits: Collection[str]) -> None:
        """Let `uwf verify` no longer miss commits that were made here. Raises StoreUnwritable."""
        with contextlib.suppress(FileNotFoundError):
            rows = self._code(thread).read_text(encoding="ascii").split()
            data = "".join(f"{row}\n" for row in rows if row not in commits).encode("ascii")
            write_private(self._code(thread), data, f"cannot note the code of {thread}", synced=True)

    def _code(self, thread: ThreadId) -> Path:
        return self._folder / f"{thread}.code"

    def forget(self, thread: ThreadId) -> None:
        with contextlib.suppress(OSError):
            self._code(thread).unlink(missing_ok=True)
            (self._folder / thread).unlink(missing_ok=True)
