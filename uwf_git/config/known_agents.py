"""Which agents are known by a name: those that ship, and those that installed packages bring.

A package makes an agent known by an entry point of the group `uwf.agents`: its name is the agent's, its
value an `Agent` (what `create_agent` returns) or a function that returns one. The agents of an installed extension
are known likewise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple

from uwf_git import ext

GROUP = "uwf.agents"
PLUGIN = "plugin:"
"""Before the name of a package's agent, where a command stands: a program may have the same name."""

ANY_ROW = "uwf-cli"
"""The agent that takes the name of a row of `agentClis`."""

BUNDLES = "uwf-bundle"
"""The name of what runs a workflow's own code. Nobody can choose it: such a workflow's steps are always its."""

_KINDS = ("rehearsal", "human", "command", "model", "workflow", "protocol", "cli")
"""The kinds of agents, in the order in which their names count."""
_MODELLESS = frozenset(("rehearsal", "human", "command", "workflow"))


class Plugin(NamedTuple):
    """An agent of an installed package. `load()` returns an `Agent`, or a function that returns one."""

    name: str
    package: str
    version: str
    load: Callable[[], Any]


def shipped(name: str) -> ext.AgentProgram | None:
    """The agent that ships under that name."""
    return next((each for each in ext.agent_programs() if each.name == name), None)


@cache
def shipped_names() -> tuple[str, ...]:
    """The names of all agents that ship, in the order in which they count."""
    return tuple(each.name for each in sorted(ext.agent_programs(), key=lambda each: _KINDS.index(each.kind)))


def asks_no_model(agent: str) -> bool:
    """Whether the agent that a step names asks no model itself, so that it has no tokens to tell."""
    name = agent.partition("/")[0]
    program = shipped(name)
    return name == BUNDLES or (program is not None and program.kind in _MODELLESS)


@cache
def plugins() -> Mapping[str, Plugin]:
    """The agents that installed packages bring, by name. They can't take the name of one that ships. Every package is
    looked at for that, once in a process."""
    from importlib.metadata import entry_points

    found = [
        Plugin(program.name, extension.name, "", program.load)
        for extension in ext.others()
        for program in extension.agents
    ]
    for each in entry_points(group=GROUP):
        dist = each.dist
        found.append(Plugin(each.name, dist.name if dist else "", dist.version if dist else "", each.load))
    return {each.name: each for each in found if shipped(each.name) is None}


def plugin_names() -> list[str]:
    """The names of the agents that installed packages bring."""
    return sorted(plugins())


def full_name(command: str) -> str:
    """`uwf-codex` for `codex`, as for every agent that ships, and `uwf-claude-code` for `claude`, the program of one.
    Any other command as it is."""
    names = (command, f"uwf-{command}")
    return next(
        (each.name for each in ext.agent_programs() if each.name in names or each.alias == command), command
    )


def known_names(configured: Iterable[str], clis: Iterable[str]) -> list[str]:
    """Every name that a configuration can use, in the order in which they count."""
    names = shipped_names()
    short = [name.removeprefix("uwf-") for name in names]
    return list(dict.fromkeys([*configured, *clis, *names, *short, *plugin_names()]))
