"""`uwf extract`, and the same for agents: data of a given shape out of words, and whose account it goes on."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_samples import write
from commands import git
from conftest import Uwf
from model_script import Call, Fail, Say
from model_server import ModelServer, serving

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"version": {"type": "string"}, "breaking": {"type": "boolean"}},
    "required": ["version"],
    "additionalProperties": False,
}
WANTED = json.dumps(SCHEMA)
PROSE = "We ship 2.1 on Monday; nothing breaks."
READ = '{"version": "2.1", "breaking": null}'


@pytest.fixture
def server(config: Callable[[str], Path]) -> Iterator[ModelServer]:
    """A server that is configured as two models, one of them called default."""
    with serving() as running:
        config(
            f"providers: {{local: {{baseUrl: '{running.openai_url}'}}}}\n"
            "models: {large: {provider: local, name: big-1}, default: {provider: local, name: tiny-1}}\n"
            "defaultModel: large\n"
        )
        yield running


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ('{"version": "1.0"}', {"version": "1.0"}),
        (
            "---\nversion: 1.10\nbreaking: yes\nconfidence: 0.3\n---\n\nBody.\n",
            {"version": "1.10", "breaking": True},
        ),
        ('Here you are:\n\n```json\n{"version": "1"}\n```\n\nDone.', {"version": "1"}),
        ('The result:\n\n{"version": "1"}\n\nThanks.', {"version": "1"}),
        ('{"version":\n  "1"}\r\nThanks, see [1].', {"version": "1"}),
        ('[\n{"mood": 1},\n{"version": "2"}\n]\n\n{"version": "1"}\n{"version": "1"}', {"version": "1"}),
    ],
)
def test_what_stands_in_the_text_asks_nobody(uwf: Uwf, server: ModelServer, text: str, data: Any) -> None:
    assert uwf("extract", "--schema", WANTED, input=text).json == data
    assert server.asked == []


def test_of_two_values_that_obey_none_is_taken_and_the_message_says_so(uwf: Uwf) -> None:
    text = 'Before:\n\n{"version": "1"}\n\nAfter:\n\n{"version": "2"}\n'
    failed = uwf("extract", "--schema", WANTED, input=text, check=6)
    assert "2 values in it obey, of which it must be one: in lines 3, 7" in failed.error["message"]
    for other in ('As in {"version": "1"} there.', '[\n{"version": "1"},\n{"version": "2"}\nand so on'):
        uwf("extract", "--schema", WANTED, input=other, check=6)


def test_a_value_is_found_and_a_second_one_noticed_wherever_it_stands(uwf: Uwf) -> None:
    before = '{"mood":\n[\n{"is": 1\n},\n{}\n]\n}\n' * 60 + "[see below\n" * 60
    last = f'{before}{{"version": "1"}}\n'
    assert uwf("extract", "--schema", WANTED, input=last).json == {"version": "1"}
    failed = uwf("extract", "--schema", WANTED, input=f'{{"version": "2"}}\n{last}', check=6)
    assert "2 values in it obey, of which it must be one: in lines 1, 482" in failed.error["message"]


def test_a_second_value_is_noticed_after_a_long_one_without_an_end(uwf: Uwf) -> None:
    text = '{"version": "1"}\n' + '["' + "x" * 2_000_000 + '\n{"version": "2"}\n'
    failed = uwf("extract", "--schema", WANTED, input=text, check=6)
    assert "2 values in it obey, of which it must be one: in lines 1, 3" in failed.error["message"]


@pytest.mark.parametrize("text", ['{"a":1e999}', 'As JSON:\n\n{"a":1e999}\n\nThat is all.'])
def test_a_number_that_is_too_large_is_named_and_does_not_become_a_text(uwf: Uwf, text: str) -> None:
    failed = uwf("extract", "--schema", '{"type": "object"}', input=text, check=6)
    assert "a number is too large" in failed.error["message"]


def test_a_schema_may_be_true(uwf: Uwf) -> None:
    assert uwf("extract", "--schema", "true", input="[1]").json == [1]


def test_a_value_of_any_type_can_be_asked_for(uwf: Uwf, server: ModelServer, hermetic: Path) -> None:
    schema = hermetic / "names.yaml"
    schema.write_text("type: array\nitems: {type: string}\n")
    assert uwf("extract", "--schema", schema, input='["a", "b"]').json == ["a", "b"]
    server.play([Say("There are Ada and Bob."), Say('```json\n["Ada", "Bob"]\n```')])
    assert uwf("extract", "--schema", schema, input="Ada met Bob.").json == ["Ada", "Bob"]
    assert "response_format" not in server.asked[0].body
    assert "it holds neither JSON nor a block of fields" in server.asked[1].messages[-1].text


def test_a_model_reads_what_does_not_stand_there_and_is_told_once_what_is_wrong(
    uwf: Uwf, server: ModelServer, hermetic: Path
) -> None:
    (hermetic / "notes.md").write_text(PROSE)
    server.play([Say('{"version": 2.1, "breaking": "maybe"}'), Say(READ)])
    found = uwf(
        "extract", "--schema", WANTED, "--prompt", "the release that is announced", hermetic / "notes.md"
    )
    assert found.json == {"version": "2.1"}
    first, second = server.asked
    assert first.model == "tiny-1" and first.body["response_format"]["json_schema"]["strict"] is True
    assert "What to look for:\nthe release that is announced\n" in first.system
    assert first.messages[-1].text == PROSE
    assert "/breaking: 'maybe' is not of type 'boolean'" in second.messages[-1].text
    server.play([Say("no"), Say("no")])
    failed = uwf("extract", "--schema", WANTED, input=PROSE, check=6)
    assert failed.error["message"].startswith("tiny-1 read no data that obeys the schema: ")
    server.play([Fail(401, "who are you?")])
    failed = uwf("extract", "--schema", WANTED, input=PROSE, check=6)
    assert "a model could not be asked: local" in failed.error["message"]


def test_a_thread_is_read_and_a_text_that_belongs_to_it(uwf: Uwf, server: ModelServer, thread: str) -> None:
    uwf("thread", "step", thread)
    server.play([Say(READ), Say(READ)])
    uwf("extract", "--schema", WANTED, "--thread", thread)
    uwf("extract", "--schema", WANTED, "--thread", thread[:20], "-", input=PROSE)
    alone, beside = [each.messages[-1].text for each in server.asked]
    assert alone.startswith(
        "# The task\n\nDo it\n\n# What happened so far\n\n## Step 1: writer, by uwf-rehearse\n"
    )
    assert beside == f"{alone}\n\n# The text to read\n\n{PROSE}"


def test_the_data_becomes_a_node_of_a_type_that_is_there_or_given(uwf: Uwf, server: ModelServer) -> None:
    made = uwf("extract", "--schema", WANTED, "--into", "schema", input='{"version": "3", "mood": 1}').json
    assert made["data"] == {"version": "3"}
    assert uwf("cas", "get", made["hash"]).json["payload"] == {"version": "3"}
    assert uwf("cas", "schema", "get", made["type"]).json == SCHEMA
    again = uwf("extract", "--into", made["type"][:8], input="---\nversion: '3'\n---\n").json
    assert (again["hash"], again["type"]) == (made["hash"], made["type"])
    text = uwf("extract", "--schema", WANTED, "--into", "Text", input='{"version": "3"}', check=1)
    assert "breaks its type" in text.error["message"]
    uwf("gc", "--prune")
    assert uwf("cas", "has", made["hash"]).json == {"exists": True}


def test_a_node_that_is_stored_as_it_was_given_holds_no_secret(uwf: Uwf, root: Path) -> None:
    uwf("init")
    key = "sk-proj-" + "Zx81kQ93mfLw72hYtB50" * 2
    (root / ".env").write_text("OTHER=othersecretvalue99\n")
    for schema, name in (
        ({"title": "S2", "description": f"use {key}"}, "openai-key"),
        ({"properties": {"othersecretvalue99": {"type": "string"}}}, "OTHER"),
    ):
        refused = uwf("extract", "--schema", json.dumps(schema), "--into", "schema", input="{}", check=1)
        assert (
            refused.error["message"] == f"the schema holds a secret ({name}), and a node is stored as it is"
        )
        assert uwf("cas", "put", "JSON Schema", json.dumps(schema), check=1).error["code"] == "invalid"
    refused = uwf("cas", "put", "Text", json.dumps(f"use {key}"), check=1)
    assert (
        refused.error["message"] == "the payload holds a secret (openai-key), and a node is stored as it is"
    )
    assert git("--git-dir", root / "store.git", "for-each-ref", "refs/uwf/nodes/") == ""


def test_what_is_printed_of_a_node_is_what_is_stored_without_its_secrets(uwf: Uwf, root: Path) -> None:
    uwf("init")
    (root / ".env").write_text("OTHER=othersecretvalue99\n")
    text = '{"version": "othersecretvalue99"}'
    made = uwf("extract", "--schema", WANTED, "--into", "schema", input=text)
    assert made.json["data"] == {"version": "[redacted:OTHER]"}
    assert uwf("cas", "get", made.json["hash"]).json["payload"] == made.json["data"]
    assert "uwf: 1 secret was taken out: data" in made.err
    only = '{"properties": {"version": {"pattern": "^other"}}}'
    broken = uwf("extract", "--schema", only, "--into", "schema", input=text, check=1).error
    assert broken["message"].startswith("a secret was removed from the data, and then ")
    assert "breaks its type" in broken["message"]


def test_where_the_configuration_lets_no_model_read_it_says_so(
    uwf: Uwf, server: ModelServer, root: Path
) -> None:
    with (root / "config.yaml").open("a") as file:
        file.write("modelOverrides: {extract: none}\n")
    hint = uwf("extract", "--schema", WANTED, input=PROSE, check=6).error["hint"]
    assert hint == "modelOverrides.extract lets no model read it: uwf config unset modelOverrides.extract"


@pytest.mark.parametrize(
    ("args", "text", "status", "said"),
    [
        (["--schema", WANTED], PROSE, 6, "no model is configured to read it: uwf setup"),
        (["--schema", WANTED], " \n", 2, "the text to read is empty"),
        ([], PROSE, 2, "--schema is missing"),
        (["--schema", '{"type": "strng"}'], PROSE, 1, "the schema is not a JSON Schema"),
        (["--schema", "nowhere.yaml"], PROSE, 3, "nowhere.yaml"),
        (["--schema", "Answr"], PROSE, 3, 'did you mean "Answer"?'),
    ],
)
def test_what_cannot_be_done_is_said(
    uwf: Uwf, root: Path, args: list[str], text: str, status: int, said: str
) -> None:
    uwf("init")
    error = uwf("extract", *args, input=text, check=status).error
    assert said in f"{error['message']} {error['hint']}"


AGENT = """\
import json, subprocess, sys
from uwf_git.kit import Reply, create_agent

def run(ctx):
    where = ctx.extract({schema}, "where to work")
    given = ctx.extract({schema}, text='{{"version": "0"}}')
    command = [{python!r}, "-m", "uwf_cli.main", "extract", "--schema", json.dumps({schema})]
    said = subprocess.run(command, input="It is 5.", capture_output=True, text=True, check=True).stdout
    return Reply("---\\ntext: " + json.dumps(json.dumps([where, given, json.loads(said)])) + "\\n---\\n")

create_agent("asker", run).main()
"""


def test_what_an_agent_and_its_commands_extract_counts_for_its_step(
    uwf: Uwf, server: ModelServer, thread: str, script: Callable[[str, str], Path]
) -> None:
    server.play([Say('{"version": "4"}'), Say('{"version": "5"}')])
    agent = script("asker", AGENT.format(schema=repr(SCHEMA), python=sys.executable))
    head = uwf("thread", "step", thread, "--agent", agent).json["head"]
    [step] = uwf("thread", "steps", thread).json
    assert json.loads(step["output"]["text"]) == [{"version": each} for each in "405"]
    assert server.asked[0].messages[-1].text == "# The task\n\nDo it"
    assert "What to look for:\nwhere to work\n" in server.asked[0].system
    turns = uwf("thread", "turns", thread, "--step", head).json
    assert [(each["role"], each.get("tool")) for each in turns] == [("tool", "extract")] * 2 + [
        ("assistant", None)
    ]
    assert [each["arguments"] for each in turns[:2]] == [{"model": "tiny-1"}] * 2
    detail = uwf("cas", "get", step["detail"]).json["payload"]
    assert detail["usage"] == {
        "input": server.usage.input,
        "output": server.usage.output,
        "cached": server.usage.cached,
    }
    spent = uwf("stats", thread, "--by", "model").json
    assert "tiny-1" in json.dumps(spent) and str(server.usage.input) in json.dumps(spent)


BUNDLE = """\
descriptor = {
    "name": "asks",
    "description": "Two agents that have a model read, of which the code takes one's answer only.",
    "roles": {"writer": {"description": "writes", "schema": {"type": "object"}}},
}


async def run(input, options):
    said = await options.agents.asker("writer")
    await options.agents.shell(prompt="Look")
    yield {"role": "writer", "content": said, "meta": {}}
"""


@pytest.mark.needs("bwrap")
def test_what_the_agents_of_a_bundle_and_their_commands_extract_counts_for_its_step_once(
    uwf: Uwf, server: ModelServer, config: Callable[[str], Path], script: Callable[[str, str], Path]
) -> None:
    agent = script("asker", AGENT.format(schema=repr(SCHEMA), python=sys.executable))
    shell = f"echo It is 6. | {sys.executable} -m uwf_cli.main extract --schema '{{}}'"
    config(
        f"providers: {{local: {{baseUrl: '{server.openai_url}'}}}}\n"
        "models: {default: {provider: local, name: tiny-1}}\n"
        f"agents:\n  asker: {{command: '{agent}'}}\n"
        f"  shell: {{command: uwf-exec, args: [sh, -c, {json.dumps(shell)}]}}\n"
    )
    server.play([Say('{"version": "4"}'), Say('{"version": "5"}'), Say("6")])
    put = uwf("workflow", "put", write("asks.py", BUNDLE)).json
    thread = uwf("thread", "start", put["hash"], "-p", "Do it").json["thread"]
    uwf("thread", "step", thread)
    [step] = uwf("thread", "steps", thread).json
    turns = uwf("thread", "turns", thread, "--step", step["step"]).json
    assert [each["arguments"] for each in turns if each.get("tool") == "extract"] == [{"model": "tiny-1"}] * 3
    detail = uwf("cas", "get", step["detail"]).json["payload"]
    assert (detail["usage"]["input"], detail["usage"]["output"]) == (server.usage.input, server.usage.output)
    total = uwf("stats", thread).json["total"]
    assert (total["input"], total["output"]) == (server.usage.input, server.usage.output)


def test_the_built_in_agent_has_it_as_a_tool(
    uwf: Uwf, server: ModelServer, thread: str, hermetic: Path
) -> None:
    (hermetic / "work" / "notes.md").write_text(PROSE)
    ask = {"schema": SCHEMA, "prompt": "the release", "path": "notes.md"}
    server.play([Call("extract", ask), Say(READ), Say("---\ntext: it is 2.1\n---\n")])
    head = uwf("thread", "step", thread, "--agent", "uwf-builtin").json["head"]
    first, read, last = server.asked
    assert "extract" in first.tools and read.tools == ()
    assert (read.model, read.messages[-1].text) == ("tiny-1", PROSE)
    assert json.loads(last.messages[-1].results[0].text) == {"ok": True, "data": {"version": "2.1"}}
    turns = uwf("thread", "turns", thread, "--step", head).json
    assert [each.get("arguments") for each in turns if each["role"] == "tool"] == [{"model": "tiny-1"}, ask]
    detail = uwf("cas", "get", uwf("thread", "steps", thread).json[0]["detail"]).json["payload"]
    assert detail["usage"]["input"] == server.usage.input
