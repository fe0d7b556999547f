"""Metrics of a store, as OpenMetrics' own parser reads them."""

from __future__ import annotations

from pathlib import Path

import spent_threads
from cli_samples import ASKS, PAIR, scripted, write
from conftest import Uwf
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.parser import text_string_to_metric_families as old_families
from spent_threads import assistant, attempt, step, usage

from uwf_git.ext.monitoring import metrics
from uwf_git.store.instance import Instance


def samples(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """The samples of a text, by their names and labels."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(text: str, name: str, **labels: str) -> float:
    return samples(text)[name, frozenset(labels.items())]


def text_of(instance: Instance) -> str:
    return metrics.exposition(metrics.of_store(instance)) + metrics.END


def test_steps_durations_failures_tokens_and_money_are_counted(instance: Instance) -> None:
    thread = spent_threads.start(instance)
    step(instance, thread, [assistant(900, 100, "acme")], usage=usage(900, 100), cost=0.25, durationMs=4000)
    step(instance, thread, usage=usage(10, 5), model="other", durationMs=90_000)
    attempt(instance, thread)
    text = text_of(instance)
    assert value(text, "uwf_steps_total", workflow="pair", agent="by-hand") == 2
    of_pair = {"workflow": "pair"}
    assert value(text, "uwf_step_duration_seconds_bucket", le="5.0", **of_pair) == 1
    assert value(text, "uwf_step_duration_seconds_bucket", le="120.0", **of_pair) == 2
    assert value(text, "uwf_step_duration_seconds_sum", **of_pair) == 94
    assert value(text, "uwf_step_failures_total", cause="failed", **of_pair) == 1
    assert value(text, "uwf_cost_usd_total", model="acme") == 0.25
    assert value(text, "uwf_tokens_total", model="acme", kind="input") == 900
    assert value(text, "uwf_tokens_unpriced_total") == 15
    assert value(text, "uwf_threads", state="failed") == 1
    assert text_of(Instance(instance.location)) == text
    assert old_families(text)  # as a textfile collector reads it


def test_the_oldest_question_is_told_by_its_time_and_no_text_gets_out(uwf: Uwf, instance: Instance) -> None:
    uwf("workflow", "put", write("pair.yaml", PAIR))
    thread = uwf("thread", "start", "pair", "-p", "Hush, a secret.").json["thread"]
    uwf("thread", "step", thread, "--agent", scripted(ASKS))
    text = uwf("metrics", "--format", "text").out
    asked = value(text, "uwf_oldest_question_timestamp_seconds")
    assert asked == instance.threads.head(thread).updated and not {"hush", "colour"} & set(
        text.lower().split()
    )
    assert value(text, "uwf_threads", state="waiting") == 1
    uwf("metrics", "--out", "uwf.prom")
    assert Path("uwf.prom").read_text() == text
    assert {item["name"] for item in uwf("metrics", "--json").json} >= {"uwf_steps", "uwf_threads"}


def test_labels_have_few_values_and_may_have_any_characters(instance: Instance) -> None:
    thread = spent_threads.start(instance)
    odd = 'odd "{}"\\\n'
    for number in range(metrics._MOST + 5):
        step(instance, thread, agent=odd.format(number))
    text = text_of(instance)
    agents = {dict(labels)["agent"] for name, labels in samples(text) if name == "uwf_steps_total"}
    assert len(agents) == metrics._MOST + 1 and {metrics.OTHER, odd.format(0)} < agents
    assert value(text, "uwf_steps_total", workflow="pair", agent=metrics.OTHER) == 5
