"""Threads of a crew's workflow, made by the library: that of `crew_histories`, with its package's files."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any

from crew_histories import PAYLOAD

from uwf_git.format.builtin import META
from uwf_git.format.document import Document
from uwf_git.format.ids import ThreadId
from uwf_git.format.kinds import Start, parse_workflow
from uwf_git.format.node import hash_of
from uwf_git.format.types import workflow_type
from uwf_git.store.instance import Instance
from uwf_git.workflow.compile import Compiled
from uwf_git.workflow.source import Source

FILES = {
    "bmad.json": b'{"name": "trip"}\n',
    "workflow.md": b"---\nschemaVersion: '1.1'\n---\n\n# Plan a trip\n",
    "steps/sketch.md": b"Read {package-root}/assets/tips.txt.\n",
    "assets/tips.txt": b"Pack light.\n",
    "assets/big.txt": b"0123456789\n" * 100,
}


def schema(labels: tuple[str, ...] = ()) -> dict[str, Any]:
    """What a node of a package asks of its step; `labels` where one of them is to be chosen."""
    asked: dict[str, Any] = {
        "summary": {"type": "string"},
        "artifacts": {"type": "array", "items": {"type": "string"}},
        "variables": {"type": "object"},
    }
    asked |= {"next": {"enum": [*labels]}} if labels else {}
    required = ["summary", *(["next"] if labels else [])]
    return {"type": "object", "properties": asked, "required": required, "additionalProperties": False}


def start_crew(
    instance: Instance,
    files: Mapping[str, bytes] = FILES,
    tools: Mapping[str, Any] | None = None,
    role_tools: Mapping[str, Any] | None = None,
) -> ThreadId:
    """A new thread, whose turn is that of `sketch` and then of `check`. `tools` are those of Ada, who sketches,
    `role_tools` those of `sketch`."""
    payload = copy.deepcopy(PAYLOAD)
    schemas = {}
    for name, role in payload["roles"].items():
        value = schema(("good", "again") if name == "check" else ())
        role["outputSchema"] = hash_of(META, value)
        schemas[role["outputSchema"]] = value
    if tools is not None:
        payload["personas"]["ada"]["tools"] = dict(tools)
    if role_tools is not None:
        payload["roles"]["sketch"]["tools"] = dict(role_tools)
    text = json.dumps({"crew": "trip", "workflow": "plan"}).encode() + b"\n"
    source = Source("crew.json", text, None, Document("crew.json", None, {}, {}, {}), files)
    made = Compiled(
        payload, hash_of(workflow_type(payload), payload), schemas, parse_workflow(payload), source
    )
    version = instance.registry.commit_unregistered(made)
    return instance.threads.start(version, Start(made.hash, "A week by the sea", persona="ada"))
