"""The group `uwf fleet`."""

from __future__ import annotations

from uwf_git.plugin import CommandEntry, Group

fleet = Group(
    "fleet",
    {
        "run": CommandEntry(
            "uwf_git.ext.fleet.commands.running:run", "Run threads with workers on this machine."
        ),
        "worker": CommandEntry("uwf_git.ext.fleet.commands.running:worker", "Run steps of a fleet."),
        "start": CommandEntry("uwf_git.ext.fleet.commands.queue:start", "Queue threads for a fleet."),
        "status": CommandEntry("uwf_git.ext.fleet.commands.queue:status", "List a fleet's queue."),
        "pause": CommandEntry("uwf_git.ext.fleet.commands.queue:pause", "Pause threads in the queue."),
        "resume": CommandEntry("uwf_git.ext.fleet.commands.queue:resume", "Resume threads in the queue."),
        "cancel": CommandEntry("uwf_git.ext.fleet.commands.queue:cancel", "Remove threads from the queue."),
        "sync": CommandEntry("uwf_git.ext.fleet.commands.queue:sync", "Update the queue from the refs."),
    },
    examples=(
        "uwf fleet run --all --workers 4",
        "uwf fleet worker --address temporal.example:7233",
    ),
    help="Step many threads in parallel, on one or many machines.",
)
