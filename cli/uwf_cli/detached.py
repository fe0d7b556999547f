"""Runs in the background, without a daemon: `uwf thread run` in a session of its own, for `--detach`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from uwf_cli.invocation import Invocation, itself
from uwf_cli.views import Record
from uwf_git.base import system
from uwf_git.base.errors import Usage
from uwf_git.base.lifetime import deferred
from uwf_git.sandbox.child import spawn

if TYPE_CHECKING:
    from uwf_git.api.run import Options
    from uwf_git.format.ids import ThreadId

DETACH = click.option(
    "--detach", is_flag=True, help="Run in the background: return at once, and run on without a terminal."
)


def detach(
    invocation: Invocation, thread: ThreadId, options: Options, most: int, value: Mapping[str, Any]
) -> None:
    """Run a thread in a process of its own, and print `value` and how to follow it. The process has the run
    when this returns: it inherits the lock. Raises Usage within a step, Busy, Invalid for a thread that has
    ended, and what its first step would raise without an agent."""
    from uwf_git.api.start import require_agent
    from uwf_git.api.waiting import raise_if_waiting
    from uwf_git.config.resolve import AgentOptions

    system.require("runs in the background")
    instance = invocation.instance
    if "UWF_THREAD" in os.environ:
        raise Usage(
            "a step or hook cannot start a run in the background, as all that it starts ends with it",
            "leave out --detach, or begin a thread for others to run: uwf thread start",
        )
    if isinstance(options.agent, str | AgentOptions):
        require_agent(instance.config_of(instance.threads.active_head(thread).row), options.agent)
    with instance.locks.run(thread) as lock:
        head = instance.threads.active_head(thread)
        if not value:  # a thread that was started for this run is told to its caller in any case
            raise_if_waiting(instance, head, options.agent)
        with instance.runs.begin_detached_output(thread) as output, deferred():
            spawn(
                _command(invocation, thread, options, most),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=None,
                env=os.environ,
                pass_fds=(lock,),
            )
    printed = str(instance.runs.detached_output(thread))
    invocation.emit({**value, "thread": thread, "detached": True, "log": printed}, _DETACHED)


_DETACHED = Record(
    *(("thread", "{thread:bold}"), ("fork of", "{forkedFrom[thread]}, after step {at}"), "log"),
    *(
        ("watch", "uwf watch {thread}"),
        ("wait", "uwf thread wait {thread}"),
        ("stop", "uwf thread stop {thread}"),
    ),
)


def run_words(most: int, options: Options, remote: str | None) -> list[str]:
    """Return the options of a `uwf thread run` that runs a thread with these."""
    from uwf_git.api.run import FOREVER
    from uwf_git.config.resolve import AgentOptions

    agent = options.agent
    agents = agent.words if isinstance(agent, AgentOptions) else () if agent is None else (agent,)
    given = [
        ("--max-steps", most),
        *(("--agent", item) for item in agents),
        ("--cwd", options.cwd),
        ("--files", options.files or None),
        ("--remote", remote),
    ]
    words = [f"{name}={value}" for name, value in given if value is not None]
    return [*words, "--wait"] if options.patience == FOREVER else words


def _command(invocation: Invocation, thread: ThreadId, options: Options, most: int) -> list[str]:
    root = ["--root", str(Path(invocation.root_option).absolute())] if invocation.root_option else []
    remote = options.exchange.remote.name if options.exchange else None
    return itself("text", *root, "thread", "run", thread, *run_words(most, options, remote))
