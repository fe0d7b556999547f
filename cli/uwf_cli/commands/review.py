"""`uwf publish` and `unpublish`, `uwf workflow propose` and `accept`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from uwf_cli import definitions
from uwf_cli.command import command
from uwf_cli.completers import complete_name
from uwf_cli.definitions import (
    ACCEPTED,
    BRANCH,
    PROPOSAL,
    PROPOSED_BRANCH,
    PUBLISHED,
    REMOTE,
    REVIEW_REMOTE,
    WORKFLOW,
    accepting,
    publish_version,
)
from uwf_cli.exchange import exchange_for, warn_of_large_blobs
from uwf_cli.invocation import Invocation
from uwf_cli.options import THREAD
from uwf_cli.views import Record
from uwf_git.api.versions import bundle_of


@command(
    "uwf publish thread 01JK7M",
    "uwf publish thread 01JK7M --as review/login-bug --remote team",
)
@THREAD
@BRANCH
@REMOTE
def thread(invocation: Invocation, thread: str, branch: str, remote: str | None) -> None:
    """Push a thread to a branch for review.

    The commits are unchanged. The base branch is the workflow version, or the step the thread was forked at.
    Publishing again advances the branch.
    """
    from uwf_git.sync.publish import publish_thread

    instance = invocation.instance
    there = exchange_for(instance, remote)
    published = publish_thread(there, instance.threads.find(thread), branch)
    warn_of_large_blobs(invocation, published.large)
    invocation.emit(published.to_json(), PUBLISHED)


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
    from uwf_git.sync.publish import unpublish as delete

    there = exchange_for(invocation.instance, remote)
    branches = [{"branch": branch, "commit": commit} for branch, commit in delete(there, what, force).items()]
    invocation.emit({"remote": there.remote.name, "unpublished": branches}, _unpublished)


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
@PROPOSED_BRANCH
@click.option(
    "-m",
    "--message",
    metavar="TEXT",
    default="",
    help="Commit message. The first line is the subject. - reads standard input.",
)
@REVIEW_REMOTE
def propose(invocation: Invocation, file: Path, branch: str, message: str, remote: str | None) -> None:
    """Propose a version of a workflow without registering it.

    Without --remote the proposal stays on this machine. Proposing again under the same name adds a version.
    """
    from uwf_cli.resolve import STDIN, compile_file, read_stdin
    from uwf_git.api.workflows import warnings_of

    words = read_stdin("message") if message == STDIN else message
    compiled = compile_file(invocation, file)
    instance = invocation.instance_for_writing()
    definitions.propose(
        invocation,
        instance.registry,
        compiled,
        branch,
        remote,
        lambda _: {**bundle_of(compiled.workflow, instance), **warnings_of(compiled)},
        Record(*WORKFLOW, PROPOSAL),
        instance.without_secrets(words, "the message"),
    )


@command(
    "uwf workflow accept shorter-plan",
    "uwf workflow accept shorter-plan --remote origin",
)
@accepting
def accept(invocation: Invocation, branch: str, remote: str | None) -> None:
    """Register a proposed version: the local one, or with --remote a branch of that remote."""
    accepted, instance = definitions.accept(invocation, branch, remote, "workflow"), invocation.instance
    workflow = instance.registry.workflow(accepted.version.hash)
    value = {**accepted.to_json(), **bundle_of(workflow, instance, accepted.version.commit)}
    invocation.emit(value, Record(*WORKFLOW, ACCEPTED))
