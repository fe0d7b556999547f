"""An exported trace is OTLP, nests, and says the same of tokens as the statistics."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from conftest import Uwf
from spent_threads import assistant, attempt, extracted, start, step, tool, usage

from uwf_git.engine.thread_spending import account
from uwf_git.ext.traces import trace
from uwf_git.format.ids import ThreadId
from uwf_git.format.types import USER
from uwf_git.store.instance import Instance


@pytest.fixture
def thread(instance: Instance) -> ThreadId:
    """A step with turns of a model and of tools, a failed attempt, a step of a sub-workflow, an extraction."""
    child = start(instance, name="child")
    last = step(instance, child, [assistant(7, 1, "gemini-2.5-pro")], usage=usage(7, 1), durationMs=20)
    thread = start(instance)
    turns = [
        assistant(100, 10, "claude-opus-4-5", 9000),
        tool("read_file", 30),
        tool("run_command", 500, failed=True),
        assistant(300, 30, "claude-opus-4-5", 400),
    ]
    step(
        instance,
        thread,
        turns,
        usage=usage(400, 40),
        model="claude-opus-4-5",
        session="s-1",
        durationMs=1000,
        cost=0.5,
    )
    attempt(instance, thread, [assistant(5, 5)], usage=usage(5, 5), model="m", durationMs=50)
    attempt(instance, thread)
    attempt(instance, thread)
    step(instance, thread, made=last, agent="uwf-workflow")
    step(
        instance,
        thread,
        [assistant(20, 2), extracted("tiny", 9, 1)],
        usage=usage(29, 3),
        model="m",
        extraction="model:tiny",
    )
    return thread


def spans_of(value: dict[str, Any]) -> list[dict[str, Any]]:
    (resource,) = value["resourceSpans"]
    (scope,) = resource["scopeSpans"]
    return list(scope["spans"])


def attributes(span: dict[str, Any]) -> dict[str, Any]:
    return {each["key"]: next(iter(each["value"].values())) for each in span["attributes"]}


def test_the_spans_are_those_of_the_conventions_and_nest(instance: Instance, thread: ThreadId) -> None:
    value = trace.export(instance, instance.threads.head(thread))
    spans = spans_of(value)
    by_id = {span["spanId"]: span for span in spans}
    assert len(by_id) == len(spans)
    assert len({span["traceId"] for span in spans}) == 1

    def path(span: dict[str, Any]) -> str:
        above = by_id.get(span.get("parentSpanId", ""))
        return (path(above) + " > " if above else "") + str(span["name"])

    assert sorted(map(path, spans)) == sorted(
        f"invoke_workflow pair{rest}"
        for rest in (
            "",
            " > invoke_agent writer",
            " > invoke_agent writer > chat claude-opus-4-5",
            " > invoke_agent writer > chat claude-opus-4-5",
            " > invoke_agent writer > execute_tool read_file",
            " > invoke_agent writer > execute_tool run_command",
            " > invoke_agent critic",
            " > invoke_agent critic > chat m",
            " > invoke_agent critic",
            " > invoke_agent critic",
            " > invoke_agent critic",
            " > invoke_agent critic > invoke_workflow child",
            " > invoke_agent critic > invoke_workflow child > invoke_agent writer",
            " > invoke_agent critic > invoke_workflow child > invoke_agent writer > chat gemini-2.5-pro",
            " > invoke_agent writer",
            " > invoke_agent writer > chat m",
            " > invoke_agent writer > chat tiny",
        )
    )
    for span in spans:
        begin, end = int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])
        assert begin < end or "claude" not in span["name"]  # also where turns took longer than the step
        assert begin <= end
        if above := by_id.get(span.get("parentSpanId", "")):
            assert int(above["startTimeUnixNano"]) <= begin and end <= int(above["endTimeUnixNano"])
    failed = [span["name"] for span in spans if span["status"].get("code") == 2]
    assert sorted(failed) == ["execute_tool run_command", *["invoke_agent critic"] * 3]
    agent = next(each for each in map(attributes, spans) if each.get("gen_ai.conversation.id") == "s-1")
    assert {
        key: agent[key] for key in ("gen_ai.operation.name", "gen_ai.agent.name", "gen_ai.provider.name")
    } == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "writer",
        "gen_ai.provider.name": "anthropic",
    }


def test_a_trace_begins_with_its_thread_though_its_task_was_another_ones_before(instance: Instance) -> None:
    first, second = start(instance), start(instance)
    for thread in (first, second):
        step(instance, thread)
    # The same task is the same node, which has the time of the first thread.
    node = instance.store.get(instance.threads.history(instance.threads.head(second)).start_hash)
    repository = instance.store.repository
    head = instance.threads.head(second)
    later = node.timestamp // 1000 + 20
    began = repository.commit(repository.commit(head.commit).parents[0])
    root = repository.write_commit(began.tree, began.parents, repository.user, began.message, later)
    tip = repository.commit(head.commit)
    moved = repository.write_commit(tip.tree, (root,), repository.user, tip.message, later + 5)
    repository.put_ref(f"refs/uwf/threads/{second}", head.commit, moved)
    for thread, beginning in ((first, node.timestamp * 1_000_000), (second, later * 1_000_000_000)):
        whole, *_, last = spans_of(trace.export(instance, instance.threads.head(thread)))
        assert int(whole["startTimeUnixNano"]) == beginning
        assert thread == first or int(last["endTimeUnixNano"]) == (later + 5) * 1_000_000_000


def test_the_agents_tokens_add_up_to_those_of_the_statistics(instance: Instance, thread: ThreadId) -> None:
    head = instance.threads.head(thread)
    total = account(instance, head).spent.tokens
    assert total is not None
    agents = [
        each
        for each in map(attributes, spans_of(trace.export(instance, head)))
        if each["gen_ai.operation.name"] == "invoke_agent"
    ]
    assert sum(int(each.get("gen_ai.usage.input_tokens", 0)) for each in agents) == total.input
    assert sum(int(each.get("gen_ai.usage.output_tokens", 0)) for each in agents) == total.output


def test_what_is_exported_is_otlp_and_always_the_same(uwf: Uwf, instance: Instance, thread: ThreadId) -> None:
    from google.protobuf import json_format
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    printed = uwf("trace", "export", thread).out
    assert uwf("trace", "export", thread, "--out", "trace.json").json["file"] == "trace.json"
    assert Path("trace.json").read_text() == printed
    value = json.loads(printed)
    for span in spans_of(value):  # OTLP has them in hex, protobuf's own JSON in base64
        for key, size in (("traceId", 16), ("spanId", 8), ("parentSpanId", 8)):
            if key in span:
                assert len(bytes.fromhex(span[key])) == size
                span[key] = base64.b64encode(bytes.fromhex(span[key])).decode()
    request = json_format.Parse(json.dumps(value), ExportTraceServiceRequest())
    (resource,) = request.resource_spans
    assert resource.schema_url == resource.scope_spans[0].schema_url == trace.SCHEMA_URL
    assert len(resource.scope_spans[0].spans) == 17


def test_what_was_said_is_only_in_it_when_asked_for(instance: Instance, thread: ThreadId) -> None:
    step(instance, thread, role=USER)
    head = instance.threads.head(thread)
    without = json.dumps(trace.export(instance, head))
    assert not any(text in without for text in ("The answer.", "Do it.", "said", '\\"path\\"'))
    assert "uwf.answer" in without
    content = json.dumps(trace.export(instance, head, content=True))
    assert all(text in content for text in ("The answer.", "Do it.", "said", '\\"path\\"'))
