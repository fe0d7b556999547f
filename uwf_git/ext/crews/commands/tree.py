"""The group `uwf crew`."""

from __future__ import annotations

from uwf_cli.command import Group, Place

crew = Group(
    "crew",
    {
        "import": Place("uwf_git.ext.crews.commands.commands:import_", "Take in a crew."),
        "show": Place(
            "uwf_git.ext.crews.commands.commands:show", "Show a crew: personas, what they offer, workflows."
        ),
        "menu": Place("uwf_git.ext.crews.commands.entry:menu", "Show what a persona offers."),
        "route": Place(
            "uwf_git.ext.crews.commands.entry:route", "Say what an input would mean to a persona."
        ),
        "do": Place(
            "uwf_git.ext.crews.commands.entry:do", "Put an input to a persona, and carry out what it means."
        ),
        "list": Place("uwf_git.ext.crews.commands.commands:list_", "List the crews."),
        "history": Place(
            "uwf_git.ext.crews.commands.commands:history", "List a crew's versions, newest first."
        ),
        "rollback": Place(
            "uwf_git.ext.crews.commands.commands:rollback",
            "Make an older version of a crew the newest again.",
        ),
        "export": Place("uwf_git.ext.crews.commands.commands:export", "Write a crew's package out again."),
        "propose": Place(
            "uwf_git.ext.crews.commands.commands:propose", "Propose a version of a crew without taking it in."
        ),
        "accept": Place(
            "uwf_git.ext.crews.commands.commands:accept", "Take in a version of a crew that was proposed."
        ),
        "rm": Place("uwf_git.ext.crews.commands.commands:rm", "Forget a crew's name."),
    },
    examples=(
        "uwf crew import trip.bmad",
        "uwf crew show trip",
    ),
    help="Personas with menus, and the workflows they start.",
)
