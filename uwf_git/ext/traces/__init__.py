"""Threads as OpenTelemetry traces."""

from uwf_git.plugin import Command, Extension

EXTENSION = Extension(
    "traces",
    commands=(
        Command(
            "trace",
            "uwf_git.ext.traces.command:trace",
            "Export threads as OpenTelemetry traces.",
            "Read",
        ),
    ),
    observer="uwf_git.ext.traces.live:observe",
    observer_variables=("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"),
)
