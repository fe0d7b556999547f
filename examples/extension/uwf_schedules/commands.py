"""The group `uwf schedule`."""

from __future__ import annotations

import click

from uwf_git.plugin import (
    Failures,
    Invocation,
    Table,
    Usage,
    UwfError,
    command,
    command_group,
    parse_duration,
)
from uwf_schedules.schedules import Schedules, start


@command("uwf schedule set nightly --workflow solve-issue --every 1d --prompt 'Triage what came in.'")
@click.argument("name")
@click.option("--workflow", required=True, metavar="NAME", help="The workflow to start.")
@click.option("--every", required=True, metavar="TIME", help="How often: 90s, 12h, 1d.")
@click.option("--prompt", "-p", required=True, metavar="TEXT", help="The prompt of each thread.")
def set_(invocation: Invocation, name: str, workflow: str, every: str, prompt: str) -> None:
    """Register a schedule under its name. Nothing is started yet."""
    seconds = parse_duration(every)
    if seconds is None:
        raise Usage(f"--every {every!r} is no time", "give it as 90s, 12h or 1d")
    definition = {"name": name, "workflow": workflow, "prompt": prompt, "every": seconds}
    version = Schedules(invocation.instance.store).put(definition)
    invocation.emit({**definition, "hash": version.hash}, "{name} {hash}")


@command("uwf schedule list")
def list_(invocation: Invocation) -> None:
    """List the schedules."""
    columns = (("schedule", "name"), "workflow", ("every", "{every:g} s"), "prompt")
    invocation.emit(Schedules(invocation.instance.store).every(), Table(*columns, empty="no schedule"))


@command("uwf schedule start")
def start_(invocation: Invocation) -> None:
    """Start the threads that are due, and print their ids."""
    instance, failures, started = invocation.instance, Failures(invocation), []
    for schedule in Schedules(instance.store).due():
        try:
            started.append(start(instance, schedule).id)
        except UwfError as error:  # the others are due nevertheless
            failures.add(error)
    invocation.emit({"started": started}, lambda shown: "\n".join(shown["started"]))
    failures.end()


schedule = command_group(
    "uwf_schedules",
    "schedule",
    {
        "set": ("commands", "Register a schedule under its name."),
        "list": ("commands", "List the schedules."),
        "start": ("commands:start_", "Start the threads that are due."),
    },
    examples=("uwf schedule start",),
    help="Start threads again and again.",
)
