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
_WIP = re.compile(r"\s*(?:wip:|\[wip\]:?)\s*", re.IGNORECASE)
_IS_DRAFT = {
    GITLAB: re.compile(r"\s*(?:draft:|\[draft\]|\(draft\))\s*", re.IGNORECASE),
    FORGEJO: _WIP,
    GITEA: _WIP,
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
    return Comment(number, author.login, body, author.is_bot, text_of(row, "created_at"))


def read_issue(kind: str, row: Mapping[str, Any]) -> Issue:
    is_gitlab = kind == GITLAB
    labels = row.get("labels")
    names = [
        name
        for label in (labels if isinstance(labels, list) else ())
        if isinstance(name := label.get("name") if isinstance(label, dict) else label, str)
    ]
    return Issue(
        number_of(row, "iid" if is_gitlab else "number"),
        text_of(row, "web_url" if is_gitlab else "html_url"),
        text_of(row, "title"),
        text_of(row, "description" if is_gitlab else "body"),
        read_author(kind, row),
        tuple(names),
        row.get("state") in ("open", "opened"),
        number_of(row, "user_notes_count" if is_gitlab else "comments"),
        is_gitlab and row.get("moved_to_id") is not None,
    )


def read_change(kind: str, row: Mapping[str, Any], repository: str) -> Change:
    """`repository` is the path of the one that the change is of."""
    return _merge_request(row) if kind == GITLAB else _pull_request(kind, row, repository)


def _merge_request(row: Mapping[str, Any]) -> Change:
    title, commit = text_of(row, "title"), text_of(row, "sha")
    states: Mapping[Any, State] = {"merged": "merged", "closed": "closed"}
    state = states.get(row.get("state"), "open")
    merger = mapping_of(row, "merge_user") or mapping_of(row, "merged_by")
    # Of a merge by fast-forward there is no other commit than the head's.
    merge = text_of(row, "merge_commit_sha") or text_of(row, "squash_commit_sha") or commit
    return Change(
        number_of(row, "iid"),
        text_of(row, "web_url"),
        draft_title(GITLAB, title, False),
        text_of(row, "description"),
        state,
        row.get("draft") is True or _is_draft(GITLAB, title),
        text_of(row, "source_branch"),
        commit,
        row.get("source_project_id") != row.get("target_project_id"),
        text_of(row, "target_branch"),
        _login(GITLAB, merger) if state == "merged" else "",
        merge if state == "merged" else "",
        "",
    )


def _pull_request(kind: str, row: Mapping[str, Any], repository: str) -> Change:
    title, head = text_of(row, "title"), mapping_of(row, "head")
    is_merged = row.get("merged") is True or bool(row.get("merged_at"))
    # Of an open one GitHub names the commit that would merge it.
    merge = text_of(row, "merge_commit_sha") if is_merged else ""
    return Change(
        number_of(row, "number"),
        text_of(row, "html_url"),
        draft_title(kind, title, False),
        text_of(row, "body"),
        "merged" if is_merged else "closed" if row.get("state") == "closed" else "open",
        row.get("draft") is True or _is_draft(kind, title),
        text_of(head, "ref"),
        text_of(head, "sha"),
        text_of(mapping_of(head, "repo"), "full_name").casefold() != repository.casefold(),
        text_of(mapping_of(row, "base"), "ref"),
        _login(kind, mapping_of(row, "merged_by")) if is_merged else "",
        merge,
        text_of(row, "node_id"),
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
    user = mapping_of(row, "author" if kind == GITLAB else "user")
    login = _login(kind, user)
    return Author(login, user.get("type") == "Bot" or bool(user.get("bot")) or bool(_BOT.fullmatch(login)))


def _login(kind: str, user: Mapping[str, Any]) -> str:
    return text_of(user, "username" if kind == GITLAB else "login")


def objects_in(answer: Any) -> list[dict[str, Any]]:
    """Return the objects of a list, none of what is no list."""
    return [row for row in answer if isinstance(row, dict)] if isinstance(answer, list) else []


def mapping_of(row: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = row.get(key)
    return value if isinstance(value, dict) else {}


def text_of(row: Mapping[str, Any], key: str) -> str:
    value = row.get(key)
    return value if isinstance(value, str) else ""


def number_of(row: Mapping[str, Any], key: str) -> int:
    value = row.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
