"""`config.yaml` in the storage root: which command an agent is, which model and provider a name means.

    providers: {<alias>: {baseUrl, apiKeyEnv}}       models: {<alias>: {provider, name}}
    agents: {<alias>: {command, args, timeout}}      defaultAgent, defaultModel: <alias>
    agentOverrides: {<workflow>: {<role>: <alias>}}  modelOverrides: {<scenario>: <alias>}
    forges: {<host>: github | gitlab | gitea | forgejo | bitbucket | sourcehut}

Keys of services are never in it: `apiKeyEnv` names the variable, and `.env` or the environment holds it.
What is misspelt or of the wrong type is refused when the file is read. What is merely missing, such as a
model's provider, is refused when it is needed: a file is often filled in one key at a time.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from uwf_git import yaml12
from uwf_git.errors import Invalid, NotFound, Usage
from uwf_git.forges import KINDS as FORGES
from uwf_git.nearest import nearest
from uwf_git.yaml12 import Document, ValuePath, one_line

FILE = "config.yaml"
EMBEDDED = "uwf-rehearse"
SHIPPED = ("uwf-rehearse", "uwf-human", "uwf-exec", "uwf-llm")

FIELDS: Mapping[str, tuple[str, ...]] = {
    "providers": ("baseUrl", "apiKeyEnv"),
    "models": ("provider", "name"),
    "agents": ("command", "args", "timeout"),
}
OVERRIDES = ("agentOverrides", "modelOverrides")
DEFAULTS = ("defaultAgent", "defaultModel")
FLAT = ("modelOverrides", "forges")
KEYS = (*FIELDS, *DEFAULTS, *OVERRIDES, "forges")

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)(ms|s|m|h|d))+", re.ASCII)
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", re.ASCII)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
SECRET_KEYS = frozenset(("apikey", "api_key", "api-key", "key", "token", "secret", "password"))
SECRET_HINT = "keys go into .env: uwf setup; name the variable in apiKeyEnv"


class Provider(NamedTuple):
    """An OpenAI-compatible service. `api_key_env` is a variable's name, "" where no key is needed."""

    name: str
    base_url: str
    api_key_env: str


class Model(NamedTuple):
    """A model of a provider; `name` is what the provider calls it."""

    alias: str
    provider: str
    name: str


class AgentConfig(NamedTuple):
    """A command that does steps. `timeout` is in seconds; None waits for ever."""

    alias: str
    command: str
    args: tuple[str, ...]
    timeout: float | None


class Config(NamedTuple):
    """The whole file; empty where there is none. `path` is where it is or would be."""

    providers: Mapping[str, Provider]
    models: Mapping[str, Model]
    agents: Mapping[str, AgentConfig]
    default_agent: str | None
    agent_overrides: Mapping[str, Mapping[str, str]]
    default_model: str | None
    model_overrides: Mapping[str, str]
    forges: Mapping[str, str]
    path: Path


class ConfigProblem(NamedTuple):
    """One thing wrong with the file. `line` and `column` count from 1."""

    line: int
    column: int
    message: str
    hint: str = ""


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
    document = read_document(root)
    config, problems = parse_config(document, root / FILE)
    reader = _Reader(document)
    reader.dangling(config)
    return sorted({*problems, *reader.problems})


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
    reader = _Reader(document)
    config = reader.config(path)
    return config, sorted(reader.problems)


def resolve_agent(config: Config, workflow: str, role: str, override: str | None = None) -> AgentConfig:
    """The agent for a role: `override` (what --agent gave: an alias or a command) > agentOverrides >
    defaultAgent > the embedded `uwf-rehearse`. Raises Invalid, Usage."""
    if override is not None:
        known = _known_agent(config, override)
        return known if known is not None else _from_command(override, "--agent")
    named, where = config.agent_overrides.get(workflow, {}).get(role), f"agentOverrides.{workflow}.{role}"
    if named is None:
        named, where = config.default_agent, "defaultAgent"
    if named is None:
        return AgentConfig(EMBEDDED, EMBEDDED, (), None)
    agent = _known_agent(config, named)
    if agent is None:
        raise Invalid(
            f'{config.path.name}: {one_line(where)} names agent "{one_line(named)}", which is not configured',
            nearest(named, [*config.agents, *SHIPPED]) or f"add it: uwf config set agents.{named}.command …",
        )
    if not agent.command:
        raise Invalid(
            f'{config.path.name}: agent "{one_line(agent.alias)}" has no command',
            f"uwf config set agents.{agent.alias}.command …",
        )
    return agent


def resolve_model(config: Config, scenario: str) -> Model | None:
    """The model for a scenario such as "extract": modelOverrides.<scenario> > models.<scenario> >
    defaultModel; None where none is configured. Raises Invalid where the name leads nowhere."""
    alias, where = config.model_overrides.get(scenario), f"modelOverrides.{scenario}"
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


def parse_command(text: str) -> tuple[str, tuple[str, ...]]:
    """A command line split as a shell would, without being one: program and arguments. Raises Usage
    for quotes that don't close and for what only a shell can do."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        words = list(lexer)
    except ValueError as error:
        raise Usage(f"command {one_line(text, 80)!r}: {str(error).lower()}", "close the quote") from None
    if not words or not words[0].strip():
        raise Usage("the command is empty", "name a program")
    if any(word and not word.strip("|&;<>") for word in words):
        raise Usage(
            f"command {one_line(text, 80)!r} needs a shell, and none is used",
            "name one: sh -c '…', or put it into a script",
        )
    return words[0], tuple(words[1:])


def parse_timeout(value: Any) -> float | None:
    """Seconds from a number, or from a text such as "90s", "10m" or "1h30m". None for what is neither
    or not above zero."""
    if isinstance(value, str):
        if not _DURATION.fullmatch(value.replace(" ", "")):
            return None
        parts = _DURATION_PART.findall(value.replace(" ", ""))
        seconds = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value)
    else:
        return None
    return seconds if 0 < seconds < 1e9 else None


def _known_agent(config: Config, name: str) -> AgentConfig | None:
    if name in config.agents:
        return config.agents[name]
    for command in SHIPPED:
        if name in (command, command.removeprefix("uwf-")):
            return AgentConfig(command, command, (), None)
    return None


def _from_command(text: str, where: str) -> AgentConfig:
    try:
        command, args = parse_command(text)
    except Usage as error:
        raise Usage(f"{where}: {error.message}", error.hint) from None
    return AgentConfig(PurePath(command).name, _expanded(command), args, None)


def _expanded(command: str) -> str:
    """`~` at the front becomes the home folder: no shell is there to do it."""
    return str(Path(command).expanduser()) if command.startswith("~") else command


class _Reader:
    """Reads a document; what is wrong is noted and left out."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self.problems: list[ConfigProblem] = []

    def config(self, path: Path) -> Config:
        data = self._mapping((), self._document.data, "the configuration", KEYS)
        entries = {section: self._entries(section, data.get(section)) for section in FIELDS}
        return Config(
            {alias: self._provider(alias, entry) for alias, entry in entries["providers"].items()},
            {alias: self._model(alias, entry) for alias, entry in entries["models"].items()},
            {alias: self._agent(alias, entry) for alias, entry in entries["agents"].items()},
            self._text((), data, "defaultAgent") or None,
            self._agent_overrides(data.get("agentOverrides")),
            self._text((), data, "defaultModel") or None,
            self._names(("modelOverrides",), data.get("modelOverrides")),
            self._forges(data.get("forges")),
            path,
        )

    def dangling(self, config: Config) -> None:
        """Notes what `config` leaves open."""
        for provider in config.providers.values():
            if not provider.base_url:
                self._refuse(("providers", provider.name), f'provider "{provider.name}" has no baseUrl')
        for model in config.models.values():
            path = ("models", model.alias)
            if not model.name:
                self._refuse(path, f'model "{model.alias}" has no name')
            if not model.provider:
                self._refuse(path, f'model "{model.alias}" has no provider')
            elif model.provider not in config.providers:
                self._unknown((*path, "provider"), "provider", model.provider, config.providers)
        for agent in config.agents.values():
            if not agent.command:
                self._refuse(("agents", agent.alias), f'agent "{agent.alias}" has no command')
        agents: list[tuple[ValuePath, str | None]] = [(("defaultAgent",), config.default_agent)]
        for workflow, roles in config.agent_overrides.items():
            agents += [(("agentOverrides", workflow, role), alias) for role, alias in roles.items()]
        for where, alias in agents:
            if alias is not None and _known_agent(config, alias) is None:
                self._unknown(where, "agent", alias, [*config.agents, *SHIPPED])
        models: list[tuple[ValuePath, str | None]] = [(("defaultModel",), config.default_model)]
        models += [(("modelOverrides", name), alias) for name, alias in config.model_overrides.items()]
        for where, alias in models:
            if alias is not None and alias not in config.models:
                self._unknown(where, "model", alias, config.models)

    def _entries(self, section: str, value: Any) -> dict[str, dict[str, Any]]:
        entries = self._mapping((section,), value, section)
        return {
            alias: self._mapping((section, alias), entry, f'{section} "{alias}"', FIELDS[section])
            for alias, entry in entries.items()
        }

    def _provider(self, alias: str, entry: dict[str, Any]) -> Provider:
        path = ("providers", alias)
        url = self._text(path, entry, "baseUrl")
        if url and not re.match(r"https?://[^/\s@]+(/|$)", url):
            why = "holds a name or password" if "@" in url else "is no http:// or https:// address"
            self._refuse((*path, "baseUrl"), f"baseUrl {why}", "for instance https://api.example.com/v1")
        variable = self._text(path, entry, "apiKeyEnv")
        if variable and not VARIABLE.fullmatch(variable):
            # What stands there may be the key itself, so it isn't shown.
            self._refuse(
                (*path, "apiKeyEnv"),
                "apiKeyEnv is not the name of an environment variable",
                "put the key itself into .env (uwf setup), and here its name, such as OPENAI_API_KEY",
            )
        return Provider(alias, url, variable)

    def _model(self, alias: str, entry: dict[str, Any]) -> Model:
        path = ("models", alias)
        return Model(alias, self._text(path, entry, "provider"), self._text(path, entry, "name"))

    def _agent(self, alias: str, entry: dict[str, Any]) -> AgentConfig:
        path = ("agents", alias)
        command, given = self._text(path, entry, "command"), ()
        if command:
            try:
                command, given = parse_command(command)  # type: ignore[assignment]
            except Usage as error:
                self._refuse((*path, "command"), error.message, error.hint)
        args = entry.get("args")
        if args is not None and not (isinstance(args, list) and all(isinstance(word, str) for word in args)):
            self._refuse((*path, "args"), "args must be a list of texts", 'quote numbers: ["--port", "80"]')
            args = None
        timeout = None
        if entry.get("timeout") is not None:
            timeout = parse_timeout(entry["timeout"])
            if timeout is None:
                shown = one_line(self._document.raw((*path, "timeout")) or "a collection", 40)
                self._refuse(
                    (*path, "timeout"), f"timeout {shown} is no duration", 'seconds, or "10m", "1h30m"'
                )
        return AgentConfig(alias, _expanded(command), (*given, *(args or ())), timeout)

    def _agent_overrides(self, value: Any) -> dict[str, dict[str, str]]:
        section = self._mapping(("agentOverrides",), value, "agentOverrides")
        return {name: self._names(("agentOverrides", name), roles) for name, roles in section.items()}

    def _forges(self, value: Any) -> dict[str, str]:
        kinds = self._names(("forges",), value)
        for host, kind in kinds.items():
            if kind not in FORGES:
                self._refuse(
                    ("forges", host),
                    f'forge "{one_line(kind, 40)}" of {one_line(host, 60)} is not known',
                    nearest(kind, FORGES) or "one of: " + ", ".join(FORGES),
                )
        return {host.lower(): kind for host, kind in kinds.items() if kind in FORGES}

    def _names(self, path: ValuePath, value: Any) -> dict[str, str]:
        entries = self._mapping(path, value, ".".join(map(str, path)))
        names = {key: self._text(path, entries, key) for key in entries}
        return {key: name for key, name in names.items() if name}

    def _mapping(self, path: ValuePath, value: Any, what: str, known: tuple[str, ...] = ()) -> dict[str, Any]:
        """The mapping at path, {} where there is nothing. With `known`, no other key is allowed."""
        if value is None:
            return {}
        if not isinstance(value, dict):
            self._refuse(path, f"{one_line(what)} must be a mapping")
            return {}
        for key in value if known else ():
            if key in known:
                continue
            message = f'unknown key "{one_line(key, 60)}"' + (f" in {one_line(what, 60)}" if path else "")
            if key.casefold() in SECRET_KEYS:
                self._refuse_key((*path, key), message, SECRET_HINT)
            else:
                hint = nearest(key, known) or "known: " + ", ".join(known)
                self._refuse_key((*path, key), message, hint)
        return value

    def _text(self, path: ValuePath, data: dict[str, Any], key: str) -> str:
        value = data.get(key)
        if value is None:
            return ""
        if not isinstance(value, str):
            raw = self._document.raw((*path, key))
            hint = f'quote it: "{one_line(raw, 60)}"' if raw else ""
            self._refuse((*path, key), f"{one_line(key)} must be text", hint)
            return ""
        if not value.strip() or not value.isprintable():
            self._refuse((*path, key), f"{one_line(key)} is empty or unprintable")
            return ""
        return value

    def _unknown(self, path: ValuePath, what: str, name: str, known: Any) -> None:
        self._refuse(path, f'{what} "{one_line(name, 60)}" is not configured', nearest(name, known))

    def _refuse(self, path: ValuePath, message: str, hint: str = "") -> None:
        mark = self._document.mark(path)
        self.problems.append(ConfigProblem(mark.line, mark.column, message, hint))

    def _refuse_key(self, path: ValuePath, message: str, hint: str) -> None:
        mark = self._document.key_mark(path)
        self.problems.append(ConfigProblem(mark.line, mark.column, message, hint))
