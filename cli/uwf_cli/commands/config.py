"""`uwf config`: single settings of config.yaml in the storage root."""

from __future__ import annotations

from typing import Any

import click

from uwf_cli.command import Command
from uwf_cli.completers import complete_setting
from uwf_cli.invocation import Invocation
from uwf_cli.output import as_yaml
from uwf_cli.terminal import table


@click.command(
    cls=Command,
    examples=("uwf config get defaultAgent", "uwf config get providers.openai.baseUrl"),
)
@click.argument("key", shell_complete=complete_setting)
@click.pass_obj
def get(invocation: Invocation, key: str) -> None:
    """Print a setting; of a section, all of it."""
    from uwf_git.config.edit import get_value

    invocation.emit(get_value(invocation.location.root, key), _plain)


@click.command(
    "set",
    cls=Command,
    examples=(
        "uwf config set defaultAgent uwf-llm",
        'uwf config set agents.mine.command "my-agent --fast"',
        "uwf config set agents.mine.timeout 10m",
        "uwf config set agentOverrides.solve-issue.reviewer uwf-human",
    ),
)
@click.argument("key", shell_complete=complete_setting)
@click.argument("value")
@click.pass_obj
def set_(invocation: Invocation, key: str, value: str) -> None:
    """Change a setting. Comments stay. Keys of services don't belong here: uwf setup puts them into .env."""
    from uwf_git.config.edit import set_value
    from uwf_git.config.loaded import check_config

    written = set_value(invocation.location.root, key, value)
    for problem in check_config(invocation.location.root):
        hint = f" — {problem.hint}" if problem.hint else ""
        invocation.warn(f"config.yaml:{problem.line}:{problem.column}: {problem.message}{hint}")
    invocation.emit({"key": key, "value": written}, lambda shown: f"{shown['key']}: {_plain(shown['value'])}")


@click.command("list", cls=Command, examples=("uwf config list",))
@click.pass_obj
def list_(invocation: Invocation) -> None:
    """List all settings by their keys."""
    from uwf_git.config.edit import list_values
    from uwf_git.config.settings import FILE

    root = invocation.location.root

    def text(value: Any) -> str:
        rows = [(key, _plain(item).rstrip("\n")) for key, item in value.items()]
        return table(rows) if rows else f"nothing is set in {root / FILE}; uwf setup"

    invocation.emit(list_values(root), text)


def _plain(value: Any) -> str:
    if isinstance(value, list):
        import shlex

        return shlex.join(map(str, value))
    return value if isinstance(value, str) else as_yaml(value)
