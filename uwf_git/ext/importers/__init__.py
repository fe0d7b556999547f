"""Importing stores of older programs."""

from uwf_git.plugin import Command, Extension

EXTENSION = Extension(
    "importers",
    commands=(
        Command(
            "import",
            "uwf_git.ext.importers.command:import_",
            "Import workflows and threads of an older program.",
            "Store and settings",
        ),
    ),
)
