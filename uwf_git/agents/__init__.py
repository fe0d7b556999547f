"""Agents that ship with the engine: each a command, and each importable, so that the engine may run it
in its own process, which saves a start of Python a step."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uwf_git.kit import Agent

_EMBEDDED = {
    "uwf-rehearse": "uwf_git.agents.rehearse",
    "uwf-human": "uwf_git.agents.human",
    "uwf-exec": "uwf_git.agents.exec",
    "uwf-llm": "uwf_git.agents.llm",
}


def embedded(command: str) -> Agent | None:
    """The agent behind a bare command name, if it is one of these; None for everything else, a path to
    one of them included."""
    module = _EMBEDDED.get(command)
    if module is None:
        return None
    agent: Agent = import_module(module).agent
    return agent
