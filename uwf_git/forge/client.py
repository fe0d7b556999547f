"""The REST APIs of GitHub, GitLab, Forgejo and Gitea: issues, changes, and comments on them.

The token goes to the API's address alone: over https, or over http to this machine; redirects are not followed. Answers
are bounded in size, and waits in time. Calls that make something are not repeated: a failed one may have made it.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from email.utils import parsedate_to_datetime
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar
from urllib.parse import quote

from uwf_git.base.errors import Declined, Invalid, RemoteFailed, Usage
from uwf_git.base.text import one_line
from uwf_git.base.version import VERSION
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

if TYPE_CHECKING:
    import httpx

_Answer = TypeVar("_Answer")
Subject = Literal["issue", "change"]
"""What a comment is on. Only GitLab numbers issues and changes apart."""

PATIENCE = 300.0
"""Seconds that all waits of one client may take, for rate limits and failures of the server."""

MOST_PAGES = 100
PER_PAGE = 100
_LARGEST_ANSWER = 32 << 20
_TIMEOUT = 30.0
_TRIES = 5
_SECONDARY = 60.0  # what GitHub asks for if it names no time
_TOKEN = re.compile(r"[\x21-\x7e]{1,1000}")

# Names under which the tokens of jobs write; such a token may not always ask who it is.
_BOTS = {
    GITHUB: ("github-actions[bot]",),
    FORGEJO: ("forgejo-actions",),
    GITEA: ("gitea-actions",),
    GITLAB: (),
}
_RIGHTS = "is it there, and may the token see it and write? it needs {}"


class Hints(NamedTuple):
    """Hints of errors, for what their reader has to set. `rights` is about a token that may not do something."""

    token: str = "log in to the forge"
    repository: str = "it is OWNER/NAME"
    api: str = "see forges in config.yaml"
    again: str = "repeat it later"
    rights: Mapping[str, str] = {
        GITHUB: _RIGHTS.format("the scope repo, or rights for issues and pull requests"),
        GITLAB: _RIGHTS.format("the scope api"),
        FORGEJO: _RIGHTS.format("rights for issues and repositories"),
        GITEA: _RIGHTS.format("rights for issues and repositories"),
    }


HINTS = Hints()


class ForgeUnavailable(RemoteFailed):
    """The server failed, or asked to wait: the call may be repeated. `after` is in seconds."""

    after = 0.0


class ForgeDeclined(Declined):
    """The forge refused a call. `status` is that of HTTP, 0 if it answered with 200."""

    status = 0

    @property
    def is_redirect(self) -> bool:
        """Whether it named another address, as for a repository or an issue that was moved."""
        return 300 <= self.status < 400


class ForgeClient:
    """The API of one repository. `bearer`: the token is one of OAuth, which GitLab takes in a header of its own.
    Raises Usage for an address or a token that is none. Methods raise ForgeDeclined, RemoteFailed, ForgeUnavailable."""

    def __init__(
        self,
        repository: ForgeRepository,
        token: str,
        hints: Hints = HINTS,
        *,
        bearer: bool = False,
        patience: float = PATIENCE,
    ) -> None:
        import httpx

        self.repository = repository
        self._kind = repository.forge.kind
        self._is_gitlab = self._kind == GITLAB
        self._token = token
        self._hints = hints
        self._left = patience
        if not _TOKEN.fullmatch(token):
            raise Usage("there is no token for the forge's API", hints.token)
        self._api = _address(repository.forge.api, hints)
        if not is_repository_path(repository.path):
            raise Usage(f"{one_line(repository.path, 80)!r} is not a repository", hints.repository)
        plain = self._api.scheme == "http"
        self._client = httpx.Client(
            headers=self._headers(bearer),
            follow_redirects=False,
            timeout=_TIMEOUT,
            # A proxy must not see what is sent in the clear.
            trust_env=not plain,
            verify=not plain,
        )

    def __enter__(self) -> ForgeClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

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

    def wait(self, error: ForgeUnavailable) -> None:
        """Wait as a failure asks for; raises it if there is no patience left."""
        if error.after > self._left:
            raise error
        self._left -= error.after
        time.sleep(error.after)

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

    def _headers(self, bearer: bool) -> dict[str, str]:
        headers = {"User-Agent": f"uwf-git/{VERSION}", "Accept": "application/json"}
        if self._is_gitlab and not bearer:
            return {**headers, "PRIVATE-TOKEN": self._token}
        if self._kind == GITHUB:
            more = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
            return {**headers, **more, "Authorization": f"Bearer {self._token}"}
        return {**headers, "Authorization": f"{'Bearer' if bearer else 'token'} {self._token}"}

    def _created(self, path: str, body: str) -> int:
        """Create a comment; return its id, 0 if the forge doesn't say."""
        comment = self._sent("POST", path, {"body": body}, 1.0)[0]
        return number_of(comment, "id") if isinstance(comment, dict) else 0

    def _wrong_answer(self, expected: str) -> RemoteFailed:
        return RemoteFailed(
            f"{self._api.host} did not answer with {expected}", "see whether the API's address is right"
        )

    def _pages(self, path: str) -> Iterator[dict[str, Any]]:
        """Yield the objects of all pages. A server's next page is taken by its number, not by its address."""
        for page in range(1, MOST_PAGES + 1):
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

    def _object(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        answer = self._call(method, path, body)
        if not isinstance(answer, dict):
            raise self._wrong_answer("an object")
        return answer

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        return self._answer(method, path, body)[0]

    def _answer(
        self, method: str, path: str, body: Mapping[str, Any] | None
    ) -> tuple[Any, Mapping[str, str]]:
        """Call until there is an answer; only for calls that may be repeated."""
        return self._repeated(lambda pause: self._sent(method, path, body, pause))

    def _repeated(self, call: Callable[[float], _Answer]) -> _Answer:
        for remaining in reversed(range(_TRIES)):
            try:
                return call(2.0 ** (_TRIES - remaining - 1))
            except ForgeUnavailable as error:
                if not remaining:
                    raise
                self.wait(error)
        raise AssertionError("a call answers or raises")

    def _sent(
        self, method: str, path: str, body: Mapping[str, Any] | None, pause: float
    ) -> tuple[Any, Mapping[str, str]]:
        text, headers = self._received(method, path, body, pause)
        if len(text) > _LARGEST_ANSWER:
            raise RemoteFailed(
                f"{self._api.host} answered with over {_LARGEST_ANSWER >> 20} MiB", self._hints.again
            )
        try:
            return json.loads(text) if text.strip() else None, headers
        except (ValueError, RecursionError):
            raise self._wrong_answer("JSON") from None

    def _end_of_text(self, path: str, keep: int) -> str:
        """Return the last bytes of an answer that is a text."""
        received = self._repeated(lambda pause: self._received("GET", path, None, pause, keep))
        return received[0].decode("utf-8", "replace")

    def _received(
        self, method: str, path: str, body: Mapping[str, Any] | None, pause: float, keep: int = 0
    ) -> tuple[bytes, Mapping[str, str]]:
        """Call, and return the answer's bytes, as far as they are read; with `keep` the last ones of those."""
        import httpx

        host = self._api.host
        address = f"{self._api}{path}" if path.startswith("/") else path
        try:
            with self._client.stream(method, address, json=body) as response:
                text, size = b"", 0
                for piece in response.iter_bytes():
                    text, size = (text + piece)[-keep:], size + len(piece)
                    if size > _LARGEST_ANSWER:
                        break
        except httpx.TransportError as error:
            raise self._unavailable(f"{host} cannot be reached: {type(error).__name__}", pause) from None
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            raise RemoteFailed(f"{host} answered with what is not HTTP: {type(error).__name__}") from None
        if response.is_success:
            return text, response.headers
        raise self._refusal(response, text, pause)

    def _refusal(self, response: httpx.Response, text: bytes, pause: float) -> RemoteFailed:
        status, host = response.status_code, self._api.host
        reason = self._reason(text)
        if (after := _rate_limit(response, reason)) is not None:
            return self._unavailable(f"{host} limits the rate of calls: it asks to wait {after:.0f} s", after)
        message = f"{host} answered {status}" + (f": {reason}" if reason else "")
        if status >= 500 or status == 408:
            return self._unavailable(message, pause)
        hint = ""
        if response.is_redirect:
            message = f"{host} answered {status}, a redirect, which is not followed with a token"
            hint = "was the repository renamed? give the API's new address"
        elif status == 401:
            hint = "the token is not valid, or expired"
        elif status in (403, 404):
            hint = self._hints.rights[self._kind]
        error = ForgeDeclined(message, hint)
        error.status = status
        return error

    def _unavailable(self, message: str, after: float) -> ForgeUnavailable:
        error = ForgeUnavailable(message, self._hints.again)
        error.after = max(after, 0.0)
        return error

    def _reason(self, text: bytes) -> str:
        """Return the message of an error's body, without the token."""
        try:
            return self._message(json.loads(text))
        except (ValueError, RecursionError):
            return ""

    def _message(self, value: Any) -> str:
        if not isinstance(value, dict):
            return ""
        message = value.get("message") or value.get("error")
        if isinstance(message, dict | list):
            message = json.dumps(message)
        errors = value.get("errors")
        details = [
            detail
            for error in (errors if isinstance(errors, list) else ())
            if isinstance(detail := error.get("message") if isinstance(error, dict) else error, str)
        ]
        texts = [text for text in (message, *details) if isinstance(text, str)]
        return one_line(": ".join(texts).replace(self._token, "…"), 300)


def _address(api: str, hints: Hints) -> httpx.URL:
    import httpx

    try:
        url = httpx.URL(api.rstrip("/"))
    except httpx.InvalidURL:
        url = httpx.URL("")
    if url.scheme not in ("https", "http") or not url.host or url.userinfo or url.query or url.fragment:
        raise Usage(f"{one_line(api, 80)!r} is not the address of an API", hints.api)
    if url.scheme == "http" and not _is_here(url.host):
        raise Invalid(f"a token is not sent to {url.host} over http", "use the forge's https address")
    return url


def _is_here(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _rate_limit(response: httpx.Response, text: str) -> float | None:
    """Return the seconds to wait for a rate limit, None if it is another refusal."""
    headers = response.headers
    limited = response.status_code == 429 or (
        response.status_code == 403
        and (
            "retry-after" in headers
            or headers.get("x-ratelimit-remaining") == "0"
            or "rate limit" in text.lower()
        )
    )
    if not limited:
        return None
    if (after := _seconds(headers.get("retry-after"))) is not None:
        return after
    reset = headers.get("x-ratelimit-reset") or headers.get("ratelimit-reset")
    if (
        headers.get("x-ratelimit-remaining", headers.get("ratelimit-remaining")) == "0"
        and reset
        and reset.isdecimal()
    ):
        return max(float(reset[:12]) - time.time(), 1.0)
    return _SECONDARY


def _seconds(text: str | None) -> float | None:
    """Return a Retry-After header's seconds; it is a number or a date."""
    if text is None:
        return None
    if text.strip().isdecimal():
        return float(text.strip()[:9])
    try:
        return max(parsedate_to_datetime(text).timestamp() - time.time(), 0.0)
    except (ValueError, TypeError):
        return None
