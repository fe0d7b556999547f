"""Keys and values of `config.yaml`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.base.errors import Usage
from uwf_git.base.text import nearest, one_line
from uwf_git.config.policy import ToolPolicy
from uwf_git.sandbox.quota import Quota

if TYPE_CHECKING:
    from uwf_git.config.agent_cli import AgentRow

FILE = "config.yaml"

FIELDS: Mapping[str, tuple[str, ...]] = {
    "providers": ("baseUrl", "apiKeyEnv", "limits"),
    "models": ("provider", "name", "price"),
    "agents": ("command", "args", "timeout", "silence", "tools", "limits"),
}
OVERRIDES = ("agentOverrides", "modelOverrides")
TEXTS = ("defaultAgent", "defaultModel", "node", "sessions")
"""Keys that hold one text."""
FLAT = ("modelOverrides", "forges")
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
    "agentClis",
    "mcpServers",
    "secrets",
    "notSecrets",
    "hooks",
    "bundles",
    "judges",
    "workflowPaths",
    "maxAgents",
    "workspace",
)
UNPRICED = ("warn", "stop")
"""What `budget.unpriced` can say: what becomes of a thread with a limit in money whose cost nobody knows."""
FORGES = ("github", "gitlab", "gitea", "forgejo", "bitbucket", "sourcehut")
"""What `forges` can say of a host."""
KEYS = (*FIELDS, *TEXTS, *OVERRIDES, "forges", *NESTED)

KEEP = "keep"
"""What `sessions` can say: that what agent programs keep of a conversation is kept with its steps."""
NO_MODEL = "none"
"""As an override: no model for that scenario, whatever the default is."""
MCP_FIELDS = ("command", "args", "url", "env", "tools", "timeout")
GRANT_FIELDS = ("network", "read", "write", "timeout")
WORKSPACES = ("worktree", "folder", "shared")
"""What `workspace.kind` can be."""
WORKSPACE_FIELDS = ("kind", "remote", "setup", "copy", "link", "timeout", "keepIgnored", "maxFile")
JUDGE_KINDS = ("command", "jsonata", "exact", "schema", "workflow")
JUDGE_FIELDS = (*JUDGE_KINDS, "output", "threshold", "timeout")
INLINE_KEY = "apiKey"
"""A provider's key in config.yaml itself, as earlier programs have it: it is used, with a warning, and never set."""
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
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
    key in the file, used without a variable. Without a URL it sets the limits of an agent of that name."""

    name: str
    base_url: str
    api_key_env: str
    limits: Rates = Rates()
    api_key: str = ""

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
    """US dollars per million tokens. `cached` is for cached input, None for the same price."""

    input: float
    output: float
    cached: float | None = None


class Model(NamedTuple):
    """A provider's model; `name` is the provider's."""

    alias: str
    provider: str
    name: str
    price: Price | None = None


class AgentConfig(NamedTuple):
    """An agent's command. `timeout` and `silence` (without output) are in seconds, None for no limit or the
    default. `tools` narrows its policy; `stands_in`: it generates outputs and was not chosen; `limits` are
    its program's."""

    alias: str
    command: str
    args: tuple[str, ...]
    timeout: float | None
    tools: ToolPolicy | None = None
    stands_in: bool = False
    limits: Quota = Quota()
    silence: float | None = None


class McpServer(NamedTuple):
    """An MCP server: a command or a URL. `$NAME` in `env` is a variable. `tools` are globs, None for all;
    `timeout` is in seconds."""

    name: str
    command: tuple[str, ...]
    url: str
    env: Mapping[str, str]
    tools: tuple[str, ...] | None
    timeout: float | None


class Hooks(NamedTuple):
    """Hook commands by event, one of `thread_states.HOOKS`, each limited to `timeout` seconds."""

    commands: Mapping[str, tuple[str, ...]] = {}
    timeout: float = 10.0


class Grants(NamedTuple):
    """Permissions of a code workflow's sandbox: network, readable and writable folders (absolute or below
    `~`), and `timeout` in seconds for its own code in a step."""

    network: bool = False
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    timeout: float = 600.0


class JudgeSetting(NamedTuple):
    """A judge. `value` depends on the kind, one of JUDGE_KINDS: a command's words, fields, a workflow or
    expression, a JSON Schema. `output` is an expression on a workflow's end; a score of at least `threshold`
    passes; `timeout` is in seconds."""

    name: str
    kind: str
    value: Any
    output: str = ""
    threshold: float = 0.5
    timeout: float = 600.0


class WorkspaceSettings(NamedTuple):
    """Threads' workspaces. `kind` is one of WORKSPACES, "" for the default; `remote` the project's remote for
    threads' branches, "" for none. New worktrees get `copy` and `link`, paths of the user's checkout, and then
    run the command `setup`, limited to `timeout` seconds. Ignored files that match `keep_ignored`, git's pathspecs,
    outlast a worktree. A step that commits a file of over `max_file` bytes names it. At most `keep` worktrees stay.
    `projects` have settings of their own by folder."""

    kind: str = ""
    remote: str = ""
    setup: tuple[str, ...] = ()
    copy: tuple[str, ...] = ()
    link: tuple[str, ...] = ()
    timeout: float = 600.0
    keep_ignored: tuple[str, ...] = ()
    max_file: float = 50e6
    keep: int = 50
    projects: Mapping[Path, Mapping[str, Any]] = {}

    def of(self, checkout: Path | None) -> WorkspaceSettings:
        """Return the settings of the project with this checkout."""
        own = self.projects.get(checkout, {}) if checkout is not None else {}
        return self._replace(**own)


class Config(NamedTuple):
    """The configuration; empty without a file. `budgets` are by workflow, "" for all; `secrets` and
    `not_secrets` are variables. `broken_clis` are problems of `agent_clis` rows. `node` runs JavaScript;
    `bundles` are code workflows' permissions. `stops_unpriced`: threads with a cost limit wait if the cost is
    unknown. `max_agents` limits running agents on this machine. `workspace` says where agents work;
    `keeps_sessions`: the sessions of agent programs are kept with steps, and restored."""

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
    agent_clis: Mapping[str, AgentRow] = {}
    mcp_servers: Mapping[str, McpServer] = {}
    secrets: tuple[str, ...] = ()
    broken_clis: Mapping[str, str] = {}
    hooks: Hooks = Hooks()
    node: str = "node"
    bundles: Mapping[str, Grants] = {}
    stops_unpriced: bool = False
    not_secrets: tuple[str, ...] = ()
    judges: Mapping[str, JudgeSetting] = {}
    workflow_paths: tuple[Path, ...] = ()
    max_agents: int | None = None
    workspace: WorkspaceSettings = WorkspaceSettings()
    keeps_sessions: bool = False

    @property
    def prices(self) -> dict[str, Price]:
        """Prices by model name and alias."""
        found: dict[str, Price] = {}
        for model in self.models.values():
            if model.price is not None:
                found.setdefault(model.name, model.price)
                found.setdefault(model.alias, model.price)
        return found


class ConfigProblem(NamedTuple):
    """A problem of the file. `line` and `column` count from 1."""

    line: int
    column: int
    message: str
    hint: str = ""


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
