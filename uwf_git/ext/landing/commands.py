"""`uwf land`."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from uwf_git.plugin import Invocation, command, completers, counted, find_head, terminal


@command(
    "uwf land @",
    "uwf land 01JK7M --onto release/2",
    "uwf land 01JK7M --no-forge > request.md",
)
@click.argument("thread", metavar="ID", shell_complete=completers.complete_thread)
@click.option("--onto", metavar="BRANCH", help="Branch to land on. Default: the remote's.")
@click.option("--branch", metavar="NAME", help="Branch of the request. Default: as land.branch makes it.")
@click.option("--remote", metavar="NAME", help="The project's remote. Default: origin, or the only one.")
@click.option(
    "--commits",
    type=click.Choice(("squash", "keep")),
    help="One commit for all, or each as it is. Default: land.commits.",
)
@click.option("--no-forge", "plain", is_flag=True, help="Ask no forge: push to the branch itself.")
def land(
    invocation: Invocation,
    thread: str,
    onto: str | None,
    branch: str | None,
    remote: str | None,
    commits: str | None,
    plain: bool,
) -> None:
    """Land a thread's work on the branch that it is for.

    Its commits are made again on that branch, and the workflow's checks run on the result. If the remote is on a forge,
    that is pushed to a branch of its own, and a pull request is opened or brought up to date: a draft until the thread
    has ended. Else the branch itself is pushed, or moved here without a remote. A check is a role that a command plays
    and whose output says passed. A conflict or a failed check goes back to the thread.
    """
    from uwf_git.ext.landing.landing import Landing, Options

    instance = invocation.instance
    head = find_head(invocation, thread)
    instance.require_person(f"lands thread {head.thread}")
    options = Options(onto or "", branch or "", remote or "", commits or "", plain)
    landed = Landing(instance, head, options, invocation.note).land()
    invocation.emit(landed.as_json(), partial(_view, with_text=plain))


def _view(value: Any, with_text: bool) -> str:
    where = f"{value['remote']}/{value['onto']}" if value["remote"] else value["onto"]
    passed = [" ".join(check["command"]) for check in value["checks"]]
    what = f"{counted(value['commits'], 'commit')} on {where} ({value['base'][:12]})"
    rows = [("checks", f"{', '.join(passed)}: passed" if passed else "none")]
    if (pull := value["pull"]) is not None:
        rows = [("branch", f"{value['branch']}  {what}"), *rows]
        rows.append(("pull", f"{pull['url']}  draft: {'yes' if pull['draft'] else 'no'}"))
    else:
        rows = [("landed", f"{what}, which is {value['commit'][:12]} now"), *rows]
    text = f"\n\n{value['request']['title']}\n\n{value['request']['body'].rstrip()}" if with_text else ""
    return terminal.fields(rows) + text
