"""Fan-outs in a workflow: what `check` finds, what the moderator decides, and when branches may be joined."""

from __future__ import annotations

from typing import Any

import pytest
from fan_outs import LISTS_FILES

from uwf_git.base.errors import Invalid
from uwf_git.format.edges import FanOut, Transition
from uwf_git.format.fan_out import Fork, ForkedBranch, JoinedBranch, join_payload
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.kinds import Start, StepContext, Workflow
from uwf_git.format.origins import ThreadOrigin
from uwf_git.store.versions import compare
from uwf_git.workflow.check import Finding, check
from uwf_git.workflow.compile import compile_source, validate
from uwf_git.workflow.fan_out import Joinable, Pending, items_of, judge, needed
from uwf_git.workflow.moderator import (
    AwaitingBranches,
    FansOut,
    Next,
    Replay,
    WorkflowEnded,
    branch_prompt,
    decide,
    may_read,
)
from uwf_git.workflow.source import parse_source

# The edges of the planner begin in line 29.
BASE = (
    LISTS_FILES
    + """\
      properties:
        summary: {type: string}
        files: {type: array, items: {type: object, properties: {path: {type: string}}, required: [path]}}
      required: [files, summary]
      additionalProperties: false
  fixer:
    description: Fixes one.
    systemPrompt: Fix.
    outputSchema:
      type: object
      properties: {fixed: {type: boolean}}
      required: [fixed]
      additionalProperties: false
  reviewer:
    description: Reviews.
    systemPrompt: Review.
    outputSchema: {type: object, properties: {ok: {type: boolean}}, required: [ok]}
graph:
  $START: [{role: planner}]
  planner: [EDGE]
  reviewer: [{role: $END}]
"""
)
REST = "as: file, role: fixer"
ITEMS = f"each: $last().files, {REST}"
NODE = Hash("0123456789ABC")
THREAD = ThreadId("0" * 26)


def source(edge: str, more: str = "") -> str:
    return BASE.replace("EDGE", "{" + edge + "}") + more


def found(edge: str, more: str = "") -> list[Finding]:
    return check(parse_source(source(edge, more).encode(), "audit.yaml", None))


def compiled(edge: str, more: str = "") -> Workflow:
    return compile_source(parse_source(source(edge, more).encode(), "audit.yaml", None)).workflow


def condition(expression: str) -> str:
    return f"conditions: {{c: {{description: c, expression: '{expression}'}}}}\n"


BY_CONDITION = f"{ITEMS}, join: [{{role: reviewer, condition: c}}, {{role: $END}}]"
SOUND = {
    "an expression": (f"{ITEMS}, join: reviewer", ""),
    "values": ("each: [1, [2], {role: x}], role: fixer, join: {role: reviewer}", ""),
    "branches": ("each: [{role: fixer, prompt: 'Do {{ index }}'}, {workflow: fix-it}], join: reviewer", ""),
    "a body that ends at the join": (f"{ITEMS}, join: reviewer", "  fixer: [{role: reviewer}]\n"),
    "a body without edges": (f"{ITEMS}, join: reviewer", "  fixer: []\n"),
    "a body that loops": (
        BY_CONDITION,
        "  fixer: [{role: fixer, condition: c}, {role: $FAIL}]\n" + condition("steps[-1].output.fixed = false"),
    ),
    "a join that leads back": (f"{ITEMS}, join: [{{role: planner, condition: c}}, {{role: reviewer}}]", condition(
        "$count(branches[status != \"completed\"]) > 0"
    )),
    "all options": (
        f"{ITEMS}, atOnce: 8, max: 10, need: 80%, onFailure: drop, onConflict: reviewer, join: reviewer,"
        " prompt: '{{ file.path }} of {{ summary }}'",
        "",
    ),
    "an item in the body": (
        f"{ITEMS}, join: {{role: reviewer, prompt: '{{{{ branches.size }}}} {{{{ branches[0].output.fixed }}}}'}}",
        "  fixer: [{role: reviewer, prompt: '{{ file.path }} {{ index }} {{ start.item }} {{ fixed }}'}]\n",
    ),
    "branches of one role": (BY_CONDITION, condition("$count(branches[output.fixed]) > 1 and start.index != 3")),
    "a join's step": (BY_CONDITION, condition("steps[role = \"$JOIN\"][-1].output.branches[-1].output.fixed")),
}  # fmt: skip


@pytest.mark.parametrize("name", SOUND)
def test_nothing_is_found_where_nothing_is(name: str) -> None:
    assert found(*SOUND[name]) == []


# An edge and other lines, then the only finding: its line, its code, and parts of its message and hint.
MISTAKES: dict[str, tuple[str, str, int, str, str, str]] = {
    "foreach": (f"foreach: $last().files, {REST}, join: reviewer", "", 29, "unknown-key", '"foreach"', "each:"),
    "for_each": (f"for_each: $last().files, {REST}, join: reviewer", "", 29, "unknown-key", "for_each", "each:"),
    "eahc": (f"eahc: $last().files, {REST}, join: reviewer", "", 29, "unknown-key", "eahc", '"each"'),
    "at_once": (f"{ITEMS}, at_once: 3, join: reviewer", "", 29, "unknown-key", "at_once", "here it is atOnce:"),
    "concurrency": (f"{ITEMS}, concurrency: 3, join: reviewer", "", 29, "unknown-key", "concurrency", "atOnce:"),
    "on_failure": (f"{ITEMS}, on_failure: drop, join: reviewer", "", 29, "unknown-key", "on_failure", "onFailure:"),
    "reduce": (f"{ITEMS}, reduce: reviewer", "", 29, "unknown-key", "reduce", "here it is join:"),
    "no each": ("role: fixer, join: reviewer", "", 29, "missing-key", "has no each", "$last()"),
    "no join": (ITEMS, "", 29, "missing-key", "has no join", "join: ROLE"),
    "no role": ("each: [1], join: reviewer", "", 29, "missing-key", "neither role nor workflow", "role: NAME"),
    "two of what": (f"{ITEMS}, workflow: x, join: reviewer", "", 29, "two-forms", "both", "keep one"),
    "a branch without a role": (
        "each: [{role: fixer}, {prompt: x}], join: reviewer", "", 29, "missing-key", "branch 1", "role: NAME"
    ),
    "a branch as text": ("each: [{role: fixer}, fixer], join: reviewer", "", 29, "wrong-type", "branch 1", "{role:"),
    "each a number": ("each: 3, role: fixer, join: reviewer", "", 29, "wrong-type", "an expression or a list", ""),
    "an empty list": ("each: [], role: fixer, join: reviewer", "", 29, "bad-fan-out", "empty list", ""),
    "too many": ("each: [1, 2], max: 1, role: fixer, join: reviewer", "", 29, "bad-fan-out", "2 items", "raise max"),
    "max": (f"{ITEMS}, max: 20000, join: reviewer", "", 29, "bad-fan-out", "from 1 to 10,000", ""),
    "atOnce": (f"{ITEMS}, atOnce: 0, join: reviewer", "", 29, "bad-fan-out", "atOnce is not", ""),
    "need": (f"{ITEMS}, need: most, join: reviewer", "", 29, "bad-fan-out", "need is not all", "80%"),
    "need as text": (f"{ITEMS}, need: '2', join: reviewer", "", 29, "bad-fan-out", "need is not", "need: 2"),
    "need of a list": ("each: [1], need: 2, role: fixer, join: reviewer", "", 29, "bad-fan-out", "1 item", "all"),
    "onFailure": (f"{ITEMS}, onFailure: dorp, join: reviewer", "", 29, "bad-fan-out", "called 'dorp'", '"drop"'),
    "onConflict": (f"{ITEMS}, onConflict: fixr, join: reviewer", "", 29, "unknown-role", "onConflict", '"fixer"'),
    "as": ("each: [1], as: a-b, role: fixer, join: reviewer", "", 29, "bad-fan-out", "'a-b'", "letters"),
    "as a word of templates": ("each: [1], as: in, role: fixer, join: reviewer", "", 29, "bad-fan-out", "'in'", "use"),
    "an unknown role": ("each: [1], role: fixr, join: reviewer", "", 29, "unknown-role", '"fixr"', '"fixer"'),
    "an unknown join": (f"{ITEMS}, join: reviewr", "", 29, "unknown-role", '"reviewr"', '"reviewer"'),
    "a join as a list": (f"{ITEMS}, join: [reviewer]", "", 29, "wrong-type", "join must be", "{role: reviewer}"),
    "a join's end": (f"{ITEMS}, join: [{{end: failed}}]", "", 29, "unknown-key", '"end"', "role: $FAIL"),
    "an end as a branch": (
        "each: [{role: $END}, {role: fixer}], join: reviewer", "", 29, "unknown-role", "cannot begin", ""
    ),
    "an uncalled $last": (
        "each: $last.files, role: fixer, join: reviewer", "", 29, "bad-expression", "write $last()", ""
    ),
    "no JSONata": ("each: '$last().files[', role: fixer, join: reviewer", "", 29, "bad-expression", "each of", ""),
    "a missing field": (
        "each: $last().fils, role: fixer, join: reviewer", "", 29, "unknown-field", "fils", '"files"'
    ),
    "a missing field of items": (
        "each: $last().files.pth, role: fixer, join: reviewer", "", 29, "unknown-field", "files.pth", '"path"'
    ),
    "no list": ("each: $last().summary, role: fixer, join: reviewer", "", 29, "not-a-list", "one branch", ""),
    "a join without an item": (
        f"{ITEMS}, join: {{role: reviewer, prompt: '{{{{ file }}}}'}}", "", 29, "unknown-variable", "a join", "branches"
    ),
    "branches as one": (
        f"{ITEMS}, join: {{role: reviewer, prompt: '{{{{ branches.output }}}}'}}", "", 29, "unknown-variable", "a list",
        "{% for",
    ),
    "another item's name": (
        f"{ITEMS}, prompt: '{{{{ item }}}}', join: reviewer", "", 29, "unknown-variable", "item", "file"
    ),
    "an unknown condition": (
        f"{ITEMS}, join: [{{role: reviewer, condition: d}}, {{role: $END}}]", "", 29, "unknown-condition", '"d"', ""
    ),
    "a field of no branch": (
        BY_CONDITION, condition("$count(branches[output.fixd]) > 1"), 31, "unknown-field", "output.fixd", '"fixed"'
    ),
    "a status of no branch": (
        BY_CONDITION, condition('$count(branches[status = "done"]) > 1'), 31, "never-equal", "a branch", "completed"
    ),
    "all branches as one": (
        BY_CONDITION, condition('branches.status = "failed"'), 31, "list-compared", "every branch", "branches[0]"
    ),
    "no way on": (
        f"{ITEMS}, join: [{{role: reviewer, condition: c}}]", condition("branches"), 29, "no-fallback",
        "$JOIN of planner", "",
    ),
    "a body that forks again": (
        f"{ITEMS}, join: reviewer", "  fixer: [{role: planner}]\n", 29, "branch-without-exit", "fork again", "join"
    ),
    "a branch that is the join": (
        "each: [1], role: fixer, join: fixer", "", 29, "branch-without-exit", "end at once", "of their own"
    ),
    "a second entry": (
        f"{ITEMS}, condition: c, join: reviewer}}, {{role: fixer", condition("$count(steps) > 1"), 29, "entered-branch",
        '"fixer"', "of its own",
    ),
    "a way past the join": (
        f"{ITEMS}, join: [{{role: reviewer}}]", "  fixer: [{role: closer}]\n  closer: [{role: $END}]\n", 30,
        "entered-branch", '"fixer" leads there', "join",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_one_mistake_is_one_finding_with_its_line(name: str) -> None:
    edge, more, line, code, message, hint = MISTAKES[name]
    text = source(edge, more)
    if "closer" in more:
        text = text.replace("reviewer: [{role: $END}]", "reviewer: [{role: closer}]").replace(
            "graph:\n", "  closer: {description: c, systemPrompt: c, outputSchema: {type: object}}\ngraph:\n"
        )
        line += 1
    [finding] = check(parse_source(text.encode(), "audit.yaml", None))
    assert (finding.line, finding.code) == (line, code)
    assert message in finding.message and hint in finding.hint


def test_edges_by_status_and_the_start_fan_out_too(tmp_path: Any) -> None:
    by_status = source("X").replace("planner: [{X}]", f"planner: {{_: {{{ITEMS}, join: reviewer}}}}")
    begun = source("X").replace(
        "$START: [{role: planner}]", "$START: [{each: [1], role: planner, join: reviewer}]"
    )
    begun = begun.replace("  planner: [{X}]\n", "").replace(
        "reviewer: [{role: $END}]", "reviewer: [{role: fixer}]"
    )
    for text in (by_status, begun + "  fixer: [{role: $END}]\n"):
        (tmp_path / "audit.yaml").write_text(text)
        assert validate(tmp_path / "audit.yaml") == []


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ("[{each: $last().files, role: fixer, join: reviewer}]", "at $START there is none"),
        ("{new: planner, resume: {each: [1], role: fixer, join: reviewer}}", "cannot fan out"),
        ("{new: planner, resume: fixer}", '"$START" leads to "fixer"'),
    ],
)
def test_the_start_has_no_last_output_and_no_branch_to_resume(start: str, message: str) -> None:
    text = source(f"{ITEMS}, join: reviewer").replace("$START: [{role: planner}]", f"$START: {start}")
    assert any(message in each.message for each in check(parse_source(text.encode(), "a.yaml", None)))


def nested(depth: int) -> str:
    roles = "".join(
        f"  r{n}: {{description: x, systemPrompt: x, outputSchema: {{type: object}}}}\n"
        for n in range(depth + 2)
    )
    edges = "".join(
        f"  r{n}: [{{each: [1], role: r{n + 1}, join: {'$END' if n else f'r{depth + 1}'}}}]\n"
        for n in range(depth)
    )
    head = "version: 1\nname: deep\ndescription: x\nroles:\n"
    return f"{head}{roles}graph:\n  $START: [{{role: r0}}]\n{edges}  r{depth + 1}: [{{role: $END}}]\n"


def test_fan_outs_are_within_each_other_to_a_depth_of_eight() -> None:
    assert check(parse_source(nested(8).encode(), "a.yaml", None)) == []
    [finding] = check(parse_source(nested(9).encode(), "a.yaml", None))
    assert finding.code == "deep-fan-out" and "9 levels" in finding.message


def test_an_inner_branch_has_its_own_item_alone() -> None:
    text = nested(2).replace("outputSchema: {type: object}", "outputSchema: {additionalProperties: false}")
    text = text.replace("{each: [1], role: r1,", "{each: [1], as: outer, role: r1,")
    text = text.replace("{each: [1], role: r2,", "{each: [1], role: r2, prompt: '{{ outer }} {{ item }}',")
    assert check(parse_source(text.encode(), "a.yaml", None)) == []
    text += "  r2: [{role: $FAIL, prompt: '{{ item }} {{ outer }}'}]\n"
    [finding] = check(parse_source(text.encode(), "a.yaml", None))
    assert "{{ outer }}" in finding.message and "item" in finding.hint


# Policy


def fork(need: int | str, size: int, failure: str = "wait") -> Fork:
    branch = (ForkedBranch(NODE, "fixer"),)
    items = tuple(range(size))
    of_all = need == "all"
    return Fork("planner", 0, "file", items, branch, ("reviewer",), needed(need, size), of_all, failure)


@pytest.mark.parametrize(
    ("need", "size", "expected"),
    [("all", 3, 3), ("first", 3, 1), ("first", 0, 0), (2, 3, 2), (5, 3, 3), ("80%", 5, 4), ("80%", 7, 6),
     ("1%", 1, 1), ("29%", 100, 29), ("50%", 0, 0)],
)  # fmt: skip
def test_a_share_of_branches_is_rounded_up(need: int | str, size: int, expected: int) -> None:
    assert needed(need, size) == expected


@pytest.mark.parametrize(
    ("need", "failure", "states", "expected"),
    [
        ("all", "wait", "", Joinable()),
        ("all", "wait", "c.", Pending((1,))),
        ("all", "wait", "fkc", Joinable()),
        ("all", "fail", "c.f", Joinable("branch 2 has failed: broken")),
        ("all", "fail", "kcf", Joinable("branch 0 was killed")),
        ("first", "wait", "..c", Joinable()),
        ("first", "wait", "f..", Pending((1, 2))),
        ("first", "wait", "fkf", Joinable("1 of 3 branches must complete, and 3 did not")),
        (2, "drop", "cf.", Pending((2,))),
        (2, "drop", "cfc", Joinable()),
        (2, "drop", "ff.", Joinable("2 of 3 branches must complete, and 2 did not")),
        ("50%", "wait", "c.", Joinable()),
    ],
)
def test_branches_are_joined_as_the_policy_says(
    need: int | str, failure: str, states: str, expected: Pending | Joinable
) -> None:
    words = {"c": "completed", "f": "failed", "k": "killed", ".": ""}
    verdict = judge(fork(need, len(states), failure), [words[each] for each in states], {2: "broken"})
    assert verdict == expected


HISTORY = {
    "start": {"prompt": "a b"},
    "steps": [{"output": {"files": [1, 2], "one": {"x": 1}, "none": None}}],
}


@pytest.mark.parametrize(
    ("each", "items"),
    [("$last().files", (1, 2)), ("$last().one", ({"x": 1},)), ("$last().none", ()), ("$last().no", ()),
     ("$split(start.prompt, ' ')", ("a", "b")), ("steps[-1].output.files[$ > 1]", (2,)), ((1, [2]), (1, [2]))],
)  # fmt: skip
def test_items_are_those_of_an_array_or_one_value(each: Any, items: tuple[Any, ...]) -> None:
    assert items_of(FanOut(each, ()), HISTORY, "here") == items


@pytest.mark.parametrize(
    ("each", "message"),
    [("[1..201]", "201 items, more than max, 200"), ("$error('x')", "x"), (("x" * (1 << 20),), "1 MiB")],
)
def test_too_many_items_or_too_large_ones_are_refused(each: Any, message: str) -> None:
    with pytest.raises(Invalid, match=message):
        items_of(FanOut(each, ()), HISTORY, "here")


# The moderator

START = Start(NODE, "Audit")
PLANNED = StepContext(NODE, "planner", {"files": [{"path": "a"}, {"path": "b"}], "summary": "s"}, NODE, "x")


def forked(policy: Fork) -> StepContext:
    return StepContext(NODE, "$FORK", policy.payload(), NODE, "uwf")


def joined(*branches: JoinedBranch) -> StepContext:
    return StepContext(NODE, "$JOIN", join_payload(branches), NODE, "uwf")


def ended(status: str = "completed", output: Any = None) -> JoinedBranch:
    return JoinedBranch(status, THREAD, NODE, output)


def test_a_thread_forks_waits_joins_and_goes_on() -> None:
    flow = compiled(
        f"{ITEMS}, prompt: 'Fix {{{{ file.path }}}} {{{{ index }}}}', join: [{{role: planner, condition: c}}, "
        "{role: reviewer, prompt: '{% for b in branches %}{{ b.status }} {{ b.output.fixed }} {% endfor %}'}]",
        condition("$count(branches[output.fixed = false]) > 0"),
    )
    decision = decide(flow, START, [PLANNED])
    assert isinstance(decision, FansOut) and decision.items == ({"path": "a"}, {"path": "b"})
    assert branch_prompt(flow, decision.chosen, START, [PLANNED], 1, {"path": "b"}) == "Fix b 1"
    past = [PLANNED, forked(fork("all", 2))]
    assert isinstance(decide(flow, START, past), AwaitingBranches)
    well = [*past, joined(ended(output={"fixed": True}), ended("killed"))]
    badly = [*past, joined(ended(output={"fixed": True}), ended(output={"fixed": False}))]
    assert decide(flow, START, well) == Next("reviewer", "completed true killed  ")
    assert decide(flow, START, badly) == Next("planner")


def test_a_join_that_the_policy_fails_ends_the_thread_as_failed() -> None:
    flow = compiled(f"{ITEMS}, need: 2, join: reviewer")
    past = [PLANNED, forked(fork(2, 2)), joined(ended(), ended("failed"))]
    assert decide(flow, START, past) == WorkflowEnded(True, "2 of 2 branches must complete, and 1 did not")


@pytest.mark.parametrize("role", ["$FORK", "$JOIN"])
@pytest.mark.parametrize("output", [None, {}, {"branches": [1]}, {"branches": None}])
def test_a_forged_fork_or_join_is_one_error(role: str, output: Any) -> None:
    flow = compiled(f"{ITEMS}, join: reviewer")
    past = [PLANNED, *([forked(fork("all", 1))] if role == "$JOIN" else [])]
    with pytest.raises(Invalid):
        decide(flow, START, [*past, StepContext(NODE, role, output, NODE, "uwf")])


def test_a_replay_sees_branches_after_a_join_and_no_longer() -> None:
    flow = compiled(
        f"{ITEMS}, join: [{{role: planner, condition: c}}, {{role: reviewer}}]",
        condition("$exists(branches)"),
    )
    steps: list[StepContext] = []
    replay = Replay(flow, START, steps)
    for step in (PLANNED, forked(fork("all", 0)), joined()):
        steps.append(step)
        decision = decide(flow, START, steps, replay)
    assert decision == Next("planner")
    steps.append(PLANNED)
    assert "branches" not in replay.value().value


def in_branch(until: tuple[str, ...] = ("reviewer",), role: str = "fixer") -> Start:
    return Start(NODE, "Fix a", branch=ThreadOrigin(NODE, 3, "file", {"path": "a"}, role, until))


def test_a_branch_begins_at_its_role_and_ends_before_the_join() -> None:
    done = StepContext(NODE, "fixer", {"fixed": True}, NODE, "x")
    edges = {"no": None, "join": "reviewer", "end": "$END", "fail": "$FAIL"}
    for name, target in edges.items():
        more = f"  fixer: [{{role: {target}}}]\n" if target else ""
        flow = compiled(f"{ITEMS}, join: reviewer", more)
        assert decide(flow, in_branch(), []) == Next("fixer"), name
        assert decide(flow, in_branch(), [done]) == WorkflowEnded(target == "$FAIL"), name


def test_a_branch_fails_at_fail_also_if_its_join_leads_there() -> None:
    flow = compiled(
        f"{ITEMS}, join: [{{role: $FAIL, condition: c}}, {{role: reviewer}}]",
        "  fixer: [{role: $FAIL, prompt: 'No {{ file.path }}'}]\n" + condition("$count(branches) > 5"),
    )
    done = StepContext(NODE, "fixer", {"fixed": False}, NODE, "x")
    assert decide(flow, in_branch(("$FAIL", "reviewer")), [done]) == WorkflowEnded(True, "No a")


def test_templates_and_conditions_in_a_branch_see_its_item() -> None:
    flow = compiled(
        BY_CONDITION,
        "  fixer: [{role: fixer, condition: c, prompt: '{{ file.path }} {{ index }} {{ start.item.path }}'}, "
        "{role: $END}]\n" + condition('start.item.path = "a" and start.index = 3'),
    )
    done = StepContext(NODE, "fixer", {"fixed": False}, NODE, "x")
    assert decide(flow, in_branch(), [done]) == Next("fixer", "a 3 a")


def test_a_branch_that_is_resumed_goes_on_at_its_role() -> None:
    text = source(f"{ITEMS}, join: reviewer").replace(
        "$START: [{role: planner}]", "$START: {new: planner, resume: planner}"
    )
    flow = compile_source(parse_source(text.encode(), "a.yaml", None)).workflow
    done = StepContext(NODE, "fixer", {"fixed": False}, NODE, "x")
    said = StepContext(NODE, "$USER", {"answer": "Again."}, NODE, "human")
    assert decide(flow, in_branch(), [done, said]) == Next("fixer", "Again.")
    assert decide(flow, START, [PLANNED, said]) == Next("planner", "Again.")


@pytest.mark.parametrize(
    ("edge", "more", "read"),
    [
        (f"{ITEMS}, join: reviewer", "", {"files"}),
        ("each: $last(), role: fixer, join: reviewer", "", {"files", "summary", "fixed"}),
        (
            f"{ITEMS}, join: {{role: reviewer, prompt: '{{{{ branches | json }}}}'}}",
            "",
            {"files", "summary", "fixed"},
        ),
        (f"{ITEMS}, join: {{role: reviewer, prompt: branches}}", "", {"files"}),
        ("each: [{role: fixer, prompt: '{{ summary }}'}], join: reviewer", "", {"summary"}),
        (BY_CONDITION, condition("$count(branches[output.fixed])"), {"files", "fixed"}),
    ],
)
def test_fields_that_a_fan_out_may_read_are_told_by_its_texts(edge: str, more: str, read: set[str]) -> None:
    reads = may_read(compiled(edge, more))
    assert {name for name in ("files", "summary", "fixed") if reads(name)} == read


def test_a_fixed_branch_may_need_the_answer() -> None:
    edge = "each: [{role: fixer, prompt: 'TEXT'}], join: reviewer"
    assert compiled(edge.replace("TEXT", "{{ _body }}")).needs_answers
    assert not compiled(edge).needs_answers


def test_changes_of_a_fan_out_name_its_fields() -> None:
    before = compiled(f"{ITEMS}, atOnce: 2, join: reviewer")
    after = compiled(f"{ITEMS}, need: first, onFailure: drop, join: {{role: reviewer, prompt: x}}")
    [change] = compare(before, after)
    assert (change.name, change.change) == ("planner → fixer", "changed")
    assert set(change.fields) == {"atOnce", "need", "onFailure", "join"}
    assert compare(before, before) == []
    other = before._replace(graph={**before.graph, "planner": (Transition("fixer"),)})
    assert set(compare(before, other)[0].fields) == {"each", "as", "atOnce", "join"}
