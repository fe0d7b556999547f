"""The code of a thread or a step on its page: the changed files, and a step's patch.

git runs only when a template asks for it, so not for pages of an export: code is shared by git, not by uwf.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from markupsafe import Markup

from uwf_git.plugin import (
    USER,
    ChangedFile,
    CodeChanges,
    JudgedCode,
    changed_files,
    cut_text,
    markup,
    step_code,
    tag,
    terminal,
)

if TYPE_CHECKING:
    from uwf_git.plugin import CommitRow, Hash, Instance, Revision, ThreadId

FILES = 500
"""How many files a page lists."""

_SINCE = 20_000  # characters of the patch of changes by hand
_LOOK_BACK = 20  # steps in which a thread's newest code is looked for


class PatchView(NamedTuple):
    """A patch as HTML, of which `left` characters are left out."""

    html: Markup
    left: int


class CodeView:
    """The changes of a Revision, read when they are shown. `warning` is on a branch that conflicts."""

    def __init__(self, code: JudgedCode) -> None:
        self._code = code
        self.revision = code.revision

    @property
    def _changes(self) -> CodeChanges:
        return self._code.changes

    @property
    def absence(self) -> str:
        return self._changes.absence

    @property
    def warning(self) -> str:
        return self._code.warning

    @property
    def state(self) -> str:
        return self._code.state

    @property
    def since(self) -> Markup:
        """The patch of changes by hand, "" without any."""
        since = self._code.since
        return _difference(cut_text(since.patch, _SINCE)) if since is not None else Markup("")

    @property
    def is_unseen(self) -> bool:
        return self._code.is_unseen

    @property
    def summary(self) -> str:
        return changed_files.summary([file.as_json() for file in self._changes.files])

    @property
    def files(self) -> Sequence[ChangedFile]:
        return self._changes.files[:FILES]

    @property
    def more(self) -> int:
        return max(0, len(self._changes.files) - FILES)

    def patch(self, room: int) -> PatchView:
        """Return the patch, at most `room` characters of it."""
        whole = self._changes.patch
        shown = whole[:room]
        return PatchView(_difference(shown), len(whole) - len(shown))


def code_of_step(instance: Instance, thread: ThreadId, code: Revision | None) -> CodeView | None:
    """Return the changes of a step or failed attempt, with their patch."""
    return CodeView(JudgedCode(instance, thread, code)) if code is not None else None


def code_of_thread(
    instance: Instance,
    thread: ThreadId,
    rows: Sequence[CommitRow],
    too_large: Callable[[Hash], bool],
) -> CodeView | None:
    """Return the changes of a thread's steps, None if its newest ones have no code. `rows` are oldest
    first."""

    def codes(rows: Iterable[CommitRow]) -> Iterator[Revision | None]:
        for row in rows:
            if row.kind == "step" and row.role != USER:
                detail = instance.store.step(row.node).detail
                yield None if too_large(detail) else step_code(instance, detail)

    newest = next(filter(None, islice(codes(reversed(rows)), _LOOK_BACK)), None)
    if newest is None:
        return None
    first = next(filter(None, codes(rows)))
    return CodeView(JudgedCode(instance, thread, newest._replace(base=first.base)))


def _difference(patch: str) -> Markup:
    lines = "\n".join(map(_line, patch.rstrip("\n").split("\n")))
    return Markup(tag("pre", tag("code", lines), "difference", tabindex="0"))


def _line(line: str) -> str:
    shown = markup.text(terminal.escape_code(line))
    if line.startswith(("+++ ", "--- ")) or line[:1] not in ("+", "-"):
        return shown
    return tag("ins" if line[0] == "+" else "del", shown)
