"""The commits that land: one for all of a thread's work, one for each step, or each that was made."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from uwf_git.ext.landing.destination import repository_at
from uwf_git.ext.landing.request import changes_of, closing_line, message_without_links, title_of
from uwf_git.ext.landing.settings import SQUASH, STEPS
from uwf_git.plugin import RebasePick, one_line, step_code

if TYPE_CHECKING:
    from uwf_git.ext.landing.destination import Destination
    from uwf_git.plugin import Instance, Project, Revision, ThreadPosition


class _Commit(NamedTuple):
    """A commit on the thread's code, and the one before it."""

    id: str
    parent: str
    author: str
    message: str

    @property
    def subject(self) -> str:
        return self.message.partition("\n")[0]


def picks(
    instance: Instance, at: ThreadPosition, to: Destination, code: Revision, since: str, commits: str
) -> list[RebasePick]:
    """Return what is to be made again of the work after the commit `since`, by the setting `commits`. A history with
    merges, or with a file that `workspace.copy` keeps out, is one commit."""
    user = instance.store.repository.user.at(int(time.time()))
    issue = at.history.start.issue
    if commits != SQUASH and (rows := _rows(to, code, since)):
        groups = _by_step(instance, at, rows) if commits == STEPS else [[row] for row in rows]
        return [
            RebasePick(
                group[0].parent,
                group[-1].id,
                group[-1].author or user,
                user,
                _signed(message_without_links(_message(group), issue.key if issue is not None else ""), to),
            )
            for group in groups
        ]
    author = to.workspace.person.at(int(time.time()))
    return [RebasePick(since, code.commit, author, user, _signed(_squashed(instance, at, to), to))]


def author_and_message(project: Project, commit: str) -> tuple[str, str]:
    """Return a commit's author as git writes it, "" without one, and its message."""
    text = project.run("cat-file", "commit", commit).out.decode("utf-8", "replace")
    header, _, message = text.partition("\n\n")
    author = re.search(r"^author (.+)$", header, re.MULTILINE)
    return author[1] if author else "", message.rstrip("\n") + "\n"


def _rows(to: Destination, code: Revision, since: str) -> list[_Commit]:
    """Return the commits after `since`, the oldest first; none if they can't be made again one by one."""
    span, copied = f"{since}..{code.commit}", to.workspace.settings.copy
    lines = to.project.line("rev-list", "--reverse", "--first-parent", "--parents", span).splitlines()
    rows = [line.split() for line in lines]
    if any(len(row) != 2 for row in rows):
        return []
    if copied and to.project.line("rev-list", "--max-count=1", span, "--", *_literal(copied)):
        return []
    return [_Commit(commit, parent, *author_and_message(to.project, commit)) for commit, parent in rows]


def _literal(paths: tuple[str, ...]) -> Iterator[str]:
    return (f":(top,literal){path}" for path in paths)


def _by_step(instance: Instance, at: ThreadPosition, rows: list[_Commit]) -> list[list[_Commit]]:
    """Return commits in groups, each of a step, or of what was committed by hand before it."""
    codes = [step_code(instance, step.detail) for step in at.history.steps]
    ends = {commit for code in codes if code is not None for commit in (code.base, code.commit)}
    groups: list[list[_Commit]] = [[]]
    for row in rows:
        groups[-1].append(row)
        if row.id in ends:
            groups.append([])
    return [group for group in groups if group]


def _message(group: list[_Commit]) -> str:
    """Return the message of the last commit, which is the step's own if it left any file, after the other subjects."""
    last = group[-1]
    if len(group) == 1:
        return last.message
    rest = last.message.partition("\n")[2].strip("\n")
    subjects = "\n".join(f"- {one_line(row.subject, 100)}" for row in group[:-1])
    return "\n\n".join(filter(None, (last.subject, subjects, rest))) + "\n"


def _squashed(instance: Instance, at: ThreadPosition, to: Destination) -> str:
    history, head = at.history, at.head
    lines = [f"- {line}" for line in dict.fromkeys(changes_of(instance, history))]
    lines += filter(None, [closing_line(instance, history, repository_at(instance, to.url))])
    trailers = f"Uwf-Thread: {head.thread}\nUwf-Record: {head.commit}"
    message = "\n\n".join(filter(None, (one_line(title_of(history), 72), "\n".join(lines), trailers))) + "\n"
    return instance.redactor.text(message)[0]


def _signed(message: str, to: Destination) -> str:
    line = f"Signed-off-by: {to.workspace.person.ident}\n" if to.workspace.settings.sign_off else ""
    return message if line in message else message + line
