"""`uwf trace`: threads as traces of OpenTelemetry."""

from __future__ import annotations

from pathlib import Path

import click

from uwf_cli.arrivals import find_thread
from uwf_cli.command import Command
from uwf_cli.completers import complete_thread
from uwf_cli.invocation import Invocation
from uwf_git.errors import Invalid


@click.command(
    cls=Command,
    examples=(
        "uwf trace export 01JK7M --out trace.json",
        "uwf trace export 01JK7M | curl -H 'Content-Type: application/json' -d @- http://localhost:4318/v1/traces",
    ),
)
@click.argument("thread", metavar="ID", shell_complete=complete_thread)
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="Write it there.")
@click.option("--content", is_flag=True, help="Include what was said: prompts, answers, what tools gave.")
@click.pass_obj
def export(invocation: Invocation, thread: str, out: Path | None, content: bool) -> None:
    """Write a thread as an OpenTelemetry trace, in the JSON of OTLP.

    Collectors take it as it is. Nothing is sent anywhere, and without --content nothing that was said is
    in it.
    """
    from uwf_cli.output import as_json
    from uwf_git.engine import trace

    instance = invocation.instance
    found = find_thread(invocation, thread)
    value = trace.export(instance, instance.threads.head(found), content)
    if out is None:
        invocation.emit_document(as_json(value), value)
        return
    try:
        out.write_text(as_json(value) + "\n", encoding="utf-8")
    except OSError as error:
        raise Invalid(f"{out} can't be written: {error.strerror}", "choose another file") from None
    spans = len(value["resourceSpans"][0]["scopeSpans"][0]["spans"])
    invocation.emit(
        {"thread": found, "spans": spans, "file": str(out)},
        lambda each: f"wrote {spans} spans to {each['file']}",
    )
