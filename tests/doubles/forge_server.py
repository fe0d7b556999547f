"""A forge's REST API, on loopback: issues, changes, comments, one repository. It answers as the documents of GitHub,
GitLab, Gitea and Forgejo say, with the shapes in tests/ci/answers, and fails as it is told.

A change is a pull request, or on GitLab a merge request. With a bare repository behind it, the branches of changes are
those of this repository. What differs from the real ones:

- the repository is `ann/work`, on GitLab also the project 42; the API has its usual path, or none
- a page has three items, whatever is asked for, as a server may have a limit of its own; `page` says otherwise
- rights are not modelled but for one token, `token`, and calls after which it is `revoked`; nor are events,
  milestones, and labels that a repository would have to know before
- times are those of the shapes, whenever something was written
- on each of them, a change whose head is in its base is merged: on Gitea only if the repository is set so
- a merge is always possible and makes a commit; GitHub names no test merge of an open change
- git is spoken by path only, so tests rewrite the URL of the remote
- GitHub's GraphQL knows the calls that make a change a draft, or ready, and those about conversations on lines
- reviews and checks: see `forge_reviews`
"""

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

from commands import git
from forge_reviews import ForgeReviews

ANSWERS = Path(__file__).parents[1] / "ci" / "answers"
PAGE = 3
TOKEN = "forge-token-0123456789"
OWNED = "ann/work"

_PREFIX = re.compile(r"/api/v[0-9]+(?=/)")
_ROOT = r"(?:/repos/ann/work|/projects/(?:42|ann/work))"
_ISSUE = re.compile(rf"{_ROOT}/issues/(\d+)")
_CHANGES = re.compile(rf"{_ROOT}/(?:pulls|merge_requests)")
_CHANGE = re.compile(rf"{_ROOT}/(?:pulls|merge_requests)/(\d+)")
_COMMENTS = re.compile(r"/repos/ann/work/(issues)/(\d+)/comments")
_COMMENT = re.compile(r"/repos/ann/work/issues/comments/(\d+)")
_NOTES = re.compile(r"/projects/(?:42|ann/work)/(issues|merge_requests)/(\d+)/notes")
_NOTE = re.compile(r"/projects/(?:42|ann/work)/(?:issues|merge_requests)/\d+/notes/(\d+)")

Answer = tuple[int, Any, dict[str, str]]


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
    """What there is on the forge: `issues` and `changes` by number, as their fields; `comments` as [id, login, text] by
    the number of the change, on GitLab those of issues in `issue_comments`. `failing` are the answers to the next calls
    of a method. `token` is the only one that is valid, None for any; after `revoked` more calls it is none. If it
    `is_public`, strangers read the repository without one, on GitLab without what was said."""

    def __init__(self, forge: str, me: str | None, repository: Path | None = None) -> None:
        self.forge, self.me, self.repository = forge, me, repository
        self.issues: dict[int, dict[str, Any]] = {}
        self.changes: dict[int, dict[str, Any]] = {}
        self.comments: dict[int, list[list[Any]]] = {}
        self.issue_comments = {} if forge == "gitlab" else self.comments
        self.failing: dict[str, list[Failing]] = {}
        self.asked: list[Asked] = []
        self.default_branch = "main"
        self.token: str | None = None
        self.revoked: int | None = None
        self.is_public = False
        self.url = ""
        self.page = PAGE
        self.reviews = ForgeReviews(self, answer)
        self._last = 100
        self._lock = threading.Lock()

    @property
    def gitlike(self) -> str:
        return "gitea" if self.forge == "forgejo" else self.forge

    @property
    def is_gitlab(self) -> bool:
        return self.forge == "gitlab"

    @property
    def web(self) -> str:
        return f"{self.url}/{OWNED}"

    def next_id(self) -> int:
        self._last += 1
        return self._last

    def head_of(self, number: int) -> str:
        """The commit of a change's branch."""
        return self._commit(self.changes[number]["head"]) if number in self.changes else ""

    def issue_url(self, number: int) -> str:
        return f"{self.web}/{'-/' if self.is_gitlab else ''}issues/{number}"

    def has(self, number: int, *comments: tuple[str, str], on: str = "change") -> None:
        kept = self.issue_comments if on == "issue" else self.comments
        for login, text in comments:
            self._last += 1
            kept.setdefault(number, []).append([self._last, login, text])

    def has_issue(
        self,
        number: int,
        title: str = "It fails",
        body: str = "Always.",
        *comments: tuple[str, str],
        author: str = "ann",
        labels: tuple[str, ...] = (),
    ) -> dict[str, Any]:
        """`gone` and `moved` of its fields say that it was deleted, or moved to another repository."""
        self.issues[number] = {
            "title": title,
            "body": body,
            "author": author,
            "labels": labels,
            "state": "open",
            "gone": False,
            "moved": False,
        }
        self.has(number, *comments, on="issue")
        return self.issues[number]

    def has_change(self, number: int, head: str, repository: str = OWNED, **fields: Any) -> dict[str, Any]:
        self.changes[number] = {
            "title": "One",
            "body": "",
            "head": head,
            "repository": repository,
            "base": self.default_branch,
            "state": "open",
            "draft": False,
            "merged_by": None,
            "merge": None,
            **fields,
        }
        return self.changes[number]

    def texts(self, number: int) -> list[str]:
        return [text for _, _, text in self.comments.get(number, [])]

    def writes(self) -> list[str]:
        return [call.method for call in self.asked if call.method != "GET"]

    def merge(self, number: int, how: str = "merge", by: str = "ann") -> str:
        """Merge a change as a person does on its page, `how` is merge or squash; return the commit."""
        change = self.changes[number]
        head, base = self._commit(change["head"]), self._commit(change["base"])
        assert self.repository is not None and head and base
        tree = self._git("merge-tree", "--write-tree", base, head)
        parents = ["-p", base, *(("-p", head) if how == "merge" else ())]
        change["merge"] = self._git("commit-tree", tree, *parents, "-m", f"{change['title']} (#{number})")
        self._git("update-ref", f"refs/heads/{change['base']}", change["merge"], base)
        change["state"], change["merged_by"] = "merged", by
        return str(change["merge"])

    def answer(self, asked: Asked) -> Answer:
        with self._lock:
            self.asked.append(asked)
            failing = self.failing.get(asked.method)
            if failing:
                failure = failing.pop(0)
                if failure.does:
                    self._done(asked)
                return failure.status, failure.body, dict(failure.headers)
            if not self._is_allowed(asked):
                return 401, answer(f"{self.gitlike}-unauthorized"), {}
            return self._done(asked)

    def _is_allowed(self, asked: Asked) -> bool:
        if self.revoked is not None:
            self.revoked -= 1
            if self.revoked < 0:
                return False
        headers = {name.lower(): value for name, value in asked.headers.items()}
        given = headers.get("private-token") or headers.get("authorization", "").partition(" ")[2]
        if self.is_public and not given:
            return asked.method == "GET" and not _NOTES.fullmatch(
                _PREFIX.sub("", urlsplit(unquote(asked.path)).path)
            )
        return self.token is None or given == self.token

    def _done(self, asked: Asked) -> Answer:
        url = urlsplit(asked.path)
        path, query = unquote(url.path), {name: value[0] for name, value in parse_qs(url.query).items()}
        if path in ("/graphql", "/api/graphql") and self.forge == "github":
            return self._graphql(asked.body)
        path = _PREFIX.sub("", path)
        if path == "/user":
            if self.me is None:
                return 403, answer(f"{self.gitlike}-forbidden"), {}
            return 200, {"login": self.me, "username": self.me, "id": 1}, {}
        if (reply := self.reviews.answer(asked, path, query)) is not None:
            return reply
        many, one = (_NOTES, _NOTE) if self.is_gitlab else (_COMMENTS, _COMMENT)
        if match := one.fullmatch(path):
            return self._one_comment(asked, int(match[1]))
        if match := many.fullmatch(path):
            is_issue = match[1] == "issues" and self.is_gitlab
            kept = self.issue_comments if is_issue else self.comments
            rows = kept.setdefault(int(match[2]), [])
            if asked.method == "POST":
                self._last += 1
                rows.append([self._last, self.me or "github-actions[bot]", asked.body["body"]])
                return 201, self._shown(rows[-1]), {}
            rows = rows[::-1] if query.get("sort") == "desc" else rows
            return self.page_of([self._shown(row) for row in rows], path, query)
        if match := _ISSUE.fullmatch(path):
            return self._issue(int(match[1]))
        if match := _CHANGE.fullmatch(path):
            return self._one_change(asked, int(match[1]))
        if _CHANGES.fullmatch(path):
            if asked.method == "POST":
                return self._opened(asked.body)
            return self.page_of([self._change(number) for number in self.changes], path, query)
        return self._missing()

    def _missing(self) -> Answer:
        return 404, answer(f"{self.gitlike}-missing"), {}

    def _one_comment(self, asked: Asked, wanted: int) -> Answer:
        kept = [*self.comments.values(), *(self.issue_comments.values() if self.is_gitlab else ())]
        for row in (row for rows in kept for row in rows if row[0] == wanted):
            if asked.method == ("PUT" if self.is_gitlab else "PATCH"):
                row[2] = asked.body["body"]
                return 200, self._shown(row), {}
        return self._missing()

    def _issue(self, number: int) -> Answer:
        issue = self.issues.get(number)
        if issue is None:
            return self._missing()
        if issue["gone"]:
            return (410, answer("github-gone"), {}) if self.forge == "github" else self._missing()
        if issue["moved"] and self.forge == "github":
            return 301, answer("github-moved"), {"Location": f"{self.url}/repositories/1296269/issues/1"}
        shown = answer(f"{self.gitlike}-issue")
        shown["title"] = issue["title"]
        count = len(self.issue_comments.get(number, []))
        if self.is_gitlab:
            shown |= {"iid": number, "description": issue["body"], "labels": list(issue["labels"])}
            shown |= {"web_url": self.issue_url(number), "user_notes_count": count}
            shown["author"]["username"] = issue["author"]
            shown["state"] = "opened" if issue["state"] == "open" else "closed"
            shown["moved_to_id"] = 77 if issue["moved"] else None
        else:
            shown |= {"number": number, "body": issue["body"], "html_url": self.issue_url(number)}
            shown["user"]["login"] = issue["author"]
            shown["labels"] = [{**shown["labels"][0], "name": name} for name in issue["labels"]]
            shown |= {"state": issue["state"], "comments": count}
        return 200, shown, {}

    def _shown(self, row: list[Any]) -> Any:
        shown = answer("gitlab-note" if self.is_gitlab else f"{self.gitlike}-comment")
        shown["id"], shown["body"] = row[0], row[2]
        who = shown["author"] if self.is_gitlab else shown["user"]
        who["username" if self.is_gitlab else "login"] = row[1]
        who["id"] = self.reviews.id_of(row[1])
        if self.forge == "github" and row[1].endswith("[bot]"):
            who["type"] = "Bot"
        return shown | self.reviews.standing(row[1])

    def _opened(self, body: Mapping[str, Any]) -> Answer:
        names = (
            ("source_branch", "target_branch", "description") if self.is_gitlab else ("head", "base", "body")
        )
        head, base, text = (body.get(name, "") for name in names)
        if self.repository is not None and not (self._commit(head) and self._commit(base)):
            if self.forge == "github":
                errors = [{"resource": "PullRequest", "field": "head", "code": "invalid"}]
                return 422, {"message": "Validation Failed", "errors": errors}, {}
            return self._missing()
        if any(
            (row["head"], row["base"], row["state"]) == (head, base, "open") for row in self.changes.values()
        ):
            return (422 if self.forge == "github" else 409), answer(f"{self.gitlike}-exists"), {}
        taken = [*self.changes, *(() if self.is_gitlab else self.issues)]
        number = max(taken, default=0) + 1
        self.has_change(
            number, head, base=base, title=body["title"], body=text, draft=body.get("draft", False)
        )
        return 201, self._change(number), {}

    def _one_change(self, asked: Asked, number: int) -> Answer:
        if number not in self.changes:
            return self._missing()
        if asked.method == ("PUT" if self.is_gitlab else "PATCH"):
            names = {"description" if self.is_gitlab else "body": "body", "title": "title"}
            self.changes[number] |= {names[name]: text for name, text in asked.body.items() if name in names}
        elif asked.method != "GET":
            return 405, {}, {}
        return 200, self._change(number), {}

    def _graphql(self, body: Mapping[str, Any]) -> Answer:
        if (reply := self.reviews.graphql(body)) is not None:
            return reply
        number = int(body["variables"]["id"].removeprefix("PR_"))
        assert "pullRequestId: $id" in body["query"]
        self.changes[number]["draft"] = "convertPullRequestToDraft" in body["query"]
        return 200, {"data": {}}, {}

    def _change(self, number: int) -> Any:
        change = self.changes[number]
        commit, base = self._commit(change["head"]), self._commit(change["base"])
        if commit and base and change["state"] == "open" and self._git("merge-base", commit, base) == commit:
            change |= {"state": "merged", "merged_by": "ann", "merge": base}
        is_merged = change["state"] == "merged"
        if self.is_gitlab:
            return {
                **answer("gitlab-merge-request"),
                "iid": number,
                "title": change["title"],
                "description": change["body"],
                "state": "opened" if change["state"] == "open" else change["state"],
                "draft": change["title"].startswith("Draft:"),
                "source_branch": change["head"],
                "target_branch": change["base"],
                "source_project_id": 42 if change["repository"] == OWNED else 43,
                "target_project_id": 42,
                "sha": commit or "8888888888888888888888888888888888888888",
                "merge_user": {"id": 1, "username": change["merged_by"]} if is_merged else None,
                "merge_commit_sha": change["merge"],
                "web_url": f"{self.web}/-/merge_requests/{number}",
            }
        shown = copy.deepcopy(answer(f"{self.gitlike}-pull"))
        shown["head"] |= {"ref": change["head"], **({"sha": commit} if commit else {})}
        shown["head"]["repo"]["full_name"] = change["repository"]
        shown["base"]["ref"] = change["base"]
        page = "pull" if self.forge == "github" else "pulls"
        is_draft = change["draft"] if self.forge == "github" else change["title"].startswith("WIP:")
        return shown | {
            "number": number,
            "title": change["title"],
            "body": change["body"],
            "state": "open" if change["state"] == "open" else "closed",
            "draft": is_draft,
            "merged": is_merged,
            "merged_at": "2024-01-02T00:00:00Z" if is_merged else None,
            "merged_by": {"id": 1, "login": change["merged_by"]} if is_merged else None,
            "merge_commit_sha": change["merge"],
            "html_url": f"{self.web}/{page}/{number}",
            **({"node_id": f"PR_{number}"} if self.forge == "github" else {}),
        }

    def _commit(self, branch: str) -> str:
        if self.repository is None:
            return ""
        return git(
            "--git-dir", self.repository, "rev-parse", "-q", "--verify", f"refs/heads/{branch}", check=False
        )

    def _git(self, *args: str) -> str:
        identity = {
            f"GIT_{who}_{what}": value
            for who in ("AUTHOR", "COMMITTER")
            for what, value in (("NAME", "Forge"), ("EMAIL", "forge@example.org"))
        }
        return git("--git-dir", self.repository, *args, env=identity)

    def page_of(self, rows: list[Any], path: str, query: Mapping[str, str]) -> Answer:
        # Gitea answers with all comments of an issue at once.
        if self.gitlike == "gitea" and path.endswith("/comments"):
            return 200, rows, {}
        page = int(query.get("page", "1"))
        more = len(rows) > page * self.page
        shown = rows[(page - 1) * self.page : page * self.page]
        if self.is_gitlab:
            return 200, shown, {"X-Next-Page": str(page + 1) if more else ""}
        link = f'<{self.url}{path}?page={page + 1}>; rel="next", <{self.url}{path}?page=9>; rel="last"'
        return 200, shown, {"Link": link} if more else {}


@contextmanager
def forge_server(
    forge: str, me: str | None = "uwf-bot", repository: Path | None = None
) -> Iterator[ForgeServer]:
    """Serve a forge; `me` is the login of the token, None if the API doesn't say. `repository` is a bare one."""
    with serving(ForgeServer(forge, me, repository)) as server:
        yield server


@contextmanager
def serving(server: Any) -> Iterator[Any]:
    """Serve what has an `answer` to each call, under a `url` that it gets."""

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
