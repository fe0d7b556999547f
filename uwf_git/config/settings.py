"""Keys and values of `config.yaml`."""

import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from uwf_git.base.errors import Usage
from uwf_git.base.extensions import config_keys
from uwf_git.base.text import nearest, one_line
from uwf_git.config.policy import ToolPolicy, tighten
from uwf_git.format.schema import ValuePath
from uwf_git.sandbox.quota import Quota

if TYPE_CHECKING:
    from uwf_git.git.objects import Person

FILE = "config.yaml"
"""The file of settings in the storage root."""

FIELDS: Mapping[str, tuple[str, ...]] = {
    "providers": ("baseUrl", "apiKeyEnv", "limits", "cacheMarks"),
    "models": ("provider", "name", "price"),
    "agents": ("command", "args", "timeout", "silence", "tools", "limits", "env"),
}
OVERRIDES = ("agentOverrides", "modelOverrides")
TEXTS = ("defaultAgent", "defaultModel", "node", "sessions")
"""Keys that hold one text."""
FLAT = ("modelOverrides", "forges", "trackers")
STRUCTURED: Mapping[str, tuple[str, ...]] = {
    "agents": ("tools", "limits"),
    "models": ("price",),
    "providers": ("limits",),
}
"""Fields of these sections that hold a mapping of their own."""
NESTED = (
    "tools",
    "budgets",
    "budget",
    "secrets",
    "notSecrets",
    "hooks",
    "workflowPaths",
    "maxAgents",
    "views",
    "permissionWait",
    "workspace",
)
UNPRICED = ("warn", "stop")
"""What `budget.unpriced` can say: what becomes of a thread with a limit in money whose cost nobody knows."""
CacheMarks = Literal["anthropic", "openai", "none"]
"""What `providers.<alias>.cacheMarks` can say: how the beginnings of requests are marked for a provider's cache."""
FORGES = ("github", "gitlab", "gitea", "forgejo", "bitbucket", "sourcehut")
"""Kinds that `forges` can say of a host."""
TRACKERS = ("jira",)
"""Kinds that `trackers` can say of a host."""
HOSTS = ("forges", "trackers")
"""Keys with entries by host."""
HOST_FIELDS = ("kind", "api")
"""Fields of a host's entry, if it is a mapping."""
KEYS = (*FIELDS, *TEXTS, *OVERRIDES, *HOSTS, *NESTED)

KEEP = "keep"
"""What `sessions` can say: that what agent programs keep of a conversation is kept with its steps."""
NO_MODEL = "none"
"""As an override: no model for that scenario, whatever the default is."""
WORKSPACE_FIELDS = (
    "kind",
    "remote",
    "setup",
    "copy",
    "timeout",
    "keepIgnored",
    "maxFile",
    "author",
    "signOff",
    "env",
)
INLINE_KEY = "apiKey"
"""A provider's key in config.yaml itself, as earlier programs have it: it is used, with a warning, and never set."""
VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*"
ENVIRONMENT = "environment"
"""Where a variable of `secrets` is by default: in `.env` or the environment."""
_SECRET_KEYS = frozenset(("apikey", "api_key", "api-key", "key", "token", "secret", "password"))


class Rates(NamedTuple):
    """Rate limits of a provider: steps started per second in a fleet, and concurrent steps on this machine;
    None for no limit. `wait` is the longest Retry-After, in seconds, that an agent waits for; beyond it the
    step fails."""

    steps_per_second: float | None = None
    concurrent_steps: int | None = None
    wait: float = 60.0


class Provider(NamedTuple):
    """An OpenAI-compatible service. `api_key_env` is the key's variable, "" if none is needed; `api_key` a
    key in the file, used without a variable. Without a URL it sets the limits of an agent of that name. `cache_marks`
    is None to mark as the model's name says."""

    name: str
    base_url: str
    api_key_env: str
    limits: Rates = Rates()
    api_key: str = ""
    cache_marks: CacheMarks | None = None

    @property
    def advice(self) -> str:
        """How to move a key out of the file, or ""."""
        if not self.api_key:
            return ""
        return (
            f"move it into .env: uwf setup --provider {self.name} --api-key -, "
            f"then uwf config unset providers.{self.name}.{INLINE_KEY}"
        )


class Price(NamedTuple):
    """US dollars per million tokens. `cached` is for input from a cache, `written` for input that is written into one;
    None for the price of other input."""

    input: float
    output: float
    cached: float | None = None
    written: float | None = None


class Model(NamedTuple):
    """A provider's model; `name` is the provider's."""

    alias: str
    provider: str
    name: str
    price: Price | None = None


class AgentConfig(NamedTuple):
    """An agent's command. `timeout` and `silence` (without output) are in seconds, None for no limit or the
    default. `tools` narrows its policy; `stands_in`: it generates outputs and was not chosen; `limits` are
    its program's; `env` are the secrets that it gets, by variable."""

    alias: str
    command: str
    args: tuple[str, ...]
    timeout: float | None
    tools: ToolPolicy | None = None
    stands_in: bool = False
    limits: Quota = Quota()
    silence: float | None = None
    env: tuple[str, ...] = ()


class NamedAgent(NamedTuple):
    """An agent that an extension's section defines: `command` plays it, with its name as the first argument. `writes`:
    it changes files, as far as its tools permit."""

    command: str
    writes: bool = True


class SecretSource(NamedTuple):
    """The command that prints a secret, and the seconds that it may take, as a person may have to unlock something."""

    command: tuple[str, ...]
    timeout: float = 60.0


class Hooks(NamedTuple):
    """Hook commands by event, one of `thread_states.HOOKS`, each limited to `timeout` seconds. They get the secrets of
    `env`, by variable."""

    commands: Mapping[str, tuple[str, ...]] = {}
    timeout: float = 10.0
    env: tuple[str, ...] = ()


class WorkspaceSettings(NamedTuple):
    """Threads' workspaces. `kind` is one of WORKSPACES, "" for the default; `remote` the project's remote for
    threads' code, "" for none. New worktrees get a copy of `copy`, paths of the user's checkout, and then
    run the command `setup`, each limited to `timeout` seconds. Ignored files that match `keep_ignored`, git's
    pathspecs, outlast a worktree. A step that commits a file of over `max_file` bytes names it. `author` is the author
    of the commits, None for the agent of each step; with `sign_off` they have that of their person. `setup` gets the
    secrets of `env`, by variable. At most `keep` worktrees stay. `projects` have settings of their own by folder."""

    kind: str = ""
    remote: str = ""
    setup: tuple[str, ...] = ()
    copy: tuple[str, ...] = ()
    timeout: float = 600.0
    keep_ignored: tuple[str, ...] = ()
    max_file: float = 50e6
    author: "Person | None" = None
    sign_off: bool = False
    env: tuple[str, ...] = ()
    keep: int = 50
    projects: Mapping[Path, Mapping[str, Any]] = {}

    def of(self, checkout: Path | None) -> "WorkspaceSettings":
        """Return the settings of the project with this checkout."""
        own = self.projects.get(checkout, {}) if checkout is not None else {}
        return self._replace(**own)


class Layer(NamedTuple):
    """What a project's set-up adds to the user's settings, beside what it is merged into. Its `budgets` apply as well;
    `tools` narrows each agent's policy. `keys` are the settings that are the project's and not the user's; `name`
    is the file's."""

    name: str
    budgets: Mapping[str, Mapping[str, float]]
    tools: ToolPolicy
    keys: Collection[ValuePath]


class Config(NamedTuple):
    """The configuration; empty without a file. `budgets` are by workflow, "" for all; `secrets` and
    `not_secrets` are variables, `secret_sources` where values of some are. `sections` are extensions' by key, as their
    readers return them, and `named_agents` the agents that these define. `node` runs JavaScript. `stops_unpriced`:
    threads with a cost limit wait if the cost is unknown. `max_agents` limits running agents on this machine; a request
    of one that nobody decides waits `permission_wait` seconds for a person. `workspace` says where agents work;
    `keeps_sessions`: the sessions of agent programs are kept with steps, and restored. `forges` and `trackers` are
    kinds by host, `forge_apis` and `tracker_apis` addresses of their REST APIs. `views` are words of `api.filters` by
    name. `layer` is what a project's set-up, which the user has allowed, adds to all that."""

    providers: Mapping[str, Provider]
    models: Mapping[str, Model]
    agents: Mapping[str, AgentConfig]
    default_agent: str | None
    agent_overrides: Mapping[str, Mapping[str, str]]
    default_model: str | None
    model_overrides: Mapping[str, str]
    forges: Mapping[str, str]
    path: Path
    tools: ToolPolicy = ToolPolicy()
    budgets: Mapping[str, Mapping[str, float]] = {}
    named_agents: Mapping[str, NamedAgent] = {}
    sections: Mapping[str, Any] = {}
    secrets: tuple[str, ...] = ()
    hooks: Hooks = Hooks()
    node: str = "node"
    stops_unpriced: bool = False
    not_secrets: tuple[str, ...] = ()
    workflow_paths: tuple[Path, ...] = ()
    max_agents: int | None = None
    workspace: WorkspaceSettings = WorkspaceSettings()
    keeps_sessions: bool = False
    forge_apis: Mapping[str, str] = {}
    trackers: Mapping[str, str] = {}
    tracker_apis: Mapping[str, str] = {}
    views: Mapping[str, str] = {}
    permission_wait: float | None = None
    secret_sources: Mapping[str, SecretSource] = {}
    layer: Layer | None = None

    def file_of(self, *path: str) -> str:
        """Return the name of the file that a setting is in."""
        return self.layer.name if self.layer is not None and path in self.layer.keys else self.path.name

    def policy(self, own: ToolPolicy | None, *narrower: ToolPolicy | None) -> ToolPolicy:
        """Return the tools of an agent with a policy of its `own`: the strictest of all."""
        layer = self.layer.tools if self.layer is not None else None
        return tighten(self.tools, own, layer, *narrower)

    def budgets_by_source(self, workflow: str) -> list[tuple[str, Mapping[str, float]]]:
        """Return the budgets of a workflow's threads, each with the file that has it, and for whom."""
        sources = [(self.path.name, self.budgets)]
        if self.layer is not None:
            sources.append((self.layer.name, self.layer.budgets))
        return [
            (f"{file} for {name}" if name else file, budgets[name])
            for file, budgets in sources
            for name in dict.fromkeys(("", workflow))
            if name in budgets
        ]

    @property
    def prices(self) -> dict[str, Price]:
        """Prices by model name and alias."""
        prices: dict[str, Price] = {}
        for model in self.models.values():
            if model.price is not None:
                prices.setdefault(model.name, model.price)
                prices.setdefault(model.alias, model.price)
        return prices


class ConfigProblem(NamedTuple):
    """A problem of the file. `line` and `column` count from 1."""

    line: int
    column: int
    message: str
    hint: str = ""


def known_keys() -> tuple[str, ...]:
    """Return the keys of the file, with those of extensions' sections."""
    return (*KEYS, *config_keys())


def key_hint(key: str, known: Sequence[str]) -> str:
    """Return the hint for an unknown key: the place of secrets, the nearest key, or all keys."""
    if key.casefold() in _SECRET_KEYS:
        return "keys go into .env: uwf setup; name the variable in apiKeyEnv"
    return nearest(key, known) or "known: " + ", ".join(known)


def parse_command(text: str) -> tuple[str, tuple[str, ...]]:
    """Split a command line like a shell, into program and arguments. Raises Usage for unclosed quotes and
    shell syntax."""
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


def expanded(command: str) -> str:
    """Expand a leading `~`, since no shell does."""
    try:
        return str(Path(command).expanduser()) if command.startswith("~") else command
    except RuntimeError:
        return command
