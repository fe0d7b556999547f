"""Failed steps that are tried again, as their role says."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path

import pytest
from conftest import Uwf
from workflows import start_thread

from uwf_git.base.errors import AgentFailed, Invalid, Throttled
from uwf_git.engine import retrying
from uwf_git.engine.retrying import FOREVER
from uwf_git.engine.step import step
from uwf_git.kit import Context, create_agent
from uwf_git.store.instance import Instance
from uwf_git.workflow.compile import InvalidWorkflow, compile_source
from uwf_git.workflow.source import parse_source

ONE = """\
name: one
description: One role.
roles:
  writer:
    description: Writes.
    systemPrompt: Write.
    outputSchema: {type: object, properties: {text: {type: string}}, required: [text]}
    MORE
graph:
  $START: [{role: writer}]
  writer: [{role: $END}]
"""
LIMIT = "Claude usage limit reached. Your limit resets in 3 hours."


def workflow(more: str) -> str:
    return ONE.replace("MORE", more)


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits between tries, none of which is waited for."""
    found: list[float] = []
    monkeypatch.setattr("uwf_git.engine.step.pause", found.append)
    return found


def failing(words: str) -> str:
    return shlex.join(["sh", "-c", f"echo {shlex.quote(words)} >&2; exit 3"])


def test_a_failed_step_is_tried_as_often_as_its_role_says(instance: Instance, slept: list[float]) -> None:
    thread = start_thread(instance, workflow("retry: {times: 3, backoff: 2s}"))
    warned: list[str] = []
    instance.warn = warned.append
    with pytest.raises(AgentFailed, match="it broke"):
        step(instance, thread, failing("it broke"))
    assert slept == [2.0, 4.0, 8.0] and len(instance.attempts.all(thread)) == 4
    assert "the step is tried again in 2s" in warned[0] and thread in warned[0]
    with pytest.raises(AgentFailed):  # by hand it is tried once
        step(instance, thread, failing("it broke"))
    assert len(slept) == 3


def test_a_step_that_succeeds_after_failures_is_a_step(
    instance: Instance, tmp_path: Path, slept: list[float]
) -> None:
    count = tmp_path / "count"
    put = f"{shlex.quote(sys.executable)} -m uwf_cli.main agent put-step -"
    fails = f"echo x >> {count}; test $(wc -l < {count}) -gt 2 || exit 3"
    command = shlex.join(["sh", "-c", f'{fails}; echo \'{{"text": "done"}}\' | {put}'])
    thread = start_thread(instance, workflow("retry: {times: 5, backoff: 1}"))
    assert step(instance, thread, command).done
    assert (count.read_text().split(), slept) == (["x"] * 3, [1.0, 2.0])


def test_only_the_causes_that_are_named_are_tried_again(instance: Instance, slept: list[float]) -> None:
    thread = start_thread(instance, workflow("retry: {times: 3, on: [throttled, timeout]}"))
    with pytest.raises(AgentFailed):
        step(instance, thread, failing("it broke"))
    assert slept == []


def test_a_timeout_of_the_role_is_a_cause_of_its_own(instance: Instance, slept: list[float]) -> None:
    thread = start_thread(instance, workflow("timeout: 0.2\n    retry: {times: 1, on: [timeout]}"))
    with pytest.raises(AgentFailed, match="ran out of time"):
        step(instance, thread, "sh -c 'sleep 20'")
    assert [each.cause for each in instance.attempts.all(thread)] == ["timeout", "timeout"]
    assert len(slept) == 1


def test_what_a_provider_says_of_its_reset_is_believed(instance: Instance, slept: list[float]) -> None:
    thread = start_thread(instance, workflow("retry: {times: 3, backoff: 1s}"))
    with pytest.raises(AgentFailed):
        step(instance, thread, failing("rate limit reached, try again in 90s"))
    assert len(slept) == 3 and all(89 <= each <= 92 for each in slept)
    (first, *_) = instance.attempts.all(thread)
    assert first.cause == "throttled" and first.resets_at is not None
    assert 80 < first.resets_at - time.time() < 100
    # Sooner than the role would try again.
    soon = start_thread(instance, workflow("retry: {times: 1, backoff: 60s}"))
    with pytest.raises(AgentFailed):
        step(instance, soon, failing("HTTP 429 Too Many Requests, Retry-After: 4"))
    assert len(slept) == 4 and 2 < slept.pop() <= 5
    # Longer than a step waits, so it is left to who runs it.
    other = start_thread(instance, workflow("retry: {times: 3, backoff: 1s}"))
    with pytest.raises(AgentFailed):
        step(instance, other, failing(LIMIT))
    assert len(slept) == 3


def test_a_run_that_waits_goes_on_when_the_provider_answers_again(
    instance: Instance, slept: list[float]
) -> None:
    thread = start_thread(instance, workflow(""))
    words = iter([LIMIT, "429 too many requests", "it broke"])

    def run(ctx: Context) -> str:
        error = AgentFailed(next(words))
        error.throttled = Throttled.told("claude", error.message)
        raise error

    with pytest.raises(AgentFailed, match="it broke"):
        step(instance, thread, create_agent("words", run), patience=FOREVER)
    assert 3 * 3600 - 5 < slept[0] < 3 * 3600 + 5 and slept[1] == 120.0


def test_another_agent_stands_in_for_one_that_is_throttled(
    uwf: Uwf, root: Path, tmp_path: Path, instance: Instance, slept: list[float]
) -> None:
    (root / "config.yaml").write_text(
        "defaultAgent: primary\n"
        f"agents:\n  primary: {{command: sh, args: [-c, 'echo {LIMIT} >&2; exit 3']}}\n"
        "  other: {command: uwf-llm, args: [--model, m]}\n"
        f"  evil: {{command: {tmp_path}/evil}}\n"
        "models: {m: {provider: p, name: m}}\n"
        "providers: {p: {baseUrl: 'http://127.0.0.1:9/v1'}}\n"
    )
    thread = start_thread(instance, workflow("fallback: other"))
    with pytest.raises(AgentFailed, match="cannot be reached"):
        step(instance, thread)
    first, second = instance.attempts.all(thread)
    assert (first.cause, second.agent, slept) == ("throttled", "uwf-llm", [0.0])
    # What names a command, or nothing that is known here, is no agent that a workflow may choose.
    for name in ("evil", "nobody", "uwf-exec"):
        thread = start_thread(instance, workflow(f"fallback: {name}"))
        with pytest.raises(AgentFailed, match="usage limit reached"):
            step(instance, thread)
        assert len(instance.attempts.all(thread)) == 1


@pytest.mark.parametrize(
    ("fallback", "warns"),
    [("uwf-land", True), ("rehearse", True), ("checks", True), ("uwf-llm", False), ("nobody", False)],
)
def test_a_fallback_that_never_plays_its_role_is_warned_of(
    uwf: Uwf, tmp_path: Path, fallback: str, warns: bool
) -> None:
    uwf("config", "set", "agents.checks", "{command: uwf-exec, args: [make]}")
    path = tmp_path / "one.yaml"
    path.write_text(workflow(f"fallback: {fallback}"))
    found = uwf("workflow", "validate", path).json["findings"]
    assert [(item["code"], item["line"]) for item in found] == [("unused-fallback", 8)] * warns


def test_a_stand_in_that_is_throttled_too_gives_the_turn_back(instance: Instance) -> None:
    throttled, failed = "throttled", "failed"

    def after(*causes: str) -> bool:
        class Try:
            def __init__(self, cause: str) -> None:
                self.cause = cause

        return retrying._stands_in_next([Try(each) for each in causes])  # type: ignore[misc]

    assert [after(), after(throttled), after(throttled, throttled), after(throttled, failed)] == [
        *(False, True, False),
        False,
    ]
    assert after(throttled, throttled, throttled)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("retry: {times: 0}", "needs times"),
        ("retry: {}", "needs times"),
        ("retry: {times: 101}", "needs times"),
        ("retry: 3", "must be"),
        ("retry: {times: 2, on: [always]}", "'always' is not a cause"),
        ("retry: {times: 2, backoff: soon}", "is not a duration"),
        ("timeout: never", "is not a duration"),
        ("fallback: rm -rf /", "is not the name of an agent"),
        ("retry: {times: 2, wait: 3}", "has no key"),
    ],
)
def test_a_role_that_says_it_wrong_is_told_where(more: str, says: str) -> None:
    with pytest.raises(InvalidWorkflow) as refused:
        compile_source(parse_source(workflow(more).encode(), "workflow.yaml"))
    (finding,) = (each for each in refused.value.findings if each.severity == "error")
    assert says in finding.message and finding.line == 8 and isinstance(refused.value, Invalid)


def test_a_workflow_without_any_of_it_keeps_its_hash() -> None:
    plain = compile_source(parse_source(workflow("").encode(), "workflow.yaml"))
    more = compile_source(parse_source(workflow("timeout: 5m").encode(), "workflow.yaml"))
    assert "timeout" not in str(plain.payload) and plain.hash != more.hash
    assert more.workflow.roles["writer"].timeout == 300.0


def test_a_command_waits_between_tries_and_says_so(uwf: Uwf, tmp_path: Path) -> None:
    path = tmp_path / "one.yaml"
    path.write_text(workflow("retry: {times: 1, backoff: 0.1}"))
    done = uwf("run", path, "-p", "x", "--agent", failing("it broke"), check=6)
    assert done.err.count("the step is tried again in 1s") == 2  # the line, and the warning in JSON
    thread = done.out.split('"thread":"')[1][:26]
    attempts = uwf("thread", "attempts", thread).json
    assert len(attempts) == 2
