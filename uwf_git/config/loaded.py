"""`config.yaml` in the storage root: which command an agent is, which model and provider a name means.

    providers: {<alias>: {baseUrl, apiKeyEnv}}       models: {<alias>: {provider, name, price}}
    agents: {<alias>: {command, args, timeout, tools}}  defaultAgent, defaultModel: <alias>
    agentOverrides: {<workflow>: {<role>: <alias>}}  modelOverrides: {<scenario>: <alias>}
    tools: {allow, deny, runCommand, …}              budgets: {default: {…}, workflows: {<workflow>: {…}}}
    agentClis: {<name>: row}                         mcpServers: {<name>: {command, env, tools, timeout}}
    secrets: [<variable>]
    forges: {<host>: github | gitlab | gitea | forgejo | bitbucket | sourcehut}

Keys of services are never in it: `apiKeyEnv` names the variable, and `.env` or the environment holds it.
What is misspelt or of the wrong type is refused when the file is read. What is merely missing, such as a
model's provider, is refused when it is needed: a file is often filled in one key at a time. What is wrong with a
row of `agentClis` stops the steps that use it.
"""

from __future__ import annotations

import shutil
from pathlib import Path, PurePath

from uwf_git.config.known_agents import EMBEDDED, PLUGIN, SHIPPED, full_name, known_names, plugin_names
from uwf_git.config.read import Reader
from uwf_git.config.settings import (
    FILE,
    NO_MODEL,
    AgentConfig,
    Config,
    ConfigProblem,
    Model,
    expanded,
    parse_command,
)
from uwf_git.errors import Invalid, NotFound, Usage
from uwf_git.text import nearest
from uwf_git.values import yaml12
from uwf_git.values.yaml12 import Document, one_line


def load_config(root: Path) -> Config:
    """The configuration of a storage root. Raises Invalid with file, line and the nearest valid key."""
    config, problems = parse_config(read_document(root), root / FILE)
    if problems:
        first = problems[0]
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        where = f"{one_line(str(root / FILE))}:{first.line}:{first.column}"
        raise Invalid(f"{where}: {first.message}{more}", first.hint)
    return config


def check_config(root: Path) -> list[ConfigProblem]:
    """Everything wrong with the file at once, also what would only show when it is needed: names that
    lead nowhere and entries without their main field. Raises Invalid for what is no YAML."""
    reader = Reader(read_document(root))
    reader.dangling(reader.config(root / FILE))
    return sorted(set(reader.problems))


def read_document(root: Path) -> Document:
    """The file's document; an empty one where there is no file."""
    path = root / FILE
    try:
        data = yaml12.read_bytes(path)
    except NotFound:
        data = b""
    return yaml12.load(data, str(path))


def parse_config(document: Document, path: Path) -> tuple[Config, list[ConfigProblem]]:
    """The configuration in a document, and what is wrong with it, by line."""
    reader = Reader(document)
    config = reader.config(path)
    return config, sorted(reader.problems)


def wrong_values(document: Document, path: Path) -> list[ConfigProblem]:
    """What is wrong in a document and not merely missing: also in rows that nobody uses."""
    reader = Reader(document)
    reader.config(path)
    return [*reader.problems, *reader.late]


def resolve_agent(config: Config, workflow: str, role: str, override: str | None = None) -> AgentConfig:
    """The agent for a role: `override` (what --agent gave: an alias or a command) > agentOverrides >
    defaultAgent > the embedded `uwf-rehearse`. Raises Invalid, Usage."""
    if override is not None:
        known = _known_agent(config, override)
        return known if known is not None else command_agent(config, override, "--agent")
    named, where = config.agent_overrides.get(workflow, {}).get(role), f"agentOverrides.{workflow}.{role}"
    if named is None:
        named, where = config.default_agent, "defaultAgent"
    if named is None:
        return AgentConfig(EMBEDDED, EMBEDDED, (), None)
    agent = _known_agent(config, named)
    if agent is None:
        raise Invalid(
            f'{config.path.name}: {one_line(where)} names agent "{one_line(named)}", which is not configured',
            nearest(named, known_names(config.agents, config.agent_clis))
            or f"add it: uwf config set agents.{named}.command …",
        )
    if not agent.command:
        raise Invalid(
            f'{config.path.name}: agent "{one_line(agent.alias)}" has no command',
            f"uwf config set agents.{agent.alias}.command …",
        )
    return agent


def resolve_model(config: Config, scenario: str) -> Model | None:
    """The model for a scenario such as "extract": modelOverrides.<scenario> > models.<scenario> >
    defaultModel; None where none is configured, or where the override is "none". Raises Invalid where the
    name leads nowhere."""
    alias, where = config.model_overrides.get(scenario), f"modelOverrides.{scenario}"
    if alias == NO_MODEL and alias not in config.models:
        return None
    if alias is None and scenario in config.models:
        alias = scenario
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


def _known_agent(config: Config, name: str) -> AgentConfig | None:
    if name in config.agents:
        return config.agents[name]
    if name in config.agent_clis:
        return AgentConfig(name, "uwf-cli", (name,), None)
    if (command := full_name(name)) in SHIPPED:
        return AgentConfig(command, command, (), None)
    return AgentConfig(name, PLUGIN + name, (), None) if name in plugin_names() else None


def command_agent(config: Config, text: str, where: str) -> AgentConfig:
    """The agent that a command line is. Raises Usage for one that can't be split, and for what is a misspelt
    name rather than a program."""
    try:
        command, args = parse_command(text)
    except Usage as error:
        raise Usage(f"{where}: {error.message}", error.hint) from None
    command = expanded(full_name(command))
    missing = command not in SHIPPED and shutil.which(command) is None
    if missing and (hint := nearest(command, known_names(config.agents, config.agent_clis))):
        raise Usage(f"there is no agent {command!r}, and no program of that name on PATH", hint)
    return AgentConfig(PurePath(command).name, command, args, None)
