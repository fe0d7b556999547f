"""Reading the fields out of what agents write, and giving them the types that the schema wants."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from uwf_git.base.errors import Invalid
from uwf_git.engine.kit import answer as answer_reader
from uwf_git.engine.kit.answer import Answer, parse_answer
from uwf_git.engine.kit.coerce import coerce, natural
from uwf_git.engine.kit.context import Reply
from uwf_git.engine.kit.extract import ExpectedOutput, judge
from uwf_git.engine.kit.format import render_frontmatter
from uwf_git.engine.kit.printed_answer import judge_printed
from uwf_git.format.builtin import META
from uwf_git.format.cbor import normalise
from uwf_git.format.kinds import Role
from uwf_git.format.node import hash_of
from uwf_git.format.schema import Schema
from uwf_git.format.shape import named

REVIEW = Schema(
    {
        "type": "object",
        "properties": {
            "approved": {"type": "boolean"},
            "comments": {"type": "string"},
            "files": {"type": "array", "items": {"type": "string"}},
            "score": {"type": "integer"},
        },
        "required": ["approved"],
        "additionalProperties": False,
    }
)
ANYTHING = Schema({"type": "object"})
WANTED = ExpectedOutput(Role("reviewer", "Reviews", hash_of(META, REVIEW.payload)), REVIEW)
NO_BLOCK = "the answer does not begin with a block of fields between two lines of ---"


def read(text: str, schema: Schema = REVIEW) -> Any:
    """The output in an answer, which must be valid."""
    answer = answered(text, schema)
    assert answer.fields is not None, answer.problem
    output = coerce(answer.fields, schema)
    assert schema.problems(output) == []
    return output


def answered(text: str, schema: Schema = REVIEW) -> Answer:
    def output_of(fields: Any) -> Any:
        output = coerce(fields, schema)
        return output if schema.is_valid(output) else None

    return parse_answer(text, output_of, named(schema.payload).has)


def body(text: str, schema: Schema = REVIEW) -> str:
    return answered(text, schema).body


REGULAR = "---\napproved: true\ncomments: fine\n---\n\nThe report.\n"


@pytest.mark.parametrize(
    "text",
    [
        REGULAR,
        "\ufeff" + REGULAR,
        "\n\n  \n" + REGULAR,
        REGULAR.replace("\n", "\r\n"),
        REGULAR.replace("\n", "\r"),
        REGULAR.replace("---\n", "---  \t\n"),
        REGULAR.replace("fine\n---", "fine\n..."),
        "Sure, here is my review:\n\n" + REGULAR,
        "```yaml\n---\napproved: true\ncomments: fine\n---\n```\n\nThe report.\n",
        "```\n---\napproved: true\ncomments: fine\n---\n```\nThe report.",
        "```yaml\n---\napproved: true\ncomments: fine\n```\nThe report.",
        "~~~~\n---\napproved: true\ncomments: fine\n---\n~~~~\nThe report.",
        "Here you are:\n\n```markdown\n" + REGULAR + "```\n",
        "```markdown\n" + REGULAR + "\n\n```",
        "```yaml\napproved: true\ncomments: fine\n```\nThe report.",
        "approved: true\ncomments: fine\n---\nThe report.",
    ],
)
def test_a_block_is_found_however_it_is_dressed(text: str) -> None:
    assert read(text) == {"approved": True, "comments": "fine"}
    assert body(text) == "The report."


@pytest.mark.parametrize(
    "text",
    [
        '{"approved": true, "comments": "fine"}',
        '\n{"approved": true,\n "comments": "fine"}\n',
        '```json\n{"approved": true, "comments": "fine"}\n```',
        'Here is the result:\n\n```\n{"approved": true, "comments": "fine"}\n```\nDone.',
    ],
)
def test_one_json_object_is_as_good_as_a_block(text: str) -> None:
    assert read(text) == {"approved": True, "comments": "fine"}


def test_a_body_is_not_needed() -> None:
    assert read("---\napproved: no\n---") == {"approved": False}
    assert body("---\napproved: no\n---") == ""


def test_a_body_keeps_its_own_rules_and_fences() -> None:
    report = "One\n\n---\n\nTwo\n\n```yaml\n---\nretries: 3\n---\n```\n\n{x}"
    assert body("---\napproved: true\n---\n" + report) == report
    assert read("---\napproved: true\n---\n" + report) == {"approved": True}


def test_a_fence_around_the_whole_answer_goes_and_those_inside_stay() -> None:
    report = "Run this:\n\n```sh\nmake\n```\n\nDone."
    assert (
        body(f"```markdown\n---\napproved: true\n---\n{report}\n```\nGood luck!") == f"{report}\nGood luck!"
    )


def test_a_fence_that_is_never_closed_takes_none_of_the_report_with_it() -> None:
    report = "Run this:\n\n```sh\nmake\n```"
    assert body(f"```markdown\n---\napproved: true\n---\n{report}\n") == report


@pytest.mark.parametrize(
    "text",
    [
        "Intro\n\n---\n\nA paragraph between two rules.\n\n---\n\nEnd",
        "---\n\nJust prose: with a colon, and more.\nAnd a second line.\n\n---\n\nEnd",
        "---\n- one\n- two\n---\nA list is not a fields",
        "Nothing at all",
        "---",
        "```python\nprint({})\n```",
    ],
)
def test_rules_and_fences_in_prose_are_no_block(text: str) -> None:
    assert parse_answer(text) == Answer(None, text, NO_BLOCK)


def test_prose_between_rules_does_not_hide_the_block() -> None:
    text = "---\n\nLet me think: is it right?\n\n---\napproved: true\n---\nYes."
    assert read(text) == {"approved": True}
    assert body(text) == "Yes."


def test_of_several_blocks_the_one_that_fits_is_taken() -> None:
    text = "A draft:\n\n---\napproved: maybe\n---\n\nNow for real:\n\n---\napproved: false\n---\nNo."
    assert read(text) == {"approved": False}
    assert parse_answer(text.replace("A draft:", "First:")).fields == {"approved": "maybe"}


def test_where_none_fits_the_first_block_is_the_one_to_complain_about() -> None:
    answer = parse_answer("---\napproved: maybe\n---\nHm.", lambda fields: False)
    assert answer == Answer({"approved": "maybe"}, "Hm.")


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("comments: Fixed: the login", "Fixed: the login"),
        ("comments: @alice should look", "@alice should look"),
        ("comments: `make test` fails", "`make test` fails"),
        ("comments: *bold* words", "*bold* words"),
        ("comments: [WIP] add a test", "[WIP] add a test"),
        ('comments: "He said "no" twice"', 'He said "no" twice'),
    ],
)
def test_a_sentence_that_yaml_cannot_read_is_taken_as_it_stands(line: str, value: str) -> None:
    assert read(f"---\napproved: true\n{line}\n---\n") == {"approved": True, "comments": value}


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        ("approved: [", "line 3 of the answer"),
        ("approved: true\nfiles: [a", "line 4 of the answer"),
        ('approved: true\nbook: {title: "[1] x"', "line 4 of the answer"),
        ("approved: true\napproved: false", 'key "approved" is already in line'),
        ("approved: !!python/object x", "tag !!python/object is not known"),
        ("approved: true\ncomments: &a [*a]", "anchor &a holds itself"),
        ("approved: true\ncomments: \x1b[31mred", "control character U+001B"),
    ],
)
def test_a_broken_block_says_where_it_breaks(block: str, problem: str) -> None:
    answer = parse_answer(f"---\n{block}\n---\nreport")
    assert answer.fields is None
    assert problem in answer.problem


DRAFT = "---\napproved: true\n---"
FINAL = "---\napproved: false\n---\nA test fails."


@pytest.mark.parametrize(
    "draft", [DRAFT, '{"approved": true}', '```json\n{"approved": true}\n```', "```\napproved: true\n```"]
)
@pytest.mark.parametrize(
    "around",
    [
        "<think>\nMaybe:\n{}\nNo.\n</think>\n\n",
        "<think>{}\n</think>",
        "Hm. <thinking>\n{}\n</thinking>\n",
        "Maybe:\n\n{}\n\nNo.\n</think>\n",
        "<THOUGHT kind='a'>\n{}\n</THOUGHT>\n",
        "[THINK]\n{}\n[/THINK]\n",
        "◁think▷\n{}\n◁/think▷\n",
        "<|channel|>analysis<|message|>\n{}\n<|end|><|start|>assistant<|channel|>final<|message|>\n",
        "<example>\n{}\n</example>\n",
        "<!--\n{}\n-->\n",
        "For example:\n\n{}\n\nBut:\n\n",
        "I expect to say:\n{}\nFirst I run the tests.\n\n",
    ],
)
def test_a_draft_in_reasoning_or_an_example_is_no_answer(around: str, draft: str) -> None:
    thought = around.format(draft)
    assert read(thought + FINAL) == {"approved": False}
    assert read(thought + '{"approved": false}') == {"approved": False}
    assert answered(thought + "And then it ended.").fields is None
    assert judge_printed(thought + "And then it ended.", WANTED) is not None


@pytest.mark.parametrize(
    "text",
    [
        "---\napproved: true\ncomments: The tests pa",
        "---\napproved: true\n\nThe report.",
        "<think>\nMaybe:\n---\napproved: true\n---",
        '```json\n{"approved": true}',
        "```yaml\napproved: true\n",
        '{"approved": true, "comments": "The te',
        "---\n<think>\n---\napproved: true\n---\n",
    ],
)
def test_what_has_no_end_is_no_answer(text: str) -> None:
    assert answered(text).fields is None
    verdict = judge_printed(text, WANTED)
    assert verdict is not None and verdict.problems


@pytest.mark.parametrize(
    "other",
    [
        "---\napproved: true\n---",
        '```json\n{"approved": true}\n```',
        '{"approved": true}',
        "```\napproved: yes\n```",
    ],
)
def test_two_answers_that_disagree_are_none(other: str) -> None:
    for text in (f"{FINAL}\n\nAfter all:\n\n{other}\n", f"First.\n\n{other}\n\nThen.\n\n{FINAL}\n"):
        assert "answers that disagree, in lines" in answered(text).problem
        verdict = judge_printed(text, WANTED)
        assert verdict is not None and "answers that disagree" in verdict.problems[0]
    agreed = other.replace("true", "false").replace("yes", "no")
    assert read(f"{FINAL}\n\nAs I said:\n\n{agreed}\n") == {"approved": False}


@pytest.mark.parametrize(
    "printed",
    [
        '{"approved": false, "comments": "no",}',
        '{"result": {"approved": false}}',
        '{"a": [{"b": {"approved": false}}]}',
        '[{"approved": false}]',
        '{"approved": true, "approved": false}',
        '{"approved": false, "comments": "no\nway"}',
        '{"Approved": false}',
        '{"approved": FALSE}',
        "---\nApproved: false\n---",
        "---\napproved = false\n---",
        "---\n- approved: false\n---",
        "---\napproved: true\napproved: false\n---",
        "{'approved': false}",
        "{'approved': False, 'comments': None}",
        '{"approved": false, // no\n "score": 1}',
        '{"approved": false # no\n}',
        '{"approved": false "score": 1}',
        '{"approved": false, "score": NaN}',
        '{"approved": false, "comm',
        '{"approv',
        "{",
        "{approved: false}",
        "{“approved”: false}",
        '{"approved: false}',
        '"{\\"approved\\": false}"',
        'Result: {"approved": false}',
        '{"approved": false}{"approved": false}',
        '<pre>{"approved": false}</pre>',
        '> {"approved": false}',
        "approved: false\ncomments: no\n",
        "approved = false\n",
        "+++\napproved = false\n+++\n",
        "- approved: false\n",
        "  ---\n  approved: false\n  ---\n",
        "```yaml\nApproved: no\n```\nDone.",
        '{"approved": false, "comments": "' + "x" * 1_100_000 + '"}',
        "---\nx: 1\n---\n" * 300 + "---\napproved: false\n---\n",
        'Ran 3 tests.\n\n```json\n[\n  {"approved": false}\n]\n```\nBye.',
        '{"score": 1234567890123456789, "approved": false}',
    ],
)
def test_what_could_be_an_answer_is_read_or_refused(printed: str) -> None:
    verdict = judge_printed(printed, WANTED)
    assert verdict is not None, "the exit status would decide"
    assert verdict.problems or verdict.output["approved"] is False
    verdict = judge(Reply(printed), WANTED)
    assert verdict.problems or verdict.output["approved"] is False


@pytest.mark.parametrize(
    "printed",
    [
        "\ufeff" + '{"approved": false}',
        "\x1b[31m" + '{"approved": false}' + "\x1b[0m\n",
        '{"\x1b[1mapproved\x1b[0m": false}',
        '{"type": "start"}\n{"approved": false}\n{"type": "end"}\n',
        'Ran 3 tests.\n{\n  "approved": false\n}\nBye.\n',
        "Hello\n```\napproved: false\n```\nBye.\n",
        '~~~json\n{"approved": "no"}\n~~~\n',
        '{"approved": false,\r\n "comments": "no"}\r\n',
    ],
)
def test_a_printed_answer_is_read_however_it_is_dressed(printed: str) -> None:
    verdict = judge_printed(printed, WANTED)
    assert verdict is not None and not verdict.problems
    assert verdict.output["approved"] is False


@pytest.mark.parametrize(
    "printed",
    [
        "",
        "3 passed\n",
        '{"vulnerabilities": 0}\n',
        "[INFO] approved: by me\n",
        "It was approved: a false alarm\nok {\n",
        "---\nx: 1\n---\n" * 300,
    ],
)
def test_a_report_without_a_field_of_the_schema_is_left_to_the_exit_status(printed: str) -> None:
    assert judge_printed(printed, WANTED) is None


def test_what_a_failed_program_quotes_within_a_line_is_a_report() -> None:
    printed = "E  assert {'approved': False} == {'approved': True}\n"
    assert judge_printed(printed, WANTED, failed=True) is None
    assert judge_printed(printed, WANTED) is not None


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("comments: Closes issue #12 and adds a test", "Closes issue #12 and adds a test"),
        ("comments: first\n  closes #12 and more", "first closes #12 and more"),
        ("comments: #12 is closed", "#12 is closed"),
        ("comments: &important do this", "&important do this"),
        ('comments: "done \\ud83d\\ude80"', "done 🚀"),
        ("comments: 'x' # y", "x"),
        ("comments: x #1: y", "x #1: y"),
        ("files:\n  - closes #4 now\n  - b", ["closes #4 now", "b"]),
    ],
)
def test_a_text_keeps_what_yaml_would_leave_out(line: str, value: Any) -> None:
    assert read(f"---\napproved: true\n{line}\n---\n") == {"approved": True, line.partition(":")[0]: value}


def test_a_comment_that_is_left_out_is_noted() -> None:
    text = "---\n# My verdict\napproved: yes # it is fine\ncomments: closes #12\n---\n"
    verdict = judge(Reply(text), WANTED)
    assert verdict.output == {"approved": True, "comments": "closes #12"}
    assert verdict.notes == ("left out of the output, as a comment: # My verdict # it is fine",)


def test_a_number_beyond_json_is_named_with_its_limit() -> None:
    for text in (
        '{"approved": true, "score": 1234567890123456789}',
        "---\napproved: true\nscore: 1234567890123456789\n---",
    ):
        (problem,) = judge(Reply(text), WANTED).problems
        assert "1234567890123456789 is outside ±(2^53-1)" in problem


def test_an_empty_answer_says_so() -> None:
    assert parse_answer("") == parse_answer(" \n\ufeff") == Answer(None, "", "the answer is empty")


@pytest.mark.parametrize("word", ["yes", "Yes", "on", "TRUE", '"true"', "'yes'"])
def test_a_word_is_true_where_a_boolean_is_wanted(word: str) -> None:
    assert read(f"---\napproved: {word}\n---") == {"approved": True}


@pytest.mark.parametrize(
    "word", ["yes", "no", "on", "2024-01-01", "1:30", "0o17", "007", "1.10", "1e3", "true"]
)
def test_a_word_stays_text_where_text_is_wanted(word: str) -> None:
    assert read(f"---\napproved: true\ncomments: {word}\n---")["comments"] == word
    assert (
        read(
            f'{{"approved": true, "comments": {word if word in ("1.10", "true") else chr(34) + word + chr(34)}}}'
        )["comments"]
        == word
    )


@pytest.mark.parametrize(
    ("word", "value"), [("yes", "yes"), ("2024-01-01", "2024-01-01"), ("7", 7), ("null", None)]
)
def test_without_a_wish_yaml_1_2_decides(word: str, value: object) -> None:
    assert read(f"---\nx: {word}\n---", ANYTHING) == {"x": value}


def test_a_number_json_cannot_hold_stays_text() -> None:
    output = read("---\na: 12345678901234567890\nb: .inf\nc: 1e999\n---", ANYTHING)
    assert output == {"a": "12345678901234567890", "b": ".inf", "c": "1e999"}
    assert normalise(output) == output


def test_single_values_become_lists_and_empty_ones_empty_lists() -> None:
    assert read("---\napproved: true\nfiles: a.py\n---")["files"] == ["a.py"]
    assert read("---\napproved: true\nfiles:\n---")["files"] == []
    assert read("---\napproved: true\nfiles: [1, yes]\n---")["files"] == ["1", "yes"]


def test_an_optional_null_is_left_out_and_an_empty_text_is_text() -> None:
    assert read("---\napproved: true\nscore: null\ncomments:\n---") == {"approved": True, "comments": ""}


def test_a_required_null_is_not_invented() -> None:
    schema = Schema({"type": "object", "properties": {"plan": {"type": "string"}}, "required": ["plan"]})
    assert coerce(parse_answer("---\nplan: null\n---").fields, schema) == {"plan": None}


def test_choices_are_matched_but_for_their_case() -> None:
    schema = Schema(
        {"type": "object", "properties": {"status": {"enum": ["approved", "Not_Approved", "1", 2, True]}}}
    )
    for written, meant in [
        ("APPROVED", "approved"),
        ("not_approved", "Not_Approved"),
        ("1", "1"),
        ('"2"', 2),
    ]:
        assert read(f"---\nstatus: {written}\n---", schema) == {"status": meant}
    assert read("---\nstatus: yes\n---", schema) == {"status": True}
    two = Schema({"type": "object", "properties": {"status": {"enum": ["ok", "OK"]}}})
    assert coerce({"status": "Ok"}, two) == {"status": "Ok"}


def test_the_variant_that_fits_decides() -> None:
    schema = Schema(
        {
            "type": "object",
            "oneOf": [
                {
                    "properties": {"status": {"const": "done"}, "version": {"type": "string"}},
                    "required": ["status", "version"],
                },
                {
                    "properties": {"status": {"const": "failed"}, "version": {"$ref": "#/$defs/number"}},
                    "required": ["status", "version"],
                },
            ],
            "$defs": {"number": {"type": "integer"}},
        }
    )
    assert read("---\nstatus: done\nversion: 10\n---", schema) == {"status": "done", "version": "10"}
    assert read('---\nstatus: failed\nversion: "10"\n---', schema) == {"status": "failed", "version": 10}


def test_a_union_keeps_the_natural_reading_where_it_may() -> None:
    schema = Schema({"properties": {"x": {"type": ["string", "integer", "boolean", "null"]}}})
    for written, value in [("7", 7), ('"7"', "7"), ("yes", "yes"), ("true", True), ("~", None)]:
        assert read(f"---\nx: {written}\n---", schema) == {"x": value}


def test_if_then_else_and_nested_lists_are_followed() -> None:
    schema = Schema(
        {
            "allOf": [{"properties": {"kind": {"enum": ["flag", "text"]}}}],
            "if": {"properties": {"kind": {"const": "flag"}}},
            "then": {"properties": {"values": {"type": "array", "items": {"type": "boolean"}}}},
            "else": {"properties": {"values": {"type": "array", "prefixItems": [{"type": "string"}]}}},
        }
    )
    assert read("---\nkind: flag\nvalues: [yes, off]\n---", schema) == {
        "kind": "flag",
        "values": [True, False],
    }
    assert read("---\nkind: text\nvalues: [1, 2]\n---", schema) == {"kind": "text", "values": ["1", 2]}


@pytest.mark.parametrize(
    "payload",
    [
        {"$ref": "#/nowhere"},
        {"$ref": "#"},
        {"properties": {"x": {"pattern": "["}}},
        {"anyOf": [{"$ref": "#/anyOf/0"}]},
    ],
)
def test_a_schema_that_cannot_be_applied_breaks_nothing(payload: Any) -> None:
    assert coerce({"x": "1"}, Schema(payload)) == {"x": "1"}


names = st.text(max_size=12)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=40)
    | st.sampled_from(
        ["yes", "null", "~", "1:30", "a: b", "x #y", "---", "\n---\n", "a\nb\n", " \n x", "- a", "007"]
    )
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)
objects = st.dictionaries(names, values, max_size=5)


def schema_of(value: Any) -> dict[str, Any]:
    """A schema that the value obeys, as strict as it gets without listing it."""
    if isinstance(value, dict):
        properties = {key: schema_of(item) for key, item in value.items()}
        return {
            "type": "object",
            "properties": properties,
            "required": sorted(properties),
            "additionalProperties": False,
        }
    if isinstance(value, list):
        return {"type": "array", "prefixItems": [schema_of(item) for item in value], "items": False}
    kinds = {type(None): "null", bool: "boolean", int: "integer", float: "number", str: "string"}
    return {"type": kinds[type(value)]}


@settings(max_examples=150)
@given(objects, st.booleans(), st.text(max_size=60))
@example({"a": [[], {}, [{"b": "c\nd"}]], "e": {}}, True, "x")
@example({"k k": "v", "~": "\ud7ff\u2028\x85\x7f"}, True, "```\n---")
def test_what_is_rendered_reads_back_as_it_was(value: dict[str, Any], strict: bool, report: str) -> None:
    assume(
        not re.search(r"[<[◁]/|\|>", report)
    )  # the end of a thought, which makes one of what stands before it
    value = normalise(value)
    schema = Schema(schema_of(value) if strict else {"type": "object"})
    answer = parse_answer(render_frontmatter(value, report), lambda fields: coerce(fields, schema) == value)
    assert answer.fields is not None, answer.problem
    assert coerce(answer.fields, schema) == value
    assert normalise(coerce(answer.fields, schema)) == value


@settings(max_examples=150)
@given(objects)
def test_what_is_valid_is_not_changed(value: dict[str, Any]) -> None:
    value = normalise(value)
    assert coerce(value, Schema(schema_of(value))) == value


BEGINNINGS = (
    "[000001] works on it\n",
    "[12:30:01] works on it\n",
    "[x] works on it\n",
    '["a" works on it\n',
    "[1] works on it\n",
    "{works on it\n",
    '{"a": works on it\n',
    '{"a": {\n\n',
    "[\n\n",
    "[1,\n\n",
    "[" + "1," * 500 + "\n\n",
    "[" * 2000 + "\n",
    '{"a":' * 2000 + "\n",
    '{"a": 1, "a": 2}\n',
    '["' + "x" * 5000 + "\n",
    "---\nworks on it\n",
    "```\nworks: on it\n```\n",
)


@pytest.mark.parametrize("line", BEGINNINGS)
def test_what_begins_like_json_hides_neither_the_answer_after_it_nor_that_there_is_none(
    line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer_reader, "_FREE_READ", 10_000)
    log = line * (60_000 // len(line))
    assert read(f'{log}\n{{"approved": true}}\n') == {"approved": True}
    usual = (NO_BLOCK, "the block of fields is not YAML", "the JSON in line 1 of the answer: an object has")
    assert answered(log).problem.startswith(usual)


def test_a_long_log_with_counters_in_brackets_is_read_like_a_short_one() -> None:
    log = "".join(f"[{number:06}] works on it\n" for number in range(100_000))
    assert judge_printed(log, WANTED) is None
    verdict = judge_printed(f'{log}{{"approved": true}}\n', WANTED)
    assert verdict is not None and verdict.output == {"approved": True}


class Counter:
    """A JSON decoder that counts the characters which it reads at most."""

    def __init__(self, decoder: json.JSONDecoder) -> None:
        self._decoder = decoder
        self.count = 0

    def raw_decode(self, text: str, start: int) -> tuple[Any, int]:
        try:
            value, end = self._decoder.raw_decode(text, start)
        except json.JSONDecodeError as error:
            self.count += error.pos - start
            raise
        except (RecursionError, Invalid):
            self.count += len(text) - start
            raise
        self.count += end - start
        return value, end

    def decode(self, text: str) -> Any:
        return self._decoder.decode(text)


@settings(max_examples=12, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(BEGINNINGS), st.integers(1, 20)), min_size=1, max_size=3))
def test_the_work_on_what_begins_like_json_grows_as_its_length_does(log: list[tuple[str, int]]) -> None:
    text = "".join(line * (count * 4000 // len(line) + 1) for line, count in log)
    with pytest.MonkeyPatch.context() as patch:
        counter = Counter(answer_reader._DECODER)
        patch.setattr(answer_reader, "_DECODER", counter)
        patch.setattr(answer_reader, "_FREE_READ", 10_000)
        assert read(f'{text}\n\n{{"approved": true}}\n') == {"approved": True}
    # In vain from the beginning and from the end, and what is read from ever larger windows.
    assert counter.count < 16 * len(text) + 100_000


pieces = st.sampled_from(
    [
        "---",
        "...",
        "```",
        "```yaml",
        "~~~",
        "\n",
        "\r\n",
        ": ",
        "a: b\n",
        "- ",
        "{",
        "}",
        "[",
        "&a ",
        "*a",
        "!!",
        "|",
        "\t",
    ]
)


@settings(max_examples=300)
@given(st.lists(pieces | st.text(max_size=8), max_size=25).map("".join))
def test_no_text_breaks_the_reader(text: str) -> None:
    answer = parse_answer(text)
    assert (answer.fields is None) == bool(answer.problem)
    if answer.fields is not None:
        assert natural(coerce(answer.fields, REVIEW)) == coerce(answer.fields, REVIEW)
