"""What a provider's cache has of the prompts of a loop of four roles, by the model agents that ship."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cached_loop
import pytest
from conftest import Uwf
from model_server import Body, serving
from workflows import start_thread

from uwf_git.config.settings import Price
from uwf_git.engine.kit.memory import Memory
from uwf_git.engine.spending import ModelUsage, Tokens, Totals, tokens_in
from uwf_git.engine.step import step
from uwf_git.format.kinds import Usage
from uwf_git.format.types import CACHING_DETAIL, CACHING_TURN, DETAIL, TURN
from uwf_git.store.instance import Instance

AGENTS = ("uwf-builtin", True), ("uwf-builtin", False), ("uwf-llm", False)
"""One with tools, which goes on with its role's last turn, or begins anew as after a failed one; and one that is told
all that happened by a single prompt."""
KINDS = ("none", cached_loop.by_prefix), ("anthropic", cached_loop.by_marks), ("openai", cached_loop.by_marks)


@pytest.mark.parametrize(("marks", "cached"), KINDS, ids=[marks for marks, _ in KINDS])
@pytest.mark.parametrize(("agent", "resumes"), AGENTS)
def test_a_cache_has_most_of_what_a_loop_asks(
    agent: str,
    resumes: bool,
    marks: str,
    cached: cached_loop.Cached,
    instance: Instance,
    config: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not resumes:
        monkeypatch.setattr(Memory, "previous", lambda memory: None)
    cached_loop.files(tmp_path)
    with serving(cached_loop.script()) as server:
        config(
            f"providers:\n  local: {{baseUrl: '{server.openai_url}', cacheMarks: {marks}}}\n"
            "models:\n  small: {provider: local, name: tiny}\ndefaultModel: small\n"
        )
        requests = cached_loop.run(instance, agent, tmp_path, server.asked)
    assert cached_loop.share(requests, cached) >= 0.85
    keys = {asked.body.get("prompt_cache_key") for _, asked in requests}
    assert keys == ({str(*instance.threads.ids())} if marks == "openai" else {None})


ONE = """\
name: one
description: One role.
roles:
  worker:
    description: Works.
    systemPrompt: Work.
    outputSchema: {type: object, properties: {status: {enum: [done]}}, required: [status]}
graph:
  $START: {_: worker}
  worker: {done: $END}
"""
# What each counts in the last event of a stream, and what that means. The money is at the prices below.
STREAMS: dict[str, tuple[dict[str, Any], Usage, float]] = {
    "OpenAI, GPT-5.6": (
        {"prompt_tokens": 5000, "prompt_tokens_details": {"cached_tokens": 3000, "cache_write_tokens": 1500}},
        Usage(5000, 10, 3000, 1500),
        0.008175,
    ),
    "OpenAI, before": (
        {"prompt_tokens": 5000, "prompt_tokens_details": {"cached_tokens": 3072, "audio_tokens": 0}},
        Usage(5000, 10, 3072),
        0.006856,
    ),
    "OpenRouter, Claude": (
        {
            "prompt_tokens": 5000,
            "cost": 0.0081,
            "is_byok": False,
            "prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 4992, "audio_tokens": 0},
        },
        Usage(5000, 10, 0, 4992),
        0.018894,
    ),
    "LiteLLM, Claude": (
        {
            "prompt_tokens": 5000,
            "prompt_tokens_details": {"cached_tokens": 3000, "cache_creation_tokens": 1500},
            "cache_creation_input_tokens": 1500,
            "cache_read_input_tokens": 3000,
        },
        Usage(5000, 10, 3000, 1500),
        0.008175,
    ),
    "a gateway that passes Anthropic's count on": (
        {"prompt_tokens": 500, "cache_creation_input_tokens": 1500, "cache_read_input_tokens": 3000},
        Usage(5000, 10, 3000, 1500),
        0.008175,
    ),
    "DashScope, Qwen": (
        {
            "prompt_tokens": 5000,
            "prompt_tokens_details": {
                "cached_tokens": 3000,
                "cache_creation_input_tokens": 1500,
                "cache_creation": {"ephemeral_5m_input_tokens": 1500},
                "cache_type": "ephemeral",
            },
        },
        Usage(5000, 10, 3000, 1500),
        0.008175,
    ),
    "DeepSeek": (
        {"prompt_tokens": 5000, "prompt_cache_hit_tokens": 3008, "prompt_cache_miss_tokens": 1992},
        Usage(5000, 10, 3008),
        0.007028,
    ),
}


@pytest.mark.parametrize("stream", STREAMS)
def test_what_a_cache_had_and_got_is_counted_and_paid_for(
    stream: str, uwf: Uwf, instance: Instance, config: Callable[[str], Path]
) -> None:
    counted, usage, dollars = STREAMS[stream]
    choice = {
        "index": 0,
        "delta": {"content": "---\nstatus: done\n---\n\nIt is done.\n"},
        "finish_reason": "stop",
    }
    events = (
        {"model": "m", "choices": [choice]},
        {"model": "m", "choices": [], "usage": {**counted, "completion_tokens": 10}},
    )
    text = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
    with serving(Body(text.encode(), "text/event-stream")) as server:
        config(
            f"providers:\n  local: {{baseUrl: '{server.openai_url}'}}\n"
            "models:\n  small: {provider: local, name: m, price: {input: 3, output: 15, cached: 0.3, written: 3.75}}\n"
            "defaultModel: small\n"
        )
        thread = start_thread(instance, ONE)
        assert step(instance, thread, "uwf-llm").done
    last = instance.threads.history(instance.threads.head(thread)).steps[-1]
    detail = instance.store.detail(last.detail)
    assert detail is not None and detail.usage == usage
    assert [turn.usage for turn in instance.store.turns(detail)] == [usage]
    types = [instance.store.get(node).type for node in (last.detail, *detail.turns)]
    assert types == ([CACHING_DETAIL, CACHING_TURN] if usage.written else [DETAIL, TURN])
    written = {"written": usage.written} if usage.written else {}
    told = {"input": 5000, "output": 10, "cached": usage.cached, **written}
    shown = uwf("thread", "step-details", f"{thread}@1", "--format", "json")
    assert shown.json["detail"]["value"]["usage"] == told
    total = uwf("stats").json["total"]
    assert (total["input"], total["cached"], total["written"]) == (5000, usage.cached, usage.written)
    assert total["cost"] == dollars
    header = uwf("stats", "--format", "text").out.splitlines()[0]
    assert bool(re.search(r"input +cached +written +output", header)) == bool(usage.written)
    exported = uwf("trace", "export", thread).json
    assert ("gen_ai.usage.cache_creation.input_tokens" in json.dumps(exported)) == bool(usage.written)
    assert not uwf("verify").json["findings"]


def test_without_prices_of_its_own_what_a_cache_had_and_got_costs_as_other_input() -> None:
    tokens = Tokens(1_000_000, 0, 400_000, 500_000)
    run = Totals(lines=(ModelUsage("m", tokens),))
    for price, cost in (
        (Price(2, 8), 2.0),
        (Price(2, 8, cached=0.5), 1.4),
        (Price(2, 8, written=4), 3.0),
        (Price(2, 8, 0.5, 4), 2.4),
    ):
        assert run.money({"m": price}).cost == pytest.approx(cost)


def test_more_written_than_was_asked_is_not_counted() -> None:
    assert tokens_in(Usage(100, 10, 40, 90)) == Tokens(100, 10, 40, 60)
