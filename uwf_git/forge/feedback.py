"""Feedback on a change, as values, from the answers of each kind of forge: comments, reviews and failed checks. All
texts are those of strangers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from uwf_git.forge.address import GITHUB, GITLAB
from uwf_git.forge.answers import mapping_of, number_of, objects_in, read_author, read_comment, text_of

FeedbackKind = Literal["comment", "line comment", "review", "check"]
COMMENT: FeedbackKind = "comment"
LINE_COMMENT: FeedbackKind = "line comment"
REVIEW: FeedbackKind = "review"
CHECK: FeedbackKind = "check"
APPROVED, CHANGES_REQUESTED, COMMENTED = "approved", "changes requested", "commented"
MAY_PUSH, MAY_NOT_PUSH = "may push", "may not push"

_VERDICTS = {
    "APPROVED": APPROVED,
    "CHANGES_REQUESTED": CHANGES_REQUESTED,
    "REQUEST_CHANGES": CHANGES_REQUESTED,
    "COMMENTED": COMMENTED,
    "COMMENT": COMMENTED,
    "approved": APPROVED,
    "requested_changes": CHANGES_REQUESTED,
}
# A collaborator or member may have been given less than the right to push, which only the owner surely has.
_ASSOCIATIONS = {"OWNER": MAY_PUSH, "MEMBER": "member", "COLLABORATOR": "collaborator"}
_FAILED = frozenset(("failure", "timed_out", "startup_failure", "error"))
_DEVELOPER = 30  # GitLab's access level from which one may push
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|section_(?:start|end):\d+:[^\r\n]*\r?")


class Feedback(NamedTuple):
    """A comment on a change, a review, or a failed check. `id` is the forge's, among all of its kind; `author` is a
    login, of a check its name. `standing` says what the author may do, as far as the forge tells; `verdict` what a
    review says, or how a check ended. `line` is 0 if the forge names none, `reply_to` the id of the comment that is
    answered. `thread` is what the forge calls the conversation, if it can be answered, and `node` what GitHub's other
    API calls it."""

    kind: FeedbackKind
    id: int
    author: str
    body: str
    is_bot: bool = False
    author_id: int = 0
    standing: str = ""
    verdict: str = ""
    path: str = ""
    line: int = 0
    reply_to: int = 0
    thread: str = ""
    node: str = ""
    is_resolved: bool = False
    url: str = ""

    @property
    def says_nothing(self) -> bool:
        """Whether it is a review that forges make beside comments on lines, without words and verdict."""
        return self.kind == REVIEW and self.verdict == COMMENTED and not self.body.strip()


def read_note(kind: str, row: Mapping[str, Any]) -> Feedback | None:
    """Return a comment of a change, None for what is none."""
    comment = read_comment(kind, row)
    if comment is None:
        return None
    number = number_of(mapping_of(row, "author" if kind == GITLAB else "user"), "id")
    standing = _standing(kind, row)
    return Feedback(COMMENT, comment.id, comment.author, comment.body, comment.is_bot, number, standing)


def read_line_comment(kind: str, row: Mapping[str, Any]) -> Feedback | None:
    """Return a comment on a line, of GitHub, Gitea or Forgejo."""
    note = read_note(kind, row)
    if note is None:
        return None
    names = ("line", "original_line") if kind == GITHUB else ("position", "original_position")
    return note._replace(
        kind=LINE_COMMENT,
        path=text_of(row, "path"),
        line=next((line for name in names if (line := number_of(row, name))), 0),
        reply_to=number_of(row, "in_reply_to_id"),
        thread=str(number_of(row, "in_reply_to_id") or note.id) if kind == GITHUB else "",
        is_resolved=isinstance(row.get("resolver"), dict),
    )


def read_discussion(row: Mapping[str, Any]) -> Iterator[Feedback]:
    """Yield the comments of a discussion of GitLab."""
    first = 0
    for item in objects_in(row.get("notes")):
        note = read_note(GITLAB, item)
        if note is None:
            continue
        place = mapping_of(item, "position")
        yield note._replace(
            kind=LINE_COMMENT if place else COMMENT,
            path=text_of(place, "new_path") or text_of(place, "old_path"),
            line=number_of(place, "new_line") or number_of(place, "old_line"),
            reply_to=first,
            thread=text_of(row, "id"),
            is_resolved=item.get("resolved") is True,
        )
        first = first or note.id


def read_review(kind: str, row: Mapping[str, Any]) -> Feedback | None:
    """Return a review, None for one that is not given, or no longer. GitLab has none but a reviewer's state."""
    verdict = _VERDICTS.get(text_of(row, "state"))
    user = row.get("user")
    if verdict is None or row.get("dismissed") is True or not isinstance(user, dict):
        return None
    author_id = number_of(user, "id")
    number = author_id if kind == GITLAB else number_of(row, "id")
    author, standing = read_author(kind, {"author": user, "user": user}), _standing(kind, row)
    body = text_of(row, "body")
    return Feedback(REVIEW, number, author.login, body, author.is_bot, author_id, standing, verdict)


def read_check_run(row: Mapping[str, Any]) -> Feedback | None:
    """Return a check of GitHub that failed, None for any other."""
    verdict = text_of(row, "conclusion")
    if verdict not in _FAILED:
        return None
    output = mapping_of(row, "output")
    body = "\n".join(filter(None, (text_of(output, name) for name in ("title", "summary", "text"))))
    return Feedback(
        CHECK, number_of(row, "id"), text_of(row, "name"), body, verdict=verdict, url=text_of(row, "html_url")
    )


def read_annotations(rows: Any) -> str:
    """Return the annotations of a check, one on a line."""
    return "\n".join(
        f"{text_of(row, 'path')}:{number_of(row, 'start_line')}: "
        f"{text_of(row, 'annotation_level')}: {text_of(row, 'message')}"
        for row in objects_in(rows)
    )


def read_status(row: Mapping[str, Any]) -> Feedback | None:
    """Return a status of a commit that says that something failed, None for any other."""
    verdict = text_of(row, "state") or text_of(row, "status")
    if verdict not in _FAILED:
        return None
    url, body = text_of(row, "target_url"), text_of(row, "description")
    return Feedback(CHECK, number_of(row, "id"), text_of(row, "context"), body, verdict=verdict, url=url)


def read_job(row: Mapping[str, Any]) -> Feedback | None:
    """Return a job of GitLab that failed, None for one that may fail."""
    if row.get("allow_failure") is True:
        return None
    url = text_of(row, "web_url")
    return Feedback(CHECK, number_of(row, "id"), text_of(row, "name"), "", verdict="failure", url=url)


def read_trace(text: str) -> str:
    """Return a job's log without what steers a terminal or GitLab's page."""
    return _CONTROL.sub("", text)


def members_who_may_push(rows: Any) -> set[str]:
    """Return the logins of those members of a GitLab project who may push."""
    return {
        text_of(row, "username") for row in objects_in(rows) if number_of(row, "access_level") >= _DEVELOPER
    }


def _standing(kind: str, row: Mapping[str, Any]) -> str:
    return _ASSOCIATIONS.get(text_of(row, "author_association"), MAY_NOT_PUSH) if kind == GITHUB else ""
