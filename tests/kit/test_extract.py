"""From replies to a valid output: corrections in the same session, then a model, and nothing said is lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from uwf_git.base.errors import AgentFailed
from uwf_git.engine.kit.context import Reply
from uwf_git.engine.kit.extract import (
    ExpectedOutput,
    Extraction,
    ExtractionFailed,
    correction,
    extract,
    sum_usage,
)
from uwf_git.format.builtin import META
from uwf_git.format.kinds import Role, TurnRecord, Usage
from uwf_git.format.node import hash_of
from uwf_git.format.schema import Schema
from uwf_git.format.types import QUESTION

PAYLOAD = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}, "comments": {"type": "string"}},
    "required": ["approved"],
    "additionalProperties": False,
}
SCHEMA = Schema(PAYLOAD)
ROLE = Role("reviewer", "Reviews", hash_of(META, PAYLOAD))
WANTED = ExpectedOutput(ROLE, SCHEMA)
GOOD = "---\napproved: yes\n---\n\nAll well.\n"
BAD = "---\napproved: perhaps\n---\n\nI looked at everything.\n"


class Session:
    """An agent's session that answers from a list, and remembers what it was told."""

    def __init__(self, *answers: str | Reply | Exception) -> None:
        self.answers = list(answers)
        self.told: list[tuple[str, str]] = []

    def __call__(self, session: str, message: str) -> Reply:
        self.told.append((session, message))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, Reply) else Reply(answer, session)


def model(*answers: str | Exception) -> Callable[[Sequence[Mapping[str, Any]]], Reply]:
    left = list(answers)

    def ask(messages: Sequence[Mapping[str, Any]]) -> Reply:
        asked.append([dict(message) for message in messages])
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return Reply(answer, model="small-1", usage=Usage(50, 5))

    asked: list[list[dict[str, Any]]] = []
    ask.asked = asked  # type: ignore[attr-defined]
    return ask


def test_a_good_answer_needs_nobody() -> None:
    session = Session()
    reply = Reply(GOOD, "s1", usage=Usage(10, 2))
    found = extract(reply, WANTED, continue_=session)
    assert found == Extraction(
        {"approved": True},
        ROLE.schema,
        "frontmatter",
        GOOD,
        (reply,),
        (TurnRecord("assistant", GOOD, usage=Usage(10, 2)),),
        Usage(10, 2),
    )
    assert session.told == []


def test_a_native_output_is_checked_but_not_coerced() -> None:
    found = extract(Reply("done", output={"approved": True}), WANTED)
    assert (found.output, found.how, found.answer) == ({"approved": True}, "native", "done")
    with pytest.raises(ExtractionFailed, match="'yes' is not of type 'boolean'"):
        extract(Reply(GOOD, output={"approved": "yes"}), WANTED)


def test_a_correction_names_the_exact_problems_in_the_same_session() -> None:
    session = Session(GOOD)
    found = extract(Reply("---\napproved: perhaps\nscore: 3\n---", "s1"), WANTED, continue_=session)
    assert (found.output, found.how) == ({"approved": True}, "correction")
    ((told, message),) = session.told
    assert told == "s1"
    assert "- /approved: 'perhaps' is not of type 'boolean'\n" in message
    assert "- (whole value): Additional properties are not allowed ('score' was unexpected)\n" in message


def test_replies_turns_and_usage_add_up_over_corrections() -> None:
    turns = (TurnRecord("tool", "", "read"), TurnRecord("assistant", BAD))
    first = Reply(BAD, "s1", usage=Usage(100, 20, 60), turns=turns)
    second = Reply("what?", "s2", usage=None)
    third = Reply(GOOD, None, usage=Usage(130, 8, 100))
    session = Session(second, third)
    found = extract(first, WANTED, continue_=session)
    assert found.replies == (first, second, third._replace(session="s2"))
    assert found.usage == Usage(230, 28, 160)
    assert [turn.role for turn in found.turns] == [
        "tool",
        "assistant",
        "user",
        "assistant",
        "user",
        "assistant",
    ]
    assert found.turns[2].text == session.told[0][1]
    assert [told for told, _ in session.told] == ["s1", "s2"]


def test_a_correction_that_is_only_the_block_keeps_the_report() -> None:
    found = extract(Reply(BAD, "s"), WANTED, continue_=Session("---\napproved: true\n---"))
    assert found.answer == "---\napproved: true\n---\n\nI looked at everything.\n"
    found = extract(Reply(BAD, "s"), WANTED, continue_=Session(GOOD))
    assert found.answer == GOOD


def test_after_two_corrections_it_fails_with_all_that_was_said() -> None:
    session = Session("no", "still no")
    with pytest.raises(ExtractionFailed) as caught:
        extract(Reply(BAD, "s", usage=Usage(1, 1)), WANTED, continue_=session)
    error = caught.value
    assert len(session.told) == 2
    assert [reply.text for reply in error.replies] == [BAD, "no", "still no"]
    assert error.usage == Usage(1, 1)
    assert [turn.role for turn in error.turns] == ["assistant", "user"] * 2 + ["assistant"]
    assert error.message == (
        "role reviewer gave 3 answers without a valid output: "
        "the answer does not begin with a block of fields between two lines of ---"
    )
    assert error.exit_status == 6


def test_without_a_session_nobody_is_asked_again() -> None:
    session = Session(GOOD)
    with pytest.raises(ExtractionFailed, match="gave an answer without"):
        extract(Reply(BAD), WANTED, continue_=session)
    assert session.told == []


def test_a_correction_that_fails_keeps_the_first_reply() -> None:
    session = Session(AgentFailed("the line is dead", "call again"))
    with pytest.raises(ExtractionFailed) as caught:
        extract(Reply(BAD, "s"), WANTED, continue_=session)
    assert [reply.text for reply in caught.value.replies] == [BAD]
    assert caught.value.problems[-1].endswith("; asking again failed: the line is dead")
    assert caught.value.hint == "call again"


def test_a_model_reads_the_fields_last() -> None:
    ask = model('{"approved": "yes", "comments": "fine"}')
    found = extract(Reply("It is fine.", "s"), WANTED, continue_=Session("As I said.", "Fine!"), model=ask)
    assert (found.output, found.how) == ({"approved": True, "comments": "fine"}, "model:small-1")
    assert found.answer == "Fine!"
    assert found.usage == Usage(50, 5)
    assert [reply.text for reply in found.replies] == ["It is fine.", "As I said.", "Fine!"]
    assert found.turns[-1].tool == "extract"
    assert found.turns[-1].arguments == {"model": "small-1"}
    ((system, user),) = ask.asked  # type: ignore[attr-defined]
    assert '"additionalProperties": false' in system["content"]
    assert user["content"] == "Answer 1:\n\nIt is fine.\n\nAnswer 2:\n\nAs I said.\n\nAnswer 3:\n\nFine!"


def test_a_model_may_correct_itself_once() -> None:
    ask = model("I think so.", '{"approved": true}')
    assert extract(Reply("Fine."), WANTED, model=ask).output == {"approved": True}
    assert [message["role"] for message in ask.asked[1]] == ["system", "user", "assistant", "user"]  # type: ignore[attr-defined]
    with pytest.raises(ExtractionFailed, match="'maybe' is not of type 'boolean'"):
        extract(Reply("Fine."), WANTED, model=model("no", '{"approved": "maybe"}'))
    with pytest.raises(ExtractionFailed) as caught:
        extract(Reply("Fine."), WANTED, model=model("no", AgentFailed("no such model")))
    assert caught.value.usage == Usage(50, 5)
    assert [reply.text for reply in caught.value.replies] == ["Fine."]
    assert caught.value.problems[-1].endswith("; extraction by a model failed: no such model")


def test_asking_a_human_needs_no_place_in_the_schema() -> None:
    text = "---\n$status: $SUSPEND\nquestion: Which branch?\noptions: main\n---\n"
    found = extract(Reply(text), WANTED)
    assert found.type == QUESTION
    assert found.output == {"$status": "$SUSPEND", "question": "Which branch?", "options": ["main"]}
    assert extract(Reply("---\nstatus: needs_input\nquestion: Why?\n---"), WANTED).type == QUESTION


def test_a_reason_alone_is_the_question() -> None:
    for question in ("", "question:\n", "question: ''\n"):
        reply = Reply(f"---\n$status: $SUSPEND\n{question}reason: No key.\n---\n\nI tried.")
        found = extract(reply, WANTED)
        assert (found.type, found.output) == (QUESTION, {"$status": "$SUSPEND", "question": "No key."})
        assert "reason: No key." in found.answer


def test_a_model_is_told_what_the_role_says_of_extraction() -> None:
    ask = model('{"approved": true}')
    told = ROLE._replace(extract_prompt="Nothing said is a yes.")
    extract(Reply("Fine."), ExpectedOutput(told, SCHEMA), model=ask)
    assert "Nothing said is a yes." in ask.asked[0][0]["content"]  # type: ignore[attr-defined]


def test_a_question_is_checked_against_the_reserved_schema() -> None:
    session = Session("---\n$status: $SUSPEND\nquestion: Which?\n---")
    found = extract(Reply("---\n$status: $SUSPEND\n---", "s"), WANTED, continue_=session)
    assert found.output == {"$status": "$SUSPEND", "question": "Which?"}
    assert "what asks a human needs a question or a reason" in session.told[0][1]


@pytest.mark.parametrize(
    ("answer", "question"),
    [
        ("$status: $SUSPEND\nreason: Need info\nstatus: done\n---\nx", "Need info"),
        ("$status: $SUSPEND\nquestion: Which?\nstatus: done\nnext: tester\n---", "Which?"),
        ("$status: needs_input\nquestion: Which?\n---", "Which?"),
        ("$status: $SUSPEND\nreason: [a, b]\n---", "a; b"),
        ("status: needs_input\nerror: docker rm failed\n---\nWhich image?", "Which image?"),
    ],
)
def test_whoever_means_to_ask_a_human_does(answer: str, question: str) -> None:
    found = extract(Reply(f"---\n{answer}"), WANTED)
    assert (found.type, found.output["question"]) == (QUESTION, question)


def test_a_misspelt_question_is_no_reason_to_ask_what_stands_below() -> None:
    with pytest.raises(ExtractionFailed, match="needs a question or a reason"):
        extract(Reply("---\n$status: $SUSPEND\nquestoin: Which?\n---\nA report."), WANTED)


def test_an_unknown_status_is_told_all_that_are_possible() -> None:
    branches = [
        {"properties": {"$status": {"const": each}}, "required": ["$status"]} for each in ("done", "again")
    ]
    schema = {"type": "object", "oneOf": branches}
    assert list(map(str, Schema(schema).problems({"$status": "don"}))) == [
        "/$status: 'don' is not one of ['done', 'again']"
    ]


def test_a_role_may_have_a_needs_input_of_its_own() -> None:
    payload = {
        "type": "object",
        "properties": {
            "status": {"enum": ["done", "needs_input"]},
            "question": {"type": "string"},
            "left": {},
        },
        "required": ["status", "left"],
    }
    role = Role("planner", "Plans", hash_of(META, payload))
    found = extract(
        Reply("---\nstatus: needs_input\nquestion: Why?\nleft: 3\n---"), ExpectedOutput(role, Schema(payload))
    )
    assert (found.type, found.output["left"]) == (role.schema, 3)


def test_a_schema_that_cannot_be_applied_asks_nobody() -> None:
    session = Session(GOOD)
    with pytest.raises(ExtractionFailed, match="does not hold"):
        extract(Reply(GOOD, "s"), ExpectedOutput(ROLE, Schema({"$ref": "#/nowhere"})), continue_=session)
    assert session.told == []


STANDARD = "status: done\nnext: tester\nconfidence: 0.9\nartifacts: [a.py]\nscope: role\n"
UNION = {
    "type": "object",
    "oneOf": [
        {
            "properties": {"status": {"const": "done"}, "plan": {}},
            "required": ["plan"],
            "additionalProperties": False,
        },
        {
            "properties": {"status": {"const": "stuck"}, "why": {}},
            "required": ["why"],
            "additionalProperties": False,
        },
    ],
}
PARTS = {"allOf": [{"$ref": "#/$defs/a"}, {"required": ["plan"]}], "unevaluatedProperties": False,
         "$defs": {"a": {"properties": {"plan": {"type": "string"}}}}, "type": "object"}  # fmt: skip


@pytest.mark.parametrize(
    ("payload", "answer", "output"),
    [
        (PAYLOAD, "approved: true", {"approved": True}),
        (UNION, "plan: go", {"status": "done", "plan": "go"}),
        (PARTS, "plan: 'on'", {"plan": "on"}),
    ],
)
def test_standard_fields_cost_no_correction_where_the_schema_is_closed(
    payload: Any, answer: str, output: Any
) -> None:
    session = Session()
    found = extract(
        Reply(f"---\n{STANDARD}{answer}\n---\n", "s"),
        ExpectedOutput(ROLE, Schema(payload)),
        continue_=session,
    )
    assert (found.output, found.how, found.notes) == (output, "frontmatter", ())
    found = extract(
        Reply(f"---\nmood: good\n{answer}\n---\n", "s"),
        ExpectedOutput(ROLE, Schema(payload)),
        continue_=session,
    )
    assert found.output == {key: value for key, value in output.items() if key in answer}
    assert found.notes == ("left out of the output, as the schema has no such field: mood",)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("approved: true\ncoments: a misspelt field is no further one", "'coments' was unexpected"),
        (f"{STANDARD}comments: fine", "'approved' is a required property"),
    ],
)
def test_what_is_meant_for_the_schema_and_wrong_is_corrected(answer: str, said: str) -> None:
    session = Session(GOOD)
    assert extract(Reply(f"---\n{answer}\n---\n", "s"), WANTED, continue_=session).how == "correction"
    [problem] = [line for line in session.told[0][1].splitlines() if line.startswith("- ")]
    assert said in problem


def test_an_open_schema_keeps_what_it_names_the_standard_fields_and_what_the_workflow_reads() -> None:
    payload = {"type": "object", "properties": {"plan": {"type": "string"}}, "required": ["risk"]}
    reply = Reply(f"---\n{STANDARD}plan: go\nrisk: 1\nmood: good\ncost: 3\n---\n\nAll of it.\n")
    standard = {"status": "done", "next": "tester", "confidence": 0.9, "artifacts": ["a.py"], "scope": "role"}

    def output(payload: Any, reads: Callable[[str], bool]) -> Any:
        return extract(reply, ExpectedOutput(ROLE, Schema(payload), reads)).output

    own = {**standard, "plan": "go", "risk": 1}
    assert output(payload, lambda name: False) == own
    assert output(payload, lambda name: name == "cost") == {**own, "cost": 3}
    everything = {**own, "mood": "good", "cost": 3}
    assert output({**payload, "additionalProperties": {}}, lambda name: False) == everything
    assert output({"type": "object"}, lambda name: False) == everything
    assert output({**payload, "minProperties": 9}, lambda name: False) == everything
    assert "mood: good" in extract(reply, ExpectedOutput(ROLE, Schema(payload), lambda name: False)).answer


def test_a_question_with_standard_fields_is_a_question() -> None:
    asked = Reply("---\n$status: $SUSPEND\nquestion: Which?\nconfidence: 0.2\nnext: developer\n---\n")
    found = extract(asked, WANTED)
    assert (found.type, found.output) == (QUESTION, {"$status": "$SUSPEND", "question": "Which?"})


def test_what_has_no_hash_is_a_problem_to_correct() -> None:
    session = Session(GOOD)
    reply = Reply('{"approved": true, "comments": "\\ud800"}', "s")
    assert extract(reply, WANTED, continue_=session).output == {"approved": True}
    assert "- text holds a lone surrogate\n" in session.told[0][1]


def test_usage_is_unknown_only_where_nobody_counted() -> None:
    assert sum_usage([Reply("a"), Reply("b")]) is None
    assert sum_usage([Reply("a"), Reply("b", usage=Usage(0, 0))]) == Usage(0, 0)


def test_the_correction_reads_as_a_message() -> None:
    assert correction(["one", "two"]) == (
        "Your answer can't be taken yet:\n\n- one\n- two\n\n"
        "Answer again. Begin with the corrected block of fields between two lines of `---`, with nothing "
        "before it, and write your whole report below it: this answer takes the place of the last one."
    )
