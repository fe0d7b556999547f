"""`uwf trace export`."""

from __future__ import annotations

from pathlib import Path

import click

from uwf_git.plugin import (
    Invocation,
    as_json,
    command,
    command_group,
    completers,
    find_head,
    write_text,
)


@command(
    "uwf trace export 01JK7M --out trace.json",
    "uwf trace export 01JK7M | curl -d @- -H 'Content-Type: application/json' \\",
    "    http://localhost:4318/v1/traces",
)
@click.argument("thread", metavar="ID", shell_complete=completers.complete_thread)
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="FILE", help="Output file. Default: standard output."
)
@click.option("--content", is_flag=True, help="Include prompts, answers and tool output.")
def export(invocation: Invocation, thread: str, out: Path | None, content: bool) -> None:
    """Export a thread as an OpenTelemetry trace in OTLP JSON.

    OpenTelemetry collectors accept it unchanged. Nothing is sent. Without --content no text of the thread is
    included.
    """
    from uwf_git.ext.traces import trace

    head = find_head(invocation, thread)
    value = trace.export(invocation.instance, head, content)
    if out is None:
        invocation.emit_document(as_json(value), value)
        return
    write_text(out, as_json(value) + "\n")
    spans = len(value["resourceSpans"][0]["scopeSpans"][0]["spans"])
    invocation.emit(
        {"thread": head.thread, "spans": spans, "file": str(out)},
        lambda item: f"wrote {spans} spans to {item['file']}",
    )


trace = command_group(
    "uwf_git.ext.traces",
    "trace",
    {"export": ("command", "Write a thread as an OpenTelemetry trace.")},
    examples=("uwf trace export 01JK7M --out trace.json",),
    help="Export threads as OpenTelemetry traces.",
)
