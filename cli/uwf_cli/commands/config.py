"""`uwf config`, `setup` and `completion`: config.yaml and .env in the storage root, and the user's shell."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from uwf_cli import resolve, terminal
from uwf_cli.command import command
from uwf_cli.completers import VARIABLE, complete_agent, complete_setting
from uwf_cli.invocation import Invocation
from uwf_cli.output import as_yaml
from uwf_git.base.errors import Usage
from uwf_git.base.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from uwf_git.config.settings import Config, ConfigProblem

MODEL = "default"


class Preset(NamedTuple):
    """What is known of a provider: its address, and the variable its key is in by custom."""

    base_url: str
    variable: str


PRESETS = {
    "openai": Preset("https://api.openai.com/v1", "OPENAI_API_KEY"),
    "openrouter": Preset("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "ollama": Preset("http://localhost:11434/v1", ""),
}


@command(
    "uwf config get defaultAgent",
    "uwf config get providers.openai.baseUrl",
    "uwf config get                            all of them",
)
@click.argument("key", required=False, shell_complete=complete_setting)
def get(invocation: Invocation, key: str | None) -> None:
    """Print a setting, a section, or all settings, as `uwf config list` does."""
    from uwf_git.config.edit import get_value

    if key is None:
        _emit_all(invocation)
        return
    invocation.emit(get_value(invocation.location.root, key), _plain)


@command(
    "uwf config set defaultAgent uwf-llm",
    'uwf config set agents.mine.command "my-agent --fast"',
    "uwf config set agents.mine.timeout 10m",
    "uwf config set agentOverrides.solve-issue.reviewer uwf-human",
)
@click.argument("key", shell_complete=complete_setting)
@click.argument("value")
def set_(invocation: Invocation, key: str, value: str) -> None:
    """Change a setting. Comments stay. Keys of services don't belong here: uwf setup puts them into .env."""
    from uwf_git.config.edit import set_value
    from uwf_git.config.read import check_config

    root = invocation.location.root
    written = set_value(root, key, value)
    _warn_of(invocation, [*check_config(root), *_unknown_names(invocation, key)])
    invocation.emit({"key": key, "value": written}, lambda shown: f"{shown['key']}: {_plain(shown['value'])}")


@command(
    "uwf config unset defaultAgent",
    "uwf config unset agentOverrides.solve-issue.reviewer",
    "uwf config unset agents.mine              all of it",
)
@click.argument("key", shell_complete=complete_setting)
def unset(invocation: Invocation, key: str) -> None:
    """Take a setting back; of a section, all of it. Other comments stay."""
    from uwf_git.config.edit import unset_value
    from uwf_git.config.read import check_config

    root = invocation.location.root
    value = unset_value(root, key)
    _warn_of(invocation, check_config(root))
    invocation.emit({"key": key, "value": value}, lambda shown: f"{shown['key']} is no longer set")


def _warn_of(invocation: Invocation, problems: Iterable[ConfigProblem]) -> None:
    for problem in problems:
        hint = f" — {problem.hint}" if problem.hint else ""
        invocation.warn(f"config.yaml:{problem.line}:{problem.column}: {problem.message}{hint}")


def _unknown_names(invocation: Invocation, key: str = "") -> list[ConfigProblem]:
    """The workflows and roles that the setting, or without a key the whole file, names and nobody knows: probably
    slips, but who configures a workflow before it is registered is right. Before there is any, there is nothing to
    compare with."""
    from uwf_git.api.workflows import project_roles
    from uwf_git.config.edit import split_key
    from uwf_git.config.read import read_document
    from uwf_git.config.workflows import check_names, together

    root = invocation.location.root
    path = split_key(key, read_document(root).data) if key else ()
    if path and path[0] not in ("agents", "agentOverrides", "budgets"):
        return []
    known = project_roles()
    if invocation.location.git_dir.exists():
        known = together(known, invocation.instance.known_roles())
    return check_names(root, known, path) if known else []


@command("uwf config list")
def list_(invocation: Invocation) -> None:
    """List all settings by their keys. A terminal also shows where config.yaml is."""
    _emit_all(invocation)


def _emit_all(invocation: Invocation) -> None:
    from uwf_git.config.edit import list_values
    from uwf_git.config.settings import FILE

    root = invocation.location.root

    def text(value: Any) -> str:
        rows = [(key, _plain(item).rstrip("\n")) for key, item in value.items()]
        return terminal.table(rows) if rows else f"nothing is set in {root / FILE}; uwf setup"

    values = list_values(root)
    if values:
        invocation.note(f"the settings in {root / FILE}")
    invocation.emit(values, text)


@command(
    "uwf config edit",
    "EDITOR=nano uwf config edit",
)
def edit(invocation: Invocation) -> None:
    """Open config.yaml in your editor ($VISUAL, $EDITOR) and check it afterwards.

    Exit 1 if it has errors; the file stays as you saved it. Names of unknown workflows and roles are warnings.
    """
    import signal

    from uwf_git.base.errors import Invalid, UwfError
    from uwf_git.config.read import check_config
    from uwf_git.config.settings import FILE

    path = invocation.location.root / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    before = signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C is the editor's; not ignored by the child
    try:
        click.edit(filename=str(path))
    except click.ClickException as error:
        raise UwfError(error.format_message(), "set VISUAL or EDITOR to an editor that runs here") from None
    finally:
        signal.signal(signal.SIGINT, before)
    problems = check_config(path.parent)
    _warn_of(invocation, problems)
    if problems:
        raise Invalid(f"{path} has {counted(len(problems), 'error')}", "correct it: uwf config edit")
    _warn_of(invocation, _unknown_names(invocation))
    invocation.emit({"config": str(path)}, lambda value: terminal.fields([("config", value["config"])]))


def _plain(value: Any) -> str:
    if isinstance(value, list):
        import shlex

        return shlex.join(map(str, value))
    return value if isinstance(value, str) else as_yaml(value)


class Wishes(NamedTuple):
    """What is to be set; None leaves a setting as it is."""

    provider: str | None = None
    base_url: str | None = None
    api_key: str | None = None
    model: str | None = None
    agent: str | None = None


@command(
    "uwf setup                                                     asks",
    "uwf setup --provider openai --model gpt-4o-mini --agent uwf-llm",
    "pass show openai | uwf setup --provider openai --api-key -    from a pipe",
)
@click.option("--provider", metavar="NAME", help="openai, openrouter, ollama, or a name of yours.")
@click.option("--base-url", metavar="URL", help="Its OpenAI-compatible address.")
@click.option("--api-key", metavar="KEY", help="Goes into .env; - reads it from standard input.")
@click.option("--model", metavar="NAME", help="What the provider calls it; becomes the default model.")
@click.option("--agent", metavar="CMD", help="Becomes the default agent.", shell_complete=complete_agent)
def setup(
    invocation: Invocation,
    provider: str | None,
    base_url: str | None,
    api_key: str | None,
    model: str | None,
    agent: str | None,
) -> None:
    """Set up a model and an agent.

    Keys go into .env (mode 0600) in the storage root, never into config.yaml.
    """
    root = invocation.location.root
    wishes = Wishes(provider, base_url, api_key, model, agent)
    if wishes == Wishes():
        if not (terminal.is_terminal(sys.stdin) and terminal.is_terminal(sys.stderr)):
            raise Usage(
                "there is nothing to set up", "give --provider, --model or --agent, or call it on a terminal"
            )
        wishes = _ask(root)
    elif wishes.api_key == resolve.STDIN:
        wishes = wishes._replace(api_key=resolve.read_stdin("key").strip())
    done = _apply(root, wishes)
    invocation.emit(
        done, lambda value: terminal.fields([(name, str(item or "")) for name, item in value.items()])
    )


def _apply(root: Path, wishes: Wishes) -> dict[str, Any]:
    """Writes config.yaml and .env; returns what is set now. Everything is checked before anything is
    written."""
    from uwf_git.config.edit import dotted, set_value, write_secret
    from uwf_git.config.read import load_config
    from uwf_git.config.settings import FILE
    from uwf_git.format.kinds import REHEARSE

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
        if not variable and (wishes.api_key or preset is None):
            variable = re.sub(r"\W", "_", provider, flags=re.ASCII).upper() + "_API_KEY"
        settings.append((("providers", provider, "baseUrl"), base_url))
        if variable:
            settings.append((("providers", provider, "apiKeyEnv"), variable))
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
    asked = agent or config.default_agent or ("uwf-builtin" if wishes.model else "")
    return {
        "provider": provider,
        "model": wishes.model,
        "agent": agent,
        "config": str(root / FILE),
        "env": str(secrets) if secrets else None,
        "next": f"uwf agent check {asked}" if asked not in ("", REHEARSE) else None,
    }


def _provider(config: Config, wishes: Wishes) -> str | None:
    """The provider that a model, an address or a key is meant for."""
    if wishes.provider is not None:
        return wishes.provider
    if wishes.model is None and wishes.base_url is None and wishes.api_key is None:
        return None
    from uwf_git.config.resolve import resolve_model

    model = resolve_model(config, MODEL)
    if model is not None:
        return model.provider
    if len(config.providers) == 1:
        return next(iter(config.providers))
    raise Usage("no provider is named", "give one with --provider, for instance " + ", ".join(PRESETS))


def _agent(text: str, config: Config) -> tuple[str, str]:
    """An agent's name, and the command to configure under it: "" for one that is known already. Raises Usage
    for what is a misspelt name rather than a program."""
    from uwf_git.config.known_agents import known_names
    from uwf_git.config.resolve import command_agent

    if text in known_names(config.agents, config.agent_clis):
        return text, ""
    return command_agent(config, text, "--agent").alias, text


def _ask(root: Path) -> Wishes:
    """Asks for everything; what is configured already is offered."""
    from uwf_git.config.read import load_config
    from uwf_git.config.resolve import resolve_model
    from uwf_git.format.kinds import REHEARSE

    config = load_config(root)
    model = resolve_model(config, MODEL)
    sys.stderr.write(
        "A model needs an OpenAI-compatible provider. Without one, agents that need none still work.\n"
    )
    provider = _prompt(
        "Provider (" + ", ".join(PRESETS) + ", another, or none)", model.provider if model else "none"
    )
    if provider == "none":
        agent = _prompt("Default agent", config.default_agent or REHEARSE)
        return Wishes(agent=agent)
    known, preset = config.providers.get(provider), PRESETS.get(provider)
    base_url = _prompt("Address", (known or preset or Preset("", "")).base_url or None)
    api_key = None
    if preset is None or preset.variable:
        api_key = click.prompt(
            "API key (stays hidden; empty leaves it as it is)",
            default="",
            show_default=False,
            hide_input=True,
            err=True,
        )
    name = _prompt("Model, as the provider calls it", model.name if model else None)
    agent = _prompt("Default agent", config.default_agent or "uwf-builtin")
    return Wishes(provider, base_url, api_key or None, name, agent)


def _prompt(question: str, default: str | None) -> str:
    return str(click.prompt(question, default=default, err=True)).strip()


@command(
    'eval "$(uwf completion bash)"                               in ~/.bashrc',
    'eval "$(uwf completion zsh)"                                in ~/.zshrc',
    "uwf completion fish > ~/.config/fish/completions/uwf.fish",
)
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def completion(invocation: Invocation, shell: str) -> None:
    """Print the script that lets a shell complete ids and names."""
    from click.shell_completion import get_completion_class

    from uwf_cli.tree import uwf

    kind = get_completion_class(shell)
    assert kind is not None
    # Without a look at the shell's version, for which click would run it.
    made = kind(uwf, {}, "uwf", VARIABLE)
    script = made.source_template % made.source_vars()
    invocation.emit_document(script, {"shell": shell, "script": script})
