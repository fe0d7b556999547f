"""`uwf help`."""

from __future__ import annotations

import click

from uwf_cli.command import Group, command
from uwf_cli.invocation import Invocation


@command("uwf help", "uwf help thread start    the same as: uwf thread start --help")
@click.argument("names", metavar="[COMMAND]", nargs=-1)
@click.pass_context
def help_(context: click.Context, _invocation: Invocation, names: tuple[str, ...]) -> None:
    """Print the help of a command."""
    found = context.find_root()
    for name in names:
        group = found.command
        if not isinstance(group, Group):
            break
        _, member, _ = group.resolve_command(found, [name])
        assert member is not None
        found = click.Context(member, info_name=name, parent=found)
    click.echo(found.get_help(), color=False)
