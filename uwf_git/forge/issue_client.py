"""What uwf asks of the server on which an issue is, whether that is a forge or a tracker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, Self

from uwf_git.base.extensions import load
from uwf_git.forge.address import KINDS, IssueAddress
from uwf_git.forge.trackers import TRACKERS

if TYPE_CHECKING:
    from uwf_git.forge.answers import Comment, Issue
    from uwf_git.forge.login import Login

_CLIENTS: Mapping[str, str] = {
    **dict.fromkeys(KINDS, "uwf_git.forge.forge_issue:ForgeIssue"),
    **{kind: tracker.client for kind, tracker in TRACKERS.items()},
}


class IssueClient(Protocol):
    """One issue on its server. It is made of an IssueAddress, a Login, whose token may be "" if there is none, and the
    hint for errors that a login could mend. Methods raise ForgeDeclined, RemoteFailed, ForgeUnavailable."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def read(self, at_most: int) -> tuple[Issue, list[Comment]]:
        """Return the issue, with how many comments it has, and the newest of these, oldest first. Those that only
        some may see are left out, and all of them if they need a login and there is none."""

    def code(self, text: str) -> str:
        """Return a text as code in the markup of comments, in which nothing of it is markup."""

    def create_comment(self, key: str, text: str) -> str:
        """Write a comment with the mark of a key; return its id. Not repeated."""

    def find_comment(self, key: str) -> str:
        """Return the id of the comment that this login has written with the mark of a key, "" if there is none."""

    def update_comment(self, comment: str, text: str) -> None:
        """Replace a comment's text, and keep its mark; do nothing if it is gone, or has that text."""


def issue_client(address: IssueAddress, login: Login, log_in: str) -> IssueClient:
    client: IssueClient = load(_CLIENTS[address.repository.forge.kind])(address, login, log_in)
    return client
