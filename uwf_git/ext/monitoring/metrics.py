"""Metrics of a store in the OpenMetrics text format (https://prometheus.io/docs/specs/om/open_metrics_spec/).

All derive from refs and steps: counters are sums over all steps that the store has, so that each process of a machine
says the same, and none has to be asked what it did. Times are given as such, not as ages. Labels are names of
workflows, agents, models, causes and states, of which the most used ones have their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from uwf_git import __version__
from uwf_git.ext.monitoring.health import opened
from uwf_git.plugin import (
    CONFIG_FILE,
    DamagedThread,
    EndpointAnswer,
    Freshness,
    Head,
    Instance,
    Location,
    Metric,
    Price,
    Sample,
    SpendingRun,
    ThreadState,
    ThreadStates,
    UwfError,
    extensions,
    failure_causes,
    runs_of_heads,
)

MEDIA_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_BUCKETS = (0.1, 1, 5, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200)  # seconds
_MOST = 30  # values of a label, beyond which the rest are OTHER
OTHER = "other"
END = "# EOF\n"
_LONGEST = 80  # characters of a label's value


def answer(location: Location) -> EndpointAnswer:
    return EndpointAnswer(_kept_text(location), 200, MEDIA_TYPE)


class _Kept(NamedTuple):
    """The metrics of a store at a moment, and what they depend on."""

    refs: Freshness
    state: object
    text: str


_kept: dict[Path, _Kept] = {}


def _kept_text(location: Location) -> str:
    """Return the text of a store's metrics, made anew only if it has changed."""
    kept = _kept.get(location.git_dir)
    config = location.root / CONFIG_FILE
    refs = kept.refs if kept is not None else Freshness(location.git_dir, also=(config,))
    with opened(location) as instance:
        more = extensions.metrics(instance)
        state = refs.mark(), instance.locks.held()
        if kept is None or kept.state != state:
            kept = _kept[location.git_dir] = _Kept(refs, state, exposition(of_store(instance)))
    return f"{kept.text}{exposition(more)}{END}"


def of_store(instance: Instance) -> list[Metric]:
    """Return the metrics that derive from a store."""
    listed = instance.threads.all(archived=True)
    heads = [head for head in listed if isinstance(head, Head)]
    runs = list(runs_of_heads(instance, heads))
    return [
        Metric("uwf_build", "info", "The version of uwf.", (Sample("_info", {"version": __version__}, 1),)),
        *_of_steps(runs, failure_causes(instance, heads)),
        *_of_money(runs, instance.known_prices),
        *_of_threads(instance, listed),
    ]


class _Names(NamedTuple):
    """The values of a label that have their own; others are OTHER."""

    known: frozenset[str]

    @classmethod
    def of(cls, names: Iterable[str]) -> _Names:
        ranked = sorted(Counter(names).items(), key=lambda item: (-item[1], item[0]))
        return cls(frozenset(name for name, _ in ranked[:_MOST]))

    def label(self, name: str) -> str:
        return (name[:_LONGEST] or "unknown") if name in self.known else OTHER


def _of_steps(runs: Sequence[SpendingRun], causes: Mapping[tuple[str, str], int]) -> Iterator[Metric]:
    workflows, agents = _Names.of(run.workflow for run in runs), _Names.of(run.agent for run in runs)
    steps: Counter[tuple[str, str]] = Counter()
    took: dict[str, list[float]] = {}
    for run in runs:
        workflow = workflows.label(run.workflow)
        if run.spent.steps:
            steps[workflow, agents.label(run.agent)] += run.spent.steps
            took.setdefault(workflow, []).append(run.spent.seconds)
    yield _counter("uwf_steps", "Steps that were made.", ("workflow", "agent"), steps)
    yield Metric(
        "uwf_step_duration_seconds",
        "histogram",
        "Seconds that the agents of steps took.",
        tuple(
            sample
            for workflow in sorted(took)
            for sample in _histogram({"workflow": workflow}, took[workflow])
        ),
        "seconds",
    )
    failures: Counter[tuple[str, str]] = Counter()
    for (workflow, cause), number in causes.items():
        failures[workflows.label(workflow), cause] += number
    yield _counter("uwf_step_failures", "Attempts at steps that failed.", ("workflow", "cause"), failures)


def _counter(
    name: str, about: str, labels: Sequence[str], counts: Mapping[Any, float], unit: str = ""
) -> Metric:
    """Return a counter; `counts` are by a value of each of `labels`."""
    samples = (
        Sample("_total", dict(zip(labels, values, strict=True)), number)
        for values, number in sorted(counts.items())
    )
    return Metric(name, "counter", about, tuple(samples), unit)


def _histogram(labels: Mapping[str, str], values: Sequence[float]) -> Iterator[Sample]:
    for most in _BUCKETS:
        count = sum(value <= most for value in values)
        yield Sample("_bucket", {**labels, "le": repr(float(most))}, count)
    yield Sample("_bucket", {**labels, "le": "+Inf"}, len(values))
    yield Sample("_count", labels, len(values))
    yield Sample("_sum", labels, round(sum(values), 3))


def _of_money(runs: Sequence[SpendingRun], prices: Mapping[str, Price]) -> Iterator[Metric]:
    models = _Names.of(line.model for run in runs for line in run.spent.lines)
    cost: dict[tuple[str], float] = {}
    tokens: Counter[tuple[str, str]] = Counter()
    unpriced = 0
    for run in runs:
        for line in run.spent.lines:
            model = models.label(line.model)
            for kind, number in line.tokens._asdict().items():
                tokens[model, kind] += number
            paid = run.spent._replace(lines=(line,)).money(prices)
            unpriced += paid.unpriced
            if paid.cost is not None:
                cost[(model,)] = cost.get((model,), 0.0) + paid.cost
    paid_for = "US dollars that agents reported, or by the prices of config.yaml."
    rounded = {model: round(amount, 6) for model, amount in cost.items()}
    yield _counter("uwf_cost_usd", paid_for, ("model",), rounded, "usd")
    counted = "Tokens of models; those cached and written are among the input."
    yield _counter("uwf_tokens", counted, ("model", "kind"), tokens)
    yield _counter("uwf_tokens_unpriced", "Tokens whose cost is unknown.", (), {(): unpriced})


def _of_threads(instance: Instance, heads: Sequence[Head | DamagedThread]) -> Iterator[Metric]:
    counts: Counter[ThreadState] = Counter()
    states, waiting = ThreadStates(instance), []
    for head in heads:
        try:
            state = states.of(head)
        except UwfError:
            state = ThreadState.CORRUPT
        counts[state] += 1
        if state.request is not None and isinstance(head, Head):
            waiting.append(head.updated)
    words = Counter[str]()
    for state in ThreadState:
        words[state.word] += counts[state]
    yield Metric(
        "uwf_threads",
        "gauge",
        "Threads by state.",
        tuple(Sample("", {"state": word}, number) for word, number in words.items()),
    )
    yield Metric(
        "uwf_oldest_question_timestamp_seconds",
        "gauge",
        "When the thread that waits longest for a person began to.",
        tuple(Sample("", {}, when) for when in [min(waiting)]) if waiting else (),
        "seconds",
    )


def exposition(metrics: Iterable[Metric]) -> str:
    """Return metrics as text, without its END."""
    lines = []
    for metric in metrics:
        lines.append(f"# TYPE {metric.name} {metric.kind}")
        if metric.unit:
            lines.append(f"# UNIT {metric.name} {metric.unit}")
        lines.append(f"# HELP {metric.name} {_escaped(metric.help)}")
        for suffix, labels, value in metric.samples:
            pairs = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
            lines.append(
                f"{metric.name}{suffix}{{{pairs}}} {value}" if pairs else f"{metric.name}{suffix} {value}"
            )
    return "".join(f"{line}\n" for line in lines)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
