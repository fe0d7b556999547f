"""The comments of a forge's REST API, on loopback: it answers as the documents of GitHub, GitLab, Gitea and Forgejo
say, with the shapes in tests/ci/answers, and fails as it is told."""

from __future__ import annotations

import copy
import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

ANSWERS = Path(__file__).parents[1] / "ci" / "answers"
PAGE = 3
"""Comments on a page, whatever is asked for: a server may have a limit of its own."""

_GITHUB = re.compile(r"/repos/ann/work/issues/(\d+)/comments")
_GITHUB_ONE = re.compile(r"/repos/ann/work/issues/comments/(\d+)")
_GITLAB = re.compile(r"/projects/42/merge_requests/(\d+)/notes")
_GITLAB_ONE = re.compile(r"/projects/42/merge_requests/(\d+)/notes/(\d+)")


def answer(name: str) -> Any:
    return json.loads((ANSWERS / f"{name}.json").read_text(encoding="utf-8"))


class Asked(NamedTuple):
    method: str
    path: str
    headers: Mapping[str, str]
    body: Any


class Failing(NamedTuple):
    """An answer instead of the right one. With `does`, the call is carried out all the same."""

    status: int
    body: Any = None
    headers: Mapping[str, str] = {}
    does: bool = False


class ForgeServer:
    """What there is on the forge: `comments` as (id, login, text) by the number of the change. `failing` are the
    answers to the next calls of a method."""

    def __init__(self, forge: str, me: str | None) -> None:
        self.forge, self.me = forge, me
        self.comments: dict[int, list[list[Any]]] = {}
        self.changes: list[tuple[int, str, str]] = []
        self.failing: dict[str, list[Failing]] = {}
        self.asked: list[Asked] = []
        self.url = ""
        self._last = 100

    @property
    def gitlike(self) -> str:
        return "gitea" if self.forge == "forgejo" else self.forge

    def has(self, number: int, *comments: tuple[str, str]) -> None:
        for login, text in comments:
            self._last += 1
            self.comments.setdefault(number, []).append([self._last, login, text])

    def texts(self, number: int) -> list[str]:
        return [text for _, _, text in self.comments.get(number, [])]

    def writes(self) -> list[str]:
        return [each.method for each in self.asked if each.method != "GET"]

    def answer(self, asked: Asked) -> tuple[int, Any, dict[str, str]]:
        self.asked.append(asked)
        failing = self.failing.get(asked.method)
        if failing:
            failure = failing.pop(0)
            if failure.does:
                self._done(asked)
            return failure.status, failure.body, dict(failure.headers)
        return self._done(asked)

    def _done(self, asked: Asked) -> tuple[int, Any, dict[str, str]]:
        url = urlsplit(asked.path)
        path, query = unquote(url.path), {name: value[0] for name, value in parse_qs(url.query).items()}
        if path == "/user":
            if self.me is None:
                return 403, answer(f"{self.gitlike}-forbidden"), {}
            return 200, {"login": self.me, "username": self.me, "id": 1}, {}
        many, one = (_GITLAB, _GITLAB_ONE) if self.forge == "gitlab" else (_GITHUB, _GITHUB_ONE)
        if match := one.fullmatch(path):
            wanted = int(match[match.lastindex or 1])
            for row in (row for rows in self.comments.values() for row in rows if row[0] == wanted):
                if asked.method == ("PUT" if self.forge == "gitlab" else "PATCH"):
                    row[2] = asked.body["body"]
                    return 200, self._shown(row), {}
            return 404, answer(f"{self.gitlike}-missing"), {}
        if match := many.fullmatch(path):
            rows = self.comments.setdefault(int(match[1]), [])
            if asked.method == "POST":
                self._last += 1
                rows.append([self._last, self.me or "github-actions[bot]", asked.body["body"]])
                return 201, self._shown(rows[-1]), {}
            return self._page([self._shown(row) for row in rows], path, query)
        if path in ("/repos/ann/work/pulls", "/projects/42/merge_requests"):
            return self._page([self._change(each) for each in self.changes], path, query)
        return 404, answer(f"{self.gitlike}-missing"), {}

    def _shown(self, row: list[Any]) -> Any:
        shown = answer("gitlab-note" if self.forge == "gitlab" else f"{self.gitlike}-comment")
        shown["id"], shown["body"] = row[0], row[2]
        who = shown["author"] if self.forge == "gitlab" else shown["user"]
        who["username" if self.forge == "gitlab" else "login"] = row[1]
        return shown

    def _change(self, change: tuple[int, str, str]) -> Any:
        number, branch, repository = change
        if self.forge == "gitlab":
            shown = answer("gitlab-merge-request")
            theirs = 42 if repository == "ann/work" else 43
            return {
                **shown,
                "iid": number,
                "source_branch": branch,
                "source_project_id": theirs,
                "target_project_id": 42,
            }
        shown = copy.deepcopy(answer(f"{self.gitlike}-pull"))
        shown["number"], shown["head"]["ref"] = number, branch
        shown["head"]["repo"]["full_name"] = repository
        return shown

    def _page(self, rows: list[Any], path: str, query: Mapping[str, str]) -> tuple[int, Any, dict[str, str]]:
        # Gitea answers with all comments of an issue at once.
        if self.gitlike == "gitea" and path.endswith("/comments"):
            return 200, rows, {}
        page = int(query.get("page", "1"))
        more = len(rows) > page * PAGE
        shown = rows[(page - 1) * PAGE : page * PAGE]
        if self.forge == "gitlab":
            return 200, shown, {"X-Next-Page": str(page + 1) if more else ""}
        link = f'<{self.url}{path}?page={page + 1}>; rel="next", <{self.url}{path}?page=9>; rel="last"'
        return 200, shown, {"Link": link} if more else {}


@contextmanager
def forge_server(forge: str, me: str | None = "uwf-bot") -> Iterator[ForgeServer]:
    """Serve a forge; `me` is the login of the token, None if the API doesn't say."""
    server = ForgeServer(forge, me)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            text = self.rfile.read(size)
            asked = Asked(self.command, self.path, dict(self.headers), json.loads(text) if text else None)
            status, body, headers = server.answer(asked)
            if status == 0:  # the connection breaks
                self.close_connection = True
                return
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = do_PATCH = _serve

        def log_message(self, *_: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.url = f"http://127.0.0.1:{http.server_address[1]}"
    thread = threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()
