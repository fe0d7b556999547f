"""The group `uwf effect`."""

from __future__ import annotations

from uwf_git.plugin import command_group

effect = command_group(
    "uwf_git.ext.landing",
    "effect",
    {
        "run": ("effect_command", "Run a command with an effect on the outside, once."),
        "list": ("effect_command", "List a thread's effects."),
    },
    examples=("uwf effect run -- gh issue comment 42 --body 'Fixed.'", "uwf effect list"),
    help="Send comments, pull requests and other effects to the outside once.",
)
