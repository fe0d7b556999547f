"""Agents that run in the engine's own process when they are called by their bare name: those that ship, each of
which is a command as well, and those of installed packages. That saves the start of a Python for each step."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from uwf_git.config.known_agents import GROUP, PLUGIN, SHIPPED, plugins
from uwf_git.errors import AgentFailed

if TYPE_CHECKING:
    from uwf_git.kit import Agent


def embedded(command: str) -> Agent | None:
    """The agent behind a bare command name, if it is one of these; None for everything else, a path to
    one of them included. Raises AgentFailed where a package's agent can't be loaded."""
    name = SHIPPED.get(command)
    if name is None:
        return _plugged_in(command.removeprefix(PLUGIN)) if command.startswith(PLUGIN) else None
    module = import_module(name)
    agent: Agent = module.agent_called(command) if hasattr(module, "agent_called") else module.agent
    return agent


def of_bundles() -> Agent:
    """The agent that does the steps of workflows that are code."""
    agent: Agent = import_module("uwf_git.bundles.agent").agent
    return agent


def _plugged_in(command: str) -> Agent:
    from uwf_git.kit import Agent

    entry = plugins().get(command)
    if entry is None:
        raise AgentFailed(f"no installed package brings an agent {command}", "see: uwf agent list")
    package = entry.dist.name if entry.dist is not None else "its package"
    try:
        loaded = entry.load()
        agent = loaded if isinstance(loaded, Agent) else loaded()
    except Exception as error:
        # Somebody else's code, of which anything may come.
        raise AgentFailed(
            f"agent {command} of {package} can't be loaded: {type(error).__name__}: {error}",
            f"install {package} anew, or remove it",
        ) from None
    if not isinstance(agent, Agent):
        raise AgentFailed(
            f"agent {command} of {package} is {type(agent).__name__}, no Agent",
            f"an entry point of {GROUP} names what create_agent returns",
        )
    return agent
