"""Workflow scripts: their contract, what they are given, what agents, persons and limits do to them, and running them
again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import session_programs
from cli_samples import write
from commands import UWF, begin, git, parent_of, wait_for, wait_until_gone
from conftest import EXAMPLES, Uwf
from faults import on_a_small_disk
from model_server import ModelServer, Say
from noting_agent import Asked, noting
from process_tree import killed

pytestmark = pytest.mark.needs("bwrap", "node")

META = 'export const meta = { name: "script", description: "A script." };\n'
AGENTS = "  other: {command: uwf-exec, args: [echo, other]}\n  person: {command: uwf-human}\ndefaultAgent: scripted\n"


@pytest.fixture
def asked(config: Callable[[str], Path]) -> Asked:
    """The scripted agent is the default one."""
    return noting(config, AGENTS)


def started(uwf: Uwf, body: str, args: Any = None, name: str = "script.js") -> str:
    uwf("workflow", "put", write(name, META + body if name.endswith(".js") else body))
    return str(uwf("thread", "start", "script", "-p", json.dumps(args)).json["thread"])


def result(uwf: Uwf, thread: str, check: int = 0) -> Any:
    uwf("thread", "run", thread, check=check)
    return uwf("thread", "steps", thread).json[-1]["output"]


def refused(uwf: Uwf, text: str, name: str = "script.js") -> list[tuple[int, str]]:
    findings = uwf("workflow", "put", write(name, text), check=1).error["findings"]
    return [(each["line"], each["code"]) for each in findings]  # type: ignore[index]


def test_a_script_runs_unmodified_and_is_one_step_with_its_result(uwf: Uwf, asked: Asked) -> None:
    body = """
phase("Look");
const schema = { type: "object", properties: { said: { type: "string" } }, required: ["said"] };
const looks = await pipeline(
  args.files,
  (file, item, index) => agent(`look ${index} ${item === file}`, { label: file, schema }),
  (previous, file, index) => { if (index === 1) throw new Error("no"); return `${file} ${previous.said}`; },
);
const both = await parallel([() => agent("text"), () => { throw new Error("lost"); }]);
log(`found ${looks.length}`);
return { looks, both: both.map((each) => each && JSON.parse(each).said), total: budget.total,
         left: budget.remaining() === Infinity, missing: undefined };
"""
    thread = started(uwf, body, {"files": ["a", "b"]})
    assert result(uwf, thread) == {
        "looks": ["a LOOK 0 TRUE", None],
        "both": ["TEXT", None],
        "total": None,
        "left": True,
    }
    assert asked() == ["look 0 true", "look 1 true", "text"]
    detail = uwf(
        "thread", "step-details", uwf("thread", "steps", thread).json[0]["step"], "--format", "json"
    ).json
    notes = detail["detail"]["value"]["notes"]
    assert "— Look" in notes and "found 2" in notes and "parallel 1: Error: lost" in notes
    assert "the code asked uwf-exec" in notes
    uwf("verify", "--strict")


KIT_AGENT = """
import json, os, sys
from uwf_git.kit import Reply, create_agent

def run(ctx):
    words = ctx.prompt.strip().splitlines()[-1]
    if "lost" in words:
        raise SystemExit("no luck today")
    within = "UWF_QUESTION" in os.environ
    return Reply(json.dumps({"said": f"{sys.argv[1]} {words}", "within": within}), model="own")

create_agent("own", run, parse_args=list).main()
"""


def test_an_agent_of_the_kit_that_a_command_line_configures_answers_a_script(
    uwf: Uwf, config: Callable[[str], Path]
) -> None:
    write("own.py", KIT_AGENT)
    config(f"defaultAgent: {sys.executable} {Path('own.py').resolve()} --loud\n")
    body = """
const schema = { type: "object", properties: { said: { type: "string" } }, required: ["said"] };
const typed = await agent("with a schema", { schema });
const text = await agent("as text");
return { typed, text: JSON.parse(text), lost: await agent("lost").catch(() => "thrown") };
"""
    thread = started(uwf, body)
    assert result(uwf, thread, 15) == {
        "typed": {"said": "--loud with a schema", "within": False},
        "text": {"said": "--loud as text", "within": False},
        "lost": None,
    }
    uwf("verify", "--strict")


def test_a_command_that_performs_steps_only_is_named_when_a_script_asks_it(
    uwf: Uwf, config: Callable[[str], Path]
) -> None:
    config("agents: {own: {command: sh, args: [-c, echo 0000000000000]}}\ndefaultAgent: own\n")
    thread = started(uwf, "return await agent('x');")
    assert "which cannot be told a prompt" in uwf("thread", "run", thread, check=6).error["message"]


def test_the_same_in_python(uwf: Uwf, asked: Asked) -> None:
    body = """
import json
meta = {"name": "script", "description": "A script."}

async def run(agent, parallel, pipeline, args):
    def told(said, item, index):
        return index, json.loads(said)["said"]

    looks = await pipeline(args, lambda item: agent(f"look {item}"), told)
    return {"looks": looks, "both": await parallel([lambda: agent("text", label="x"), lambda: 1 / 0])}
"""
    found = result(uwf, started(uwf, body, ["a", "b"], "script.py"))
    assert found["looks"] == [[0, "LOOK A"], [1, "LOOK B"]] and found["both"][1] is None
    assert refused(uwf, 'import time\nmeta = {"name": "x" + "y"}\ndef run(tools): pass\n', "other.py") == [
        (1, "foreign-import"),
        (2, "bad-meta"),
        (3, "missing-export"),
    ]


def test_what_breaks_the_contract_is_named_with_its_line_before_anything_runs(uwf: Uwf) -> None:
    text = META + 'import fs from "fs";\nconst x = require("y");\nexport const z = 1;\neval("1");\n'
    assert refused(uwf, text) == [
        (2, "foreign-import"),
        (3, "foreign-import"),
        (4, "foreign-export"),
        (5, "code-of-text"),
    ]
    assert refused(uwf, "export const meta = { name: title() };\nreturn 1;\n") == [(1, "bad-meta")]
    assert refused(uwf, 'export const meta = { name: "x" };\nreturn 1;\n') == [(1, "missing-key")]
    assert refused(uwf, META + "const x: string = 1;\n")[0][1] == "no-javascript"
    Path("bytes.js").write_bytes(META.encode() + b"// \xff\nreturn 1;\n")
    error = uwf("workflow", "put", "bytes.js", check=1).error
    assert [each["code"] for each in error["findings"]] == ["not-utf-8"]  # type: ignore[index]
    put = uwf("workflow", "put", write("clock.js", META + "return Date.now();\n")).json
    assert [(each["line"], each["code"]) for each in put["warnings"]] == [(2, "not-again")]


@pytest.mark.sample(7)
@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return new Date();", "pass the time in args"),
        ("return Math.random();", "vary by an index"),
        ("return new Intl.DateTimeFormat('en').format();", "pass the time in args"),
        ("return [undefined].map(Intl.DateTimeFormat('en').format);", "pass the time in args"),
        ("return new Intl.DateTimeFormat('en').formatToParts();", "pass the time in args"),
        ("return (new Date(0)).constructor.now();", "pass the time in args"),
        ("return () => 1;", "is a function, which JSON cannot say"),
        ("await parallel([agent('x')]);", "parallel() takes functions"),
        ("await pipeline(Array(5000).fill(1));", "at most 4096 items"),
        ("for (let i = 0; ; i += 1) await pipeline([], () => 1), await fail(i);", "fail is not defined"),
        ("await workflow('nobody');", "nobody"),
        ("return process.env;", "a script has no process"),
        ("await pipeline('[1', (x) => x);", "takes a list, not string"),
        ("await new Promise(() => {});", "waits for something that never comes"),
    ],
)
def test_a_script_that_cannot_run_fails_in_one_line(uwf: Uwf, asked: Asked, body: str, said: str) -> None:
    error = uwf("thread", "step", started(uwf, body), check=6).error
    assert said in error["message"] and "\n" not in error["message"]


def test_a_date_that_a_script_was_given_can_be_formatted(uwf: Uwf, asked: Asked) -> None:
    body = """
const utc = new Intl.DateTimeFormat("en", { timeZone: "UTC" });
return [utc.format(new Date(args)), utc.format(args), utc.formatToParts(args)[4].value];
"""
    assert result(uwf, started(uwf, body, 0)) == ["1/1/1970", "1/1/1970", "1970"]


@pytest.mark.parametrize(
    ("configured", "said"),
    [
        ("defaultAgent: plain\nagents: {plain: {command: /bin/true}}\n", "'plain' is a command"),
        ("defaultAgent: uwf-llm\n", "no model"),
        ("defaultAgent: nobody\n", "nobody"),
    ],
)
def test_a_step_whose_agent_cannot_be_asked_at_all_fails_rather_than_to_go_on_with_nulls(
    uwf: Uwf, config: Callable[[str], Path], configured: str, said: str
) -> None:
    config(configured)
    thread = started(uwf, "return await parallel(['x', 'y'].map((each) => () => agent(each)));")
    assert said in uwf("thread", "step", thread, check=6).error["message"]
    config("defaultAgent: uwf-rehearse\n")
    assert None not in result(uwf, thread)


def test_no_run_asks_more_than_a_thousand_agents(uwf: Uwf, asked: Asked) -> None:
    body = """
const nothing = (i) => agent(" ").catch((error) => error.message);
const first = await nothing();
let last;
for (let i = 0; i < 1001; i += 1) last = await agent("x", { isolation: "none" }).catch((error) => error.message);
return { first, last };
"""
    found = result(uwf, started(uwf, body))
    assert found["first"].startswith("agent() takes a prompt") and "at most 1000 agents" in found["last"]


def test_a_used_up_budget_ends_the_calls_of_a_script_and_loses_none_of_its_answers(
    uwf: Uwf, config: Callable[[str], Path], server: ModelServer, root: Path
) -> None:
    config(
        f"providers: {{local: {{baseUrl: '{server.openai_url}', apiKeyEnv: LOCAL_KEY}}}}\n"
        "models: {small: {provider: local, name: tiny}}\ndefaultModel: small\ndefaultAgent: uwf-builtin\n"
    )
    (root / ".env").write_text("LOCAL_KEY=sk-secret-0123456789\n")
    server.play(lambda _: Say("done"))

    def said() -> int:
        return len({i for i in range(6) if any(f"say {i}" in each.text for each in server.asked)})

    body = "return await parallel(Array.from({ length: 6 }, (_, i) => () => agent(`say ${i}`)));"
    uwf("workflow", "put", write("script.js", META + body))
    thread = uwf("thread", "start", "script", "-p", "null", "--max-tokens", "1").json["thread"]
    error = uwf("thread", "run", thread, check=5).error
    assert error["hint"].startswith(f"uwf thread budget {thread} --max-tokens") and said() == 1
    one = server.usage.input + server.usage.output
    assert f"maxTokens is used up, {one} of 1 token" in error["message"]
    uwf("thread", "budget", thread, "--max-tokens", str(int(3.5 * one)))
    uwf("thread", "run", thread, check=5)
    assert said() == 4
    uwf("thread", "budget", thread, "--max-tokens", str(100 * one))
    assert result(uwf, thread) == ["done"] * 6 and said() == 6
    total = uwf("stats", thread).json["total"]
    assert total["input"] + total["output"] == 6 * one


@pytest.mark.parametrize("printed", ["boom", ""])
def test_a_command_that_fails_throws_where_data_were_asked_for(
    uwf: Uwf, config: Callable[[str], Path], printed: str
) -> None:
    config(
        f"agents:\n  failing: {{command: uwf-exec, args: [sh, -c, 'echo {printed}; exit 3']}}\ndefaultAgent: failing\n"
    )
    for schema in ({"text": {"type": "string"}}, {"passed": {"type": "boolean"}}):
        body = f"""
const schema = {json.dumps({"type": "object", "properties": schema, "required": [*schema]})};
return await agent("do it", {{ schema }}).catch((error) => ({{ thrown: error.message }}));
"""
        thread = started(uwf, body)
        assert "exited with 3" in result(uwf, thread, check=15)["thrown"]
        assert uwf("thread", "show", thread).json["census"]["failed"] == 1


def test_an_agent_that_fails_is_null_and_is_asked_again_by_a_fork_that_asks_nothing_else_again(
    uwf: Uwf, asked: Asked
) -> None:
    config = Path(os.environ["UWF_STORAGE_ROOT"]) / "config.yaml"
    works = config.read_text()
    config.write_text(works.replace("args: [echo, other]", "args: [sleep, '60'], timeout: 1"))
    body = 'return await parallel([() => agent("one"), () => agent("two", { agentType: "other" })]);'
    thread = started(uwf, body)
    one, two = result(uwf, thread, check=15)
    assert "ONE" in one and two is None
    shown = uwf("thread", "show", thread).json
    assert shown["census"] == {"of": "calls", "asked": 2, "answered": 1, "failed": 1, "dropped": 0}
    assert (shown["status"], shown["reason"]) == ("completed-with-failures", "with failures in 1 of 2 calls")
    assert uwf("thread", "wait", thread, check=15).error["code"] == "completed_with_failures"
    assert [each["thread"] for each in uwf("thread", "list", "--status", shown["status"]).json] == [thread]
    completed = uwf("thread", "list", "--status", "completed").json
    assert thread not in [each["thread"] for each in completed]
    uwf("verify")
    config.write_text(works)
    fork = uwf("thread", "fork", thread, "--at", "0").json["thread"]
    again, other = result(uwf, fork)
    assert again == one and "other" in other
    assert asked() == ["one"]


def test_data_that_break_their_schema_to_the_end_are_an_exception(uwf: Uwf, asked: Asked) -> None:
    body = """
const schema = { type: "object", properties: { never: { type: "integer" } }, required: ["never"] };
return await agent("one", { schema }).catch((error) => ({ caught: error.message }));
"""
    assert "output of the call" in result(uwf, started(uwf, body), check=15)["caught"]


@pytest.mark.parametrize("agent", ["scripted", "person", "uwf-rehearse"])
def test_a_schema_that_is_none_is_an_exception_before_anybody_is_asked(
    uwf: Uwf, asked: Asked, agent: str
) -> None:
    body = 'return await agent("one", { schema: { type: "objekt" } }).catch((error) => error.message);'
    thread = started(uwf, body)
    uwf("thread", "run", thread, "--agent", agent)
    said = uwf("thread", "steps", thread).json[-1]["output"]
    assert "agent(): schema is not a JSON Schema: /type: 'objekt' is not one of" in said
    assert asked() == [] and len(uwf("thread", "list", "--all").json) == 1


def test_an_unknown_option_of_agent_is_named_by_put_and_in_the_log(uwf: Uwf, asked: Asked) -> None:
    text = META + 'const also = 1;\nreturn !!(await agent("one", { shema: {}, also, label: "x" }));\n'
    put = uwf("workflow", "put", write("script.js", text)).json
    assert next((each["line"], each["code"], each["hint"]) for each in put["warnings"]) == (
        3,
        "unknown-option",
        'did you mean "schema"?',
    )
    assert "'also'" in put["warnings"][1]["message"]
    thread = uwf("thread", "start", "script", "-p", "null").json["thread"]
    assert result(uwf, thread) is True
    step = uwf("thread", "steps", thread).json[0]["step"]
    notes = uwf("thread", "step-details", step, "--format", "json").json["detail"]["value"]["notes"]
    assert any("no option shema" in note for note in notes)


def test_a_person_alone_is_waited_for_and_may_answer_any_json(uwf: Uwf, asked: Asked) -> None:
    thread = started(
        uwf, 'return agent("Which?", { agentType: "person", schema: { type: "array", minItems: 1 } });'
    )
    hint = uwf("thread", "run", thread, check=5).error["hint"]
    assert "-m JSON" in hint and uwf("thread", "show", thread).json["status"] == "waiting"
    call = hint.split()[3]
    uwf("thread", "answer", call, "-m", "[]", check=2)
    uwf("thread", "answer", call, "-m", "[1, 2]")
    assert uwf("thread", "show", thread).json["status"] == "idle"
    assert result(uwf, thread) == [1, 2]


def test_args_that_are_no_list_are_named_where_a_list_is_wanted(uwf: Uwf, asked: Asked) -> None:
    body = "return await pipeline(args, (x) => x);"
    assert "args is the prompt" in uwf("thread", "step", started(uwf, body, "x"), check=6).error["message"]
    assert "prompt is not JSON" in uwf("thread", "start", "script", "-p", '["a", "b"').err


def test_agent_types_and_models_are_mapped_by_the_configuration(uwf: Uwf, asked: Asked, root: Path) -> None:
    body = """
return await Promise.all([agent("x", { agentType: "other" }), agent("x", { model: "opus" }), agent("x")]);
"""
    path = root / "config.yaml"
    path.write_text(path.read_text() + "agentOverrides: {script: {opus: other}}\n")
    thread = started(uwf, body)
    assert set(uwf("workflow", "show", "script").json["roles"]) == {"agent", "other", "opus"}
    one, two, three = result(uwf, thread)
    config = path.read_text()
    path.write_text(config.partition("agentOverrides")[0])
    said = uwf("thread", "start", "script", "-p", "null").err
    assert "asks opus, for which no agent is configured" in said
    assert "other" in one and "other" in two and "SAID" not in three and '"X"' in three


def test_a_person_in_the_middle_holds_up_nothing_else_and_is_waited_for(uwf: Uwf, asked: Asked) -> None:
    body = """
const schema = { type: "object", properties: { fine: { type: "boolean" } }, required: ["fine"] };
const [one, person] = await Promise.all([
  agent("one").then(() => agent("after")),
  agent("Is it fine?", { agentType: "person", schema }),
]);
return { one, person };
"""
    thread = started(uwf, body)
    error = uwf("thread", "run", thread, check=5).error
    assert error["code"] == "waiting" and "Is it fine?" in error["message"]
    assert asked() == ["after", "one"]
    assert uwf("thread", "show", thread).json["status"] == "waiting"
    call = error["hint"].split()[3]
    shown = uwf("thread", "show", thread).json
    assert shown["question"] == f"call {call}: Is it fine?" and shown["command"] in error["hint"]
    assert shown["options"] == ["yes", "no"]
    field = {"name": "fine", "kind": "choice", "required": True, "choices": ["yes", "no"]}
    assert uwf("inbox").json[0]["fields"] == uwf("thread", "show", call).json["fields"] == [field]
    for unfit, said in (("maybe", "none of yes, no"), ('{"fine": 3}', "not of type"), ("{", "JSON")):
        assert said in uwf("thread", "answer", call, "-m", unfit, check=2).error["message"]
    uwf("thread", "answer", call, "-f", "fine=yes")
    assert result(uwf, thread)["person"] == {"fine": True}
    assert asked() == ["after", "one"]
    uwf("verify", "--strict")


def test_each_call_that_waits_for_a_person_is_shown_with_the_command_that_answers_it(
    uwf: Uwf, asked: Asked
) -> None:
    schema = '{ type: "object", properties: { fine: { type: "boolean" } }, required: ["fine"] }'
    body = f"""
const schema = {schema};
const ask = (prompt, more) => () => agent(prompt, {{ agentType: "person", ...more }});
return parallel([ask("Is it fine?", {{ schema }}), ask("Which colour?", {{}})]);
"""
    thread = started(uwf, body)
    uwf("thread", "run", thread, check=5)
    shown = uwf("thread", "show", thread).json
    waiting = shown["questions"]
    assert {each["question"] for each in waiting} == {"Is it fine?", "Which colour?"}
    assert [each["thread"] for each in waiting] == shown["calls"]
    assert {each["command"] for each in waiting} == {each["command"] for each in uwf("inbox").json}
    assert shown["command"] == waiting[0]["command"]
    text = uwf("--format", "text", "thread", "show", thread).out
    for each in waiting:
        assert f"call {each['thread']}: {each['question']}" in text and each["command"] in text
    first, second = (each["thread"] for each in waiting)
    for each in waiting:
        answer = ("-f", "fine=yes") if each["options"] else ("-m", "Blue")
        uwf("thread", "answer", each["thread"], *answer)
        text = uwf("--format", "text", "thread", "show", thread).out
        assert first not in text and (second in text or each is waiting[1])


def test_a_script_runs_another_to_its_result_but_none_within_that(uwf: Uwf, asked: Asked) -> None:
    inner = """export const meta = { name: "inner", description: "Inner." };
const deeper = await workflow("inner").catch((error) => error.message);
return { given: args, said: JSON.parse(await agent("inner")).said, deeper };
"""
    uwf("workflow", "put", write("inner.js", inner))
    found = result(uwf, started(uwf, 'return await workflow("inner", { x: 1 });'))
    assert found["given"] == {"x": 1} and found["said"] == "INNER" and "one level deep" in found["deeper"]


def test_what_is_no_script_and_no_json_reaches_the_script_as_an_error_and_as_text(
    uwf: Uwf, asked: Asked
) -> None:
    body = 'try { await workflow("nosuch") } catch (error) { return [args, error.message]; }'
    uwf("workflow", "put", write("script.js", META + body))
    for prompt in ("NaN", "[1e999]"):
        thread = uwf("thread", "start", "script", "-p", prompt).json["thread"]
        args, error = result(uwf, thread)
        assert args == prompt and "nosuch" in error


def test_scripts_of_a_projects_claude_folder_are_found_by_name(uwf: Uwf, asked: Asked) -> None:
    folder = Path(".claude/workflows")
    folder.mkdir(parents=True)
    (folder / "script.js").write_text(META + "return 1;\n")
    assert uwf("workflow", "show", "script").json["description"] == "A script."


def test_edited_code_is_given_what_was_answered_wherever_it_now_asks_it(uwf: Uwf, asked: Asked) -> None:
    thread = started(
        uwf, 'const all = await parallel(["one", "two", "three"].map((x) => () => agent(x)));\nreturn all;'
    )
    first = result(uwf, thread)
    Path("asked").unlink()
    edited = """
const early = await agent("new");
const all = await parallel(["three", "four", "one", "two", "one"].map((x) => () => agent(x)));
return [...all, early];
"""
    write("script.js", META + edited)
    fork = uwf("thread", "fork", thread, "--with", "./script.js").json["thread"]
    found = result(uwf, fork)
    assert asked() == ["four", "new", "one"]  # the second time that one is asked is another question
    assert [found[2], found[3], found[0]] == first
    uwf("verify", "--strict")
    error = uwf("thread", "fork", thread, "--with", "./script.js", "--at", "0", check=2).error
    assert "exclude each other" in error["message"]


def test_an_isolated_agent_begins_at_the_code_of_the_thread_and_is_not_asked_again(
    uwf: Uwf, asked: Asked
) -> None:
    git("init", "-q", ".")
    write("kept.txt", "committed")
    git("add", "kept.txt")
    git("commit", "-qm", "first")
    write("kept.txt", "not committed yet")
    other = "[--, sh, -c, 'cat kept.txt; echo mine > new.txt; echo once >> \"$HOME/times\"']"
    config = Path(os.environ["UWF_STORAGE_ROOT"]) / "config.yaml"
    config.write_text(config.read_text().replace("[echo, other]", other))
    body = """
const [isolated, failed] = await Promise.all([agent("x", { agentType: "other", isolation: "worktree" }), agent("two")]);
if (args !== "fine") throw new Error("no args");
return isolated;
"""
    thread = started(uwf, body, "fine")
    assert "not committed yet" in result(uwf, thread)
    assert not Path("new.txt").exists()
    (branch,) = git("for-each-ref", "--format=%(refname)", "refs/uwf/work/").split()
    assert git("show", f"{branch}:new.txt") == "mine"
    assert git("log", "-1", "--format=%s", branch).startswith("call: ")
    fork = uwf("thread", "fork", thread, "--at", "0").json["thread"]
    assert "not committed yet" in result(uwf, fork)
    assert (Path.home() / "times").read_text() == "once\n"
    uwf("verify", "--strict")


def test_calls_that_were_broken_off_go_on_in_their_own_sessions_and_new_ones_in_none(
    uwf: Uwf, config: Callable[[str], Path], hermetic: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session_programs.install(hermetic / "programs")
    monkeypatch.setenv("PATH", os.pathsep.join((str(hermetic / "programs"), os.environ["PATH"])))
    monkeypatch.setenv("DOUBLE_WAITS", str(hermetic / "waits"))
    config("defaultAgent: codex\n")
    body = """
const schema = { type: "object", properties: { heard: { type: "integer" }, word: { type: "string" } } };
const ask = (word) => agent(`The word is ${word}`, { schema });
return [...await parallel(["one", "two", "three"].map((word) => () => ask(word))), await ask("four")];
"""
    thread = started(uwf, body)
    (hermetic / "waits").write_text("is one|is two")

    def are_in_session() -> bool:
        notes = root / "store.git" / "uwf" / "runs" / f"{thread}.turns"
        answered = git("--git-dir", root / "store.git", "for-each-ref", "refs/uwf/archive/")
        return answered != "" and notes.read_text().count('"session"') == 3

    with killed(hermetic, are_in_session):
        begin("thread", "run", thread).communicate()
    (hermetic / "waits").unlink()
    assert [(each["word"], each["heard"]) for each in result(uwf, thread)] == [
        ("one", 2),
        ("two", 2),
        ("three", 1),
        ("four", 1),
    ]
    assert {each["status"] for each in uwf("thread", "list", "--all").json} == {"completed"}
    total = uwf("stats", thread).json["total"]
    assert (total["input"], total["output"]) == (4, 4)  # one token for each answer


def test_a_call_whose_process_was_killed_after_its_answer_is_completed(
    uwf: Uwf, asked: Asked, root: Path
) -> None:
    body = """
const one = await agent("one");
await agent("two", { schema: { type: "object", required: ["said"] } });
return one;
"""
    Path("broken").write_text("two")
    thread = started(uwf, body)
    uwf("thread", "run", thread, check=6)
    Path("broken").unlink()
    (call,) = (each["thread"] for each in uwf("thread", "list", "--all").json if each["title"] == "one")
    store, archived = root / "store.git", f"refs/uwf/archive/{call}"
    git("--git-dir", store, "update-ref", f"refs/uwf/threads/{call}", f"{archived}^{{commit}}")
    git("--git-dir", store, "update-ref", "-d", archived)
    assert "ONE" in result(uwf, thread)
    assert uwf("thread", "show", call).json["status"] == "completed"
    assert asked().count("one") == 1


CATCHES = """\
descriptor = {"name": "script", "description": "Two.", "roles": {"all": {"description": "x", "schema": {}}}}

async def run(input, options):
    said = []
    for each in ("one", "two"):
        try:
            said.append(await options.agents.scripted(prompt=each))
        except Exception:
            said.append("lost")
    options.finish(said)
    for each in ():
        yield each
"""


@pytest.mark.parametrize("name", ["script.js", "script.py"])
def test_a_call_whose_process_was_killed_is_neither_null_nor_an_exception_and_is_asked_when_the_thread_goes_on(
    uwf: Uwf, asked: Asked, name: str
) -> None:
    body = 'return [await agent("one"), await agent("two")];' if name == "script.js" else CATCHES
    Path("slow").write_text("two")
    thread = started(uwf, body, name=name)
    run = begin("thread", "run", thread)
    agent = int(wait_for(Path("waits")))
    os.kill(parent_of(agent), signal.SIGKILL)
    _, err = run.communicate(timeout=60)
    assert run.returncode == 6
    assert json.loads(err)["error"] == {
        "code": "agent_failed",
        "message": "the process that asked the agent was ended by signal 9 before it answered",
        "hint": f"nothing is lost, uwf thread run {thread} goes on",
    }
    assert uwf("thread", "steps", thread).json == []
    wait_until_gone(agent)
    Path("slow").unlink()
    assert ["ONE" in said or "TWO" in said for said in result(uwf, thread)] == [True, True]
    assert asked() == ["one", "two", "two"]
    uwf("verify", "--strict")


@on_a_small_disk
def test_a_script_hears_no_null_of_a_call_whose_answer_the_disk_has_no_space_for(
    uwf: Uwf, root: Path, hermetic: Path, config: Callable[[str], Path]
) -> None:
    agent = f"""
[ -e {hermetic}/asked ] || dd if=/dev/zero of=/mnt/ballast bs=1k 2>/dev/null
echo asked >>{hermetic}/asked
head -c 300000 /dev/urandom | base64
"""
    args = json.dumps(["--", "sh", "-c", agent])
    config(f"agents: {{fills: {{command: uwf-exec, args: {args}}}}}\ndefaultAgent: fills\n")
    thread = started(uwf, 'return (await agent("one")) === null;')
    command = f"{' '.join(UWF)} --root /mnt thread"
    program = f"""
mount -t tmpfs -o size=8m none /mnt && cp -a {root}/. /mnt/ || exit 99
{command} run {thread}; echo "exit $?"
rm -f /mnt/ballast
{command} run {thread}; echo "exit $?"
{command} steps {thread}
"""
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", program], capture_output=True, text=True, check=False
    )
    first, second = [line for line in done.stdout.splitlines() if line.startswith("exit ")]
    assert (first, second) == ("exit 1", "exit 0"), done.stdout + done.stderr
    assert json.loads(done.stderr.splitlines()[0])["error"]["code"] == "store_unwritable"
    assert '"output": false' in done.stdout


def test_the_example_audits_votes_fixes_in_worktrees_and_reviews(uwf: Uwf) -> None:
    git("init", "-q", ".")
    write("a.py", "pass")
    git("add", "a.py")
    git("commit", "-qm", "first")
    args = json.dumps({"files": ["a.py"], "votes": 1})
    thread = uwf("run", EXAMPLES / "fan-out.js", "-p", args).lines[0]["thread"]
    found = uwf("thread", "steps", thread).json[-1]["output"]
    assert len(found["fixes"]) == 1 and found["approved"] is True
    assert git("for-each-ref", "refs/uwf/work/")


def test_a_script_of_the_project_that_is_not_registered_is_named_with_the_command_that_registers_it(
    uwf: Uwf, asked: Asked
) -> None:
    Path(".claude/workflows").mkdir(parents=True)
    file = Path(
        write(".claude/workflows/inner.js", META.replace('"script"', '"inner"') + "return 1;\n")
    ).absolute()
    body = "return await workflow(args).catch((error) => error.message);"
    thread = started(uwf, body, "inner")
    assert f"uwf workflow put {file}" in result(uwf, thread)
    assert uwf("workflow", "trust", "inner", check=2).error["hint"] == f"uwf workflow put {file}"
    uwf("workflow", "put", file)
    assert result(uwf, started(uwf, body, "inner")) == 1
    assert "workflow put" not in result(uwf, started(uwf, body, "../inner"))


def test_the_number_of_calls_in_an_error_is_the_one_that_a_step_may_make(uwf: Uwf, asked: Asked) -> None:
    body = 'for (let at = 0; at < 2500; at += 1) await workflow("x").catch(() => null);\nreturn 1;'
    error = uwf("thread", "run", started(uwf, body), check=None).error
    assert "the code made over 2000 calls in one step" in str(error["message"])


def test_a_list_says_how_many_calls_it_leaves_out(uwf: Uwf, asked: Asked) -> None:
    result(uwf, started(uwf, 'return [await agent("one"), await agent("two")];'))
    said = uwf("thread", "list", "--all", env={"UWF_FORMAT": "text"})
    assert len(said.out.splitlines()) == 2
    assert "2 more are calls of code; --branches lists them" in said.err
    thread = started(uwf, 'return await agent("three");')
    result(uwf, thread)
    said = uwf("thread", "list", "--all", "--limit", "1", env={"UWF_FORMAT": "text"})
    assert "3 more are calls of code" in said.err


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("tolerates", "code"), [("0", 15), ("1", 0), ('"49%"', 15), ('"50%"', 0), ('"50%", budget: {}', 0)]
)
def test_failures_that_a_script_tolerates_are_counted_and_its_end_is_green(
    uwf: Uwf, asked: Asked, tolerates: str, code: int
) -> None:
    config = Path(os.environ["UWF_STORAGE_ROOT"]) / "config.yaml"
    config.write_text(config.read_text().replace("args: [echo, other]", "args: [sh, -c, 'echo no; exit 7']"))
    meta = META.replace("description:", f"tolerates: {tolerates}, description:", 1)
    text = meta + 'return [await agent("one"), await agent("two", { agentType: "other" })];\n'
    uwf("workflow", "put", write("script.js", text))
    ran = uwf("--format", "text", "run", "script", "-p", "null", check=code)
    assert "2 calls, 1 answered, 1 failed" in ran.out
    thread = ran.out.split()[1]
    assert uwf("thread", "steps", thread).json[-1]["output"][1] is None, (
        "what the command printed is no answer"
    )
    uwf("verify")


def test_a_tolerance_that_is_none_is_refused(uwf: Uwf) -> None:
    text = META.replace("description:", 'tolerates: "many", description:', 1) + "return 1;\n"
    assert "bad-meta" in [code for _, code in refused(uwf, text)]


def test_known_answers_come_in_the_order_and_with_the_keys_of_the_first_run(uwf: Uwf, asked: Asked) -> None:
    """Of calls at once the second is answered first, and the next prompt says so."""
    agent, prompts = Path("agent.py").absolute(), Path("prompts").absolute()
    agent.write_text(
        "import json, sys, time\n"
        "said = json.load(sys.stdin)['prompt'].strip().splitlines()[-1]\n"
        f"open({str(prompts)!r}, 'a').write(said + chr(10))\n"
        "time.sleep(1.5 if said == 'slow' else 0)\n"
        "print(json.dumps({'verdict': said[:4], 'notes': [1.0, 2.5, {'z': None, 'a': ''}]}))\n"
    )
    body = """
const schema = { type: "object", properties: { verdict: { type: "string" }, notes: {} }, required: ["verdict"] };
const came = [];
await parallel(["slow", "fast"].map((one) => async () => came.push(await agent(one, { schema }))));
return await agent("about " + JSON.stringify(came), { schema });
"""
    thread = started(uwf, body)
    options = ("--agent", f"uwf-exec {sys.executable} {agent}")
    uwf("thread", "step", thread, *options)
    first = prompts.read_text().splitlines()
    assert len(first) == 3 and first[-1].index("fast") < first[-1].index("slow")
    fork = uwf("thread", "fork", thread, "--at", "0").json["thread"]
    uwf("thread", "step", fork, *options)
    assert prompts.read_text().splitlines() == first, "the fork asks nothing again"


def test_a_script_has_what_is_the_same_whenever_it_runs_and_is_told_what_to_use_else(
    uwf: Uwf, asked: Asked
) -> None:
    body = """
const url = new URL("https://example.org/a?b=1");
url.searchParams.append("c", "é");
const copy = structuredClone({ at: new Date(0), of: new Map([["k", [1]]]), list: [new Set([2])] });
const order = [];
queueMicrotask(() => order.push("micro"));
await null;
const controller = new AbortController();
controller.abort();
console.warn("logged");
const pure = [
  url.href, new URLSearchParams("x=1&x=2").getAll("x"), [...new TextEncoder().encode("é")],
  new TextDecoder().decode(new TextEncoder().encode("é")), copy.at.toISOString(), [...copy.of], [...copy.list[0]],
  btoa("ab"), atob("YWI="), order, controller.signal.aborted, copy.of instanceof Map,
];
const tried = [
  () => setTimeout(() => {}, 1), () => setInterval(() => {}, 1), () => fetch("https://example.org"), () => process.env,
  () => performance.now(), () => crypto.randomUUID(), () => Buffer.from("a"), () => AbortSignal.timeout(1),
  () => new WebSocket("wss://example.org"), () => structuredClone(() => 1), () => Date.now(), () => Math.random(),
];
return { pure, refused: tried.map((each) => { try { each(); return null; } catch (error) { return error.message; } }) };
"""
    found = result(uwf, started(uwf, body))
    assert found["pure"] == [
        *("https://example.org/a?b=1&c=%C3%A9", ["1", "2"], [195, 169], "é", "1970-01-01T00:00:00.000Z"),
        *([["k", [1]]], [2], "YWI=", "ab", ["micro"], True, True),
    ]
    assert all(found["refused"]) and all("\n" not in each for each in found["refused"]), found["refused"]
    assert found["refused"][0].startswith("a script has no setTimeout(): it waits for agents alone")


@pytest.mark.parametrize("name", ["script.js", "script.py"])
def test_a_byte_order_mark_is_no_error(uwf: Uwf, asked: Asked, name: str) -> None:
    text = META + 'return "ended";\n'
    if name.endswith(".py"):
        text = 'meta = {"name": "script", "description": "d"}\n\n\nasync def run():\n    return "ended"\n'
    uwf("workflow", "put", write(name, "\ufeff" + text))
    thread = uwf("thread", "start", "script", "-p", "null").json["thread"]
    assert result(uwf, thread) == "ended"


def test_a_trial_with_failed_calls_is_not_passed_and_what_judges_so_gives_no_score(
    uwf: Uwf, asked: Asked
) -> None:
    config = Path(os.environ["UWF_STORAGE_ROOT"]) / "config.yaml"
    config.write_text(
        config.read_text()
        .replace("args: [echo, other]", "args: [sh, -c, 'exit 7']")
        .replace(" scripted.py", f" {Path('scripted.py').absolute()}")
    )
    body = 'await agent("one"); await agent("two", { agentType: "other" }); return { passed: true };\n'
    uwf("workflow", "put", write("script.js", META + body))
    write("cases.jsonl", '{"name": "one", "prompt": "null"}\n')
    uwf("eval", "import", "cases.jsonl", "--to", "calls", "--workflow", "script")
    (result,) = uwf("eval", "run", "calls").json["results"]
    assert (result["state"], result["error"]) == (
        "failed",
        "the thread is completed with failures in 1 of 2 calls",
    )
    judged = uwf("--format", "text", "eval", "run", "calls", "--judge", "jsonata:output.passed")
    assert judged.out.startswith("passed") and "with failures in 1 of 2 calls" in judged.out.splitlines()[0]
    unjudged = uwf("eval", "run", "calls", "--judge", "workflow:script", check=6)
    (result,) = unjudged.json["results"]
    assert result["state"] == "error" and "completed with failures in 1 of 2 calls" in result["errors"][0]
    uwf("verify", "--all")


@pytest.mark.extended
def test_a_fleet_ends_with_the_failures_of_its_threads(uwf: Uwf, asked: Asked) -> None:
    pytest.importorskip("temporalio", reason="pip install '.[fleet]'")
    config = Path(os.environ["UWF_STORAGE_ROOT"]) / "config.yaml"
    config.write_text(config.read_text().replace("args: [echo, other]", "args: [sh, -c, 'exit 7']"))
    thread = started(uwf, 'return [await agent("one"), await agent("two", { agentType: "other" })];')
    error = uwf("fleet", "run", thread, check=15, timeout=100).error
    assert error["message"] == f"thread {thread} is completed with failures in 1 of 2 calls"
