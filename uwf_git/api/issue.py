"""Reading an issue of a forge or a tracker, for a thread that starts with it."""

from __future__ import annotations

import time
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from uwf_git.api.forges import client_of_issue
from uwf_git.base.errors import Invalid, NotFound
from uwf_git.base.text import counted
from uwf_git.format.kinds import StartIssue
from uwf_git.store.instance import Instance

MOST_COMMENTS = 500
"""Comments that are read, the newest ones."""


class IssueText(NamedTuple):
    """An issue as it was read, and its text for a prompt."""

    issue: StartIssue
    text: str


def read_issue(instance: Instance, name: str, folder: Path) -> IssueText:
    """Read an issue, by the URL of its page, by its number in the project of a folder, or by its key on the only
    tracker; without a login, if everybody may see it. Warns of removed secrets, of comments that are not read, and of
    one that is closed. Raises Invalid, NotFound, RemoteFailed."""
    from uwf_git.forge.address import parse_issue
    from uwf_git.forge.issue_text import issue_text, labels_of, login, title_of_issue
    from uwf_git.forge.rest import ForgeDeclined

    remote = None if "://" in name else _remote(instance, folder)
    address = parse_issue(name.strip(), instance.config, remote)
    with client_of_issue(instance, address, writes=False) as client:
        try:
            issue, comments = client.read(MOST_COMMENTS)
        except ForgeDeclined as error:
            if error.status in (404, 410):
                raise NotFound(f"issue {address} is not there: {error.message}", error.hint) from None
            if error.needs_login:
                raise Invalid(f"not logged in to {address.repository.forge.host}", error.hint) from None
            if error.is_redirect:
                raise _moved(str(address)) from None
            raise
    if issue.was_moved:
        raise _moved(str(address))
    if not issue.is_open:
        instance.warn(f"issue {address} is closed")
    if (unread := issue.comments - len(comments)) > 0:
        instance.warn(f"{counted(unread, 'comment')} of issue {address} not read")
    read_at, removed = int(time.time()), 0

    def clean(text: str) -> str:
        nonlocal removed
        text, count = instance.redactor.text(text)
        removed += count
        return text

    text = clean(issue_text(address, issue, comments, read_at, clean))
    labels = tuple(map(clean, labels_of(issue)))
    title = clean(title_of_issue(issue))
    if removed:
        instance.warn(f"removed {counted(removed, 'secret')} from the issue")
    digest = sha256(text.encode("utf-8")).hexdigest()
    author = login(issue.author.login)
    return IssueText(
        StartIssue(address.url, address.number, title, author, labels, read_at, len(text), digest), text
    )


def _moved(address: str) -> Invalid:
    return Invalid(f"issue {address} was moved", "open its page, and give the address that it leads to")


def _remote(instance: Instance, folder: Path) -> str | None:
    """Return the URL of the remote of a folder's project, None without one."""
    from uwf_git.store.location import checkout_around
    from uwf_git.workspaces.project import Project
    from uwf_git.workspaces.worktree import configured_remote

    checkout = checkout_around(folder)
    if checkout is None:
        return None
    project = Project(checkout.common)
    return project.url(configured_remote(instance, project, checkout.top)) or None
