"""`uwf stats` and `uwf thread budget`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from uwf_cli import options, resolve, terminal
from uwf_cli.command import command
from uwf_cli.completers import complete_thread
from uwf_cli.failures import Failures
from uwf_cli.files import write_text
from uwf_cli.invocation import Invocation, adopt_news, find_thread
from uwf_cli.options import THREAD
from uwf_cli.output import dollars
from uwf_cli.views import Table
from uwf_git.api.spending import BY, sums, tokens
from uwf_git.format.types import role_name

if TYPE_CHECKING:
    from uwf_cli.plot import Bar


@command(
    "uwf stats                             all threads, by workflow",
    "uwf stats 01JK7M                      a thread, step by step",
    "uwf stats --by model --since 30d",
    "uwf stats --by agent --since 7d --daily",
    "uwf stats 01JK7M --by role --plot cost.svg",
)
@click.argument("threads", metavar="[ID]...", nargs=-1, shell_complete=complete_thread)
@click.option(
    "--by", type=click.Choice(BY), help="Group by this. Default: step for one thread, else workflow."
)
@click.option("--since", metavar="WHEN", help="Include from this day (2026-01-31) or for this long (30d).")
@click.option("--until", metavar="WHEN", help="Include up to and including this day.")
@click.option("--daily", is_flag=True, help="Also show each day.")
@click.option(
    "--plot", type=click.Path(path_type=Path), metavar="FILE", help="Also write a chart to this SVG file."
)
def stats(
    invocation: Invocation,
    threads: tuple[str, ...],
    by: str | None,
    since: str | None,
    until: str | None,
    daily: bool,
    plot: Path | None,
) -> None:
    """Sum up tokens, cost and time. Includes failed attempts and finished threads.

    Cost uses the prices of config.yaml or the agent's own report; without either it is unknown, not zero.
    Exit 7 if a thread is damaged.
    """
    span = resolve.moment(since, "--since", 0), resolve.moment(until, "--until", 86_400)
    instance = invocation.instance
    if not threads:
        adopt_news(invocation)
    thread_ids = [find_thread(invocation, thread) for thread in threads]
    by = by or ("step" if len(threads) == 1 else "thread" if threads else "workflow")
    value = sums(instance, by, span, thread_ids, daily)
    groups, total, damaged = value["groups"], value["total"], value["damaged"]
    if plot is not None:
        _write_plot(plot, groups, total, by)
    invocation.emit(value, _stats_text)
    if not threads and not groups:
        invocation.note_left_out()
    failures = Failures(invocation)
    failures.damaged(bool(damaged))
    if not threads:
        failures.missing()
    failures.end()


def _stats_text(value: Any) -> str:
    from uwf_git.base.text import counted, duration

    groups, by, total = value["groups"], value["by"], value["total"]
    damaged = "".join(f"{item['thread']} cannot be read: {item['problem']}\n" for item in value["damaged"])
    if not groups:
        return f"{damaged}nothing was spent there"
    counts = ["input", "cached", "output"]
    if total["written"]:
        counts.insert(2, "written")
    rows: list[tuple[str, ...]] = [(by, "steps", "failed", *counts, "cost", "time")]
    named = [*zip(labels(groups, by), groups, strict=True), ("total", total)]
    rows += [(name, *_cells(item, counts), duration(item["seconds"])) for name, item in named]
    header, *body = terminal.numbers(rows)
    notes = []
    if total["unmetered"]:
        agents = counted(total["unmetered"], "agent run")
        notes.append(
            f"{agents} reported neither tokens nor cost; made-up answers and commands, which use none, are not counted"
        )
    if total["unpriced"]:
        notes.append(f"{total['unpriced']:,} tokens have no price: add models.<alias>.price to config.yaml")
    return (
        terminal.table(body, header, names=(0,))
        + _days_text(value)
        + "".join(terminal.style(note, "dim") + "\n" for note in notes)
        + damaged
    )


_COLUMNS = 5  # groups that a day's row has beside the total


def _days_text(value: Any) -> str:
    """Return a table of days and the dearest groups, with cost if known, else tokens, else time."""
    if not value.get("days"):
        return ""
    by, total = value["by"], value["total"]
    shown = [] if by in ("step", "day") else value["groups"][:_COLUMNS]
    rows = [("day", *labels(shown, by), "all")]
    for day in value["days"]:
        parts = {part[by]: part for part in day["parts"]} if shown else {}
        used = [measure(parts[group[by]], total)[1] if group[by] in parts else "" for group in shown]
        rows.append((day["day"], *used, measure(day, total)[1]))
    header, *body = terminal.numbers(rows)
    title = terminal.style(f"{unit_of(total)} by day", "bold")
    return f"\n{title}\n{terminal.table(body, header)}"


def measure(sums: Any, total: Any) -> tuple[float | None, str]:
    """Return a sum in the unit of a chart, None if it is unknown, and as text: US dollars if any cost is known, else
    tokens, else seconds of agents' time."""
    from uwf_git.base.text import duration

    if total["cost"] is not None:
        return sums["cost"], dollars(sums["cost"], sums["unpriced"])
    if total["input"] is not None:
        used = tokens(sums)
        return used, "–" if used is None else f"{used:,}"
    return sums["seconds"], duration(sums["seconds"])


def unit_of(total: Any) -> str:
    """Return the name of the unit of `measure`."""
    if total["cost"] is not None:
        return "US dollars"
    return "Tokens" if total["input"] is not None else "Agents' time"


def _cells(sums: Any, counts: Sequence[str]) -> tuple[str, ...]:
    numbers = [f"{sums[key]:,}" if sums[key] is not None else "–" for key in counts]
    return (
        str(sums["steps"]),
        str(sums["attempts"] or ""),
        *numbers,
        dollars(sums["cost"], sums["unpriced"]),
    )


def labels(groups: list[dict[str, Any]], by: str) -> list[str]:
    """Return the groups' labels; steps include their thread if there are several."""
    if by != "step":
        return [role_name(group[by] or "unknown") for group in groups]
    many = len({group["thread"] for group in groups}) > 1
    return [
        f"{group['thread'] + ' ' if many else ''}{group['step']} {role_name(group['role'])}"
        for group in groups
    ]


def _write_plot(path: Path, groups: list[dict[str, Any]], total: dict[str, Any], by: str) -> None:
    """Write a chart of cost if known, else tokens, else time. Raises Invalid."""
    from uwf_cli.plot import bar_chart

    what, bars = bars_of(groups, total, by)
    note = f"{total['steps']} steps, {total['attempts']} failed attempts"
    write_text(path, bar_chart(f"{what if bars else 'Spending'} by {by}", note, bars))


def bars_of(groups: list[dict[str, Any]], total: dict[str, Any], by: str) -> tuple[str, list[Bar]]:
    """Return a chart's unit and bars, as `measure` has them."""
    from uwf_cli.plot import Bar

    named = zip(labels(groups, by), groups, strict=True)
    bars = [Bar(name, *measure(group, total)) for name, group in named]
    return unit_of(total) if bars else "Agents' time", bars


@command(
    "uwf thread budget 01JK7M                         what holds, and what is used",
    "uwf thread budget 01JK7M --max-tokens +500000    so many more",
    "uwf thread budget 01JK7M --max-time 4h --max-cost 10",
)
@THREAD
@options.budget(
    {
        "steps": "Limit on the number of agent steps.",
        "tokens": "Limit on input and output tokens.",
        "cost": "Limit on the cost in US dollars, where prices are known.",
        "time": "Limit on agents' working time: 90s, 30m, 2h.",
    },
    may_add=True,
)
def budget(invocation: Invocation, thread: str, budget: dict[str, str]) -> None:
    """Show or raise a thread's budget.

    +N raises the current limit by N. The next step records the new limits, which travel with the thread;
    limits in another machine's config.yaml still apply there.
    """
    from uwf_git.api.control import raise_budget
    from uwf_git.api.spending import budget_value

    instance = invocation.instance
    thread_id = find_thread(invocation, thread)
    if budget:
        raise_budget(instance, thread_id, budget)
    invocation.emit({"thread": thread_id, "budget": budget_value(instance, thread_id)}, _budget_text)


def _budget_text(value: Any) -> str:
    from uwf_git.engine.budget import share

    if not value["budget"]:
        return "no budget: this thread may use what it likes"

    def used(limit: Any) -> str:
        unknown = limit.get("unpriced", 0), limit.get("unmetered", 0)
        return str(share(limit["limit"], limit["used"] or 0, limit["most"], *unknown))

    def used_up(limit: Any) -> str:
        return terminal.style("used up", "yellow") if (limit["used"] or 0) >= limit["most"] else ""

    def source(limit: Any) -> str:
        by = f" in {limit['step']} by {limit['by']}" if "by" in limit else ""
        return f"{limit['source']}{by}"

    return Table("limit", ("used", used), ("", used_up), ("set by", source))(value["budget"])
