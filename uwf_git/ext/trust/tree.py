"""The group `uwf trust`."""

from __future__ import annotations

from uwf_git.plugin import command_group

trust = command_group(
    "uwf_git.ext.trust",
    "trust",
    {
        "init": ("commands", "Make a first policy, with you as its maintainer."),
        "show": ("commands", "Show who signs what."),
        "set": ("commands", "Change the policy to a trust file."),
        "log": ("commands", "List the policy's versions, newest first."),
    },
    examples=("uwf trust init", "uwf trust show --file > trust.yaml", "uwf trust set trust.yaml"),
    help="Say who may sign what, and with which keys.",
)
