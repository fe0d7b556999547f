"""What `config.yaml` can hold: the keys, and the values that they become."""

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
    from uwf_git.config.agent_cli import Row

FILE = "config.yaml"

FIELDS: Mapping[str, tuple[str, ...]] = {
    "providers": ("baseUrl", "apiKeyEnv", "limits"),
    "models": ("provider", "name", "price"),
    "agents": ("command", "args", "timeout", "silence", "tools", "limits"),
}
OVERRIDES = ("agentOverrides", "modelOverrides")
TEXTS = ("defaultAgent", "defaultModel", "node")
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
)
UNPRICED = ("warn", "stop")
"""What `budget.unpriced` can say: what becomes of a thread with a limit in money whose cost nobody knows."""
FORGES = ("github", "gitlab", "gitea", "forgejo", "bitbucket", "sourcehut")
"""What `forges` can say of a host."""
KEYS = (*FIELDS, *TEXTS, *OVERRIDES, "forges", *NESTED)

NO_MODEL = "none"
"""As an override: no model for that scenario, whatever the default is."""
MCP_FIELDS = ("command", "args", "url", "env", "tools", "timeout")
GRANT_FIELDS = ("network", "read", "write", "timeout")
JUDGE_KINDS = ("command", "jsonata", "exact", "schema", "workflow")
JUDGE_FIELDS = (*JUDGE_KINDS, "output", "threshold", "timeout")
HOOK_EVENTS = ("waiting", "budget", "failed", "completed", "killed", "paused")
"""What `hooks` can have a command for."""
INLINE_KEY = "apiKey"
"""A provider's key in config.yaml itself, as earlier programs have it: it is used, with a warning, and never set."""
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_SECRET_KEYS = frozenset(("apikey", "api_key", "api-key", "key", "token", "secret", "password"))


class Rates(NamedTuple):
    """How often a provider may be asked: how many steps that ask it a fleet begins in a second, and how many it makes
    at the same time on this machine, None for no limit. `wait` is for how many seconds an agent waits itself where the
    provider wants to be asked later; where that is longer, its step fails."""

    steps_per_second: float | None = None
    concurrent_steps: int | None = None
    wait: float = 60.0


class Provider(NamedTuple):
    """An OpenAI-compatible service. `api_key_env` names the variable of its key, "" if it needs none; `api_key` is a
    key that the file itself holds, used if there is no variable. One without an address is an agent of that name,
    with its limits."""

    name: str
    base_url: str
    api_key_env: str
    limits: Rates = Rates()
    api_key: str = ""

    @property
    def advice(self) -> str:
        """How to move a key out of the file; "" if it holds none."""
        if not self.api_key:
            return ""
        return (
            f"move it into .env: uwf setup --provider {self.name} --api-key -, "
            f"then uwf config unset providers.{self.name}.{INLINE_KEY}"
        )


class Price(NamedTuple):
    """US dollars per million tokens. `cached` is for those of the input that came from a cache; None where
    they cost what the others do."""

    input: float
    output: float
    cached: float | None = None


class Model(NamedTuple):
    """A model of a provider; `name` is what the provider calls it."""

    alias: str
    provider: str
    name: str
    price: Price | None = None


class AgentConfig(NamedTuple):
    """A command that does steps. `timeout` is in seconds, None for no limit, and so is `silence`, in which it may print
    nothing; None for the default of its kind. `tools` narrows what the agent may
    use. `stands_in` where it makes answers up and nobody chose it for the role. `limits` are those of the program that
    plays the role."""

    alias: str
    command: str
    args: tuple[str, ...]
    timeout: float | None
    tools: ToolPolicy | None = None
    stands_in: bool = False
    limits: Quota = Quota()
    silence: float | None = None


class McpServer(NamedTuple):
    """A server of the Model Context Protocol: a command, or the address of one that runs. In `env`,
    `$NAME` stands for a variable of the user's. `tools` are globs, None for all; `timeout` is in seconds."""

    name: str
    command: tuple[str, ...]
    url: str
    env: Mapping[str, str]
    tools: tuple[str, ...] | None
    timeout: float | None


class Hooks(NamedTuple):
    """Commands that are run when something has come of a thread, by what: one of HOOK_EVENTS. Each is ended after
    `timeout` seconds."""

    commands: Mapping[str, tuple[str, ...]] = {}
    timeout: float = 10.0


class Grants(NamedTuple):
    """How far the code of a bundle reaches out of its sandbox: whether it has the network, and which folders it may
    read and write, absolute or below `~`. `timeout` is how many seconds its own code may take for a step."""

    network: bool = False
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    timeout: float = 600.0


class JudgeSetting(NamedTuple):
    """A judge of evaluations. `value` depends on the kind, one of JUDGE_KINDS: of a command its words, of exact the
    fields, of workflow and jsonata a text, of schema a JSON Schema. `output` is an expression that says what the end of
    a workflow means; a score of at least `threshold` passes; a command is ended after `timeout` seconds."""

    name: str
    kind: str
    value: Any
    output: str = ""
    threshold: float = 0.5
    timeout: float = 600.0


class Config(NamedTuple):
    """The whole file; empty where there is none. `path` is where it is or would be. `budgets` are limits of
    threads by workflow, "" for all of them; `secrets` are variables whose values are never stored, `not_secrets` those
    whose values may be. `broken_clis` says what is wrong with rows of `agent_clis`, which only stops the steps that use
    them. `node` is the program that bundles in JavaScript run in: its name or path; `bundles` are what the code of
    workflows is granted, by their names. `stops_unpriced`: a thread with a limit in money waits where nobody knows what
    it costs. `workflow_paths` are folders of workflow files; `max_agents` bounds the agents at work on this machine,
    None for no limit."""

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
    agent_clis: Mapping[str, Row] = {}
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

    @property
    def prices(self) -> dict[str, Price]:
        """The prices by the model's name and by its alias."""
        found: dict[str, Price] = {}
        for model in self.models.values():
            if model.price is not None:
                found.setdefault(model.name, model.price)
                found.setdefault(model.alias, model.price)
        return found


class ConfigProblem(NamedTuple):
    """One thing wrong with the file. `line` and `column` count from 1."""

    line: int
    column: int
    message: str
    hint: str = ""


def key_hint(key: str, known: Sequence[str]) -> str:
    """The hint about an unknown key: where secrets go, else the nearest known key, else all of them."""
    if key.casefold() in _SECRET_KEYS:
        return "keys go into .env: uwf setup; name the variable in apiKeyEnv"
    return nearest(key, known) or "known: " + ", ".join(known)


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


def expanded(command: str) -> str:
    """`~` at the front becomes the home folder: no shell is there to do it. That of nobody stays as it is."""
    try:
        return str(Path(command).expanduser()) if command.startswith("~") else command
    except RuntimeError:
        return command
