"""A CI job: which forge runs it, and which commits it is about.

Everything comes from the environment and the event's file, in part from strangers: names of branches are theirs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from uwf_git.plugin import Invalid, Usage, branch_name, one_line

FORGES = ("github", "gitlab", "forgejo", "gitea")
OPTIONAL, REQUIRED = "optional", "required"
"""Whether a change may be without claims."""

CHANGE, BRANCH, SWEEP = "change", "branch", "sweep"
"""What a job is about: a pull or merge request, a pushed branch, all published branches."""

_LARGEST_EVENT = 32 << 20
_OID = re.compile(r"[0-9a-f]{40}")
_CHANGE_REF = re.compile(r"refs/(?:pull|merge-requests)/([1-9][0-9]{0,17})/(?:merge|head)")
# They run with the rights and secrets of the repository for changes of strangers.
_PRIVILEGED = {"pull_request_target", "workflow_run", "issue_comment", "pull_request_comment"}
_EVENTS = {"pull_request": CHANGE, "push": BRANCH, "workflow_dispatch": SWEEP, "schedule": SWEEP}
_GITLAB_SOURCES = {"merge_request_event": CHANGE, "push": BRANCH, "web": BRANCH, "api": BRANCH}


class Job(NamedTuple):
    """A job. `number` is that of the pull or merge request. `head` and `base` are commits as the forge names
    them, "" if it doesn't; `branch` is the source's name, of a sweep the only one to check, "" for all; `target` is
    the branch that a change is to be merged into.
    `repository` is OWNER/NAME, on GitLab a project's number; `api` is the address of the REST API; `text` is a change's
    text, without its end if it `is_cut`."""

    forge: str
    about: str
    number: int | None = None
    head: str = ""
    base: str = ""
    branch: str = ""
    repository: str = ""
    api: str = ""
    target: str = ""
    text: str = ""
    is_cut: bool = False

    @property
    def has_workflow_commands(self) -> bool:
        """Whether the runner reads commands such as `::error::` from the output."""
        return self.forge != "gitlab"


def read_job(environment: Mapping[str, str]) -> Job:
    """Return the job of an environment. Raises Usage outside of a CI job or on a privileged event, Invalid."""
    if environment.get("GITLAB_CI") == "true":
        return _gitlab(environment)
    if environment.get("GITHUB_ACTIONS") != "true" and environment.get("GITEA_ACTIONS") != "true":
        raise Usage("this is not a CI job of a known forge", "to verify a checkout: uwf verify .")
    forge = "github"
    if environment.get("FORGEJO_ACTIONS") == "true":
        forge = "forgejo"
    elif environment.get("GITEA_ACTIONS") == "true":
        forge = "gitea"
    return _actions(forge, environment)


def _actions(forge: str, environment: Mapping[str, str]) -> Job:
    event = environment.get("GITHUB_EVENT_NAME", "")
    if event in _PRIVILEGED:
        raise Usage(
            f"uwf ci does not run on the event {event}, which gives strangers' changes the repository's rights",
            "use the triggers of: uwf ci print " + forge,
        )
    if event not in _EVENTS:
        raise Usage(
            f"uwf ci does not know the event {one_line(event, 60)!r}", "it is one of " + ", ".join(_EVENTS)
        )
    server = environment.get("GITHUB_SERVER_URL", "").rstrip("/")
    api = f"{server}/api/v3" if forge == "github" else f"{server}/api/v1"
    job = Job(
        forge,
        _EVENTS[event],
        repository=environment.get("GITHUB_REPOSITORY", ""),
        api=environment.get("GITHUB_API_URL") or api,
    )
    payload = _payload(environment.get("GITHUB_EVENT_PATH", ""))
    ref = environment.get("GITHUB_REF", "")
    if job.about == CHANGE:
        change = _mapping(payload, "pull_request")
        number = _number(change.get("number")) or _number_in(ref)
        if number is None:
            raise Invalid("the event has no pull request", "see GITHUB_EVENT_PATH and GITHUB_REF")
        head, base = _mapping(change, "head"), _mapping(change, "base")
        return job._replace(
            number=number,
            head=_oid(head.get("sha")),
            base=_oid(base.get("sha")),
            branch=named_branch(head.get("ref")),
            target=named_branch(base.get("ref") or environment.get("GITHUB_BASE_REF")),
            text=_text(change.get("body")),
        )
    if job.about == BRANCH:
        return job._replace(
            head=_oid(environment.get("GITHUB_SHA")),
            base=_oid(payload.get("before")),
            branch=named_branch(ref),
        )
    return job._replace(branch=_asked(_mapping(payload, "inputs").get("branch")))


def _gitlab(environment: Mapping[str, str]) -> Job:
    source = environment.get("CI_PIPELINE_SOURCE", "")
    about = _GITLAB_SOURCES.get(source)
    if about is None:
        raise Usage(
            f"uwf ci does not know pipelines of {one_line(source, 60)!r}",
            "it is one of " + ", ".join(_GITLAB_SOURCES),
        )
    project = environment.get("CI_MERGE_REQUEST_PROJECT_ID") or environment.get("CI_PROJECT_ID", "")
    job = Job("gitlab", about, repository=project, api=environment.get("CI_API_V4_URL", ""))
    if about == CHANGE:
        number = _number(environment.get("CI_MERGE_REQUEST_IID"))
        if number is None:
            raise Invalid("the pipeline has no merge request", "see CI_MERGE_REQUEST_IID")
        # Of a merged result the commit is GitLab's merge, and this is set.
        head = environment.get("CI_MERGE_REQUEST_SOURCE_BRANCH_SHA") or environment.get("CI_COMMIT_SHA")
        return job._replace(
            number=number,
            head=_oid(head),
            base=_oid(environment.get("CI_MERGE_REQUEST_DIFF_BASE_SHA")),
            branch=named_branch(environment.get("CI_MERGE_REQUEST_SOURCE_BRANCH_NAME")),
            target=named_branch(environment.get("CI_MERGE_REQUEST_TARGET_BRANCH_NAME")),
            text=_text(environment.get("CI_MERGE_REQUEST_DESCRIPTION")),
            is_cut=environment.get("CI_MERGE_REQUEST_DESCRIPTION_IS_TRUNCATED") == "true",
        )
    return job._replace(
        head=_oid(environment.get("CI_COMMIT_SHA")),
        base=_oid(environment.get("CI_COMMIT_BEFORE_SHA")),
        branch=named_branch(environment.get("CI_COMMIT_BRANCH")),
    )


def _payload(path: str) -> Mapping[str, Any]:
    if not path:
        return {}
    try:
        with Path(path).open("rb") as file:
            text = file.read(_LARGEST_EVENT + 1)
        if len(text) > _LARGEST_EVENT:
            raise Invalid("the event is too large", f"GITHUB_EVENT_PATH has over {_LARGEST_EVENT >> 20} MiB")
        value = json.loads(text)
    except OSError as error:
        raise Invalid(f"cannot read the event: {error.strerror}", "see GITHUB_EVENT_PATH") from None
    except (ValueError, RecursionError):
        raise Invalid("the event is not JSON", "see GITHUB_EVENT_PATH") from None
    return value if isinstance(value, dict) else {}


def _mapping(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    inner = value.get(key)
    return inner if isinstance(inner, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _number(value: Any) -> int | None:
    text = str(value) if isinstance(value, int | str) and not isinstance(value, bool) else ""
    return int(text) if re.fullmatch("[1-9][0-9]{0,17}", text) else None


def _number_in(ref: str) -> int | None:
    match = _CHANGE_REF.fullmatch(ref)
    return int(match[1]) if match else None


def _oid(value: Any) -> str:
    """Return a commit's id; "" for none, or for the zeros that stand for a branch's first push."""
    text = value if isinstance(value, str) else ""
    return text if _OID.fullmatch(text) and text.strip("0") else ""


def named_branch(value: Any) -> str:
    """Return a branch's name, "" if it is none that git would take."""
    if not isinstance(value, str) or not value:
        return ""
    try:
        return branch_name(value)
    except Invalid:
        return ""


def _asked(value: Any) -> str:
    """Return the branch that a user asked for, "" for all. Raises Invalid."""
    return branch_name(value.strip()) if isinstance(value, str) and value.strip() else ""
