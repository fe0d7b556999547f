"""The group `uwf crew`."""

from __future__ import annotations

from uwf_git.plugin import command_group

crew = command_group(
    "uwf_git.ext.crews.commands",
    "crew",
    {
        "import": ("commands", "Import a crew."),
        "show": ("commands", "Show a crew's personas, menus and workflows."),
        "menu": ("entry", "Show a persona's menu."),
        "route": ("entry", "Print which action an input selects."),
        "do": ("entry", "Send input to a persona and run the action."),
        "list": ("commands", "List the crews."),
        "history": ("commands", "List a crew's versions, newest first."),
        "rollback": ("commands", "Restore an older version."),
        "export": ("commands", "Export a crew's package."),
        "propose": ("commands", "Propose a version without registering it."),
        "accept": ("commands", "Register a proposed version."),
        "rm": ("commands", "Unregister a crew (history is kept)."),
    },
    examples=("uwf crew import trip.bmad", "uwf crew show trip"),
    help="Personas with menus, and their workflows.",
)
