"""Threads as trajectories of the Agent Trajectory Interchange Format, out and in."""

from uwf_git.plugin import Command, Export, Extension

EXTENSION = Extension(
    "atif",
    commands=(
        Command(
            "import atif",
            "uwf_git.ext.atif.command:import_atif",
            "Import trajectories of the format ATIF.",
            "Store and settings",
        ),
    ),
    exports=(Export("--atif", "uwf_git.ext.atif.command:export", "Trajectory of the format ATIF."),),
)
