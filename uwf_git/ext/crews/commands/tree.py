"""The group `uwf crew`."""

from __future__ import annotations

from uwf_cli.command import Group, Place

crew = Group(
    "crew",
    {
        "import": Place("uwf_git.ext.crews.commands.commands:import_", "Import a crew."),
        "show": Place(
            "uwf_git.ext.crews.commands.commands:show", "Show a crew's personas, menus and workflows."
        ),
        "menu": Place("uwf_git.ext.crews.commands.entry:menu", "Show a persona's menu."),
        "route": Place("uwf_git.ext.crews.commands.entry:route", "Print which action an input selects."),
        "do": Place("uwf_git.ext.crews.commands.entry:do", "Send input to a persona and run the action."),
        "list": Place("uwf_git.ext.crews.commands.commands:list_", "List the crews."),
        "history": Place(
            "uwf_git.ext.crews.commands.commands:history", "List a crew's versions, newest first."
        ),
        "rollback": Place(
            "uwf_git.ext.crews.commands.commands:rollback",
            "Restore an older version.",
        ),
        "export": Place("uwf_git.ext.crews.commands.commands:export", "Export a crew's package."),
        "propose": Place(
            "uwf_git.ext.crews.commands.commands:propose", "Propose a version without registering it."
        ),
        "accept": Place("uwf_git.ext.crews.commands.commands:accept", "Register a proposed version."),
        "rm": Place("uwf_git.ext.crews.commands.commands:rm", "Unregister a crew (history is kept)."),
    },
    examples=(
        "uwf crew import trip.bmad",
        "uwf crew show trip",
    ),
    help="Personas with menus, and their workflows.",
)
