"""The group `uwf crew`."""

from __future__ import annotations

from uwf_git.plugin import CommandEntry, Group

_PLACE = "uwf_git.ext.crews.commands."
_MEMBERS = {
    "import": ("commands:import_", "Import a crew."),
    "show": ("commands:show", "Show a crew's personas, menus and workflows."),
    "menu": ("entry:menu", "Show a persona's menu."),
    "route": ("entry:route", "Print which action an input selects."),
    "do": ("entry:do", "Send input to a persona and run the action."),
    "list": ("commands:list_", "List the crews."),
    "history": ("commands:history", "List a crew's versions, newest first."),
    "rollback": ("commands:rollback", "Restore an older version."),
    "export": ("commands:export", "Export a crew's package."),
    "propose": ("commands:propose", "Propose a version without registering it."),
    "accept": ("commands:accept", "Register a proposed version."),
    "rm": ("commands:rm", "Unregister a crew (history is kept)."),
}

crew = Group(
    "crew",
    {name: CommandEntry(_PLACE + place, line) for name, (place, line) in _MEMBERS.items()},
    examples=("uwf crew import trip.bmad", "uwf crew show trip"),
    help="Personas with menus, and their workflows.",
)
