"""The group `uwf trace`."""

from __future__ import annotations

from uwf_git.plugin import CommandEntry, Group

trace = Group(
    "trace",
    {
        "export": CommandEntry(
            "uwf_git.ext.traces.command:export", "Write a thread as an OpenTelemetry trace."
        )
    },
    examples=("uwf trace export 01JK7M --out trace.json",),
    help="Export threads as OpenTelemetry traces.",
)
