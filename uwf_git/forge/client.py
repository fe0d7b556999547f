"""The REST APIs of GitHub, GitLab, Forgejo and Gitea: issues, changes, and comments on them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Literal
from urllib.parse import quote

from uwf_git.base.errors import Declined, RemoteFailed, Usage
from uwf_git.base.text import one_line
from uwf_git.forge.address import FORGEJO, GITEA, GITHUB, GITLAB, ForgeRepository, is_repository_path
from uwf_git.forge.answers import (
    Change,
    Comment,
    Issue,
    draft_title,
    number_of,
    objects_in,
    read_change,
    read_comment,
    read_issue,
)
from uwf_git.forge.rest import HINTS, PATIENCE, ForgeDeclined, Hints, RestClient

Subject = Literal["issue", "change"]
"""What a comment is on. Only GitLab numbers issues and changes apart."""

MOST_PAGES = 100
PER_PAGE = 100

# Names under which the tokens of jobs write; such a token may not always ask who it is.
_BOTS = {
    GITHUB: ("github-actions[bot]",),
    FORGEJO: ("forgejo-actions",),
    GITEA: ("gitea-actions",),
    GITLAB: (),
}


class ForgeClient(RestClient):
    """The API of one repository. `bearer`: the token is one of OAuth, which GitLab takes in a header of its own. With
    the hint `log_in` the token may be "", for what a forge shows to everybody. Raises Usage for an address, a token or
    a repository that is none."""

    def __init__(
        self,
        repository: ForgeRepository,
        token: str,
        hints: Hints = HINTS,
        *,
        bearer: bool = False,
        patience: float = PATIENCE,
        log_in: str = "",
    ) -> None:
        kind, self.repository = repository.forge.kind, repository
        headers, secrets = _headers(kind, token, bearer), (token,) if token else ()
        super().__init__(
            kind, repository.forge.api, headers, secrets, hints, patience=patience, log_in=log_in
        )
        if not is_repository_path(repository.path):
            raise Usage(f"{one_line(repository.path, 80)!r} is not a repository", hints.repository)
        self._is_gitlab = kind == GITLAB

    def names(self) -> tuple[str, ...]:
        """Return the logins under which this token writes."""
        try:
            me = self._call("GET", "/user")
        except Declined:
            if not _BOTS[self._kind]:
                raise
            return _BOTS[self._kind]
        login = me.get("username" if self._is_gitlab else "login") if isinstance(me, dict) else None
        return (login,) if isinstance(login, str) and login else _BOTS[self._kind]

    def issue(self, number: int) -> Issue:
        """Return an issue. Its comments are read by `comments`."""
        row = self._object("GET", f"{self._base}/issues/{number}")
        issue = read_issue(self._kind, row)
        if issue.number != number:
            raise self._wrong_answer("this issue")
        return issue

    def comments(self, number: int, on: Subject = "change") -> Iterator[Comment]:
        """Yield the comments, oldest first."""
        order = "&sort=asc&order_by=created_at" if self._is_gitlab else ""
        for row in self._pages(f"{self._comments(number, on)}?per_page={PER_PAGE}&limit={PER_PAGE}{order}"):
            if (comment := read_comment(self._kind, row)) is not None:
                yield comment

    def newest_comments(self, number: int, total: int, at_most: int) -> list[Comment]:
        """Return the newest comments on an issue that has this many, oldest first."""
        path = f"{self._comments(number, 'issue')}?per_page={PER_PAGE}&limit={PER_PAGE}"
        if self._is_gitlab:
            rows = self._pages(f"{path}&sort=desc&order_by=created_at")
            comments = (item for row in rows if (item := read_comment(self._kind, row)) is not None)
            return list(islice(comments, at_most))[::-1]
        # GitHub has them in one order, by pages; Gitea answers with all of them at once.
        first = max(total - at_most, 0) // PER_PAGE + 1 if self._kind == GITHUB else 1
        rows = self._pages(path, first)
        comments = (item for row in rows if (item := read_comment(self._kind, row)) is not None)
        return list(deque(comments, at_most))

    def create_comment(self, number: int, body: str, on: Subject = "change") -> int:
        """Write a comment; return its id, 0 if the forge doesn't say. Not repeated."""
        return self._created(self._comments(number, on), body)

    def update_comment(self, number: int, comment: int, body: str, on: Subject = "change") -> None:
        """Replace a comment's text. Raises Declined if it is gone."""
        if self._is_gitlab:
            self._call("PUT", f"{self._comments(number, on)}/{comment}", {"body": body})
        else:
            self._call("PATCH", f"{self._base}/issues/comments/{comment}", {"body": body})

    def change(self, number: int) -> Change:
        """Return a pull or merge request."""
        change = self._change(self._object("GET", f"{self._changes}/{number}"))
        if change.number != number:
            raise self._wrong_answer("this pull or merge request")
        return change

    def open_changes(self, branch: str) -> list[Change]:
        """Return the open pull or merge requests of a branch of this repository."""
        if self._is_gitlab:
            query = f"state=opened&source_branch={quote(branch, safe='')}&per_page={PER_PAGE}"
        else:
            owner = self.repository.path.partition("/")[0]
            head = f"&head={quote(f'{owner}:{branch}', safe='')}" if self._kind == GITHUB else ""
            query = f"state=open{head}&per_page={PER_PAGE}&limit={PER_PAGE}"
        rows = self._pages(f"{self._changes}?{query}")
        changes = [read_change(self._kind, row, self.repository.path) for row in rows]
        return [
            change
            for change in changes
            if change.number and change.head == branch and not change.is_foreign and change.state == "open"
        ]

    def create_change(self, title: str, body: str, head: str, base: str, is_draft: bool = False) -> Change:
        """Open a pull or merge request of a branch of this repository. Not repeated."""
        title = draft_title(self._kind, title, is_draft)
        if self._is_gitlab:
            fields = {"title": title, "description": body, "source_branch": head, "target_branch": base}
        else:
            fields = {"title": title, "body": body, "head": head, "base": base}
        more = {"draft": is_draft} if self._kind == GITHUB else {}
        row = self._sent("POST", self._changes, {**fields, **more}, 1.0)[0]
        return self._change(row if isinstance(row, dict) else {})

    def update_change(
        self,
        number: int,
        title: str | None = None,
        body: str | None = None,
        is_draft: bool | None = None,
    ) -> Change:
        """Change what is given of a pull or merge request, and keep the rest."""
        change = self.change(number)
        draft = change.is_draft if is_draft is None else is_draft
        fields = {}
        if title is not None or (draft != change.is_draft and self._kind != GITHUB):
            fields["title"] = draft_title(self._kind, change.title if title is None else title, draft)
        if body is not None:
            fields["description" if self._is_gitlab else "body"] = body
        if fields:
            method = "PUT" if self._is_gitlab else "PATCH"
            change = self._change(self._object(method, f"{self._changes}/{number}", fields))
        if self._kind == GITHUB and draft != change.is_draft:
            self._set_draft(change.node, draft)
            change = change._replace(is_draft=draft)
        return change

    def _set_draft(self, node: str, is_draft: bool) -> None:
        """Make GitHub's pull request a draft, or ready: only its other API can."""
        name = "convertPullRequestToDraft" if is_draft else "markPullRequestReadyForReview"
        query = f"mutation($id: ID!) {{ {name}(input: {{pullRequestId: $id}}) {{ clientMutationId }} }}"
        self._graphql(query, {"id": node})

    def _graphql(self, query: str, variables: Mapping[str, Any]) -> Any:
        """Return the data of a call to GitHub's other API, which may be repeated."""
        path = f"{str(self._api).removesuffix('/v3')}/graphql"
        answer = self._call("POST", path, {"query": query, "variables": variables})
        if not isinstance(answer, dict) or answer.get("errors"):
            message = f"{self._api.host} declined: {self._message(answer)}"
            raise ForgeDeclined(message, self._hints.rights[GITHUB])
        return answer.get("data")

    def _change(self, row: Mapping[str, Any]) -> Change:
        change = read_change(self._kind, row, self.repository.path)
        if not change.number:
            raise self._wrong_answer("a pull or merge request")
        return change

    @property
    def _base(self) -> str:
        path = self.repository.path
        return f"/projects/{quote(path, safe='')}" if self._is_gitlab else f"/repos/{path}"

    @property
    def _changes(self) -> str:
        return f"{self._base}/merge_requests" if self._is_gitlab else f"{self._base}/pulls"

    def _comments(self, number: int, on: Subject) -> str:
        if self._is_gitlab:
            return f"{self._base}/{'issues' if on == 'issue' else 'merge_requests'}/{number}/notes"
        return f"{self._base}/issues/{number}/comments"

    def _created(self, path: str, body: str) -> int:
        """Create a comment; return its id, 0 if the forge doesn't say."""
        comment = self._sent("POST", path, {"body": body}, 1.0)[0]
        return number_of(comment, "id") if isinstance(comment, dict) else 0

    def _pages(self, path: str, first: int = 1) -> Iterator[dict[str, Any]]:
        """Yield the objects of all pages. A server's next page is taken by its number, not by its address."""
        for page in range(first, first + MOST_PAGES):
            rows, more = self._page(f"{path}&page={page}")
            yield from objects_in(rows)
            if not more:
                return
        raise RemoteFailed(
            f"{self._api.host} answered with over {MOST_PAGES} pages",
            "delete comments, or close requests that nobody needs",
        )

    def _page(self, path: str) -> tuple[list[Any], bool]:
        answer, headers = self._answer("GET", path, None)
        if not isinstance(answer, list):
            raise self._wrong_answer("a list")
        following = headers.get("x-next-page")
        return answer, bool(following) if following is not None else 'rel="next"' in headers.get("link", "")


def _headers(kind: str, token: str, bearer: bool) -> dict[str, str]:
    headers: dict[str, str] = {}
    if kind == GITHUB:
        headers = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
    if not token:
        return headers
    if kind == GITLAB and not bearer:
        return {"PRIVATE-TOKEN": token}
    return {**headers, "Authorization": f"{'Bearer' if bearer or kind == GITHUB else 'token'} {token}"}
