"""uwf-exec: commands from the configuration do roles, and what they did becomes an output."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import wait_until_gone
from conftest import Uwf
from one_role import failed, perform, read, start, worked

from uwf_git.base.errors import Usage
from uwf_git.engine.step import step
from uwf_git.ext.agents import exec as agent_exec
from uwf_git.ext.agents.exec import Options, parse_args
from uwf_git.format.types import QUESTION
from uwf_git.store.instance import Instance

STATUS = {
    "type": "object",
    "properties": {"status": {"enum": ["passed", "failed"]}, "report": {"type": "string"}},
    "required": ["status", "report"],
    "additionalProperties": False,
}


def sh(script: str) -> list[str]:
    return ["--", "sh", "-c", script]


def test_success_and_failure_become_the_status(instance: Instance) -> None:
    made = worked(instance, "exec", sh("echo all 3 tests passed"), STATUS)
    assert made.output == {"status": "passed", "report": "all 3 tests passed"}
    assert (made.agent, made.detail["extraction"]) == ("uwf-exec", "native")
    assert made.detail["answer"] == (
        "---\nstatus: passed\nreport: all 3 tests passed\n---\n\n"
        "`sh -c 'echo all 3 tests passed'` exited with 0.\n\n```text\nall 3 tests passed\n```\n"
    )
    (turn,) = made.turns
    assert (turn["tool"], turn["arguments"], turn["result"]) == (
        "command",
        sh("echo all 3 tests passed")[1:],
        {"exitStatus": 0},
    )
    made = worked(instance, "exec", sh("echo one; echo two >&2; exit 3"), STATUS)
    assert made.output == {"status": "failed", "report": "one\ntwo"}


def test_the_output_of_a_command_is_searched_for_an_answer_once(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched = []

    def counted(ctx: Any, argv: Any, finished: Any, seconds: float) -> Any:
        searched.append(finished.stderr_size)
        return heard(ctx, argv, finished, seconds)

    heard = agent_exec._heard
    monkeypatch.setattr(agent_exec, "_heard", counted)
    step(instance, start(instance, STATUS), shlex.join(["uwf-exec", *sh("echo two >&2; exit 3")]))
    assert searched == [4]


@pytest.mark.parametrize(
    ("properties", "good", "bad"),
    [
        ({"$status": {"enum": ["Approved", "Changes Requested"]}}, "Approved", "Changes Requested"),
        ({"status": {"enum": ["done", "error"]}, "summary": {"type": "string"}}, "done", "error"),
        ({"status": {"type": "string"}, "exitCode": {"type": "integer"}}, "passed", "failed"),
        ({"approved": {"type": "boolean"}, "comments": {"type": "string"}}, True, False),
    ],
)
def test_the_schema_decides_what_it_is_called(
    instance: Instance, properties: Any, good: Any, bad: Any
) -> None:
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    first, *others = properties
    for script, said, code in [("echo x", good, 0), ("echo x; exit 4", bad, 4)]:
        output = worked(instance, "exec", sh(script), schema).output
        assert output[first] == said
        assert [output[name] for name in others] == [code if name == "exitCode" else "x" for name in others]


def test_the_variant_of_the_status_is_filled(instance: Instance) -> None:
    schema = {
        "oneOf": [
            {"properties": {"status": {"const": "released"}}, "required": ["status"]},
            {
                "properties": {
                    "status": {"const": "rejected"},
                    "message": {"type": "string", "maxLength": 3},
                },
                "required": ["status", "message"],
            },
        ],
        "type": "object",
    }
    assert worked(instance, "exec", sh("true"), schema).output["status"] == "released"
    assert worked(instance, "exec", sh("echo 12345; false"), schema).output == {
        "status": "rejected",
        "message": "345",
    }


def test_without_a_place_in_the_schema_the_status_is_added_where_it_may_be(instance: Instance) -> None:
    output = worked(instance, "exec", sh("false"), {"type": "object"}).output
    assert output == {"status": "failed", "report": "(it printed nothing)"}


def test_a_status_of_ones_own_is_named_by_option(instance: Instance) -> None:
    schema: dict[str, Any] = {
        "properties": {"status": {"enum": ["shipped", "held"]}},
        "required": ["status"],
        "type": "object",
    }
    said = failed(instance, "exec", sh("true"), schema)
    assert "exited with 0, and the output of role worker cannot be told from that" in said
    assert "say which status it means with --ok, of: shipped, held" in said
    said = failed(instance, "exec", sh("echo out; echo 'no \033[31msuch file' >&2; exit 3"), schema)
    assert "exited with 3 (no such file), and the output of role worker cannot be told from that" in said
    said = failed(instance, "exec", ["--ok", "shiped", *sh("true")], schema)
    assert "--ok 'shiped' is not a status of role worker" in said and 'did you mean "shipped"?' in said
    needy = {
        **schema,
        "properties": {**schema["properties"], "plan": {"type": "array"}},
        "required": ["status", "plan"],
    }
    assert "let the command print the fields itself" in failed(instance, "exec", sh("true"), needy)
    args = ["--ok", "shipped", "--fail=held"]
    assert worked(instance, "exec", args + sh("true"), schema).output["status"] == "shipped"
    assert worked(instance, "exec", args + sh("false"), schema).output["status"] == "held"


def test_a_failure_that_the_schema_cannot_say_is_no_success(instance: Instance) -> None:
    schema = {"type": "object", "properties": {"report": {"type": "string"}}, "additionalProperties": False}
    assert worked(instance, "exec", sh("echo fine"), schema).output == {"report": "fine"}
    assert "exited with 1, and the output of role worker" in failed(
        instance, "exec", sh("echo bad; exit 1"), schema
    )


def test_what_is_wrong_with_what_a_command_printed_is_said(instance: Instance) -> None:
    schema = {
        "type": "object",
        "properties": {
            "steps": {"type": "array", "minItems": 1},
            "title": {"type": "string", "maxLength": 3},
        },
        "required": ["steps"],
    }
    said = failed(instance, "exec", sh("""echo '{"steps": [], "title": "long"}'"""), schema)
    assert said.endswith(
        " printed is not an output of role worker: "
        "steps: needs at least 1 item; title: has 4 characters, and at most 3 are allowed\n"
    )


UNION = {
    "type": "object",
    "oneOf": [
        {
            "properties": {"$status": {"const": "passed"}, "report": {"type": "string"}},
            "required": ["$status"],
        },
        {
            "properties": {"$status": {"const": "failed"}, "items": {"type": "array", "minItems": 1}},
            "required": ["$status", "items"],
        },
    ],
}
VERDICT = {
    "type": "object",
    "properties": {
        "status": {"enum": ["approved", "rejected"]},
        "comments": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["status"],
}


@pytest.mark.parametrize(
    ("schema", "printed", "problem"),
    [
        (UNION, '{"$status": "failed", "report": "3 failed", "items": []}', "items: needs at least 1 item"),
        (UNION, '{"$status": "failed", "report": "3 failed"}', "'items' is a required property"),
        (UNION, '{"status": "failed", "report": "3 failed"}', "'$status' is a required property"),
        (UNION, '{"$status": "fialed", "items": [1]}', "'fialed' is not one of ['passed', 'failed']"),
        (UNION, 'Ran 9.\n{"$status": "failed", "items": []}\nBye.', "items: needs at least 1 item"),
        (UNION, '{"$status": "failed", "items": [', "the JSON object has no end"),
        (UNION, "---\n$status: failed\nitems: [a\n---", "is not YAML: line 4 of the answer"),
        (VERDICT, "---\nstatus: rejectedd\n---", "status: 'rejectedd' is not one of"),
        (VERDICT, "---\n$status: rejected\n---", "'status' is a required property"),
        (VERDICT, "```yaml\nstatus: rejected\ncomments: [{a: b}]\n```", "comments/0: "),
        (VERDICT, "---\n$status: $SUSPEND\n---", "needs a question or a reason"),
        (
            VERDICT,
            "<answer>\n  <status>rejected</status>\n</answer>",
            "fields of an answer within other text",
        ),
        (VERDICT, '<review by="me" status="rejected"/>', "fields of an answer within other text"),
    ],
)
def test_a_bad_answer_is_never_replaced_by_the_exit_status(
    instance: Instance, tmp_path: Path, schema: Any, printed: str, problem: str
) -> None:
    (tmp_path / "answer").write_text(printed)
    said = failed(instance, "exec", ["cat", str(tmp_path / "answer")], schema)
    assert "is not an output of role worker: " in said and problem in said


def test_what_is_printed_on_standard_error_may_contradict_an_answer(instance: Instance) -> None:
    schema = {"type": "object", "properties": {"approved": {"type": "boolean"}}, "required": ["approved"]}
    said = failed(instance, "exec", sh("""echo '{"approved": true}'; echo approved: false >&2"""), schema)
    assert "it holds answers that disagree, in lines 1, 2: give one" in said
    said = failed(instance, "exec", sh("echo Checked.; echo '**approved**: no' >&2"), schema)
    assert "it speaks of approved within other text; it begins in line 2" in said
    assert "let it print one answer" in said
    output = worked(instance, "exec", sh("echo 3 approved; echo a log >&2"), schema).output
    assert output["approved"] is True


@pytest.mark.parametrize(
    "printed",
    [
        "Here is my verdict:\n\n---\n$status: bad\n---",
        "```yaml\n$status: bad\n```",
        '```json\n{"$status": "bad"}\n```',
        "```\n---\n$status: bad\n---\n```\n",
        'The verdict:\n{"$status": "bad"}',
    ],
)
def test_what_stands_around_an_answer_does_no_harm(instance: Instance, tmp_path: Path, printed: str) -> None:
    schema = {"type": "object", "properties": {"$status": {"enum": ["ok", "bad"]}}, "required": ["$status"]}
    (tmp_path / "answer").write_text(printed)
    assert worked(instance, "exec", ["cat", str(tmp_path / "answer")], schema).output == {"$status": "bad"}


def test_what_a_failed_command_printed_is_kept(instance: Instance) -> None:
    thread = start(instance, {"type": "object", "required": ["plan"]})
    assert perform("exec", sh("echo hours of work"), thread).returncode == 6
    report = instance.runs.read_report(thread)
    assert report is not None and report.detail is not None
    assert "hours of work" in instance.store.get(report.detail).payload["answer"]


@pytest.mark.parametrize(
    "printed",
    [
        '{"status": "failed", "report": "by itself"}',
        "---\nstatus: failed\nreport: by itself\n---\n\nAnd a page.",
        "\n---\nstatus: FAILED\nreport: by itself\n...\n",
    ],
)
def test_an_answer_that_is_printed_is_the_output(instance: Instance, tmp_path: Path, printed: str) -> None:
    (tmp_path / "answer").write_text(printed)
    made = worked(instance, "exec", ["cat", str(tmp_path / "answer")], STATUS)
    assert made.output == {"status": "failed", "report": "by itself"}
    assert made.detail["answer"] == printed
    assert len(made.turns) == 1


def test_a_command_may_ask_a_human(instance: Instance) -> None:
    made = worked(instance, "exec", sh("""echo '{"$status": "$SUSPEND", "question": "Ship it?"}'"""), STATUS)
    assert (made.type, made.output["question"]) == (QUESTION, "Ship it?")


def test_json_of_another_kind_is_only_a_report(instance: Instance) -> None:
    made = worked(instance, "exec", sh("""echo '{"vulnerabilities": 0}'"""), STATUS)
    assert made.output == {"status": "passed", "report": '{"vulnerabilities": 0}'}


def test_the_context_comes_as_json_on_stdin(instance: Instance) -> None:
    program = "import sys; print(sys.stdin.read(), end='')"
    args = ["--", sys.executable, "-c", program]
    context = json.loads(worked(instance, "exec", args, STATUS).output["report"])
    assert context["start"]["prompt"] == "Do it."
    assert (context["workflow"], context["role"], context["step"], context["steps"]) == (
        "one-role",
        "worker",
        1,
        [],
    )
    assert context["schema"] == STATUS
    assert context["prompt"].startswith("# How you answer\n")
    prompt = worked(instance, "exec", ["--stdin", "prompt", *args], STATUS).output["report"]
    role, whole = (
        text.split("# Your role")[1].split("# Progress")[0] for text in (prompt, context["prompt"])
    )
    assert role == whole
    assert "nothing" in worked(instance, "exec", ["--stdin=none", *args], STATUS).output["report"]


def test_commands_are_chosen_by_role_and_run_in_the_working_directory(
    instance: Instance, tmp_path: Path
) -> None:
    args = [
        "--role",
        "other=false",
        "--role",
        "worker=sh -c 'echo $UWF_ROLE in $PWD; echo \"$0\"' 'a b'",
        "false",
    ]
    made = worked(instance, "exec", args, STATUS, cwd=tmp_path)
    assert made.output["report"] == f"worker in {tmp_path}\na b"
    assert "has no command for role worker" in failed(
        instance, "exec", ["--role", "other=true"], STATUS, status=2
    )


def test_nothing_of_the_thread_is_run(instance: Instance, tmp_path: Path) -> None:
    thread = start(instance, STATUS, f"$(touch {tmp_path}/a); `touch {tmp_path}/b`; touch {tmp_path}/c")
    assert perform("exec", sh("cat > /dev/null"), thread).returncode == 0
    assert not list(tmp_path.glob("[abc]"))


def test_long_output_keeps_its_end_and_says_so(instance: Instance) -> None:
    script = "head -c 3000000 /dev/zero | tr '\\0' x; echo; echo the end"
    report = worked(instance, "exec", ["--tail", "100", *sh(script)], STATUS).output["report"]
    assert report.startswith("[… the first ")
    assert report.endswith("x\nthe end")
    assert len(report) < 200


def test_what_steers_a_terminal_is_left_out(instance: Instance) -> None:
    script = r"printf '\033[31mred\033[0m\r\n10%%\r100%%\n\033]0;title\007bell\a \377\000end'"
    report = worked(instance, "exec", sh(script), STATUS).output["report"]
    assert report == "red\n100%\nbell \ufffdend"


def test_a_command_that_is_missing_or_killed_is_told(instance: Instance) -> None:
    assert "command 'no-such-tool' is not on PATH" in failed(instance, "exec", ["no-such-tool"], STATUS)
    assert "was ended by signal 9 — somebody" in failed(instance, "exec", sh("kill -9 $$"), STATUS)


@pytest.mark.parametrize(
    ("command", "how"),
    [
        ("echo half; kill -9 $$", "was ended by signal 9"),
        ("echo half; kill -TERM $$", "was ended by signal 15"),
        ("sh -c 'kill -9 $$'; exit $?", "exited with 137"),
    ],
)
def test_a_command_that_was_killed_is_an_agent_that_failed_and_is_tried_again(
    uwf: Uwf, instance: Instance, config: Callable[[str], Path], command: str, how: str
) -> None:
    config(
        f"defaultAgent: uwf-exec -- sh -c {shlex.quote(f'[ -e killed ] && exit 0; touch killed; {command}')}"
    )
    thread = start(instance, STATUS)
    assert how in uwf("thread", "step", thread, check=6).error["message"]
    assert uwf("thread", "steps", thread).json == []
    (attempt,) = uwf("thread", "attempts", thread).json
    assert how in attempt["error"]
    uwf("thread", "step", thread)
    assert uwf("thread", "steps", thread).json[0]["output"]["status"] == "passed"


def test_a_command_that_hangs_dies_with_everything_it_started(instance: Instance, tmp_path: Path) -> None:
    from uwf_git.base.errors import AgentFailed
    from uwf_git.ext.agents.exec import agent
    from uwf_git.store.private import EngineOrder

    thread = start(instance, STATUS)
    head = instance.threads.head(thread)
    pids = tmp_path / "pids"
    script = f"echo begun; sleep 600 & echo $$ $! > {pids}; wait"
    order = EngineOrder(head.node, "worker", "uwf-exec", None, 1.0)
    with pytest.raises(AgentFailed, match="ran out of time") as caught:
        agent.perform(instance, instance.threads.position(head), order, sh(script))
    detail = instance.store.get(getattr(caught.value, "detail")).payload  # noqa: B009
    assert "begun" in detail["answer"]
    for pid in pids.read_text().split():
        wait_until_gone(pid)


def test_the_lock_is_handed_on(instance: Instance, tmp_path: Path) -> None:
    from uwf_git.ext.agents.exec import agent
    from uwf_git.store.private import EngineOrder

    thread = start(instance, STATUS)
    head = instance.threads.head(thread)
    order = EngineOrder(head.node, "worker", "uwf-exec", None, None)
    with instance.locks.hold(thread):
        script = f"ls -l /dev/fd/ /proc/self/fd 2>/dev/null | grep -c locks/{thread}"
        node = agent.perform(instance, instance.threads.position(head), order, sh(script))
    assert int(read(instance, node).output["report"].split()[0]) > 0


def test_arguments_are_read_strictly() -> None:
    assert parse_args(["make", "-k", "test"]) == Options(("make", "-k", "test"))
    assert parse_args(["--tail=5", "--", "--odd"]) == Options(("--odd",), tail=5)
    assert parse_args(["--role", "a=b 'c d'"]) == Options((), {"a": ("b", "c d")})
    for bad in (
        ["--what"],
        ["--ok"],
        ["--role", "x"],
        ["--role=x="],
        ["--role", "x='"],
        ["--tail", "0"],
        ["--stdin", "y"],
    ):
        with pytest.raises(Usage):
            parse_args(bad)


def test_the_engine_steps_it_from_the_configuration(
    instance: Instance, uwf: Callable[..., Any], config: Callable[[str], Path]
) -> None:
    config(
        'agents:\n  tests: {command: uwf-exec, args: ["--", "sh", "-c", "pwd; exit 1"]}\ndefaultAgent: tests\n'
    )
    thread = start(instance, STATUS)
    stepped = uwf("thread", "step", thread).json
    assert (stepped["done"], stepped["status"], stepped["role"]) == (True, "completed", "worker")
    assert read(instance, stepped["head"]).output == {"status": "failed", "report": str(Path.cwd())}


PASSED = {"type": "object", "properties": {"passed": {"type": "boolean"}}, "required": ["passed"]}


def one_field(name: str, *values: str) -> dict[str, Any]:
    field = {"enum": list(values)} if values else {"type": "boolean"}
    return {"type": "object", "properties": {name: field}, "required": [name]}


@pytest.mark.parametrize(
    ("schema", "yes"),
    [
        (PASSED, '{"passed": true, "id": 3}'),
        (STATUS, '{"status": "passed", "report": "all well"}'),
        (one_field("testsPass"), '{"testsPass": true}'),
        (one_field("is_clean"), '{"is_clean": true}'),
        (one_field("has_issues"), '{"has_issues": false}'),
        (one_field("no_errors"), '{"no_errors": true}'),
        (one_field("verdict", "shipped", "failed"), '{"verdict": "shipped"}'),
        (
            {**PASSED, "properties": {**PASSED["properties"], "lint_ok": {"type": "boolean"}}},
            '{"passed": true, "lint_ok": false}',
        ),
    ],
)
@pytest.mark.parametrize("end", ["exit 2", "kill -9 $$", "echo 'ZeroDivisionError: x' >&2; exit 1"])
def test_a_printed_yes_and_a_failure_are_two_answers_that_disagree(
    instance: Instance, schema: Any, yes: str, end: str
) -> None:
    thread = start(instance, schema)
    done = perform("exec", sh(f"echo 'Ran 3 checks.'; echo '{yes}'; {end}"), thread)
    ended = "was ended by signal 9" if "kill" in end else "exited with"
    assert done.returncode == 6 and ended in done.stderr
    assert ("no finished answer" if "kill" in end else "two answers that disagree") in done.stderr
    report = instance.runs.read_report(thread)
    assert report is not None and report.detail is not None
    kept = instance.store.get(report.detail).payload["answer"]
    assert ended in kept and yes in kept and ("ZeroDivisionError" in kept) == ("ZeroDivision" in end)


@pytest.mark.parametrize(
    ("schema", "no"),
    [
        (PASSED, {"passed": False}),
        (STATUS, {"status": "failed", "report": "2 of 3 failed"}),
        (one_field("has_issues"), {"has_issues": True}),
        (one_field("verdict", "approve", "needs_work"), {"verdict": "needs_work"}),
        ({"type": "object", "properties": {"count": {"type": "integer"}}}, {"count": 3}),
    ],
)
def test_a_printed_no_is_taken_beside_a_failure_and_its_answer_names_the_status(
    instance: Instance, schema: Any, no: dict[str, Any]
) -> None:
    made = worked(instance, "exec", sh(f"echo '{json.dumps(no)}'; echo a trace >&2; exit 1"), schema)
    assert made.output == no
    assert "exited with 1." in made.detail["answer"] and "a trace" in made.detail["answer"]
    killed = failed(instance, "exec", sh(f"echo '{json.dumps(no)}'; kill -9 $$"), schema)
    assert "was ended by signal 9, so what it printed is no finished answer" in killed


@pytest.mark.parametrize(
    "printed",
    [
        '{"tests_passed": false}',
        '{"passed_all": false}',
        '{"testsPassed": "no"}',
        '{"results": {"unit_passed": false, "n": 3}}',
        '{"lint_ok": false}',
        'Ran 3 checks.\\n{"id": 3, "tests_passed": false}\\nBye.',
    ],
)
def test_a_key_with_the_word_of_a_field_that_says_no_is_no_success(instance: Instance, printed: str) -> None:
    assert "it says no" in failed(instance, "exec", sh(f"printf '{printed}'"), PASSED)
    yes = printed.replace("false", "true").replace('"no"', '"yes"')
    assert worked(instance, "exec", sh(f"printf '{yes}'"), PASSED).output["passed"] is True
