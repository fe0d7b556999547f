"""`uwf land`."""

from __future__ import annotations

from typing import Any

import click

from uwf_git.plugin import Invocation, command, completers, counted, find_head, terminal


@command(
    "uwf land @",
    "uwf land 01JK7M --onto release/2",
    "uwf land 01JK7M --commits keep",
)
@click.argument("thread", metavar="ID", shell_complete=completers.complete_thread)
@click.option("--onto", metavar="BRANCH", help="Branch to land on. Default: the remote's.")
@click.option("--remote", metavar="NAME", help="The project's remote. Default: origin, or the only one.")
@click.option(
    "--commits",
    type=click.Choice(("squash", "keep")),
    help="One commit for all, or each as it is. Default: land.commits.",
)
def land(
    invocation: Invocation, thread: str, onto: str | None, remote: str | None, commits: str | None
) -> None:
    """Land a thread's work on the branch that it is for.

    Its commits are made again on that branch, the workflow's checks run on the result, and that is pushed; without a
    remote, the branch is moved here. A check is a role that a command plays and whose output has `passed`. A conflict
    or a check that fails goes back to the thread, which can go on with it.
    """
    from uwf_git.ext.landing.landing import Landing, Options

    instance = invocation.instance
    head = find_head(invocation, thread)
    instance.require_person(f"lands thread {head.thread}")
    landing = Landing(instance, head, Options(onto or "", remote or "", commits or ""), invocation.note)
    landed = landing.land()
    invocation.emit(landed.as_json(), _view)


def _view(value: Any) -> str:
    where = f"{value['remote']}/{value['onto']}" if value["remote"] else value["onto"]
    passed = [" ".join(check["command"]) for check in value["checks"]]
    commits = counted(value["commits"], "commit")
    return terminal.fields(
        [
            (
                "landed",
                f"{commits} on {where}, which was at {value['base'][:12]} and is {value['commit'][:12]}",
            ),
            ("checks", f"{', '.join(passed)}: passed" if passed else "none"),
        ]
    )
