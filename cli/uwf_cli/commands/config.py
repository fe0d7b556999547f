"""`uwf config`, `setup` and `completion`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from uwf_cli import resolve, terminal
from uwf_cli.command import command
from uwf_cli.completers import VARIABLE, complete_agent, complete_setting
from uwf_cli.invocation import Invocation
from uwf_cli.output import as_yaml
from uwf_cli.resolve import sources_of
from uwf_cli.views import Record
from uwf_git.base.errors import Usage
from uwf_git.base.text import counted
from uwf_git.sandbox.enclosing_step import require_person

if TYPE_CHECKING:
    from collections.abc import Iterable

    from uwf_git.api.settings import ConfigProblem, SettingChanges


@command(
    "uwf config get defaultAgent",
    "uwf config get providers.openai.baseUrl",
    "uwf config get                            all of them",
)
@click.argument("key", required=False, shell_complete=complete_setting)
def get(invocation: Invocation, key: str | None) -> None:
    """Print a setting, a section, or all settings."""
    from uwf_git.api.settings import get_value

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
    """Set a value in config.yaml. Comments are kept. Use uwf setup for API keys; they belong in .env."""
    from uwf_git.api.settings import check_config, set_value, unknown_names

    root = invocation.location.root
    written = set_value(root, key, value)
    _warn_of(invocation, [*check_config(root), *unknown_names(sources_of(invocation), key)])
    invocation.emit({"key": key, "value": written}, lambda shown: f"{shown['key']}: {_plain(shown['value'])}")


@command(
    "uwf config unset defaultAgent",
    "uwf config unset agentOverrides.solve-issue.reviewer",
    "uwf config unset agents.mine              all of it",
)
@click.argument("key", shell_complete=complete_setting)
def unset(invocation: Invocation, key: str) -> None:
    """Remove a setting or a whole section. Other comments are kept."""
    from uwf_git.api.settings import check_config, unset_value

    root = invocation.location.root
    value = unset_value(root, key)
    _warn_of(invocation, check_config(root))
    invocation.emit({"key": key, "value": value}, "{key} is no longer set")


def _warn_of(invocation: Invocation, problems: Iterable[ConfigProblem]) -> None:
    for problem in problems:
        hint = f" — {problem.hint}" if problem.hint else ""
        invocation.warn(f"config.yaml:{problem.line}:{problem.column}: {problem.message}{hint}")


@command("uwf config list")
def list_(invocation: Invocation) -> None:
    """List all settings."""
    _emit_all(invocation)


def _emit_all(invocation: Invocation) -> None:
    from uwf_git.api.settings import FILE, list_values

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
    """Open config.yaml in $VISUAL or $EDITOR, then check it.

    Exit 1 if it has errors; your file is saved anyway. Unknown workflows and roles are warnings.
    """
    import signal

    from uwf_git.api.settings import FILE, check_config, unknown_names
    from uwf_git.base.errors import Invalid, UwfError

    path = invocation.location.root / FILE
    require_person("changes the configuration", path.parent)
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
    _warn_of(invocation, unknown_names(sources_of(invocation)))
    invocation.emit({"config": str(path)}, Record("config"))


def _plain(value: Any) -> str:
    if isinstance(value, list):
        import shlex

        return shlex.join(map(str, value))
    return value if isinstance(value, str) else as_yaml(value)


@command(
    "uwf setup                                                     asks",
    "uwf setup --provider openai --model gpt-4o-mini --agent uwf-llm",
    "uwf setup --provider openai --api-key-command 'pass show openai'",
)
@click.option("--provider", metavar="NAME", help="openai, openrouter, ollama, or a name of your own.")
@click.option("--base-url", metavar="URL", help="Base URL of its OpenAI-compatible API.")
@click.option("--api-key", metavar="KEY", help="API key, stored in .env. - reads standard input.")
@click.option("--api-key-command", metavar="CMD", help="Command that prints the API key when it is needed.")
@click.option("--model", metavar="NAME", help="Model name; becomes the default model.")
@click.option(
    "--agent", metavar="CMD", help="Agent name; becomes the default agent.", shell_complete=complete_agent
)
def setup(
    invocation: Invocation,
    provider: str | None,
    base_url: str | None,
    api_key: str | None,
    api_key_command: str | None,
    model: str | None,
    agent: str | None,
) -> None:
    """Set up a model and an agent.

    API keys are stored in .env (mode 0600) in the storage root, never in config.yaml. With --api-key-command
    no key is stored.
    """
    from uwf_git.api.settings import SettingChanges, set_up

    root = invocation.location.root
    wishes = SettingChanges(provider, base_url, api_key, api_key_command, model, agent)
    if api_key is not None and api_key_command is not None:
        raise Usage("--api-key and --api-key-command exclude each other", "give one of them")
    if wishes == SettingChanges():
        if not (terminal.is_terminal(sys.stdin) and terminal.is_terminal(sys.stderr)):
            raise Usage(
                "there is nothing to set up", "give --provider, --model or --agent, or call it on a terminal"
            )
        wishes = _ask(root)
    elif wishes.api_key == resolve.STDIN:
        wishes = wishes._replace(api_key=resolve.read_stdin("key").strip())
    done = set_up(root, wishes)
    invocation.emit(done, Record(*done))


def _ask(root: Path) -> SettingChanges:
    from uwf_git.api.settings import PRESETS, REHEARSE, Preset, SettingChanges, ready_agents, set_up_before

    config, before = set_up_before(root)
    sys.stderr.write(
        "A model needs an OpenAI-compatible provider. Without one, agents that need none still work.\n"
    )
    provider = _prompt("Provider (" + ", ".join(PRESETS) + ", another, or none)", before.provider or "none")
    if provider == "none":
        offered = ready_agents(root)
        agent = _prompt(
            f"Default agent ({', '.join([*offered, REHEARSE])}, or another)",
            before.agent or next(iter(offered), REHEARSE),
        )
        return SettingChanges(agent=agent)
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
    name = _prompt("Model, as the provider calls it", before.model)
    agent = _prompt("Default agent", before.agent or "uwf-builtin")
    return SettingChanges(provider, base_url, api_key or None, model=name, agent=agent)


def _prompt(question: str, default: str | None) -> str:
    return str(click.prompt(question, default=default, err=True)).strip()


@command(
    'eval "$(uwf completion bash)"                               in ~/.bashrc',
    'eval "$(uwf completion zsh)"                                in ~/.zshrc',
    "uwf completion fish > ~/.config/fish/completions/uwf.fish",
)
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def completion(invocation: Invocation, shell: str) -> None:
    """Print the shell completion script."""
    script = completion_script(shell)
    invocation.emit_document(script, {"shell": shell, "script": script})


def completion_script(shell: str) -> str:
    """Return what a shell has to evaluate, or to find in its folder of completions."""
    from click.shell_completion import get_completion_class

    from uwf_cli.tree import uwf

    kind = get_completion_class(shell)
    assert kind is not None
    # Without a look at the shell's version, for which click would run it.
    complete = kind(uwf, {}, "uwf", VARIABLE)
    return complete.source_template % complete.source_vars()
