"""Which agents are known by a name: those that ship, and those that installed packages bring.

A package makes an agent known by an entry point of the group `uwf.agents`: its name is the agent's, its
value an `Agent` (what `create_agent` returns) or a function that returns one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING

from uwf_git.format.kinds import REHEARSE, SUBWORKFLOW

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "uwf.agents"
PLUGIN = "plugin:"
"""Before the name of a package's agent, where a command stands: a program may have the same name."""

SHIPPED = {
    REHEARSE: "uwf_git.ext.agents.rehearse",
    "uwf-human": "uwf_git.ext.agents.human",
    "uwf-exec": "uwf_git.ext.agents.exec",
    "uwf-llm": "uwf_git.ext.agents.llm",
    "uwf-builtin": "uwf_git.ext.builtin.agent",
    "uwf-workflow": "uwf_git.ext.agents.workflow",
    "uwf-acp": "uwf_git.ext.agents.acp.agent",
    "uwf-cli": "uwf_git.ext.agents.cli.agent",
    "uwf-claude-code": "uwf_git.ext.agents.cli.agent",
    "uwf-codex": "uwf_git.ext.agents.cli.agent",
    "uwf-gemini": "uwf_git.ext.agents.cli.agent",
    "uwf-opencode": "uwf_git.ext.agents.cli.agent",
    "uwf-hermes": "uwf_git.ext.agents.cli.agent",
    "uwf-qwen": "uwf_git.ext.agents.cli.agent",
    "uwf-copilot": "uwf_git.ext.agents.cli.agent",
    "uwf-cursor": "uwf_git.ext.agents.cli.agent",
    "uwf-llm-cli": "uwf_git.ext.agents.cli.agent",
}
"""The module of each. It has an `agent`, or `agent_called(name)` where it is that of several."""

ANY_ROW = "uwf-cli"
"""The agent that takes the name of a row of `agentClis`."""

_BY_PROGRAM = {"claude": "uwf-claude-code", "cursor-agent": "uwf-cursor"}  # where they are called otherwise

BUNDLES = "uwf-bundle"
"""The name of what runs a workflow's own code. Nobody can choose it: such a workflow's steps are always its."""

_MODELLESS = frozenset((REHEARSE, "uwf-human", "uwf-exec", "uwf-workflow", BUNDLES, SUBWORKFLOW))


def asks_no_model(agent: str) -> bool:
    """Whether the agent that a step names asks no model itself, so that it has no tokens to tell."""
    return agent.partition("/")[0] in _MODELLESS


@cache
def plugins() -> Mapping[str, EntryPoint]:
    """The agents that installed packages bring, by name. They can't take the name of one that ships. Every package is
    looked at for that, once in a process."""
    from importlib.metadata import entry_points

    return {each.name: each for each in entry_points(group=GROUP) if each.name not in SHIPPED}


def plugin_names() -> list[str]:
    """The names of the agents that installed packages bring."""
    return sorted(plugins())


def full_name(command: str) -> str:
    """`uwf-codex` for `codex`, as for every agent that ships, and `uwf-claude-code` for `claude`, the program of one.
    Any other command as it is."""
    name = _BY_PROGRAM.get(command, f"uwf-{command}")
    return name if name in SHIPPED else command


def known_names(configured: Iterable[str], clis: Iterable[str]) -> list[str]:
    """Every name that a configuration can use, in the order in which they count."""
    short = [name.removeprefix("uwf-") for name in SHIPPED]
    return list(dict.fromkeys([*configured, *clis, *SHIPPED, *short, *plugin_names()]))
