"""The group `uwf ci`."""

from __future__ import annotations

from uwf_git.plugin import CommandEntry, Group

ci = Group(
    "ci",
    {
        "print": CommandEntry("uwf_git.ext.ci.commands:print_", "Print the file that a repository needs."),
        "check": CommandEntry("uwf_git.ext.ci.commands:check", "Check what a CI job is about."),
        "comment": CommandEntry("uwf_git.ext.ci.commands:comment", "Write the result as one comment."),
    },
    examples=(
        "uwf ci print github > .github/workflows/uwf.yml",
        "uwf ci print gitlab > uwf-ci.yml",
    ),
    help="Check published threads and changed workflows in a forge's CI.",
)
