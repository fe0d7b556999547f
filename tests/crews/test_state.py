"""What a run has reached: folded from its history, told as a document, and what is written there read back."""

from __future__ import annotations

import re
from typing import Any

import pytest
from conftest import Uwf
from crew_histories import ASKS, BEGAN, begin, plan, run, told
from forged import stepped

from uwf_git.base.errors import Invalid
from uwf_git.base.text import iso
from uwf_git.ext.crews.state import Changes, LoggedDecision, RunState, reached, read_back, render, successors
from uwf_git.format.yaml12 import load
from uwf_git.store.instance import Instance

SKETCH = ("sketch", {"summary": "A week", "artifacts": ["artifacts/goal.md"], "variables": {"cost": 20}})
AGAIN = ("check", {"summary": "No dates", "next": "again", "variables": {"dates": None}})
GOOD = ("check", {"summary": "All there", "next": "good"})
WRITE = ("write", {"summary": "Written", "artifacts": ["artifacts/goal.md", "artifacts/plan.md"]})


def fields(text: str) -> dict[str, Any]:
    found = re.match(r"---\n(.*?)^---\n", text, re.DOTALL | re.MULTILINE)
    assert found
    data: dict[str, Any] = load(found[1], "state").data
    return data


def test_a_run_is_folded_from_its_steps() -> None:
    assert reached(run()) == RunState("sketch")
    now = reached(run(SKETCH, AGAIN, SKETCH, GOOD, WRITE))
    assert now.current_node == "sketch", "what it cost is known, and too much"
    assert now.steps_completed == ("sketch", "check", "write")
    assert now.variables == {"cost": 20, "dates": None}
    assert now.artifacts == ("artifacts/goal.md", "artifacts/plan.md")
    assert now.decision_log == (
        LoggedDecision("check", "sketch", "again", "No dates", BEGAN + 120_000),
        LoggedDecision("check", "write", "good", "All there", BEGAN + 240_000),
        LoggedDecision("write", "sketch", "dear", "Written", BEGAN + 300_000),
    )


def test_a_question_completes_nothing_and_its_answer_leads_back() -> None:
    asked = reached(run(SKETCH, ("check", ASKS)))
    assert (asked.current_node, asked.steps_completed) == ("check", ("sketch",))
    assert reached(run(SKETCH, ("check", ASKS), told("In May"))) == asked
    later = reached(run(SKETCH, ("check", ASKS), told("In May"), GOOD))
    assert (later.current_node, later.steps_completed) == ("write", ("sketch", "check"))


def test_at_the_end_the_last_node_is_current_and_completed() -> None:
    end = ("end", {"summary": "Done", "variables": {"workflowStatus": "complete"}})
    cheap = ("write", {"summary": "Written", "variables": {"cost": 5}})
    now = reached(run(SKETCH, GOOD, cheap, end))
    assert now.current_node == "end"
    assert now.steps_completed[-1] == "end"
    assert now.decision_log[-1] == LoggedDecision("write", "end", "cheap", "Written", BEGAN + 180_000)


def test_who_knows_whose_turn_it_is_spares_the_moderator() -> None:
    broken = plan(conditions={"complete": {"description": "", "expression": "$nonsense("}})
    history = run(SKETCH, workflow=broken)
    assert reached(history, "check").current_node == "check"
    with pytest.raises(Invalid):
        reached(history)


def test_the_document_says_what_was_folded() -> None:
    history = run(SKETCH, AGAIN)
    now = reached(history)
    text = render(history, now, "# Plan a trip\n")
    assert text.endswith("---\n\n# Plan a trip\n")
    assert fields(text) == {
        "schemaVersion": "1.1",
        "workflowType": "plan",
        "runId": history.thread,
        "updatedAt": iso(BEGAN / 1000 + 120),
        "currentNodeId": "sketch",
        "stepsCompleted": ["sketch", "check"],
        "variables": {"cost": 20, "dates": None},
        "decisionLog": [
            {
                "from": "check",
                "to": "sketch",
                "label": "again",
                "reason": "No dates",
                "decidedAt": iso(BEGAN / 1000 + 120),
            }
        ],
        "artifacts": ["artifacts/goal.md"],
    }
    assert read_back(text, now, history.workflow) == Changes()


def changed(old: str, new: str, *steps: tuple[str, Any]) -> Changes:
    """What is read back when a text of the document at the end of some steps is replaced."""
    history = run(*steps)
    now = reached(history)
    text = render(history, now)
    assert old in text
    return read_back(text.replace(old, new, 1), now, history.workflow)


def test_what_is_written_counts_as_that_part_of_the_answer() -> None:
    wrote = changed("currentNodeId: check", "currentNodeId: write", SKETCH)
    assert wrote == Changes(next="good")
    assert wrote.added_to({"summary": "Fine"}) == {"summary": "Fine", "next": "good"}
    assert wrote.added_to({"next": "again"}) == {"next": "again"}, "the answer comes later"

    wrote = changed("  cost: 20\n", "  cost: 20.5\n  dates: [May, June]\n", SKETCH)
    assert wrote == Changes({"cost": 20.5, "dates": ["May", "June"]})
    assert wrote.added_to({"variables": {"cost": 1}})["variables"] == {"cost": 1, "dates": ["May", "June"]}

    wrote = changed("  - artifacts/goal.md\n", "  - artifacts/goal.md\n  - artifacts/b.md\n", SKETCH)
    assert wrote.added_to({"artifacts": ["artifacts/c.md"]}) == {
        "artifacts": ["artifacts/b.md", "artifacts/c.md"]
    }

    logged = "decisionLog:\n  - {from: check, to: sketch, label: again, reason: dates}\n"
    assert changed("decisionLog: []\n", logged, SKETCH) == Changes(next="again")
    assert changed("  - sketch\n", "  - sketch\n  - check\n", SKETCH) == Changes()
    assert changed("cost: 20", "cost: '20'", SKETCH).variables == {"cost": "20"}


def test_where_an_expression_decides_a_target_is_no_label() -> None:
    assert changed("currentNodeId: write", "currentNodeId: end", SKETCH, GOOD) == Changes()


def test_completed_steps_are_computed_whatever_is_written() -> None:
    assert changed("  - sketch\n", "  - check\n  - write\n", SKETCH) == Changes()


@pytest.mark.parametrize(
    ("old", "new", "says", "hint"),
    [
        (
            "currentNodeId: check",
            "currentNodeId: end",
            "line 6: no transition leads from 'check' to 'end'; those that there are lead to 'write', 'sketch'",
            "",
        ),
        ("currentNodeId: check", "currentNodeId: writ", "to 'writ'", 'did you mean "write"?'),
        ("currentNodeId: check", "currentNodeId: [check]", "line 6: currentNodeId is a list, not text", ""),
        ("currentNodeId: check", "currentNodeID: write", 'it has no field "currentNodeID"', "currentNodeId"),
        ("runId:", "mood: good\nrunId:", 'line 4: it has no field "mood"', ""),
        ("variables:\n  cost: 20", "variables: []", "variables is a list, not a mapping", ""),
        ("  - artifacts/goal.md\n", "  - {path: a}\n", "artifacts[0] is", ""),
        ("decisionLog: []", "decisionLog: [{from: write, to: end}]", "has no label", ""),
        (
            "decisionLog: []",
            "decisionLog: [{from: check, to: write, label: again}]",
            "no transition leads from 'check' to 'write' with the label 'again'; those that there are lead to",
            "",
        ),
        ("decisionLog: []", "decisionLog: [{from: check, to: end, label: x}]", "no transition leads", ""),
        ("---\n", "--\n", "doesn't begin with frontmatter", "begin it with ---"),
        ("runId:", "runId: [", "workflow.md:5:1: ", ""),
    ],
)
def test_what_cannot_be_is_refused_with_its_line(old: str, new: str, says: str, hint: str) -> None:
    with pytest.raises(Invalid) as caught:
        changed(old, new, SKETCH)
    assert says in caught.value.message
    assert "\n" not in caught.value.message
    assert hint in caught.value.hint


def test_all_that_is_wrong_is_said_at_once() -> None:
    now = reached(run(SKETCH))
    with pytest.raises(Invalid) as caught:
        read_back("---\ncurrentNodeId: end\nartifacts: 3\nmood: x\n---\n", now, plan())
    assert all(f"line {n}:" in caught.value.message for n in (2, 3, 4))


def test_a_document_that_follows_two_edges_is_refused() -> None:
    logged = "decisionLog: [{from: check, to: sketch, label: again}]\n"
    with pytest.raises(Invalid, match="line 3: it follows 'again', 'good', of which only one can be"):
        read_back(f"---\ncurrentNodeId: write\n{logged}---\n", reached(run(SKETCH)), plan())


def test_an_id_may_look_like_a_number() -> None:
    def to(role: str) -> dict[str, Any]:
        return {"role": role, "condition": None}

    named = {"1": "sketch", "2": "check"}
    graph = {"$START": [to("1")], "1": [to("2")], "2": [to("$END")]}
    roles = {name: plan().roles[role] for name, role in named.items()}
    flow = plan(graph=graph, roles={})._replace(roles=roles)
    assert successors(flow, "1") == ("2",)
    text = "---\r\nstepsCompleted: [1]\r\ncurrentNodeId: 2\r\n---\r\n"
    assert read_back(text, RunState("1"), flow) == Changes()


def test_thread_show_says_what_a_run_has_reached(instance: Instance, uwf: Uwf) -> None:
    thread = begin(instance)
    head = instance.threads.head(thread)
    assert uwf("thread", "show", thread, "--format", "json").json["state"]["currentNodeId"] == "sketch"
    for role, output in (SKETCH, GOOD):
        head = stepped(instance, head, role, output)
    shown = uwf("thread", "show", thread, "--format", "json").json["state"]
    assert shown["currentNodeId"] == "write"
    assert shown["stepsCompleted"] == ["sketch", "check"]
    assert (shown["variables"], shown["artifacts"]) == ({"cost": 20}, ["artifacts/goal.md"])
    assert [(each["from"], each["to"], each["label"]) for each in shown["decisionLog"]] == [
        ("check", "write", "good")
    ]
    told = uwf("thread", "show", thread, "--format", "text").out
    assert "check → write (good)" in told
    uwf("thread", "kill", thread)
    assert uwf("thread", "show", thread, "--format", "json").json["state"] == shown
