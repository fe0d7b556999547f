"""Roles that are a person's by their definition: they wait, and are answered from anywhere."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from cli_samples import GATE, WRITES, on_terminal, scripted, write
from conftest import Uwf

import uwf_git
from uwf_git.api.states import Waiting

Config = Callable[[str], Path]


def last(uwf: Uwf, thread: str) -> dict[str, Any]:
    return dict(uwf("thread", "steps", thread).json[-1])


def test_a_thread_waits_everywhere_from_the_moment_it_is_a_persons_turn(uwf: Uwf, gated: str) -> None:
    shown = uwf("thread", "show", gated).json
    assert (shown["status"], shown["next"], shown["asks"]) == ("waiting", "gate", "gate")
    assert (shown["question"], shown["options"]) == ("Send first?", ["send", "change", "drop"])
    assert shown["assignee"] == "Ada"
    assert shown["command"] == f"uwf thread answer {gated} -m CHOICE"
    assert shown["fields"] == [
        {
            "name": "decision",
            "kind": "choice",
            "required": True,
            "choices": ["send", "change", "drop"],
            "description": "What becomes of it.",
        },
        {"name": "note", "kind": "text", "required": False},
        {"name": "readers", "kind": "list", "required": False},
    ]
    assert [each["thread"] for each in uwf("thread", "list", "--status", "waiting").json] == [gated]
    (waits,) = uwf("inbox").json
    assert (waits["kind"], waits["role"], waits["assignee"]) == ("role", "gate", "Ada")
    assert {name: waits[name] for name in ("question", "options", "fields", "command")} == {
        name: shown[name] for name in ("question", "options", "fields", "command")
    }
    assert uwf("ps").json == []
    assert "Ada is gate: Send first?" in uwf("--format", "text", "inbox").out
    refused = uwf("thread", "step", gated, check=5).error
    assert refused["message"] == f"thread {gated} waits for a person to play role 'gate'"
    assert uwf("thread", "attempts", gated).json == []


def test_fields_and_words_become_the_step_of_the_role(uwf: Uwf, gated: str) -> None:
    made = uwf(
        "thread",
        "answer",
        gated,
        "-f",
        "decision=change",
        "-f",
        "readers=a",
        "-f",
        "readers=b",
        "-m",
        "Shorter.",
    )
    assert (made.json["role"], made.json["agent"], made.json["status"]) == ("gate", "uwf-human", "idle")
    assert last(uwf, gated)["output"] == {"decision": "change", "readers": ["a", "b"], "note": "Shorter."}
    uwf("thread", "step", gated, "--agent", scripted(WRITES))
    assert uwf("thread", "show", gated).json["question"] == "Send second?"
    done = uwf("thread", "answer", gated, "-f", "decision=send", "-f", "note=Fine", "-m", "Well done.")
    assert done.json["status"] == "completed"
    step = last(uwf, gated)
    assert step["output"] == {"decision": "send", "note": "Fine"}
    assert "Well done." in uwf("thread", "step-details", step["step"]).out
    assert uwf("verify").json["findings"] == []


def test_a_choice_alone_is_given_by_its_text_or_number(uwf: Uwf, gated: str) -> None:
    uwf("thread", "answer", gated, "-m", "2")
    assert last(uwf, gated)["output"] == {"decision": "change"}


def test_an_answer_that_ends_the_thread_badly_has_the_status_of_that(uwf: Uwf, gated: str) -> None:
    ended = uwf("thread", "answer", gated, "-m", "DROP", check=None)
    assert ended.error["code"] == "workflow_failed" and "It was dropped." in ended.error["message"]
    assert ended.code == uwf("thread", "run", gated, check=None).code or ended.code not in (0, 1, 2, 5)
    assert uwf("thread", "show", gated).json["status"] == "failed"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-m", "maybe"), "decision: 'maybe' is none of send, change, drop"),
        (("-f", "note=x"), "this must be filled in: decision: send or change or drop"),
        (("-f", "decison=send"), "there is no field 'decison'"),
        (("-f", "decision=send", "-f", "decision=drop"), "field decision is given 2 times"),
        (("-f", "decision"), "'decision' is not NAME=TEXT"),
    ],
)
def test_an_answer_that_the_schema_refuses_changes_nothing(
    uwf: Uwf, gated: str, words: tuple[str, ...], said: str
) -> None:
    before = uwf("thread", "show", gated).json["head"]
    assert said in uwf("thread", "answer", gated, *words, check=2).error["message"]
    assert uwf("thread", "show", gated).json["head"] == before
    assert uwf("thread", "attempts", gated).json == []


def test_an_answer_to_an_older_step_is_refused(uwf: Uwf, gated: str) -> None:
    old = uwf("thread", "show", gated).json["head"]
    uwf("thread", "answer", gated, "-m", "change")
    uwf("thread", "step", gated, "--agent", scripted(WRITES))
    refused = uwf("thread", "answer", gated, "--for", old, "-m", "send", check=1).error
    assert refused["message"].startswith(f"the newest step of thread {gated} is ")
    uwf("thread", "answer", gated, "--for", uwf("thread", "show", gated).json["head"], "-m", "send")


def test_of_two_answers_at_once_one_counts(uwf: Uwf, gated: str) -> None:
    with ThreadPoolExecutor(2) as both:
        codes = list(
            both.map(
                lambda said: uwf("thread", "answer", gated, "-m", said, check=None).code, ("send", "change")
            )
        )
    assert sorted(codes)[0] == 0 and sorted(codes)[1] in (1, 4)
    assert len(uwf("thread", "steps", gated).json) == 2


@pytest.mark.parametrize("given", ["option", "default", "override"])
def test_no_agent_plays_a_persons_role(uwf: Uwf, gated: str, config: Config, given: str) -> None:
    named = {
        "option": "",
        "default": "defaultAgent: bot\n",
        "override": "agentOverrides: { gated: { gate: bot } }\n",
    }[given]
    config(f"agents: {{ bot: {{ command: sh, args: [-c, 'touch ran'] }} }}\n{named}")
    extra = ("--agent", "sh -c 'touch ran'") if given == "option" else ()
    assert uwf("thread", "step", gated, *extra, check=5).error["code"] == "waiting"
    assert not Path("ran").exists()
    assert uwf("thread", "show", gated).json["status"] == "waiting"


def test_a_rehearsal_plays_it_and_nothing_else_is_made_up(uwf: Uwf) -> None:
    uwf("workflow", "put", write("gated.yaml", GATE))
    rehearsed = uwf("run", "gated", "-p", "Try it", "--agent", "uwf-rehearse").lines
    assert [each["role"] for each in rehearsed if "role" in each][:2] == ["writer", "gate"]
    real = uwf("thread", "start", "gated", "-p", "Do it").json["thread"]
    uwf("thread", "step", real, "--agent", "uwf-exec sh -c 'echo real'")
    refused = uwf("thread", "step", real, "--agent", "uwf-rehearse", check=2).error
    assert "does not generate a person's answers" in refused["message"]
    script = scripted(
        "- { role: writer, output: { text: x } }\n- { role: gate, output: { decision: send } }\n"
    )
    refused = uwf("thread", "step", real, "--agent", script, check=2).error
    assert refused["hint"] == f"uwf thread answer {real}"


def test_who_tries_a_workflow_out_answers_its_gate_and_the_rehearsal_goes_on(uwf: Uwf) -> None:
    uwf("workflow", "put", write("gated.yaml", GATE))
    thread = uwf("thread", "start", "gated", "-p", "Try it").json["thread"]
    uwf("thread", "run", thread, check=5)
    uwf("thread", "answer", thread, "-m", "change")
    assert [each["role"] for each in uwf("thread", "run", thread, check=5).lines] == ["writer"]
    assert uwf("thread", "answer", thread, "-m", "send").json["done"] is True


def test_a_terminal_shows_the_prompt_and_asks_for_each_field(uwf: Uwf, gated: str) -> None:
    code, shown = on_terminal(
        "thread", "answer", gated,
        typed=[("decision [1-3]: ", "send"), ("note (", "Fine"), ("  - ", ""), ("> ", ".")],
    )  # fmt: skip
    assert code == 0, shown
    assert shown.index("Your instruction:\nSend first?") < shown.index("decision [1-3]")
    assert last(uwf, gated)["output"] == {"decision": "send", "note": "Fine"}


@pytest.mark.parametrize("leave", ["end", "interrupt"])
def test_who_leaves_the_terminal_leaves_the_thread_waiting(uwf: Uwf, gated: str, leave: str) -> None:
    def go(child: int, terminal: int) -> None:
        os.write(terminal, b"\x04") if leave == "end" else os.kill(child, signal.SIGINT)

    code, shown = on_terminal("thread", "run", gated, typed=[("decision [1-3]: ", go)])
    assert code == (5 if leave == "end" else 130), shown
    assert uwf("thread", "show", gated).json["status"] == "waiting"
    assert uwf("thread", "attempts", gated).json == []
    uwf("thread", "answer", gated, "-m", "send")


def test_while_a_terminal_asks_anybody_else_may_answer(uwf: Uwf, gated: str) -> None:
    def elsewhere(_child: int, terminal: int) -> None:
        assert uwf("thread", "show", gated).json["status"] == "waiting"
        assert [each["thread"] for each in uwf("inbox").json] == [gated]
        uwf("thread", "wait", gated, "--timeout", "30", check=5)
        uwf("thread", "answer", gated, "-m", "change")
        os.write(terminal, b"send\n")

    typed = [("decision [1-3]: ", elsewhere), ("note (", "Mine"), ("  - ", ""), ("> ", ".")]
    code, shown = on_terminal("thread", "run", gated, typed=typed)
    assert code == 1 and "not recorded" in shown and "Mine" in shown, shown
    assert last(uwf, gated)["output"] == {"decision": "change"}


def test_what_is_typed_is_told_too_if_the_thread_has_ended(uwf: Uwf, gated: str) -> None:
    def elsewhere(_child: int, terminal: int) -> None:
        uwf("thread", "answer", gated, "-m", "send")
        os.write(terminal, b"change\n")

    typed = [("decision [1-3]: ", elsewhere), ("note (", "Mine"), ("  - ", ""), ("> ", ".")]
    code, shown = on_terminal("thread", "answer", gated, typed=typed)
    assert code == 1 and "not recorded" in shown and "Mine" in shown, shown


def test_a_rehearsal_by_configuration_is_no_person_either(uwf: Uwf) -> None:
    uwf("workflow", "put", write("gated.yaml", GATE))
    uwf("config", "set", "agentOverrides.gated.gate", "uwf-rehearse")
    thread = uwf("thread", "start", "gated", "-p", "x").json["thread"]
    uwf("thread", "run", thread, check=5)
    assert uwf("thread", "answer", thread, "-m", "send").json["done"] is True


def test_an_agent_cannot_bear_a_persons_name(uwf: Uwf, thread: str) -> None:
    for path, name in (("bin/uwf-human", ""), ("bin/other", " --name uwf-human")):
        program = write(path, f'#!/bin/sh\nuwf agent put-step \'{{"text": "x"}}\'{name}\n').absolute()
        program.chmod(0o755)
        refused = uwf("thread", "step", thread, "--agent", program, check=6).error
        assert "uwf-human, which is a person's name alone" in refused["message"], refused


def test_a_program_of_that_name_is_nobody(uwf: Uwf, gated: str) -> None:
    program = write("bin/uwf-human", "#!/bin/sh\ntouch ran\n").absolute()
    program.chmod(0o755)
    uwf("thread", "step", gated, "--agent", program, check=5)
    uwf("config", "set", "agentOverrides.gated.gate", program)
    uwf("thread", "step", gated, check=5)
    assert not Path("ran").exists()


def test_a_first_role_can_be_a_persons(uwf: Uwf, config: Config, tmp_path: Path) -> None:
    config(f"hooks: {{ waiting: [sh, -c, 'cat >> {tmp_path}/heard'] }}\n")
    first = GATE.replace("$START: [{ role: writer }]", "$START: [{ role: gate, prompt: Begin? }]")
    uwf("workflow", "put", write("first.yaml", first))
    thread = uwf("thread", "start", "gated", "-p", "x").json["thread"]
    uwf("thread", "run", thread, check=5)
    (heard,) = (tmp_path / "heard").read_text().splitlines()
    assert json.loads(heard)["question"] == "Begin?"
    (waits,) = uwf("inbox").json
    assert uwf("thread", "answer", thread, "--for", waits["step"], "-m", "send").json["done"] is True
    refused = uwf("run", "gated", "-p", "x", check=5).error
    assert refused["message"].endswith("waits for a person to play role 'gate': Begin?")


def test_a_paused_thread_takes_the_answer_and_stays_paused(uwf: Uwf, gated: str) -> None:
    uwf("thread", "pause", gated)
    uwf("thread", "answer", gated, "-m", "change")
    assert uwf("thread", "show", gated).json["status"] == "paused"


def test_a_remark_comes_before_the_answer_and_a_text_with_resume_is_one(uwf: Uwf, gated: str) -> None:
    uwf("thread", "say", gated, "-m", "It is urgent")
    assert uwf("thread", "show", gated).json["status"] == "waiting"
    uwf("thread", "resume", gated, "-m", "change")
    assert [each["role"] for each in uwf("thread", "steps", gated).json] == ["writer", "$USER", "gate"]


def test_a_used_up_budget_comes_before_the_person(uwf: Uwf) -> None:
    uwf("workflow", "put", write("gated.yaml", GATE))
    thread = uwf("thread", "start", "gated", "-p", "x", "--max-steps", "1").json["thread"]
    uwf("thread", "step", thread)
    (waits,) = uwf("inbox").json
    assert waits["kind"] == "budget"
    assert (
        "not waiting for an answer" in uwf("thread", "answer", thread, "-m", "send", check=1).error["message"]
    )


def test_an_answer_is_taken_where_the_project_isnt(uwf: Uwf, gated: str, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    made = uwf("thread", "answer", gated, "-m", "send", cwd=elsewhere)
    assert made.json["status"] == "completed"


def test_a_hook_hears_of_it_once_with_the_fields(uwf: Uwf, config: Config, tmp_path: Path) -> None:
    config(f"hooks: {{ waiting: [sh, -c, 'cat >> {tmp_path}/heard'] }}\n")
    uwf("workflow", "put", write("gated.yaml", GATE))
    thread = uwf("thread", "start", "gated", "-p", "x").json["thread"]
    uwf("thread", "step", thread)
    for _ in range(2):
        uwf("thread", "step", thread, check=5)
    (line,) = (tmp_path / "heard").read_text().splitlines()
    heard = json.loads(line)
    assert (heard["event"], heard["asks"], heard["assignee"]) == ("waiting", "gate", "Ada")
    assert [each["name"] for each in heard["fields"]] == ["decision", "note", "readers"]


def test_the_library_sees_the_fields_and_fills_them_in(uwf: Uwf, gated: str) -> None:
    thread = uwf_git.open().thread(gated)
    state = thread.state
    assert isinstance(state, Waiting)
    assert (state.role, state.options) == ("gate", ("send", "change", "drop"))
    assert [each.name for each in state.fields] == ["decision", "note", "readers"]
    thread.answer(decision="change", readers=["a", "b"])
    assert thread.steps[-1].output == {"decision": "change", "readers": ["a", "b"]}


def test_the_library_takes_flags_and_numbers_as_they_are(uwf: Uwf) -> None:
    fields = "{ ok: { type: boolean }, n: { type: integer }, l: { type: array, items: { type: integer } } }"
    text = (
        "name: plain\ndescription: d\nroles:\n  gate:\n    description: Decides.\n    human: true\n"
        f"    outputSchema: {{ type: object, properties: {fields}, required: [ok, n, l] }}\n"
        "graph:\n  $START: { _: gate }\n  gate: { _: $END }\n"
    )
    uwf("workflow", "put", write("plain.yaml", text))
    thread = uwf_git.open().thread(uwf("thread", "start", "plain", "-p", "x").json["thread"])
    thread.answer(ok=True, n=3, l=[1, 2])
    assert thread.steps[-1].output == {"ok": True, "n": 3, "l": [1, 2]}


@pytest.mark.parametrize(
    ("change", "line", "said"),
    [
        (("human: true", "human: maybe"), 11, "human must be true or false, not text"),
        (("    human: true\n", ""), 11, "has an assignee, but isn't a human's"),
        (
            ("human: true", "human: true\n    retry: { times: 2 }"),
            12,
            "is a human's, and retry is for agents",
        ),
        (
            ("human: true", "human: true\n    tools: { allow: [] }"),
            12,
            "is a human's, and tools is for agents",
        ),
    ],
)
def test_what_a_persons_role_cannot_have_is_said_with_its_line(
    uwf: Uwf, change: tuple[str, str], line: int, said: str
) -> None:
    refused = uwf("workflow", "validate", write("bad.yaml", GATE.replace(*change)), check=None).json
    found = [each for each in refused["findings"] if said in each["message"]]
    assert [each["line"] for each in found] == [line], refused


def test_a_role_is_a_persons_in_the_form_with_a_goal_and_without_a_prompt(uwf: Uwf) -> None:
    goal = GATE.replace(
        "    human: true\n", "    goal: Only what is right goes out.\n    human: true\n"
    ).replace("    assignee: Ada\n    outputSchema:", "    frontmatter:")
    uwf("workflow", "put", write("goal.yaml", goal))
    thread = uwf("thread", "start", "gated", "-p", "x").json["thread"]
    uwf("thread", "step", thread)
    assert uwf("thread", "show", thread).json["assignee"] is None
    assert uwf("thread", "answer", thread, "-m", "send").json["done"] is True


def test_a_persons_step_is_no_case_of_a_suite(uwf: Uwf, gated: str) -> None:
    uwf("thread", "answer", gated, "-m", "send")
    refused = uwf("eval", "add", f"{gated}@2", "--to", "talks", "--judge", "exact", check=1).error
    assert "is a human's, so it cannot be done again" in refused["message"]


def test_lists_take_the_decision_of_a_gate_and_not_another_field(uwf: Uwf) -> None:
    schema = (
        "{ type: object, properties: { urgent: { type: boolean }, summary: { type: string },"
        " decision: { enum: [merge, drop] } }, required: [decision] }"
    )
    begin, end = GATE.index("    outputSchema:\n      type: object"), GATE.index("conditions:")
    text = f"{GATE[:begin]}    outputSchema: {schema}\n{GATE[end:]}"
    text = text[: text.index("conditions:")] + (
        "graph:\n  $START: [{ role: writer }]\n  writer: [{ role: gate }]\n  gate: [{ role: $END }]\n"
    )
    uwf("workflow", "put", write("gated.yaml", text))
    thread = uwf("thread", "start", "gated", "-p", "x").json["thread"]
    uwf("thread", "step", thread, "--agent", 'uwf-exec echo \'{"text": "done"}\'')
    given = ("-f", "decision=drop", "-f", "urgent=yes", "-f", "summary=All is well")
    line = uwf("thread", "answer", thread, *given, "--format", "text").out
    assert "gate (uwf-human): drop" in line
    assert uwf("thread", "steps", thread).json[-1]["summary"] == "drop"
    assert uwf("thread", "diff", thread, thread).json["shared"][-1]["summary"] == "drop"
