"""An issue on a forge: GitHub, GitLab, Forgejo or Gitea."""

from __future__ import annotations

from typing import Self

from uwf_git.base import markdown
from uwf_git.forge.address import IssueAddress
from uwf_git.forge.answers import Comment, Issue
from uwf_git.forge.client import ForgeClient
from uwf_git.forge.login import Login
from uwf_git.forge.marks import mark_of
from uwf_git.forge.rest import ForgeDeclined


class ForgeIssue:
    """See `uwf_git.forge.issue_client.IssueClient`. Comments are in Markdown, with the mark as their first line."""

    def __init__(self, address: IssueAddress, login: Login, log_in: str) -> None:
        self._number = address.number
        self._client = ForgeClient(address.repository, login.token, bearer=login.bearer, log_in=log_in)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.__exit__()

    def read(self, at_most: int) -> tuple[Issue, list[Comment]]:
        issue = self._client.issue(self._number)
        try:
            return issue, self._client.newest_comments(self._number, issue.comments, at_most)
        except ForgeDeclined as error:
            # GitLab shows everybody the issues of a public project, but not what was said about them.
            if error.needs_login:
                return issue, []
            raise

    def code(self, text: str) -> str:
        return markdown.code(text)

    def create_comment(self, key: str, text: str) -> str:
        return str(self._client.create_comment(self._number, f"{mark_of(key)}\n{text}", "issue"))

    def find_comment(self, key: str) -> str:
        names = self._client.names()
        own = (
            comment.id
            for comment in self._client.comments(self._number, "issue")
            if comment.author in names and comment.body.startswith(mark_of(key))
        )
        return next(map(str, own), "")

    def update_comment(self, comment: str, text: str) -> None:
        for item in self._client.comments(self._number, "issue"):
            mark, _, shown = item.body.partition("\n")
            if str(item.id) == comment and shown.strip() != text:
                self._client.update_comment(self._number, item.id, f"{mark}\n{text}", "issue")
