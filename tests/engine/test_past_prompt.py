"""`uwf thread prompt ID@STEP`: what the agents of past steps were told, built again from the history."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cli_samples import write
from conftest import Uwf
from model_server import ModelServer, Say

LOOP = """\
version: 1
name: loop
description: One writes, one reviews, until it will do.
roles:
  writer:
    description: Writes.
    systemPrompt: Write.
    outputSchema: {type: object, properties: {text: {type: string}}, required: [text]}
  critic:
    description: Reviews.
    systemPrompt: Review.
    outputSchema: {type: object, properties: {good: {type: boolean}}, required: [good]}
graph:
  $START: [{role: writer, prompt: "Begin with {{ prompt }}."}]
  writer: [{role: critic, prompt: "Review {{ text }}."}]
  critic:
    - {role: $END, condition: good}
    - {role: writer, prompt: Write it again.}
conditions:
  good: {description: Good, expression: "steps[-1].output.good"}
"""


@pytest.fixture
def asked(uwf: Uwf, server: ModelServer, config: Callable[[str], Path]) -> tuple[str, list[str]]:
    """A thread of four steps, made by uwf-llm, and the prompts that the server received."""
    config(
        f"providers:\n  local: {{baseUrl: '{server.openai_url}'}}\n"
        "models:\n  small: {provider: local, name: tiny-1}\ndefaultModel: small\n"
    )
    server.play(
        [
            Say(f"---\n{field}\n---\nMy report.")
            for field in ("text: one", "good: no", "text: two", "good: yes")
        ]
    )
    uwf("workflow", "put", write("loop.yaml", LOOP))
    thread = uwf("thread", "start", "loop", "-p", "a rhyme").json["thread"]
    uwf("thread", "run", thread, "--agent", "uwf-llm")
    return thread, [each.body["messages"][-1]["content"] for each in server.asked]


def test_the_prompt_of_a_past_step_is_what_its_agent_was_told(uwf: Uwf, asked: tuple[str, list[str]]) -> None:
    thread, prompts = asked
    assert len(prompts) == 4 and len(set(prompts)) == 4
    for number, prompt in enumerate(prompts, 1):
        shown = uwf("thread", "prompt", f"{thread}@{number}", "--format", "json").json
        assert (shown["number"], shown["agent"]) == (number, "uwf-llm")
        assert shown["prompt"].strip() == prompt.strip()
    text = uwf("thread", "prompt", "@@2", "--format", "text").out
    assert text.strip() == prompts[1].strip()


def test_a_step_that_has_no_prompt_is_named(uwf: Uwf, asked: tuple[str, list[str]]) -> None:
    thread, _ = asked
    refused = uwf("thread", "prompt", f"{thread}@5", check=3).error
    assert refused["message"] == f"thread {thread} has no step 5" and "it has 4" in refused["hint"]
    assert f"{thread}@4" in uwf("thread", "prompt", thread, check=1).error["hint"]
    uwf("thread", "prompt", f"{thread}@0", check=3)
    uwf("thread", "prompt", f"{thread}@1", "--role", "critic", check=2)
    uwf("thread", "prompt", f"{thread}@x", check=3)
