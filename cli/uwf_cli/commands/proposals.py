"""`uwf workflow propose` and `accept`: changes of a workflow that others look at first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from uwf_cli import terminal
from uwf_cli.command import Command
from uwf_cli.commands.publish import published_text
from uwf_cli.completers import complete_remote
from uwf_cli.exchange import git_for, tell_large
from uwf_cli.invocation import Invocation


@click.command(
    cls=Command,
    examples=(
        "uwf workflow propose solve-issue.yaml --branch shorter-plan",
        "uwf workflow propose solve-issue.yaml --branch shorter-plan --remote origin",
    ),
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--branch", metavar="BRANCH", required=True, help="The proposal's name.")
@click.option(
    "--remote", metavar="NAME", shell_complete=complete_remote, help="Also push it there, for review."
)
@click.pass_obj
def propose(invocation: Invocation, file: Path, branch: str, remote: str | None) -> None:
    """Propose a version of a workflow without registering it.

    Without --remote nothing leaves this machine. Proposing again under the same name adds a version.
    """
    from uwf_git.sharing.proposals import propose as make
    from uwf_git.sharing.proposals import publish_proposal
    from uwf_git.workflow.compile import compile_source
    from uwf_git.workflow.source import read_source

    compiled = compile_source(read_source(file))
    for finding in compiled.warnings:
        invocation.note(f"{file}:{finding.line}:{finding.column}: warning: {finding.message}")
    instance = invocation.instance_for_writing()
    chosen = instance.remotes.get(remote) if remote else None
    proposal = make(instance, compiled, branch)
    value = proposal._asdict()
    if chosen is not None and not proposal.is_registered:
        published = publish_proposal(instance, git_for(instance), chosen, proposal)
        tell_large(invocation, published.large)
        value = {**value, "remote": chosen.name, "published": published.to_json()}
    invocation.emit(value, _proposed_text)


@click.command(
    cls=Command,
    examples=(
        "uwf workflow accept shorter-plan",
        "uwf workflow accept shorter-plan --remote origin",
    ),
)
@click.argument("branch")
@click.option("--remote", metavar="NAME", shell_complete=complete_remote, help="Take what is on that remote.")
@click.pass_obj
def accept(invocation: Invocation, branch: str, remote: str | None) -> None:
    """Register a proposed version: the one made here, or with --remote a branch of a remote."""
    from uwf_git.sharing.proposals import accept as take

    instance = invocation.instance
    chosen = instance.remotes.get(remote) if remote else None
    accepted = take(instance, git_for(instance), branch, chosen)
    invocation.emit(accepted.to_json(), _accepted_text)


def _proposed_text(value: Any) -> str:
    rows = [
        ("workflow", terminal.style(value["name"], "bold")),
        ("hash", value["hash"]),
        ("commit", value["commit"]),
        ("proposal", value["branch"] if value["changed"] else f"{value['branch']}: nothing new"),
    ]
    text = terminal.fields(rows)
    return text + "\n" + published_text(value["published"]) if "published" in value else text


def _accepted_text(value: Any) -> str:
    return terminal.fields(
        [
            ("workflow", terminal.style(value["name"], "bold")),
            ("hash", value["hash"]),
            ("commit", value["commit"]),
            ("accepted", value["case"]),
        ]
    )
