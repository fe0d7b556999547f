"""Trials: a case given to agents in a thread and folder of its own. Key and thread id are known beforehand,
so an interrupted trial finds its thread and folder."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

from uwf_git.ext.evaluation.fixtures import create_folder, discard, is_folder, remove_folder, store_final_tree
from uwf_git.ext.evaluation.judges import ResolvedJudge, agents_of, called
from uwf_git.ext.evaluation.judging import JUDGED, NoScore, Outcome, scored, why
from uwf_git.ext.evaluation.records import (
    COMPLETED,
    FINAL,
    INAPPLICABLE,
    UNKNOWN,
    AgentSpending,
    Case,
    Judge,
    Result,
    Score,
    ScoreKey,
    Trial,
    TrialKey,
    identified,
)
from uwf_git.ext.evaluation.replay import Inapplicable, ground, start_of
from uwf_git.ext.evaluation.stepping import (
    TRIAL,
    Limits,
    ThreadEnd,
    begin,
    head_at,
    removed_here,
    run_out,
    spending_of,
    spent_since,
    threads_for,
)
from uwf_git.ext.evaluation.suite import Suite, Suites
from uwf_git.plugin import (
    USER,
    Busy,
    Cast,
    Hash,
    Head,
    Instance,
    NotFound,
    Oid,
    StartNode,
    StoreDamaged,
    ThreadId,
    ThreadState,
    UwfError,
    Workflow,
    ancestry,
    budget_limits,
    cast_of,
    cbor,
    ended_state,
    endings,
    hash_of,
    is_hash,
    is_thread_id,
    log,
    one_line,
    settle_thread,
)

_NO_THREAD = ThreadId("0" * 26)
_LONGEST_ERROR = 300
_GIVEN_UP = "its folder is gone, so the case is tried anew"
_HALF_MADE = 3600.0  # seconds after which no process is still making a folder


class Version(NamedTuple):
    """A workflow version, and a crew's default speaker."""

    hash: Hash
    commit: Oid
    workflow: Workflow
    speaker: str = ""

    @property
    def cast(self) -> Cast:
        return Cast(self.workflow, self.speaker)


class TrialOptions(NamedTuple):
    """A run's options: `agent` or None, `label`, `judges` or None for the cases' own, limits per thread;
    paths are relative to `cwd`."""

    agent: str | None = None
    label: str = ""
    judges: tuple[Judge, ...] | None = None
    limits: Limits = Limits()
    cwd: Path = Path()


class PlannedTrial(NamedTuple):
    """A case to try. `start` is the StartNode's type and payload, None for a repeated step."""

    name: str
    case: Case
    version: Version
    key: TrialKey
    start: tuple[Hash, Any] | None
    judges: tuple[ResolvedJudge, ...]
    expected: Any
    limits: Limits
    agent: str | None


class TrialResult(NamedTuple):
    """A case's result: trial, scores, judges' errors. `commits` and `files` are dependencies; `is_new`;
    `thread`'s folder is needed until it is recorded. `lost` is the spending of judges without score."""

    trial: Trial
    scores: tuple[Score, ...]
    errors: tuple[str, ...] = ()
    commits: tuple[Oid, ...] = ()
    files: tuple[str, ...] = ()
    is_new: bool = True
    thread: ThreadId | None = None
    lost: AgentSpending = AgentSpending()


def plan(
    instance: Instance, name: str, case: Case, version: Version, asked: TrialOptions, repeats: int
) -> list[PlannedTrial]:
    """Return a case's trials, one per repeat. Writes nothing. Raises Usage if an agent or judge isn't
    configured."""
    store = instance.store
    start, step = None, None
    if case.start is not None:
        start = store.start(case.start)
    if case.step is not None:
        step = store.step(case.step)
    made: tuple[Hash, Any] | None = None
    if case.role is not None:
        assert step is not None
        head = step.prev or step.start
    else:
        task = start or StartNode(version.hash, case.prompt or "")
        made = start_of(task, version.hash, version.workflow, version.speaker)
        head = hash_of(made[0], cbor.normalise(made[1]))
    cast = cast_of(version.workflow, start) if start else version.cast
    agents = agents_of(instance, cast, asked.agent, case.role)
    wanted = case.judges if asked.judges is None else asked.judges
    judges = tuple(called(instance, judge, asked.cwd) for judge in wanted)
    expected = case.expected
    if expected is None and step is not None and step.role != USER:
        expected = store.get(step.output).payload
    # The tightest counts: a case may come from anybody.
    sources = (("run", asked.limits.budget), ("case", case.limits))
    held = {key: limit.value for key, limit in budget_limits(sources, {}).items()}
    limits = asked.limits._replace(budget=held)
    key = TrialKey(version.hash, head, agents, 1, case.role, case.fixture, asked.label)
    return [
        PlannedTrial(
            name,
            case,
            version,
            key._replace(repeat=number),
            made,
            judges,
            expected,
            limits,
            asked.agent,
        )
        for number in range(1, repeats + 1)
    ]


def folders_of(instance: Instance) -> Path:
    return instance.location.root / "evaluation"


def tidy(instance: Instance) -> None:
    """Remove folders of recorded trials, removed threads and judges, and leftovers."""
    threads, folder = instance.threads, folders_of(instance)
    recorded: Mapping[Hash, Hash] | None = None
    for path in folder.iterdir() if folder.is_dir() else ():
        name, dot, _ = path.name.partition(".")
        if is_hash(judged := name.removeprefix(JUDGED)):
            with suppress(Busy), instance.locks.turn(_lock(Hash(judged))):
                discard(path)
        if not is_thread_id(name):
            continue
        thread = ThreadId(name)
        if dot:
            if time.time() - path.lstat().st_mtime > _HALF_MADE:
                discard(path)
        elif instance.locks.is_held(thread):
            continue
        elif not threads.exists(thread):
            remove_folder(path)
        elif threads.has_ended(thread):
            if recorded is None:
                recorded = _ends(instance)
            if key := recorded.get(threads.head(thread).node):
                _put_away(instance, key, thread)


def _put_away(instance: Instance, key: Hash, thread: ThreadId) -> None:
    with suppress(Busy), instance.locks.turn(_lock(key)):
        remove_folder(folders_of(instance) / thread)


def remove_recorded_folders(instance: Instance, recorded: Iterable[TrialResult]) -> None:
    """Remove the folders of recorded trials that are not continued."""
    for result in recorded:
        if result.thread is not None and result.trial.status in FINAL:
            _put_away(instance, result.trial.key.hash, result.thread)


def _lock(key: Hash) -> str:
    return f"trial-{key}"


def _suites(instance: Instance) -> Iterator[Suite]:
    suites = Suites(instance.store)
    for name in suites.names():
        with suppress(StoreDamaged, NotFound):
            yield suites.read(name)


def _ends(instance: Instance) -> dict[Hash, Hash]:
    nodes: dict[Hash, Hash] = {}
    for suite in _suites(instance):
        for trial in suite.trials.values():
            if trial.last is not None:
                nodes[trial.last] = trial.key.hash
        for score in suite.scores.values():
            if score.step is not None and score.key.trial in suite.trials:
                nodes[score.step] = suite.trials[score.key.trial].key.hash
    return nodes


def _recorded(instance: Instance, key: TrialKey, last: Hash) -> Trial | None:
    wanted = key.hash
    trials = [
        trial
        for suite in _suites(instance)
        for trial in suite.trials.values()
        if trial.last == last and trial.key.hash == wanted
    ]
    return best(trials) if trials else None


def threads_of(instance: Instance, results: Iterable[Result]) -> dict[Hash, ThreadId]:
    """Return the local threads of trials."""
    threads = instance.threads
    here, removed = threads.ids(), removed_here(instance)
    begun: dict[Hash, ThreadId] = {}
    for result in results:
        key = result.trial.key.hash
        some = [*takewhile(here.__contains__, threads_for(instance, TRIAL, key, removed))]
        if len(some) > 1:
            some = [thread for thread in some if threads.head(thread).node == result.trial.last] or some[-1:]
        if some:
            begun[result.trial.hash] = some[0]
    return begun


def start_thread(instance: Instance, planned: PlannedTrial) -> tuple[ThreadId, Trial | None]:
    """Return a trial's thread with its folder, made if missing. For a thread with steps but no folder, a
    recorded trial is used; otherwise another thread. Makes `refs/uwf/threads/<ULID>`. Raises Inapplicable."""
    fixture = planned.case.fixture
    for thread in threads_for(instance, TRIAL, planned.key.hash):
        _begin(instance, planned, thread)
        folder, work = folders_of(instance) / thread, None
        if fixture is not None and not is_folder(folder):
            head = instance.threads.head(thread)
            if head.row.number > head_at(instance, _base(instance, planned, thread)).row.number:
                trial = _recorded(instance, planned.key, head.node)
                if trial is not None and trial.status in FINAL:
                    return thread, trial
                if trial is None or trial.work is None:
                    log.info("6TW2Y9QA", "the folder is gone, so the case is tried anew", thread=thread)
                    _give_up(instance, head)
                    continue
                work = trial.work
        if not is_folder(folder):
            create_folder(instance.store.repository, folder, fixture, work)
        instance.folders.remember(thread, folder)
        return thread, None
    raise AssertionError("there is always another id")


def _give_up(instance: Instance, head: Head) -> None:
    """End a trial that waits for its branches, and these with it: no run goes on with them."""
    if head.waits_for_join:
        with suppress(UwfError), instance.locks.hold(head.thread):
            settle_thread(instance, instance.threads.archive(head, endings.KILLED, _GIVEN_UP))


def _begin(instance: Instance, planned: PlannedTrial, thread: ThreadId) -> None:
    if instance.threads.exists(thread):
        return
    with instance.store.together():
        if planned.start is not None:
            node = instance.store.put(*planned.start)
            project = instance.threads.projects.label_at(Path.cwd())
            commit = instance.threads.begin(planned.version.commit, node, thread, project=project)
        else:
            key = planned.key
            assert key.role is not None
            commit = ground(instance, key.head, key.role, key.workflow, planned.version.commit)
        begin(instance, thread, commit)


def conduct(
    instance: Instance, planned: PlannedTrial, known: Trial | None, scores: Mapping[Hash, Score]
) -> TrialResult:
    """Try a case unless a trial is `known`, and judge it unless scored. Waits for others doing the same.
    Moves the refs of the trial's and judges' threads. Raises Busy, Usage, Untrusted."""
    with log.about(case=planned.name), instance.locks.turn(_lock(planned.key.hash), _waits):
        thread = None
        if known is None:
            trial, commits, thread = _tried(instance, planned)
        else:
            trial, commits = known, ()
        given_scores, errors, lost = list[Score](), list[str](), AgentSpending()
        is_new = known is None
        if trial.status == COMPLETED and planned.judges:
            outcome = None
            for judge in planned.judges:
                key = ScoreKey(trial.hash, judge.judge, planned.expected)
                if (score := scores.get(key.hash)) is None:
                    is_new = True
                    outcome = outcome or _outcome(instance, planned, trial)
                    try:
                        score = scored(instance, judge, outcome, folders_of(instance), planned.limits)
                    except UwfError as error:
                        errors.append(why(instance, judge.judge, error))
                        lost = lost.plus(error.told) if isinstance(error, NoScore) else lost
                        continue
                    if score.step is not None:
                        commits = (*commits, instance.threads.commit_of(score.step))
                given_scores.append(score)
        files = tuple(filter(None, (trial.work,))) if known is None else ()
        return TrialResult(trial, tuple(given_scores), tuple(errors), commits, files, is_new, thread, lost)


def _waits(processes: Sequence[int]) -> None:
    log.info("M4C0V8ZE", "waits for the processes {processes}, which try the same", processes=processes)


def _outcome(instance: Instance, planned: PlannedTrial, trial: Trial) -> Outcome:
    assert trial.last is not None
    return Outcome(trial, instance.threads.history_at(_NO_THREAD, trial.last), planned.expected)


def _tried(instance: Instance, planned: PlannedTrial) -> tuple[Trial, tuple[Oid, ...], ThreadId | None]:
    try:
        thread, recorded = start_thread(instance, planned)
    except Inapplicable as error:
        trial = Trial(UNKNOWN, planned.key, INAPPLICABLE, error=one_line(error.message, _LONGEST_ERROR))
        return identified(trial), (planned.version.commit,), None
    if recorded is not None:
        return recorded, (instance.threads.head(thread).commit,), None
    folder = folders_of(instance) / thread
    base = head_at(instance, _base(instance, planned, thread))
    once = 1 if planned.start is None else None
    ended = run_out(instance, thread, base, folder, planned.limits, planned.agent, once)
    head = instance.threads.head(thread)
    if once is not None and ended.status == COMPLETED and head.archive is None:
        head = instance.threads.archive(head, endings.KILLED, "a step that was done again ends here")
    return _trial(instance, planned, ended, thread, base.row.number), (head.commit,), thread


def _base(instance: Instance, planned: PlannedTrial, thread: ThreadId) -> Oid:
    rows = list(ancestry(instance.store, instance.threads.head(thread).commit))
    start = next(place for place, row in enumerate(rows) if row.kind == "start")
    if planned.start is not None:
        return Oid(raw=rows[start].oid)
    number = 0
    head = planned.key.head
    for row in instance.store.index.commits_of(head):
        if row.kind == "step":
            number = row.number
            break
    return Oid(raw=rows[start - number].oid)


def _trial(
    instance: Instance, planned: PlannedTrial, ended: ThreadEnd, thread: ThreadId, before: int
) -> Trial:
    head = instance.threads.head(thread)
    base = head_at(instance, _base(instance, planned, thread))
    spent = spent_since(instance, head, base)
    tree = None
    if planned.case.fixture is not None and head.row.number > before:
        tree = store_final_tree(instance, folders_of(instance) / thread, planned.case.fixture)
    error = ended.error
    if ended.status == COMPLETED and head.archive is not None:
        state, reason = ended_state(head.archive), head.archive.reason
        if state is ThreadState.FAILED:
            error = "the thread ended as failed" + (f": {reason}" if reason else "")
        elif state is ThreadState.WITH_FAILURES:
            error = f"the thread is completed {reason}"
    trial = Trial(
        UNKNOWN,
        planned.key,
        ended.status,
        head.node if head.row.number > before else None,
        instance.redactor.text(one_line(error, _LONGEST_ERROR))[0],
        tree.tree if tree else None,
        head.row.number - before,
        spent.attempts,
        spending_of(instance, spent),
        tree.notes if tree else (),
    )
    return identified(trial)


def best(trials: Sequence[Trial]) -> Trial:
    """Return the trial that counts: the first finished one, else the last."""
    ended = [trial for trial in trials if trial.status in FINAL]
    if ended:
        return min(ended, key=lambda trial: (trial.time, trial.hash))
    return max(trials, key=lambda trial: (trial.time, trial.hash))


def fits(trial: Trial, limits: Limits) -> bool:
    """Return whether a trial would certainly end within these limits."""
    used = trial.told.use(trial.steps - 1)  # the last step was begun before it counted
    return trial.steps <= limits.most and all(used[key] < most for key, most in limits.budget.items())
