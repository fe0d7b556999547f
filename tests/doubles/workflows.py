"""Workflows registered and threads started by the library, without the command."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from uwf_git.format.ids import ThreadId
from uwf_git.format.kinds import Start
from uwf_git.git.repository import Oid
from uwf_git.store.instance import Instance
from uwf_git.store.location import locate
from uwf_git.store.versions import Version
from uwf_git.workflow.compile import compile_source
from uwf_git.workflow.source import parse_source

LONG = """
name: long
description: Writes until it is told to end.
roles:
  writer: { description: w, systemPrompt: w, outputSchema: { type: object } }
conditions: { last: { description: l, expression: "steps[-1].output.end = true" } }
graph:
  $START: [{ role: writer }]
  writer: [{ role: $END, condition: last }, { role: writer }]
"""
ONE = """
name: one
description: One role.
roles:
  writer:
    description: Writes.
    systemPrompt: Write.
    outputSchema: { type: object, properties: { text: { type: string } }, required: [text] }
graph:
  $START: [{ role: writer }]
  writer: [{ role: $END }]
"""


def opened() -> Instance:
    """The instance of this environment, opened anew."""
    return Instance(locate(None, os.environ, Path.cwd()))


def register(instance: Instance, text: str, read: Callable[[str], bytes] | None = None) -> Version:
    """Puts a workflow; `read` gives what it includes."""
    return instance.registry.put(compile_source(parse_source(text.encode(), "workflow.yaml", read)))


def start_thread(
    instance: Instance, text: str, prompt: str = "Do it.", budget: Mapping[str, float] | None = None
) -> ThreadId:
    """A new thread of a workflow, which is registered first."""
    version = register(instance, text)
    return instance.threads.start(Oid(hex=version.commit), Start(version.hash, prompt, budget))
