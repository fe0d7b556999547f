"""What the role of a crew's workflow is told: rules, who it is, where the run is, its node; and of that only what is
new where a session goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from conftest import Uwf
from crew_histories import ASKS, PAYLOAD, SCHEMA, begin, plan, run, told
from model_server import Call, Say, serving

from uwf_git.engine.kit.prompt import build_prompt
from uwf_git.engine.step_parts import Recipient
from uwf_git.store.history import History
from uwf_git.store.instance import Instance

SKETCH = ("sketch", {"summary": "A week", "variables": {"cost": 20}, "artifacts": ["artifacts/goal.md"]})
AGAIN = ("check", {"summary": "No dates", "next": "again"})


def prompt(history: History, role: str, instruction: str | None = None, **options: Any) -> str:
    """The prompt for a role, where all answers are the same."""
    recipient = Recipient(**{"agent": "uwf-builtin", **options})
    return build_prompt(
        history, history.workflow.roles[role], SCHEMA, instruction, lambda _: "So it is.", recipient
    )


def headings(text: str) -> list[str]:
    """The parts of a prompt, in their order."""
    found = [line for line in text.splitlines() if line.startswith("# ") or line.isupper()]
    return [line.removeprefix("# ") for line in found if line != "---"]


DIRECTIVE = """\
RUN_DIRECTIVE
- runType: bmad-micro
- intent: start
- workflow: plan
- state: @state/workflow.md
- graph: @pkg/workflow.graph.json
- artifactsRoot: @project/artifacts/
- currentNodeId: sketch
- effectiveAgentId: ada
- autopilot: true
"""


def test_the_parts_stand_in_their_order_and_the_run_is_told_to_start() -> None:
    data = {"path": "@project/wishes.csv", "format": "csv", "text": "who,what\n", "size": 900}
    text = prompt(run(data=data), "sketch")
    assert headings(text) == [
        "Base rules",
        "Persona: Ada",
        "RUN_DIRECTIVE",
        "Your node: sketch",
        "The task",
        "Data given with this run",
        "Your instruction now",
    ]
    assert DIRECTIVE in text
    assert "## Deliverable format" in text
    assert "You are Ada, Analyst." in text
    assert "- Makes: @project/artifacts/goal.md\n" in text
    assert "@project/wishes.csv (csv, the beginning of 900 bytes; the rest is there to be read):" in text
    assert "```csv\nwho,what\n" in text


def test_a_node_is_told_what_was_reached_and_where_it_can_lead() -> None:
    text = prompt(run(SKETCH), "check")
    assert "- intent: continue\n" in text
    assert "- effectiveAgentId: tom\n" in text
    assert "# Persona: Tom\n\nYou are Tom, who doubts.\n" in text, (
        "its own words in place of those made of its parts"
    )
    assert "- Reads: @project/artifacts/goal.md\n" in text
    assert (
        "  - `write` on `good`: Nothing is missing\n  - `sketch` on `again`: Something is missing\n" in text
    )
    assert "variables:\n  cost: 20\n" in text
    assert "## Step 1: sketch, by uwf-builtin" in text
    text = prompt(run(SKETCH), "write")
    decided = '  - `end` on `cheap`: {"<": ["cost", 10]} (what the run has reached decides that)\n'
    assert f"{decided}  - `sketch` on `dear`\n" in text
    assert "none. This node ends the run." in prompt(run(SKETCH), "end")


def test_an_answer_is_bound_to_the_node_that_asked_and_nothing_old_is_said_again() -> None:
    history = run(SKETCH, ("check", ASKS), told("In May"))
    text = prompt(history, "check", "In May", remembers=True)
    assert headings(text) == ["RUN_DIRECTIVE", "Your instruction now", "USER_INPUT"]
    assert text.endswith("USER_INPUT\n- forNodeId: check\nIn May\n")
    forgot = prompt(history, "check", "In May")
    assert headings(forgot)[:2] == ["Base rules", "Persona: Tom"]
    assert forgot.endswith("USER_INPUT\n- forNodeId: check\nIn May\n")


def test_a_remark_is_bound_to_no_node_and_resumes_nothing() -> None:
    remark = ("$USER", {"remark": "By train"})
    text = prompt(run(SKETCH, remark), "check")
    assert "- intent: continue\n" in text and "So far" not in headings(text)
    assert "## Step 2: the user remarks\n\nBy train" in text
    assert text.endswith("\n\nUSER_INPUT\nBy train\n")
    answered = prompt(run(SKETCH, ("check", ASKS), told("In May"), remark), "check", "In May", remembers=True)
    assert headings(answered) == ["RUN_DIRECTIVE", "Your instruction now", "USER_INPUT", "USER_INPUT"]
    assert answered.endswith("USER_INPUT\n- forNodeId: check\nIn May\n\nUSER_INPUT\nBy train\n")
    resumed = prompt(run(SKETCH, remark), "check", remembers=True, resumes=True)
    assert headings(resumed) == ["RUN_DIRECTIVE", "Your instruction now", "USER_INPUT"]


def test_a_session_that_goes_on_is_told_its_node_anew_after_another_one_spoke() -> None:
    text = prompt(run(SKETCH, AGAIN), "sketch", remembers=True)
    assert headings(text) == [
        "Persona: Ada",
        "RUN_DIRECTIVE",
        "Your node: sketch",
        "What happened since your last turn",
        "What the run has reached",
        "Your instruction now",
    ]
    assert "Step 1" not in text
    assert headings(prompt(run(SKETCH), "check", remembers=True))[0] == "Base rules", (
        "there is no session yet"
    )


def test_what_carries_on_a_failed_attempt_resumes() -> None:
    text = prompt(run(SKETCH), "check", remembers=True, resumes=True)
    assert headings(text) == ["RUN_DIRECTIVE", "Your instruction now"]
    assert "- intent: resume\n" in text


def test_an_ended_run_that_is_gone_on_with_resumes_without_a_node_that_asked() -> None:
    graph = PAYLOAD["graph"] | {
        "$START": {"_": {"role": "sketch"}, "resume": {"role": "sketch", "prompt": "Look at it again."}}
    }
    done = (SKETCH, ("end", {"summary": "Done"}), told("One more day"))
    text = prompt(run(*done, workflow=plan(graph=graph)), "sketch", "Look at it again.\n\nOne more day")
    assert "- intent: resume\n" in text
    assert "# Your instruction now\n\nLook at it again.\n\nBegin your answer" in text
    assert text.endswith("\nUSER_INPUT\nOne more day\n")


def test_what_may_be_used_is_told_of_workflow_and_persona() -> None:
    personas = {"ada": {"name": "Ada", "tools": {"files": False, "servers": ["maps"], "maxReadBytes": 500}}}
    roles = {"sketch": {**PAYLOAD["roles"]["sketch"], "tools": {"deny": ["fetch_url"], "network": False}}}
    flow = plan(personas=personas, roles=PAYLOAD["roles"] | roles)
    text = prompt(run(workflow=flow), "sketch")
    policy = text[text.index("# Tool policy") : text.index("# Persona")]
    assert policy.strip().splitlines()[4:] == [
        "- This workflow doesn't use fetch_url.",
        "- This workflow uses no network.",
        "- Ada uses only the MCP servers maps.",
        "- Ada reads and writes no files.",
        "- Ada reads at most 500 bytes of a file.",
    ]


def test_folders_have_their_names_in_the_texts_of_packages() -> None:
    said = {
        "systemPrompt": "Read {project-root}/a.md, write {artifacts-root}/b.md, see {package-root}/c and {state-root}."
    }
    roles = PAYLOAD["roles"] | {"sketch": {**PAYLOAD["roles"]["sketch"], **said}}
    text = prompt(run(workflow=plan(roles=roles)), "sketch")
    assert "Read @project/a.md, write @project/artifacts/b.md, see @pkg/c and @state." in text


def test_the_same_history_gives_the_same_prompt() -> None:
    history = run(SKETCH, AGAIN)
    assert prompt(history, "sketch") == prompt(run(SKETCH, AGAIN), "sketch")


def test_a_model_hears_the_answer_to_its_question_and_resumes_what_failed(
    instance: Instance, uwf: Uwf, config: Callable[[str], Path]
) -> None:
    question = "---\n$status: $SUSPEND\nquestion: When?\n---\n"
    script = (Say(question), Call("list_dir", {"path": "."}), Say("---\nsummary: In May.\n---\n"))
    with serving(script) as server:
        config(
            f"providers:\n  local: {{baseUrl: '{server.openai_url}'}}\n"
            "models:\n  small: {provider: local, name: tiny}\ndefaultModel: small\ndefaultAgent: uwf-builtin\n"
        )
        thread = begin(instance)
        uwf("thread", "step", thread)
        uwf("thread", "answer", thread, "-m", "In May")
        uwf("thread", "step", thread, "--agent", "uwf-builtin --turns 1", check=6)
        uwf("thread", "step", thread)
        first, second, third = (each.messages for each in server.asked)
        assert headings(first[0].text)[0] == "Base rules"
        assert [each.text for each in second[:1]] == [first[0].text], "what was said stays word for word"
        assert headings(second[-1].text) == ["RUN_DIRECTIVE", "Your instruction now", "USER_INPUT"]
        assert second[-1].text.rstrip().endswith("- forNodeId: sketch\nIn May")
        assert "- intent: continue\n" in second[-1].text
        resumed = third[-1].results[-1].text  # no message of a user follows the result of a call
        assert "Your last attempt at this step did not count: the model came to no end in 1 turn" in resumed
        assert headings(resumed) == headings(second[-1].text)
        assert "- intent: resume\n" in resumed
