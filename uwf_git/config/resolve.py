"""Resolving names of the configuration to agents and models. Unknown names are refused here, when needed.

Known agents are shipped ones and those of installed packages, by entry points `uwf.agents` (name: the agent's;
value: an `Agent` or a function that returns one) or by their extensions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import PurePath
from typing import Any, NamedTuple

from uwf_git.base import extensions, log
from uwf_git.base.errors import Invalid, Usage
from uwf_git.base.text import nearest, one_line
from uwf_git.config.settings import NO_MODEL, AgentConfig, Config, Model, expanded, parse_command
from uwf_git.format.casting import CastRole
from uwf_git.format.kinds import REHEARSE, SUBWORKFLOW
from uwf_git.format.types import UWF

GROUP = "uwf.agents"
PLUGIN = "plugin:"
"""Before the name of a package's agent, where a command stands: a program may have the same name."""

_KINDS = ("rehearsal", "human", "command", "model", "workflow", "protocol", "cli")
"""The kinds of agents, in the order in which their names count."""
_FIXED = frozenset(("human", "command", "workflow"))
_MODELLESS = _FIXED | {"rehearsal"}

_ROLE = r"(?s)([^\s=/.~'\"-][^\s='\"]*)=(.*)"


EVERY_ROLE = "*"
"""In place of a role's name: all roles, whatever plays them, as for the single step of a code workflow."""


class AgentOptions(NamedTuple):
    """The agents that `--agent` names for a whole run: `everywhere` plays the roles that a model plays otherwise, a
    rehearsal all of them; `roles` are of the form ROLE=NAME, and replace whatever plays the role."""

    everywhere: str | Any | None = None
    roles: tuple[tuple[str, str], ...] = ()

    @property
    def words(self) -> tuple[str, ...]:
        """The values of the options."""
        own = () if self.everywhere is None else (str(self.everywhere),)
        return (*own, *(f"{role}={name}" for role, name in self.roles))

    @property
    def names(self) -> tuple[str, ...]:
        own = (self.everywhere,) if isinstance(self.everywhere, str) else ()
        return (*own, *(name for _, name in self.roles))


def agent_options(texts: Iterable[str]) -> AgentOptions | None:
    """Parse values of `--agent`, None for none. Raises Usage for two of one kind."""
    everywhere: list[str] = []
    roles: dict[str, str] = {}
    for text in texts:
        match = re.fullmatch(_ROLE, text)
        if match is None:
            everywhere.append(text)
        elif roles.setdefault(match[1], match[2]) != match[2]:
            raise Usage(f"--agent names two agents for role {match[1]}", "name one")
    if len(everywhere) > 1:
        raise Usage(
            f"--agent names {everywhere[0]} and {everywhere[1]} for all roles",
            "for one role: --agent ROLE=NAME",
        )
    return AgentOptions(next(iter(everywhere), None), tuple(roles.items())) if everywhere or roles else None


def narrowed(
    config: Config, role: CastRole, options: AgentOptions, own: str | None = None
) -> str | Any | None:
    """Return what --agent names for a role, None to leave it to the configuration, or to the agent that code names as
    the role's `own`."""
    roles = dict(options.roles)
    if (named := roles.get(role.name, roles.get(EVERY_ROLE))) is not None:
        return named
    everywhere = options.everywhere
    if everywhere is None:
        return None
    try:
        if isinstance(everywhere, str) and _is_rehearsal(config, everywhere):
            return everywhere
        agent = resolve_agent(config, role, own)
    except (Invalid, Usage):  # what can't play the role needs no replacement
        return everywhere
    return everywhere if asks_model(agent.command) else None


def _is_rehearsal(config: Config, name: str) -> bool:
    return named_agent(config, name).command == REHEARSE


def named_agent(config: Config, name: str) -> AgentConfig:
    """Return the agent that --agent names by an alias or a command. Raises Usage, also for one that is neither known
    nor a program."""
    if (agent := known_agent(config, name)) is not None:
        return agent
    if (of_role := re.fullmatch(_ROLE, name)) and _which(name.split()[0]) is None:
        raise Usage(
            f"{name!r} names the agent of a role, and one agent is asked for", f"name it alone: {of_role[2]}"
        )
    return present_agent(command_agent(config, name, "--agent"))


def present_agent(agent: AgentConfig) -> AgentConfig:
    """Return an agent of --agent. Raises Usage if it is missing."""
    if not is_missing(agent):
        return agent
    if "/" in agent.command:
        raise Usage(why_missing(agent.command), "correct its path")
    raise Usage(f"there is no agent {agent.command!r}, and no program of that name on PATH", "uwf agent list")


def resolve_agent(config: Config, role: CastRole, override: str | AgentOptions | None = None) -> AgentConfig:
    """Return a role's agent: `override` (--agent) > agentOverrides > defaultAgent > embedded `uwf-rehearse`.
    Each is an alias or a command; a single word in the file is an alias. Raises Invalid, Usage."""
    if isinstance(override, AgentOptions):
        chosen = narrowed(config, role, override)
        override = chosen if isinstance(chosen, str) else None
    if override is not None:
        log.debug("H8NBHNDW", "--agent names {agent} for {role}", agent=override, role=role.name)
        return named_agent(config, override)
    named, where = overriding(config, role)
    if named is None:
        named, where = config.default_agent, "defaultAgent"
    log.debug("MN11X218", "{where} names {agent} for {role}", where=where, agent=named, role=role.name)
    if named is None:
        return AgentConfig(REHEARSE, REHEARSE, (), None, stands_in=True)
    agent = known_agent(config, named)
    if agent is None and is_command(named):
        try:
            agent = command_agent(config, named, one_line(where))
        except Usage as error:
            raise Invalid(f"{naming_file(config, role)}: {error.message}", error.hint) from None
    if agent is None:
        raise Invalid(
            f'{naming_file(config, role)}: {one_line(where)} names agent "{one_line(named)}", which is not configured',
            nearest(named, known_names(config)) or hint_to_add(named),
        )
    if not agent.command:
        raise Invalid(
            f'{config.path.name}: agent "{one_line(agent.alias)}" has no command',
            f"uwf config set agents.{agent.alias}.command …",
        )
    # The default agent is not a choice for this role: uwf setup offers it without a model.
    return agent._replace(stands_in=where == "defaultAgent" and PurePath(agent.command).name == REHEARSE)


def overriding(config: Config, role: CastRole) -> tuple[str | None, str]:
    """Return the agent in agentOverrides and its key, None if none."""
    for section, key in role.sections:
        if (named := config.agent_overrides.get(section, {}).get(key)) is not None:
            return named, f"agentOverrides.{section}.{key}"
    return None, ""


def naming_file(config: Config, role: CastRole) -> str:
    """Return the name of the file that names a role's agent: the user's, or a project's."""
    named = (place for place in role.sections if place[1] in config.agent_overrides.get(place[0], {}))
    place = next(named, None)
    return config.file_of("defaultAgent") if place is None else config.file_of("agentOverrides", *place)


def resolve_model(config: Config, scenario: str) -> Model | None:
    """Return the model for a scenario such as "extract": modelOverrides.<scenario> > models.<scenario> > for
    "extract" models.default > defaultModel; None if unset or "none". Raises Invalid."""
    alias, where = config.model_overrides.get(scenario), f"modelOverrides.{scenario}"
    if alias == NO_MODEL and alias not in config.models:
        return None
    if alias is None:
        named = (scenario, "default") if scenario == "extract" else (scenario,)
        alias = next((name for name in named if name in config.models), None)
    if alias is None:
        alias, where = config.default_model, "defaultModel"
    if alias is None:
        return None
    model = config.models.get(alias)
    if model is None:
        raise Invalid(
            f'{config.path.name}: {one_line(where)} names model "{one_line(alias)}", which is not configured',
            nearest(alias, config.models) or "add it: uwf setup",
        )
    for field, value in (("provider", model.provider), ("name", model.name)):
        if not value:
            raise Invalid(
                f'{config.path.name}: model "{one_line(alias)}" has no {field}',
                f"uwf config set models.{alias}.{field} …",
            )
    return model


def known_agent(config: Config, name: str) -> AgentConfig | None:
    """Return a configured, shipped or installed agent, else None."""
    if name in config.agents:
        return config.agents[name]
    if name in config.named_agents:
        return AgentConfig(name, config.named_agents[name].command, (name,), None)
    if shipped(command := full_name(name)) is not None:
        return AgentConfig(command, command, (), None)
    # A command line is not a name; don't search all packages.
    known = not any(map(str.isspace, name)) and name in plugin_names()
    return AgentConfig(name, PLUGIN + name, (), None) if known else None


def is_command(text: str) -> bool:
    """Return whether a text can only be a command: with arguments, or a path."""
    return "/" in text or any(map(str.isspace, text.strip()))


def hint_to_add(name: str) -> str:
    """Return the hint for an agent that is not configured."""
    return f"add it: uwf config set agents.{name}.command …"


def command_agent(config: Config, text: str, where: str) -> AgentConfig:
    """Return the agent of a command line. Raises Usage if it cannot be split or is a misspelt name."""
    try:
        command, args = parse_command(text)
    except Usage as error:
        raise Usage(f"{where}: {error.message}", error.hint) from None
    if command in config.named_agents:
        return AgentConfig(command, config.named_agents[command].command, (command, *args), None)
    command = expanded(full_name(command))
    missing = shipped(command) is None and _which(command) is None
    if missing and (hint := nearest(command, known_names(config))):
        raise Usage(f"there is no agent {command!r}, and no program of that name on PATH", hint)
    return AgentConfig(PurePath(command).name, command, args, None)


def is_missing(agent: AgentConfig, folder: str | None = None) -> bool:
    """Return whether a command is neither a known agent nor a program, as `why_missing`."""
    command = agent.command
    if command.startswith(PLUGIN) or shipped(command) is not None:
        return False
    return why_missing(command, folder) != ""


def why_missing(program: str, folder: str | None = None, path: str | None = None) -> str:
    """Return why a program cannot be run, "" if it can. `path` has the folders to search, by default those of PATH. A
    relative path counts as present without `folder`, in which it is called."""
    if "/" not in program:
        return "" if _which(program, path=path) else f"{program} is not installed, or not on PATH"
    whole = PurePath(folder or "", program)
    is_open = not whole.is_absolute()
    return "" if is_open or _which(whole) else f"{program} is not a file that can be run"


def _which(program: str | PurePath, path: str | None = None) -> str | None:
    import shutil  # which loads bz2 and lzma too

    return shutil.which(program, path=path)


class Plugin(NamedTuple):
    """A package's agent. `load()` returns an `Agent`, or a function that returns one."""

    name: str
    package: str
    version: str
    load: Callable[[], Any]


def shipped(name: str) -> extensions.AgentProgram | None:
    return next((program for program in extensions.agent_programs() if program.name == name), None)


@cache
def shipped_names() -> tuple[str, ...]:
    """Return the shipped agents' names in order of precedence."""
    return tuple(
        program.name
        for program in sorted(extensions.agent_programs(), key=lambda item: _KINDS.index(item.kind))
    )


def is_delegate(agent: str) -> bool:
    """Return whether an agent does no work of its own, but has others work for it."""
    return agent == SUBWORKFLOW or agent in extensions.runner_names()


def asks_no_model(agent: str) -> bool:
    """Return whether an agent calls no model itself, so that it reports no tokens."""
    name = agent.partition("/")[0]
    program = shipped(name)
    return name == UWF or is_delegate(name) or (program is not None and program.kind in _MODELLESS)


def may_stand_in(agent: AgentConfig) -> bool:
    """Return whether an agent plays roles that have it as their fallback. A workflow may come from anybody, so it
    chooses none that runs commands, lands work or asks people."""
    return asks_model(agent.command) and agent.command != REHEARSE


def asks_model(command: str) -> bool:
    """Return whether a model plays the roles of this command's agent, which is then replaced by an agent that is named
    for a whole run. It doesn't for uwf-exec and other commands, people, and workflows; `uwf-rehearse` stands in for
    one."""
    if command.startswith(PLUGIN):
        name = command.removeprefix(PLUGIN)
        kinds = [agent.kind for one in extensions.others() for agent in one.agents if agent.name == name]
        return kinds[0] not in _FIXED if kinds else True
    program = shipped(command)
    return program is not None and program.kind not in _FIXED


@cache
def plugins() -> Mapping[str, Plugin]:
    """Return installed packages' agents by name, except names of shipped ones. Cached."""
    from importlib.metadata import entry_points

    plugins = [
        Plugin(program.name, extension.name, "", program.load)
        for extension in extensions.others()
        for program in extension.agents
    ]
    for point in entry_points(group=GROUP):
        dist = point.dist
        plugins.append(
            Plugin(point.name, dist.name if dist else "", dist.version if dist else "", point.load)
        )
    return {plugin.name: plugin for plugin in plugins if shipped(plugin.name) is None}


def plugin_names() -> list[str]:
    return sorted(plugins())


def full_name(command: str) -> str:
    """Return `uwf-codex` for `codex` and other shipped agents, `uwf-claude-code` for `claude`; other commands
    unchanged."""
    names = (command, f"uwf-{command}")
    return next(
        (
            program.name
            for program in extensions.agent_programs()
            if program.name in names or program.alias == command
        ),
        command,
    )


def known_names(config: Config) -> list[str]:
    """Return all usable names in order of precedence."""
    names = shipped_names()
    short = [name.removeprefix("uwf-") for name in names]
    return list(dict.fromkeys([*config.agents, *config.named_agents, *names, *short, *plugin_names()]))
