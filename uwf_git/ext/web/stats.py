"""`/stats`: spending as by `uwf stats --daily`, over time and as a table."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, NamedTuple

from markupsafe import Markup

from uwf_git.plugin import (
    STATUS_FIELD,
    Instance,
    Page,
    PageRequest,
    Usage,
    bar_labels,
    charts,
    duration_text,
    measure_spending,
    page_addresses,
    resolve,
    spending_sums,
    spending_unit,
)

WAYS = ("workflow", "agent", "role", "model", "day")
RANGES = ("7d", "30d", "90d")
SHOWN = 200  # groups; of days that is over half a year
SPAN = "30d"
EVER = "2000-01-01"


class Series(NamedTuple):
    """A group with a colour in the chart: its label, the page that it leads to, and what it comes to. The last one may
    stand for all `others`."""

    label: str
    link: str
    text: str


def spending(instance: Instance, request: PageRequest) -> Page:
    """Show the sums. Query: `by`, `since` (default: 30 days ago), `until`, repeated `thread`. An invalid time
    shows its error with the form. Raises Usage, NotFound."""
    by = request.one("by", "workflow")
    if by not in WAYS:
        raise Usage(f"no by {by!r}", "it is one of " + ", ".join(WAYS))
    since, until = request.one("since", SPAN), request.one("until")
    wrong: Usage | None = None
    try:
        span = resolve.moment(since, "since"), resolve.moment(until or None, "until", 86_400)
    except Usage as error:
        span, wrong = (0.0, 0.0), error
    threads = [instance.threads.find(item) for item in request.all("thread")]
    stacked = "workflow" if by == "day" else by
    value = spending_sums(instance, stacked, span, threads, daily=True)
    days: list[dict[str, Any]] = value["days"]
    groups: list[dict[str, Any]] = days if by == "day" else value["groups"]
    shown = groups[-SHOWN:] if by == "day" else groups[:SHOWN]
    series, chart = _over_time(value, _every_day([day["day"] for day in days], span), stacked)
    return Page(
        "stats.html",
        f"Spending by {by}",
        {
            "asked": request,
            "by": by,
            "stacked": stacked,
            "ways": WAYS,
            "ranges": RANGES,
            "since": since,
            "until": until,
            "ever": EVER,
            "groups": [
                {**item, "label": label, "link": _link(by, item[by])}
                for label, item in zip(bar_labels(shown, by), shown, strict=True)
            ],
            "hidden": len(groups) - len(shown),
            "total": value["total"],
            "damaged": value["damaged"],
            "measured": spending_unit(value["total"]),
            "series": series,
            "chart": chart,
            "duration": duration_text,
            "wrong": wrong,
        },
        STATUS_FIELD[wrong.exit_status] if wrong else 200,
    )


def _over_time(value: Mapping[str, Any], days: Sequence[str], by: str) -> tuple[list[Series], Markup]:
    """Return what has a colour, and a chart of some days."""
    total, groups = value["total"], value["groups"]
    alone = groups if len(groups) <= charts.STACKED else groups[: charts.STACKED - 1]
    names = [group[by] for group in alone]
    series = [
        Series(label, _link(by, group[by]), measure_spending(group, total)[1])
        for label, group in zip(bar_labels(alone, by), alone, strict=True)
    ]
    if others := len(groups) - len(alone):
        series.append(Series(f"{others} others", "", ""))
    by_day = {day["day"]: day for day in value["days"]}
    stacks = []
    for name in days:
        day = by_day.get(name)
        parts = [0.0] * len(series)
        for part in day["parts"] if day else ():
            place = names.index(part[by]) if part[by] in names else len(series) - 1
            parts[place] += measure_spending(part, total)[0] or 0.0
        stacks.append(charts.Stack(name, parts, measure_spending(day, total)[1] if day else "nothing"))
    unit = spending_unit(total)
    return series, Markup(charts.stacks_drawing(f"{unit} by day and {by}", stacks, axis_text(total)))


def _every_day(days: Sequence[str], span: tuple[float | None, float | None]) -> list[str]:
    """Return the days of a span, the newest SHOWN: from the first with spending if there are more, to the last of them
    or today."""
    if not days:
        return []
    since, until = (None if moment is None else _day(moment) for moment in span)
    first, last = date.fromisoformat(days[0]), date.fromisoformat(days[-1])
    end = max(last, min(until - timedelta(1) if until else date.max, _day(time.time())))
    if since is not None and (end - since).days < SHOWN:
        first = min(first, since)
    begin = max(first, end - timedelta(SHOWN - 1))
    return [(begin + timedelta(number)).isoformat() for number in range((end - begin).days + 1)]


def _day(moment: float) -> date:
    return datetime.fromtimestamp(moment, UTC).date()


def axis_text(total: Mapping[str, Any]) -> Callable[[float, int], str]:
    """Return what formats a mark of the axis with some decimals, in the unit of sums."""
    if total["cost"] is not None:
        return lambda value, decimals: f"${value:,.{max(decimals, 2)}f}"
    if total["input"] is None:
        return lambda value, decimals: f"{value:.{decimals}f}s" if decimals else duration_text(value)
    return lambda value, decimals: f"{value:,.{decimals}f}"


def _link(by: str, name: str | None) -> str:
    return page_addresses.workflow(name) if by == "workflow" and name else ""
