"""What people and checks say about a change, as values, from the answers of each kind of forge. All texts are those of
strangers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from uwf_git.forge.address import GITHUB, GITLAB
from uwf_git.forge.answers import read_author, read_comment

FeedbackKind = Literal["comment", "line comment", "review", "check"]
COMMENT: FeedbackKind = "comment"
LINE_COMMENT: FeedbackKind = "line comment"
REVIEW: FeedbackKind = "review"
CHECK: FeedbackKind = "check"
APPROVED, CHANGES_REQUESTED, COMMENTED = VERDICTS = "approved", "changes requested", "commented"
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
    """Something that is said about a change. `id` is the forge's, among all of its kind; `author` is a login, of a
    check its name. `standing` says what the author may do, as far as the forge tells; `verdict` what a review says, or
    how a check ended. `line` is 0 if the forge names none, `reply_to` the id of the comment that is answered. `thread`
    is what the forge calls the conversation, if it can be answered, and `node` what GitHub's other API calls it."""

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


def read_note(kind: str, row: Mapping[str, Any]) -> Feedback | None:
    """Return a comment of a change, None for what is none."""
    comment = read_comment(kind, row)
    if comment is None:
        return None
    user = row.get("author" if kind == GITLAB else "user")
    number, standing = _number(user if isinstance(user, dict) else {}, "id"), _standing(kind, row)
    return Feedback(COMMENT, comment.id, comment.author, comment.body, comment.is_bot, number, standing)


def read_line_comment(kind: str, row: Mapping[str, Any]) -> Feedback | None:
    """Return a comment on a line, of GitHub, Gitea or Forgejo."""
    note = read_note(kind, row)
    if note is None:
        return None
    names = ("line", "original_line") if kind == GITHUB else ("position", "original_position")
    return note._replace(
        kind=LINE_COMMENT,
        path=_text(row, "path"),
        line=next((line for name in names if (line := _number(row, name))), 0),
        reply_to=_number(row, "in_reply_to_id"),
        thread=str(_number(row, "in_reply_to_id") or note.id) if kind == GITHUB else "",
        is_resolved=isinstance(row.get("resolver"), dict),
    )


def read_discussion(row: Mapping[str, Any]) -> Iterator[Feedback]:
    """Yield the comments of a discussion of GitLab."""
    notes = row.get("notes")
    first = 0
    for item in notes if isinstance(notes, list) else ():
        note = read_note(GITLAB, item) if isinstance(item, dict) else None
        if note is None:
            continue
        position = item.get("position")
        place = position if isinstance(position, dict) else {}
        yield note._replace(
            kind=LINE_COMMENT if place else COMMENT,
            path=_text(place, "new_path") or _text(place, "old_path"),
            line=_number(place, "new_line") or _number(place, "old_line"),
            reply_to=first,
            thread=_text(row, "id"),
            is_resolved=item.get("resolved") is True,
        )
        first = first or note.id


def read_review(kind: str, row: Mapping[str, Any]) -> Feedback | None:
    """Return a review, None for one that is not given, or no longer. GitLab has none but a reviewer's state."""
    verdict = _VERDICTS.get(_text(row, "state"))
    user = row.get("user")
    if verdict is None or row.get("dismissed") is True or not isinstance(user, dict):
        return None
    author_id = _number(user, "id")
    number = author_id if kind == GITLAB else _number(row, "id")
    author, standing = read_author(kind, {"author": user, "user": user}), _standing(kind, row)
    body = _text(row, "body")
    return Feedback(REVIEW, number, author.login, body, author.is_bot, author_id, standing, verdict)


def read_check_run(row: Mapping[str, Any]) -> Feedback | None:
    """Return a check of GitHub that failed, None for any other."""
    verdict = _text(row, "conclusion")
    if verdict not in _FAILED:
        return None
    output = row.get("output")
    said = output if isinstance(output, dict) else {}
    body = "\n".join(filter(None, (_text(said, name) for name in ("title", "summary", "text"))))
    return Feedback(
        CHECK, _number(row, "id"), _text(row, "name"), body, verdict=verdict, url=_text(row, "html_url")
    )


def read_annotations(rows: Any) -> str:
    """Return the annotations of a check, one on a line."""
    return "\n".join(
        f"{_text(row, 'path')}:{_number(row, 'start_line')}: {_text(row, 'annotation_level')}: {_text(row, 'message')}"
        for row in (rows if isinstance(rows, list) else ())
        if isinstance(row, dict)
    )


def read_status(row: Mapping[str, Any]) -> Feedback | None:
    """Return a status of a commit that says that something failed, None for any other."""
    verdict = _text(row, "state") or _text(row, "status")
    if verdict not in _FAILED:
        return None
    url, body = _text(row, "target_url"), _text(row, "description")
    return Feedback(CHECK, _number(row, "id"), _text(row, "context"), body, verdict=verdict, url=url)


def read_job(row: Mapping[str, Any]) -> Feedback | None:
    """Return a job of GitLab that failed, None for one that may fail."""
    if row.get("allow_failure") is True:
        return None
    url = _text(row, "web_url")
    return Feedback(CHECK, _number(row, "id"), _text(row, "name"), "", verdict="failure", url=url)


def read_trace(text: str) -> str:
    """Return a job's log without what steers a terminal or GitLab's page."""
    return _CONTROL.sub("", text)


def members_who_may_push(rows: Any) -> set[str]:
    """Return the logins of those members of a GitLab project who may push."""
    return {
        _text(row, "username")
        for row in (rows if isinstance(rows, list) else ())
        if isinstance(row, dict) and _number(row, "access_level") >= _DEVELOPER
    }


def _standing(kind: str, row: Mapping[str, Any]) -> str:
    return _ASSOCIATIONS.get(_text(row, "author_association"), MAY_NOT_PUSH) if kind == GITHUB else ""


def _text(row: Mapping[str, Any], key: str) -> str:
    value = row.get(key)
    return value if isinstance(value, str) else ""


def _number(row: Mapping[str, Any], key: str) -> int:
    value = row.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
