"""`uwf workflow stats`: how the runs of a workflow did."""

from __future__ import annotations

from typing import Any

import click

from uwf_cli import terminal
from uwf_cli.command import command
from uwf_cli.completers import complete_workflow
from uwf_cli.invocation import Invocation, adopt_news
from uwf_cli.output import dollars
from uwf_git.base.text import counted, duration


@command("uwf workflow stats solve-issue")
@click.argument("workflow", shell_complete=complete_workflow)
def stats(invocation: Invocation, workflow: str) -> None:
    """Show how the runs of a workflow did, by version and by edge.

    Medians are of runs that ended. Edges count the newest 100 runs.
    """
    from uwf_git.api.cockpit.workflow import runs_of, used_workflow, workflow_stats

    adopt_news(invocation)
    resolved = used_workflow(invocation.instance, workflow)
    runs = runs_of(invocation.instance, resolved.workflow.name)
    invocation.emit(workflow_stats(invocation.instance, resolved, runs), _text)
    if not runs:
        invocation.note_left_out()


def _text(value: Any) -> str:
    states = ", ".join(f"{number} {state}" for state, number in value["states"].items())
    head = f"{terminal.style(value['name'], 'bold')}  {counted(value['runs'], 'run')}{': ' if states else ''}{states}\n"
    header, *body = terminal.numbers(
        [
            ("version", "runs", "failed", "median cost", "cost", "median time", "time", ""),
            *(_version(version) for version in value["versions"]),
        ]
    )
    parts = [head, terminal.table(body, header)]
    if value["counted"]:
        names = {node["id"]: node["label"] for node in value["graph"]["nodes"]}
        ways = [
            (names[way["source"]], names[way["target"]], way["label"], _passed(way["times"]))
            for way in value["graph"]["ways"]
        ]
        parts.append(terminal.table(ways, ("from", "to", "when", f"of {counted(value['counted'], 'run')}")))
    return "\n".join(parts)


def _passed(times: int) -> str:
    return str(times) if times else str(terminal.style("none", "yellow"))


def _version(version: Any) -> tuple[str, ...]:
    def money(key: str) -> str:
        return "–" if version[key] is None else dollars(version[key], version["unpriced"])

    def time(key: str) -> str:
        return "–" if version[key] is None else duration(version[key])

    return (
        version["hash"],
        str(version["runs"]),
        f"{version['failed'] / version['ended']:.0%}" if version["ended"] else "–",
        money("medianCost"),
        money("cost"),
        time("medianSeconds"),
        time("seconds"),
        "current" if version["current"] else "",
    )
