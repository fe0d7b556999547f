"""The words of closed sets in nodes, such as the failure policy of a fork.

Schemas leave them open, since a type's hash is that of its schema and a further word must not change it. So whoever
parses, stores or verifies a node checks its words here, and refuses those that this version doesn't know.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from uwf_git.base.errors import UnknownWord
from uwf_git.base.text import one_line
from uwf_git.format.endings import AT_JOIN
from uwf_git.format.failure_policy import FAILURE_POLICIES

WORKSPACES = "worktree", "folder", "shared"
"""The kinds of folders that agents work in."""
THROTTLED, FAILED, TIMEOUT = CAUSES = "throttled", "failed", "timeout"
"""Why an attempt failed: a rate limit or used-up quota, a time limit, or anything else."""
LANGUAGES = "javascript", "python"
PACKAGE_FORMS = "bmad", "crew"
PULL_REQUEST, COMMENT, PUSH, COMMAND = EFFECT_KINDS = "pull request", "comment", "push", "command"
"""The kinds of effects on the outside."""
DONE, FOUND, UNKNOWN = "done", "found", "unknown"
MERGED, CLOSED, REOPENED = "merged", "closed", "reopened"
EFFECT_OUTCOMES = DONE, FOUND, UNKNOWN, FAILED, MERGED, CLOSED, REOPENED
"""Their outcomes: carried out, found by a look-up, not known, refused; and later, of a request: merged, closed, open
again."""

WORDS: Mapping[str, Mapping[str, Collection[str]]] = {
    "Workflow": {
        "/graph/*/*/fanOut/onFailure": FAILURE_POLICIES,
        "/roles/*/retry/on/*": CAUSES,
        "/workspace": WORKSPACES,
        "/crew/format": PACKAGE_FORMS,
    },
    "Bundle": {"/language": LANGUAGES},
    "Crew": {"/format": PACKAGE_FORMS},
    "Fork": {"/onFailure": FAILURE_POLICIES},
    "Join": {"/branches/*/status": AT_JOIN},
    "Attempt": {"/cause": [cause for cause in CAUSES if cause != FAILED]},
    "Effect": {"/kind": EFFECT_KINDS},
    "Settlement": {"/outcome": EFFECT_OUTCOMES},
}
"""The words that this version knows, by the title of a type and the path in a payload; `*` is any key or index."""


def require_known_words(title: str, payload: Any, name: str = "") -> None:
    """Raise UnknownWord for a payload, of the type with a title, with a word that this version doesn't know. The error
    names `name`."""
    for path, words in WORDS.get(title, {}).items():
        for place, value in _at(payload, path.split("/")[1:]):
            if isinstance(value, str) and value not in words:
                subject, place = one_line(f"{title} {name}".rstrip(), 80), one_line(place, 120)
                raise UnknownWord(
                    f"{subject} has {one_line(value, 40)!r} at {place}, which this uwf does not know",
                    UnknownWord.WAY_OUT,
                )


def _at(value: Any, path: list[str], place: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values at a path, with their places."""
    if not path:
        yield place, value
        return
    items = dict(enumerate(value)) if isinstance(value, list) else value if isinstance(value, dict) else {}
    keys = items if path[0] == "*" else [path[0]] if path[0] in items else []
    for key in keys:
        yield from _at(items[key], path[1:], f"{place}/{key}")
