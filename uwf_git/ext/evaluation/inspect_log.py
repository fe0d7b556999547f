"""A suite's run as a log of Inspect, which `inspect view` shows and `read_eval_log` reads: a sample a trial, with the
messages of its agents."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from statistics import fmean
from typing import Any

from uwf_git.ext.evaluation.records import COMPLETED, LIMITED, Result, SuiteRun
from uwf_git.ext.evaluation.suite import Suite
from uwf_git.plugin import USER, VERSION, Detail, Instance, TurnRecord, iso

Usages = dict[str, dict[str, Any]]
"""Inspect's usage of each model by its name."""


def file_name(suite: Suite, run: SuiteRun) -> str:
    """Return a name by which Inspect lists a log: the time, the task and an id."""
    when = iso(run.time / 1000).replace(":", "-").replace("Z", "+00-00")
    return f"{when}_{suite.name.replace('_', '-')}_{run.hash}.json"


def inspect_log(instance: Instance, suite: Suite, run: SuiteRun, about: str) -> dict[str, Any]:
    """Return a run as JSON. `about` says for people what was run. Raises NotFound, StoreDamaged."""
    results = suite.results(run)
    samples = [_sample(instance, result) for result in results]
    usage = _sum(sample["model_usage"] for sample in samples)
    judges = dict.fromkeys(score.judge.name for result in results for score in result.scores)
    names = list(dict.fromkeys(result.name for result in results))
    began = min((result.trial.time - _milliseconds(result) for result in results), default=run.time)
    return {
        "version": 2,
        "status": "cancelled" if run.stopped else "success",
        "eval": {
            "eval_id": run.hash,
            "run_id": run.hash,
            "task_id": suite.name,
            "task": suite.name,
            "created": iso(run.time / 1000),
            "dataset": {"name": suite.name, "samples": len(names), "sample_ids": names},
            "model": next(iter(usage), None) or run.agent or "none",
            "config": {"epochs": run.repeat},
            "packages": {"uwf-git": VERSION},
            "scorers": [{"name": judge} for judge in judges],
            "metadata": {"said": about, "workflow": run.workflow, "agent": run.agent, "label": run.label},
        },
        "plan": {"name": about, "steps": []},
        "results": {
            "total_samples": run.cases * run.repeat,
            "completed_samples": sum(result.trial.status == COMPLETED for result in results),
            "scores": [_metrics(judge, results) for judge in judges],
        },
        "stats": {
            "started_at": iso(began / 1000),
            "completed_at": iso(max((result.trial.time for result in results), default=run.time) / 1000),
            "model_usage": usage,
        },
        "samples": samples,
    }


def _metrics(judge: str, results: Sequence[Result]) -> dict[str, Any]:
    scores = [score for result in results for score in result.scores if score.judge.name == judge]
    values = {
        "mean": fmean(score.score for score in scores),
        "passed": fmean(score.passed for score in scores),
    }
    return {
        "name": judge,
        "scorer": judge,
        "scored_samples": len(scores),
        "unscored_samples": len(results) - len(scores),
        "metrics": {name: {"name": name, "value": value} for name, value in values.items()},
    }


def _sample(instance: Instance, result: Result) -> dict[str, Any]:
    trial = result.trial
    details = list(_details(instance, result))
    messages = [message for role, detail in details for message in _messages(instance, role, detail)]
    model, answer = next(((detail.model, detail.answer) for _, detail in reversed(details)), (None, ""))
    task = _task(instance, result)
    sample: dict[str, Any] = {
        "id": result.name,
        "epoch": trial.key.repeat,
        "uuid": trial.hash,
        "input": task,
        "target": "" if (expected := result.case.expected) is None else _text(expected),
        "messages": [{"role": "user", "content": task, "source": "input"}, *messages],
        "output": {
            "model": model or "",
            "choices": [{"message": {"role": "assistant", "content": answer}, "stop_reason": "stop"}],
            "completion": answer,
        },
        "scores": {
            score.judge.name: {
                "value": score.score,
                "explanation": score.reason or None,
                "metadata": {"passed": score.passed, "kind": score.judge.kind},
            }
            for score in result.scores
        },
        "metadata": {
            "status": trial.status,
            "state": result.state,
            "last": trial.last,
            "agents": dict(trial.key.agents),
            "tags": list(result.case.tags),
            "judgeErrors": list(result.errors),
        },
        "model_usage": _sum(
            {detail.model or role: _usage(detail)} for role, detail in details if detail.usage
        ),
        "started_at": iso((trial.time - _milliseconds(result)) / 1000),
        "completed_at": iso(trial.time / 1000),
        "total_time": trial.told.seconds,
    }
    if trial.error:
        sample["error"] = {"message": trial.error, "traceback": trial.error, "traceback_ansi": trial.error}
    if trial.status == LIMITED:
        sample["limit"] = {"type": "custom", "limit": 0}
    return sample


def _milliseconds(result: Result) -> int:
    return round(result.trial.told.seconds * 1000)


def _task(instance: Instance, result: Result) -> str:
    """Return the task of a trial, whose head is the start, or the step that a role's is made again after."""
    key, store = result.trial.key, instance.store
    if key.role is None and result.case.prompt is not None:
        return result.case.prompt
    start = result.case.start
    return store.start(start).prompt if start is not None else ""


def _details(instance: Instance, result: Result) -> Iterator[tuple[str, Detail]]:
    """Yield the roles and details of a trial's own steps, oldest first."""
    trial = result.trial
    if trial.last is None:
        return
    steps = takewhile(lambda step: step.hash != trial.key.head, instance.threads.past(trial.last))
    for step in reversed([*steps]):
        if (detail := instance.store.detail(step.step.detail)) is not None:
            yield step.step.role, detail


def _messages(instance: Instance, role: str, detail: Detail) -> Iterator[dict[str, Any]]:
    """Yield the messages of a step: its instruction, its turns, or the answer of an agent that reports no turns."""
    about = {"role": role}
    if detail.instruction:
        yield {"role": "user", "content": detail.instruction, "metadata": about}
    turns = instance.store.turns(detail)
    if not any(turn.role == "assistant" for turn in turns):
        speaker = "user" if role == USER else "assistant"
        yield {"role": speaker, "content": detail.answer, "metadata": about}
        return
    for at, turn in enumerate(turns):
        if turn.role == "tool":
            yield _tool_message(at, turn, about)
            continue
        message: dict[str, Any] = {"role": turn.role, "content": turn.text, "metadata": about}
        if turn.role == "assistant":
            calls = [*takewhile(lambda item: item[1].role == "tool", enumerate(turns[at + 1 :], at + 1))]
            message["model"] = turn.model or detail.model
            message["tool_calls"] = [_tool_call(number, call) for number, call in calls] or None
        yield message


def _tool_call(number: int, turn: TurnRecord) -> dict[str, Any]:
    arguments = turn.arguments if isinstance(turn.arguments, dict) else {"arguments": turn.arguments}
    return {"id": turn.call or str(number), "function": turn.tool, "arguments": arguments, "type": "function"}


def _tool_message(number: int, turn: TurnRecord, about: Mapping[str, Any]) -> dict[str, Any]:
    text = _text(turn.result)
    return {
        "role": "tool",
        "content": text,
        "tool_call_id": turn.call or str(number),
        "function": turn.tool,
        "error": {"type": "unknown", "message": text} if turn.failed else None,
        "metadata": about,
    }


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


def _usage(detail: Detail) -> dict[str, Any]:
    """Return a step's usage. Inspect counts what the provider's cache had apart from other input."""
    usage = detail.usage
    assert usage is not None
    written = usage.written or 0
    return {
        "input_tokens": usage.input - usage.cached - written,
        "output_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "input_tokens_cache_read": usage.cached,
        "input_tokens_cache_write": written,
        "total_cost": detail.cost,
    }


def _sum(usages: Iterable[Usages]) -> Usages:
    sums: Usages = {}
    for usage in usages:
        for model, counts in usage.items():
            known = sums.setdefault(model, {})
            for name, count in counts.items():
                both = [item for item in (known.get(name), count) if item is not None]
                known[name] = sum(both) if both else None
    return sums
