"""`uwf eval run`."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from uwf_git.ext.evaluation.commands.result_output import (
    called,
    result_line,
    result_value,
    run_value,
    summary,
)
from uwf_git.ext.evaluation.commands.suites import JUDGES, parse_judges
from uwf_git.plugin import (
    AgentFailed,
    AgentOptions,
    Dispatcher,
    Failures,
    Hash,
    Invocation,
    NotFound,
    ResolvedWorkflow,
    StepOptions,
    Usage,
    Waiting,
    agent_options,
    command,
    completers,
    counted,
    dispatchers,
    load_extension,
    nearest,
    options,
    require_agent,
    require_played,
    resolve,
    stored_workflow,
    terminal,
    version_of,
    warn_of_limit,
)

if TYPE_CHECKING:
    from uwf_git.ext.evaluation.records import Case, Result
    from uwf_git.ext.evaluation.run import FinishedRun, ProgressEvent
    from uwf_git.ext.evaluation.suite import Suite
    from uwf_git.ext.evaluation.trials import Version


class RunOptions(NamedTuple):
    """The options of a run. `budget` is that of all trials, `case_budget` of each; `by` steps their threads, None
    for the usual loop."""

    workflow: str | None
    agent: str | None
    repeat: int
    jobs: int
    judges: tuple[str, ...]
    label: str
    budget: Mapping[str, float]
    case_budget: Mapping[str, float]
    max_steps: int
    retries: int
    quiet: bool
    by: Dispatcher | None = None


def _by(way: Dispatcher) -> Callable[[Any], Any]:
    def choose(context: click.Context, _parameter: click.Parameter, is_chosen: bool) -> None:
        if not is_chosen:
            return
        if (other := context.params.get("by")) is not None:
            both = " and ".join(row.option for row in dispatchers() if row in (way, other))
            raise Usage(f"{both} exclude each other", "give one of them")
        context.params["by"] = way

    return click.option(way.option, is_flag=True, help=way.line, expose_value=False, callback=choose)


running = options.packed(
    "options",
    RunOptions,
    click.option(
        "--workflow",
        metavar="W",
        help="Workflow to test: NAME, NAME@VERSION, NAME~2, a hash or a file. Default: the newest of each case.",
        shell_complete=completers.complete_workflow,
    ),
    click.option(
        "--agent",
        metavar="CMD",
        help="Agent of config.yaml, or a command line, for all roles that a model plays; ROLE=CMD for one role."
        " Default: as configured.",
        shell_complete=completers.complete_agent,
    ),
    click.option(
        "--repeat",
        type=click.IntRange(1, 1000),
        default=1,
        show_default=True,
        metavar="K",
        help="Run each case N times.",
    ),
    *map(_by, dispatchers()),
    click.option(
        "-j",
        "--jobs",
        type=options.AT_ONCE,
        default=1,
        metavar="N",
        help="Run up to N trials in parallel.",
    ),
    JUDGES,
    click.option(
        "--label",
        default="",
        metavar="TEXT",
        help="Label that tells this run apart, such as after a change of a script.",
    ),
    options.budget(
        {
            "cost": "Start no more trials after spending USD.",
            "tokens": "Start no more trials after N tokens.",
            "time": "Start no more trials after this time: 90s, 30m, 2h.",
        }
    ),
    options.budget(
        {
            "cost": "End a trial after spending USD.",
            "tokens": "End a trial after N tokens.",
            "time": "End a trial after this working time of its agents.",
        },
        "--case-",
        "case_budget",
    ),
    click.option(
        "--max-steps",
        type=click.IntRange(min=1),
        default=50,
        show_default=True,
        metavar="N",
        help="End a trial after N steps of its own thread: a script is one, and branches don't count.",
    ),
    click.option(
        "--retries",
        type=click.IntRange(0, 100),
        default=2,
        show_default=True,
        metavar="N",
        help="Retry a failed step up to N times.",
    ),
    options.QUIET,
)
"""Adds the options of a run."""


@command(
    "uwf eval run bugs",
    "uwf eval run bugs csv --workflow solve-issue@7KQ2M4 --agent claude-code",
    "uwf eval run bugs --repeat 5 -j 4 --max-cost 10",
    'uwf eval run bugs --judge "command:make test"    what is known is judged anew',
)
@click.argument("suite", shell_complete=completers.complete_suite)
@click.argument("cases", metavar="[CASE]...", nargs=-1)
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Run only cases with this tag. Repeatable.")
@running
def run(
    invocation: Invocation, suite: str, cases: tuple[str, ...], tags: tuple[str, ...], options: RunOptions
) -> None:
    """Run a suite's cases, judge the results and record them.

    Results of the same workflow, agents and files are reused, as are judgements of the same judge. --judge
    replaces the judges of the cases.
    """
    from uwf_git.ext.evaluation.suite import Suites
    from uwf_git.ext.evaluation.trials import threads_of

    done = carried_out(invocation, suite, cases, tags, options)
    instance, failures = invocation.instance, Failures(invocation)
    threads = threads_of(instance, done.results)
    value = {
        "suite": suite,
        "commit": str(Suites(instance.store).tip(suite)),
        "fresh": done.fresh,
        **run_value(done.run, done.results, done.lost),
        "results": [result_value(result, threads.get(result.trial.hash)) for result in done.results],
        "problems": [
            {"case": name, "message": error.message, "hint": error.hint} for name, error in done.problems
        ],
    }
    invocation.emit(value, lambda shown: summary(shown))
    for name, error in done.problems:
        error.message = f"{name}: {error.message}"
        failures.add(error)
    failures.end()
    _raise_if_short(done, suite)


def carried_out(
    invocation: Invocation, suite: str, cases: tuple[str, ...], tags: tuple[str, ...], options: RunOptions
) -> FinishedRun:
    """Run a suite's cases, by default all, printing a line per result. Raises NotFound, Usage."""
    from uwf_git.ext.evaluation.run import RunPlan, run_suite
    from uwf_git.ext.evaluation.stepping import Limits
    from uwf_git.ext.evaluation.suite import Suites
    from uwf_git.ext.evaluation.trials import TrialOptions

    instance = invocation.instance
    read = Suites(instance.store).read(suite)
    chosen = _chosen(read, cases, tags)
    agents = None if options.agent is None else agent_options((options.agent,))
    versions = _Versions(invocation, options.workflow)
    if agents is not None:
        require_agent(invocation, agents)
        for case in chosen:
            version = versions(case)
            require_played(instance, version.cast, agents, case.role)
    options_here = TrialOptions(
        options.agent,
        options.label.strip(),
        parse_judges(options.judges, commands=True),
        Limits(options.max_steps, options.case_budget, options.retries),
        Path.cwd(),
    )
    is_limited = bool(options.budget.get("maxCost") or options_here.limits.budget.get("maxCost"))
    _warn(invocation, versions, chosen, agents, is_limited)
    step = None
    if options.by is not None:
        terms = StepOptions(options.agent, options.retries, options.budget, options.jobs)
        step = load_extension(options.by.where)(instance, terms, invocation.warn)
    invocation.going_on = f"nothing is lost, uwf eval run {shlex.quote(suite)} goes on with the same options"

    def waits(processes: Sequence[int]) -> None:
        who = " and ".join(map(str, processes)) or "another"
        invocation.warn(f"suite {suite} is being run by process {who}: waiting for its end")

    return run_suite(
        instance,
        suite,
        RunPlan(
            chosen, versions, options_here, versions.given, options.repeat, options.jobs, options.budget, step
        ),
        _teller(invocation, options.quiet, [read.named[case.hash] for case in chosen], options.repeat),
        waits,
    )


def _chosen(suite: Suite, names: tuple[str, ...], tags: tuple[str, ...]) -> list[Case]:
    if not suite.cases:
        raise NotFound(f"suite {suite.name!r} has no cases", f"uwf eval add ID --to {suite.name}")
    cases = (
        list({case.hash: case for case in map(suite.case, names)}.values()) if names else list(suite.cases)
    )
    for tag in tags:
        cases = [case for case in cases if tag in case.tags]
    if not cases:
        known = sorted({tag for case in suite.cases for tag in case.tags})
        raise NotFound(
            f"no case of {suite.name!r} has the tag {tags[-1]!r}",
            nearest(tags[-1], known) or f"see: uwf eval show {suite.name}",
        )
    return cases


class _Versions:
    """The workflow version of each case: the requested one, else the newest of its own, else its own."""

    def __init__(self, invocation: Invocation, text: str | None) -> None:
        self._invocation = invocation
        self._instance = invocation.instance
        self._known: dict[Hash, Version] = {}
        self._given = self._version(resolve.find_version(invocation, text)) if text is not None else None

    @property
    def given(self) -> Hash | None:
        return self._given.hash if self._given else None

    def __call__(self, case: Case) -> Version:
        if self._given is not None:
            return self._given

        own = case.workflow
        if case.start is not None:
            own = self._instance.store.start(case.start).workflow
        if own is None:
            raise Usage(f"case {case.name!r} names no workflow", "give one: --workflow NAME")
        if own not in self._known:
            name = self._instance.registry.workflow(own).name
            stored = stored_workflow(self._instance, name) or stored_workflow(self._instance, own)
            assert stored is not None
            self._known[own] = self._version(stored)
        return self._known[own]

    def _version(self, workflow: ResolvedWorkflow) -> Version:
        from uwf_git.ext.evaluation.trials import Version

        if workflow.workflow.code is not None and workflow.compiled is not None:
            from uwf_git.plugin import trust_code

            trust_code(
                self._instance, workflow.workflow
            )  # a file that is named by its path is trusted by that
        commit = version_of(self._instance, workflow)
        return Version(workflow.hash, commit, workflow.workflow, workflow.speaker)


def _warn(
    invocation: Invocation,
    versions: Callable[[Case], Version],
    cases: list[Case],
    agent: AgentOptions | None,
    limited: bool,
) -> None:
    if not limited:
        return
    from uwf_git.plugin import missing_price_reason

    all_versions = {version.hash: version for version in map(versions, cases)}
    config = invocation.instance.config_at(Path.cwd())
    whys = [
        why
        for version in all_versions.values()
        for why in missing_price_reason(config, version.cast, version.workflow.roles, agent)
    ]
    warn_of_limit(invocation.instance, list(dict.fromkeys(whys)))


def _teller(
    invocation: Invocation, quiet: bool, names: Sequence[str], repeats: int
) -> Callable[[ProgressEvent], None]:
    size = max(terminal.columns(called(terminal.escape(name), repeats)) for name in names)

    def tell(shown: ProgressEvent) -> None:
        if invocation.format != "text" or shown.result is None or (quiet and shown.is_known):
            return
        value: Any = terminal.escape_value(result_value(shown.result))
        invocation.write(result_line(value, size, shown.is_known))

    return tell


def _raise_if_short(done: FinishedRun, suite: str) -> None:
    from uwf_git.ext.evaluation.records import ERROR
    from uwf_git.ext.evaluation.sides import why_unknown

    if done.run.stopped:
        missing = counted(done.missing, "trial")
        raise Waiting(
            f"suite {suite} stopped with what it has, {missing} missing: {done.run.stopped}",
            "run it again with more; known results are reused",
        )
    broken = [result for result in done.results if result.state == ERROR]
    if broken:
        first = next((result for result in broken if not result.errors), broken[0])
        have = "has" if len(broken) == 1 else "have"
        raise AgentFailed(
            f"{counted(len(broken), 'trial')} of {suite} {have} no score, such as {first.name}: {why_unknown(first)}",
            continue_hint(first),
        )


def continue_hint(broken: Result) -> str:
    if broken.errors:
        return "mend that and run it again: what was tried is only judged again"
    return "where its agent cannot do better, mend that; then run it again: it goes on where it was"
