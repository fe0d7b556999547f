"""`uwf help`."""

from __future__ import annotations

import re

import click

from uwf_cli.command import Group, command
from uwf_cli.invocation import Invocation

TOPICS = ("environment", "exit-statuses", "output", "storage", "threads")
"""The texts in the folder `topics`."""
_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")


@command(
    "uwf help",
    "uwf help thread start    the same as: uwf thread start --help",
    "uwf help exit-statuses",
)
@click.argument("names", metavar="[COMMAND|TOPIC]", nargs=-1)
@click.pass_context
def help_(context: click.Context, invocation: Invocation, names: tuple[str, ...]) -> None:
    """Print the help of a command or a topic.

    Topics: environment, exit-statuses, output, storage, threads.
    """
    if len(names) == 1 and names[0] in TOPICS:
        text = _LINK.sub(r"\1", topic(names[0]))
        invocation.emit_document(text, {"topic": names[0], "text": text}, rich=True)
        return
    found = context.find_root()
    for name in names:
        group = found.command
        if not isinstance(group, Group):
            break
        _, member, _ = group.resolve_command(found, [name])
        assert member is not None
        found = click.Context(member, info_name=name, parent=found)
    click.echo(found.get_help(), color=False)


def topic(name: str) -> str:
    """Return the Markdown of one of TOPICS."""
    from importlib.resources import files

    return (files("uwf_cli") / "topics" / f"{name}.md").read_text(encoding="utf-8")
