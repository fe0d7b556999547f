"""The group `uwf trust`."""

from __future__ import annotations

from uwf_git.plugin import CommandEntry, Group

trust = Group(
    "trust",
    {
        "init": CommandEntry(
            "uwf_git.ext.trust.commands:init", "Make a first policy, with you as its maintainer."
        ),
        "show": CommandEntry("uwf_git.ext.trust.commands:show", "Show who signs what."),
        "set": CommandEntry("uwf_git.ext.trust.commands:set_", "Change the policy to a trust file."),
        "log": CommandEntry("uwf_git.ext.trust.commands:log", "List the policy's versions, newest first."),
    },
    examples=("uwf trust init", "uwf trust show --file > trust.yaml", "uwf trust set trust.yaml"),
    help="Say who may sign what, and with which keys.",
)
