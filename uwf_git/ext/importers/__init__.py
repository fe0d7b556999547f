"""The stores of earlier programs: read, taken over, and written."""

from uwf_git.ext import Command, Extension

EXTENSION = Extension(
    "importers",
    commands=(
        Command(
            "import",
            "uwf_cli.commands.store:import_",
            "Take over the workflows and threads of an earlier program.",
            "Store and settings",
        ),
    ),
)
