"""`uwf top`: the threads of a store on a terminal, to stay in."""

from uwf_git.plugin import Command, Extension

EXTENSION = Extension(
    "top",
    commands=(
        Command("top", "uwf_git.ext.top.command:top", "Watch and steer threads on a terminal.", "Read"),
    ),
)
