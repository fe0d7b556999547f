"""The group `uwf effect`."""

from __future__ import annotations

from uwf_git.plugin import command_group

effect = command_group(
    "uwf_git.ext.landing",
    "effect",
    {
        "run": ("effect_command", "Run a command that sends something, once."),
        "list": ("effect_command", "List what a thread has sent."),
    },
    examples=("uwf effect run -- gh issue comment 42 --body 'Fixed.'", "uwf effect list"),
    help="Send something to the outside once, and list what was sent.",
)
