"""`uwf remote`: where threads are shared with others."""

from __future__ import annotations

from typing import Any

import click

from uwf_cli import terminal
from uwf_cli.command import Command
from uwf_cli.completers import complete_remote
from uwf_cli.invocation import Invocation
from uwf_git.store.remotes import Remote, without_password


@click.command(
    cls=Command,
    examples=(
        "uwf remote add origin git@example.com:team/threads.git",
        "uwf remote add backup /mnt/backup/threads.git",
        "uwf remote add origin                                  in a project: its own remote",
    ),
)
@click.argument("name")
@click.argument("url", required=False)
@click.pass_obj
def add(invocation: Invocation, name: str, url: str | None) -> None:
    """Add a remote. Any git repository that you may push to will do, an empty one too.

    Its refspecs are written into git's configuration of the store, so that plain git fetch and git push
    move the same refs. In a repository shared with code a remote that is there needs no URL; its branches
    are left alone.
    """
    invocation.emit(_value(invocation.instance_for_writing().remotes.add(name, url)), _text)


@click.command("list", cls=Command, examples=("uwf remote list",))
@click.pass_obj
def list_(invocation: Invocation) -> None:
    """List the remotes."""
    found = [_value(remote) for remote in invocation.instance.remotes.all()]

    def text(value: Any) -> str:
        rows = [(terminal.style(each["name"], "bold"), each["url"]) for each in value]
        return terminal.table(rows) if rows else "no remotes; uwf remote add origin URL"

    invocation.emit(found, text)


@click.command(cls=Command, examples=("uwf remote rm backup",))
@click.argument("name", shell_complete=complete_remote)
@click.pass_obj
def rm(invocation: Invocation, name: str) -> None:
    """Forget a remote, and where its refs were. Threads stay as they are, here and there."""
    removed = invocation.instance.remotes.remove(name)
    invocation.emit({**_value(removed), "removed": True}, lambda value: f"forgot {value['name']}")


def _value(remote: Remote) -> dict[str, Any]:
    value = {"name": remote.name, "url": without_password(remote.url)}
    if remote.push_url != remote.url:
        value["pushUrl"] = without_password(remote.push_url)
    return value


def _text(value: Any) -> str:
    return terminal.fields([("remote", terminal.style(value["name"], "bold")), ("url", value["url"])])
