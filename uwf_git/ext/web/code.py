"""The code of a thread or a step on its page: the changed files, and a step's patch.

git runs only when a template asks for it, so not for pages of an export: code is shared by git, not by uwf.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from markupsafe import Markup

from uwf_git.plugin import (
    USER,
    ChangedFile,
    CodeChanges,
    JudgedCode,
    changed_files,
    cut_text,
    markup,
    one_line,
    patch_files,
    step_code,
    tag,
    terminal,
)

if TYPE_CHECKING:
    from uwf_git.plugin import CommitRow, Hash, Instance, Revision, ThreadId

FILES = 500
"""How many files a page lists."""

_SINCE = 20_000  # characters of the patch of changes by hand
_LINES, _MOST_LINES = 600, 20_000  # of a patch, and of one that is wanted whole
_MANY, _LARGE = 20, 300  # files, and lines of one, that stand folded
_DEEPEST = 12  # folders within one another
_LONGEST_PATH = 300  # characters of one in a comment
_LOOK_BACK = 20  # steps in which a thread's newest code is looked for


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
    def is_out_of_reach(self) -> bool:
        return self._code.is_out_of_reach

    @property
    def summary(self) -> str:
        return changed_files.summary([file.as_json() for file in self._changes.files])

    @property
    def files(self) -> Sequence[ChangedFile]:
        return self._changes.files[:FILES]

    @property
    def more(self) -> int:
        return max(0, len(self._changes.files) - FILES)

    def numbered(self, whole: bool = False) -> NumberedPatch:
        """Return the files with the numbered lines of their patch, more of them if the `whole` is wanted."""
        files = patch_files(
            self._changes.patch, self._changes.files[:FILES], _MOST_LINES if whole else _LINES
        )
        return NumberedPatch(
            [PatchedFile(place, file, len(files) > _MANY) for place, file in enumerate(files, 1)],
            sum(file["left"] for file in files),
            self.revision.commit[:10],
        )


class NumberedPatch(NamedTuple):
    """The files of a patch, of which `left` lines are left out. `name` begins the anchors of its lines."""

    files: Sequence[PatchedFile]
    left: int
    name: str

    @property
    def tree(self) -> Markup:
        """The files below their folders, each a link to its lines."""
        root: _Folder = {}
        for file in self.files:
            *folders, _ = file.path.split("/")
            at = root
            for folder in folders[:_DEEPEST]:
                at = at.setdefault(f"{folder}/", {})  # type: ignore[assignment]
            at[file.path] = file
        return Markup(self._listed(root, ""))

    def _listed(self, folder: _Folder, path: str) -> str:
        items = []
        for name, entry in folder.items():
            if isinstance(entry, PatchedFile):
                label = tag("code", markup.text(_name(name.removeprefix(path))))
                link = tag("a", label, href=f"#{self.anchor(entry.place)}")
                items.append(tag("li", link + " " + tag("span", markup.text(entry.counts), "meta")))
            else:
                label = tag("span", markup.text(_name(name)), "folder")
                items.append(tag("li", label + self._listed(entry, f"{path}{name}")))
        return tag("ul", "".join(items))

    def anchor(self, place: int, line: str = "") -> str:
        return f"c{self.name}-{place}{line}"

    def lines(self, file: PatchedFile) -> Markup:
        """Return the lines of a file as rows of a table: two numbers, a sign, the text."""
        return Markup("".join(self._row(file.place, line) for line in file.view["lines"]))

    def _row(self, place: int, line: Mapping[str, Any]) -> str:
        text, kind = markup.text(terminal.escape_code(line["text"])), line["kind"]
        if kind not in ("+", "-", " "):
            return tag("tr", f'<td colspan="4">{text}</td>', "hunk")
        name, sign = {"+": ("ins", "+"), "-": ("del", "−")}.get(kind, ("", ""))
        numbers = self._number(place, "L", line["old"]) + self._number(place, "R", line["new"])
        code = tag(name, text) if name else text
        return tag("tr", f'{numbers}<td class="sign">{sign}</td><td class="line">{code}</td>', name)

    def _number(self, place: int, side: str, number: int | None) -> str:
        if number is None:
            return '<td class="number"></td>'
        anchor = self.anchor(place, f"{side}{number}")
        return f'<td class="number"><a id="{anchor}" href="#{anchor}">{number}</a></td>'


class PatchedFile(NamedTuple):
    """A changed file of `patch_files`; `is_one_of_many` files, which stand folded."""

    place: int
    view: Mapping[str, Any]
    is_one_of_many: bool

    @property
    def path(self) -> str:
        return str(self.view["path"])

    @property
    def comment_path(self) -> str:
        return comment_path(self.path)

    @property
    def is_open(self) -> bool:
        return not self.is_one_of_many and len(self.view["lines"]) + self.view["left"] <= _LARGE

    @property
    def counts(self) -> str:
        view = self.view
        return "binary" if view["binary"] else f"+{view['added']:,} -{view['deleted']:,}"


_Folder = dict[str, "PatchedFile | _Folder"]


def _name(name: str) -> str:
    """Return a name on one line, invisible characters written out: two that differ in these look different."""
    return one_line(terminal.escape_code(name), 200)


def comment_path(path: str) -> str:
    """Return a path as a comment on its lines begins, `PATH:LINE: text`: on one line, without invisible characters, and
    quoted as in JSON if it could be taken for more than a path."""
    name = one_line(terminal.escape_code(path), _LONGEST_PATH)
    return json.dumps(name, ensure_ascii=False) if re.search(r'[:"\s]', name) else name


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
