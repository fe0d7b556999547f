"""What `uwf-rehearse` says: every edge has its turn, loops end, and a script is played to the letter."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from cli_samples import ONE
from conftest import EXAMPLES, Uwf
from hypothesis import given, settings
from hypothesis import strategies as st

from uwf_git.ext.agents.rehearse import choose_output
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.kinds import Start, StepContext, Workflow, parse_workflow
from uwf_git.format.schema import Schema
from uwf_git.store.history import History
from uwf_git.workflow.compile import compile_source
from uwf_git.workflow.moderator import Next, WorkflowEnded, choose, decide
from uwf_git.workflow.source import read_source

HASH = Hash("0000000000000")
THREAD = ThreadId("0" * 26)


def walk(
    workflow: Workflow, schemas: dict[Hash, Any], most: int = 40
) -> tuple[list[str], Counter[tuple[str, int]]]:
    """The roles of a thread that the agent plays alone, `$END` last if it gets there, and its edges."""
    start = Start(HASH, "Do it")
    steps: tuple[StepContext, ...] = ()
    roles: list[str] = []
    taken: Counter[tuple[str, int]] = Counter()
    while len(steps) < most:
        found = decide(workflow, start, steps)
        chosen = choose(workflow, start, steps)
        taken[chosen.source, chosen.position] += 1
        if isinstance(found, WorkflowEnded):
            return [*roles, "$END"], taken
        assert isinstance(found, Next)
        role = workflow.roles[found.role]
        schema = Schema(schemas[role.schema])
        output = choose_output(History(THREAD, HASH, HASH, start, HASH, workflow, steps), role, schema)
        assert schema.problems(output) == []
        steps = (*steps, StepContext(HASH, role.name, output, HASH, "uwf-rehearse"))
        roles.append(role.name)
    return roles, taken


def flow(
    graph: dict[str, Any], conditions: dict[str, str], **schemas: Any
) -> tuple[Workflow, dict[Hash, Any]]:
    hashes = {role: Hash(f"{number:013}") for number, role in enumerate(schemas)}
    workflow = parse_workflow(
        {
            "name": "sample",
            "description": "",
            "roles": {
                role: {"description": "", "systemPrompt": "", "outputSchema": hashes[role]}
                for role in schemas
            },
            "conditions": {
                name: {"description": "", "expression": text} for name, text in conditions.items()
            },
            "graph": graph,
        }
    )
    return workflow, {hashes[role]: schema for role, schema in schemas.items()}


def to(role: str, condition: str | None = None, **more: str) -> dict[str, Any]:
    return {"role": role, "condition": condition, **more}


def fields(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": sorted(properties)}


EXPECTED = {
    "solve-issue": ["planner", "developer", "reviewer", "developer", "reviewer", "$END"],
    "brainstorm": ["ideator", "challenger"] * 3 + ["facilitator", "$END"],
    "release-checklist": ["version", "tests", "changelog", "tag", "$END"],
    "human-gate": ["drafter", "gate", "drafter", "gate", "publisher", "$END"],
    "review-loop": ["writer", "critic", "writer", "critic", "$END"],
}


# Branches need a store: tests/fan_out plays the example that has some.
@pytest.mark.parametrize(
    "path", sorted({*EXAMPLES.glob("*.yaml")} - {EXAMPLES / "fan-out.yaml"}), ids=lambda path: path.stem
)
def test_it_plays_every_example_to_its_end(path: Path) -> None:
    compiled = compile_source(read_source(path))
    roles, _ = walk(compiled.workflow, dict(compiled.schemas))
    assert roles[-1] == "$END"
    assert roles == EXPECTED.get(path.stem, roles)
    assert walk(compiled.workflow, dict(compiled.schemas))[0] == roles


def test_loops_are_gone_round_before_they_end() -> None:
    status = {"enum": ["done", "again", "back"]}
    workflow, schemas = flow(
        {
            "$START": {"_": {"role": "a"}},
            "a": {"done": {"role": "$END"}, "again": {"role": "a"}, "back": {"role": "b"}},
            "b": {"_": {"role": "a"}},
        },
        {},
        a=fields(status=status),
        b=fields(text={"type": "string"}),
    )
    roles, taken = walk(workflow, schemas)
    assert roles == ["a", "a", "b", "a", "$END"]
    assert set(taken.values()) == {1}


def test_a_failed_end_is_taken_only_without_another_way_or_after_thirty_steps() -> None:
    status = {"enum": ["broken", "again"]}
    loop = {
        "$START": {"_": {"role": "a"}},
        "a": {"broken": {"role": "$FAIL"}, "again": {"role": "b"}},
        "b": {"_": {"role": "a"}},
    }
    workflow, schemas = flow(loop, {}, a=fields(status=status), b=fields(text={"type": "string"}))
    roles, _ = walk(workflow, schemas)
    assert roles == ["a", "b"] * 15 + ["a", "$END"]
    alone = {**loop, "a": {"broken": {"role": "$FAIL"}, "again": {"role": "$FAIL"}}}
    workflow, schemas = flow(alone, {}, a=fields(status=status), b=fields(text={"type": "string"}))
    assert walk(workflow, schemas)[0] == ["a", "$END"]


def test_an_edge_that_only_an_odd_value_takes_is_taken() -> None:
    workflow, schemas = flow(
        {"$START": [to("a")], "a": [to("a", "high"), to("a", "asks"), to("$END")]},
        {"high": "steps[-1].output.score > 42", "asks": "$exists(steps[-1].output.question) = false"},
        a={
            "type": "object",
            "properties": {"score": {"type": "integer"}, "question": {"type": "string"}},
            "required": ["score"],
        },
    )
    roles, taken = walk(workflow, schemas)
    assert roles[-1] == "$END"
    assert {position for source, position in taken if source == "a"} == {0, 1, 2}


def test_it_neither_asks_nor_says_what_has_no_edge_nor_what_breaks_a_prompt() -> None:
    workflow, schemas = flow(
        {
            "$START": {"_": {"role": "a"}},
            "a": {"x": {"role": "b", "prompt": "{{ why }}"}, "y": {"role": "$END"}},
            "b": {"_": {"role": "$END"}},
        },
        {},
        a={
            "oneOf": [
                {
                    "properties": {"status": {"const": "needs_input"}, "question": {"type": "string"}},
                    "required": ["status", "question"],
                },
                {"properties": {"status": {"const": "lost"}}, "required": ["status"]},
                {
                    "properties": {"status": {"enum": ["x"]}},
                    "required": ["status"],
                    "additionalProperties": False,
                },
                {
                    "properties": {"status": {"const": "x"}, "why": {"type": "string"}},
                    "required": ["status", "why"],
                },
            ]
        },
        b=fields(text={"type": "string"}),
    )
    assert walk(workflow, schemas)[0] == ["a", "b", "$END"]


def test_a_reference_is_one_to_the_threads_start() -> None:
    workflow, schemas = flow(
        {"$START": [to("a")], "a": [to("$END")]}, {}, a=fields(of={"type": "string", "format": "cas_ref"})
    )
    start = Hash("0123456789ABC")
    history = History(THREAD, start, start, Start(HASH, "x"), HASH, workflow, ())
    role = workflow.roles["a"]
    assert choose_output(history, role, Schema(schemas[role.schema])) == {"of": start}


def test_what_it_says_differs_from_turn_to_turn() -> None:
    workflow, schemas = flow(
        {"$START": [to("a")], "a": [to("a", "few"), to("$END")]},
        {"few": "$count($distinct(steps.output.text)) < 4"},
        a=fields(text={"type": "string"}),
    )
    assert walk(workflow, schemas)[0] == ["a"] * 4 + ["$END"]


statuses = ["x", "y", "z"]
targets = st.sampled_from(["a", "b", "c", "$END"])
graphs = st.fixed_dictionaries(
    {
        name: st.fixed_dictionaries({status: st.builds(dict, role=targets) for status in statuses})
        for name in "abc"
    }
)


@settings(max_examples=50)
@given(graphs)
def test_a_thread_ends_wherever_every_role_has_an_edge_to_the_end(graph: dict[str, Any]) -> None:
    for edges in graph.values():
        edges["z"] = {"role": "$END"}
    graph["$START"] = {"_": {"role": "a"}}
    output = fields(status={"enum": statuses})
    workflow, schemas = flow(graph, {}, a=output, b=output, c=output)
    roles, taken = walk(workflow, schemas)
    assert roles[-1] == "$END"
    assert max(taken.values()) <= 3


@pytest.fixture
def thread(uwf: Uwf, hermetic: Path) -> str:
    (hermetic / "one.yaml").write_text(ONE)
    return str(uwf("thread", "start", hermetic / "one.yaml", "-p", "Do it").json["thread"])


def played(hermetic: Path, program: str, *entries: dict[str, Any]) -> str:
    path = hermetic / "replies.json"
    path.write_text(json.dumps(entries))
    return f"{program} --script {path}"


EMBEDDED = "uwf-rehearse"
COMMAND = str(Path(sys.executable).parent / "uwf-rehearse")


@pytest.mark.parametrize("program", [EMBEDDED, COMMAND], ids=["in the engine", "as a process"])
def test_a_script_that_exits_fails_the_step_and_keeps_the_attempt(
    uwf: Uwf, thread: str, hermetic: Path, program: str
) -> None:
    entries: list[dict[str, Any]] = [{"role": "r", "exit": 3}, {"role": "r", "output": {"n": 5}}]
    failed = uwf("thread", "step", thread, "--agent", played(hermetic, program, *entries), check=6)
    assert "exited with 3" in failed.error["message"]
    assert len(uwf("thread", "attempts", thread).json) == 1
    done = uwf("thread", "step", thread, "--agent", played(hermetic, program, *entries)).json
    assert done["done"] is True
    assert uwf("thread", "steps", thread).json[0]["output"] == {"n": 5}


def test_a_process_that_a_script_ends_has_the_scripts_status(thread: str, hermetic: Path) -> None:
    import subprocess

    path = played(hermetic, COMMAND, {"role": "r", "exit": 42}).split(" ", 1)[1]
    done = subprocess.run([COMMAND, *path.split(" ", 1), thread, "r"], capture_output=True, check=False)
    assert done.returncode == 42
    assert done.stdout == b""


def test_sleep_is_cut_short_by_the_agents_timeout(uwf: Uwf, thread: str, hermetic: Path, root: Path) -> None:
    command = played(hermetic, EMBEDDED, {"role": "r", "sleep": 600, "output": {"n": 1}})
    program, *args = command.split(" ")
    root.mkdir(exist_ok=True)
    agents = {"slow": {"command": program, "args": args, "timeout": 0.2}}
    (root / "config.yaml").write_text(json.dumps({"agents": agents, "defaultAgent": "slow"}))
    failed = uwf("thread", "step", thread, check=6)
    assert "ran out of time" in failed.error["message"]


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ("role: r", "list"),
        ("- {output: {n: 1}}", "role"),
        ("- {role: r}", "output"),
        ("- {role: r, output: {}, exit: 1}", "output"),
        ("- {role: r, exit: soon}", "exit"),
        ("- {role: r, outputs: {}}", "outputs"),
        ("- {role: r, sleep: -1, answer: x}", "sleep"),
        ("- {role: reviewer, output: {}}", "reviewer"),
        ("[]", "0 entries"),
        ("- {role: [", "replies"),
    ],
)
def test_a_script_that_can_not_be_played_is_told_why(
    uwf: Uwf, thread: str, hermetic: Path, script: str, complaint: str
) -> None:
    path = hermetic / "replies.yaml"
    path.write_text(script)
    failed = uwf("thread", "step", thread, "--agent", f"uwf-rehearse --script {path}", check=6)
    assert complaint in failed.error["message"]
    assert uwf("thread", "show", thread).json["role"] is None
