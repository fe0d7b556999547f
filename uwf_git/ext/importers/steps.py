"""Parsing older StepNodes, by their common fields, and their details, whose form depended on the agent."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from uwf_git.plugin import Hash, Invalid, Node, Step, TokenUsage, TurnRecord, UwfError, is_hash, parse_json

_STEP = frozenset(Step._fields)
_START = frozenset({"workflow", "prompt"})
_TEXTS = ("answer", "text", "output", "content", "raw")


class OldStep(NamedTuple):
    """A StepNode. `extras` are unknown fields."""

    step: Step
    extras: tuple[str, ...]


class OldStart(NamedTuple):
    """A StartNode. `extras` are unknown fields."""

    workflow: Hash
    prompt: str
    extras: tuple[str, ...]


class DetailContents(NamedTuple):
    """A detail's contents, empty if missing. `cost` is in US dollars."""

    answer: str = ""
    turns: tuple[TurnRecord, ...] = ()
    session: str | None = None
    model: str | None = None
    usage: TokenUsage | None = None
    duration: int = 0
    cost: float | None = None


def read_start(payload: Any) -> OldStart | None:
    """Parse a StartNode, or return None."""
    if not isinstance(payload, dict) or not {"workflow", "prompt"} <= payload.keys() or "role" in payload:
        return None
    if not isinstance(payload["prompt"], str) or not _is_ref(payload["workflow"]):
        return None
    return OldStart(payload["workflow"], payload["prompt"], tuple(sorted(payload.keys() - _START)))


def read_step(payload: Any) -> OldStep:
    """Parse a StepNode. Raises Invalid."""
    if not isinstance(payload, dict) or not payload.keys() >= _STEP:
        raise Invalid("is neither a StepNode nor a StartNode")
    for name in ("start", "output", "detail"):
        if not _is_ref(payload[name]):
            raise Invalid(f"is not a StepNode: its {name} is not a hash")
    if payload["prev"] is not None and not _is_ref(payload["prev"]):
        raise Invalid("is not a StepNode: its prev is neither a hash nor null")
    if not isinstance(payload["role"], str) or not isinstance(payload["agent"], str):
        raise Invalid("is not a StepNode: its role and agent are no text")
    return OldStep(Step(*(payload[name] for name in Step._fields)), tuple(sorted(payload.keys() - _STEP)))


def read_detail(detail: Node, get: Callable[[Hash], Node]) -> DetailContents:
    """Parse a detail. `get` reads nodes; unreadable ones are skipped."""
    payload = detail.payload
    if isinstance(payload, str):
        return DetailContents(payload)
    if not isinstance(payload, dict):
        return DetailContents()
    turns = tuple(_turns(payload.get("turns"), get))
    answer = next((payload[key] for key in _TEXTS if isinstance(payload.get(key), str)), None)
    if answer is None:
        spoken = (turn.text for turn in reversed(turns) if turn.role == "assistant" and turn.text.strip())
        answer = next(spoken, "")
    cost = payload.get("totalCostUsd")
    return DetailContents(
        answer,
        turns,
        _text(payload.get("sessionId")),
        _text(payload.get("model")),
        _usage(payload.get("usage")),
        _count(payload.get("durationMs")) or _count(payload.get("duration")),
        float(cost) if isinstance(cost, int | float) and not isinstance(cost, bool) and cost >= 0 else None,
    )


def _turns(value: Any, get: Callable[[Hash], Node]) -> Iterator[TurnRecord]:
    calls: list[tuple[str, Any]] = []
    for turn in value if isinstance(value, list) else ():
        if _is_ref(turn):
            try:
                turn = get(turn).payload
            except UwfError:
                continue
        if not isinstance(turn, dict):
            continue
        role, text = turn.get("role"), turn.get("content")
        if not isinstance(text, str) or role not in ("assistant", "tool", "user"):
            continue
        if role == "tool":
            name, arguments = calls.pop(0) if calls else (_text(turn.get("name")) or "tool", None)
            yield TurnRecord("tool", "", name, arguments, text)
            continue
        yield from _unanswered(calls)
        calls = list(_calls(turn.get("toolCalls")))
        yield TurnRecord(role, text)
    yield from _unanswered(calls)


def _unanswered(calls: list[tuple[str, Any]]) -> Iterator[TurnRecord]:
    for name, arguments in calls:
        yield TurnRecord("tool", "", name, arguments)


def _calls(value: Any) -> Iterator[tuple[str, Any]]:
    for call in value if isinstance(value, list) else ():
        if isinstance(call, dict) and isinstance(name := call.get("name"), str):
            arguments = call.get("args", call.get("input"))
            if isinstance(arguments, str):
                with contextlib.suppress(Invalid):
                    arguments = parse_json(arguments)
            yield name, arguments


def _usage(value: Any) -> TokenUsage | None:
    read, written = _of(value, "inputTokens", "input"), _of(value, "outputTokens", "output")
    if read is None and written is None:
        return None
    cached = _count(_of(value, "cacheReadInputTokens", "cached"))
    return TokenUsage(_count(read), _count(written), cached)


def _of(value: Any, *keys: str) -> Any:
    return next((value[key] for key in keys if key in value), None) if isinstance(value, dict) else None


def _count(value: Any) -> int:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return round(value) if is_number and 0 <= value < 2**52 else 0


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _is_ref(value: Any) -> bool:
    return isinstance(value, str) and is_hash(value)
