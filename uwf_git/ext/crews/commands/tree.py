"""The group `uwf crew`."""

from __future__ import annotations

from uwf_git.plugin import CommandEntry, Group

crew = Group(
    "crew",
    {
        "import": CommandEntry("uwf_git.ext.crews.commands.commands:import_", "Import a crew."),
        "show": CommandEntry(
            "uwf_git.ext.crews.commands.commands:show", "Show a crew's personas, menus and workflows."
        ),
        "menu": CommandEntry("uwf_git.ext.crews.commands.entry:menu", "Show a persona's menu."),
        "route": CommandEntry(
            "uwf_git.ext.crews.commands.entry:route", "Print which action an input selects."
        ),
        "do": CommandEntry(
            "uwf_git.ext.crews.commands.entry:do", "Send input to a persona and run the action."
        ),
        "list": CommandEntry("uwf_git.ext.crews.commands.commands:list_", "List the crews."),
        "history": CommandEntry(
            "uwf_git.ext.crews.commands.commands:history", "List a crew's versions, newest first."
        ),
        "rollback": CommandEntry(
            "uwf_git.ext.crews.commands.commands:rollback",
            "Restore an older version.",
        ),
        "export": CommandEntry("uwf_git.ext.crews.commands.commands:export", "Export a crew's package."),
        "propose": CommandEntry(
            "uwf_git.ext.crews.commands.commands:propose", "Propose a version without registering it."
        ),
        "accept": CommandEntry("uwf_git.ext.crews.commands.commands:accept", "Register a proposed version."),
        "rm": CommandEntry("uwf_git.ext.crews.commands.commands:rm", "Unregister a crew (history is kept)."),
    },
    examples=(
        "uwf crew import trip.bmad",
        "uwf crew show trip",
    ),
    help="Personas with menus, and their workflows.",
)
