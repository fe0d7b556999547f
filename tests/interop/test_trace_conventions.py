"""The attributes of generative AI in traces are those of OpenTelemetry's current conventions.

Since 1.42 the conventions mark all of them as moved to a repository of their own. Under their names they stay; what is
replaced or removed says so instead.
"""

from __future__ import annotations

import ast
import itertools
import json
from pathlib import Path
from typing import Any

from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as conventions
from opentelemetry.semconv.attributes import error_attributes
from spent_threads import assistant, attempt, start, step, tool, usage

from uwf_git.ext.traces import trace
from uwf_git.store.instance import Instance

OWN_PROVIDERS = {"uwf", "moonshot_ai"}
"""The conventions name no provider for these, and allow others."""


def current() -> set[str]:
    """The names that are neither replaced nor removed: the text under each says so."""
    body = ast.parse(Path(conventions.__file__).read_text()).body
    said = {
        before.value.value: after.value.value
        for before, after in itertools.pairwise(body)
        if isinstance(before, ast.AnnAssign) and isinstance(before.value, ast.Constant)
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
    }
    assert len(said) > 40
    return {
        name
        for name, text in said.items()
        if not {"Replaced", "Removed"} & set(text.replace(",", " ").split())
    }


def attributes_of(instance: Instance) -> list[dict[str, Any]]:
    child = start(instance, name="child")
    last = step(instance, child, [assistant(7, 1, "gemini-2.5-pro")], usage=usage(7, 1))
    thread = start(instance)
    turns = [
        assistant(100, 10, "claude-opus-4-5"),
        tool("read_file", 30),
        tool("run_command", 500, failed=True),
    ]
    step(instance, thread, turns, usage=usage(400, 40), model="claude-opus-4-5", session="s-1", cost=0.5)
    attempt(instance, thread, [assistant(5, 5)], usage=usage(5, 5), model="kimi-k3")
    step(instance, thread, made=last, agent="uwf-workflow")
    value = trace.export(instance, instance.threads.head(thread), content=True)
    spans = value["resourceSpans"][0]["scopeSpans"][0]["spans"]
    return [
        {item["key"]: next(iter(item["value"].values())) for item in span["attributes"]} for span in spans
    ]


def test_each_attribute_of_generative_ai_is_a_current_one(instance: Instance) -> None:
    assert {"gen_ai.system", "gen_ai.prompt", "gen_ai.usage.prompt_tokens"}.isdisjoint(current())
    names = {name for attributes in attributes_of(instance) for name in attributes}
    emitted = {name for name in names if name.startswith("gen_ai.")}
    assert len(emitted) > 15 and emitted <= current()
    assert error_attributes.ERROR_TYPE in names
    assert all(name.startswith(("gen_ai.", "uwf.", "error.")) for name in names)


def test_operations_and_providers_are_those_of_the_conventions(instance: Instance) -> None:
    spans = attributes_of(instance)
    operations = {attributes["gen_ai.operation.name"] for attributes in spans}
    assert operations == {"invoke_workflow", "invoke_agent", "chat", "execute_tool"}
    assert operations <= {item.value for item in conventions.GenAiOperationNameValues}
    providers = {
        attributes["gen_ai.provider.name"] for attributes in spans if "gen_ai.provider.name" in attributes
    }
    known = {item.value for item in conventions.GenAiProviderNameValues}
    assert {"anthropic", "gcp.gen_ai"} <= providers <= known | OWN_PROVIDERS
    assert {provider for _, provider in trace._PROVIDERS} <= known | OWN_PROVIDERS


def test_messages_have_the_structure_of_the_conventions(instance: Instance) -> None:
    for attributes in attributes_of(instance):
        for name in ("gen_ai.input.messages", "gen_ai.output.messages"):
            for message in json.loads(attributes.get(name, "[]")):
                assert message["role"] in ("user", "assistant")
                assert [part.keys() for part in message["parts"]] == [{"type", "content"}]
                assert (message.get("finish_reason") == "stop") is (name == "gen_ai.output.messages")
