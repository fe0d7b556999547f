"""Making steps: one, or as many as there are. This is the only loop over steps; the command, the evaluation, crews and
the agent that plays a role by another workflow run theirs through it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from uwf_git.base.errors import UwfError
from uwf_git.engine import step as engine
from uwf_git.engine.step import Outcome as Outcome
from uwf_git.format.ids import ThreadId
from uwf_git.store.opened import Instance

if TYPE_CHECKING:
    from uwf_git.api.exchange import Exchange
    from uwf_git.engine.kit.agent import Agent


class Options(NamedTuple):
    """How a step is made. `agent` is an alias, a command or an agent of this program, and goes before the
    configuration; `cwd` is where agents work, remembered for later steps; `on_stderr` is handed what an agent's command
    writes to standard error. `hooks` says whether the user's hooks are run."""

    agent: str | Agent | None = None
    cwd: Path | None = None
    on_stderr: Callable[[bytes], None] | None = None
    exchange: Exchange | None = None
    hooks: bool = True


def step(instance: Instance, thread: ThreadId, options: Options) -> Outcome:
    """Make the next step of a thread. Raises what `engine.step.step` raises, and with a remote what `shared_step`
    does."""
    agent, cwd, on_stderr, exchange, hooks = options
    if exchange is not None:
        from uwf_git.sync.step import shared_step

        return shared_step(instance, exchange.git, exchange.remote, thread, agent, cwd, on_stderr)
    make = engine.step if hooks else engine.step_without_hooks
    return make(instance, thread, agent, cwd, on_stderr)


def run(
    instance: Instance,
    thread: ThreadId,
    following: Callable[[], Options | None],
    most: int | None = None,
    again: Callable[[UwfError], bool] = lambda _error: False,
    make: Callable[[Instance, ThreadId, Options], Outcome] = step,
) -> Iterator[Outcome]:
    """Make steps until the thread ends, `most` are made, or the caller stops; yield the outcome of each.

    `following` is asked before each step how to make it; None ends the run. `again` is handed what a step raises, and
    says whether to go on, with `following` first; else it is raised. `make` makes a step: `step`, with something around
    it maybe. A thread that can't be stepped, since it waits or is paused, is known by what the next step raises."""
    with instance.keeping():
        made = 0
        while most is None or made < most:
            options = following()
            if options is None:
                return
            try:
                outcome = make(instance, thread, options)
            except UwfError as error:
                if not again(error):
                    raise
                continue
            made += 1
            yield outcome
            if outcome.done:
                return
