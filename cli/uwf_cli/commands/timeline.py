"""`uwf thread timeline`: the steps of a thread as bars on one clock."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from uwf_cli import terminal
from uwf_cli.command import command
from uwf_cli.invocation import Invocation, find_head
from uwf_cli.options import THREAD
from uwf_cli.output import dollars
from uwf_git.base.text import counted, duration
from uwf_git.base.thread_states import ThreadState
from uwf_git.format.types import role_name

_WIDTH = 100  # columns of output that is not a terminal's
_SHORTEST, _LONGEST = 16, 60  # columns of a bar's track
_ROLE, _VERDICT = 18, 30
_MARKS = {
    "attempt": "✗",
    "branch": "",
    ThreadState.RUNNING.word: "▸",
    ThreadState.JOINING.word: "▸",
    ThreadState.ASKING.word: "?",
}
_WAITS, _WORKS, _FOLD = "·", "█", "~"


@command("uwf thread timeline 01JK7M", "uwf thread timeline 01JK7M --before 51     what came before step 51")
@THREAD
@click.option("--before", type=click.IntRange(min=1), metavar="N", help="Show the steps before step N.")
def timeline(invocation: Invocation, thread: str, before: int | None) -> None:
    """Show a thread's steps as bars on one clock, with times and costs.

    Shows the newest 50 steps with their failed attempts and branches. Dots are waits, and ~ is a wait
    that is drawn shorter than it was.
    """
    from uwf_git.api.cockpit.run import run

    invocation.emit(run(invocation.instance, find_head(invocation, thread), before or 0), _text)


def _text(value: Any) -> str:
    lines = [_head(value)]
    if value["first"] > 1:
        earlier = f"uwf thread timeline {value['thread']} --before {value['first']}"
        lines.append(terminal.style(f"{counted(value['first'] - 1, 'earlier step')}: {earlier}", "dim"))
    rows = list(_rows(value["bars"]))
    lines.append(_table(rows) if rows else "no steps yet\n")
    lines += [terminal.style(f"missing: {problem}", "yellow") for problem in value["problems"]]
    return "\n".join(lines)


def _head(value: Any) -> str:
    parts = [terminal.status(value["status"]), duration(value["elapsed"])]
    if value["cost"] is not None or value["unpriced"]:
        parts.append(dollars(value["cost"], value["unpriced"]))
    parts += [f"{limit['text']}" for limit in value["budget"]]
    about, room = f"  {' · '.join(parts)}", terminal.width()
    title = (
        value["title"]
        if room is None
        else terminal.cut(value["title"], max(room - terminal.columns(about), 20))
    )
    return terminal.style(title, "bold") + about


def _rows(bars: Any, depth: int = 0) -> Iterator[tuple[Any, tuple[str, ...]]]:
    for bar in bars:
        mark = _MARKS.get(bar["kind"])
        number = str(bar["number"] or "") if mark is None else mark
        role = "  " * depth + terminal.cut(role_name(bar["role"]), _ROLE)
        verdict = terminal.cut(" ".join(bar["verdict"].split()), _VERDICT)
        seconds = bar["end"] - bar["begin"] if bar["seconds"] is None else bar["seconds"]
        took = duration(seconds) if seconds >= 0.05 else ""
        cost = dollars(bar["cost"], bar["unpriced"]) if bar["cost"] is not None or bar["unpriced"] else ""
        yield bar, (number, role, terminal.style(verdict, "red" if bar["failed"] else ""), took, cost)
        yield from _rows(bar["below"], depth + 1)
        if bar["more"]:
            yield None, ("", "  " * (depth + 1) + counted(bar["more"], "more branch"), "", "", "")


def _table(rows: list[tuple[Any, tuple[str, ...]]]) -> str:
    sizes = [max(terminal.columns(cells[place]) for _, cells in rows) for place in range(5)]
    room = (terminal.width() or _WIDTH) - sum(sizes) - 10
    track = max(_SHORTEST, min(_LONGEST, room))
    lines = []
    for bar, (number, role, verdict, took, cost) in rows:
        cells = (
            number.rjust(sizes[0]),
            role + " " * (sizes[1] - terminal.columns(role)),
            _drawn(bar, track),
            took.rjust(sizes[3]),
            cost.rjust(sizes[4]),
            verdict,
        )
        lines.append(
            "  ".join(
                cell for cell, size in zip(cells, (1, 1, 1, *sizes[3:], 1), strict=True) if size
            ).rstrip()
        )
    return "\n".join(lines) + "\n"


def _drawn(bar: Any, track: int) -> str:
    """Return a bar as one line of `track` columns; work has at least one."""
    if bar is None:
        return " " * track
    wait, begin, end = (min(track, round(share * track)) for share in bar["drawn"])
    works = 0 if bar["kind"] == ThreadState.ASKING.word else max(end - begin, 1)
    begin = min(begin, track - works)
    waits = _WAITS * max(0, begin - wait)
    if bar["folded"] and waits:
        waits = waits[:-1] + _FOLD
    colour = "red" if bar["failed"] else "yellow" if bar["kind"] in ("answer", "remark") else "blue"
    line: str = " " * min(wait, begin) + terminal.style(waits, "dim") + terminal.style(_WORKS * works, colour)
    return f"{line}{' ' * max(0, track - begin - works)}"
