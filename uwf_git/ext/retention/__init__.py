"""Removing ended threads after a time, with a record of each that stays."""

from uwf_git.plugin import Command, ConfigSection, Extension, RefKind

LOG = RefKind("refs/uwf/local/retention/", target="")
"""Its ref `log` leads to commits, each with the records of the threads that were removed at once, by their ids."""

EXTENSION = Extension(
    "retention",
    commands=(
        Command(
            "expire",
            "uwf_git.ext.retention.commands:expire",
            "Remove threads that ended long ago.",
            "Store and settings",
        ),
    ),
    config=(ConfigSection("keep", "uwf_git.ext.retention.settings:read_settings"),),
    refs=(LOG,),
    checks="uwf_git.ext.retention.record:checks",
)
