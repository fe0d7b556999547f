"""A provider that is asked too often: every agent says so in the same way, and keeps what it has done."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from model_server import ModelServer, repeating, status
from workflows import opened

from uwf_git.base.errors import AgentFailed, Throttled
from uwf_git.engine.step import step
from uwf_git.format.ids import ThreadId

KIT = """\
from uwf_git.base.errors import AgentFailed, Throttled
from uwf_git.kit import create_agent

def run(ctx):
    error = AgentFailed("the service wants to be asked later")
    error.throttled = Throttled("the-service", 20)
    raise error

create_agent("later", run).main()
"""
PLAIN = "import sys; sys.exit('HTTP 429')"
LATER = Throttled("local", 3600)
LOCAL = f"{Path(sys.executable).parent}/uwf-llm"


@pytest.mark.parametrize(
    ("agent", "throttled"),
    [
        ("uwf-llm", LATER),
        ("uwf-builtin", LATER),
        (LOCAL, LATER),
        ("later", Throttled("the-service", 20)),
        ("mycli", Throttled("mycli", 7)),
        ("plain", Throttled("plain")),
        ("broken", None),
        ("many", None),
    ],
)
def test_who_is_asked_too_often_says_so_whatever_agent_it_is(
    agent: str,
    throttled: object,
    thread: str,
    server: ModelServer,
    config: Callable[[str], Path],
    script: Callable[[str, str], Path],
) -> None:
    server.play(repeating(status(429, "slow down", Retry_After="3600")))
    program = script(
        "mycli", 'import sys; print("Rate limit reached, try again in 7s", file=sys.stderr); sys.exit(1)'
    )
    config(
        f"providers: {{local: {{baseUrl: '{server.openai_url}'}}}}\n"
        "models: {small: {provider: local, name: tiny-1}}\ndefaultModel: small\n"
        f"agentClis: {{mycli: {{program: {program}, first: [], output: text, prompt: stdin}}}}\n"
        "agents:\n"
        f"  later: {{command: {script('later', KIT)}}}\n"
        f"  plain: {{command: {script('plain', PLAIN)}}}\n"
        f"  broken: {{command: {script('broken', PLAIN.replace('HTTP 429', 'HTTP 404'))}}}\n"
        f"  many: {{command: {script('many', PLAIN.replace('HTTP 429', '429 tests failed'))}}}\n"
    )
    instance, thread = opened(), ThreadId(thread)
    with pytest.raises(AgentFailed) as caught:
        step(instance, thread, agent)
    assert caught.value.throttled == throttled
    assert len(instance.attempts.all(thread)) == 1
