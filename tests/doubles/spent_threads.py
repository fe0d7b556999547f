"""Threads whose steps say what they spent, written without running an agent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cli_samples import PAIR
from workflows import start_thread

from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.kinds import Attempt, Step
from uwf_git.format.types import ANSWER, DETAIL, STEPNODE, TURN, USER
from uwf_git.store.instance import Instance

ENDLESS = PAIR.replace("steps[-1].output.approved = false", "'true'")


def start(
    instance: Instance, budget: dict[str, float] | None = None, more: str = "", name: str = "pair"
) -> ThreadId:
    """A thread of a workflow in which writer and critic take turns; `more` stands at the top of its YAML."""
    return start_thread(instance, ENDLESS.replace("name: pair", f"name: {name}\n{more}"), budget=budget)


def usage(input: int, output: int, cached: int = 0) -> dict[str, int]:
    return {"input": input, "output": output, "cached": cached}


def assistant(input: int, output: int, model: str | None = None, ms: int = 0) -> dict[str, Any]:
    """The payload of a model's turn."""
    turn = {"role": "assistant", "text": "said", "usage": usage(input, output), "durationMs": ms}
    return {**turn, "model": model} if model else turn


def tool(name: str, ms: int = 0, failed: bool = False) -> dict[str, Any]:
    """The payload of a tool's turn."""
    turn = {
        "role": "tool",
        "text": "",
        "tool": name,
        "arguments": {"path": "x"},
        "result": {"ok": not failed},
    }
    return {**turn, "durationMs": ms, "call": f"call-{name}", "failed": failed}


def extracted(model: str, input: int, output: int) -> dict[str, Any]:
    """The payload of the turn in which a model read the output out of an answer."""
    turn = {"role": "tool", "text": "{}", "tool": "extract", "arguments": {"model": model}, "result": None}
    return {**turn, "usage": usage(input, output)}


def detail(instance: Instance, turns: Sequence[dict[str, Any]] = (), **fields: Any) -> Hash:
    """A Detail node."""
    payload = {
        "answer": "The answer.",
        "turns": [instance.store.put(TURN, turn) for turn in turns],
        "session": None,
        "model": None,
        "usage": None,
        "durationMs": 0,
        "instruction": None,
        "context": None,
        "extraction": "native",
        **fields,
    }
    return instance.store.put(DETAIL, payload)


def step(
    instance: Instance,
    thread: ThreadId,
    turns: Sequence[dict[str, Any]] = (),
    agent: str = "by-hand",
    role: str = "",
    made: Hash | None = None,
    **fields: Any,
) -> Hash:
    """The thread's next step, by whoever's turn it is. `made` stands for the detail."""
    head = instance.threads.head(thread)
    history = instance.threads.history(head)
    role = role or ("writer", "critic")[len(history.steps) % 2]
    schema = ANSWER if role == USER else history.workflow.roles[role].schema
    output = (
        {"answer": "yes"} if role == USER else {"text": "said"} if role == "writer" else {"approved": False}
    )
    how = made or detail(instance, turns, **fields)
    put = Step(history.start_hash, history.prev, role, instance.store.put(schema, output), how, agent)
    node = instance.store.put(STEPNODE, put.payload())
    merge = (instance.threads.commit_of(made),) if made else ()
    instance.threads.append(head, node, {each.hash for each in history.steps}, merge, "native")
    return node


def attempt(
    instance: Instance, thread: ThreadId, turns: Sequence[dict[str, Any]] | None = None, **fields: Any
) -> None:
    """A failed attempt at the thread's next step; with `turns` None there is no detail of it."""
    head = instance.threads.head(thread)
    history = instance.threads.history(head)
    said = None if turns is None else detail(instance, turns, **{"extraction": "failed", **fields})
    role = ("writer", "critic")[len(history.steps) % 2]
    failed = Attempt(history.start_hash, history.prev, role, "by-hand", "it broke", said)
    instance.attempts.record(head, failed)
