"""Threads that are started again and again, by schedules that a store shares."""

from uwf_git.plugin import Command, Extension, RefKind

SCHEDULES = RefKind(
    "refs/uwf/schedules/",
    "name",
    order=200,
    records=("schedule",),
    trailer="Uwf-Schedule",
    record_parents=1,
    name_field="name",
    settle="version",
    word="schedule",
    owner="the schedule is called",
    versions="uwf_schedules.schedules:Schedules",
    branches="refs/heads/uwf/schedules/",
    commands="uwf schedule",
    made_of="definition",
    put="uwf schedule set NAME",
)
LAST = RefKind("refs/uwf/local/schedules/", "name", target="")
"""The start of the newest thread of a schedule on this machine."""

EXTENSION = Extension(
    "schedules",
    commands=(Command("schedule", "uwf_schedules.commands:schedule", "Start threads again and again."),),
    refs=(SCHEDULES, LAST),
    checks="uwf_schedules.schedules:checks",
)
