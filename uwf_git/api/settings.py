"""Settings in config.yaml and .env."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.base.errors import Usage, UwfError
from uwf_git.config.edit import dotted, split_key, write_secret
from uwf_git.config.edit import get_value as get_value
from uwf_git.config.edit import list_values as list_values
from uwf_git.config.edit import set_value as set_value
from uwf_git.config.edit import unset_value as unset_value
from uwf_git.config.read import check_config as check_config
from uwf_git.config.read import load_config, read_document
from uwf_git.config.settings import ENVIRONMENT, Config
from uwf_git.config.settings import FILE as FILE
from uwf_git.config.settings import ConfigProblem as ConfigProblem
from uwf_git.format.kinds import REHEARSE as REHEARSE

if TYPE_CHECKING:
    from uwf_git.api.workflows import Sources

MODEL = "default"


def unknown_names(sources: Sources, key: str = "") -> list[ConfigProblem]:
    """Return unknown workflows and roles in a setting or the whole file. They may be registered later, and
    nothing is reported before the first is."""
    from uwf_git.api.workflows import project_roles
    from uwf_git.config.workflows import check_names, together

    path = split_key(key, read_document(sources.root).data) if key else ()
    if path and path[0] not in ("agents", "agentOverrides", "budgets"):
        return []
    known = project_roles()
    if sources.opened is not None:
        known = together(known, sources.opened().known_roles())
    return check_names(sources.root, known, path) if known else []


class Preset(NamedTuple):
    """A known provider: its URL, and the usual variable of its key."""

    base_url: str
    variable: str


PRESETS = {
    "openai": Preset("https://api.openai.com/v1", "OPENAI_API_KEY"),
    "openrouter": Preset("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "ollama": Preset("http://localhost:11434/v1", ""),
}


class SettingChanges(NamedTuple):
    """Settings to change; None keeps one."""

    provider: str | None = None
    base_url: str | None = None
    api_key: str | None = None
    api_key_command: str | None = None
    model: str | None = None
    agent: str | None = None


def set_up(root: Path, wishes: SettingChanges) -> dict[str, Any]:
    """Write config.yaml and .env after checking everything; return the settings as JSON. Raises Usage."""
    config = load_config(root)
    provider = _provider(config, wishes)
    settings: list[tuple[tuple[str, ...], str]] = []
    variable = ""
    if provider is not None:
        known, preset = config.providers.get(provider), PRESETS.get(provider)
        base_url = wishes.base_url or (known.base_url if known else "") or (preset.base_url if preset else "")
        if not base_url:
            raise Usage(f"the address of provider {provider!r} is not known", "give it with --base-url")
        variable = (known.api_key_env if known else "") or (preset.variable if preset else "")
        if not variable and (wishes.api_key or wishes.api_key_command or preset is None):
            variable = re.sub(r"\W", "_", provider, flags=re.ASCII).upper() + "_API_KEY"
        settings.append((("providers", provider, "baseUrl"), base_url))
        if variable:
            settings.append((("providers", provider, "apiKeyEnv"), variable))
    if wishes.api_key_command is not None:
        source: dict[str, Any] = {"command": wishes.api_key_command}
        # As a list it holds names alone.
        listed = {} if config.secret_sources else dict.fromkeys(config.secrets, ENVIRONMENT)
        key = ("secrets",) if listed else ("secrets", variable)
        settings.append((key, json.dumps({**listed, variable: source} if listed else source)))
    if wishes.model is not None:
        assert provider is not None
        settings += [
            (("models", MODEL, "provider"), provider),
            (("models", MODEL, "name"), wishes.model),
            (("defaultModel",), MODEL),
        ]
    agent = None
    if wishes.agent is not None:
        agent, command = _agent(wishes.agent, config)
        if command:
            settings.append((("agents", agent, "command"), command))
        settings.append((("defaultAgent",), agent))
    for path, value in settings:
        set_value(root, dotted(path), value)
    secrets = write_secret(root, variable, wishes.api_key) if wishes.api_key else None
    chosen = agent or config.default_agent or ("uwf-builtin" if wishes.model else "")
    return {
        "provider": provider,
        "model": wishes.model,
        "agent": agent,
        "config": str(root / FILE),
        "env": str(secrets) if secrets else None,
        "next": f"uwf agent check {chosen}" if chosen not in ("", REHEARSE) else None,
    }


def _provider(config: Config, wishes: SettingChanges) -> str | None:
    if wishes.provider is not None:
        return wishes.provider
    others = wishes.base_url, wishes.api_key, wishes.api_key_command, wishes.model
    if all(wish is None for wish in others):
        return None
    from uwf_git.config.resolve import resolve_model

    model = resolve_model(config, MODEL)
    if model is not None:
        return model.provider
    if len(config.providers) == 1:
        return next(iter(config.providers))
    raise Usage("no provider is named", "give one with --provider, for instance " + ", ".join(PRESETS))


def _agent(text: str, config: Config) -> tuple[str, str]:
    """Return an agent's name and its command, "" if known. Raises Usage for a misspelt name."""
    from uwf_git.config.resolve import command_agent, known_names

    if text in known_names(config):
        return text, ""
    return command_agent(config, text, "--agent").alias, text


def ready_agents(root: Path) -> list[str]:
    """Return the agents that ask a model and could work here, by the names in which they are chosen: those of the
    configuration, then the others; those that seem not to be logged in come last."""
    from uwf_git.config.resolve import asks_model, is_missing, known_names, named_agent
    from uwf_git.config.secrets import load_secrets
    from uwf_git.engine.performer import embedded

    config = load_config(root)
    environ = load_secrets(root, config, os.environ).unread()
    ready: list[str] = []
    doubtful: list[str] = []
    seen: set[tuple[str, ...]] = set()
    for name in sorted(known_names(config), key=lambda item: item.startswith("uwf-")):
        try:
            agent = named_agent(config, name)
            playing = embedded(agent.command)
            if (
                playing is None
                or not asks_model(agent.command)
                or agent.command == REHEARSE
                or is_missing(agent)
            ):
                continue
            warning = playing.ready(config, agent.args, environ)
        except UwfError:
            continue
        if (called := (agent.command, *agent.args)) not in seen:
            seen.add(called)
            (doubtful if warning else ready).append(name)
    return [*ready, *doubtful]


def set_up_before(root: Path) -> tuple[Config, SettingChanges]:
    """Return the configuration, and what `set_up` would find set."""
    from uwf_git.config.resolve import resolve_model

    config = load_config(root)
    model = resolve_model(config, MODEL)
    return config, SettingChanges(
        model.provider if model else None,
        model=model.name if model else None,
        agent=config.default_agent,
    )
