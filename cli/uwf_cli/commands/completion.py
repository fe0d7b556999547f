"""`uwf completion`: the script for a shell, and the answers to what it asks."""

from __future__ import annotations

import click

from uwf_cli.command import Command
from uwf_cli.invocation import Invocation

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_UWF_COMPLETE"


@click.command(
    cls=Command,
    examples=(
        'eval "$(uwf completion bash)"                               in ~/.bashrc',
        'eval "$(uwf completion zsh)"                                in ~/.zshrc',
        "uwf completion fish > ~/.config/fish/completions/uwf.fish",
    ),
)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_obj
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


def complete(invocation: Invocation, instruction: str) -> int:
    """Answers a shell that wants to know how a line may go on."""
    from click.shell_completion import shell_complete

    from uwf_cli.tree import uwf

    return shell_complete(uwf, {"obj": invocation}, "uwf", VARIABLE, instruction)
