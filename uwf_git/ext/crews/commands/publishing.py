"""`uwf publish crew`."""

from __future__ import annotations

import click

from uwf_git.plugin import Invocation, command, completers, definitions


@command(
    "uwf publish crew trip",
    "uwf publish crew trip --remote team",
)
@click.argument("crew", metavar="NAME", shell_complete=completers.complete_crew)
@definitions.BRANCH
@definitions.REMOTE
def crew(invocation: Invocation, crew: str, branch: str, remote: str | None) -> None:
    """Push a crew's newest version to a branch for review. Proposals can be merged into it."""
    from uwf_git.ext.crews.registry import Crews

    definitions.publish_version(invocation, Crews(invocation.instance.store), crew, branch, remote)
