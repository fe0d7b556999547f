"""A crew's workflow as its compiler would make it, histories in it without a store, and threads of it: a goal is
sketched, checked, and either sketched again or written down."""

from __future__ import annotations

from typing import Any

from uwf_git.format.builtin import META
from uwf_git.format.document import Document
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.kinds import Start, StepContext, Workflow, parse_workflow
from uwf_git.format.node import hash_of
from uwf_git.format.types import workflow_type
from uwf_git.store.history import History
from uwf_git.store.instance import Instance
from uwf_git.workflow.compile import Compiled
from uwf_git.workflow.source import Source

FILES = {"workflow.md": b"---\nschemaVersion: '1.1'\n---\n\n# Plan a trip\n"}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "summary": {"type": "string"},
        "artifacts": {"type": "array", "items": {"type": "string"}},
        "variables": {"type": "object"},
        "next": {"enum": ["good", "again"]},
    },
    "required": ["summary"],
    "additionalProperties": False,
}
HASH = hash_of(META, SCHEMA)
THREAD = ThreadId("01M7YG2438K76ZWHSVX4QBSC2S")
BEGAN = 1_790_000_000_000


def node(kind: str, name: str, persona: str = "", **more: Any) -> dict[str, Any]:
    """A role that a node of a package was made into."""
    value = {
        "description": f"Do {name}",
        "systemPrompt": f"Text of {name}.",
        "outputSchema": HASH,
        "node": {"type": kind, "file": f"steps/{name}.md", **more},
    }
    return {**value, "persona": persona} if persona else value


COMPLETE = {"role": "$END", "condition": "complete"}
PAYLOAD: dict[str, Any] = {
    "name": "trip/plan",
    "description": "Plans a trip",
    "crew": {
        "name": "trip",
        "workflow": "plan",
        "format": "bmad",
        "entry": "workflow.md",
        "graph": "workflow.graph.json",
    },
    "personas": {
        "ada": {"name": "Ada", "title": "Analyst", "role": "Asks first", "principles": ["Short"]},
        "tom": {"name": "Tom", "systemPrompt": "You are Tom, who doubts."},
    },
    "roles": {
        "sketch": node("step", "sketch", outputs=["artifacts/goal.md"]),
        "check": node("decision", "check", "tom", inputs=["artifacts/goal.md"]),
        "write": node("merge", "write"),
        "end": node("end", "end"),
    },
    "conditions": {
        "complete": {"description": "", "expression": "false"},
        "good": {"description": "Nothing is missing", "expression": 'steps[-1].output.next = "good"'},
        "cheap": {"description": '{"<": ["cost", 10]}', "expression": "steps[-1].output.variables.cost < 10"},
    },
    "graph": {
        "$START": [{"role": "sketch", "condition": None}],
        "sketch": [COMPLETE, {"role": "check", "condition": None}],
        "check": [
            COMPLETE,
            {"role": "write", "condition": "good", "label": "good", "text": "Nothing is missing"},
            {"role": "sketch", "condition": None, "label": "again", "text": "Something is missing"},
        ],
        "write": [
            COMPLETE,
            {"role": "end", "condition": "cheap", "label": "cheap"},
            {"role": "sketch", "condition": None, "label": "dear"},
        ],
        "end": [COMPLETE, {"role": "$END", "condition": None}],
    },
}


def plan(**changes: Any) -> Workflow:
    """The workflow, with other parts of its payload."""
    return parse_workflow(PAYLOAD | changes)


def run(*said: tuple[str, Any], workflow: Workflow | None = None, **start: Any) -> History:
    """A history of steps, a minute apart: each a role and its output."""
    steps = tuple(
        StepContext(Hash(f"{number:013}"), role, output, HASH, "uwf-builtin", "", BEGAN + number * 60_000)
        for number, (role, output) in enumerate(said, 1)
    )
    began = Start(HASH, "A week by the sea", **{"persona": "ada", **start})
    return History(THREAD, steps[-1].hash if steps else HASH, HASH, began, HASH, workflow or plan(), steps)


ASKS = {"$status": "$SUSPEND", "question": "When?"}


def told(text: str) -> tuple[str, dict[str, str]]:
    """What the user said."""
    return "$USER", {"answer": text}


def begin(instance: Instance, persona: str = "ada", **changes: Any) -> ThreadId:
    """A thread of the workflow, with other parts of its payload."""
    payload = PAYLOAD | changes
    text = b'{"crew":"trip","workflow":"plan"}\n'
    source = Source("crew.json", text, {}, Document("crew.json", {}, {}, {}, {}), FILES)
    node = hash_of(workflow_type(payload), payload)
    compiled = Compiled(payload, node, {HASH: SCHEMA}, parse_workflow(payload), source)
    version = instance.registry.commit_unregistered(compiled)
    threads = instance.threads
    start = instance.store.put(*Start(node, "A week by the sea", persona=persona).typed_payload())
    return threads.fork(threads.begin(version, start, None))
