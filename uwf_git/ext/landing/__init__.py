"""Landing: what a thread's work leaves for the outside, and gets back from there."""

from uwf_git.plugin import Command, ConfigSection, Extension

EXTENSION = Extension(
    "landing",
    commands=(
        Command(
            "land",
            "uwf_git.ext.landing.commands:land",
            "Land a thread's work on the branch that it is for.",
            "Share",
        ),
    ),
    config=(ConfigSection("land", "uwf_git.ext.landing.settings:read_settings", texts=("onto", "commits")),),
)
