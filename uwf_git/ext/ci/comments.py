"""One comment on each pull or merge request, replaced by the next result.

It is found by a mark, in a comment of the token's own: a stranger who writes the mark first would otherwise own, and
could change, the result's comment.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from uwf_git.ext.ci.forge_api import ForgeApi, Unavailable
from uwf_git.ext.ci.job import CHANGE, Job
from uwf_git.plugin import Declined, Invalid, branch_name

MARK = "<!-- uwf ci -->"
MOST = 200
_TRIES = 5
_LARGEST = 1 << 20


class Body(NamedTuple):
    """A comment to write on the change of the job, or, if `branch` is given, on those of this branch."""

    branch: str
    text: str


class Written(NamedTuple):
    """An outcome: `done` is `created`, `updated`, `unchanged`, or `no-change-open`."""

    number: int | None
    done: str
    branch: str = ""


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


def write_comments(api: ForgeApi, job: Job, bodies: Sequence[Body]) -> list[Written]:
    """Write each body. The change is that of this job's own event, whatever the other job said."""
    written = []
    names = api.names() if bodies else ()
    for body in bodies:
        if job.about == CHANGE:
            assert job.number is not None
            numbers = [job.number]
        else:
            numbers = api.changes_of(body.branch) if body.branch else []
        written += [Written(number, _write(api, names, number, body.text), body.branch) for number in numbers]
        if not numbers:
            written.append(Written(None, "no-change-open", body.branch))
    return written


def _write(api: ForgeApi, names: Sequence[str], number: int, text: str) -> str:
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
                api.update(number, mine[0].id, body)
                return "updated"
            api.create(number, body)
            return "created"
        except Declined as error:
            # It was deleted since it was listed.
            if not mine or not remaining or "404" not in error.message:
                raise
        except Unavailable as error:
            if not remaining:
                raise
            api.wait(error)
    raise AssertionError("the comment is written, or an error raised")
