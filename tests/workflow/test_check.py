"""What `check` finds, and where it says it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uwf_git.format.document import InvalidYaml
from uwf_git.format.yaml12 import dump
from uwf_git.workflow.check import Finding, check, check_path
from uwf_git.workflow.compile import InvalidWorkflow, compile_source
from uwf_git.workflow.source import parse_source

# The numbers in the tests are this text's line numbers, from 1.
BASE = """\
version: 1
name: base
description: A base.
roles:
  writer:
    description: Writes.
    systemPrompt: Write.
    outputSchema:
      type: object
      properties:
        text: { type: string }
        book: { type: object, properties: { title: { type: string }, pages: { type: array } } }
      required: [text]
  critic:
    description: Judges.
    goal: Judge.
    frontmatter:
      type: object
      properties:
        status: { enum: [good, bad, ugly] }
        why: { type: string }
      required: [status]
      additionalProperties: false
conditions:
  long:
    description: It is long.
    expression: $count(steps) > 9
graph:
  $START: [{ role: writer }]
  writer:
    - role: $END
      condition: long
    - role: critic
      prompt: Judge this. {{ text }}
  critic:
    good: $END
    bad: { role: writer, prompt: "It is bad{% if why %}, because {{ why }}{% endif %}" }
    _: writer
"""


def findings(text: str) -> list[Finding]:
    return check(parse_source(text.encode(), "w.yaml"))


def changed(*changes: tuple[str, str]) -> list[Finding]:
    text = BASE
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    return findings(text)


def test_a_flawless_workflow_has_no_findings() -> None:
    assert findings(BASE) == []


def test_a_key_like_no_other_is_told_each_known_one_once() -> None:
    (finding,) = changed(("systemPrompt: Write.", "systemPrompt: Write.\n    zzz: 1"))
    known = finding.hint.removeprefix("known: ").split(", ")
    assert len(known) == len(set(known)) >= 9


CASES: dict[str, tuple[tuple[str, str], str, str, str]] = {
    # what: (change), line severity code, message has, hint has
    "a misspelt role": (("role: critic", "role: critik"), "33 error unknown-role", '"critik" is not', '"critic"?'),
    "a misspelt end": (("role: $END", "role: $EMD"), "31 error unknown-role", '"$EMD"', '"$END"?'),
    "a status to nowhere": (("_: writer", "_: wroter"), "38 error unknown-role", '"wroter" is not', '"writer"?'),
    "edges of a stranger": (("  critic:\n    good", "  critick:\n    good"),
        "35 error unknown-role", '"critick"', '"critic"?'),
    "an edge to the start": (("_: writer", "_: $START"), "38 error unknown-role", "cannot lead to", ""),
    "an edge to a human": (("_: writer", "_: $USER"), "38 error unknown-role", "cannot lead to", "needs_input"),
    "edges of the end": (("graph:", "graph:\n  $END: [{ role: writer }]"),
        "29 error reserved-name", "nothing leaves", ""),
    "a reserved role": (("  writer:\n    desc", "  $USER:\n    desc"), "5 error reserved-name", '"$USER"', ""),
    "a field with a template's name": (("text: { type", "_body: { type"),
        "11 error reserved-name", "cannot be called _body", "another name"),
    "a role name for no path": (("  writer:\n    desc", "  a/b:\n    desc"), "5 error bad-name", '"a/b"', ""),
    "a name for no ref": (("name: base", "name: .base"), "2 error bad-name", '".base"', ""),
    "a missing name": (("name: base\n", ""), "1 error missing-key", "no name", "add name:"),
    "another version": (("version: 1", 'version: "1"'), "1 error bad-version", "must be the number 1", "version: 1"),
    "a misspelt key": (("systemPrompt: W", "systemPromt: W"),
        "7 error unknown-key", '"systemPromt"', '"systemPrompt"?'),
    "a misspelt top key": (("conditions:", "condition:"), "24 error unknown-key", '"condition"', '"conditions"?'),
    "a misspelt edge key": (("      condition: long", "      conditon: long"),
        "32 error unknown-key", "conditon", '"condition"?'),
    "a prompt that is not text": (("systemPrompt: Write.", "systemPrompt: 1.0"),
        "7 error wrong-type", "must be text, not a number", '"1.0"'),
    "an empty prompt": (("systemPrompt: Write.", 'systemPrompt: " "'), "7 error empty-text", "is empty", ""),
    "an empty instruction": (("Judge this. {{ text }}", '""'), "34 error empty-text", "prompt is empty", ""),
    "a missing prompt": (("    systemPrompt: Write.\n", ""), "5 error missing-key", "no systemPrompt", "goal"),
    "both forms": (("goal: Judge.", "goal: Judge.\n    systemPrompt: Judge."), "17 error two-forms", "both", "keep"),
    "a procedure that would be lost": (("systemPrompt: Write.", "systemPrompt: W\n    procedure: P"),
        "8 error two-forms", "procedure", "systemPrompt"),
    "no schema": (("    frontmatter:", "    x-frontmatter:"),
        "14 error missing-key", "no frontmatter", "JSON Schema"),
    "a schema by hash": (("outputSchema:\n", "outputSchema: 5GWKR8TN1V3JA\n    x-old:\n"),
        "8 error wrong-type", "inline JSON Schema, not text", ""),
    "an unknown type": (("text: { type: string }", "text: { type: strng }"),
        "11 error bad-schema", '"strng"', '"string"?'),
    "a type for a schema": (("text: { type: string }", "text: string"),
        "11 error bad-schema", "text", "{type: string}"),
    "a remote reference": (("{ type: string }", "{ $ref: 'https://x.invalid/y' }"),
        "11 error bad-schema", "none is fetched", "$defs"),
    "a reference to nowhere": (("{ type: string }", "{ $ref: '#/$defs/text' }"),
        "11 error bad-schema", "nowhere", ""),
    "a broken pattern": (("{ type: string }", "{ type: string, pattern: '(' }"),
        "11 error bad-schema", "pattern", ""),
    "an endless reference": (("type: object", "$ref: '#'"), "9 error bad-schema", "without end", ""),
    "an answer that is not an object": (
        ("      type: object\n      properties:\n        text", "      type: array\n      properties:\n        text"),
        "9 error bad-schema", "must be an object", ""),
    "a required field nobody may fill": (("required: [status]", "required: [status, whi]"),
        "22 error bad-schema", '"whi" is required', '"why"?'),
    "a misspelt keyword": (("additionalProperties", "additionalPropertys"),
        "23 warning odd-schema", "not a keyword", '"additionalProperties"?'),
    "a misspelt condition": (("condition: long", "condition: log"), "32 error unknown-condition", '"log"', '"long"?'),
    "a condition that doesn't parse": (("$count(steps) > 9", "$count(steps > 9"),
        "27 error bad-condition", '"long"', ""),
    "a condition without text": (("$count(steps) > 9", "true"),
        "27 error wrong-type", "text, not a boolean", '"true"'),
    "a condition as text": (("  long:\n", "  short: steps\n  long:\n"),
        "25 error wrong-type", "must be a mapping", ""),
    "an unused condition": (("  long:\n", "  short: {expression: 'true'}\n  long:\n"),
        "25 warning unused-condition", '"short"', ""),
    "a condition about a stranger": (("$count(steps)", '$count(steps[role="critc"])'),
        "27 warning unknown-role", '"critc"', '"critic"?'),
    "an edge after the fallback": (
        ("    - role: $END\n      condition: long", "    - role: $END\n    - role: $END\n      condition: long"),
        "32 warning never-taken", "after the fallback", ""),
    "the same condition twice": (("    - role: critic", "    - { role: $END, condition: long }\n    - role: critic"),
        "33 warning never-taken", "already", ""),
    "no fallback": (("  $START: [{ role: writer }]", "  $START: [{ role: writer, condition: long }]"),
        "29 warning no-fallback", "stuck", ""),
    "no start": (("  $START: [{ role: writer }]\n", ""), "28 error no-start", "no $START", ""),
    "a start of another name": (("$START: [{ role: writer }]", "$START: { nwe: writer }"),
        "29 error edge-without-status", '"nwe" never comes', '"new"?'),
    "a start of two names": (("$START: [{ role: writer }]", "$START: { _: writer, new: writer }"),
        "29 error two-forms", "mean the same", "keep one"),
    "only a way to go on": (("$START: [{ role: writer }]", "$START: { resume: writer }"),
        "29 error no-start", "no new", "add new"),
    "a variable the start lacks": (("[{ role: writer }]", '[{ role: writer, prompt: "{{ repo }}" }]'),
        "29 warning unknown-variable", "the start doesn't have", "prompt"),
    "an optional variable": (("{% if why %}, because {{ why }}{% endif %}", ", because {{ why }}"),
        "37 warning optional-variable", '{{ why }}, which "critic" may leave out', "{% if why %}"),
    "an optional variable that is filtered": (("{{ text }}", "{{ book.title | upcase }}"),
        "34 warning optional-variable", '{{ book.title }}, which "writer" may leave out', "{% if book %}"),
    "a role without edges": (("  critic:\n    good: $END\n", "  x-critic:\n    good: $END\n"),
        "14 error stuck-role", '"critic"', "$END"),
    "an empty list of edges": (("$START: [{ role: writer }]", "$START: []"), "29 error stuck-role", '"$START"', ""),
    "a status without an edge": (("    _: writer\n", ""), "35 error status-without-edge", '"ugly"', "_: …"),
    "an edge without a status": (("    good: $END", "    god: $END"),
        "36 error edge-without-status", '"god"', '"good"?'),
    "an edge for asking": (("    good: $END", "    needs_input: $END\n    good: $END"),
        "36 warning never-taken", "asks a human", ""),
    "routing by a status that isn't there": (
        ("status: { enum: [good, bad, ugly] }\n        why: { type: string }\n      required: [status]",
         "grade: { type: string }\n        why: { type: string }\n      required: [grade]"),
        "36 error edge-without-status", "its schema has none", "$status"),
    "a misspelt variable": (("{{ why }}", "{{ whi }}"), "37 error unknown-variable", "{{ whi }}", '"why"?'),
    "a misspelt nested variable": (("{{ text }}", "{{ book.titel }}"), "34 error unknown-variable", "book.titel", ""),
    "a field below a text": (("{{ text }}", "{{ text.length }}"), "34 error unknown-variable", "text.length", ""),
    "a misspelt start variable": (("{{ text }}", "{{ start.promt }}"),
        "34 error unknown-variable", "promt", '"start.prompt"?'),
    "a template that doesn't parse": (("{{ why }}", "{{ why"), "37 error bad-template", "template", ""),
    "a graph that is a list": (("graph:\n", "graph: []\nx-graph:\n"), "28 error wrong-type", "must be a mapping", ""),
    "a role that is a text": (("  writer:\n    desc", "  other: text\n  writer:\n    desc"),
        "5 error wrong-type", 'role "other" must be a mapping', ""),
    "edges that are a text": (("$START: [{ role: writer }]", "$START: writer"),
        "29 error wrong-type", "list", "[{role: writer}]"),
    "an edge to a number": (("    good: $END", "    good: 7"), "36 error wrong-type", "not a number", ""),
    "an edge to nothing": (("    good: $END", "    good:"), "36 error wrong-type", "not nothing", ""),
    "a transition that is a text": (("    - role: $END\n      condition: long", "    - $END"),
        "31 error wrong-type", "must be a mapping", ""),
    "a condition that is a list": (("condition: long", "condition: [long]"), "32 error wrong-type", "not a list", ""),
    "capabilities as text": (("goal: Judge.", "goal: Judge.\n    capabilities: reading"),
        "17 error wrong-type", "list of texts", ""),
    "a missing description": (("    description: Writes.\n", ""), "5 warning missing-description", '"writer"', ""),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_finds(case: str) -> None:
    change, expected, says, hint = CASES[case]
    found = [each for each in changed(change) if f"{each.line} {each.severity} {each.code}" == expected]
    assert any(says in each.message and hint in each.hint for each in found), changed(change)
    assert all("\n" not in each.message + each.hint and each.column >= 1 for each in found)


ANSWERS = """      oneOf:
        - { properties: { status: { const: good }, why: { type: string } }, required: [status, why] }
        - { properties: { status: { enum: [bad, ugly] }, how: { type: string } }, required: [status, how] }
"""


@pytest.mark.parametrize(
    ("variable", "says", "hint"),
    [
        ("why", '"critic" doesn\'t answer with status "bad"', "known: _body, how, status"),
        ("_bdy", 'the schema of "critic" doesn\'t have', 'did you mean "_body"?'),
    ],
)
def test_a_variable_of_another_status_is_told_what_this_one_has(variable: str, says: str, hint: str) -> None:
    start = BASE.index("        status: { enum")
    schema = BASE[BASE.rindex("      type: object", 0, start) : BASE.index("conditions:")]
    (found,) = changed(
        (schema, ANSWERS), ("{{ why }}", f"{{{{ {variable} }}}}"), ("{% if why %}", ""), ("{% endif %}", "")
    )
    assert (says in found.message, found.hint) == (True, hint), found


def test_an_unreachable_role_is_found_at_its_definition() -> None:
    found = changed(("    - role: critic\n      prompt: Judge this. {{ text }}", "    - role: $END"))
    assert [(each.line, each.code) for each in found] == [(14, "unreachable-role")]


def test_a_loop_without_a_way_out_is_found_at_every_role_in_it() -> None:
    found = changed(
        ("    good: $END", "    good: writer"),
        ("role: $END\n      condition", "role: critic\n      condition"),
    )
    assert [(each.line, each.code) for each in found] == [(30, "no-way-to-end"), (35, "no-way-to-end")]


def test_an_edge_that_is_never_taken_leads_nowhere() -> None:
    found = changed(
        ("    - role: $END\n      condition: long\n", ""),
        ("    - role: critic\n      prompt: Judge this. {{ text }}", "    - role: critic\n    - role: $END"),
        ("    good: $END", "    good: writer"),
    )
    assert [(each.line, each.code) for each in found if each.severity == "error"] == [
        (30, "no-way-to-end"), (33, "no-way-to-end"),
    ]  # fmt: skip


def test_every_problem_is_reported_at_once_in_the_order_of_lines() -> None:
    found = changed(
        ("version: 1", "version: 3"), ("systemPrompt: Write.", "systemPrompt: []"), ("type: string", "type: text"),
        ("$count(steps) > 9", "$count("), ("condition: long", "condition: short"), ("good: $END", "godd: nobody"),
        ("{{ why }}", "{{ because }}"),
    )  # fmt: skip
    assert [each.line for each in found] == sorted(each.line for each in found)
    assert {
        "bad-version", "wrong-type", "bad-schema", "bad-condition", "unknown-condition", "unknown-role",
        "edge-without-status", "unknown-variable",
    } <= {each.code for each in found}  # fmt: skip


def test_one_misspelling_is_one_finding() -> None:
    assert len(changed(("role: critic", "role: critik"))) == 1, "and not also a role that is never reached"
    assert len(changed(("  critic:\n    good", "  critick:\n    good"))) == 1
    assert len(changed(("good: $END", "good: $EMD"), ("role: $END", "role: $ENT"))) == 2
    assert len(changed(("      prompt: Judge", "      promt: Judge"))) == 1
    assert len(changed(("type: string", "type: strng"))) == 1
    assert len(changed(("condition: long", "condition: lng"))) == 1, "and not also an unused condition"
    assert len(changed(("condition: long", "condition: whatever"))) == 1
    assert len(changed(("condition: long", "if: long"))) == 1, "and not also an edge after the fallback"
    assert len(changed(("role: critic", "to: critic"))) == 1, "and not also a role that is missing"
    assert len(changed(("role: critic", "role: somebody-else"))) == 1, "which may be the critic"
    both = changed(("    - role: $END\n      condition: long", "    - condition: long\n      to: $EMD"))
    assert [(each.line, each.code) for each in both] == [(32, "unknown-key"), (32, "unknown-role")], (
        "at its place"
    )
    assert len(changed(("  critic:\n    good", "  somebody-else:\n    good"))) == 1
    assert len(changed(("$START: [", "start: ["))) == 1, "and not also a graph without a start"
    assert len(changed(("$START: [{ role: writer }]", "$START: { begin: writer }"))) == 1, "and it is reached"
    assert len(changed(("good: $END", "good: done"), ("role: $END", "role: END"))) == 2
    assert len(changed(("roles:\n", "roles: []\nx-roles:\n"))) == 1, "and not also every edge"
    assert len(changed(("conditions:\n", "conditions: []\nx-conditions:\n"))) == 1
    assert len(changed(("conditions:", "condition:"))) == 1
    assert len(changed(("    good: $END", "    god: $END"), ("    _: writer", "    ugly: writer"))) == 1
    assert len(changed(("    good: $END", "    perfect: $END"), ("    _: writer", "    ugly: writer"))) == 2
    without_status = ("status: { enum: [good, bad, ugly] }", "grade: { enum: [good, bad, ugly] }")
    assert len(changed(without_status, ("required: [status]", "required: [grade]"))) == 1, "for all its edges"
    assert len(changed(("systemPrompt: Write.", "prompt: Write."), ("outputSchema:", "schema:"))) == 2


HABITS: dict[str, tuple[tuple[str, str], str, str]] = {
    # what: (change), line and code, hint has
    "if": (("condition: long", "if: long"), "32 unknown-key", "here it is condition:"),
    "when": (("condition: long", "when: long"), "32 unknown-key", "here it is condition:"),
    "to": (("role: critic", "to: critic"), "33 unknown-key", "here it is role:"),
    "next": (("role: critic", "next: critic"), "33 unknown-key", "here it is role:"),
    "prompt of a role": (("systemPrompt: W", "prompt: W"), "7 unknown-key", "here it is systemPrompt:"),
    "schema": (("outputSchema:", "schema:"), "8 unknown-key", "here it is outputSchema:"),
    "edges": (("graph:", "edges:"), "28 unknown-key", "here it is graph:"),
    "expr": (("expression:", "expr:"), "27 unknown-key", "here it is expression:"),
    "a model": (("systemPrompt: W", "model: gpt\n    systemPrompt: W"), "7 unknown-key", "uwf setup"),
    "a condition by status": (("{ role: writer, prompt", "{ role: writer, if: long, prompt"),
        "37 unknown-key", "write the edges of its role as a list"),
    "roles as a list": (("roles:\n", "roles: [{ name: writer }]\nx-roles:\n"), "4 wrong-type", "is its key"),
    "edges as a list": (("graph:\n", "graph: [{ from: $START }]\nx-graph:\n"), "28 wrong-type", "{$START: [{"),
    "end": (("role: $END", "role: end"), "31 unknown-role", "the end is called $END"),
    "START": (("$START: [", "START: ["), "29 unknown-role", "it is called $START"),
    "an edge to nothing": (("good: $END", "good: null"), "36 wrong-type", "write good: $END"),
    "an expression as a condition": (("condition: long", "condition: $count(steps) > 3"),
        "32 unknown-condition", "as NAME: {expression: …}"),
    "an expression that has a name": (("condition: long", "condition: $count(steps) > 9"),
        "32 unknown-condition", 'name it: condition: "long"'),
    "an expression, and in another language": (("condition: long", "condition: steps[-1].output.ok == 1"),
        "32 unknown-condition", "a single ="),
    "==": (("$count(steps) > 9", "$count(steps) == 9"), "27 bad-condition", "compares with a single ="),
    "&&": (("$count(steps) > 9", "a && b"), "27 bad-condition", "writes and for &&"),
    "||": (("$count(steps) > 9", "a || b"), "27 bad-condition", "writes or for ||"),
    "!": (("$count(steps) > 9", '"!a"'), "27 bad-condition", "$not(…)"),
    "not": (("$count(steps) > 9", "not a"), "27 bad-condition", "$not(…)"),
    "not in": (("$count(steps) > 9", 'start.prompt not in ["a"]'), "27 bad-condition", "$not(x in y)"),
    "len": (("$count(steps)", "len(steps)"), "27 bad-condition", "$count(list)"),
    "includes": (("$count(steps) > 9", 'start.prompt.includes("x")'), "27 bad-condition", "$contains(text"),
    "braces": (("$count(steps) > 9", "'{{ steps }}'"), "27 bad-condition", "without braces"),
    "an open text": (("$count(steps) > 9", 'start.prompt = "x'), "27 bad-condition", "with the quote"),
}  # fmt: skip


@pytest.mark.parametrize("case", HABITS)
def test_what_people_write_out_of_habit_gets_the_word_for_it(case: str) -> None:
    change, expected, hint = HABITS[case]
    errors = [each for each in changed(change) if each.severity == "error"]
    assert [(f"{each.line} {each.code}", hint in each.hint) for each in errors] == [(expected, True)], errors


LOOKUPS: dict[str, tuple[str, str, str, str]] = {
    # what: expression, code, message has, hint has
    "a status that never comes": ('steps[-1].output.status = "goood"', "never-equal",
        'output.status of "critic" is never "goood"', '"good"?'),
    "one that always differs": ('steps[-1].output.status != "goood"', "never-equal", "always something", '"good"?'),
    "one of a list": ('steps[-1].output.status in ["good", "baad"]', "never-equal", '"baad"', '"bad"?'),
    "one in a list": ('"goood" in steps.output.status', "never-equal", '"goood"', '"good"?'),
    "another type": ("steps[-1].output.status = true", "never-equal", "is never true", 'it is one of: "good"'),
    "a quoted number": ('$count(steps) = "3"', "never-equal", '$count(…) is never "3"', "without quotes"),
    "a misspelt field": ('steps[-1].output.statsu = "good"', "unknown-field",
        'output.statsu, which the schema of "critic" doesn\'t have', '"status"?'),
    "a misspelt field in a field": ('steps[role="writer"][-1].output.book.titel = "x"', "unknown-field",
        "output.book.titel", '"title"?'),
    "a field of another role": ("steps[-1].output.text", "unknown-field", 'the schema of "critic"', "known: status"),
    "a field of another role than is chosen": ('steps[role="writer"][-1].output.why', "unknown-field",
        'the schema of "writer"', "known: book, text"),
    "a field in a filter": ('$count(steps[output.statsu = "bad"]) > 1', "unknown-field", "statsu", '"status"?'),
    "a field of a variable": ("($last := steps[-1].output; $last.wy)", "unknown-field", "asks for wy", '"why"?'),
    "a misspelt root": ('$.stpes[-1].output.status = "good"', "unknown-field", "stpes", '"steps"?'),
    "a field without a way": ('status = "good"', "unknown-field", '"status"', "steps[-1].output.status"),
    "a text without quotes": ("steps[-1].output.status = good", "unknown-field", '"good"', 'in quotes: "good"'),
    "a word of another language": ("steps[-1].output.status = None", "unknown-field", '"None"', "null"),
    "a property of another language": ("steps.length > 3", "unknown-field", "length", "$count(…)"),
    "a field in brackets": ('steps[-1].output["status"] = "good"', "unknown-field", "no way to a field", ".status"),
    "a status with a dollar": ('steps[-1].output.$status = "good"', "unknown-field", "$status", "backticks"),
    "a variable nobody sets": ("$steps[-1].output.status", "unknown-field", "$steps", "without $"),
    "all steps at once": ('steps.output.status = "good"', "list-compared", "every step", "in steps.output.status"),
}  # fmt: skip


@pytest.mark.parametrize("case", LOOKUPS)
def test_a_condition_that_looks_for_what_no_role_answers_is_doubted_at_its_line(case: str) -> None:
    expression, code, says, hint = LOOKUPS[case]
    found = _routed(expression)
    assert [(each.line, each.severity, each.code) for each in found] == [(27, "warning", code)], found
    assert says in found[0].message and hint in found[0].hint, found


@pytest.mark.parametrize("expression", [
    'steps[-1].output.status = "good"', 'steps[role="writer"][-1].output.text = "x"', "steps[-2].output.text",
    'steps[role="$USER"][-1].output.answer = "yes"', "$exists(steps.output.question)",
    'steps[-1].output.status in ["good", "bad"]', '"good" in steps.output.status', "$count(steps.output.why) > 1",
    '$contains(start.prompt, "URGENT")', "steps^(agent)[0].role", "steps@$s[$s.role = 'writer'].output",
    '$filter(steps, function($s, $i){ $i > 1 and $s.role = "critic" }).output.why', "steps.*.why",
    'steps[-1].output.(status = "good" or why = "x")', "$count(steps[role='critic' and output.why]) > 1",
    'steps[role="writer"][-1].output.book.pages[0].whatever = 1', "($f := function($x){ $x.y }; $f(steps))", "true",
])  # fmt: skip
def test_a_condition_about_what_roles_may_answer_is_left_alone(expression: str) -> None:
    assert _routed(expression) == []


def _routed(expression: str) -> list[Finding]:
    """What is found where an edge of the critic asks for the expression, and one of the writer for nothing."""
    graph = BASE.index("graph:")
    text = BASE[:graph].replace("$count(steps) > 9", repr_yaml(expression)) + (
        "graph:\n  $START: [{ role: writer }]\n  writer: [{ role: critic }]\n"
        "  critic: [{ role: $END, condition: long }, { role: writer }]\n"
    )
    return findings(text)


def repr_yaml(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


REQUIRED = """\
name: n
description: d
roles:
  r:
    description: d
    systemPrompt: s
    outputSchema:
      type: object
      properties: { approved: { type: boolean } }
      required: [aproved]
graph: { $START: [{ role: r }], r: [{ role: $END }] }
"""


def test_a_required_field_that_is_not_declared_is_told() -> None:
    found = findings(REQUIRED)
    assert [(each.line, each.severity, each.code) for each in found] == [(10, "warning", "odd-schema")]
    assert '"aproved" is required' in found[0].message and found[0].hint == 'did you mean "approved"?'
    closed = findings(REQUIRED.replace("[aproved]", "[aproved]\n      additionalProperties: false"))
    assert [(each.line, each.severity) for each in closed] == [(10, "error")]
    # Declared by another part of the same answer.
    spread = REQUIRED.replace(
        "[aproved]", "[aproved]\n      oneOf: [{ properties: { aproved: { const: 1 } } }]"
    )
    assert findings(spread) == []


def test_asking_a_human_needs_no_edge() -> None:
    assert changed(("[good, bad, ugly]", "[good, bad, ugly, needs_input, $SUSPEND]")) == []
    without_default = changed(("[good, bad, ugly]", "[good, bad, needs_input]"), ("    _: writer\n", ""))
    assert without_default == []


def test_a_status_may_be_spread_over_variants_and_references() -> None:
    schema = """
      $defs:
        good: { properties: { status: { const: good }, praise: { type: string } }, required: [status, praise] }
      oneOf:
        - $ref: "#/$defs/good"
        - properties: { $status: { enum: [bad, ugly] }, why: { type: string } }
          required: [$status]
"""
    text = (
        BASE.split("    frontmatter:\n")[0]
        + "    frontmatter:"
        + schema
        + "conditions:"
        + BASE.split("conditions:")[1]
    )
    assert findings(text) == []
    missing = findings(text.replace("    _: writer\n", ""))
    assert [(each.code, '"ugly"' in each.message) for each in missing] == [("status-without-edge", True)]
    # A field of another variant than the one that leads there is none.
    wrong = findings(text.replace("{{ why }}", "{{ praise }}"))
    assert [each.code for each in wrong] == ["unknown-variable"]


def test_a_status_of_any_text_needs_a_default() -> None:
    free = ("{ enum: [good, bad, ugly] }", "{ type: string }")
    assert changed(free) == []
    found = changed(free, ("    _: writer\n", ""))
    assert [(each.line, each.code, each.severity) for each in found] == [(35, "no-fallback", "warning")]


def test_a_status_that_may_be_left_out_needs_a_default() -> None:
    found = changed(
        ("      required: [status]\n", ""), ("[good, bad, ugly]", "[good, bad]"), ("    _: writer\n", "")
    )
    assert [(each.code, each.severity) for each in found] == [("no-fallback", "warning")]


@pytest.mark.parametrize("template", [
    "{{ text | upcase }}", "{{ book.title }}", "{{ book.pages[0].x }}", "{{ book.pages.size }}", "{{ text.size }}",
    "{{ start.prompt }}", "{{ start.workflow }}",
    "{% for page in book.pages %}{{ page.title }}{{ forloop.index }}{% endfor %}",
    "{% assign x = text %}{{ x }}", "{% if text %}a{% else %}b{% endif %}", "no variable at all",
])  # fmt: skip
def test_a_template_may_use_what_the_answer_has(template: str) -> None:
    found = changed(("Judge this. {{ text }}", f"'{template}'"))
    assert {each.code for each in found} <= {"optional-variable"}


def test_the_first_edge_may_use_the_prompt_and_no_answer() -> None:
    def start(template: str) -> list[str]:
        return [
            each.code for each in changed(("{ role: writer }", f"{{ role: writer, prompt: '{template}' }}"))
        ]

    assert start("{{ prompt }} {{ start.prompt }} {{ start.workflow }}") == []
    assert start("{{ text }}") == ["unknown-variable"]


def test_an_answer_that_declares_nothing_may_hold_anything() -> None:
    anything = (
        BASE[: BASE.index("      type: object\n      properties:\n        text")] + "      type: object\n"
    )
    anything += BASE[BASE.index("  critic:\n    description") :]
    assert findings(anything.replace("{{ text }}", "{{ whatever.there.is }}")) == []


def test_a_schema_that_fans_out_or_turns_in_circles_is_checked_all_the_same() -> None:
    """Walked along every path it has 2^25 ends; the test's own time limit would notice."""
    fan: dict[str, Any] = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(25)}
    fan["d25"] = {"type": "object", "properties": {"text": {"type": "string"}}}
    circle = {"oneOf": [{"$ref": "#/$defs/circle"}, {"const": "good"}]}
    schema = {"type": "object", "$defs": {**fan, "circle": circle}, "$ref": "#/$defs/d0",
              "properties": {"status": {"$ref": "#/$defs/circle"}}}  # fmt: skip
    role = {"description": "d", "systemPrompt": "s", "outputSchema": schema}
    graph = {
        "$START": {"_": "r"},
        "r": {"good": "$END", "_": {"role": "$END", "prompt": "{{ text }} {{ x.y }}"}},
    }
    data = {"name": "n", "description": "d", "roles": {"r": role}, "graph": graph}
    assert {each.severity for each in findings(dump(data))} <= {"warning", "error"}


def test_thousands_of_mistakes_are_cut_short() -> None:
    schema = "{type: object, properties: {a: {type: string}}}"
    roles = "\n".join(
        f"  role-{n}: {{description: d, systemPrompt: s, outputSchema: {schema}}}" for n in range(600)
    )
    edges = "\n".join(f"  role-{n}: [{{role: rolle-{n}}}]" for n in range(600))
    found = findings(
        f"name: n\ndescription: d\nroles:\n{roles}\ngraph:\n  $START: [{{role: role-0}}]\n{edges}\n"
    )
    assert len(found) == 500
    assert sum("did you mean" in each.hint for each in found) == 40


def test_schema_words_in_data_are_no_schema() -> None:
    data = "{ type: string, const: {$ref: 'http://x.invalid'} }"
    assert changed(("properties:\n        text", f"properties:\n        odd: {data}\n        text")) == []


def test_text_that_is_no_yaml_is_a_finding_too(tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    for text in ("name: x\nroles: [\n", 'name: x\nroles: "\n'):
        path.write_text(text)
        (found,) = check_path(path)
        assert (found.line, found.code, found.severity) == (3, "not-yaml", "error")
        assert "not closed" in found.hint


def test_messages_show_no_control_characters() -> None:
    found = changed(("role: critic", 'role: "\\e[31m\\nred"'), ("good: $END", '"\\e]0;x\\a": $END'))
    assert len(found) >= 2
    assert all(text.isprintable() for each in found for text in (each.message, each.hint))


@pytest.mark.parametrize(
    "data", [None, [], "text", 1, {"roles": None}, {"roles": [], "graph": "x"}, {"graph": {"$START": None}}]
)
def test_what_is_no_workflow_at_all_is_an_error(data: Any) -> None:
    assert any(each.severity == "error" for each in findings(dump(data)))


WORDS = """version name description roles conditions graph writer critic $START $END _ role condition prompt
location goal systemPrompt outputSchema frontmatter type object properties status enum good bad long expression
x-y {{z}} {{ $ref #"""
words = st.sampled_from(WORDS.split())
junk = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=5),
    max_leaves=20,
)


@settings(max_examples=150)
@given(st.fixed_dictionaries({}, optional={
    "version": st.just(1) | junk, "name": st.just("n") | junk, "description": junk, "conditions": junk,
    "roles": st.dictionaries(words, junk | st.fixed_dictionaries({
        "systemPrompt": words, "outputSchema": st.fixed_dictionaries({"type": st.just("object"), "properties": junk}),
    }), max_size=3) | junk,
    "graph": st.dictionaries(words, junk, max_size=4) | junk,
}))  # fmt: skip
def test_anything_either_compiles_or_says_why(data: dict[str, Any]) -> None:
    try:
        source = parse_source(dump(data).encode(), "w.yaml")
    except InvalidYaml:
        raise AssertionError("what was written must read back") from None
    errors = [each for each in check(source) if each.severity == "error"]
    if errors:
        with pytest.raises(InvalidWorkflow) as caught:
            compile_source(source)
        assert caught.value.message.isprintable()
    else:
        assert compile_source(source).workflow.name
