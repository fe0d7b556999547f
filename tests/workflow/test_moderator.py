"""Who is next: routing by condition and by status, human turns, prompts, and what can't be decided."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uwf_git.base.errors import Invalid, NoTransition
from uwf_git.format.ids import Hash
from uwf_git.format.kinds import Start, StepContext, Workflow, parse_workflow
from uwf_git.workflow.moderator import AwaitingAnswer, Decision, Next, Replay, WorkflowEnded, decide, may_read

HASH = Hash("0000000000000")
START = Start(HASH, "Fix the <login> & logout")


def workflow(
    graph: dict[str, Any], conditions: dict[str, str] | None = None, roles: str = "a b c"
) -> Workflow:
    return parse_workflow(
        {
            "name": "sample",
            "description": "",
            "roles": {
                name: {"description": "", "systemPrompt": "", "outputSchema": HASH} for name in roles.split()
            },
            "conditions": {
                name: {"description": "", "expression": text} for name, text in (conditions or {}).items()
            },
            "graph": graph,
        }
    )


def step(role: str, output: Any) -> StepContext:
    return StepContext(HASH, role, output, HASH, "uwf-rehearse")


def to(role: str, condition: str | None = None, **more: str) -> dict[str, Any]:
    return {"role": role, "condition": condition, **more}


def after(flow: Workflow, *steps: StepContext) -> Decision:
    return decide(flow, START, steps)


SOLVE = workflow(
    {
        "$START": [to("a")],
        "a": [to("b", "unclear"), to("c")],
        "b": [to("c")],
        "c": [to("b", "rejected"), to("$END")],
    },
    {"unclear": "$exists(steps[-1].output.question)", "rejected": "steps[-1].output.approved = false"},
)


def test_the_first_role_is_the_one_start_leads_to() -> None:
    assert after(SOLVE) == Next("a", None, None)


def test_the_first_condition_that_holds_wins_and_no_condition_is_the_fallback() -> None:
    assert after(SOLVE, step("a", {"question": "?"})) == Next("b")
    assert after(SOLVE, step("a", {"plan": "x"})) == Next("c")
    assert after(SOLVE, step("c", {"approved": False})) == Next("b")
    assert after(SOLVE, step("c", {"approved": True})) == WorkflowEnded()


def test_a_condition_can_count_over_the_history() -> None:
    flow = workflow(
        {"$START": [to("a")], "a": [to("$END", "enough"), to("a")]},
        {"enough": '$count(steps[role="a"]) >= 3'},
    )
    turns = [step("a", {"idea": n}) for n in range(4)]
    decisions = [after(flow, *turns[:n]) for n in range(1, 5)]
    assert decisions == [Next("a"), Next("a"), WorkflowEnded(), WorkflowEnded()]


def test_no_condition_and_no_edge_sees_a_remark() -> None:
    flow = workflow(
        {"$START": [to("a")], "a": [to("$END", "enough"), to("a", prompt="{{ idea }}")]},
        {"enough": "$count(steps) >= 2 or steps[-1].role != 'a'"},
    )
    turns = [step("a", {"idea": "one"}), *[step("$USER", {"remark": "Two?"})] * 3]
    decisions = [after(flow, *turns[:n]) for n in range(1, 5)]
    assert decisions == [Next("a", "one")] * 4
    assert after(flow, *turns, step("a", {"idea": "two"})) == WorkflowEnded()
    assert after(SOLVE, step("$USER", {"remark": "Hurry."})) == Next("a")
    growing: list[StepContext] = []
    replay = Replay(flow, START, growing)
    for each in turns:
        growing.append(each)
        assert decide(flow, START, growing, replay) == Next("a", "one")
    growing.append(step("a", {"idea": "two"}))
    assert decide(flow, START, growing, replay) == WorkflowEnded()


def test_conditions_see_the_prompt_the_roles_and_the_agents() -> None:
    flow = workflow(
        {"$START": [to("b", "urgent"), to("a")], "a": [to("$END", "mine"), to("c")]},
        {
            "urgent": '$contains(start.prompt, "URGENT")',
            "mine": f'steps[0].agent = "uwf-rehearse" and steps[0].detail = "{HASH}" and start.workflow = "{HASH}"',
        },
    )
    assert after(flow) == Next("a")
    assert decide(flow, Start(HASH, "URGENT: x"), []) == Next("b")
    assert after(flow, step("a", {})) == WorkflowEnded()


def test_status_routing_takes_the_named_edge_before_the_default() -> None:
    flow = workflow(
        {
            "$START": {"_": {"role": "a"}},
            "a": {"_": {"role": "c"}, "done": {"role": "$END"}, "again": {"role": "b"}},
        }
    )
    assert after(flow) == Next("a")
    assert after(flow, step("a", {"status": "done"})) == WorkflowEnded()
    assert after(flow, step("a", {"status": "again"})) == Next("b")
    assert after(flow, step("a", {"$status": "again", "status": "done"})) == Next("b")
    for other in ({"status": "else"}, {"status": 7}, {}, [], None, "done"):
        assert after(flow, step("a", other)) == Next("c")


def test_an_edge_renders_its_prompt_and_location_exactly() -> None:
    flow = workflow(
        {
            "$START": {"_": {"role": "a", "prompt": "Task: {{ prompt }}/{{ start.prompt }}"}},
            "a": {
                "bad": {
                    "role": "b",
                    "prompt": "Fix {{ comments }} for {{ start.prompt }}\n",
                    "location": "{{ repo }}/src",
                }
            },
        }
    )
    assert after(flow) == Next("a", "Task: Fix the <login> & logout/Fix the <login> & logout", None)
    output = {"status": "bad", "comments": "a < b\r\n& c", "repo": "/srv/x", "start": "hidden"}
    expected = Next("b", "Fix a < b\r\n& c for Fix the <login> & logout\n", "/srv/x/src")
    assert after(flow, step("a", output)) == expected


@pytest.mark.parametrize("what", ["prompt", "location"])
def test_an_instruction_that_is_empty_when_rendered_is_none(what: str) -> None:
    flow = workflow({"a": {"bad": {"role": "b", what: " {{ text }}\n"}}})
    assert after(flow, step("a", {"status": "bad", "text": "x"})) != Next("b")
    for output in ({"status": "bad", "text": "\t"}, {"status": "bad"}):
        assert after(flow, step("a", output)) == Next("b")


def test_a_variable_the_output_lacks_prints_nothing() -> None:
    flow = workflow({"a": [to("b", prompt="do {{ task }}.")], "b": [to("c", prompt="{{ prompt }}")]})
    assert after(flow, step("a", {"other": 1})) == Next("b", "do .")
    assert after(flow, step("a", "just text")) == Next("b", "do .")
    assert after(flow, step("b", {})) == Next("c"), "the start's is start.prompt by now"


ANSWERS = {
    "---\n$status: done\n---\n\n# Report\n\n- a\n---\n- b\n": "# Report\n\n- a\n---\n- b",
    "\ufeff\r\n---\r\nstatus: ok\r\n---\r\nOne\r\nTwo\r\n": "One\nTwo",
    "Here it is:\n```yaml\n---\nok: true\n---\n```\nText": "Text",
    "```markdown\n---\nok: true\n---\nText\n```": "Text",
    '```json\n{"ok": true}\n```\n\nText': "Text",
    "---\nok: true\n---\n": "",
    "---\nok: true\n...": "",
    '{"ok": true}\n': "",
    "No block.\n---\nProse between rules\n---\nEnd": "No block.\n---\nProse between rules\n---\nEnd",
    "Just text\n": "Just text",
    "": "",
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_the_body_is_what_stands_below_the_fields(answer: str) -> None:
    flow = workflow({"a": [to("b", prompt="{{ _body }}")]})
    assert after(flow, step("a", {"ok": True})._replace(answer=answer)) == Next("b", ANSWERS[answer] or None)
    own = step("a", {"_body": "a field"})._replace(answer=answer)
    assert after(flow, own) == Next("b", "a field"), "a field of that name is nearer"


def test_an_expression_that_names_them_is_given_the_answer_and_the_time_of_a_step() -> None:
    edges = {"a": [to("b", "told"), to("c")], "b": [to("a", "late"), to("$END")], "c": [to("$END", "all")]}
    told = workflow(edges, {"told": '$contains(steps[-1].content, "yes")', "late": "steps[-1].timestamp > 5"})
    said = step("a", {})._replace(answer="I say yes.", time=7)
    assert after(told, said) == Next("b")
    assert after(told, said._replace(answer="I say no.")) == Next("c")
    assert after(told, said, step("b", {})._replace(time=6)) == Next("a")
    assert after(told, said, step("b", {})._replace(time=4)) == WorkflowEnded()
    silent = workflow(edges, {"told": "$count($keys(steps[-1])) > 4", "late": "false"})
    assert after(silent, said) == Next("c"), "other expressions see what they always saw"


def test_a_prompt_on_the_way_to_the_end_is_nobodys() -> None:
    assert after(workflow({"a": [to("$END", prompt="{{ missing }}")]}), step("a", {})) == WorkflowEnded()


@pytest.mark.parametrize("key", [{"$status": "$SUSPEND"}, {"status": "needs_input"}])
def test_an_output_that_asks_a_human_waits(key: dict[str, str]) -> None:
    output = {**key, "question": "which?", "options": ["x", "y"], "reason": "two ways"}
    assert after(SOLVE, step("a", output)) == AwaitingAnswer("a", "which?", ("x", "y"), "two ways")
    assert after(SOLVE, step("a", {**key, "question": "q"})) == AwaitingAnswer("a", "q", (), "")
    assert after(SOLVE, step("a", {**key, "reason": "no key"})) == AwaitingAnswer("a", "no key", (), "")


def test_the_answer_goes_to_the_role_that_asked() -> None:
    question = step("b", {"$status": "$SUSPEND", "question": "which?"})
    answer = step("$USER", {"answer": "the <left> one"})
    assert after(SOLVE, step("a", {}), question, answer) == Next("b", "the <left> one", None)
    assert after(SOLVE, question, answer, step("$USER", {"answer": "no, right"})) == Next(
        "b", "no, right", None
    )
    assert after(SOLVE, question, answer, step("b", {"ok": 1})) == Next("c")


def test_what_the_user_says_unasked_goes_to_the_role_that_the_start_names() -> None:
    graph = {
        "$START": {
            "_": {"role": "a"},
            "resume": {"role": "b", "prompt": "Go on with {{ start.prompt }}", "location": "{{ nowhere }}"},
        },
        "a": [to("$END")],
        "b": [to("$END")],
    }
    flow = workflow(graph)
    said = step("$USER", {"answer": "and the tests"})
    expected = Next("b", "Go on with Fix the <login> & logout\n\nand the tests")
    assert after(flow) == Next("a")
    assert after(flow, step("a", {}), said) == expected
    assert after(flow, step("a", {"x": 1}), said, said._replace(output={"answer": "y"})) != expected
    assert after(flow, said) == expected, "of a thread that was killed before its first step"
    asked = step("a", {"$status": "$SUSPEND", "question": "?"})
    assert after(flow, asked, said) == Next("a", "and the tests")
    silent = workflow({**graph, "$START": {"_": {"role": "a"}, "resume": {"role": "b"}}})
    assert after(silent, step("a", {}), said) == Next("b", "and the tests")
    over = workflow({**graph, "$START": {"_": {"role": "a"}, "resume": {"role": "$END"}}})
    assert after(over, step("a", {}), said) == WorkflowEnded()


def test_an_answer_to_nobody_is_an_error() -> None:
    for steps in ([], [step("a", {})]):
        with pytest.raises(Invalid, match="without a question") as caught:
            after(SOLVE, *steps, step("$USER", {"answer": "x"}))
        assert "resume" in caught.value.hint
    with pytest.raises(Invalid, match="answer"):
        after(SOLVE, step("a", {"$status": "$SUSPEND", "question": "?"}), step("$USER", {"text": "x"}))


def test_no_matching_edge_names_role_output_and_what_was_tried() -> None:
    flow = workflow(
        {
            "$START": [to("a", "never")],
            "a": [to("b", "never"), to("c", "nope")],
            "b": {"done": {"role": "$END"}, "again": {"role": "a"}},
        },
        {"never": "false", "nope": "steps[-1].output.x = 2"},
    )
    with pytest.raises(NoTransition) as caught:
        after(flow, step("a", {"x": 1, "long": "z" * 5000}))
    assert "sample" in caught.value.message
    assert 'from a with the output {"x": 1' in caught.value.message
    assert "condition never; condition nope" in caught.value.message
    assert len(caught.value.message) < 500
    with pytest.raises(NoTransition, match="status done, again"):
        after(flow, step("b", {"status": "lost"}))
    with pytest.raises(NoTransition, match=r"START.*condition never"):
        after(flow)
    with pytest.raises(NoTransition, match="the graph has none for it"):
        after(flow, step("c", {}))


def test_an_old_workflow_with_a_role_or_condition_that_is_not_defined_is_told_apart() -> None:
    flow = workflow(
        {"$START": [to("reviewr")], "a": [to("b", "aproved")]}, {"approved": "true"}, "reviewer a b"
    )
    with pytest.raises(Invalid, match=r"edge of \$START leads to reviewr") as caught:
        after(flow)
    assert "reviewer" in caught.value.hint
    with pytest.raises(Invalid, match="condition aproved, which is not defined") as caught:
        after(flow, step("a", {}))
    assert "approved" in caught.value.hint


def test_a_condition_that_fails_is_named_with_the_reason() -> None:
    flow = workflow({"a": [to("b", "broken")]}, {"broken": "1 / 0"})
    with pytest.raises(Invalid, match=r"workflow sample: condition broken: .*1 / 0.*divides by zero"):
        after(flow, step("a", {}))


def test_conditions_after_the_one_that_holds_are_not_evaluated() -> None:
    flow = workflow({"a": [to("b", "yes"), to("c", "broken")]}, {"yes": "true", "broken": "1 / 0"})
    assert after(flow, step("a", {})) == Next("b")


def test_status_routing_loads_neither_expressions_nor_templates() -> None:
    program = (
        "import sys\n"
        "from uwf_git.workflow.moderator import Next, decide\n"
        "from uwf_git.format.kinds import Role, Start, StepContext, Transition, Workflow\n"
        "edges = {'a': (Transition('b', None, 'x', 'do {{ y }}'), Transition('$END'))}\n"
        "flow = Workflow('w', '', {'b': Role('b', '', 'H')}, {}, edges)\n"
        "step = StepContext('H', 'a', {'status': 'x', 'y': 'it'}, 'H', 'agent')\n"
        "assert decide(flow, Start('H', 'p'), [step]) == Next('b', 'do it', None)\n"
        "heavy = {'jsonata', 'liquid', 'jsonschema', 'pygit2', 'httpx', 'sqlite3', 'yaml'} & sys.modules.keys()\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


roles = st.sampled_from(["a", "b", "c"])
statuses = st.sampled_from(["x", "y", "_"])
graphs = st.dictionaries(
    st.sampled_from(["$START", "a", "b", "c"]),
    st.dictionaries(statuses, st.fixed_dictionaries({"role": roles | st.just("$END")}), max_size=3),
)
outputs = st.fixed_dictionaries({}, optional={"status": st.sampled_from(["x", "y", "z", "needs_input"])})


@given(graphs, st.lists(st.tuples(roles | st.just("$USER"), outputs), max_size=4))
def test_the_same_history_always_leads_to_the_same_decision(
    graph: dict[str, Any], history: list[tuple[str, dict[str, str]]]
) -> None:
    flow = workflow(graph)
    steps = [step(role, {"answer": "a", **output}) for role, output in history]

    def outcome() -> object:
        try:
            return after(flow, *steps)
        except (Invalid, NoTransition) as error:
            return type(error), error.message

    first = outcome()
    assert first == outcome()
    if isinstance(first, Next):
        assert first.role in flow.roles


@pytest.mark.parametrize(
    ("condition", "prompt", "expected"),
    [
        ("steps[-1].output.approved = false", "Fix the title: {{ comments }}.", {"approved", "comments"}),
        ("$exists(steps[role='a'].output.`risk level`)", "", {"risk level"}),
        ("$lookup(steps[-1].output, 'ti' & 'tle') = 1", "", None),
        ("$count(steps[-1].output.*) > 2", "", None),
        ("$contains($string(steps), 'title')", "", None),
        ("'a' in steps.output.tags", "{% if title %}x{% endif %}", {"tags", "title"}),
    ],
)
def test_what_a_workflow_may_read_of_an_output_is_told_by_its_texts(
    condition: str, prompt: str, expected: set[str] | None
) -> None:
    edge = to("b", "asked", **({"prompt": prompt} if prompt else {}))
    flow = workflow({"$START": [to("a")], "a": [edge, to("$END")]}, {"asked": condition})
    names = {"approved", "comments", "title", "tags", "risk level", "mood"}
    assert {name for name in names if may_read(flow)(name)} == (names if expected is None else expected)
