"""uwf-llm against a real server on loopback: one completion, corrections, and what is kept of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from model_server import ModelServer, refuses, says, serving, status
from one_role import failed, perform, read, start, worked

from uwf_git.base.errors import AgentFailed
from uwf_git.base.errors import Usage as BadUsage
from uwf_git.engine.kit.arguments import ModelArguments
from uwf_git.engine.step import step
from uwf_git.ext.agents.llm import parse_args
from uwf_git.format.kinds import Attempt, Usage
from uwf_git.store.instance import Instance

KEY = "sk-secret-0123456789"
SCHEMA = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}},
    "required": ["approved"],
    "additionalProperties": False,
}
GOOD = "---\napproved: yes\n---\n\nAll is well.\n"
USAGE = {"prompt_tokens": 100, "completion_tokens": 10, "prompt_tokens_details": {"cached_tokens": 40}}


@pytest.fixture
def server(config: Callable[[str], Path], root: Path) -> Iterator[ModelServer]:
    """A server that is configured as the model `small`, with its key in .env."""
    with serving() as running:
        config(
            f"providers:\n  local: {{baseUrl: '{running.openai_url}', apiKeyEnv: LOCAL_KEY}}\n"
            "models:\n  small: {provider: local, name: tiny-1}\n  other: {provider: local, name: tiny-2}\n"
            "defaultModel: small\n"
        )
        (root / ".env").write_text(f"LOCAL_KEY={KEY}\n")
        yield running


def asked(server: ModelServer) -> list[Mapping[str, Any]]:
    return [each.body for each in server.asked]


def test_a_completion_of_the_prompt_is_the_answer(instance: Instance, server: ModelServer) -> None:
    server.play([says(GOOD, usage=USAGE)])
    made = worked(instance, "llm", [], SCHEMA)
    assert made.output == {"approved": True}
    assert made.agent == "uwf-llm"
    detail = made.detail
    assert (detail["answer"], detail["model"], detail["extraction"]) == (GOOD, "small-2024", "frontmatter")
    assert detail["usage"] == {"input": 100, "output": 10, "cached": 40}
    assert [turn["text"] for turn in made.turns] == [GOOD]
    assert detail["session"]
    (request,) = asked(server)
    assert request["model"] == "tiny-1"
    (message,) = request["messages"]
    assert message["role"] == "user"
    assert message["content"].startswith("# How you answer\n")
    assert "# The task\n\nDo it.\n" in message["content"]
    assert server.asked[0].headers["authorization"] == f"Bearer {KEY}"


def test_a_correction_goes_on_in_the_same_conversation(instance: Instance, server: ModelServer) -> None:
    server.play(
        [
            says("Looks fine.", usage=USAGE),
            says("approved: maybe", usage=USAGE),
            says(GOOD),
        ]
    )
    made = worked(instance, "llm", [], SCHEMA)
    assert made.detail["extraction"] == "correction"
    assert made.detail["usage"] == {"input": 200, "output": 20, "cached": 80}
    assert [turn["role"] for turn in made.turns] == ["assistant", "user", "assistant", "user", "assistant"]
    first, second, third = (request["messages"] for request in asked(server))
    assert second[:1] == first
    assert second[1] == {"role": "assistant", "content": "Looks fine."}
    assert second[2]["content"].startswith("Your answer can't be taken yet:")
    assert third[:3] == second
    assert len(third) == 5


@pytest.mark.parametrize("agent", ["uwf-llm", "uwf-builtin"])
@pytest.mark.parametrize(
    ("text", "finish", "words"),
    [
        ("I can't help with that.", "stop", "refused to answer: I can't help with that."),
        ("", "content_filter", "refused to answer: finish_reason content_filter"),
    ],
)
def test_a_refusal_is_told_as_one_and_the_model_is_not_asked_again(
    instance: Instance, server: ModelServer, agent: str, text: str, finish: str, words: str
) -> None:
    server.play([refuses(text, finish)])
    thread = start(instance, SCHEMA)
    with pytest.raises(AgentFailed, match=words):
        step(instance, thread, agent)
    assert len(server.asked) == 1
    (attempt,) = instance.attempts.all(thread)
    kept = instance.store.detail(attempt.detail)
    assert kept is not None and kept.usage == Usage(100, 10)


def test_a_failed_attempt_is_taken_up_again_with_its_turns(instance: Instance, server: ModelServer) -> None:
    server.play([says("No block."), says("Still none."), says("Never.")])
    thread = start(instance, SCHEMA)
    told = perform("llm", [], thread).stderr
    assert "gave 3 answers without a valid output" in told and f"uwf thread attempts {thread}" in told
    report = instance.runs.read_report(thread)
    assert report is not None
    head = instance.threads.head(thread)
    attempt = Attempt(head.node, None, "worker", "uwf-llm", report.error, report.detail)
    instance.store.sync()
    instance.attempts.record(head, attempt)
    server.play([says(GOOD)])
    done = perform("llm", [], thread)
    assert done.returncode == 0, done.stderr
    assert read(instance, done.stdout).output == {"approved": True}
    (request,) = asked(server)
    said = [message["content"] for message in request["messages"]]
    assert said[0].startswith("# How you answer")
    assert [said[1], said[3], said[5]] == ["No block.", "Still none.", "Never."]
    assert said[-1].startswith("Your last attempt at this step did not count: ")


def test_another_model_may_read_the_fields_out_at_last(
    instance: Instance, server: ModelServer, root: Path
) -> None:
    with (root / "config.yaml").open("a") as file:
        file.write("modelOverrides: {extract: other, agent: small}\n")
    answers = [says(text, usage=USAGE) for text in ("All is fine.", "Fine!", "Fine.")]
    server.play([*answers, says('{"approved": true}', model="tiny-2", usage=USAGE)])
    made = worked(instance, "llm", [], SCHEMA)
    assert (made.output, made.detail["extraction"]) == ({"approved": True}, "model:tiny-2")
    assert made.detail["usage"]["input"] == 400
    assert made.detail["answer"] == "Fine."
    assert [request["model"] for request in asked(server)] == ["tiny-1", "tiny-1", "tiny-1", "tiny-2"]
    form = asked(server)[-1]["response_format"]["json_schema"]
    assert (form["strict"], form["schema"]) == (True, SCHEMA)
    shown = asked(server)[-1]["messages"][-1]["content"]
    assert shown == "Answer 1:\n\nAll is fine.\n\nAnswer 2:\n\nFine!\n\nAnswer 3:\n\nFine."


def test_model_and_settings_may_be_given_as_arguments(instance: Instance, server: ModelServer) -> None:
    server.play([says(GOOD)])
    worked(instance, "llm", ["--model", "other", "--temperature=0.5", "--max-tokens", "300"], SCHEMA)
    (request,) = asked(server)
    assert (request["model"], request["temperature"], request["max_tokens"]) == ("tiny-2", 0.5, 300)


def test_the_environment_goes_before_dotenv(instance: Instance, server: ModelServer) -> None:
    server.play([says(GOOD)])
    worked(instance, "llm", [], SCHEMA, env={"LOCAL_KEY": "sk-other-9876543210"})
    assert server.asked[0].headers["authorization"] == "Bearer sk-other-9876543210"


def test_what_a_model_says_of_a_key_is_not_stored(instance: Instance, server: ModelServer) -> None:
    server.play([says(GOOD + f"The key is {KEY}.")])
    made = worked(instance, "llm", [], SCHEMA)
    assert made.detail["answer"] == GOOD + "The key is [redacted:LOCAL_KEY]."
    assert [each["where"] for each in made.detail["redactions"]] == ["turn 1", "answer"]


def test_a_refusal_is_one_line_without_the_key(instance: Instance, server: ModelServer) -> None:
    server.play([status(401, json.dumps({"error": {"message": f"Incorrect key {KEY}"}}))])
    said = failed(instance, "llm", [], SCHEMA)
    assert f"local ({server.chat_url}) answered 401 Unauthorized" in said
    assert KEY not in said


def test_an_empty_answer_is_a_failure_that_keeps_its_cost(instance: Instance, server: ModelServer) -> None:
    server.play([says(None, usage=USAGE)])
    thread = start(instance, SCHEMA)
    done = perform("llm", [], thread)
    assert done.returncode == 6
    assert "gave an empty answer (finish_reason stop)" in done.stderr
    report = instance.runs.read_report(thread)
    assert report is not None and report.detail is not None
    assert instance.store.get(report.detail).payload["usage"]["input"] == 100


def test_without_a_model_or_a_key_it_says_what_to_do(
    instance: Instance, root: Path, server: ModelServer
) -> None:
    (root / ".env").unlink()
    said = failed(instance, "llm", [], SCHEMA)
    assert "LOCAL_KEY, the key of provider local, is not set — export it" in said
    assert "model 'huge' is not configured — have: other, small" in failed(
        instance, "llm", ["--model", "huge"], SCHEMA, status=1
    )
    with_none = (root / "config.yaml").read_text().replace("defaultModel: small\n", "")
    (root / "config.yaml").write_text(with_none.replace("  other:", "  default:"))
    assert "uwf config set defaultModel default" in failed(instance, "llm", [], SCHEMA)
    (root / "config.yaml").unlink()
    assert "uwf-llm has no model to ask — set one up with: uwf setup" in failed(instance, "llm", [], SCHEMA)


def test_arguments_are_read_strictly() -> None:
    assert parse_args(["--model=a", "--max-tokens", "5"]) == ModelArguments("a", (("max_tokens", 5),))
    for bad in (["--what"], ["--model"], ["--temperature", "hot"], ["stray"]):
        with pytest.raises(BadUsage):
            parse_args(bad)
