"""The option for a thread's workspace.

worktree[:PROJECT[@REVISION]]  a git worktree of the project, `<storage root>/workspaces/<ULID>`
folder[:DIR]                   an empty folder, DIR/<ULID>
shared                         the folder in which uwf was called
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from uwf_git.base.errors import Usage
from uwf_git.format.words import WORKSPACES

WORKTREE, FOLDER, SHARED = WORKSPACES
"""The kinds of workspaces."""
_FORMS = "worktree, worktree:PROJECT, worktree:PROJECT@REVISION, folder:DIR or shared"


class WorkspaceOption(NamedTuple):
    """A workspace of a kind: worktrees of the project around `place` that begin at a `revision`, "" for HEAD,
    or with `changes` at its checkout's uncommitted files; or folders in `place`. `remote` is the project's,
    for its code, "" for none."""

    kind: str
    place: Path | None = None
    revision: str = ""
    remote: str = ""
    changes: bool = False

    def text(self) -> str:
        place = "" if self.place is None else f":{self.place}"
        return f"{self.kind}{place}" + (f"@{self.revision}" if self.revision else "")


def parse_option(text: str, remote: str = "", changes: bool = False) -> WorkspaceOption:
    """Parse `--workspace`, with the other options about it. Raises Usage."""
    kind, colon, rest = text.partition(":")
    if kind not in WORKSPACES or (colon and (not rest or kind == SHARED)):
        raise Usage(f"--workspace {text!r} is not a workspace", f"it is {_FORMS}")
    if kind != WORKTREE and (remote or changes):
        what = "--include-changes" if changes else "a remote for its code"
        raise Usage(f"a {kind} workspace has no use for {what}", "use --workspace worktree")
    if not colon:
        return WorkspaceOption(kind, remote=remote, changes=changes)
    place, revision = Path(rest).expanduser().absolute(), ""
    if kind == WORKTREE and not place.exists() and "@" in rest:
        path, _, revision = rest.rpartition("@")
        place = Path(path).expanduser().absolute()
    if revision and changes:
        raise Usage("--include-changes excludes a revision", "give one of them")
    return WorkspaceOption(kind, place, revision, remote, changes)
