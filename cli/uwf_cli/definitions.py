"""What the commands of all definitions have in common, those of workflows, crews and baselines: their versions and
history, publishing, proposing, accepting, and who uses one that is removed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from uwf_cli import options
from uwf_cli.exchange import exchange_for, warn_of_large_blobs
from uwf_cli.invocation import Invocation
from uwf_cli.views import Record, View, render

if TYPE_CHECKING:
    from uwf_git.api.versions import Versions, WorkflowUse
    from uwf_git.sync.proposals import Accepted, Proposal

_F = TypeVar("_F", bound=Callable[..., Any])

REMOTE = options.remote(help="Remote to push to. Default: origin, or the only remote.")
BRANCH = click.option(
    "--as",
    "branch",
    metavar="BRANCH",
    default="",
    help="Branch name. Default: the thread's id or the workflow's name.",
)
PROPOSED_BRANCH = click.option("--branch", metavar="BRANCH", required=True, help="Name of the proposal.")
REVIEW_REMOTE = options.remote(help="Push the proposal to this remote for review.")


def _code(version: Any) -> str:
    if "bundle" not in version:
        return ""
    trust = f", not trusted here: uwf workflow trust {version['name']}"
    trust = "" if version.get("trusted", True) else trust
    return f"{version['bundle']}, {version['language']}" + (
        f", {version['problem']}" if "problem" in version else trust
    )


WORKFLOW = (("workflow", "{name:bold}"), ("bundle", _code), "hash", "commit")
"""The fields of a version of a workflow."""


def history_note(version: Any) -> str:
    notes = ["current"] if version["current"] else []
    notes += [] if version.get("trusted", True) else ["not trusted here"]
    if version["backTo"]:
        notes.append(f"back to {version['backTo']}")
    if version["takenFrom"]:
        notes.append(f"accepted from {version['takenFrom'][:10]}")
    return ", ".join(notes)


# Publishing


def _pages(branch: Any) -> list[tuple[str, str]]:
    """Return the forge's pages of a published branch, its own last."""
    pages = dict(branch["pages"] or {})
    page = pages.pop("branch", "")
    return [*((name, url or "") for name, url in pages.items()), ("page", page)]


PUBLISHED = Record(
    *(("branch", "{branch:bold}"), "commit"),
    ("base", lambda branch: branch["baseBranch"] or "none: this is the first"),
    _pages,
)


def publish_version(
    invocation: Invocation, versions: Versions[Any], name: str, branch: str, remote: str | None
) -> None:
    """Push the newest version of a definition to a branch, and print it."""
    from uwf_git.sync.publish import publish_version as push

    published = push(exchange_for(invocation.instance, remote), versions, name, branch)
    warn_of_large_blobs(invocation, published.large)
    invocation.emit(published.to_json(), PUBLISHED)


# Proposing and accepting

PROPOSAL = (
    "proposal",
    lambda value: value["branch"] if value["changed"] else f"{value['branch']}: nothing new",
)
ACCEPTED = ("accepted", "case")


def propose(
    invocation: Invocation,
    versions: Versions[Any],
    definition: Any,
    branch: str,
    remote: str | None,
    more: Callable[[Proposal], Mapping[str, Any]],
    view: View,
    words: str = "",
) -> None:
    """Propose a version of a definition, push it if a remote is named, and print it with `more`."""
    from uwf_git.sync.proposals import propose, publish_proposal

    instance = invocation.instance
    exchange = exchange_for(instance, remote) if remote else None
    proposal = propose(instance, versions, definition, branch, words)
    value = {**proposal.to_json(), **more(proposal)}
    if exchange is not None and not proposal.is_registered:
        published = publish_proposal(exchange, proposal)
        warn_of_large_blobs(invocation, published.large)
        value |= {"remote": exchange.remote.name, "published": published.to_json()}
    invocation.emit(value, lambda shown: _proposed(view, shown))


def _proposed(view: View, value: Any) -> str:
    text = render(view, value)
    return f"{text}\n{PUBLISHED(value['published'])}" if "published" in value else text


def accepting(function: _F) -> _F:
    """Add the branch and the remote of a proposal to accept."""
    return click.argument("branch")(options.remote(help="Accept the proposal of this remote.")(function))


def accept(invocation: Invocation, branch: str, remote: str | None, kind: str) -> Accepted:
    from uwf_git.api.exchange import accept_proposal

    instance = invocation.instance
    return accept_proposal(instance, branch, exchange_for(instance, remote) if remote else None, kind)


# Removing


def warn_of_use(invocation: Invocation, use: WorkflowUse, what: str) -> dict[str, Any]:
    """Warn of the users of something removed; return the result's part."""
    for user in use.users:
        invocation.warn(f"{what} was in use: {user}")
    for key in use.settings:
        invocation.warn(f"config.yaml still has {key}")
    return use.to_json()
