"""The REST APIs of GitHub, GitLab, Forgejo and Gitea, as far as comments need them.

The token goes to the API's address alone: over https, or over http to this machine; redirects are not followed. Answers
are bounded in size, and waits in time.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from uwf_git.plugin import VERSION, Declined, Invalid, RemoteFailed, Usage, one_line

if TYPE_CHECKING:
    import httpx

PATIENCE = 300.0
"""Seconds that all waits of one command may take, for rate limits and failures of the server."""

MOST_PAGES = 100
_PER_PAGE = 100
_LARGEST_ANSWER = 32 << 20
_TIMEOUT = 30.0
_TRIES = 5
_SECONDARY = 60.0  # what GitHub asks for if it names no time
_TOKEN = re.compile(r"[\x21-\x7e]{1,1000}")
_REPOSITORY = re.compile(r"[A-Za-z0-9_.-]+(?:/[A-Za-z0-9_.-]+)*")

# Names under which the tokens of jobs write; such a token may not always ask who it is.
_BOTS = {
    "github": ("github-actions[bot]",),
    "forgejo": ("forgejo-actions",),
    "gitea": ("gitea-actions",),
    "gitlab": (),
}
_MISSING = {
    "github": "the job needs `permissions: pull-requests: write`; of a fork's pull request the token only reads",
    "gitlab": "UWF_COMMENT_TOKEN needs the scope api and a role that may comment: Reporter or above",
    "forgejo": "the token must be allowed to write issues; of a fork's pull request the job's token only reads",
    "gitea": "the token must be allowed to write issues; of a fork's pull request the job's token only reads",
}


class Comment(NamedTuple):
    """A comment. `author` is the login of its author."""

    id: int
    author: str
    body: str


class Unavailable(RemoteFailed):
    """The server failed, or asked to wait: the call may be repeated. `after` is in seconds."""

    after = 0.0


class ForgeApi:
    """One repository's API. `repository` is OWNER/NAME, on GitLab also a project's number. Raises Usage for an
    address or a token that is none. Methods raise Declined, RemoteFailed, Unavailable."""

    def __init__(self, forge: str, api: str, repository: str, token: str, patience: float = PATIENCE) -> None:
        import httpx

        self.forge = forge
        self._token = token
        self._left = patience
        if not _TOKEN.fullmatch(token):
            raise Usage(
                "there is no token for the forge's API", "set UWF_COMMENT_TOKEN in the job's environment"
            )
        self._api = _address(api)
        if not _REPOSITORY.fullmatch(repository) or {".", ".."} & set(repository.split("/")):
            raise Usage(
                f"{one_line(repository, 80)!r} is not a repository", "see GITHUB_REPOSITORY or CI_PROJECT_ID"
            )
        self._repository = repository
        plain = self._api.scheme == "http"
        self._client = httpx.Client(
            headers=self._headers(),
            follow_redirects=False,
            timeout=_TIMEOUT,
            # A proxy must not see what is sent in the clear.
            trust_env=not plain,
            verify=not plain,
        )

    def __enter__(self) -> ForgeApi:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def names(self) -> tuple[str, ...]:
        """Return the logins under which this token writes."""
        try:
            me = self._call("GET", "/user", None)
        except Declined:
            if not _BOTS[self.forge]:
                raise
            return _BOTS[self.forge]
        login = me.get("username" if self.forge == "gitlab" else "login") if isinstance(me, dict) else None
        return (login,) if isinstance(login, str) and login else _BOTS[self.forge]

    def comments(self, number: int) -> Iterator[Comment]:
        """Yield the comments of a pull or merge request, oldest first."""
        order = "&sort=asc&order_by=created_at" if self.forge == "gitlab" else ""
        for row in self._pages(f"{self._change(number)}?per_page={_PER_PAGE}&limit={_PER_PAGE}{order}"):
            user = row.get("author") if self.forge == "gitlab" else row.get("user")
            login = (
                user.get("username" if self.forge == "gitlab" else "login") if isinstance(user, dict) else ""
            )
            if isinstance(row.get("id"), int) and isinstance(row.get("body"), str) and not row.get("system"):
                yield Comment(row["id"], str(login or ""), row["body"])

    def create(self, number: int, body: str) -> int:
        """Write a comment; return its id. Not repeated by itself: a failed call may have written it."""
        comment, _ = self._sent("POST", self._change(number), {"body": body}, 1.0)
        return int(comment["id"]) if isinstance(comment, dict) and isinstance(comment.get("id"), int) else 0

    def update(self, number: int, comment: int, body: str) -> None:
        """Replace a comment's text. Raises Declined if it is gone."""
        if self.forge == "gitlab":
            self._call("PUT", f"{self._change(number)}/{comment}", {"body": body})
        else:
            self._call("PATCH", f"{self._base}/issues/comments/{comment}", {"body": body})

    def changes_of(self, branch: str) -> list[int]:
        """Return the numbers of open pull or merge requests of a branch of this repository."""
        if self.forge == "gitlab":
            rows = self._pages(
                f"{self._base}/merge_requests?state=opened&source_branch={quote(branch, safe='')}&per_page={_PER_PAGE}"
            )
            return [
                row["iid"]
                for row in rows
                if isinstance(row.get("iid"), int)
                and row.get("source_branch") == branch
                and row.get("source_project_id") == row.get("target_project_id")
            ]
        owner = self._repository.partition("/")[0]
        head = f"&head={quote(f'{owner}:{branch}', safe='')}" if self.forge == "github" else ""
        rows = self._pages(f"{self._base}/pulls?state=open{head}&per_page={_PER_PAGE}&limit={_PER_PAGE}")
        return [
            row["number"] for row in rows if isinstance(row.get("number"), int) and self._is_of(row, branch)
        ]

    def wait(self, error: Unavailable) -> None:
        """Wait as a failure asks for; raises it if there is no patience left."""
        if error.after > self._left:
            raise error
        self._left -= error.after
        time.sleep(error.after)

    def _is_of(self, row: Mapping[str, Any], branch: str) -> bool:
        head = row.get("head")
        if not isinstance(head, dict) or head.get("ref") != branch:
            return False
        whose = head.get("repo")
        name = whose.get("full_name") if isinstance(whose, dict) else None
        return isinstance(name, str) and name.casefold() == self._repository.casefold()

    @property
    def _base(self) -> str:
        if self.forge == "gitlab":
            return f"/projects/{quote(self._repository, safe='')}"
        return f"/repos/{self._repository}"

    def _change(self, number: int) -> str:
        if self.forge == "gitlab":
            return f"{self._base}/merge_requests/{number}/notes"
        return f"{self._base}/issues/{number}/comments"

    def _headers(self) -> dict[str, str]:
        headers = {"User-Agent": f"uwf-git/{VERSION}", "Accept": "application/json"}
        if self.forge == "gitlab":
            return {**headers, "PRIVATE-TOKEN": self._token}
        if self.forge == "github":
            more = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
            return {**headers, **more, "Authorization": f"Bearer {self._token}"}
        return {**headers, "Authorization": f"token {self._token}"}

    def _pages(self, path: str) -> Iterator[dict[str, Any]]:
        """Yield the objects of all pages. A server's next page is taken by its number, not by its address."""
        for page in range(1, MOST_PAGES + 1):
            rows, more = self._page(f"{path}&page={page}")
            yield from (row for row in rows if isinstance(row, dict))
            if not more:
                return
        raise RemoteFailed(
            f"{self._api.host} lists over {MOST_PAGES} pages of comments", "delete some of them"
        )

    def _page(self, path: str) -> tuple[list[Any], bool]:
        answer, headers = self._answer("GET", path, None)
        if not isinstance(answer, list):
            raise RemoteFailed(
                f"{self._api.host} did not answer with a list", "see whether the API's address is right"
            )
        following = headers.get("x-next-page")
        return answer, bool(following) if following is not None else 'rel="next"' in headers.get("link", "")

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        return self._answer(method, path, body)[0]

    def _answer(
        self, method: str, path: str, body: Mapping[str, Any] | None
    ) -> tuple[Any, Mapping[str, str]]:
        """Call until there is an answer; only for calls that may be repeated."""
        for remaining in reversed(range(_TRIES)):
            try:
                return self._sent(method, path, body, 2.0 ** (_TRIES - remaining - 1))
            except Unavailable as error:
                if not remaining:
                    raise
                self.wait(error)
        raise AssertionError("a call answers or raises")

    def _sent(
        self, method: str, path: str, body: Mapping[str, Any] | None, pause: float
    ) -> tuple[Any, Mapping[str, str]]:
        import httpx

        host = self._api.host
        try:
            with self._client.stream(method, f"{self._api}{path}", json=body) as response:
                text = b""
                for piece in response.iter_bytes():
                    text += piece
                    if len(text) > _LARGEST_ANSWER:
                        raise RemoteFailed(f"{host} answered with over {_LARGEST_ANSWER >> 20} MiB", "")
        except httpx.TransportError as error:
            raise _unavailable(f"{host} cannot be reached: {type(error).__name__}", pause) from None
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            raise RemoteFailed(f"{host} answered with what is not HTTP: {type(error).__name__}") from None
        if response.is_success:
            try:
                return json.loads(text) if text.strip() else None, response.headers
            except (ValueError, RecursionError):
                raise RemoteFailed(
                    f"{host} did not answer with JSON", "see whether the API's address is right"
                ) from None
        raise self._refusal(response, text, pause)

    def _refusal(self, response: httpx.Response, text: bytes, pause: float) -> RemoteFailed:
        status, host = response.status_code, self._api.host
        reason = self._said(text)
        if (after := _rate_limit(response, reason)) is not None:
            return _unavailable(f"{host} limits the rate of calls: it asks to wait {after:.0f} s", after)
        message = f"{host} answered {status}" + (f": {reason}" if reason else "")
        if status >= 500 or status == 408:
            return _unavailable(message, pause)
        if response.is_redirect:
            return Declined(
                f"{host} answered {status}, a redirect, which is not followed with a token",
                "was the repository renamed? give the API's new address",
            )
        if status == 401:
            return Declined(message, "the token is not valid, or expired")
        if status in (403, 404):
            return Declined(message, _MISSING[self.forge])
        return Declined(message, "")

    def _said(self, text: bytes) -> str:
        """Return the message of an error's body, without the token."""
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return ""
        message = value.get("message") or value.get("error") if isinstance(value, dict) else None
        if isinstance(message, dict | list):
            message = json.dumps(message)
        return one_line(message.replace(self._token, "…"), 300) if isinstance(message, str) else ""


def _unavailable(message: str, after: float) -> Unavailable:
    error = Unavailable(message, "repeat the job later")
    error.after = max(after, 0.0)
    return error


def _address(api: str) -> httpx.URL:
    import httpx

    try:
        url = httpx.URL(api.rstrip("/"))
    except httpx.InvalidURL:
        url = httpx.URL("")
    if url.scheme not in ("https", "http") or not url.host or url.userinfo or url.query or url.fragment:
        raise Usage(
            f"{one_line(api, 80)!r} is not the address of an API", "see GITHUB_API_URL or CI_API_V4_URL"
        )
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
