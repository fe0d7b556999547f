"""Reading `config.yaml`: agents, models, providers and other settings.

    providers: {<alias>: {baseUrl, apiKeyEnv, limits}}  models: {<alias>: {provider, name, price}}
    agents: {<alias>: {command, args, timeout, silence, tools, limits}}
    defaultAgent, defaultModel: <alias>
    agentOverrides: {<workflow>: {<role>: <alias>}}  modelOverrides: {<scenario>: <alias>}
    tools: {allow, deny, runCommand, …}              budgets: {default: {…}, workflows: {<workflow>: {…}}}
    agentClis: {<name>: row}                         mcpServers: {<name>: {command, env, tools, timeout}}
    secrets, notSecrets: [<variable>]                hooks: {<event>: command, timeout}
    bundles: {<workflow>: {network, read, write, timeout}}  budget: {unpriced: warn | stop}
    judges: {<name>: {command | jsonata | exact | schema | workflow, output, threshold, timeout}}
    forges: {<host>: github | gitlab | gitea | forgejo | bitbucket | sourcehut}
    node: <program>      workflowPaths: [<folder>]      maxAgents: <number>      sessions: keep
    workspace: {kind, remote, setup, copy, link, timeout, keepIgnored, maxFile, keep, projects: {<folder>: {…}}}

API keys belong in `.env` or the environment, under the name in `apiKeyEnv`. A provider's `apiKey`, as in
earlier programs, works with a warning. Misspelt and wrong values are refused on reading, missing ones when
they are needed, since a file is often filled in key by key. A broken row of `agentClis` stops only steps that
use it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uwf_git.base import log
from uwf_git.base.errors import Invalid, NotFound, Usage
from uwf_git.base.text import nearest, one_line
from uwf_git.base.thread_states import HOOKS
from uwf_git.config.known_agents import ANY_ROW, full_name, known_names
from uwf_git.config.policy import ToolPolicy, parse_policy
from uwf_git.config.resolve import command_agent, hint_to_add, is_command
from uwf_git.config.settings import (
    FIELDS,
    FILE,
    FORGES,
    GRANT_FIELDS,
    INLINE_KEY,
    JUDGE_FIELDS,
    JUDGE_KINDS,
    KEEP,
    KEYS,
    MCP_FIELDS,
    NO_MODEL,
    UNPRICED,
    VARIABLE,
    WORKSPACE_FIELDS,
    WORKSPACES,
    AgentConfig,
    Config,
    ConfigProblem,
    Grants,
    Hooks,
    JudgeSetting,
    McpServer,
    Model,
    Price,
    Provider,
    Rates,
    WorkspaceSettings,
    expanded,
    key_hint,
    parse_command,
)
from uwf_git.format import yaml12
from uwf_git.format.amounts import parse_budget, parse_duration, parse_quota, parse_rates, parse_size
from uwf_git.format.document import Document
from uwf_git.format.schema import ValuePath

if TYPE_CHECKING:
    from uwf_git.config.agent_cli import AgentRow, RowProblem


def load_config(root: Path) -> Config:
    """Return a storage root's configuration. Raises Invalid with line and nearest key."""
    reader = _Reader(read_document(root))
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
    if problems := sorted(reader.problems):
        first = problems[0]
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        where = f"{one_line(str(root / FILE))}:{first.line}:{first.column}"
        raise Invalid(f"{where}: {first.message}{more}", first.hint)
    return config


def check_config(root: Path) -> list[ConfigProblem]:
    """Return all problems, including missing names and fields. Raises Invalid if it is not YAML."""
    reader = _Reader(read_document(root))
    reader.dangling(reader.config(root / FILE))
    return sorted(set(reader.problems))


def read_document(root: Path) -> Document:
    """Return the file's document, empty if there is no file."""
    path = root / FILE
    try:
        return yaml12.read(path)
    except NotFound:
        return yaml12.load("", str(path))


def wrong_values(document: Document, path: Path) -> list[ConfigProblem]:
    """Return a document's wrong values, also in unused rows of `agentClis`, without missing ones."""
    reader = _Reader(document)
    reader.config(path)
    return [*reader.problems, *reader.late]


def _fields(section: str) -> tuple[str, ...]:
    return (*FIELDS[section], INLINE_KEY) if section == "providers" else FIELDS[section]


class _Reader:
    """Reads a document, skipping and reporting wrong parts. `late` are problems of `agentClis`, which stop
    only the steps that use them."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self.problems: list[ConfigProblem] = []
        self.late: list[ConfigProblem] = []
        self._broken_clis: dict[str, list[RowProblem]] = {}

    def config(self, path: Path) -> Config:
        data = self._mapping((), self._document.data, "the configuration", KEYS)
        entries = {section: self._entries(section, data.get(section)) for section in FIELDS}
        rows = data.get("agentClis")
        self._rows = set(rows) if isinstance(rows, dict) else set()
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
            self._tools(("tools",), data.get("tools")) or ToolPolicy(),
            self._budgets(data.get("budgets")),
            self._agent_clis(data.get("agentClis")),
            self._mcp_servers(data.get("mcpServers")),
            self._variables(("secrets",), data.get("secrets")),
            {name: "; ".join(each.text for each in problems) for name, problems in self._broken_clis.items()},
            self._hooks(path.parent, data.get("hooks")),
            self._text((), data, "node") or "node",
            self._bundles(data.get("bundles")),
            self._unpriced(data.get("budget")),
            self._variables(("notSecrets",), data.get("notSecrets")),
            self._judges(data.get("judges")),
            self._folders(path.parent, ("workflowPaths",), data.get("workflowPaths")),
            self._max_agents(data.get("maxAgents")),
            self._workspace(data.get("workspace")),
            self._keeps_sessions(data),
        )

    def dangling(self, config: Config) -> None:
        for provider in config.providers.values():
            if not provider.base_url and provider.limits == Rates():
                self._refuse(("providers", provider.name), f'provider "{provider.name}" has no baseUrl')
        for name, problems in self._broken_clis.items():
            for problem in problems:
                self._refuse(("agentClis", name), f'agentClis "{one_line(name, 40)}": {problem.text}')
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
        names = known_names(config.agents, config.agent_clis)
        for where, alias in agents:
            if alias is None or alias in names:
                continue
            if not is_command(alias):
                self._unknown(where, "agent", alias, names, hint_to_add(one_line(alias, 60)))
                continue
            try:
                command_agent(config, alias, ".".join(map(str, where)))
            except Usage as error:
                self._refuse(where, error.message, error.hint)
        models: list[tuple[ValuePath, str | None]] = [(("defaultModel",), config.default_model)]
        models += [(("modelOverrides", name), alias) for name, alias in config.model_overrides.items()]
        for where, alias in models:
            if alias not in (None, NO_MODEL) and alias not in config.models:
                self._unknown(where, "model", alias, config.models)

    def _entries(self, section: str, value: Any) -> dict[str, dict[str, Any]]:
        entries = self._mapping((section,), value, section)
        return {
            alias: self._mapping((section, alias), entry, f'{section} "{alias}"', _fields(section))
            for alias, entry in entries.items()
        }

    def _provider(self, alias: str, entry: dict[str, Any]) -> Provider:
        path = ("providers", alias)
        url = self._text(path, entry, "baseUrl")
        if url and not re.match(r"https?://[^/\s@]+(/|$)", url):
            why = "holds a name or password" if "@" in url else "is not an http:// or https:// address"
            self._refuse((*path, "baseUrl"), f"baseUrl {why}", "for instance https://api.example.com/v1")
        variable = self._text(path, entry, "apiKeyEnv")
        if variable and not VARIABLE.fullmatch(variable):
            # The text may be the key itself, so it isn't shown.
            self._refuse(
                (*path, "apiKeyEnv"),
                "apiKeyEnv is not the name of an environment variable",
                "put the key itself into .env (uwf setup), and here its name, such as OPENAI_API_KEY",
            )
        rates, problems = parse_rates(entry.get("limits"))
        for key, message, hint in problems:
            self._refuse((*path, "limits") if key is None else (*path, "limits", key), message, hint)
        concurrent = rates.get("concurrentSteps")
        limits = Rates(
            rates.get("stepsPerSecond"),
            None if concurrent is None else int(concurrent),
            rates.get("wait", Rates().wait),
        )
        return Provider(alias, url, variable, limits, self._text(path, entry, INLINE_KEY))

    def _model(self, alias: str, entry: dict[str, Any]) -> Model:
        path = ("models", alias)
        price = self._price((*path, "price"), entry.get("price"))
        return Model(alias, self._text(path, entry, "provider"), self._text(path, entry, "name"), price)

    def _price(self, path: ValuePath, value: Any) -> Price | None:
        entry = self._mapping(path, value, "price", Price._fields)
        for key, item in entry.items():
            if key in Price._fields and not (_is_number(item) and item >= 0):
                hint = "US dollars per million tokens, as in price: {input: 2.5, output: 10}"
                self._refuse((*path, key), f"price: {key} is not an amount", hint)
                return None
        if not entry:
            return None
        return Price(entry.get("input", 0), entry.get("output", 0), entry.get("cached"))

    def _tools(self, path: ValuePath, value: Any) -> ToolPolicy | None:
        if value is None:
            return None
        policy, problems = parse_policy(value)
        for problem in problems:
            self._refuse(path, problem)
        return policy

    def _budgets(self, value: Any) -> dict[str, dict[str, float]]:
        section = self._mapping(("budgets",), value, "budgets", ("default", "workflows"))
        found = {"": self._budget(("budgets", "default"), section.get("default"))}
        path: ValuePath = ("budgets", "workflows")
        for name, each in self._mapping(path, section.get("workflows"), "budgets.workflows").items():
            found[name] = self._budget((*path, name), each)
        return {name: limits for name, limits in found.items() if limits}

    def _unpriced(self, value: Any) -> bool:
        section = self._mapping(("budget",), value, "budget", ("unpriced",))
        said = section.get("unpriced", UNPRICED[0])
        if said not in UNPRICED:
            self._refuse(("budget", "unpriced"), f"must be one of: {', '.join(UNPRICED)}")
        return bool(said == "stop")

    def _budget(self, path: ValuePath, value: Any) -> dict[str, float]:
        limits, problems = parse_budget(value)
        for key, message, hint in problems:
            self._refuse(path if key is None else (*path, key), message, hint)
        return limits

    def _agent_clis(self, value: Any) -> dict[str, AgentRow]:
        entries = self._mapping(("agentClis",), value, "agentClis")
        if not entries:
            return {}
        from uwf_git.config.agent_cli import parse_row

        rows = {}
        for name, entry in entries.items():
            row, problems = parse_row(entry, name)
            rows[name] = row
            if problems:
                self._broken_clis[name] = problems
            mark = self._document.mark(("agentClis", name))
            for problem in (each for each in problems if not each.missing):
                text = f'agentClis "{one_line(name, 40)}": {problem.text}'
                self.late.append(ConfigProblem(mark.line, mark.column, text))
        return rows

    def _mcp_servers(self, value: Any) -> dict[str, McpServer]:
        entries = self._mapping(("mcpServers",), value, "mcpServers")
        return {name: self._mcp_server(name, entry) for name, entry in entries.items()}

    def _mcp_server(self, name: str, value: Any) -> McpServer:
        path: ValuePath = ("mcpServers", name)
        what = f'mcpServers "{one_line(name, 40)}"'
        entry = self._mapping(path, value, what, MCP_FIELDS)
        given = entry.get("command")
        if isinstance(given, str):
            given = self._command(path, given)
        else:
            given = self._texts((*path, "command"), given) or ()
        args = self._texts((*path, "args"), entry.get("args")) or ()
        url = self._text(path, entry, "url")
        if bool(given) == bool(url):
            self._refuse(path, f"{what} needs a command, or a url", "command: [npx, some-server]")
        timeout = self._timeout(path, entry)
        tools = self._texts((*path, "tools"), entry.get("tools"))
        env = self._names((*path, "env"), entry.get("env"))
        return McpServer(name, (*given, *args), url, env, tools, timeout)

    def _hooks(self, root: Path, value: Any) -> Hooks:
        entry = self._mapping(("hooks",), value, "hooks", (*HOOKS, "timeout"))
        commands: dict[str, tuple[str, ...]] = {}
        for event in HOOKS:
            given = entry.get(event)
            if isinstance(given, list):
                words = self._texts(("hooks", event), given) or ()
            else:
                text = self._text(("hooks",), entry, event)
                words = self._command(("hooks",), text, event) if text else ()
            if words:
                program = expanded(words[0])
                # A folder that a step happens to be made in says nothing about what is run.
                commands[event] = (str(root / program) if "/" in program else program, *words[1:])
        return Hooks(commands, self._timeout(("hooks",), entry) or Hooks().timeout)

    def _folders(self, root: Path, path: ValuePath, value: Any) -> tuple[Path, ...]:
        return tuple(root / expanded(name) for name in self._texts(path, value) or ())

    def _workspace(self, value: Any) -> WorkspaceSettings:
        path: ValuePath = ("workspace",)
        fields = (*WORKSPACE_FIELDS, "keep", "projects")
        entry = self._mapping(path, value, "workspace", fields)
        keep = entry.get("keep", 50)
        if not isinstance(keep, int) or isinstance(keep, bool) or not 0 < keep <= 10_000:
            self._refuse((*path, "keep"), "workspace.keep must be a whole number from 1 to 10000")
            keep = 50
        projects = self._mapping((*path, "projects"), entry.get("projects"), "workspace.projects")
        return WorkspaceSettings(
            **self._workspace_fields(path, entry),
            keep=keep,
            projects={
                Path(expanded(folder)): self._workspace_fields(
                    (*path, "projects", folder),
                    self._mapping((*path, "projects", folder), of, "a project's workspace", WORKSPACE_FIELDS),
                )
                for folder, of in projects.items()
            },
        )

    def _workspace_fields(self, path: ValuePath, entry: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name in ("kind", "remote"):
            if text := self._text(path, entry, name):
                found[name] = text
        if found.get("kind", "shared") not in WORKSPACES:
            self._refuse((*path, "kind"), f"workspace.kind must be one of {', '.join(WORKSPACES)}")
            del found["kind"]
        setup = entry.get("setup")
        if isinstance(setup, list):
            found["setup"] = self._texts((*path, "setup"), setup) or ()
        elif text := self._text(path, entry, "setup"):
            found["setup"] = self._command(path, text, "setup")
        for name, field in (("copy", "copy"), ("link", "link"), ("keepIgnored", "keep_ignored")):
            if (paths := self._texts((*path, name), entry.get(name))) is not None:
                found[field] = tuple(each.strip("/") for each in paths)
                for each in paths:
                    if each.startswith(("/", "~")) or ".." in each.split("/") or not each.strip("/."):
                        self._refuse((*path, name), f"{name} has {each!r}, which is no path in the project")
        if (timeout := self._timeout(path, entry)) is not None:
            found["timeout"] = timeout
        if (most := entry.get("maxFile")) is not None:
            if (size := parse_size(most)) is None:
                self._refuse((*path, "maxFile"), "workspace.maxFile must be a size, such as 50MB")
            else:
                found["max_file"] = size
        return found

    def _max_agents(self, value: Any) -> int | None:
        if value is None or (isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 1000):
            return value
        self._refuse(
            ("maxAgents",), "maxAgents must be a whole number from 1 to 1000", "unset it for no limit"
        )
        return None

    def _keeps_sessions(self, data: dict[str, Any]) -> bool:
        said = self._text((), data, "sessions")
        if said not in ("", KEEP):
            self._refuse(("sessions",), f"sessions must be: {KEEP}", "unset it to keep none")
        return said == KEEP

    def _bundles(self, value: Any) -> dict[str, Grants]:
        entries = self._mapping(("bundles",), value, "bundles")
        return {name: self._grants(name, entry) for name, entry in entries.items()}

    def _grants(self, name: str, value: Any) -> Grants:
        path: ValuePath = ("bundles", name)
        entry = self._mapping(path, value, f'bundles "{one_line(name, 40)}"', GRANT_FIELDS)
        network = entry.get("network")
        if not isinstance(network, bool | None):
            self._refuse((*path, "network"), "network is true or false")
        folders = {key: self._texts((*path, key), entry.get(key)) or () for key in ("read", "write")}
        for key, named in folders.items():
            for each in named:
                if not each.startswith(("/", "~/")):
                    self._refuse(
                        (*path, key), f"{key}: {one_line(each, 60)} is not an absolute path", "or ~/folder"
                    )
        timeout = self._timeout(path, entry) or Grants().timeout
        return Grants(network is True, folders["read"], folders["write"], timeout)

    def _judges(self, value: Any) -> dict[str, JudgeSetting]:
        entries = self._mapping(("judges",), value, "judges")
        found = {name: self._judge(name, entry) for name, entry in entries.items()}
        return {name: judge for name, judge in found.items() if judge is not None}

    def _judge(self, name: str, value: Any) -> JudgeSetting | None:
        path: ValuePath = ("judges", name)
        what = f'judges "{one_line(name, 40)}"'
        entry = self._mapping(path, value, what, JUDGE_FIELDS)
        kinds = [kind for kind in JUDGE_KINDS if entry.get(kind) is not None]
        if len(kinds) != 1:
            if entry:
                self._refuse(path, f"{what} needs one of {', '.join(JUDGE_KINDS)}", "command: make test")
            return None
        kind = kinds[0]
        given = entry[kind]
        if kind == "command" and isinstance(given, str):
            given = self._command(path, given)
        elif kind in ("command", "exact"):
            given = () if (kind, given) == ("exact", True) else self._texts((*path, kind), given)
        elif kind != "schema":
            given = self._text(path, entry, kind)
        elif not isinstance(given, dict | bool):
            self._refuse((*path, kind), f"{what}: schema is not a JSON Schema")
            given = None
        if given is None or given == "" or (kind == "command" and not given):
            return None
        threshold = entry.get("threshold", JudgeSetting(name, kind, given).threshold)
        if not (_is_number(threshold) and 0 <= threshold <= 1):
            self._refuse((*path, "threshold"), "threshold is a number from 0 to 1")
            return None
        timeout = self._timeout(path, entry) or JudgeSetting(name, kind, given).timeout
        return JudgeSetting(name, kind, given, self._text(path, entry, "output"), threshold, timeout)

    def _command(self, path: ValuePath, text: str, key: str = "command") -> tuple[str, ...]:
        try:
            command, args = parse_command(text)
        except Usage as error:
            self._refuse((*path, key), error.message, error.hint)
            return ()
        return (command, *args)

    def _texts(self, path: ValuePath, value: Any) -> tuple[str, ...] | None:
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
            self._refuse(path, f"{path[-1]} must be a list of texts", 'quote numbers: ["--port", "80"]')
            return None
        return tuple(value)

    def _variables(self, path: ValuePath, value: Any) -> tuple[str, ...]:
        names = self._texts(path, value) or ()
        for name in names:
            if not VARIABLE.fullmatch(name):
                # The text may be the secret itself, so it isn't shown.
                self._refuse(
                    path, f"{path[-1]} must be names of environment variables", "such as GITHUB_TOKEN"
                )
                return ()
        return names

    def _agent(self, alias: str, entry: dict[str, Any]) -> AgentConfig:
        path = ("agents", alias)
        text = self._text(path, entry, "command")
        command, *given = (self._command(path, text) if text else ()) or (text,)
        args = self._texts((*path, "args"), entry.get("args")) or ()
        timeout, silence = self._timeout(path, entry), self._timeout(path, entry, "silence")
        tools = self._tools((*path, "tools"), entry.get("tools"))
        limits, problems = parse_quota(entry.get("limits"))
        for key, message, hint in problems:
            self._refuse((*path, "limits") if key is None else (*path, "limits", key), message, hint)
        if command in self._rows:
            command, given = ANY_ROW, [command, *given]
        command = expanded(full_name(command))
        return AgentConfig(alias, command, (*given, *args), timeout, tools, limits=limits, silence=silence)

    def _timeout(self, path: ValuePath, entry: dict[str, Any], key: str = "timeout") -> float | None:
        if entry.get(key) is None:
            return None
        timeout = parse_duration(entry[key])
        if timeout is None:
            shown = one_line(self._document.raw((*path, key)) or "a collection", 40)
            self._refuse((*path, key), f"{key} {shown} is not a duration", 'seconds, or "10m", "1h30m"')
        return timeout

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
        """Return the mapping at a path, {} if absent. With `known`, other keys are refused."""
        if value is None:
            return {}
        if not isinstance(value, dict):
            self._refuse(path, f"{one_line(what)} must be a mapping")
            return {}
        for key in value if known else ():
            if key in known:
                continue
            message = f'unknown key "{one_line(key, 60)}"' + (f" in {one_line(what, 60)}" if path else "")
            mark = self._document.key_mark((*path, key))
            self.problems.append(ConfigProblem(mark.line, mark.column, message, key_hint(key, known)))
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

    def _unknown(self, path: ValuePath, what: str, name: str, known: Any, otherwise: str = "") -> None:
        hint = nearest(name, known) or otherwise
        self._refuse(path, f'{what} "{one_line(name, 60)}" is not configured', hint)

    def _refuse(self, path: ValuePath, message: str, hint: str = "") -> None:
        mark = self._document.mark(path)
        self.problems.append(ConfigProblem(mark.line, mark.column, message, hint))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
