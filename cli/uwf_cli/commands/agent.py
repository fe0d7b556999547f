"""`uwf agent put-step`: the answer of an agent without the kit."""

from __future__ import annotations

import os

import click

from uwf_cli.command import command
from uwf_cli.invocation import Invocation
from uwf_git.base.errors import Usage


@command(
    """uwf agent put-step '{"approved": true}'""",
    'my-model "$(uwf thread prompt "$UWF_THREAD")" | uwf agent put-step -',
)
@click.argument("answer")
@click.option(
    "--name", metavar="NAME", default="", help="Name to record for the agent. Default: its program's name."
)
def put_step(invocation: Invocation, answer: str, name: str) -> None:
    """Record an agent's answer as a step and print the hash that the agent must print.

    For agents written without the kit. UWF_THREAD and UWF_ROLE name the step. ANSWER is the output as JSON,
    or text that contains it; - reads standard input.
    """
    from uwf_cli.resolve import STDIN, read_stdin
    from uwf_git.engine.kit.agent import put_step as put
    from uwf_git.format.ids import parse_thread_id

    thread, role = os.environ.get("UWF_THREAD"), os.environ.get("UWF_ROLE")
    if not thread or not role:
        raise Usage(
            "UWF_THREAD and UWF_ROLE name no step", "call it in an agent's command, for which uwf sets them"
        )
    text = read_stdin("answer") if answer == STDIN else answer
    # A hash whatever the format is: the agent's last line must be that.
    invocation.write(put(invocation.instance, parse_thread_id(thread), role, text, name))
