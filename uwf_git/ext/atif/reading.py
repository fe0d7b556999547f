"""Reading a trajectory as a session: a message of the user and all steps of the agent up to the next one are an
exchange. Each keeps its own steps as they are, the first also the rest of the trajectory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from uwf_git.plugin import Invalid, LoggedExchange, LoggedSession, TokenUsage, TurnRecord, as_json, one_line

SOURCE = "ATIF"
"""The beginning of what an exchange is called that has its steps as its original."""

_USER, _AGENT, _SYSTEM = "user", "agent", "system"


def read_trajectory(data: bytes, written: int, name: str) -> LoggedSession:
    """Return the session of a trajectory, in the file `name` that was written at a time in Unix milliseconds, which is
    the time of steps that have none. Raises Invalid."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"{name} is not JSON: {one_line(str(error), 100)}") from None
    try:
        return _session(value, written)
    except _Wrong as error:
        raise Invalid(f"{name} is not a trajectory of the format ATIF: {error}") from None


class _Wrong(Exception):
    """A trajectory of another shape; the text is why."""


def _session(value: Any, written: int) -> LoggedSession:
    root = _fields(value, "it")
    version = root.get("schema_version")
    if not isinstance(version, str) or not version.startswith("ATIF-v1."):
        raise _Wrong(
            f"its schema_version is {one_line(as_json(version), 40)}, and this version reads ATIF-v1.x"
        )
    agent = _fields(root.get("agent"), "agent")
    name = _text(agent.get("name"), "agent.name")
    steps = _listed(root.get("steps"), "steps")
    for number, step in enumerate(steps):
        _check(step, f"steps[{number}]")
    groups = list(_groups(steps))
    if not groups:
        raise _Wrong("no step is its agent's")
    times = [_time(step, 0) for step in steps]
    began = next(filter(None, times), 0)
    session = next((root[key] for key in ("trajectory_id", "session_id") if root.get(key)), None)
    if session is None:
        from hashlib import sha256

        session = sha256(json.dumps([agent, steps[0]], sort_keys=True).encode()).hexdigest()[:32]
    rest = {**root, "steps": []}
    when = began or written
    exchanges: list[LoggedExchange] = []
    for group in groups:
        exchange = _exchange(group, when, agent.get("model_name"), len(exchanges) + 1)
        original = {"steps": group} if exchanges else {"trajectory": rest, "steps": group}
        exchanges.append(exchange._replace(original=original))
        when = exchange.ended
    return LoggedSession(one_line(name, 100), str(session), began, tuple(exchanges))


def _check(step: Any, where: str) -> None:
    fields = _fields(step, where)
    if fields.get("source") not in (_USER, _AGENT, _SYSTEM):
        raise _Wrong(f"{where}.source is none of user, agent, system")
    if not isinstance(fields.get("message"), str | list):
        raise _Wrong(f"{where}.message is neither a text nor a list of parts")
    for number, call in enumerate(_listed(fields.get("tool_calls") or [], f"{where}.tool_calls")):
        _text(_fields(call, f"{where}.tool_calls[{number}]").get("function_name"), f"{where}.function_name")
    observation = _fields(fields.get("observation") or {"results": []}, f"{where}.observation")
    for number, result in enumerate(_listed(observation.get("results"), f"{where}.observation.results")):
        _fields(result, f"{where}.observation.results[{number}]")


def _groups(steps: Sequence[Any]) -> Iterator[list[Any]]:
    """Yield the steps of exchanges: messages, then the agent's. What stands after the agent's last step is of the last
    one."""
    last = max((at for at, step in enumerate(steps) if step["source"] == _AGENT), default=-1)
    group: list[Any] = []
    for at, step in enumerate(steps[: last + 1]):
        if step["source"] == _USER and any(other["source"] == _AGENT for other in group):
            yield group
            group = []
        group.append(step)
        if at == last:
            yield [*group, *steps[last + 1 :]]


def _exchange(steps: Sequence[Any], when: int, model: Any, number: int) -> LoggedExchange:
    first = next(at for at, step in enumerate(steps) if step["source"] == _AGENT)
    asking = [step for step in steps[:first] if step["source"] == _USER] or steps[:first]
    prompt = "\n\n".join(filter(None, (_words(step["message"]) for step in asking)))
    began = max((_time(step, when) for step in steps[:first]), default=when)
    own = [step for step in steps if step["source"] == _AGENT]
    turns = [turn for step in steps[first:] for turn in _turns(step)]
    ended = max((_time(step, began) for step in steps[first:]), default=began)
    models = [step["model_name"] for step in own if isinstance(step.get("model_name"), str)]
    costs = [cost for step in own if isinstance(cost := _metrics(step).get("cost_usd"), int | float)]
    usages = [usage for step in own if (usage := _usage(step)) is not None]
    return LoggedExchange(
        prompt or "(no message)",
        began,
        max(began, ended),
        next((text for step in reversed(own) if (text := _words(step["message"]))), ""),
        turns,
        models[-1] if models else model if isinstance(model, str) else None,
        TokenUsage(*map(sum, zip(*usages, strict=True))) if usages else None,
        round(float(sum(costs)), 9) if costs else None,
        source=f"{SOURCE} exchange {number}",
    )


def _turns(step: Any) -> Iterator[TurnRecord]:
    words, results = _words(step["message"]), _results(step)
    if step["source"] != _AGENT:
        role = "user" if step["source"] == _USER else "assistant"
        if words:
            yield TurnRecord(role, words)
    else:
        model = step.get("model_name")
        yield TurnRecord(
            "assistant", words, usage=_usage(step), model=model if isinstance(model, str) else None
        )
    for call in step.get("tool_calls") or ():
        id_ = call.get("tool_call_id")
        own = [text for key, text in results if key == id_ and key is not None]
        results = [item for item in results if item[0] != id_ or id_ is None]
        text = "\n".join(own)
        yield TurnRecord(
            "tool", text, call["function_name"], call.get("arguments"), text, call=str(id_) if id_ else None
        )
    for _, text in results:
        yield TurnRecord("tool", text, "observation", None, text)


def _results(step: Any) -> list[tuple[Any, str]]:
    observation = step.get("observation") or {"results": []}
    return [(item.get("source_call_id"), _words(item.get("content"))) for item in observation["results"]]


def _usage(step: Any) -> TokenUsage | None:
    metrics = _metrics(step)
    names = ("prompt_tokens", "completion_tokens", "cached_tokens")
    if not any(isinstance(metrics.get(name), int) for name in names):
        return None
    return TokenUsage(*(max(0, metrics.get(name) or 0) for name in names))


def _metrics(step: Any) -> dict[str, Any]:
    metrics = step.get("metrics")
    return metrics if isinstance(metrics, dict) else {}


def _words(content: Any) -> str:
    """Return the text of a message or a result; images and sounds are named."""
    if isinstance(content, str):
        return content
    parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    return "\n\n".join(
        str(part.get("text") or "") or f"[{part.get('type')}: {(part.get('source') or {}).get('path')}]"
        for part in parts
    )


def _time(step: Any, default: int) -> int:
    """Return a step's time in Unix milliseconds."""
    try:
        text = str(step["timestamp"]).replace("Z", "+00:00")
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (KeyError, ValueError, OverflowError):
        return default


def _fields(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _Wrong(f"{where} is not an object")
    return value


def _listed(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise _Wrong(f"{where} is not a list")
    return value


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise _Wrong(f"{where} is not a text")
    return value
