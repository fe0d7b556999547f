"""The workflow of LangGraph's threads. Each thread has it, so any uwf reads and verifies them without LangGraph."""

from __future__ import annotations

from functools import cache

from uwf_git.ext.langgraph.name import WORKFLOW
from uwf_git.plugin import Compiled, compile_source, parse_source

ROLE = "graph"
AGENT = "langgraph"

# A record has `checkpoint` and `namespace`, and `values` if it is that checkpoint, `writes` if it is what a task wrote
# after it; `thread` names a copy; a node with `value` alone is a part of a list. All are of one type, which is a file
# of each thread, so that no store depends on a type that this package knows. No record has a `status`: a graph that
# has ended may go on with its next input, and a workflow needs a way to its end.
_DEFINITION = f"""\
name: {WORKFLOW}
description: The checkpoints of a LangGraph thread, and the writes of its tasks, in the order in which they were stored.
roles:
  {ROLE}:
    description: The LangGraph program. It runs by itself; uwf stores what it has its checkpointer keep.
    systemPrompt: A LangGraph program makes these steps. Don't answer.
    outputSchema:
      type: object
      properties:
        summary: {{type: string}}
        checkpoint: {{type: string}}
        namespace: {{type: string}}
        parent: {{type: [string, "null"]}}
        state: {{}}
        values: {{type: object}}
        metadata: {{}}
        task: {{type: string}}
        path: {{type: string}}
        writes:
          type: array
          items:
            type: object
            properties: {{index: {{type: integer}}, channel: {{type: string}}, value: {{}}}}
            required: [index, channel, value]
            additionalProperties: false
        thread: {{type: string}}
        status: {{enum: [ended]}}
        value: {{}}
        parts: {{type: array, items: {{type: string, format: cas_ref}}}}
      required: [parts]
      additionalProperties: false
graph:
  $START: {{_: {ROLE}}}
  {ROLE}: {{_: {ROLE}, ended: $END}}
"""


@cache
def compiled() -> Compiled:
    return compile_source(parse_source(_DEFINITION.encode(), f"{WORKFLOW}.yaml"))


@cache
def record_type() -> str:
    """Return the type of the records and parts."""
    return compiled().workflow.roles[ROLE].schema
