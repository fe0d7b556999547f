"""Reading `config.yaml`: agents, models, providers and other settings.

    providers: {<alias>: {baseUrl, apiKeyEnv, limits, cacheMarks}}  models: {<alias>: {provider, name, price}}
    agents: {<alias>: {command, args, timeout, silence, tools, limits, env: [<variable>]}}
    defaultAgent, defaultModel: <alias>
    agentOverrides: {<workflow>: {<role>: <alias>}}  modelOverrides: {<scenario>: <alias>}
    tools: {allow, deny, runCommand, …}              budgets: {default: {…}, workflows: {<workflow>: {…}}}
    secrets, notSecrets: [<variable>]                hooks: {<event>: command, timeout, env: [<variable>]}
    secrets: {<variable>: environment, or {command, timeout}, or {keyring: SERVICE/USER}}
    budget: {unpriced: warn | stop}
    forges: {<host>: github | gitlab | gitea | forgejo | bitbucket | sourcehut, or {kind, api}}
    trackers: {<host>: jira, or {kind, api}}
    node: <program>      workflowPaths: [<folder>]      maxAgents: <number>      sessions: keep
    permissionWait: <duration>
    workspace: {kind, remote, setup, copy, timeout, keepIgnored, maxFile, author, signOff, env, keep,
                projects: {<folder>: {…}}}
    views: {<name>: <filters of threads>}

API keys belong in `.env` or the environment, under the name in `apiKeyEnv`. A provider's `apiKey`, as in
earlier programs, works with a warning. Misspelt and wrong values are refused on reading, missing ones when
they are needed, since a file is often filled in key by key. Extensions read sections of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from uwf_git.base import log
from uwf_git.base.errors import Invalid, Usage, UwfError
from uwf_git.base.extensions import ConfigSection, config_section, load
from uwf_git.base.text import nearest, one_line
from uwf_git.base.thread_states import HOOKS
from uwf_git.config.policy import ToolPolicy, parse_policy
from uwf_git.config.reader import Reader
from uwf_git.config.resolve import command_agent, full_name, hint_to_add, is_command, known_names
from uwf_git.config.secret_source import read_sources
from uwf_git.config.settings import (
    FIELDS,
    FILE,
    FORGES,
    HOST_FIELDS,
    INLINE_KEY,
    KEEP,
    KEYS,
    NO_MODEL,
    TRACKERS,
    UNPRICED,
    VARIABLE,
    WORKSPACE_FIELDS,
    AgentConfig,
    CacheMarks,
    Config,
    ConfigProblem,
    Hooks,
    Model,
    Price,
    Provider,
    Rates,
    WorkspaceSettings,
    expanded,
    known_keys,
)
from uwf_git.format import yaml12
from uwf_git.format.amounts import Problem, parse_budget, parse_quota, parse_rates, parse_size
from uwf_git.format.document import Document
from uwf_git.format.schema import ValuePath
from uwf_git.format.words import WORKSPACES

if TYPE_CHECKING:
    from uwf_git.git.objects import Person

_Amounts = TypeVar("_Amounts")


def load_config(root: Path) -> Config:
    """Return a storage root's configuration. Raises Invalid with line and nearest key."""
    reader = SettingsReader(read_document(root))
    config = reader.config(root / FILE)
    log.debug(
        "MWB0N19K",
        "reads {path}",
        path=root / FILE,
        agents=config.agents.keys(),
        models=config.models.keys(),
        providers=config.providers.keys(),
        problems=len(reader.problems),
    )
    refuse_problems(root / FILE, reader.problems)
    return config


def refuse_problems(path: Path, problems: Iterable[ConfigProblem]) -> None:
    """Raise Invalid with the first problem of a file, if there is any."""
    if in_order := sorted(problems):
        first = in_order[0]
        more = f" (and {len(in_order) - 1} more)" if len(in_order) > 1 else ""
        where = f"{one_line(str(path))}:{first.line}:{first.column}"
        raise Invalid(f"{where}: {first.message}{more}", first.hint)


def check_config(root: Path) -> list[ConfigProblem]:
    """Return all problems, including missing names and fields. Raises Invalid if it is not YAML."""
    reader = SettingsReader(read_document(root))
    reader.dangling(reader.config(root / FILE))
    return sorted(set(reader.problems))


def read_document(root: Path) -> Document:
    """Return the file's document, empty if there is no file."""
    path = root / FILE
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return Document(str(path), None, {}, {}, {})
    except OSError:  # reading it says why
        pass
    return yaml12.read(path)


def wrong_values(document: Document, path: Path) -> list[ConfigProblem]:
    """Return a document's wrong values, also unused ones, without missing ones."""
    reader = SettingsReader(document)
    reader.config(path)
    return [*reader.problems, *reader.late]


def _fields(section: str) -> tuple[str, ...]:
    return (*FIELDS[section], INLINE_KEY) if section == "providers" else FIELDS[section]


class SettingsReader(Reader):
    """Reads the whole file."""

    def config(self, path: Path) -> Config:
        data = self.document.data
        foreign = [key for key in data if key not in KEYS] if isinstance(data, dict) else []
        more = {key: row for key in foreign if (row := config_section(str(key))) is not None}
        known = (*KEYS, *more) if len(more) == len(foreign) else known_keys()
        data = self.mapping((), data, "the configuration", known)
        sections = {
            key: self._section(row, data[key]) for key, row in more.items() if data.get(key) is not None
        }
        entries = {section: self._entries(section, data.get(section)) for section in FIELDS}
        forges, forge_apis = self._hosts("forges", data.get("forges"), FORGES)
        trackers, tracker_apis = self._hosts("trackers", data.get("trackers"), TRACKERS)
        secrets, sources = read_sources(self, path.parent, data.get("secrets"))
        return Config(
            {alias: self._provider(alias, entry) for alias, entry in entries["providers"].items()},
            {alias: self._model(alias, entry) for alias, entry in entries["models"].items()},
            {alias: self._agent(alias, entry) for alias, entry in entries["agents"].items()},
            self.text((), data, "defaultAgent") or None,
            self._agent_overrides(data.get("agentOverrides")),
            self.text((), data, "defaultModel") or None,
            self.names(("modelOverrides",), data.get("modelOverrides")),
            forges,
            path,
            self._tools(("tools",), data.get("tools")) or ToolPolicy(),
            self._budgets(data.get("budgets")),
            self.named_agents,
            sections,
            secrets,
            self._hooks(path.parent, data.get("hooks")),
            self.text((), data, "node") or "node",
            self._unpriced(data.get("budget")),
            self.variables(("notSecrets",), data.get("notSecrets")),
            self._folders(path.parent, ("workflowPaths",), data.get("workflowPaths")),
            self._max_agents(data.get("maxAgents")),
            self._workspace(data.get("workspace")),
            self._keeps_sessions(data),
            forge_apis,
            trackers,
            tracker_apis,
            self.names(("views",), data.get("views")),
            self.timeout((), data, "permissionWait"),
            sources,
        )

    def _section(self, row: ConfigSection, value: Any) -> Any:
        try:
            return load(row.read)(self, value)
        except (Exception, SystemExit) as error:  # it may be a stranger's code
            why = f"{type(error).__name__}: {one_line(str(error), 200)}"
            hint = f"correct the section, or update the package of {row.read.partition(':')[0]}"
            raise UwfError(f"{FILE}: {row.key} cannot be read: {why}", hint) from error

    def dangling(self, config: Config) -> None:
        for provider in config.providers.values():
            if not provider.base_url and provider.limits == Rates():
                self.refuse(("providers", provider.name), f'provider "{provider.name}" has no baseUrl')
        self.problems += [*self.late, *self.missing]
        for model in config.models.values():
            path = ("models", model.alias)
            if not model.name:
                self.refuse(path, f'model "{model.alias}" has no name')
            if not model.provider and model.price is not None:
                continue  # only tells what other programs' tokens cost
            if not model.provider:
                self.refuse(path, f'model "{model.alias}" has no provider')
            elif model.provider not in config.providers:
                self._unknown((*path, "provider"), "provider", model.provider, config.providers)
        for agent in config.agents.values():
            if not agent.command:
                self.refuse(("agents", agent.alias), f'agent "{agent.alias}" has no command')
        agents: list[tuple[ValuePath, str | None]] = [(("defaultAgent",), config.default_agent)]
        for workflow, roles in config.agent_overrides.items():
            agents += [(("agentOverrides", workflow, role), alias) for role, alias in roles.items()]
        names = known_names(config)
        for where, alias in agents:
            if alias is None or alias in names:
                continue
            if not is_command(alias):
                self._unknown(where, "agent", alias, names, hint_to_add(one_line(alias, 60)))
                continue
            try:
                command_agent(config, alias, ".".join(map(str, where)))
            except Usage as error:
                self.refuse(where, error.message, error.hint)
        models: list[tuple[ValuePath, str | None]] = [(("defaultModel",), config.default_model)]
        models += [(("modelOverrides", name), alias) for name, alias in config.model_overrides.items()]
        for where, alias in models:
            if alias not in (None, NO_MODEL) and alias not in config.models:
                self._unknown(where, "model", alias, config.models)

    def _entries(self, section: str, value: Any) -> dict[str, dict[str, Any]]:
        entries = self.mapping((section,), value, section)
        return {
            alias: self.mapping((section, alias), entry, f'{section} "{alias}"', _fields(section))
            for alias, entry in entries.items()
        }

    def _provider(self, alias: str, entry: dict[str, Any]) -> Provider:
        path = ("providers", alias)
        url = self.text(path, entry, "baseUrl")
        if url and not re.match(r"https?://[^/\s@]+(/|$)", url):
            why = "holds a name or password" if "@" in url else "is not an http:// or https:// address"
            self.refuse((*path, "baseUrl"), f"baseUrl {why}", "for instance https://api.example.com/v1")
        variable = self.text(path, entry, "apiKeyEnv")
        if variable and not re.fullmatch(VARIABLE, variable):
            # The text may be the key itself, so it isn't shown.
            self.refuse(
                (*path, "apiKeyEnv"),
                "apiKeyEnv is not the name of an environment variable",
                "put the key itself into .env (uwf setup), and here its name, such as OPENAI_API_KEY",
            )
        rates = self._amounts((*path, "limits"), parse_rates(entry.get("limits")))
        concurrent = rates.get("concurrentSteps")
        limits = Rates(
            rates.get("stepsPerSecond"),
            None if concurrent is None else int(concurrent),
            rates.get("wait", Rates().wait),
        )
        text, settings = self.text(path, entry, "cacheMarks"), get_args(CacheMarks)
        if text and text not in settings:
            self.refuse((*path, "cacheMarks"), f"cacheMarks must be one of: {', '.join(settings)}")
        marks: CacheMarks | None = next((setting for setting in settings if setting == text), None)
        return Provider(alias, url, variable, limits, self.text(path, entry, INLINE_KEY), marks)

    def _model(self, alias: str, entry: dict[str, Any]) -> Model:
        path = ("models", alias)
        price = self._price((*path, "price"), entry.get("price"))
        return Model(alias, self.text(path, entry, "provider"), self.text(path, entry, "name"), price)

    def _price(self, path: ValuePath, value: Any) -> Price | None:
        entry = self.mapping(path, value, "price", Price._fields)
        for key, item in entry.items():
            if key in Price._fields and not (_is_number(item) and item >= 0):
                hint = "US dollars per million tokens, as in price: {input: 2.5, output: 10}"
                self.refuse((*path, key), f"price: {key} is not an amount", hint)
                return None
        if not entry:
            return None
        return Price(entry.get("input", 0), entry.get("output", 0), entry.get("cached"), entry.get("written"))

    def _tools(self, path: ValuePath, value: Any) -> ToolPolicy | None:
        if value is None:
            return None
        policy, problems = parse_policy(value)
        for problem in problems:
            self.refuse(path, problem)
        return policy

    def _budgets(self, value: Any) -> dict[str, dict[str, float]]:
        section = self.mapping(("budgets",), value, "budgets", ("default", "workflows"))
        budgets = {}
        if "default" in section:
            budgets[""] = self._amounts(("budgets", "default"), parse_budget(section["default"]))
        path: ValuePath = ("budgets", "workflows")
        for name, item in self.mapping(path, section.get("workflows"), "budgets.workflows").items():
            budgets[name] = self._amounts((*path, name), parse_budget(item))
        return {name: limits for name, limits in budgets.items() if limits}

    def _unpriced(self, value: Any) -> bool:
        section = self.mapping(("budget",), value, "budget", ("unpriced",))
        policy = section.get("unpriced", UNPRICED[0])
        if policy not in UNPRICED:
            self.refuse(("budget", "unpriced"), f"must be one of: {', '.join(UNPRICED)}")
        return bool(policy == "stop")

    def _amounts(self, path: ValuePath, parsed: tuple[_Amounts, list[Problem]]) -> _Amounts:
        amounts, problems = parsed
        for key, message, hint in problems:
            self.refuse(path if key is None else (*path, key), message, hint)
        return amounts

    def _hooks(self, root: Path, value: Any) -> Hooks:
        entry = self.mapping(("hooks",), value, "hooks", (*HOOKS, "timeout", "env"))
        commands: dict[str, tuple[str, ...]] = {}
        for event in HOOKS:
            given = entry.get(event)
            if isinstance(given, list):
                words = self.texts(("hooks", event), given) or ()
            else:
                text = self.text(("hooks",), entry, event)
                words = self.command(("hooks",), text, event) if text else ()
            if words:
                program = expanded(words[0])
                # A folder that a step happens to be made in says nothing about what is run.
                commands[event] = (str(root / program) if "/" in program else program, *words[1:])
        env = self.variables(("hooks", "env"), entry.get("env"))
        return Hooks(commands, self.timeout(("hooks",), entry) or Hooks().timeout, env)

    def _folders(self, root: Path, path: ValuePath, value: Any) -> tuple[Path, ...]:
        return tuple(root / expanded(name) for name in self.texts(path, value) or ())

    def _workspace(self, value: Any) -> WorkspaceSettings:
        path: ValuePath = ("workspace",)
        fields = (*WORKSPACE_FIELDS, "keep", "projects")
        entry = self.mapping(path, value, "workspace", fields)
        keep = entry.get("keep", 50)
        if not isinstance(keep, int) or isinstance(keep, bool) or not 0 < keep <= 10_000:
            self.refuse((*path, "keep"), "workspace.keep must be a whole number from 1 to 10000")
            keep = 50
        projects = self.mapping((*path, "projects"), entry.get("projects"), "workspace.projects")
        return WorkspaceSettings(
            **self._workspace_fields(path, entry),
            keep=keep,
            projects={
                Path(expanded(folder)): self._workspace_fields(
                    (*path, "projects", folder),
                    self.mapping((*path, "projects", folder), of, "a project's workspace", WORKSPACE_FIELDS),
                )
                for folder, of in projects.items()
            },
        )

    def _workspace_fields(self, path: ValuePath, entry: dict[str, Any]) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        for name in ("kind", "remote"):
            if text := self.text(path, entry, name):
                fields[name] = text
        if fields.get("kind", "shared") not in WORKSPACES:
            self.refuse((*path, "kind"), f"workspace.kind must be one of {', '.join(WORKSPACES)}")
            del fields["kind"]
        setup = entry.get("setup")
        if isinstance(setup, list):
            fields["setup"] = self.texts((*path, "setup"), setup) or ()
        elif text := self.text(path, entry, "setup"):
            fields["setup"] = self.command(path, text, "setup")
        for name, field in (("copy", "copy"), ("keepIgnored", "keep_ignored")):
            if (paths := self.texts((*path, name), entry.get(name))) is not None:
                fields[field] = tuple(element.strip("/") for element in paths)
                for item in paths:
                    if item.startswith(("/", "~")) or ".." in item.split("/") or not item.strip("/."):
                        self.refuse((*path, name), f"{name} has {item!r}, which is no path in the project")
        if (timeout := self.timeout(path, entry)) is not None:
            fields["timeout"] = timeout
        if names := self.variables((*path, "env"), entry.get("env")):
            fields["env"] = names
        if (most := entry.get("maxFile")) is not None:
            if (size := parse_size(most)) is None:
                self.refuse((*path, "maxFile"), "workspace.maxFile must be a size, such as 50MB")
            else:
                fields["max_file"] = size
        if text := self.text(path, entry, "author"):
            fields["author"] = self._person((*path, "author"), text)
        if (signs := entry.get("signOff")) is not None:
            if not isinstance(signs, bool):
                self.refuse((*path, "signOff"), "signOff must be true or false")
            else:
                fields["sign_off"] = signs
        return fields

    def _person(self, path: ValuePath, text: str) -> Person | None:
        from uwf_git.git.objects import Person

        match = re.fullmatch(r"([^<>]*[^<>\s]) <([^<>\s]+@[^<>\s]+)>", text)
        if match is None:
            self.refuse(path, "author must be a name and an address", "such as: Ada <ada@example.org>")
            return None
        return Person(match[1], match[2])

    def _max_agents(self, value: Any) -> int | None:
        if value is None or (isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 1000):
            return value
        self.refuse(
            ("maxAgents",), "maxAgents must be a whole number from 1 to 1000", "unset it for no limit"
        )
        return None

    def _keeps_sessions(self, data: dict[str, Any]) -> bool:
        setting = self.text((), data, "sessions")
        if setting not in ("", KEEP):
            self.refuse(("sessions",), f"sessions must be: {KEEP}", "unset it to keep none")
        return setting == KEEP

    def _agent(self, alias: str, entry: dict[str, Any]) -> AgentConfig:
        path = ("agents", alias)
        text = self.text(path, entry, "command")
        command, *words = (self.command(path, text) if text else ()) or (text,)
        args = self.texts((*path, "args"), entry.get("args")) or ()
        timeout, silence = self.timeout(path, entry), self.timeout(path, entry, "silence")
        tools = self._tools((*path, "tools"), entry.get("tools"))
        limits = self._amounts((*path, "limits"), parse_quota(entry.get("limits")))
        if command in self.named_agents:
            command, words = self.named_agents[command].command, [command, *words]
        command = expanded(full_name(command))
        env = self.variables((*path, "env"), entry.get("env"))
        return AgentConfig(
            alias, command, (*words, *args), timeout, tools, limits=limits, silence=silence, env=env
        )

    def _agent_overrides(self, value: Any) -> dict[str, dict[str, str]]:
        section = self.mapping(("agentOverrides",), value, "agentOverrides")
        return {name: self.names(("agentOverrides", name), roles) for name, roles in section.items()}

    def _hosts(self, section: str, value: Any, known: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
        """Return kinds by host, each its entry or the `kind` of a mapping, and addresses of APIs by host."""
        entries = self.mapping((section,), value, section)
        kinds: dict[str, str] = {}
        apis: dict[str, str] = {}
        for host, entry in entries.items():
            from uwf_git.config.forges import is_host

            path: ValuePath = (section, host)
            if not is_host(host):
                self.refuse(path, f"{one_line(host, 60)} is no host", f"such as {section}.git.example.org")
            if isinstance(entry, dict):
                fields = self.mapping(path, entry, host, HOST_FIELDS)
                kind, api = self.text(path, fields, "kind"), self.text(path, fields, "api")
                kind_path: ValuePath = (*path, "kind")
            else:
                kind, api, kind_path = self.text((section,), entries, host), "", path
            if kind in known:
                kinds[host.lower()] = kind
            elif kind:
                self.refuse(
                    kind_path,
                    f'{section[:-1]} "{one_line(kind, 40)}" of {one_line(host, 60)} is not known',
                    nearest(kind, known) or "one of: " + ", ".join(known),
                )
            if api and not re.fullmatch(r"https?://[^\s@?#]+", api):
                hint = "such as https://git.example.org/api/v1"
                self.refuse((*path, "api"), "api must be an address", hint)
            elif api:
                apis[host.lower()] = api.rstrip("/")
        return kinds, apis

    def _unknown(self, path: ValuePath, what: str, name: str, known: Any, otherwise: str = "") -> None:
        hint = nearest(name, known) or otherwise
        self.refuse(path, f'{what} "{one_line(name, 60)}" is not configured', hint)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
