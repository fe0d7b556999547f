"""Reading, importing and writing older programs' stores."""

from uwf_git.plugin import Command, Export, Extension

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
    exports=(
        Export(
            "--json-cas",
            "uwf_git.ext.importers.command:export",
            "Storage root to write in the older programs' format.",
            is_file=False,
        ),
    ),
)
