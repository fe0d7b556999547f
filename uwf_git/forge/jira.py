"""An issue on Jira, Cloud or Data Center, by version 2 of its REST API, in which texts are wiki markup.

Jira takes a login that is not valid for none, and answers as to a stranger: a header says so, and counts as a refusal.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from uwf_git.base.errors import RemoteFailed
from uwf_git.base.text import one_line
from uwf_git.forge.address import IssueAddress
from uwf_git.forge.answers import Author, Comment, Issue, mapping_of, number_of, objects_in, text_of
from uwf_git.forge.login import Login
from uwf_git.forge.marks import mark_of
from uwf_git.forge.rest import ForgeDeclined, Hints, RestClient
from uwf_git.forge.trackers import JIRA

if TYPE_CHECKING:
    import httpx

_PER_PAGE = 100
_LONGEST_CODE = 300
_MOST_PAGES = 100
_FIELDS = "summary,description,reporter,labels,status"
_HINTS = Hints(
    token="log in to Jira",
    api="see trackers in config.yaml",
    rights={JIRA: "is it there, and may you see it and comment on it? Jira answers so for both"},
)
# Wiki markup has no comments, so the mark is seen: a word, with a digest of the text before it.
_MARK = re.compile(r"\^?uwf-([0-9A-Za-z]{8,64})-([0-9a-f]{12})\^?\Z")
_LONGEST_MARK = 100
_MARKUP = re.compile(r"[\\{}\[\]*_^~+|!?#&@]|(?<!\w)-|-(?!\w)")
_OFFSET = re.compile(r"([+-]\d\d)(\d\d)")


class JiraIssue(RestClient):
    """See `uwf_git.forge.issue_client.IssueClient`. A login with a user is an e-mail address and an API token, as on
    Cloud, one without is a personal access token, as on Data Center."""

    def __init__(self, address: IssueAddress, login: Login, log_in: str) -> None:
        headers, secrets = {}, [login.token]
        if login.user:
            secrets.append(b64encode(f"{login.user}:{login.token}".encode()).decode("ascii"))
            headers["Authorization"] = f"Basic {secrets[1]}"
        elif login.token:
            headers["Authorization"] = f"Bearer {login.token}"
        super().__init__(
            JIRA, address.repository.forge.api, headers, secrets if login.token else (), _HINTS, log_in=log_in
        )
        self._key = address.key
        self._url = address.url
        self._issue = f"/issue/{quote(address.key, safe='')}"

    def read(self, at_most: int) -> tuple[Issue, list[Comment]]:
        row = self._object("GET", f"{self._issue}?fields={_FIELDS}")
        fields, key = mapping_of(row, "fields"), text_of(row, "key")
        if not key or not fields:
            raise self._wrong_answer("this issue")
        comments = list[Comment]()
        page: Mapping[str, Any] = {}
        for page in self._pages("-created"):
            comments += filter(None, map(self._comment, objects_in(page.get("comments"))))
            if len(comments) >= at_most:
                break
        status = mapping_of(mapping_of(fields, "status"), "statusCategory")
        labels = fields.get("labels")
        issue = Issue(
            int(self._key.rpartition("-")[2]),
            self._url,
            text_of(fields, "summary"),
            self._text(fields, "description"),
            _author(mapping_of(fields, "reporter")),
            tuple(label for label in labels if isinstance(label, str)) if isinstance(labels, list) else (),
            text_of(status, "key") != "done",
            number_of(page, "total"),
            key.upper() != self._key,
        )
        return issue, sorted(comments[:at_most], key=lambda comment: comment.id)

    def code(self, text: str) -> str:
        return "{{" + _MARKUP.sub(r"\\\g<0>", one_line(text, _LONGEST_CODE)) + "}}"

    def create_comment(self, key: str, text: str) -> str:
        row = self._sent("POST", f"{self._issue}/comment", {"body": _marked(key, text)}, 1.0)[0]
        return text_of(row, "id") if isinstance(row, dict) else ""

    def find_comment(self, key: str) -> str:
        me = _identity(self._object("GET", "/myself"))
        for page in self._pages("created"):
            for row in objects_in(page.get("comments")):
                mark = _mark(text_of(row, "body"))
                if mark and mark[1] == key and me and _identity(mapping_of(row, "author")) == me:
                    return text_of(row, "id")
        return ""

    def update_comment(self, comment: str, text: str) -> None:
        path = f"{self._issue}/comment/{quote(comment, safe='')}"
        try:
            mark = _mark(text_of(self._object("GET", path), "body"))
        except ForgeDeclined as error:
            if error.status == 404:
                return
            raise
        if mark is not None and mark[2] != _digest(text):
            self._call("PUT", path, {"body": _marked(mark[1], text)})

    def _pages(self, order: str) -> Iterator[Mapping[str, Any]]:
        """Yield pages of comments. The server may have a limit of its own for one."""
        start = 0
        for _ in range(_MOST_PAGES):
            path = f"{self._issue}/comment?startAt={start}&maxResults={_PER_PAGE}&orderBy={order}"
            page = self._object("GET", path)
            yield page
            start += len(objects_in(page.get("comments")))
            if not page.get("comments") or start >= number_of(page, "total"):
                return
        raise RemoteFailed(
            f"{self._api.host} answered with over {_MOST_PAGES} pages", "delete comments there"
        )

    def _comment(self, row: Mapping[str, Any]) -> Comment | None:
        """Return a comment, None for one that only some may see."""
        number = text_of(row, "id")
        if not number.isdecimal() or row.get("visibility") or row.get("jsdPublic") is False:
            return None
        author, text = _author(mapping_of(row, "author")), self._text(row, "body")
        if mark := _mark(text):
            text = f"{mark_of(mark[1])}\n{text[: mark.start()]}"
        created = _OFFSET.sub(r"\1:\2", text_of(row, "created").replace("+0000", "Z"))
        return Comment(int(number[:18]), author.login, text, author.is_bot, created)

    def _text(self, row: Mapping[str, Any], name: str) -> str:
        if isinstance(row.get(name), dict):
            raise RemoteFailed(
                f"{self._api.host} answered with a document in place of a text",
                "let api in config.yaml lead to version 2: …/rest/api/2",
            )
        return text_of(row, name)

    def _received(
        self, method: str, path: str, body: Mapping[str, Any] | None, pause: float, keep: int = 0
    ) -> tuple[bytes, Mapping[str, str]]:
        text, headers = super()._received(method, path, body, pause, keep)
        if self._secrets and _is_login_refused(headers):
            raise self._login_refused(headers)
        return text, headers

    def _refusal(self, response: httpx.Response, text: bytes, pause: float) -> RemoteFailed:
        if self._secrets and (response.status_code == 401 or _is_login_refused(response.headers)):
            return self._login_refused(response.headers)
        if response.is_redirect:  # not to a moved issue, which answers to its old key
            return ForgeDeclined(
                f"{self._api.host} answered {response.status_code}, a redirect, which is not followed",
                "is there a login page before it? let api in trackers of config.yaml lead around that",
            )
        return super()._refusal(response, text, pause)

    def _login_refused(self, headers: Mapping[str, str]) -> ForgeDeclined:
        host = self._api.host
        reason = headers.get("x-authentication-denied-reason", "")
        if "CAPTCHA" in reason or "DENIED" in headers.get("x-seraph-loginreason", ""):
            message, hint = f"{host} wants a captcha first", f"log in there once in a browser: {self._url}"
        else:
            message = f"{host} does not take the login"
            hint = "is JIRA_API_TOKEN valid? on Jira Cloud JIRA_USER is the e-mail address of its account"
        error = ForgeDeclined(message, hint)
        error.status = 401
        return error

    def _message(self, value: Any) -> str:
        if not isinstance(value, dict):
            return ""
        messages, errors = value.get("errorMessages"), mapping_of(value, "errors")
        texts = [*(messages if isinstance(messages, list) else ()), *errors.values(), value.get("message")]
        return self._without_secrets(text for text in texts if isinstance(text, str))


def _marked(key: str, text: str) -> str:
    return f"{text}\n^uwf-{key}-{_digest(text)}^"


def _mark(text: str) -> re.Match[str] | None:
    """Return the mark with which a comment ends; its groups are the key, and the digest of the text before it."""
    text = text.rstrip()
    return _MARK.search(text, max(len(text) - _LONGEST_MARK, 0))


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:12]


def _identity(user: Mapping[str, Any]) -> str:
    """Return what no other user has: on Cloud the id of the account, on Data Center the key."""
    return text_of(user, "accountId") or text_of(user, "key")


def _author(user: Mapping[str, Any]) -> Author:
    """Return a user by the login of Data Center, or the name that Cloud shows, in one word."""
    name = text_of(user, "name") or re.sub(r"\s+", ".", text_of(user, "displayName").strip())
    return Author(name, text_of(user, "accountType") == "app")


def _is_login_refused(headers: Mapping[str, str]) -> bool:
    return any(
        word in headers.get("x-seraph-loginreason", "")
        for word in ("AUTHENTICATED_FAILED", "AUTHENTICATION_DENIED")
    )
