"""A rehearsal finds what is wrong with a graph, finds nothing where nothing is, and always the same."""

from __future__ import annotations

import json
from typing import Any

import pytest
from conftest import EXAMPLES
from hypothesis import given, settings
from hypothesis import strategies as st

from uwf_git.format.ids import Hash
from uwf_git.format.kinds import Workflow, parse_workflow
from uwf_git.workflow.compile import compile_source, foresee
from uwf_git.workflow.rehearsal import Report, rehearse
from uwf_git.workflow.source import parse_source, read_source

JUDGE = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}},
    "required": ["ok"],
    "additionalProperties": False,
}


def fields(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": sorted(properties)}


def to(role: str, condition: str | None = None, **more: str) -> dict[str, Any]:
    return {"role": role, "condition": condition, **more}


def flow(
    graph: dict[str, Any], conditions: dict[str, str] | None = None, **schemas: Any
) -> tuple[Workflow, dict[Hash, Any]]:
    """A workflow with the roles of its graph; those without a schema judge."""
    named = {
        edge["role"]
        for edges in graph.values()
        for edge in (edges if isinstance(edges, list) else edges.values())
    }
    roles = sorted(name for name in {*graph, *named} if not name.startswith("$"))
    hashes = {role: Hash(f"{number:013}") for number, role in enumerate(roles)}
    workflow = parse_workflow(
        {
            "name": "sample",
            "description": "",
            "roles": {
                role: {"description": "", "systemPrompt": "", "outputSchema": hashes[role]} for role in roles
            },
            "conditions": {
                name: {"description": "", "expression": text} for name, text in (conditions or {}).items()
            },
            "graph": graph,
        }
    )
    return workflow, {hashes[role]: schemas.get(role, JUDGE) for role in roles}


def rehearsed(graph: dict[str, Any], conditions: dict[str, str] | None = None, **schemas: Any) -> Report:
    return rehearse(*flow(graph, conditions, **schemas))


def codes(report: Report) -> list[tuple[str, str]]:
    return [(problem.code, problem.where) for problem in report.problems]


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_edge_of_the_examples_is_taken(path: Any) -> None:
    compiled = compile_source(read_source(path))
    report = rehearse(compiled.workflow, compiled.schemas)
    assert report.problems == () and foresee(compiled) == ()
    assert report.ok and report.percent == 100
    assert all(use.true and use.false for use in report.conditions)


SOUND: dict[str, Any] = {
    "a loop by a boolean": (
        {"$START": [to("a")], "a": [to("b")], "b": [to("a", "no"), to("$END")]},
        {"no": "steps[-1].output.ok = false"},
        {},
    ),
    "a count over the history": (
        {"$START": [to("a")], "a": [to("$END", "enough"), to("a")]},
        {"enough": '$count(steps[role="a"]) >= 100'},
        {},
    ),
    "a field that may be there": (
        {"$START": [to("a")], "a": [to("b", "asks"), to("$END")], "b": [to("$END")]},
        {"asks": "$exists(steps[-1].output.question)"},
        {"a": {"type": "object", "properties": {"question": {"type": "string"}}}},
    ),
    "a number, a length and a list": (
        {
            "$START": [to("a")],
            "a": [to("b", "high"), to("b", "long"), to("b", "many"), to("$END")],
            "b": [to("$END")],
        },
        {
            "high": "steps[-1].output.score > 42",
            "long": "$length(steps[-1].output.text) > 200",
            "many": "$count(steps[-1].output.items) > 3",
        },
        {"a": fields(score={"type": "integer"}, text={"type": "string"}, items={"type": "array"})},
    ),
    "a word in the prompt, in an output and in a human's answer": (
        {
            "$START": [to("b", "urgent"), to("a")],
            "a": [to("b", "good"), to("$END")],
            "b": [to("a", "again"), to("$END")],
        },
        {
            "urgent": "$contains(start.prompt, 'URGENT')",
            "good": '$contains(steps[-1].output.text, "LGTM")',
            "again": 'steps[role="$USER"][-1].output.answer = "redo"',
        },
        {"a": fields(text={"type": "string"})},
    ),
    "a text that a pattern finds": (
        {"$START": [to("a")], "a": [to("b", "good"), to("$END")], "b": [to("$END")]},
        {"good": "$contains(steps[-1].output.text, /^LG[T]M+$/i)"},
        {"a": fields(text={"type": "string"})},
    ),
    "what another role said long ago": (
        {"$START": [to("a")], "a": [to("b")], "b": [to("c")], "c": [to("a", "bug"), to("$END")]},
        {"bug": 'steps[role="a"][-1].output.kind = "bug"'},
        {"a": fields(kind={"type": "string"})},
    ),
    "statuses with prompts": (
        {
            "$START": {"_": {"role": "a", "prompt": "Begin: {{ prompt }}"}},
            "a": {"more": {"role": "a", "prompt": "More of {{ text }}"}, "_": {"role": "$END"}},
        },
        {},
        {"a": fields(status={"enum": ["more", "done"]}, text={"type": "string"})},
    ),
    "a role that may ask": (
        {"$START": [to("a")], "a": {"done": {"role": "$END"}}},
        {},
        {"a": fields(status={"enum": ["needs_input", "done"]}, question={"type": "string"})},
    ),
    "a reference to a node": (
        {"$START": [to("a")], "a": [to("$END")]},
        {},
        {"a": fields(of={"type": "string", "format": "cas_ref"})},
    ),
}


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_workflow_is_covered_whole(name: str) -> None:
    graph, conditions, schemas = SOUND[name]
    report = rehearsed(graph, conditions, **schemas)
    assert report.problems == ()
    assert report.percent == 100


UNSOUND: dict[str, Any] = {
    "a loop that nothing ends": (
        {"$START": [to("a")], "a": [to("b")], "b": [to("a")]},
        {},
        {},
        [("no-way-out", "a")],
    ),
    "a loop whose way out is never open": (
        {"$START": [to("a")], "a": [to("a", "go"), to("$END")]},
        {"go": "true or steps[-1].output.ok"},
        {},
        [("no-way-out", "a"), ("condition-never-false", "go"), ("edge-never-taken", "a -> $END")],
    ),
    "an answer without an edge": (
        {"$START": [to("a")], "a": [to("$END", "good")]},
        {"good": "steps[-1].output.ok"},
        {},
        [("dead-end", "a")],
    ),
    "statuses without an edge, and an edge without a status": (
        {"$START": [to("a")], "a": {"x": {"role": "$END"}, "q": {"role": "$END"}}},
        {},
        {"a": fields(status={"enum": ["x", "y", "z"]})},
        [
            ("dead-end", "a (status y)"),
            ("dead-end", "a (status z)"),
            ("edge-never-taken", "a -> $END (status q)"),
        ],
    ),
    "a status that may be any text": (
        {"$START": [to("a")], "a": {"x": {"role": "$END"}}},
        {},
        {"a": fields(status={"type": "string"})},
        [("dead-end", "a (status Rehearsed status)")],
    ),
    "no edge from the start": (
        {"a": [to("$END")]},
        {},
        {},
        [("dead-end", "$START"), ("unreachable-role", "a")],
    ),
    "a role that no edge leads to": (
        {"$START": [to("a")], "a": [to("$END")], "z": [to("$END")]},
        {},
        {},
        [("unreachable-role", "z")],
    ),
    "a condition that is never true": (
        {"$START": [to("a")], "a": [to("z", "odd"), to("$END")], "z": [to("$END")]},
        {"odd": 'steps[-1].output.ok = "maybe"'},
        {},
        [
            ("unreachable-role", "z"),
            ("condition-never-true", "odd"),
            ("edge-never-taken", "a -> z (condition odd)"),
        ],
    ),
    "a condition that fails": (
        {"$START": [to("a")], "a": [to("b", "odd"), to("$END")], "b": [to("$END")]},
        {"odd": "1 / 0"},
        {},
        [
            ("fails", "a"),
            ("unreachable-role", "b"),
            ("edge-never-taken", "a -> b (condition odd)"),
            ("edge-never-taken", "a -> $END"),
        ],
    ),
    "a prompt that cannot be rendered": (
        {"$START": [to("a")], "a": [to("b", prompt="{{ 1 | divided_by: 0 }}")], "b": [to("$END")]},
        {},
        {},
        [("fails", "a -> b")],
    ),
    "an edge to no role": (
        {"$START": [to("a")], "a": [to("$NOWHERE")]},
        {},
        {},
        [("fails", "a -> $NOWHERE")],
    ),
    "a schema that nothing obeys": (
        {"$START": [to("a")], "a": [to("$END")]},
        {},
        {"a": fields(x={"type": "string", "minLength": 5, "maxLength": 2})},
        [("no-output", "a"), ("edge-never-taken", "a -> $END")],
    ),
    "a role that only asks": (
        {"$START": [to("a")], "a": [to("$END")]},
        {},
        {"a": fields(status={"const": "needs_input"}, question={"type": "string"})},
        [("dead-end", "a"), ("edge-never-taken", "a -> $END")],
    ),
}


@pytest.mark.parametrize("name", UNSOUND)
def test_what_is_wrong_is_found_and_named(name: str) -> None:
    graph, conditions, schemas, expected = UNSOUND[name]
    report = rehearsed(graph, conditions, **schemas)
    assert codes(report) == expected
    assert not report.ok and report.to_json()["ok"] is False
    for problem in report.problems:
        assert "\n" not in problem.message and len(problem.message) < 600


def test_a_message_names_output_condition_and_reason() -> None:
    report = rehearsed(
        {"$START": [to("a")], "a": [to("a", "odd"), to("$END", "good")]},
        {"odd": 'steps[-1].output.ok = "maybe"', "good": "steps[-1].output.ok"},
    )
    messages = {problem.code: problem.message for problem in report.problems}
    assert '{"ok": false}' in messages["dead-end"]
    assert "maybe" in messages["condition-never-true"]
    assert "condition odd was never true" in messages["edge-never-taken"]


def test_what_only_follows_from_another_problem_says_so() -> None:
    def roots(name: str) -> list[str]:
        graph, conditions, schemas, _ = UNSOUND[name]
        return [each.code for each in rehearsed(graph, conditions, **schemas).problems if not each.follows]

    assert roots("a loop whose way out is never open") == ["condition-never-false"]
    assert roots("a condition that fails") == ["fails"]
    assert roots("a schema that nothing obeys") == ["no-output"]
    assert roots("a role that only asks") == ["dead-end"]
    assert roots("a loop that nothing ends") == ["no-way-out"]
    for name in UNSOUND:
        assert roots(name), name


FORESEEN = """\
name: r
description: d
roles:
  a: &a
    description: d
    systemPrompt: s
    outputSchema:
      type: object
      properties: { ok: { type: boolean }, why: { type: string }, n: { type: integer, maximum: 3 } }
      required: [ok]
  b: *a
  c: *a
conditions:
  high: { expression: "steps[-1].output.n > 5" }
  okay: { expression: "steps[-1].output.ok = 'yes'" }
graph:
  $START: { _: a }
  a:
    - { role: c, condition: high }
    - { role: b, condition: okay }
    - { role: b, prompt: "Because {{ why }}" }
  b: [{ role: $END }]
  c: [{ role: $END }]
"""


def foreseen(text: str, seconds: float = 30) -> list[tuple[int, str]]:
    compiled = compile_source(parse_source(text.encode(), "w.yaml"))
    return [(finding.line, finding.code) for finding in foresee(compiled, seconds)]


@pytest.mark.parametrize(
    ("expression", "code"),
    [
        ("$count(steps) > '3'", "fails"),
        ("steps[-1].output.n & 'x'", "condition-never-false"),
        ("$filter(steps, function($s){ $s.output.okay })", "condition-never-true"),
    ],
)
def test_a_slip_that_the_check_does_not_see_is_found_by_a_rehearsal(expression: str, code: str) -> None:
    assert (14, code) in foreseen(FORESEEN.replace("steps[-1].output.n > 5", expression))


def test_what_a_rehearsal_finds_is_told_at_its_line_once() -> None:
    # The condition that can never hold is seen in its text, the edges and the role behind them follow.
    assert foreseen(FORESEEN) == [
        (14, "condition-never-true"),
        (15, "never-equal"),
        (21, "optional-variable"),
    ]
    sound = FORESEEN.replace("> 5", "> 2").replace("'yes'", "true").replace("{{ why }}", "{{ ok }}")
    assert foreseen(sound) == []
    by_status = sound.replace("  b: [{ role: $END }]", "  b:\n    _: a\n    done: $END\n    more: c").replace(
        "ok: { type: boolean }", "ok: { type: boolean }, status: { enum: [done, more, stuck] }"
    )
    assert foreseen(by_status) == []
    # In the order of the file, though by status the default is tried last.
    wrong = by_status.replace("more: c", 'more: { role: c, prompt: "{{ why }}" }')
    assert foreseen(wrong) == [(25, "optional-variable")]
    # A round trip that the doubtful condition closes: the limit on the rounds is innocent.
    rounds = FORESEEN.replace("steps[-1].output.n > 5", "$count(steps[role = 'a']) > 2").replace(
        "{ role: b, condition: okay }", "{ role: a, condition: okay }"
    )
    assert foreseen(rounds) == [(15, "never-equal"), (21, "optional-variable")]
    assert foreseen(FORESEEN, seconds=0) == [(15, "never-equal"), (21, "optional-variable")], (
        "what was not seen yet may still come"
    )


def test_a_runaway_condition_is_tried_only_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uwf_git.workflow.expression.SECONDS", 0.1)
    graph = {"$START": [to("a")], "a": [to("$END", "endless"), to("a")]}
    report = rehearsed(graph, {"endless": "($f := function($n){ $f($n + 1) }; $f(0))"})
    (failure,) = [problem for problem in report.problems if problem.code == "fails"]
    assert "takes longer than" in failure.message


def test_a_budget_that_is_spent_is_said_so() -> None:
    workflow, schemas = flow({"$START": [to("a")], "a": [to("a"), to("$END")]})
    report = rehearse(workflow, schemas, max_steps=10)
    assert report.steps == 10
    assert ("gave-up", "sample") in codes(report)
    assert ("gave-up", "sample") in codes(rehearse(workflow, schemas, seconds=0))


def test_a_schema_that_is_not_there_is_a_finding() -> None:
    workflow, _ = flow({"$START": [to("a")], "a": [to("$END")]})
    assert codes(rehearse(workflow, {}))[0] == ("no-output", "a")


def test_the_report_is_plain_json_with_every_edge_role_and_condition() -> None:
    graph, conditions, _ = SOUND["a loop by a boolean"]
    value = rehearsed(graph, conditions).to_json()
    assert json.loads(json.dumps(value)) == value
    assert value["coverage"] == {"taken": 4, "edges": 4, "percent": 100}
    assert value["edges"][2] == {"from": "b", "to": "a", "status": None, "condition": "no", "taken": 1}
    assert [role["role"] for role in value["roles"]] == ["a", "b"]
    assert value["conditions"][0]["condition"] == "no"
    assert value["workflow"] == "sample" and value["runs"] >= 1 and value["steps"] >= 4


names = st.sampled_from(["a", "b", "c"])
edges = st.lists(
    st.builds(to, names | st.just("$END"), st.sampled_from([None, "ok", "no", "three", "odd"])), max_size=3
)
graphs = st.dictionaries(names | st.just("$START"), edges, max_size=4)
CONDITIONS = {
    "ok": "steps[-1].output.ok",
    "no": "steps[-1].output.ok = false",
    "three": "$count(steps) > 3",
    "odd": "steps[0].output.ok = 7",
}


@settings(max_examples=60)
@given(graphs)
def test_any_graph_is_rehearsed_within_bounds_and_always_alike(graph: dict[str, Any]) -> None:
    workflow, schemas = flow(graph, CONDITIONS)
    report = rehearse(workflow, schemas, max_steps=200)
    assert report.steps <= 200
    assert report.to_json() == rehearse(workflow, schemas, max_steps=200).to_json()
    assert report.ok == (not report.problems)
    if report.ok:
        assert report.percent == 100
