"""`uwf metrics`."""

from __future__ import annotations

from pathlib import Path

import click

from uwf_git.plugin import Invocation, command, write_whole


@command(
    "uwf metrics",
    "uwf metrics --out /var/lib/node_exporter/uwf.prom     from a timer",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write to FILE, at once as a whole, for a textfile collector.",
)
def metrics(invocation: Invocation, out: Path | None) -> None:
    """Print metrics of all threads of the store in the OpenMetrics format.

    Steps, their durations, failures, tokens and cost count from the store's beginning, so that two processes
    say the same. uwf web and fleets serve them at /metrics.
    """
    from uwf_git.ext.monitoring.metrics import END, exposition, of_store
    from uwf_git.plugin import extensions

    instance = invocation.instance
    families = [*of_store(instance), *extensions.metrics(instance)]
    text = exposition(families) + END
    if out is None:
        invocation.emit_document(text.removesuffix("\n"), lambda: [item.as_json() for item in families])
        return
    write_whole(out, text.encode(), force=True)
    value = {"file": str(out), "metrics": len(families)}
    invocation.emit(value, lambda item: f"wrote {item['metrics']} metrics to {item['file']}")
