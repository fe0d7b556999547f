"""The group `uwf fleet`."""

from __future__ import annotations

from uwf_git.plugin import command_group

fleet = command_group(
    "uwf_git.ext.fleet.commands",
    "fleet",
    {
        "run": ("running", "Run threads with workers on this machine."),
        "worker": ("running", "Run steps of a fleet."),
        "start": ("queue", "Queue threads for a fleet."),
        "status": ("queue", "List a fleet's queue."),
        "pause": ("queue", "Pause threads in the queue."),
        "resume": ("queue", "Resume threads in the queue."),
        "cancel": ("queue", "Remove threads from the queue."),
        "health": ("health", "Check that a fleet's process here can work."),
        "files": ("files", "Write an image's file, a compose file and units."),
        "sync": ("queue", "Update the queue from the refs."),
    },
    examples=(
        "uwf fleet run --all --workers 4",
        "uwf fleet worker --address temporal.example:7233",
    ),
    help="Step many threads in parallel, on one or many machines.",
)
