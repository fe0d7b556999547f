"""A Jira's REST API, version 2, on loopback: issues of the project SHOP, and comments on them. It answers as the
documents of Jira Cloud and Data Center say, and fails as it is told.

What differs from the real ones:

- rights are not modelled but for one login, and `public`: strangers see the project, and write nothing
- a page has three comments, whatever is asked for; `page_size` says otherwise
- texts are kept as they are written; on Cloud they are converted to documents and back
- a captcha is wanted from the call on that `wants_captcha` says
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from forge_server import Answer, Asked, Failing, serving

PAGE = 3
USER = "uwf-bot@example.org"
TOKEN = "jira-token-0123456789"

_API = re.compile(r"(?P<folder>/[a-z]+)?/rest/api/2(?P<path>/.*)")
_ISSUE = re.compile(r"/issue/([A-Z]+-\d+)")
_COMMENTS = re.compile(r"/issue/([A-Z]+-\d+)/comment")
_COMMENT = re.compile(r"/issue/([A-Z]+-\d+)/comment/(\d+)")
_MISSING = "Issue does not exist or you do not have permission to see it."


class JiraServer:
    """What there is: `issues` by key, as their fields; `comments` by key, as rows of {id, author, body} and what else
    their JSON has. `is_cloud`: its login is an address and an API token, and users have no names. A moved issue answers
    to its old key, of which `moved` has the new one. `failing` are the answers to the next calls of a method."""

    def __init__(self, is_cloud: bool) -> None:
        self.is_cloud = is_cloud
        self.issues: dict[str, dict[str, Any]] = {}
        self.comments: dict[str, list[dict[str, Any]]] = {}
        self.moved: dict[str, str] = {}
        self.failing: dict[str, list[Failing]] = {}
        self.asked: list[Asked] = []
        self.is_public = False
        self.wants_captcha = False
        self.folder = ""
        self.page_size = PAGE
        self.url = ""

    @property
    def host(self) -> str:
        return self.url.partition("://")[2]

    @property
    def environ(self) -> dict[str, str]:
        """The login in the user's environment."""
        return {"JIRA_API_TOKEN": TOKEN, **({"JIRA_USER": USER} if self.is_cloud else {})}

    @property
    def authorization(self) -> str:
        """The header of the login."""
        basic = b64encode(f"{USER}:{TOKEN}".encode()).decode()
        return f"Basic {basic}" if self.is_cloud else f"Bearer {TOKEN}"

    def page(self, key: str) -> str:
        return f"{self.url}{self.folder}/browse/{key}"

    def user(self, name: str, kind: str = "atlassian") -> dict[str, Any]:
        """A user; on Cloud only the name is shown."""
        if self.is_cloud:
            return {"accountId": f"557058:{name.lower()}", "accountType": kind, "displayName": name}
        return {"key": f"JIRAUSER{sum(name.encode())}", "name": name, "displayName": name}

    def has_issue(
        self,
        key: str,
        title: str = "It fails",
        text: str | None = "Always.",
        *comments: tuple[str, str],
        author: str = "ann",
        labels: tuple[str, ...] = (),
        status: str = "indeterminate",
    ) -> None:
        self.issues[key] = {
            "summary": title,
            "description": text,
            "reporter": self.user(author),
            "labels": list(labels),
            "status": {"name": "Some", "statusCategory": {"key": status}},
        }
        for name, body in comments:
            self.has(key, name, body)

    def has(self, key: str, author: str, body: Any, **more: Any) -> dict[str, Any]:
        rows = self.comments.setdefault(key, [])
        number = 10000 + sum(map(len, self.comments.values()))
        created = f"2026-01-02T03:04:{number % 60:02}.000+0000"
        rows.append(
            {"id": str(number), "author": self.user(author), "body": body, "created": created, **more}
        )
        return rows[-1]

    def bodies(self, key: str) -> list[str]:
        return [row["body"] for row in self.comments.get(key, [])]

    def answer(self, asked: Asked) -> Answer:
        self.asked.append(asked)
        if failing := self.failing.get(asked.method):
            failure = failing.pop(0)
            if failure.does:
                self._done(asked, True)
            return failure.status, failure.body, dict(failure.headers)
        headers = {name.lower(): value for name, value in asked.headers.items()}
        login = headers.get("authorization", "")
        is_known = login == self.authorization
        if login and self.wants_captcha:
            denied = f"CAPTCHA_CHALLENGE; login-url={self.url}/login.jsp"
            more = {"X-Seraph-LoginReason": "AUTHENTICATION_DENIED", "X-Authentication-Denied-Reason": denied}
            return 403, b"<html>Basic Authentication Failure - Reason : AUTHENTICATION_DENIED</html>", more
        if login and not is_known and not self.is_cloud:
            return 401, b"<html>Unauthorized</html>", {"X-Seraph-LoginReason": "AUTHENTICATED_FAILED"}
        status, body, more = self._done(asked, is_known)
        # Cloud goes on as for a stranger.
        reason = {"X-Seraph-LoginReason": "AUTHENTICATED_FAILED"} if login and not is_known else {}
        return status, body, {**more, **reason}

    def _done(self, asked: Asked, is_known: bool) -> Answer:
        url = urlsplit(asked.path)
        match = _API.fullmatch(unquote(url.path))
        if match is None or (match["folder"] or "") != self.folder:
            return 404, b"<html>dead link</html>", {}
        path, query = match["path"], {name: value[0] for name, value in parse_qs(url.query).items()}
        if path == "/myself":
            if not is_known:
                return self._error(401, "Client must be authenticated to access this resource.")
            return 200, self.user("uwf"), {}
        if not is_known and not self.is_public:
            return self._error(404, _MISSING)
        if not is_known and asked.method != "GET":
            return self._error(401, "You do not have the permission to comment on this issue.")
        if match := _ISSUE.fullmatch(path):
            key = self.moved.get(match[1], match[1])
            if key not in self.issues:
                return self._error(404, _MISSING)
            fields = query["fields"].split(",")
            shown = {name: value for name, value in self.issues[key].items() if name in fields}
            return 200, {"id": "10001", "key": key, "fields": shown}, {}
        if match := _COMMENTS.fullmatch(path):
            rows = self.comments.setdefault(self.moved.get(match[1], match[1]), [])
            if asked.method == "POST":
                return 201, self.has(match[1], "uwf", asked.body["body"]), {}
            return 200, self._page(rows, query), {}
        if match := _COMMENT.fullmatch(path):
            for row in self.comments.get(match[1], []):
                if row["id"] == match[2]:
                    if asked.method == "PUT":
                        row["body"] = asked.body["body"]
                    return 200, row, {}
            return self._error(404, f"Can not find a comment for the id: {match[2]}.")
        return 404, b"<html>dead link</html>", {}

    def _page(self, rows: list[dict[str, Any]], query: Mapping[str, str]) -> dict[str, Any]:
        order, start = query.get("orderBy", "created"), int(query.get("startAt", "0"))
        assert order in ("created", "-created", "+created") and int(query.get("maxResults", "50")) <= 100
        rows = rows[::-1] if order == "-created" else rows
        return {
            "startAt": start,
            "maxResults": self.page_size,
            "total": len(rows),
            "comments": rows[start : start + self.page_size],
        }

    def _error(self, status: int, message: str) -> Answer:
        return status, json.dumps({"errorMessages": [message], "errors": {}}).encode(), {}


@contextmanager
def jira_server(is_cloud: bool = True) -> Iterator[JiraServer]:
    with serving(JiraServer(is_cloud)) as server:
        yield server
