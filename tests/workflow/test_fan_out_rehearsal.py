"""A rehearsal walks fan-outs: branches, joins of all kinds, and what may come after them."""

from __future__ import annotations

from typing import Any

import pytest
from fan_outs import LISTS_FILES

from uwf_git.api.run import Options, run
from uwf_git.format.kinds import Start
from uwf_git.git.repository import Oid
from uwf_git.store.instance import Instance
from uwf_git.workflow.compile import compile_source, foresee
from uwf_git.workflow.rehearsal import Report, rehearse
from uwf_git.workflow.source import parse_source

BASE = (
    LISTS_FILES
    + """\
      properties: {files: {type: array, items: {type: object, properties: {path: {type: string}}, required: [path]}}}
      required: [files]
  fixer:
    description: Fixes one.
    systemPrompt: Fix.
    outputSchema:
      type: object
      properties: {status: {enum: [done, skipped, broken]}, lines: {type: integer}}
      required: [status, lines]
  checker:
    description: Checks one.
    systemPrompt: Check.
    outputSchema: {type: object, properties: {ok: {type: boolean}}, required: [ok]}
  reviewer:
    description: Reviews.
    systemPrompt: Review.
    outputSchema: {type: object, properties: {ok: {type: boolean}}, required: [ok]}
conditions: {c: {description: c, expression: CONDITION}}
graph:
  $START: [{role: planner}]
  planner: [{EACH, as: file, FAN}]
  fixer: {done: checker, _: FIXED}
  checker: [{role: reviewer}]
  reviewer: [{role: $END}]
"""
)
BY_CONDITION = "role: fixer, join: [{role: reviewer, condition: c}, {role: $END}]"
PLAIN = "role: fixer, join: reviewer"


def compiled(fan: str, condition: str = "", each: str = "each: $last().files", fixed: str = "$END") -> Any:
    text = BASE.replace("FIXED", fixed).replace("FAN", fan).replace("EACH", each)
    text = text.replace("CONDITION", f"'{condition}'") if condition else text.replace(
        "conditions: {c: {description: c, expression: CONDITION}}\n", ""
    )  # fmt: skip
    return compile_source(parse_source(text.encode(), "audit.yaml", None))


def walk(*parts: str, **more: str) -> Report:
    made = compiled(*parts, **more)
    return rehearse(made.workflow, made.schemas)


def codes(report: Report) -> list[tuple[str, str]]:
    return [(each.code, each.where) for each in report.problems if not each.follows]


def test_a_fan_out_its_branches_and_its_join_are_covered() -> None:
    report = walk(PLAIN)
    assert report.ok and report.percent == 100
    assert [(edge.source, edge.target) for edge in report.edges if edge.taken] == [
        ("$START", "planner"),
        ("planner", "each file: fixer"),
        ("$JOIN of planner", "reviewer"),
        ("fixer", "checker"),
        ("fixer", "$END"),
        ("checker", "reviewer"),
        ("reviewer", "$END"),
    ]
    assert all(report.roles.values())


POSSIBLE = {
    "no branch": "$count(branches) = 0",
    "one branch": "$count(branches) = 1",
    "more than some": "$count(branches) > 7",
    "all alike": '$count(branches[output.status = "skipped"]) = $count(branches) and $count(branches) > 1',
    "a mixture": '"broken" in branches.output.status and $count(branches[output.ok]) > 1',
    "one of many": "$count(branches[output.ok = false]) = 1 and $count(branches) > 2",
    "a killed one": 'branches[0].status = "killed" and branches[1].status = "completed"',
    "an unusual number": "$exists(branches[output.lines > 1000])",
    "the step of the join": '$count(steps[-1].output.branches[status = "completed"]) > 3',
    "the fork": '$count(steps[role = "$FORK"][-1].output.items) = 3',
}


@pytest.mark.parametrize("name", POSSIBLE)
def test_a_condition_over_branches_comes_out_both_ways(name: str) -> None:
    report = walk(BY_CONDITION, POSSIBLE[name])
    assert codes(report) == []
    [use] = report.conditions
    assert use.true and use.false


IMPOSSIBLE = {
    "a failure that stays open": 'branches[0].status = "failed"',
    "a branch left out of all": 'branches[0].status = "left"',
    "a status that no role has": 'branches[0].output.status = "finished"',
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_a_condition_that_no_join_meets_is_found(name: str) -> None:
    assert codes(walk(BY_CONDITION, IMPOSSIBLE[name])) == [("condition-never-true", "c")]


@pytest.mark.parametrize(
    ("policy", "fixed", "condition"),
    [
        ("onFailure: drop, ", "$END", '"failed" in branches.status'),
        ("", "$FAIL", '"failed" in branches.status'),
        ("need: first, ", "$END", 'branches[0].status = "left"'),
        ("need: first, ", "$END", 'branches[-1].status = "left"'),
    ],
)
def test_the_policy_says_how_branches_may_end(policy: str, fixed: str, condition: str) -> None:
    assert codes(walk(policy + BY_CONDITION, condition, fixed=fixed)) == []


def test_only_as_many_branches_as_the_workflow_names_are_joined() -> None:
    assert codes(walk(BY_CONDITION, "$count(branches) > 2", each="each: [1, 2]")) == [
        ("condition-never-true", "c")
    ]
    assert codes(walk(BY_CONDITION, "$count(branches) > 2", each="each: [1, 2, 3]")) == [
        ("condition-never-false", "c")
    ]


def test_outputs_of_other_workflows_are_not_judged() -> None:
    report = walk(
        "join: [{role: reviewer, condition: c}, {role: $END}]",
        "$count(branches[output.verdict = \"yes\"]) > 1",
        each="each: [{workflow: judge}, {role: fixer}]",
    )  # fmt: skip
    assert codes(report) == [] and report.percent == 100


def test_a_join_that_leads_back_ends() -> None:
    report = walk(
        "role: fixer, join: [{role: planner, condition: c}, {role: reviewer}]",
        "$count(branches[output.ok]) < 2",
    )
    assert codes(report) == [] and report.percent == 100


PROBLEMS = {
    "never an item": (
        {"fan": PLAIN, "each": "each: '$last().files[$length(path) > 9999]'"},
        "no-items", "planner -> each file: fixer", 29,
    ),
    "a failing expression": (
        {"fan": PLAIN, "each": "each: '$error(\"no\")'"}, "fails", "planner -> each file: fixer", 29
    ),
    "a failing prompt": (
        {"fan": "prompt: '{{ index | divided_by: 0 }}', " + PLAIN}, "fails", "planner -> each file: fixer", 29
    ),
    "a failing prompt of the join": (
        {"fan": "role: fixer, join: {role: reviewer, prompt: '{{ branches.size | divided_by: 0 }}'}"},
        "fails", "$JOIN of planner -> reviewer", 29,
    ),
    "no edge after the join": (
        {"fan": "role: fixer, join: [{role: reviewer, condition: c}]", "condition": "$count(branches) > 0"},
        "dead-end", "$JOIN of planner", 30,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_problem_names_the_edge_and_its_line(name: str) -> None:
    parts, code, where, line = PROBLEMS[name]
    made = compiled(**parts)
    report = rehearse(made.workflow, made.schemas)
    assert codes(report) == [(code, where)]
    [finding] = foresee(made)
    assert finding.line == line


def test_more_items_than_a_fan_out_wants_are_no_problem() -> None:
    assert codes(walk("max: 1, " + PLAIN)) == []


def test_a_rehearsal_of_fan_outs_is_always_the_same() -> None:
    first, second = (walk(BY_CONDITION, POSSIBLE["a mixture"]).to_json() for _ in range(2))
    assert first == second


NESTED = """\
version: 1
name: nested
description: Works by folder and file until all agree.
roles:
  planner:
    {description: d, systemPrompt: s, outputSchema: {type: object, properties: {dirs: {type: array, items: {type: string}}}, required: [dirs]}}
  lister:
    {description: d, systemPrompt: s, outputSchema: {type: object, properties: {files: {type: array, items: {type: string}}}, required: [files]}}
  fixer:
    {description: d, systemPrompt: s, outputSchema: {type: object, properties: {status: {enum: [no, yes, later]}}, required: [status]}}
conditions:
  agree: {description: All agree., expression: '$count(branches[output.status != "yes"]) = 0 and $count(branches) > 0'}
graph:
  $START: [{role: planner}]
  planner: [{each: $last().dirs, as: dir, role: lister, prompt: "{{ dir }}", join: $END}]
  lister: [{each: $last().files, as: file, role: fixer, prompt: "{{ dir }}/{{ file }}", join: [{role: $END, condition: agree}, {role: lister}]}]
"""  # noqa: E501


def test_nested_fan_outs_that_loop_are_rehearsed_and_run_to_their_end(instance: Instance) -> None:
    made = compile_source(parse_source(NESTED.encode(), "nested.yaml", None))
    report = rehearse(made.workflow, made.schemas)
    assert report.ok and report.percent == 100
    version = instance.registry.put(made)
    thread = instance.threads.start(Oid(hex=version.commit), Start(version.hash, "Work"))
    steps_left = iter(range(100))
    options = Options("uwf-rehearse", hooks=False)
    list(run(instance, thread, lambda: None if next(steps_left, None) is None else options))
    head = instance.threads.head(thread)
    assert head.archive is not None and head.archive.status == "completed"
    steps = instance.threads.history(head).steps
    assert [step.role for step in steps] == ["planner", "$FORK", "$JOIN"]
    inner = steps[-1].output["branches"][0]["output"]["branches"]
    assert [each["output"]["status"] for each in inner] == ["yes", "yes"]
