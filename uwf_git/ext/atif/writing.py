"""Writing a thread as a trajectory of ATIF v1.8.

The task and a person's texts are steps of the user. A step of an agent is a step for each of its messages, with the
calls that follow it and their results; the last one has the answer and, under `extra.uwf`, the step itself. A
sub-workflow is a trajectory of its own, to which its step refers. Steps that came out of a trajectory are written as
they were there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from uwf_git.ext.atif.reading import SOURCE
from uwf_git.plugin import (
    DEEPEST,
    HUMAN,
    USER,
    VERSION,
    Detail,
    Hash,
    Head,
    Instance,
    Step,
    Tokens,
    TurnRecord,
    is_kind,
    iso,
    logged_original,
    remark_in,
    tokens_in,
    tokens_of_step,
)

FORMAT = "ATIF-v1.8"


def trajectory(instance: Instance, head: Head) -> dict[str, Any]:
    """Return a thread as a trajectory. Raises what reading raises."""
    return _Trajectory(instance, 0).run(head.node, head.thread)


class _Trajectory:
    """Writes runs of a store; `depth` counts the sub-workflows around one."""

    def __init__(self, instance: Instance, depth: int) -> None:
        self._instance = instance
        self._store = instance.store
        self._depth = depth
        self._within: list[dict[str, Any]] = []

    def run(self, last: Hash, name: str) -> dict[str, Any]:
        past = list(self._instance.threads.past(last))[::-1]
        start = past[0].step.start if past else last
        details = {item.hash: self._detail(item.step) for item in past}
        originals = {
            node: original
            for node, detail in details.items()
            if detail is not None and (detail.source or "").startswith(SOURCE)
            if (original := logged_original(self._instance, detail)) is not None
        }
        root: dict[str, Any] = next(
            (item["trajectory"] for item in originals.values() if "trajectory" in item), {}
        )
        steps: list[dict[str, Any]] = []
        if not originals:
            began = self._store.get(start).timestamp
            steps.append(_message_step("user", self._store.start(start).prompt, began))
        for at, (node, step, _) in enumerate(past):
            if node in originals:
                steps += originals[node]["steps"]
            elif at + 1 == len(past) or past[at + 1].hash not in originals:
                steps += self._step(node, step, details[node])
        steps = [{**step, "step_id": number} for number, step in enumerate(steps, 1)]
        if root:
            went_on = len(past) != 2 * len(originals) - 1
            total = {"final_metrics": self._total(details.values(), len(steps))} if went_on else {}
            return {**root, "steps": steps, **total}
        agents = dict.fromkeys(step.agent for _, step, _ in past if step.role != USER and step.agent != HUMAN)
        models = dict.fromkeys(detail.model for detail in details.values() if detail and detail.model)
        return {
            "schema_version": FORMAT,
            "session_id": name,
            "trajectory_id": name,
            "agent": {
                "name": next(iter(agents)) if len(agents) == 1 else "uwf",
                "version": VERSION,
                **({"model_name": next(iter(models))} if len(models) == 1 else {}),
            },
            "steps": steps,
            "final_metrics": self._total(details.values(), len(steps)),
            "extra": {"uwf": {"workflow": self._workflow(start), "start": start, "head": last}},
            **({"subagent_trajectories": self._within} if self._within else {}),
        }

    def _workflow(self, start: Hash) -> str:
        return self._instance.registry.workflow(self._store.start(start).workflow).name

    def _detail(self, step: Step) -> Detail | None:
        return self._store.detail(step.detail)

    def _step(self, node: Hash, step: Step, detail: Detail | None) -> Iterator[dict[str, Any]]:
        when, output = self._store.get(node).timestamp, self._store.get(step.output).payload
        own: dict[str, Any] = {"step": node, "role": step.role, "agent": step.agent, "output": output}
        if step.role == USER:
            text = remark_in(USER, output)
            if text is None:
                text = str(output.get("answer", "")) if isinstance(output, dict) else ""
            yield {**_message_step("user", text, when), "extra": {"uwf": own}}
            return
        if detail is None:
            yield self._sub_workflow(node, step, own, when)
            return
        text = detail.answer or _json(output)
        if step.agent == HUMAN or step.role.startswith("$"):
            source = "user" if step.agent == HUMAN else "system"
            yield {**_message_step(source, text, when), "extra": {"uwf": own}}
            return
        turns = self._store.turns(detail)
        *messages, last = _messages(turns, when) or [_message_step("agent", text, when)]
        if last["message"] != text:
            messages.append(last)
            last = _message_step("agent", text, when)
        if detail.usage is None and all(turn.role == "tool" for turn in turns):  # a command
            messages = [{**message, "llm_call_count": 0} for message in messages]
            last["llm_call_count"] = 0
        yield from messages
        if not any("metrics" in message for message in (*messages, last)):
            last |= _spent(tokens_of_step(detail, turns), detail, len(messages) + 1)
        if detail.model:
            last.setdefault("model_name", detail.model)
        own |= {"session": detail.session, "duration_ms": detail.duration_ms}
        yield {**last, "extra": {"uwf": {key: value for key, value in own.items() if value is not None}}}

    def _sub_workflow(self, node: Hash, step: Step, own: Mapping[str, Any], when: int) -> dict[str, Any]:
        value = {
            **_message_step("agent", _json(own["output"]), when),
            "llm_call_count": 0,
            "extra": {"uwf": own},
        }
        if not is_kind(self._store.get(step.detail).type, "step") or self._depth >= DEEPEST:
            return value
        self._within.append(_Trajectory(self._instance, self._depth + 1).run(step.detail, node))
        reference = {"trajectory_id": node}
        return {**value, "observation": {"results": [{"subagent_trajectory_ref": [reference]}]}}

    def _total(self, details: Any, steps: int) -> dict[str, Any]:
        known = [detail for detail in details if detail is not None]
        spent = (tokens_of_step(detail, self._store.turns(detail)) for detail in known)
        tokens = [item for item in spent if item is not None]
        costs = [detail.cost for detail in known if detail.cost is not None]
        total: dict[str, float] = {}
        if tokens:
            total["total_prompt_tokens"] = sum(item.input for item in tokens)
            total["total_completion_tokens"] = sum(item.output for item in tokens)
            total["total_cached_tokens"] = sum(item.cached for item in tokens)
        if costs:
            total["total_cost_usd"] = sum(costs)
        return {**total, "total_steps": steps}


def _messages(turns: Sequence[TurnRecord], when: int) -> list[dict[str, Any]]:
    """Return a step for each message of the agent, with the calls after it, and for what people said meanwhile."""
    steps: list[dict[str, Any]] = []
    for number, turn in enumerate(turns):
        if turn.role == "tool":
            if not steps or steps[-1]["source"] != "agent":
                steps.append(_message_step("agent", "", when))
            _call(steps[-1], turn, f"call-{number}")
        else:
            steps.append(_message_step("user" if turn.role == "user" else "agent", turn.text, when))
            if turn.role == "assistant":
                steps[-1] |= _metrics(tokens_in(turn.usage), None)
                steps[-1] |= {"model_name": turn.model} if turn.model else {}
    if steps and steps[-1]["source"] != "agent":
        steps.append(_message_step("agent", "", when))
    return steps


def _call(step: dict[str, Any], turn: TurnRecord, name: str) -> None:
    calls = step.setdefault("tool_calls", [])
    taken = {call["tool_call_id"] for call in calls}
    id_ = turn.call if turn.call and turn.call not in taken else name
    arguments = turn.arguments if isinstance(turn.arguments, dict) else {"input": turn.arguments}
    call = {"tool_call_id": id_, "function_name": turn.tool or "tool", "arguments": arguments}
    calls.append(call if turn.arguments is not None else {**call, "arguments": {}})
    text = turn.text or (turn.result if isinstance(turn.result, str) else _json(turn.result))
    result = {"source_call_id": id_, "content": text, **({"extra": {"failed": True}} if turn.failed else {})}
    step.setdefault("observation", {"results": []})["results"].append(result)


def _message_step(source: str, message: str, when: int) -> dict[str, Any]:
    return {"step_id": 0, "timestamp": iso(when / 1000), "source": source, "message": message}


def _spent(tokens: Tokens | None, detail: Detail, calls: int) -> dict[str, Any]:
    """Return the sum of a step of `calls` messages."""
    metrics = _metrics(tokens, detail.cost)
    return {**metrics, "llm_call_count": calls} if metrics and calls > 1 else metrics


def _metrics(tokens: Tokens | None, cost: float | None) -> dict[str, Any]:
    metrics: dict[str, float] = {}
    if tokens is not None:
        metrics |= {"prompt_tokens": tokens.input, "completion_tokens": tokens.output}
        metrics["cached_tokens"] = tokens.cached
    if cost is not None:
        metrics["cost_usd"] = cost
    return {"metrics": metrics} if metrics else {}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
