"""Issues, changes and comments, as values, from the answers of each kind of forge. A change is a pull request, or on
GitLab a merge request. All texts are those of strangers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from uwf_git.forge.address import FORGEJO, GITEA, GITHUB, GITLAB

State = Literal["open", "merged", "closed"]

# A title with such a beginning is a draft's, where a change has no field for it.
_DRAFT = {GITLAB: "Draft: ", FORGEJO: "WIP: ", GITEA: "WIP: "}
_IS_DRAFT = {
    GITLAB: re.compile(r"\s*(?:draft:|\[draft\]|\(draft\))\s*", re.IGNORECASE),
    FORGEJO: re.compile(r"\s*(?:wip:|\[wip\]:?)\s*", re.IGNORECASE),
    GITEA: re.compile(r"\s*(?:wip:|\[wip\]:?)\s*", re.IGNORECASE),
}
_BOT = re.compile(
    r".*\[bot\]|(?:github|gitea|forgejo)-actions|(?:project|group)_[0-9]+_bot(?:_[0-9a-f]+)?",
    re.IGNORECASE,
)


class Author(NamedTuple):
    """An account. `is_bot`: the forge says so, or its login does."""

    login: str
    is_bot: bool = False


class Comment(NamedTuple):
    """A comment. `author` is the login of its author; `created` is in ISO 8601, "" if the forge doesn't say."""

    id: int
    author: str
    body: str
    is_bot: bool = False
    created: str = ""


class Issue(NamedTuple):
    """An issue. `comments` is how many it has, as far as the forge counts them; `was_moved`: another one has replaced
    it, in another repository."""

    number: int
    url: str
    title: str
    body: str
    author: Author
    labels: tuple[str, ...]
    is_open: bool
    comments: int
    was_moved: bool


class Change(NamedTuple):
    """A change. `title` is without the mark of a draft. `head` and `base` are branches; `commit` is the head's, and
    `is_foreign`: the head is in another repository. `merged_by` and `merge_commit` are "" if it is not merged, or the
    forge doesn't say. `node` is GitHub's id of it, for what its REST API can't do."""

    number: int
    url: str
    title: str
    body: str
    state: State
    is_draft: bool
    head: str
    commit: str
    is_foreign: bool
    base: str
    merged_by: str
    merge_commit: str
    node: str


def read_comment(kind: str, row: Mapping[str, Any]) -> Comment | None:
    """Return a comment, None for what is none. GitLab's notes may be of its system, or for members alone."""
    number, body = row.get("id"), row.get("body")
    if not isinstance(number, int) or not isinstance(body, str) or row.get("system"):
        return None
    if row.get("internal") is True or row.get("confidential") is True:
        return None
    author = read_author(kind, row)
    return Comment(number, author.login, body, author.is_bot, _text(row, "created_at"))


def read_issue(kind: str, row: Mapping[str, Any]) -> Issue:
    is_gitlab = kind == GITLAB
    labels = row.get("labels")
    names = [
        name
        for label in (labels if isinstance(labels, list) else ())
        if isinstance(name := label.get("name") if isinstance(label, dict) else label, str)
    ]
    return Issue(
        _number(row, "iid" if is_gitlab else "number"),
        _text(row, "web_url" if is_gitlab else "html_url"),
        _text(row, "title"),
        _text(row, "description" if is_gitlab else "body"),
        read_author(kind, row),
        tuple(names),
        row.get("state") in ("open", "opened"),
        _number(row, "user_notes_count" if is_gitlab else "comments"),
        is_gitlab and row.get("moved_to_id") is not None,
    )


def read_change(kind: str, row: Mapping[str, Any], repository: str) -> Change:
    """`repository` is the path of the one that the change is of."""
    return _merge_request(row) if kind == GITLAB else _pull_request(kind, row, repository)


def _merge_request(row: Mapping[str, Any]) -> Change:
    title, commit = _text(row, "title"), _text(row, "sha")
    states: Mapping[Any, State] = {"merged": "merged", "closed": "closed"}
    state = states.get(row.get("state"), "open")
    merger = _mapping(row, "merge_user") or _mapping(row, "merged_by")
    # Of a merge by fast-forward there is no other commit than the head's.
    merge = _text(row, "merge_commit_sha") or _text(row, "squash_commit_sha") or commit
    return Change(
        _number(row, "iid"),
        _text(row, "web_url"),
        draft_title(GITLAB, title, False),
        _text(row, "description"),
        state,
        row.get("draft") is True or _is_draft(GITLAB, title),
        _text(row, "source_branch"),
        commit,
        row.get("source_project_id") != row.get("target_project_id"),
        _text(row, "target_branch"),
        _login(GITLAB, merger) if state == "merged" else "",
        merge if state == "merged" else "",
        "",
    )


def _pull_request(kind: str, row: Mapping[str, Any], repository: str) -> Change:
    title, head = _text(row, "title"), _mapping(row, "head")
    is_merged = row.get("merged") is True or bool(row.get("merged_at"))
    # Of an open one GitHub names the commit that would merge it.
    merge = _text(row, "merge_commit_sha") if is_merged else ""
    return Change(
        _number(row, "number"),
        _text(row, "html_url"),
        draft_title(kind, title, False),
        _text(row, "body"),
        "merged" if is_merged else "closed" if row.get("state") == "closed" else "open",
        row.get("draft") is True or _is_draft(kind, title),
        _text(head, "ref"),
        _text(head, "sha"),
        _text(_mapping(head, "repo"), "full_name").casefold() != repository.casefold(),
        _text(_mapping(row, "base"), "ref"),
        _login(kind, _mapping(row, "merged_by")) if is_merged else "",
        merge,
        _text(row, "node_id"),
    )


def draft_title(kind: str, title: str, is_draft: bool) -> str:
    """Return a change's title with its mark of a draft, or without one. GitHub's changes have a field for it."""
    if kind == GITHUB:
        return title
    while match := _IS_DRAFT[kind].match(title):
        title = title[match.end() :]
    return _DRAFT[kind] + title if is_draft else title


def _is_draft(kind: str, title: str) -> bool:
    return kind != GITHUB and _IS_DRAFT[kind].match(title) is not None


def read_author(kind: str, row: Mapping[str, Any]) -> Author:
    user = _mapping(row, "author" if kind == GITLAB else "user")
    login = _login(kind, user)
    return Author(login, user.get("type") == "Bot" or bool(user.get("bot")) or bool(_BOT.fullmatch(login)))


def _login(kind: str, user: Mapping[str, Any]) -> str:
    return _text(user, "username" if kind == GITLAB else "login")


def _mapping(row: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = row.get(key)
    return value if isinstance(value, dict) else {}


def _text(row: Mapping[str, Any], key: str) -> str:
    value = row.get(key)
    return value if isinstance(value, str) else ""


def _number(row: Mapping[str, Any], key: str) -> int:
    value = row.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
