"""`uwf publish crew`."""

from __future__ import annotations

import click

from uwf_git.plugin import (
    BRANCH_OPTION,
    PUBLISH_REMOTE_OPTION,
    Invocation,
    command,
    complete_crew,
    publish_version,
)


@command(
    "uwf publish crew trip",
    "uwf publish crew trip --remote team",
)
@click.argument("crew", metavar="NAME", shell_complete=complete_crew)
@BRANCH_OPTION
@PUBLISH_REMOTE_OPTION
def crew(invocation: Invocation, crew: str, branch: str, remote: str | None) -> None:
    """Push a crew's newest version to a branch for review. Proposals can be merged into it."""
    from uwf_git.ext.crews.registry import Crews

    publish_version(invocation, Crews(invocation.instance.store), crew, branch, remote)
