"""What is said about changes on the server of `forge_server`: reviews, comments on lines, checks of a change's head,
and who may push. As the documents say, with the shapes in tests/ci/answers; what differs from the real ones:

- a reviewer of GitLab has one state, and its discussions on lines have one note for each comment and answer
- Gitea's reviews are answered by none but comments of the request, as its API has no answer in a conversation
- a check is of the head that the change has now
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from forge_server import Answer, Asked, ForgeServer

_ROOT = r"(?:/repos/ann/work|/projects/(?:42|ann/work))"
_CHANGE = rf"{_ROOT}/(?:pulls|merge_requests)/(\d+)"
_STATES = {
    "github": {"approved": "APPROVED", "changes": "CHANGES_REQUESTED", "commented": "COMMENTED"},
    "gitea": {"approved": "APPROVED", "changes": "REQUEST_CHANGES", "commented": "COMMENT"},
    "gitlab": {"approved": "approved", "changes": "requested_changes", "commented": "reviewed"},
}


class Line(NamedTuple):
    """A comment on a line; `root` is the first one of its conversation."""

    id: int
    author: str
    body: str
    path: str
    line: int
    root: int
    review: int


class Review(NamedTuple):
    id: int
    author: str
    state: str
    body: str


class Check(NamedTuple):
    id: int
    name: str
    log: str
    has_failed: bool


class ForgeReviews:
    """`pushers` are those who may push; `resolved` the first comments of conversations that are resolved."""

    def __init__(self, server: ForgeServer, answer: Callable[[str], Any]) -> None:
        self._server, self._shape = server, answer
        self.pushers: set[str] = {"ann"}
        self.lines: dict[int, list[Line]] = {}
        self.reviews: dict[int, list[Review]] = {}
        self.checks: dict[int, list[Check]] = {}
        self.resolved: set[int] = set()
        self.hides: set[str] = set()  # names of what the token may not read

    def review(self, number: int, author: str, state: str, body: str = "") -> int:
        """`state` is approved, changes or commented."""
        reviews = self.reviews.setdefault(number, [])
        reviews.append(Review(self._server.next_id(), author, state, body))
        return reviews[-1].id

    def line(self, number: int, author: str, body: str, path: str, line: int = 1, root: int = 0) -> int:
        """Comment on a line, or in the conversation whose first comment is `root`."""
        review = self.review(number, author, "commented")
        comment = self._server.next_id()
        row = Line(comment, author, body, path, line, root or comment, review)
        self.lines.setdefault(number, []).append(row)
        return comment

    def check(self, number: int, name: str, log: str, has_failed: bool = True) -> int:
        checks = self.checks.setdefault(number, [])
        checks.append(Check(self._server.next_id(), name, log, has_failed))
        return checks[-1].id

    def answer(self, asked: Asked, path: str, query: Mapping[str, str]) -> Answer | None:
        """Answer a call that is about what is said, None for any other."""
        for name, handler in {
            "reviews": (rf"{_CHANGE}/(?:reviews|reviewers)", self._reviews),
            "of a review": (rf"{_CHANGE}/reviews/(\d+)/comments", self._of_review),
            "lines": (rf"{_CHANGE}/comments", self._lines),
            "reply": (rf"{_CHANGE}/comments/(\d+)/replies", self._reply),
            "discussions": (rf"{_CHANGE}/discussions", self._discussions),
            "note": (rf"{_CHANGE}/discussions/d(\d+)/notes", self._note),
            "resolve": (rf"{_CHANGE}/discussions/d(\d+)", self._resolve),
            "pipelines": (rf"{_CHANGE}/pipelines", self._pipelines),
            "jobs": (rf"{_ROOT}/pipelines/(\d+)/jobs", self._jobs),
            "trace": (rf"{_ROOT}/jobs/(\d+)/trace", self._trace),
            "members": (rf"{_ROOT}/members/all", self._members),
            "assignees": (rf"{_ROOT}/assignees", self._assignees),
            "checks": (rf"{_ROOT}/commits/([0-9a-f]+)/check-runs", self._check_runs),
            "annotations": (rf"{_ROOT}/check-runs/(\d+)/annotations", self._annotations),
            "statuses": (rf"{_ROOT}/commits/([0-9a-f]+)/status", self._statuses),
        }.items():
            if match := re.fullmatch(handler[0], path):
                if name in self.hides:
                    return 403, self._shape(f"{self._kind}-forbidden"), {}
                rows = handler[1](asked, *match.groups())
                if isinstance(rows, list):
                    return self._server.page_of(rows, path, query)
                return rows
        return None

    @property
    def _kind(self) -> str:
        return self._server.gitlike

    def _user(self, login: str) -> dict[str, Any]:
        bot = login.endswith("[bot]")
        return {"id": self.id_of(login), "login": login, "username": login, "type": "Bot" if bot else "User"}

    def id_of(self, login: str) -> int:
        return 1000 + sum(login.encode())

    def standing(self, login: str) -> dict[str, str]:
        """What GitHub says with each comment."""
        if self._kind != "github":
            return {}
        return {"author_association": "OWNER" if login in self.pushers else "NONE"}

    def _reviews(self, _asked: Asked, number: str) -> list[Any]:
        rows = self.reviews.get(int(number), [])
        states = _STATES[self._kind]
        if self._kind == "gitlab":
            last = {row.author: row for row in rows}
            shape = self._shape("gitlab-reviewer")
            return [
                {**shape, "user": self._user(row.author), "state": states[row.state]} for row in last.values()
            ]
        shape, lines = self._shape(f"{self._kind}-review"), self.lines.get(int(number), [])
        counts = {row.id: sum(line.review == row.id for line in lines) for row in rows}
        return [
            {
                **shape,
                "id": row.id,
                "user": self._user(row.author),
                "state": states[row.state],
                "body": row.body,
                **self.standing(row.author),
                **({"comments_count": counts[row.id]} if self._kind == "gitea" else {}),
            }
            for row in rows
        ]

    def _line(self, row: Line) -> dict[str, Any]:
        shape = {
            **self._shape(f"{self._kind}-review-comment"),
            "id": row.id,
            "user": self._user(row.author),
            "body": row.body,
            "path": row.path,
            "pull_request_review_id": row.review,
            **self.standing(row.author),
        }
        if self._kind == "gitea":
            resolver = self._user("ann") if row.root in self.resolved else None
            return {**shape, "position": row.line, "resolver": resolver}
        if row.root == row.id:
            del shape["in_reply_to_id"]
            return {**shape, "line": row.line}
        return {**shape, "line": row.line, "in_reply_to_id": row.root}

    def _lines(self, _asked: Asked, number: str) -> list[Any] | Answer:
        if self._kind != "github":
            return 404, {}, {}
        return [self._line(row) for row in self.lines.get(int(number), [])]

    def _of_review(self, _asked: Asked, number: str, review: str) -> list[Any]:
        return [self._line(row) for row in self.lines.get(int(number), []) if row.review == int(review)]

    def _reply(self, asked: Asked, number: str, root: str) -> Answer:
        roots = [row for row in self.lines.get(int(number), []) if row.id == row.root == int(root)]
        if not roots:
            return 404, self._shape("github-missing"), {}
        me = self._server.me or "github-actions[bot]"
        comment = self.line(int(number), me, asked.body["body"], roots[0].path, roots[0].line, roots[0].root)
        return 201, self._line(next(row for row in self.lines[int(number)] if row.id == comment)), {}

    def _discussions(self, _asked: Asked, number: str) -> list[Any]:
        shape = self._shape("gitlab-discussion")
        note = shape["notes"][0]
        alone = {name: value for name, value in note.items() if name not in ("position", "resolved")}
        rows = [
            {
                "id": f"d{row[0]}",
                "individual_note": True,
                "notes": [
                    {**alone, "id": row[0], "type": None, "author": self._user(row[1]), "body": row[2]}
                ],
            }
            for row in self._server.comments.get(int(number), [])
        ]
        lines = self.lines.get(int(number), [])
        for root in (row for row in lines if row.id == row.root):
            place = {**note["position"], "new_path": root.path, "new_line": root.line}
            notes = [
                {
                    **note,
                    "id": row.id,
                    "author": self._user(row.author),
                    "body": row.body,
                    "position": place,
                    "resolved": root.id in self.resolved,
                }
                for row in lines
                if row.root == root.id
            ]
            rows.append({"id": f"d{root.id}", "individual_note": False, "notes": notes})
        return rows

    def _note(self, asked: Asked, number: str, root: str) -> Answer:
        me, text = self._server.me or "bot", asked.body["body"]
        roots = [row for row in self.lines.get(int(number), []) if row.id == int(root)]
        if roots:
            comment = self.line(int(number), me, text, roots[0].path, roots[0].line, roots[0].id)
        else:
            self._server.has(int(number), (me, text))
            comment = self._server.comments[int(number)][-1][0]
        return 201, {**self._shape("gitlab-note"), "id": comment, "body": text}, {}

    def _resolve(self, asked: Asked, _number: str, root: str) -> Answer:
        assert asked.method == "PUT" and asked.body == {"resolved": True}
        self.resolved.add(int(root))
        return 200, {}, {}

    def graphql(self, body: Mapping[str, Any]) -> Answer | None:
        """The calls of GitHub's other API that are about conversations."""
        if "reviewThreads" in body["query"]:
            lines = self.lines.get(body["variables"]["number"], [])
            nodes = [
                {
                    "id": f"PRRT_{row.id}",
                    "isResolved": row.id in self.resolved,
                    "comments": {"nodes": [{"databaseId": row.id}]},
                }
                for row in lines
                if row.id == row.root
            ]
            threads = {"reviewThreads": {"nodes": nodes}}
            return 200, {"data": {"repository": {"pullRequest": threads}}}, {}
        if "resolveReviewThread" in body["query"]:
            self.resolved.add(int(body["variables"]["id"].removeprefix("PRRT_")))
            return 200, {"data": {}}, {}
        return None

    def _pipelines(self, _asked: Asked, number: str) -> list[Any]:
        failed = any(check.has_failed for check in self.checks.get(int(number), []))
        shape = {
            **self._shape("gitlab-pipeline"),
            "id": int(number),
            "sha": self._server.head_of(int(number)),
        }
        return [{**shape, "status": "failed" if failed else "success"}]

    def _jobs(self, _asked: Asked, number: str) -> list[Any]:
        shape = self._shape("gitlab-job")
        rows = [row for row in self.checks.get(int(number), []) if row.has_failed]
        return [{**shape, "id": row.id, "name": row.name, "web_url": self.url(row.id)} for row in rows]

    def url(self, check: int) -> str:
        return f"{self._server.web}/checks/{check}"

    def _trace(self, _asked: Asked, job: str) -> Answer:
        rows = [row for checks in self.checks.values() for row in checks if row.id == int(job)]
        log = f"section_start:1:x\r\x1b[0K\x1b[31m{rows[0].log}\x1b[0m\n"
        return 200, log.encode(), {}

    def _members(self, asked: Asked) -> list[Any]:
        shape = self._shape("gitlab-member")
        return [
            {**shape, **self._user(login), "access_level": 40}
            for login in sorted(self.pushers)
            if f"user_ids[]={self.id_of(login)}" in asked.path
        ]

    def _assignees(self, _asked: Asked) -> Answer:
        return 200, [self._user(login) for login in sorted(self.pushers)], {}

    def _at(self, commit: str) -> list[Check]:
        numbers = [number for number in self.checks if self._server.head_of(number) == commit]
        return [check for number in numbers for check in self.checks[number]]

    def _check_runs(self, _asked: Asked, commit: str) -> Answer:
        shape = self._shape("github-check-run")
        rows = [
            {
                **shape,
                "id": row.id,
                "name": row.name,
                "conclusion": "failure" if row.has_failed else "success",
                "html_url": self.url(row.id),
                "output": {
                    "title": f"{row.name} failed",
                    "summary": None,
                    "text": None,
                    "annotations_count": 1,
                },
            }
            for row in self._at(commit)
        ]
        return 200, {"total_count": len(rows), "check_runs": rows}, {}

    def _annotations(self, _asked: Asked, run: str) -> list[Any]:
        rows = [row for checks in self.checks.values() for row in checks if row.id == int(run)]
        return [{**self._shape("github-annotation"), "message": row.log} for row in rows]

    def _statuses(self, _asked: Asked, commit: str) -> Answer:
        if self._kind == "github":
            return 200, {"state": "success", "statuses": [self._shape("github-status")]}, {}
        rows = [
            {
                **self._shape("gitea-status"),
                "id": row.id,
                "context": row.name,
                "status": "failure" if row.has_failed else "success",
                "description": row.log,
                "target_url": self.url(row.id),
            }
            for row in self._at(commit)
        ]
        return 200, {"state": "failure", "statuses": rows}, {}
