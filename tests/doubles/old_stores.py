"""Storage roots as the earlier programs left them. Nodes are hashed and written by json_cas_store.mjs, which knows
nothing of this library."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from programs import program

WRITER = Path(__file__).with_name("json_cas_store.mjs")
EPOCH = 1_747_641_600_000  # 2025-05-19, in Unix milliseconds

TEXT: dict[str, Any] = {"type": "string"}
REF: dict[str, Any] = {"type": "string", "format": "cas_ref"}

# What the program's own bootstrap node held: taken literally it allows no schema with properties in properties.
BOOTSTRAP = {
    "type": "object",
    "additionalProperties": False,
    "description": "json-cas JSON Schema meta-schema",
    "properties": {
        "type": {"anyOf": [TEXT, {"type": "array", "items": TEXT}]},
        "properties": {
            "type": "object",
            "additionalProperties": {"type": "object", "additionalProperties": False},
        },
        "required": {"type": "array", "items": TEXT},
        "additionalProperties": {
            "anyOf": [{"type": "boolean"}, {"type": "object", "additionalProperties": False}]
        },
        "anyOf": {"type": "array", "items": {"type": "object", "additionalProperties": False}},
        "items": {"type": "object", "additionalProperties": False},
        "format": TEXT,
        "title": TEXT,
        "enum": {"type": "array"},
        "const": {},
        "description": TEXT,
    },
}


def schema(properties: dict[str, Any], optional: tuple[str, ...] = (), title: str = "") -> dict[str, Any]:
    """A closed object's schema."""
    return {
        **({"title": title} if title else {}),
        "type": "object",
        "required": [name for name in properties if name not in optional],
        "properties": properties,
        "additionalProperties": False,
    }


NULLABLE_REF = {"anyOf": [REF, {"type": "null"}]}
ROLE = schema({"description": TEXT, "systemPrompt": TEXT, "outputSchema": REF})
WORKFLOW = schema(
    {
        "name": TEXT,
        "description": TEXT,
        "roles": {"type": "object", "additionalProperties": ROLE},
        "conditions": {"type": "object"},
        "graph": {"type": "object"},
    }
)
START = schema({"workflow": REF, "prompt": TEXT})
STEP = schema({"start": REF, "prev": NULLABLE_REF, "role": TEXT, "output": REF, "detail": REF, "agent": TEXT})
TURN = schema(
    {"index": {"type": "integer"}, "role": TEXT, "content": TEXT, "toolCalls": {}},
    ("toolCalls",),
    "hermes-turn",
)
DETAIL = schema(
    {
        "sessionId": TEXT,
        "model": TEXT,
        "duration": {"type": "integer"},
        "turnCount": {"type": "integer"},
        "turns": {"type": "array", "items": REF},
    },
    title="hermes-detail",
)
TYPES = {
    "Workflow": WORKFLOW,
    "StartNode": START,
    "StepNode": STEP,
    "Turn": TURN,
    "Detail": DETAIL,
    "Text": TEXT,
}
PLAN = schema({"plan": TEXT})
REVIEW = schema({"approved": {"type": "boolean"}, "comments": TEXT})


def ref(label: str) -> dict[str, str]:
    """Stands for the hash of the node with that label."""
    return {"@": label}


class OldStore:
    """A storage root in the making. Every node has a label; each is a second younger than the one before."""

    def __init__(self, root: Path, types: dict[str, Any] | None = None) -> None:
        self.root = root
        self.hashes: dict[str, str] = {}
        self._nodes: list[tuple[str, str | None, Any, int]] = []
        self.put("meta", None, BOOTSTRAP)
        for name, payload in {**TYPES, **(types or {})}.items():
            self.put(name, "meta", payload)

    def put(self, label: str, kind: str | None, payload: Any) -> str:
        """Adds a node of the type with that label; None is the node that is its own type."""
        self._nodes.append((label, kind, payload, EPOCH + 1000 * len(self._nodes)))
        return label

    def workflow(self, label: str = "review", name: str = "solve-issue", maker: str = "planner") -> str:
        """A planner and a reviewer, who sends it back until it is approved."""
        if "Plan" not in [known for known, *_ in self._nodes]:
            self.put("Plan", "meta", PLAN)
            self.put("Review", "meta", REVIEW)
        payload = {
            "name": name,
            "description": "Plans, and has it reviewed.",
            "roles": {
                maker: {"description": "Plans", "systemPrompt": "Plan it.", "outputSchema": ref("Plan")},
                "reviewer": {
                    "description": "Reviews",
                    "systemPrompt": "Look.",
                    "outputSchema": ref("Review"),
                },
            },
            "conditions": {
                "rejected": {"description": "Not yet", "expression": "steps[-1].output.approved = false"}
            },
            "graph": {
                "$START": [{"role": maker, "condition": None}],
                maker: [{"role": "reviewer", "condition": None}],
                "reviewer": [{"role": maker, "condition": "rejected"}, {"role": "$END", "condition": None}],
            },
        }
        return self.put(label, "Workflow", payload)

    def start(self, label: str, workflow: str, prompt: str) -> str:
        """A StartNode."""
        return self.put(label, "StartNode", {"workflow": ref(workflow), "prompt": prompt})

    def step(self, label: str, start: str, prev: str | None, role: str, output: Any, kind: str = "") -> str:
        """A StepNode with its output, a detail, and three turns of an agent that looked something up."""
        kind = kind or ("Review" if role == "reviewer" else "Plan")
        self.put(f"{label}.out", kind, output)
        said = json.dumps(output)
        self.put(
            f"{label}.1",
            "Turn",
            {
                "index": 0,
                "role": "assistant",
                "content": "Let me look.",
                "toolCalls": [{"name": "ls", "args": "{}"}],
            },
        )
        self.put(f"{label}.2", "Turn", {"index": 1, "role": "tool", "content": f"files of {label}"})
        self.put(f"{label}.3", "Turn", {"index": 2, "role": "assistant", "content": f"{label}: {said}"})
        turns = [ref(f"{label}.{number}") for number in (1, 2, 3)]
        self.put(
            f"{label}.how",
            "Detail",
            {"sessionId": f"s-{label}", "model": "sonnet", "duration": 1500, "turnCount": 3, "turns": turns},
        )
        payload = {
            "start": ref(start),
            "prev": ref(prev) if prev else None,
            "role": role,
            "output": ref(f"{label}.out"),
            "detail": ref(f"{label}.how"),
            "agent": "uwf-hermes",
        }
        return self.put(label, "StepNode", payload)

    def write(self) -> OldStore:
        """Writes what was put since the last time."""
        text = json.dumps({"nodes": self._nodes})
        done = subprocess.run(
            [program("node"), str(WRITER), "write", str(self.root / "cas")],
            input=text,
            capture_output=True,
            text=True,
            check=True,
        )
        self.hashes.update(json.loads(done.stdout))
        return self

    def file(self, label: str) -> Path:
        """The file of a node."""
        return self.root / "cas" / f"{self.hashes[label]}.bin"

    def says(self, name: str, text: str) -> OldStore:
        """Writes a file of the root, in which {label} stands for a hash."""
        for label, hash_ in self.hashes.items():
            text = text.replace(f"<{label}>", hash_)
        (self.root / name).write_text(text, encoding="utf-8")
        return self


def reviewed(root: Path) -> OldStore:
    """Two workflows, one of them in two versions; an active thread, one that ended, and a fork of that."""
    store = OldStore(root)
    store.workflow("first", maker="writer")
    store.workflow("review")
    store.start("start", "review", "The CSV export does not quote commas.")
    store.step("one", "start", None, "planner", {"plan": "quote them"})
    store.step("two", "start", "one", "reviewer", {"approved": False, "comments": "and newlines"})
    store.step("three", "start", "two", "planner", {"plan": "quote both"})
    store.step("four", "start", "three", "reviewer", {"approved": True, "comments": ""})
    store.start("idea", "first", "Write about commas.")
    store.put("note", "Text", "put by hand")
    store.write()
    store.says("registry.yaml", "solve-issue: <review>\n")
    store.says("threads.yaml", f"{ACTIVE}: <two>\n{BEGUN}: <idea>\n")
    store.says(
        "history.jsonl",
        json.dumps({"thread": ENDED, "workflow": "<review>", "head": "<four>", "completedAt": EPOCH + 90_000})
        + "\n",
    )
    return store


ENDED = "01JVKW0000ENDED00000000000"
ACTIVE = "01JVKW0000ACT0VE0000000000"
BEGUN = "01JVKW0000BEGVN00000000000"
