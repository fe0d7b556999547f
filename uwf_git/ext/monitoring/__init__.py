"""What programs that watch a service ask of a store: metrics, and whether it is alive and ready."""

from uwf_git.plugin import Command, Endpoint, Extension

EXTENSION = Extension(
    "monitoring",
    commands=(
        Command("metrics", "uwf_git.ext.monitoring.command:metrics", "Print metrics for Prometheus.", "Read"),
    ),
    endpoints=(
        Endpoint("/metrics", "uwf_git.ext.monitoring.metrics:answer"),
        Endpoint("/healthz", "uwf_git.ext.monitoring.health:alive", is_open=True),
        Endpoint("/readyz", "uwf_git.ext.monitoring.health:ready", is_open=True),
    ),
    hindrances="uwf_git.ext.monitoring.health:hindrances",
)
