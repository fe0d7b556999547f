"""A thread of a workflow whose one role comes back until it is done, stepped by the library."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from workflows import start_thread

from uwf_git.engine.outcome import Outcome
from uwf_git.engine.step import step
from uwf_git.store.instance import Instance

WORKFLOW = """\
name: loop
description: A role that comes back until it is done.
roles:
  worker:
    description: Does the work.
    systemPrompt: Work.
    outputSchema:
      type: object
      properties: {status: {enum: [again, done]}}
      required: [status]
      additionalProperties: false
TOOLS
graph:
  $START: {_: worker}
  worker: {again: worker, done: $END}
"""
AGAIN = "---\nstatus: again\n---\n\nNot yet.\n"
DONE = "---\nstatus: done\n---\n\nThat is all.\n"
TASK = "Change the note."

Work = Callable[[str], Outcome]


def start_loop(instance: Instance, tools: str = "", task: str = TASK) -> Work:
    """A new thread; what is returned does a step of it with the agent that it is given. `tools` is what the
    role's policy says, as YAML."""
    text = WORKFLOW.replace("TOOLS\n", f"    tools: {tools}\n" if tools else "")
    thread = start_thread(instance, text, task)
    return lambda agent: step(instance, thread, agent, Path.cwd())


def detail(instance: Instance, made: Outcome) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A step's detail, and its turns."""
    node = instance.store.get(instance.store.get(made.head).payload["detail"]).payload
    return node, [instance.store.get(turn).payload for turn in node["turns"]]
