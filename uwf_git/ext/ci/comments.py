"""One comment on each pull or merge request, replaced by the next result.

It is found by a mark, in a comment of the token's own: a stranger who writes the mark first would otherwise own, and
could change, the result's comment.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from uwf_git.ext.ci.job import CHANGE, Job
from uwf_git.plugin import (
    Forge,
    ForgeClient,
    ForgeDeclined,
    ForgeHints,
    ForgeRepository,
    ForgeUnavailable,
    Invalid,
    branch_name,
)

MARK = "<!-- uwf ci -->"
MOST = 200
_TRIES = 5
_LARGEST = 1 << 20
_HINTS = ForgeHints(
    token="set UWF_COMMENT_TOKEN in the job's environment",
    repository="see GITHUB_REPOSITORY or CI_PROJECT_ID",
    api="see GITHUB_API_URL or CI_API_V4_URL",
    again="repeat the job later",
    rights={
        "github": "the job needs `permissions: pull-requests: write`; of a fork's pull request the token only reads",
        "gitlab": "UWF_COMMENT_TOKEN needs the scope api and a role that may comment: Reporter or above",
        "forgejo": "the token must be allowed to write issues; of a fork's pull request the job's token only reads",
        "gitea": "the token must be allowed to write issues; of a fork's pull request the job's token only reads",
    },
)


class Body(NamedTuple):
    """A comment to write on the change of the job, or, if `branch` is given, on those of this branch."""

    branch: str
    text: str


class Written(NamedTuple):
    """An outcome: `done` is `created`, `updated`, `unchanged`, or `no-change-open`."""

    number: int | None
    done: str
    branch: str = ""


def api_of(job: Job, token: str, patience: float = 300.0) -> ForgeClient:
    """Return the API of the job's repository; `patience` is in seconds. Raises Usage, Invalid."""
    forge = Forge(job.forge, urlsplit(job.api).netloc, job.api)
    return ForgeClient(ForgeRepository(forge, job.repository), token, _HINTS, patience=patience)


def handed_over(bodies: Sequence[Body]) -> str:
    """Return bodies as JSON on one line, for the job that may write."""
    return json.dumps([body._asdict() for body in bodies], ensure_ascii=False)


def read_bodies(text: str) -> list[Body]:
    """Return the bodies that another job handed over. Raises Invalid."""
    try:
        value = json.loads(text) if len(text) <= _LARGEST else None
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, list) or len(value) > MOST:
        raise Invalid("the comments are not those that uwf ci check wrote", "hand them over unchanged")
    return [_body(item) for item in value]


def _body(value: Any) -> Body:
    branch, text = (value.get("branch"), value.get("text")) if isinstance(value, dict) else (None, None)
    if not isinstance(branch, str) or not isinstance(text, str):
        raise Invalid("the comments are not those that uwf ci check wrote", "hand them over unchanged")
    return Body(branch_name(branch) if branch else "", text)


def write_comments(api: ForgeClient, job: Job, bodies: Sequence[Body]) -> list[Written]:
    """Write each body. The change is that of this job's own event, whatever the other job said."""
    written = []
    names = api.names() if bodies else ()
    for body in bodies:
        if job.about == CHANGE:
            assert job.number is not None
            numbers = [job.number]
        else:
            numbers = [change.number for change in api.open_changes(body.branch)] if body.branch else []
        written += [Written(number, _write(api, names, number, body.text), body.branch) for number in numbers]
        if not numbers:
            written.append(Written(None, "no-change-open", body.branch))
    return written


def _write(api: ForgeClient, names: Sequence[str], number: int, text: str) -> str:
    """Create or replace the comment. A call that may have failed after it was carried out is looked for first."""
    body = f"{MARK}\n{text}"
    for remaining in reversed(range(_TRIES)):
        mine = [
            comment
            for comment in api.comments(number)
            if comment.author in names and comment.body.startswith(MARK)
        ]
        if mine and mine[0].body.rstrip() == body.rstrip():
            return "unchanged"
        try:
            if mine:
                api.update_comment(number, mine[0].id, body)
                return "updated"
            api.create_comment(number, body)
            return "created"
        except ForgeDeclined as error:
            # It was deleted since it was listed.
            if not mine or not remaining or error.status != 404:
                raise
        except ForgeUnavailable as error:
            if not remaining:
                raise
            api.wait(error)
    raise AssertionError("the comment is written, or an error raised")
