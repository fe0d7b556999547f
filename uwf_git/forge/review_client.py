"""Reading the feedback on a change from a forge, and answering it there.

At most 12 calls read a change of a hundred comments. What a token may not read, such as checks, is named and left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

from uwf_git.forge.address import GITHUB
from uwf_git.forge.answers import mapping_of, objects_in, text_of
from uwf_git.forge.client import PER_PAGE, ForgeClient
from uwf_git.forge.feedback import (
    LINE_COMMENT,
    MAY_NOT_PUSH,
    MAY_PUSH,
    Feedback,
    members_who_may_push,
    read_annotations,
    read_check_run,
    read_discussion,
    read_job,
    read_line_comment,
    read_note,
    read_review,
    read_status,
    read_trace,
)
from uwf_git.forge.rest import ForgeDeclined

_Value = TypeVar("_Value")
_LOGS = 3  # of failed checks
_REVIEWS = 6  # of Gitea whose comments are read, each by a call of its own
_LOG_BYTES = 64 * 1024
_THREADS = """\
query($owner: String!, $name: String!, $number: Int!) { repository(owner: $owner, name: $name) {
  pullRequest(number: $number) { reviewThreads(last: 100) {
    nodes { id isResolved comments(first: 1) { nodes { databaseId } } } } } } }"""
_RESOLVE = "mutation($id: ID!) { resolveReviewThread(input: {threadId: $id}) { clientMutationId } }"


class FeedbackBatch(NamedTuple):
    """Feedback on a change. `unread` names what the token may not read; `later` is how many reviews are left for
    another call."""

    items: list[Feedback]
    unread: list[str]
    later: int = 0


class ReviewClient(ForgeClient):
    """The API of one repository, with the feedback on its changes."""

    def feedback(self, number: int, commit: str, is_known: Callable[[Feedback], bool]) -> FeedbackBatch:
        """Read the feedback on a change whose head is a commit: comments, reviews, and failed checks of the commit
        with the ends of their logs. Known items are left out, and their logs and comments not read."""
        unread: list[str] = []

        def new(items: Sequence[Feedback | None]) -> list[Feedback]:
            return [item for item in items if item is not None and item.id and not is_known(item)]

        items = new(self.conversation(number))
        reviews, later = self._readable("reviews", unread, lambda: self._reviews(number, new)) or ([], 0)
        items += reviews
        items = self._with_standing(items, unread)
        items += self._checks(number, commit, new, unread)
        return FeedbackBatch(items, unread, later)

    def conversation(self, number: int) -> list[Feedback]:
        """Read the comments of a change, of GitHub and GitLab also those on lines."""
        if self._is_gitlab:
            rows = self._pages(f"{self._changes}/{number}/discussions?per_page={PER_PAGE}")
            return [note for row in rows for note in read_discussion(row)]
        path = f"{self._comments(number, 'change')}?per_page={PER_PAGE}&limit={PER_PAGE}"
        notes = [note for row in self._pages(path) if (note := read_note(self._kind, row)) is not None]
        return [*notes, *self._line_comments(number)] if self._kind == GITHUB else notes

    @property
    def answers_on_lines(self) -> bool:
        """Whether `conversation` has comments on lines, which can be answered there."""
        return self._is_gitlab or self._kind == GITHUB

    def reply(self, number: int, item: Feedback | None, body: str) -> int:
        """Answer a comment in its conversation, or the change for None; return the id. Not repeated."""
        if item is None or not item.thread:
            return self.create_comment(number, body)
        if self._is_gitlab:
            path = f"{self._changes}/{number}/discussions/{quote(item.thread, safe='')}/notes"
        else:
            path = f"{self._changes}/{number}/comments/{item.thread}/replies"
        return self._created(path, body)

    def resolve(self, number: int, item: Feedback) -> None:
        """Mark a conversation on a line as resolved, if the forge's API can, and the token may."""
        if item.kind != LINE_COMMENT or item.is_resolved or not item.thread:
            return
        try:
            if self._is_gitlab:
                path = f"{self._changes}/{number}/discussions/{quote(item.thread, safe='')}"
                self._call("PUT", path, {"resolved": True})
            elif item.node:
                self._graphql(_RESOLVE, {"id": item.node})
        except ForgeDeclined:
            return

    def _line_comments(self, number: int) -> Iterator[Feedback]:
        rows = self._pages(f"{self._changes}/{number}/comments?per_page={PER_PAGE}")
        comments = [item for row in rows if (item := read_line_comment(self._kind, row)) is not None]
        threads = self._threads(number) if comments else {}
        for item in comments:
            node, is_resolved = threads.get(item.thread, ("", False))
            yield item._replace(node=node, is_resolved=is_resolved)

    def _threads(self, number: int) -> dict[str, tuple[str, bool]]:
        """Return GitHub's ids of conversations on lines, and whether they are resolved, by their first comments:
        only its other API knows. Empty if the token may not use that."""
        owner, _, name = self.repository.path.partition("/")
        try:
            data = self._graphql(_THREADS, {"owner": owner, "name": name, "number": number})
            nodes = data["repository"]["pullRequest"]["reviewThreads"]["nodes"]
            return {
                str(node["comments"]["nodes"][0]["databaseId"]): (str(node["id"]), node["isResolved"] is True)
                for node in nodes
                if node["comments"]["nodes"]
            }
        except (ForgeDeclined, LookupError, TypeError):
            return {}

    def _reviews(
        self, number: int, new: Callable[[Sequence[Feedback | None]], list[Feedback]]
    ) -> tuple[list[Feedback], int]:
        """Return the reviews of a change, on Gitea each after its comments on lines, and how many are left out."""
        name = "reviewers" if self._is_gitlab else "reviews"
        rows = list(self._pages(f"{self._changes}/{number}/{name}?per_page={PER_PAGE}&limit={PER_PAGE}"))
        reviews = new([read_review(self._kind, row) for row in rows])
        if self._is_gitlab or self._kind == GITHUB:
            return [item for item in reviews if not item.says_nothing], 0
        with_comments = {row.get("id") for row in rows if row.get("comments_count")}
        read, later, items = 0, 0, list[Feedback]()
        for item in reviews:
            if item.id not in with_comments:
                items += [item] if not item.says_nothing else []
            elif read == _REVIEWS:
                later += 1
            else:
                read += 1
                path = f"{self._changes}/{number}/reviews/{item.id}/comments?limit={PER_PAGE}"
                items += [*new([read_line_comment(self._kind, row) for row in self._pages(path)]), item]
        return items, later

    def _with_standing(self, items: list[Feedback], unread: list[str]) -> list[Feedback]:
        """Add who may push, of forges that don't say it with each comment."""
        authors = sorted({item.author_id for item in items})[:PER_PAGE]
        if self._kind == GITHUB or not authors:
            return items
        if self._is_gitlab:
            ids = "".join(f"&user_ids[]={number}" for number in authors)
            path = f"{self._base}/members/all?per_page={PER_PAGE}{ids}"
            rows = self._readable("who may push", unread, lambda: list(self._pages(path)))
            pushers = None if rows is None else members_who_may_push(rows)
        else:
            path = f"{self._base}/assignees"
            rows = self._readable("who may push", unread, lambda: self._call("GET", path))
            pushers = None if rows is None else {text_of(row, "login") for row in objects_in(rows)}
        if pushers is None:
            return items
        return [
            item._replace(standing=MAY_PUSH if item.author in pushers else MAY_NOT_PUSH) for item in items
        ]

    def _checks(
        self,
        number: int,
        commit: str,
        new: Callable[[Sequence[Feedback | None]], list[Feedback]],
        unread: list[str],
    ) -> list[Feedback]:
        if self._is_gitlab:
            jobs = self._readable("jobs", unread, lambda: self._failed_jobs(number, commit)) or []
            failed = new([read_job(row) for row in jobs])
            return [*map(self._with_trace, failed[:_LOGS]), *failed[_LOGS:]]
        base = f"{self._base}/commits/{commit}"
        checks: list[Feedback] = []
        if self._kind == GITHUB:
            path = f"{base}/check-runs?per_page={PER_PAGE}"
            runs = self._readable("checks", unread, lambda: self._rows(path, "check_runs")) or []
            noted = {row.get("id") for row in runs if mapping_of(row, "output").get("annotations_count")}
            checks = new([read_check_run(row) for row in runs])
            checks = [
                self._with_annotations(item) if index < _LOGS and item.id in noted else item
                for index, item in enumerate(checks)
            ]
        statuses = self._readable("statuses", unread, lambda: self._rows(f"{base}/status", "statuses")) or []
        return [*checks, *new([read_status(row) for row in statuses])]

    def _failed_jobs(self, number: int, commit: str) -> list[dict[str, Any]]:
        pipelines = self._page(f"{self._changes}/{number}/pipelines?per_page={PER_PAGE}")[0]
        of_commit = [row for row in objects_in(pipelines) if row.get("sha") == commit]
        if not of_commit or of_commit[0].get("status") != "failed":
            return []
        path = f"{self._base}/pipelines/{of_commit[0].get('id')}/jobs?scope[]=failed&per_page={PER_PAGE}"
        return objects_in(self._page(path)[0])

    def _with_trace(self, item: Feedback) -> Feedback:
        try:
            log = self._end_of_text(f"{self._base}/jobs/{item.id}/trace", _LOG_BYTES)
        except ForgeDeclined:
            return item
        return item._replace(body=read_trace(log))

    def _with_annotations(self, item: Feedback) -> Feedback:
        try:
            rows = self._call("GET", f"{self._base}/check-runs/{item.id}/annotations?per_page={PER_PAGE}")
        except ForgeDeclined:
            return item
        return item._replace(body=f"{item.body}\n{read_annotations(rows)}".strip("\n"))

    def _rows(self, path: str, name: str) -> list[dict[str, Any]]:
        return objects_in(self._object("GET", path).get(name))

    def _readable(self, what: str, unread: list[str], read: Callable[[], _Value]) -> _Value | None:
        """Return what can be read, None for what the token may not read, or what isn't there."""
        try:
            return read()
        except ForgeDeclined as error:
            if error.status not in (403, 404, 410):
                raise
            unread.append(what)
            return None
