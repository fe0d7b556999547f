"""The stores of earlier programs: read, taken over, and written."""

from uwf_git.ext import Command, Export, Extension

EXTENSION = Extension(
    "importers",
    commands=(
        Command(
            "import",
            "uwf_git.ext.importers.command:import_",
            "Take over the workflows and threads of an earlier program.",
            "Store and settings",
        ),
    ),
    exports=(
        Export(
            "--json-cas",
            "uwf_git.ext.importers.command:export",
            "The storage root to write, as the earlier programs had it.",
            is_file=False,
        ),
    ),
)
