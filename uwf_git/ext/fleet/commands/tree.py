"""The group `uwf fleet`."""

from __future__ import annotations

from uwf_cli.command import Group, Place

fleet = Group(
    "fleet",
    {
        "run": Place("uwf_git.ext.fleet.commands.running:run", "Step threads by workers of this machine."),
        "worker": Place("uwf_git.ext.fleet.commands.running:worker", "Make steps for a fleet."),
        "start": Place("uwf_git.ext.fleet.commands.queue:start", "Put threads into the queue of a fleet."),
        "status": Place(
            "uwf_git.ext.fleet.commands.queue:status", "List the threads in the queue of a fleet."
        ),
        "pause": Place(
            "uwf_git.ext.fleet.commands.queue:pause", "Begin no more steps of threads in the queue."
        ),
        "resume": Place(
            "uwf_git.ext.fleet.commands.queue:resume", "Make steps again of threads in the queue."
        ),
        "cancel": Place("uwf_git.ext.fleet.commands.queue:cancel", "Take threads out of the queue."),
        "sync": Place("uwf_git.ext.fleet.commands.queue:sync", "Bring the queue up to date with the refs."),
    },
    examples=(
        "uwf fleet run --all --workers 4",
        "uwf fleet worker --address temporal.example:7233",
    ),
    help="Many threads at once, on one machine or many.",
)
