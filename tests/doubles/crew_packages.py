"""Packages of crews, written down in short: a graph as nodes and edges, and a crew of one's own."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

PERSONAS = {"mary": "Mary", "tom": "Tom"}
PERSONA = {
    "role": "Analyst",
    "identity": "Has seen many plans.",
    "communication_style": "Short",
    "principles": ["Ask before you guess."],
}

NODES = ("draft", "check:decision:tom", "price", "join:merge", "end:end")
EDGES: tuple[Mapping[str, Any], ...] = (
    {"from": "draft", "to": "check", "label": "done"},
    {"from": "check", "to": "price", "label": "good", "conditionText": "Nothing is missing"},
    {
        "from": "check",
        "to": "draft",
        "label": "again",
        "conditionText": "Something is missing",
        "isDefault": True,
    },
    {"from": "price", "to": "draft", "label": "dear", "conditionExpr": {">": [{"var": "cost"}, 100]}},
    {"from": "price", "to": "join", "label": "fine", "isDefault": True},
    {"from": "join", "to": "end", "label": "done"},
)


def bmad(
    nodes: Iterable[str] = NODES,
    edges: Iterable[Mapping[str, Any]] = EDGES,
    name: str = "trip",
    texts: Mapping[str, str] = {},
    menu: Iterable[Mapping[str, Any]] = (),
) -> dict[str, bytes]:
    """The files of a package in the .bmad format. A node is `id[:type[:persona]]`; the first is the entry; `texts` are
    those of its steps that say more than their name."""
    known = [(node.split(":") + ["step", ""][max(0, node.count(":")) :])[:3] for node in nodes]
    files: dict[str, Any] = {
        "bmad.json": {
            "schemaVersion": "1.1",
            "name": name,
            "version": "1.0.0",
            "description": "Plans a trip.",
            "entry": {"workflow": "workflow.md", "graph": "workflow.graph.json", "agents": "agents.json"},
        },
        "workflow.graph.json": {
            "schemaVersion": "1.1",
            "entryNodeId": known[0][0],
            "nodes": [
                {"id": id_, "type": kind, "file": f"steps/{id_}.md", "title": id_.title(), "agentId": persona}
                for id_, kind, persona in known
            ],
            "edges": list(edges),
        },
        "agents.json": {
            "schemaVersion": "1.1",
            "agents": [
                {
                    "id": id_,
                    "metadata": {"name": said, "title": "Planner", "icon": "*"},
                    "persona": PERSONA,
                    **({"menu": list(menu)} if id_ == "mary" and menu else {}),
                }
                for id_, said in PERSONAS.items()
            ],
        },
    }
    written = {
        path: json.dumps(value, indent=2, ensure_ascii=False).encode() for path, value in files.items()
    }
    written["workflow.md"] = (
        b"---\nschemaVersion: '1.1'\nworkflowType: trip\nstepsCompleted: []\ncurrentNodeId: ''\n---\n\n# The trip\n"
    )
    for id_, kind, _ in known:
        said = texts.get(id_, f"Do what {id_} is for.")
        written[f"steps/{id_}.md"] = (
            f"---\nschemaVersion: '1.1'\nnodeId: {id_}\ntype: {kind}\n---\n\n# {id_.title()}\n\n{said}\n".encode()
        )
    return written


PLAN = """\
name: plan
description: One plans, the other checks.
roles:
  writer:
    description: Writes the plan.
    systemPrompt: !include texts/writer.md
    outputSchema: {type: object, properties: {plan: {type: string}}, required: [plan]}
  checker:
    description: Checks it.
    systemPrompt: Check the plan.
    outputSchema:
      type: object
      properties: {status: {enum: [approved, rejected]}}
      required: [status]
graph:
  $START: [{role: writer}]
  writer: [{role: checker}]
  checker:
    approved: {role: $END}
    rejected: {role: writer}
"""

CREW = """\
crew: trip
version: 1.0.0
description: Plans a trip and checks it.
personas:
  mary:
    name: Mary
    title: Analyst
    icon: 📊
    role: Finds out what people want.
    prompts: {brief: Say in three lines what you know.}
    menu:
      - {trigger: plan, description: Plan the trip, workflow: plan-trip, data: "@project/wishes.csv"}
      - {trigger: brief, description: What she knows, action: "#brief"}
      - {trigger: tell, description: Tell a story, exec: texts/story.md}
  tom:
    name: Tom
    systemPrompt: You are Tom, who doubts.
workflows:
  plan-trip: {file: plans/plan.yaml, title: Plan a trip, personas: {writer: mary, checker: tom}}
"""


def own(crew: str = CREW, **plan: str) -> dict[str, bytes]:
    """The files of a crew of one's own."""
    files = {
        "crew.yaml": crew,
        "plans/plan.yaml": plan.get("plan", PLAN),
        "plans/texts/writer.md": "Write the plan.\n",
        "texts/story.md": "# A story\n\nTell one.\n",
    }
    return {path: text.encode() for path, text in files.items()}


def folder(path: Path, files: Mapping[str, bytes]) -> Path:
    """A package's files, written down."""
    for name, data in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    return path


def zipped(path: Path, files: Mapping[str, bytes]) -> Path:
    """A package as another program would pack it."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in reversed(files.items()):
            archive.writestr(name, data)
    path.write_bytes(made.getvalue())
    return path
