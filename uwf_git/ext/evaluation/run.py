"""Running a suite: known results are reused, the rest is tried, judged and recorded as it comes, so that an
interrupted run can be continued."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from uwf_git.ext.evaluation.judging import forget_scores
from uwf_git.ext.evaluation.records import (
    COMPLETED,
    FINAL,
    UNKNOWN,
    AgentSpending,
    Case,
    Result,
    RunResult,
    Score,
    ScoreKey,
    SuiteRun,
    Trial,
    identified,
)
from uwf_git.ext.evaluation.sides import untried_text
from uwf_git.ext.evaluation.suite import MOST_COMMITS, Additions, Suite, Suites, lock_of
from uwf_git.ext.evaluation.trials import (
    PlannedTrial,
    TrialOptions,
    TrialResult,
    Version,
    best,
    fits,
    plan,
    remove_recorded_folders,
    start_thread,
    tidy,
)
from uwf_git.ext.evaluation.workers import Task, in_turn, side_by_side
from uwf_git.plugin import (
    BudgetState,
    Cast,
    Hash,
    Instance,
    Oid,
    StoreDamaged,
    StoreUnwritable,
    ThreadId,
    Untrusted,
    Usage,
    UwfError,
    one_line,
    parse_start,
    require_ready,
)

_BATCH_SECONDS = 2.0
_BATCH = MOST_COMMITS // 8
# Errors common to all cases.
_FATAL = (Usage, Untrusted, StoreUnwritable, StoreDamaged)


class FinishedRun(NamedTuple):
    """A finished run: its node, results in order, number of new ones, problems, spending; `lost` is that of
    judges without score. `untried` are cases with missing trials, with reasons."""

    run: SuiteRun
    results: tuple[Result, ...]
    fresh: int
    problems: tuple[tuple[str, UwfError], ...]
    told: AgentSpending
    lost: AgentSpending
    untried: Mapping[str, str] = {}

    @property
    def missing(self) -> int:
        return self.run.cases * self.run.repeat - len(self.results)


class ProgressEvent(NamedTuple):
    """A progress event: a result or an error, the trial's number of how many, and whether it was known."""

    name: str
    result: Result | None
    error: UwfError | None
    number: int
    of: int
    is_known: bool


class RunPlan(NamedTuple):
    """What to run: `cases`, their versions, `asked` options, `repeats`, parallel `jobs`. `workflow` is the
    requested one; `limits` are the run's. `step` steps threads by other means before judging."""

    cases: Sequence[Case]
    version_of: Callable[[Case], Version]
    asked: TrialOptions
    workflow: Hash | None = None
    repeats: int = 1
    jobs: int = 1
    limits: Mapping[str, float] = {}
    step: Callable[[Sequence[ThreadId]], None] | None = None


def run_suite(
    instance: Instance,
    name: str,
    plan: RunPlan,
    show: Callable[[ProgressEvent], None] = lambda shown: None,
    waits: Callable[[Sequence[int]], None] = lambda processes: None,
) -> FinishedRun:
    """Run a suite's cases and record the results. If the suite is already running, by the processes given to
    `waits`, it waits and reuses their results. Moves `refs/uwf/evals/<name>` and the threads' refs. Raises
    NotFound, Usage, Untrusted; recorded results stay."""
    with instance.locks.turn(lock_of(name), waits):
        return _Run(instance, name, plan, show).run()


class _Run:
    def __init__(
        self,
        instance: Instance,
        name: str,
        wanted: RunPlan,
        show: Callable[[ProgressEvent], None],
    ) -> None:
        self._instance = instance
        self._suites = Suites(instance.store)
        self._name = name
        self._plan = wanted
        self._asked = wanted.asked
        self._show = show
        self._began = time.monotonic()
        self._recorded = self._began
        self._waiting: list[TrialResult] = []
        self._spent, self._lost = AgentSpending(), AgentSpending()
        self._counted: set[Hash] = set()  # the trials and scores in that: several cases may share one
        self._steps = 0
        self._stopped = ""

    def run(self) -> FinishedRun:
        repeats = self._plan.repeats
        # Run nothing if the result could not be recorded.
        for text, option in ((self._asked.agent, "--agent"), (self._asked.label, "--label")):
            self._instance.redactor.refuse(text or "", option, "that")
        tidy(self._instance)
        suite = self._suites.read(self._name)
        planned = [
            item
            for case in self._plan.cases
            for item in plan(
                self._instance,
                suite.named[case.hash],
                case,
                self._plan.version_of(case),
                self._asked,
                repeats,
            )
        ]
        known = _KnownResults(suite)
        forget_scores(self._instance, known.scores)
        recorded = suite.trials.keys() | suite.scores.keys()
        self._counted |= recorded
        found: dict[int, Result] = {}
        tasks: list[tuple[int, Task]] = []
        for number, trial in enumerate(planned):
            task = known.task(trial)
            if (result := known.result(task)) is not None:
                found[number] = result
                self._show(ProgressEvent(trial.name, result, None, len(found), len(planned), True))
            else:
                tasks.append((number, task))
        _require_ready(self._instance, [task for _, task in tasks])
        step = self._plan.step
        if step is not None and (threads := self._begin([task for _, task in tasks])):
            step(threads)
        places = {id(task): number for number, task in tasks}
        problems: list[tuple[str, UwfError]] = []
        fresh = 0
        tasks_allowed = self._allowed(task for _, task in tasks)
        at_once = min(self._plan.jobs, len(tasks))
        done = (
            side_by_side(self._instance, tasks_allowed, self._asked, at_once)
            if at_once > 1
            else in_turn(self._instance, tasks_allowed)
        )
        try:
            for task, came in done:
                name, result, error = task.planned.name, None, None
                if isinstance(came, UwfError):
                    if isinstance(came, _FATAL):
                        raise came
                    error = came
                    problems.append((name, came))
                else:
                    fresh += bool(came.errors) or not recorded >= _hashes(came)
                    result = Result(name, task.planned.case, came.trial, came.scores, came.errors)
                    found[places[id(task)]] = result
                    self._take(task, came)
                self._show(
                    ProgressEvent(name, result, error, len(found) + len(problems), len(planned), False)
                )
        finally:
            self._record()
        results = tuple(found[number] for number in sorted(found))
        run = SuiteRun(
            UNKNOWN,
            len(self._plan.cases),
            repeats,
            tuple(
                RunResult(item.case.hash, item.trial.hash, tuple(s.hash for s in item.scores), item.errors)
                for item in results
            ),
            self._plan.workflow,
            self._asked.agent,
            self._asked.label,
            self._stopped,
        )
        run = identified(run)
        if results:
            self._suites.add(self._name, Additions(runs=[run]))
        missing = Counter(item.name for number, item in enumerate(planned) if number not in found)
        why = {name: one_line(error.message) for name, error in reversed(problems)}
        untried = {
            name: self._instance.redactor.text(
                untried_text(count, repeats, why.get(name) or self._stopped or "the run was interrupted")
            )[0]
            for name, count in missing.items()
        }
        return FinishedRun(run, results, fresh, tuple(problems), self._spent, self._lost, untried)

    def _begin(self, tasks: Sequence[Task]) -> list[ThreadId]:
        threads: list[ThreadId] = []
        for task in tasks:
            if task.known is not None or task.planned.start is None or task.planned.limits.budget:
                continue
            try:
                thread, recorded = start_thread(self._instance, task.planned)
            except _FATAL:
                raise
            except UwfError:
                continue  # that case's problem, reported when it runs
            if recorded is None:
                threads.append(thread)
        return threads

    def _allowed(self, tasks: Iterator[Task]) -> Iterator[Task]:
        for task in tasks:
            self._stopped = self._over()
            if self._stopped:
                return
            yield task

    def _over(self) -> str:
        used = {**self._spent.use(self._steps), "maxWallTime": time.monotonic() - self._began}
        return BudgetState.of("run", self._plan.limits, used).used_up

    def _take(self, task: Task, came: TrialResult) -> None:
        if task.known is None and came.trial.hash not in self._counted:
            self._spent = self._spent.plus(came.trial.told)
            self._steps += came.trial.steps
        for score in came.scores:
            if score.key.hash not in task.scores and score.hash not in self._counted:
                self._spent = self._spent.plus(score.told)
        self._spent, self._lost = self._spent.plus(came.lost), self._lost.plus(came.lost)
        self._counted |= _hashes(came)
        if came.is_new:
            self._waiting.append(came)
        late = time.monotonic() - self._recorded > _BATCH_SECONDS
        if self._waiting and (late or len(self._waiting) >= _BATCH):
            self._record()

    def _record(self) -> None:
        self._recorded = time.monotonic()
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        commits: list[Oid] = [commit for result in waiting for commit in result.commits]
        added = Additions(
            trials=[result.trial for result in waiting],
            scores=[score for result in waiting for score in result.scores],
            files=[tree for result in waiting for tree in result.files],
            commits=commits,
        )
        self._suites.add(self._name, added)
        forget_scores(self._instance, {score.key.hash for score in added.scores})
        remove_recorded_folders(self._instance, waiting)


def _require_ready(instance: Instance, tasks: Sequence[Task]) -> None:
    """Raise as `api.preflight.require_ready` if a trial that is to be made, or a workflow that is to judge one, could
    not reach its end."""
    ready = set[object]()
    for task in tasks:
        case, version, agent = task.planned.case, task.planned.version, task.planned.agent
        begun = None if task.planned.start is None else parse_start(task.planned.start[1])
        speaker = version.speaker if begun is None else begun.persona
        plays = (version.hash, case.role, speaker)
        if task.known is None and plays not in ready:
            require_ready(instance, Cast(version.workflow, speaker), agent, role=case.role)
            ready.add(plays)
        for judge in (item.judge for item in task.planned.judges):
            if judge.version is not None and judge.version not in ready:
                require_ready(instance, Cast(instance.registry.workflow(judge.version)))
                ready.add(judge.version)


def _hashes(came: TrialResult) -> set[Hash]:
    return {came.trial.hash, *(score.hash for score in came.scores)}


class _KnownResults:
    """A suite's known trials and scores, by the hashes of their keys."""

    def __init__(self, suite: Suite) -> None:
        self._trials: dict[Hash, list[Trial]] = {}
        for trial in suite.trials.values():
            self._trials.setdefault(trial.key.hash, []).append(trial)
        self.scores = {score.key.hash: score for score in suite.scores.values()}

    def task(self, planned: PlannedTrial) -> Task:
        tried = self._trials.get(planned.key.hash)
        trial = best(tried) if tried else None
        if trial is None or trial.status not in FINAL:
            return Task(planned, None, self.scores)
        counts = trial.status != COMPLETED or fits(trial, planned.limits)
        return Task(planned, trial if counts else None, self.scores)

    def result(self, task: Task) -> Result | None:
        planned, trial = task.planned, task.known
        if trial is None:
            return None
        scores: list[Score] = []
        for judge in planned.judges if trial.status == COMPLETED else ():
            score = self.scores.get(ScoreKey(trial.hash, judge.judge, planned.expected).hash)
            if score is None:
                return None
            scores.append(score)
        return Result(planned.name, planned.case, trial, tuple(scores))
