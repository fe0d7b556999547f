"""Mermaid, Graphviz and the Markdown page, with names and texts that try to break out."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from uwf_git.api.cockpit.graph import graph_value
from uwf_git.base.markdown import code, inline, paragraphs
from uwf_git.ext.web.page.graph import drawing
from uwf_git.format.ids import Hash
from uwf_git.format.kinds import Condition, Role, Transition, Workflow, parse_workflow
from uwf_git.workflow.compile import compile_source
from uwf_git.workflow.diagram import dot, mermaid, readme
from uwf_git.workflow.source import parse_source, read_source

EXAMPLES = Path(__file__).parents[2] / "examples"

HOSTILE = [
    "a|b", "a`b", "``` \n# out", "<script>alert(1)</script>", "<!--", '"]; x --> y', "a\nb\r\nc", "\x1b[31mred\x1b[0m",
    "\x00", "%%{init: {}}%%", "end", "click a href", "#quot;", "&lt;", "[x](http://x.invalid)", "![x](y)", "**b**",
    "_i_", "~~s~~", "$x$", "@someone", "#1", "\\", "a\\|b", "\u202egnp.exe", "]]>", "{{ x }}", "| --- |", "- item",
    "1. item", "> quote", "===", "    code", "`", "``", "x" * 5000, "http://x.invalid", "<http://x.invalid>", "&amp;",
    "a\u2028b",
]  # fmt: skip
texts = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(max_size=30),
    st.text("|`<>[]()*_\\\n\"'#&;$%{}-=>!~@ ab1.", max_size=20),
)

ID = r"(?:start|finish|role\d+)"
LABEL = r'"[^"\n<>`\[\]{}|\\%&]+"'
MERMAID = re.compile(
    rf'    {ID}\[{LABEL}\]|    {ID}\(\["\$(?:START|END)"\]\)|    {ID} -->(?:\|{LABEL}\|)? {ID}'
)
STRING = r'"(?:[^"\\\n]|\\["\\])*"'
DOT = re.compile(
    rf"    node \[shape=box, style=rounded\];|    {ID} \[label={STRING}(?:, shape=oval)?\];"
    rf"|    {ID} -> {ID}(?: \[label={STRING}\])?;"
)

PARTS = "heading paragraph table thead tbody tr th td"
HARMLESS = {f"{part}_{end}" for part in PARTS.split() for end in ("open", "close")}
HARMLESS |= {"inline", "text", "text_special", "code_inline", "fence"}


def workflow(name: str, role: str, text: str, label: str) -> Workflow:
    return Workflow(
        name,
        text,
        {
            role: Role(role, text, Hash("0" * 13), system_prompt=text),
            "other": Role("other", "", Hash("1" * 13), goal=text),
        },
        {label: Condition(label, text, text)},
        {
            "$START": (Transition(role),),
            role: (Transition("other", condition=label), Transition("$END")),
            "other": (Transition(role, status=text or "x"), Transition("$END")),
        },
    )


def page_of(markdown: str) -> list[Any]:
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(markdown)
    return [inner for token in tokens for inner in (token, *(token.children or ()))]


def shown(markdown: str) -> str:
    """What a reader sees."""
    return "".join(
        token.content if token.type in ("text", "text_special", "code_inline") else ""
        for token in page_of(markdown)
        if not token.children
    )


def test_the_way_from_the_start_and_that_from_an_end_are_told_apart() -> None:
    edges = {"$START": (Transition("b", status="resume"), Transition("a")), "a": (Transition("$END"),)}
    role = {name: Role(name, "Works", Hash("0" * 13)) for name in ("a", "b")}
    drawn = mermaid(Workflow("w", "", role, {}, edges)).splitlines()
    assert drawn[-3:-1] == ['    start -->|"new"| role1', '    start -->|"resume"| role2']


def test_the_diagram_of_the_example_is_the_graph() -> None:
    made = compile_source(read_source(EXAMPLES / "solve-issue.yaml")).workflow
    assert (
        mermaid(made)
        == """\
flowchart TD
    start(["$START"])
    role1["planner"]
    role2["developer"]
    role3["reviewer"]
    finish(["$END"])
    start --> role1
    role1 --> role2
    role2 --> role3
    role3 -->|"notApproved"| role2
    role3 -->|"otherwise"| finish
"""
    )
    assert (
        dot(made)
        == """\
digraph "solve-issue" {
    node [shape=box, style=rounded];
    start [label="$START", shape=oval];
    role1 [label="planner"];
    role2 [label="developer"];
    role3 [label="reviewer"];
    finish [label="$END", shape=oval];
    start -> role1;
    role1 -> role2;
    role2 -> role3;
    role3 -> role2 [label="notApproved"];
    role3 -> finish [label="otherwise"];
}
"""
    )


def test_the_page_has_roles_with_their_answers_and_conditions() -> None:
    made = compile_source(read_source(EXAMPLES / "solve-issue-status.yaml"))
    page = readme(made.workflow, made.schemas)
    assert page.startswith("# solve-issue-status\n\nPlans, implements and reviews a change")
    assert "| `developer` | Carries out the plan, or what the last review asked for. |" in page
    assert "| `done`, `plan_fails`; `filesChanged`, `summary` |" in page
    assert "## Conditions" not in page
    made = compile_source(read_source(EXAMPLES / "review-loop.yaml"))
    assert '| `$count(steps[role = "critic"]) >= 4` |' in readme(made.workflow, made.schemas)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_page_of_a_node_read_back_is_the_page_of_its_file(path: Path) -> None:
    made = compile_source(read_source(path))
    stored = json.loads(json.dumps([made.payload, made.schemas], sort_keys=True))
    again = parse_workflow(stored[0])
    assert readme(again, stored[1]) == readme(made.workflow, made.schemas)
    assert dot(again) == dot(made.workflow)


def test_a_schema_that_is_missing_leaves_a_gap_and_not_an_error() -> None:
    made = compile_source(read_source(EXAMPLES / "analyse.yaml"))
    assert "| `analyst` | Examines what the task names and reports what it found. |  |" in readme(
        made.workflow, {}
    )


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_breaks_out_of_a_diagram(text: str) -> None:
    made = workflow(text, text, text, text)
    head, *lines = mermaid(made).splitlines()
    assert head == "flowchart TD"
    assert all(MERMAID.fullmatch(line) for line in lines), lines
    head, *lines, tail = dot(made).splitlines()
    assert re.fullmatch(rf"digraph {STRING} {{", head) and tail == "}"
    assert all(DOT.fullmatch(line) for line in lines), lines
    assert all(line.isprintable() for line in lines)


@settings(max_examples=150)
@given(texts, texts.filter(lambda role: role not in ("other", "$START", "$END")), texts, texts)
def test_nothing_breaks_out_of_the_page(name: str, role: str, text: str, label: str) -> None:
    schema = {"type": "object", "properties": {label: {}, "status": {"enum": [text]}}}
    page = readme(workflow(name, role, text, label), {Hash("0" * 13): schema})
    assert all(line.isprintable() for line in page.split("\n"))
    tokens = page_of(page)
    kinds = Counter(token.type for token in tokens)
    assert kinds["fence"] == 1 and kinds["table_open"] == 2
    assert kinds.keys() <= HARMLESS, kinds.keys() - HARMLESS
    assert (kinds["heading_open"], kinds["tr_open"], kinds["td_open"]) == (3, 5, 9)


@pytest.mark.parametrize("text", [text for text in HOSTILE if text.isprintable() and len(text) < 100])
def test_text_is_shown_as_it_was_written(text: str) -> None:
    for markdown in (inline(text), paragraphs(text), code(text).replace("\\|", "|")):
        assert shown(markdown).strip() == " ".join(text.split())


def test_a_long_text_is_cut_and_paragraphs_stay() -> None:
    assert len(inline("x" * 5000)) == 300
    assert paragraphs("one\ntwo\n\n \nthree") == "one two\n\nthree"


FANNING = """\
version: 1
name: audit
description: Audits files.
roles:
  planner: {description: d, systemPrompt: s, outputSchema: {type: object, properties: {files: {type: array}}}}
  fixer: {description: d, systemPrompt: s, outputSchema: {type: object, properties: {ok: {type: boolean}}}}
  checker: {description: d, systemPrompt: s, outputSchema: {type: object, properties: {ok: {type: boolean}}}}
  reviewer: {description: d, systemPrompt: s, outputSchema: {type: object, properties: {ok: {type: boolean}}}}
conditions:
  none: {description: No file., expression: '$count(steps[-1].output.files) = 0'}
  bad: {description: Some failed., expression: '$count(branches[output.ok = false]) > 0'}
graph:
  $START: [{role: planner}]
  planner:
    - {role: $END, condition: none}
    - each: [{role: fixer}, {workflow: fix-it}]
      as: file
      need: 80%
      join: [{role: planner, condition: bad}, {role: reviewer}]
  fixer: [{role: $FAIL, condition: none}, {role: checker}]
  reviewer: [{each: [1], role: fixer, join: $END}]
"""


def fanning() -> Workflow:
    text = FANNING.replace("reviewer: [{each: [1], role: fixer, join: $END}]", "reviewer: [{role: $END}]")
    return compile_source(parse_source(text.encode(), "audit.yaml", None)).workflow


def test_a_fan_out_is_drawn_with_its_branches_and_their_join() -> None:
    assert (
        mermaid(fanning())
        == """\
flowchart TD
    start(["$START"])
    role1["planner"]
    role2["fixer"]
    workflow1[["fix-it"]]
    join1(("join"))
    role3["checker"]
    role4["reviewer"]
    finish(["$END"])
    start --> role1
    role1 -->|"none"| finish
    role1 -->|"otherwise: each file, need 80#37;"| role2
    role1 -->|"otherwise: each file, need 80#37;"| workflow1
    role2 -->|"none"| join1
    role2 -->|"otherwise"| role3
    workflow1 --> join1
    join1 -->|"bad"| role1
    join1 -->|"otherwise"| role4
    role3 --> join1
    role4 --> finish
"""
    )
    lines = dot(fanning()).splitlines()
    assert '    join1 [label="join", shape=circle];' in lines
    assert '    workflow1 [label="fix-it", peripheries=2];' in lines
    assert '    role1 -> role2 [label="otherwise: each file, need 80%"];' in lines


def test_branches_that_several_fan_outs_share_lead_to_each_join() -> None:
    made = compile_source(parse_source(FANNING.encode(), "audit.yaml", None)).workflow
    lines = mermaid(made).splitlines()
    assert "    role3 --> join1" in lines and "    role3 --> join2" in lines
    assert "    join2 --> finish" in lines and "    role4 --> join1" not in lines


def test_the_drawing_shows_how_far_the_branches_are() -> None:
    taken = ["$START", "planner", "$FORK"]
    said = graph_value(fanning(), taken, "$JOIN", branches="3 of 8 done")
    [join] = [node for node in said["nodes"] if node["now"]]
    assert (join["label"], join["turn"], join["times"]) == ("join", "3 of 8 done", 0)
    ways = {(way["source"], way["target"]): way["times"] for way in said["ways"]}
    assert ways["planner", "fixer"] == 1 and ways["$JOIN of planner, edge 1", "reviewer"] == 0
    assert "join · 3 of 8 done" in drawing(said)
    passed = graph_value(fanning(), [*taken, "$JOIN", "reviewer", "$END"])["ways"]
    assert [way["times"] for way in passed if way["source"] == "$JOIN of planner, edge 1"] == [0, 1]


def test_the_way_of_a_branch_leads_to_its_join() -> None:
    ways = graph_value(fanning(), ["$START", "fixer", "checker", "$END"])["ways"]
    assert {(way["source"], way["target"]) for way in ways if way["times"]} == {
        ("fixer", "checker"),
        ("checker", "$JOIN of planner, edge 1"),
    }
