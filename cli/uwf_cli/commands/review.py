"""`uwf publish` and `unpublish`, `uwf workflow propose` and `accept`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from uwf_cli.command import command
from uwf_cli.commands.workflow import VERSION
from uwf_cli.completers import (
    complete_name,
    complete_remote,
    complete_thread,
)
from uwf_cli.exchange import exchange_for, warn_of_large_blobs
from uwf_cli.invocation import Invocation
from uwf_cli.views import Record, View, render
from uwf_git.api.versions import bundle_of

if TYPE_CHECKING:
    from uwf_git.api.exchange import Remote
    from uwf_git.api.review import Proposal
    from uwf_git.api.versions import Versions

REMOTE = click.option(
    "--remote",
    metavar="NAME",
    shell_complete=complete_remote,
    help="Remote to push to. Default: origin, or the only remote.",
)
BRANCH = click.option(
    "--as",
    "branch",
    metavar="BRANCH",
    default="",
    help="Branch name. Default: the thread's id or the workflow's name.",
)


@command(
    "uwf publish thread 01JK7M",
    "uwf publish thread 01JK7M --as review/login-bug --remote team",
)
@click.argument("thread", metavar="ID", shell_complete=complete_thread)
@BRANCH
@REMOTE
def thread(invocation: Invocation, thread: str, branch: str, remote: str | None) -> None:
    """Push a thread to a branch for review.

    The commits are unchanged. The base branch is the workflow version, or the step the thread was forked at.
    Publishing again advances the branch.
    """
    from uwf_git.api.review import publish_thread

    instance = invocation.instance
    there = exchange_for(instance, remote)
    found = publish_thread(there, instance.threads.find(thread), branch)
    warn_of_large_blobs(invocation, found.large)
    invocation.emit(found.to_json(), _PUBLISHED)


@command(
    "uwf publish workflow solve-issue",
    "uwf publish workflow solve-issue --remote team",
)
@click.argument("workflow", metavar="NAME", shell_complete=complete_name)
@BRANCH
@REMOTE
def workflow(invocation: Invocation, workflow: str, branch: str, remote: str | None) -> None:
    """Push a workflow's newest version to a branch for review. Proposals can be merged into it."""
    publish_version(invocation, invocation.instance.registry, workflow, branch, remote)


def publish_version(
    invocation: Invocation, versions: Versions[Any], name: str, branch: str, remote: str | None
) -> None:
    """Push the newest version of a definition to a branch, and print it."""
    from uwf_git.api.review import publish_version as push

    found = push(exchange_for(invocation.instance, remote), versions, name, branch)
    warn_of_large_blobs(invocation, found.large)
    invocation.emit(found.to_json(), _PUBLISHED)


@command(
    "uwf unpublish 01JK7M",
    "uwf unpublish solve-issue",
    "uwf unpublish review/login-bug --remote team",
    "uwf unpublish solve-issue --force       also what was not adopted",
)
@click.argument("what", metavar="BRANCH|ID|NAME")
@click.option("--force", is_flag=True, help="Delete the branch even if it has commits that are not here.")
@REMOTE
def unpublish(invocation: Invocation, what: str, force: bool, remote: str | None) -> None:
    """Delete a published branch and its base from a remote. Threads, workflows and crews are kept.

    A branch with commits that are not in this store, such as a reviewer's edit, is kept unless --force is
    given. The deleted branches' commits are printed.
    """
    from uwf_git.api.review import unpublish as delete

    invocation.emit(delete(exchange_for(invocation.instance, remote), what, force), _unpublished)


def _pages(published: Any) -> list[tuple[str, str]]:
    """Return the published branch's pages on the forge, its own last."""
    pages = dict(published["pages"] or {})
    page = pages.pop("branch", "")
    return [*((name, url or "") for name, url in pages.items()), ("page", page)]


_PUBLISHED = Record(
    *(("branch", "{branch:bold}"), "commit"),
    ("base", lambda published: published["baseBranch"] or "none: this is the first"),
    _pages,
)


def _unpublished(value: Any) -> str:
    return "\n".join(
        f"deleted {branch['branch']} from {value['remote']}; it was at {branch['commit']}"
        for branch in value["unpublished"]
    )


@command(
    "uwf workflow propose solve-issue.yaml --branch shorter-plan",
    "uwf workflow propose solve-issue.yaml --branch shorter-plan --remote origin",
    'uwf workflow propose solve-issue.yaml --branch shorter -m "Plan in 3 steps"',
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--branch", metavar="BRANCH", required=True, help="Name of the proposal.")
@click.option(
    "-m",
    "--message",
    metavar="TEXT",
    default="",
    help="Commit message. The first line is the subject. - reads standard input.",
)
@click.option(
    "--remote",
    metavar="NAME",
    shell_complete=complete_remote,
    help="Push the proposal to this remote for review.",
)
def propose(invocation: Invocation, file: Path, branch: str, message: str, remote: str | None) -> None:
    """Propose a version of a workflow without registering it.

    Without --remote the proposal stays on this machine. Proposing again under the same name adds a version.
    """
    from uwf_cli.resolve import STDIN, compile_file, read_stdin
    from uwf_git.api.review import propose as make
    from uwf_git.api.workflows import warnings_of

    words = read_stdin("message") if message == STDIN else message
    compiled = compile_file(invocation, file)
    instance = invocation.instance_for_writing()
    chosen = instance.remotes.get(remote) if remote else None
    clean = instance.without_secrets(words, "the message")
    proposal = make(instance, instance.registry, compiled, branch, clean)
    value = {**proposal.to_json(), **bundle_of(compiled.workflow, instance), **warnings_of(compiled)}
    invocation.emit(
        {**value, **publish_proposed(invocation, chosen, proposal)}, proposed(Record(*VERSION, PROPOSAL))
    )


PROPOSAL = (
    "proposal",
    lambda value: value["branch"] if value["changed"] else f"{value['branch']}: nothing new",
)
ACCEPTED = ("accepted", "case")


def proposed(view: View) -> View:
    """Return a view of a proposal, and of the branch that it was published on."""
    return lambda value: "\n".join(
        [render(view, value), *([_PUBLISHED(value["published"])] if "published" in value else [])]
    )


def publish_proposed(invocation: Invocation, remote: Remote | None, proposal: Proposal) -> dict[str, Any]:
    """Push a proposal if a remote is named; return the result's part."""
    from uwf_git.api.review import publish_proposal

    if remote is None or proposal.is_registered:
        return {}
    published = publish_proposal(exchange_for(invocation.instance, remote), proposal)
    warn_of_large_blobs(invocation, published.large)
    return {"remote": remote.name, "published": published.to_json()}


@command(
    "uwf workflow accept shorter-plan",
    "uwf workflow accept shorter-plan --remote origin",
)
@click.argument("branch")
@click.option(
    "--remote", metavar="NAME", shell_complete=complete_remote, help="Accept the proposal of this remote."
)
def accept(invocation: Invocation, branch: str, remote: str | None) -> None:
    """Register a proposed version: the local one, or with --remote a branch of that remote."""
    from uwf_git.api.review import accept as take

    instance = invocation.instance
    accepted = take(instance, branch, exchange_for(instance, remote) if remote else None, "workflow")
    workflow = instance.registry.workflow(accepted.version.hash)
    value = {**accepted.to_json(), **bundle_of(workflow, instance, accepted.version.commit)}
    invocation.emit(value, Record(*VERSION, ACCEPTED))
