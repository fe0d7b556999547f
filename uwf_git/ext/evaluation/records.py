"""Values of a suite's nodes: cases, trials, scores and runs. A trial is an agent's result in a case, a score
one judgement of it, a run a set of both. They are separate, so that judges can change without repeating
trials."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

from uwf_git.ext.evaluation.node_types import CASE, SCORE, SUITE_RUN, TRIAL, TRIAL_ENDS
from uwf_git.plugin import Hash, Invalid, TokenUsage, cbor, from_payload, hash_of, to_payload

USE, JSONATA, EXACT, SCHEMA, COMMAND, WORKFLOW = "use", "jsonata", "exact", "schema", "command", "workflow"
KINDS = (USE, JSONATA, EXACT, SCHEMA, COMMAND, WORKFLOW)
"""The kinds of judges: USE stands for one in the configuration of whoever runs the case, and is never that of a score;
COMMAND is never that of a case."""

HALF = 0.5

COMPLETED, FAILED, WAITING, STUCK, LIMITED, INAPPLICABLE = TRIAL_ENDS
FINAL = frozenset((COMPLETED, STUCK, INAPPLICABLE))
"""What a trial ends as that would end so again. One of any other status is gone on with by the next run."""

PASSED, MISSED, ERROR = "passed", "failed", "error"


def _without(payload: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in payload.items() if key not in keys}


class Judge(NamedTuple):
    """A judge. `value` depends on the kind: USE a configured name, JSONATA an expression, EXACT compared
    fields (none: all), SCHEMA a JSON Schema, COMMAND a command line, WORKFLOW a name, whose last output is
    read by the expression `output`, "" for `score`, `passed` and `reason`. `threshold` passes. Of a workflow
    that judged, `version` is its node, and `agents` its roles' command lines."""

    name: str
    kind: str
    value: Any
    output: str = ""
    threshold: float = HALF
    version: Hash | None = None
    agents: Mapping[str, str] = {}

    def payload(self) -> dict[str, Any]:
        payload = to_payload(self, always=() if self.version is None else ("agents",))
        kind, value = payload.pop("kind"), payload.pop("value")
        return {"name": payload.pop("name"), kind: value, **payload}

    def nameless(self) -> dict[str, Any]:
        """The payload without the name, which doesn't affect judgements."""
        return {**self.payload(), "name": ""}


class Case(NamedTuple):
    """A case: of a thread, with its StartNode `start` and last StepNode `step` (with a `role`, the step to
    repeat), or a `prompt` with the `workflow` it was written for, if any. `fixture` is a git tree; `expected`
    is for judges; `limits` are per trial; `replaces` are outdated cases."""

    hash: Hash
    name: str
    prompt: str | None = None
    workflow: Hash | None = None
    start: Hash | None = None
    step: Hash | None = None
    role: str | None = None
    fixture: str | None = None
    expected: Any = None
    judges: tuple[Judge, ...] = ()
    limits: Mapping[str, float] = {}
    tags: tuple[str, ...] = ()
    replaces: tuple[Hash, ...] = ()

    def payload(self) -> dict[str, Any]:
        return _without(to_payload(self, always=() if self.expected is None else ("expected",)), "hash")


class TrialKey(NamedTuple):
    """The identity of a trial: equal keys give equivalent results. `head` is the StartNode, or for a repeated
    `role` the step before; `agents` are command lines, `label` distinguishes otherwise equal ones, `repeat`
    counts from 1."""

    workflow: Hash
    head: Hash
    agents: Mapping[str, str]
    repeat: int
    role: str | None = None
    fixture: str | None = None
    label: str = ""

    @property
    def hash(self) -> Hash:
        return hash_of(TRIAL, {**self._asdict(), "agents": dict(self.agents)})


class AgentSpending(NamedTuple):
    """Spending of agents: tokens or None, US dollars or None, tokens without price, seconds."""

    usage: TokenUsage | None = None
    cost: float | None = None
    unpriced: int = 0
    seconds: float = 0.0

    def use(self, steps: int) -> dict[str, float]:
        """Return it with a number of steps as use of a budget."""
        tokens = self.usage.input + self.usage.output if self.usage else 0
        return {
            "maxSteps": steps,
            "maxTokens": tokens,
            "maxCost": self.cost or 0,
            "maxWallTime": self.seconds,
        }

    def payload(self) -> dict[str, Any]:
        payload = _without(to_payload(self, always=("usage", "unpriced")), "seconds")
        return {**payload, "durationMs": round(self.seconds * 1000)}

    def plus(self, other: AgentSpending) -> AgentSpending:
        usage = [item for item in (self.usage, other.usage) if item is not None]
        costs = [item for item in (self.cost, other.cost) if item is not None]
        return AgentSpending(
            TokenUsage(*map(sum, zip(*usage, strict=True))) if usage else None,
            sum(costs) if costs else None,
            self.unpriced + other.unpriced,
            self.seconds + other.seconds,
        )


class Trial(NamedTuple):
    """An agent's result in a case. `last` is the thread's last StepNode or None; `work` the folder's final
    git tree or None; `attempts` are failed ones. `time` is in Unix milliseconds. A thread that ended as failed
    is COMPLETED with an `error`: judges may judge it."""

    hash: Hash
    key: TrialKey
    status: str
    last: Hash | None = None
    error: str = ""
    work: str | None = None
    steps: int = 0
    attempts: int = 0
    told: AgentSpending = AgentSpending()
    notes: tuple[str, ...] = ()
    time: int = 0

    def payload(self) -> dict[str, Any]:
        payload = to_payload(self, always=("last", "steps", "attempts"))
        return _without(payload, "hash", "key", "told", "time") | to_payload(self.key) | self.told.payload()


class ScoreKey(NamedTuple):
    """The identity of a score: trial, judge, expected value."""

    trial: Hash
    judge: Judge
    expected: Any = None

    @property
    def hash(self) -> Hash:
        return hash_of(SCORE, cbor.normalise([self.trial, self.judge.nameless(), self.expected]))


class Score(NamedTuple):
    """A judge's score of a trial, from 0 to 1. `step` is the last StepNode of a judging workflow's thread,
    else None."""

    hash: Hash
    key: ScoreKey
    score: float
    passed: bool
    reason: str = ""
    step: Hash | None = None
    told: AgentSpending = AgentSpending()
    time: int = 0

    @property
    def judge(self) -> Judge:
        return self.key.judge

    def payload(self) -> dict[str, Any]:
        expected = ("expected",) if self.key.expected is not None else ()
        payload = _without(to_payload(self), "hash", "key", "told", "time")
        return payload | to_payload(self.key, always=expected) | self.told.payload()


class RunResult(NamedTuple):
    """A trial in a run: its scores, and errors of judges."""

    case: Hash
    trial: Hash
    scores: tuple[Hash, ...] = ()
    errors: tuple[str, ...] = ()

    def payload(self) -> dict[str, Any]:
        return to_payload(self, always=("scores",))


class SuiteRun(NamedTuple):
    """A set of trials and scores. Equal results are the same node, so a run without news leaves no trace.
    `workflow` and `agent` are those requested, else None; `cases` is the number requested, `stopped` why some
    are missing."""

    hash: Hash
    cases: int
    repeat: int
    results: tuple[RunResult, ...]
    workflow: Hash | None = None
    agent: str | None = None
    label: str = ""
    stopped: str = ""
    time: int = 0

    def payload(self) -> dict[str, Any]:
        return _without(to_payload(self), "hash", "time")


class Result(NamedTuple):
    """A complete trial with its scores. `name` is the case's."""

    name: str
    case: Case
    trial: Trial
    scores: tuple[Score, ...] = ()
    errors: tuple[str, ...] = ()

    @property
    def state(self) -> str:
        """PASSED, MISSED, or ERROR if an agent or judge failed."""
        if self.trial.status == FAILED or self.errors:
            return ERROR
        if self.trial.status != COMPLETED:
            return MISSED
        if not self.scores:
            return MISSED if self.trial.error else PASSED
        return PASSED if all(score.passed for score in self.scores) else MISSED

    @property
    def score(self) -> float | None:
        """The judges' mean, 0 if unfinished, None for an ERROR. Without judges 1, or 0 if it ended as failed."""
        if self.state == ERROR:
            return None
        if self.trial.status != COMPLETED:
            return 0.0
        scores = [score.score for score in self.scores]
        if not scores:
            return 0.0 if self.trial.error else 1.0
        return sum(scores) / len(scores)


_TYPES: Mapping[type, Hash] = {Case: CASE, Trial: TRIAL, Score: SCORE, SuiteRun: SUITE_RUN}
_Record = TypeVar("_Record", Case, Trial, Score, SuiteRun)

UNKNOWN = Hash("")
"""The hash of a value that is about to be `identified`."""


def identified(record: _Record) -> _Record:
    """Return a value with its node's hash."""
    payload = cbor.normalise(record.payload())
    return record._replace(hash=hash_of(_TYPES[type(record)], payload))


# Reading payloads, which obey their schemas


def parse_judge(payload: Mapping[str, Any]) -> Judge:
    """Parse a judge. Raises Invalid."""
    kinds = [kind for kind in KINDS if kind in payload]
    if len(kinds) != 1:
        raise Invalid(f"judge {payload['name']!r} is of {len(kinds)} kinds", f"one of {', '.join(KINDS)}")
    value = payload[kinds[0]]
    return from_payload(
        Judge, payload, kind=kinds[0], value=tuple(value) if kinds[0] in (EXACT, COMMAND) else value
    )


def parse_case(node: Hash, payload: Mapping[str, Any]) -> Case:
    """Parse a Case. Raises Invalid if neither thread nor prompt."""
    judges = tuple(parse_judge(judge) for judge in payload.get("judges", ()))
    case = from_payload(Case, payload, hash=node, judges=judges)
    if (case.prompt is None) is (case.start is None) or (case.role is not None and case.step is None):
        raise Invalid(f"case {node} is neither of a thread nor a prompt", "see: uwf verify")
    return case


def parse_trial(node: Hash, payload: Mapping[str, Any], time: int = 0) -> Trial:
    key = from_payload(TrialKey, payload)
    return from_payload(Trial, payload, hash=node, key=key, told=parse_spending(payload), time=time)


def parse_score(node: Hash, payload: Mapping[str, Any], time: int = 0) -> Score:
    """Parse a Score. Raises Invalid."""
    key = from_payload(ScoreKey, payload, judge=parse_judge(payload["judge"]))
    return from_payload(Score, payload, hash=node, key=key, told=parse_spending(payload), time=time)


def parse_run(node: Hash, payload: Mapping[str, Any], time: int = 0) -> SuiteRun:
    results = tuple(from_payload(RunResult, result) for result in payload["results"])
    return from_payload(SuiteRun, payload, hash=node, results=results, time=time)


def parse_spending(payload: Mapping[str, Any]) -> AgentSpending:
    usage = payload["usage"]
    return AgentSpending(
        TokenUsage(**usage) if usage else None,
        payload.get("cost"),
        payload["unpriced"],
        payload["durationMs"] / 1000,
    )
