"""Running steps. The only loop over steps: the command, evaluation, crews and the workflow agent use it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from uwf_git.base.errors import AgentFailed, HeadMoved, Invalid, UwfError
from uwf_git.config.resolve import AgentOptions, agent_options
from uwf_git.engine import step as engine
from uwf_git.engine.outcome import Outcome as Outcome
from uwf_git.engine.outcome import outcome_at
from uwf_git.engine.retrying import FOREVER as FOREVER
from uwf_git.engine.retrying import PATIENCE as PATIENCE
from uwf_git.engine.turn.table import settle_thread
from uwf_git.format.endings import COMPLETED, FAILED
from uwf_git.format.ids import ThreadId
from uwf_git.format.types import OF_BRANCH
from uwf_git.store.instance import Instance

if TYPE_CHECKING:
    from uwf_git.api.exchange import Exchange
    from uwf_git.api.fan_out import Branches, RunBranches
    from uwf_git.engine.kit.agent import Agent


class Options(NamedTuple):
    """How to make a step. `agent` (alias, command, Agent, or those of a whole run) overrides the configuration; `cwd`
    is the agents' folder, remembered; `on_stderr` gets a command's standard error; `hooks`: run the user's hooks;
    `files`: what a worktree begins with after a failed attempt, and `patience`, as in `engine.step.step`."""

    agent: str | Agent | AgentOptions | None = None
    cwd: Path | None = None
    on_stderr: Callable[[bytes], None] | None = None
    exchange: Exchange | None = None
    hooks: bool = True
    files: str = ""
    patience: float = PATIENCE


def step(instance: Instance, thread: ThreadId, options: Options) -> Outcome:
    """Run the next step. Raises as `engine.step.step`, and with a remote as `shared_step`."""
    _settle_branches(instance, thread)
    agent, cwd, on_stderr, exchange, hooks, files, patience = options
    if exchange is not None:
        from uwf_git.sync.shared_step import shared_step

        return shared_step(exchange, thread, agent, cwd, on_stderr, files, patience)
    if not hooks:
        try:
            return engine.step_without_hooks(instance, thread, agent, cwd, on_stderr, files)
        except AgentFailed as error:
            engine.drop_branch(instance, thread, error)
            raise
    return engine.step(instance, thread, agent, cwd, on_stderr, files, patience)


def _settle_branches(instance: Instance, thread: ThreadId) -> None:
    """End what a killed process left of a thread's lost forks. Moves refs as `sync.branches.settle_lost_forks`."""
    if instance.store.index.has_any_with(OF_BRANCH):
        from uwf_git.sync.branches import settle_lost_forks

        settle_lost_forks(instance, thread)


def warn_of_agent(instance: Instance, thread: ThreadId, agent: str | AgentOptions) -> None:
    """Warn if a thread with a cost limit gets an `agent` with unknown cost."""
    from uwf_git.engine.budget import COST, Budgets
    from uwf_git.engine.next_turn import outlook

    with suppress(UwfError):  # of a thread that can't be stepped the step says why
        head = instance.threads.active_head(thread)
        limited = any(COST in limits for _, limits in Budgets(instance).sources(head))
        limited = limited and not instance.config_of(head.row).stops_unpriced
        if limited and (role := outlook(instance, head).next):
            from uwf_git.api.start import warn_of_limit
            from uwf_git.engine.performer import missing_price_at

            warn_of_limit(instance, list(filter(None, [missing_price_at(instance, head, role, agent)])))


def run(
    instance: Instance,
    thread: ThreadId,
    following: Callable[[], Options | None],
    most: int | None = None,
    again: Callable[[UwfError], bool] = lambda _error: False,
    make: Callable[[Instance, ThreadId, Options], Outcome] = step,
    branches: RunBranches | None = None,
) -> Iterator[Outcome]:
    """Run until the thread ends, `most` steps are made, or the caller stops; yield each outcome.

    `following` returns the options before each step, None to stop. `again` decides after an error whether to
    continue; otherwise it is raised. `make` replaces `step`. A waiting or paused thread shows in the next
    step's error. After a fork `branches` runs its branches, by default one after another; of theirs, only the join is
    yielded.
    """
    with instance.keeping():
        count = 0
        while most is None or count < most:
            options = following()
            if options is None:
                return
            options = _of_whole_run(options)
            try:
                if instance.threads.head(thread).waits_for_join:
                    outcome = _joined(instance, thread, options, make, branches, following)
                else:
                    outcome = make(instance, thread, options)
            except UwfError as error:
                if not again(error):
                    raise
                continue
            count += 1
            yield outcome
            if outcome.done or outcome.role is None:
                return


def _of_whole_run(options: Options) -> Options:
    """Return options whose agent replaces what models play, and leaves commands and people their roles."""
    agent = options.agent
    if agent is None or isinstance(agent, AgentOptions):
        return options
    return options._replace(agent=agent_options((agent,)) if isinstance(agent, str) else AgentOptions(agent))


def ended_elsewhere(instance: Instance, thread: ThreadId, error: UwfError) -> Outcome | None:
    """Return the outcome of a thread that was completed or failed on another machine, if that is why the next step of a
    run could not be made or shared, else None."""
    if not isinstance(error, Invalid | HeadMoved) or not instance.threads.exists(thread):
        return None
    archive = instance.threads.head(thread).archive
    if archive is None or archive.status not in (COMPLETED, FAILED):
        return None
    return outcome_at(instance, thread)


def _joined(
    instance: Instance,
    thread: ThreadId,
    options: Options,
    make: Callable[[Instance, ThreadId, Options], Outcome],
    branches: RunBranches | None,
    following: Callable[[], Options | None],
) -> Outcome:
    """Run the branches of a thread and return the outcome of their join, whoever made it."""
    from uwf_git.api.fan_out import at_work, in_own_order, raise_if_stopped, wait_for, waits_for_branches
    from uwf_git.api.listing import depth_first

    _settle_branches(instance, thread)
    if options.exchange is not None:
        from uwf_git.api.exchange import fetch_branches

        fetch_branches(options.exchange, thread)
    settle_thread(instance, thread)  # branches that a killed process did not begin
    run_branches = branches or _in_turn(following, options.exchange)
    left = waits_for_branches(instance, thread)
    chosen = {state.thread for state in left.open if state.head is not None} if left is not None else set()
    while left is not None and chosen:
        others = at_work(instance, left)
        mine = [state.thread for state in left.open if state.thread in chosen - others]
        # Other machines take branches of the same fork, so that two rarely begin with the same one.
        mine = depth_first(instance, mine) if options.exchange is None else in_own_order(instance, mine)
        if mine:
            run_branches(instance, thread, left, mine)
        chosen &= others
        wait_for(instance, chosen)
        left = waits_for_branches(instance, thread)
    raise_if_stopped(instance, thread)
    if instance.threads.head(thread).waits_for_join:
        return make(instance, thread, options)
    return outcome_at(instance, thread)


def _in_turn(following: Callable[[], Options | None], exchange: Exchange | None) -> RunBranches:
    """Return what runs branches one after another in this process. Errors of `following` are raised."""

    def run_branches(
        instance: Instance, thread: ThreadId, _branches: Branches, chosen: Sequence[ThreadId]
    ) -> None:
        from uwf_git.api.fan_out import Lookout, waits_for_branches

        raised: list[UwfError] = []

        def options() -> Options | None:
            try:
                return following()
            except UwfError as error:
                raised.append(error)
                raise

        lookout, waiting = Lookout(instance, exchange, thread, chosen), list(chosen)
        while waiting:
            branch = waiting.pop(0)
            if lookout.is_taken(branch):
                waiting.append(branch)
                continue
            if waits_for_branches(instance, thread) is None:
                return
            if instance.threads.has_ended(branch):
                continue
            with suppress(UwfError):
                for _ in run(instance, branch, options):
                    pass
            if raised:
                raise raised[0]

    return run_branches
