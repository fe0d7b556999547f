"""Checks on a forge: verified branches, checked workflows, annotations and one comment, in its CI."""

from uwf_git.plugin import Command, Extension

EXTENSION = Extension(
    "ci",
    commands=(
        Command(
            "ci",
            "uwf_git.ext.ci.commands:ci",
            "Check published threads and changed workflows in CI.",
            "Share",
        ),
    ),
)
