"""What a provider's cache has of the prompts of a loop of four roles, by the model agents that ship."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import cached_loop
import pytest
from model_server import serving

from uwf_git.store.instance import Instance

AGENTS = "uwf-builtin", "uwf-llm"
"""One that repeats its own earlier turns, with tools, and one that is told all that happened."""
KINDS = ("none", cached_loop.by_prefix), ("anthropic", cached_loop.by_marks), ("openai", cached_loop.by_marks)


@pytest.mark.parametrize(("marks", "cached"), KINDS, ids=[marks for marks, _ in KINDS])
@pytest.mark.parametrize("agent", AGENTS)
def test_a_cache_has_most_of_what_a_loop_asks(
    agent: str,
    marks: str,
    cached: cached_loop.Cached,
    instance: Instance,
    config: Callable[[str], Path],
    tmp_path: Path,
) -> None:
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
