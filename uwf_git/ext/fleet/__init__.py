"""Fleets: Temporal distributes steps to workers, git holds the truth."""

from uwf_git.plugin import Command, Dispatcher, Extension, RefKind

MARKS = RefKind("refs/uwf/fleets/", target="")
"""What tells of a fleet: it stays on the remote that the fleet is on."""

EXTENSION = Extension(
    "fleet",
    commands=(
        Command(
            "fleet",
            "uwf_git.ext.fleet.commands.tree:fleet",
            "Step many threads in parallel, on one or many machines.",
            "Many at once",
        ),
    ),
    dispatchers=(
        Dispatcher(
            "--fleet", "uwf_git.ext.fleet.dispatch:dispatch", "Run trials with a fleet on this machine."
        ),
    ),
    resumed="uwf_git.ext.fleet.queue_sync:notify_fleet",
    refs=(MARKS,),
    hindrances="uwf_git.ext.fleet.service:hindrances",
    metrics="uwf_git.ext.fleet.service:metrics",
)
