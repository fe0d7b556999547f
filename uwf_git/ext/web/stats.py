"""`/stats`: spending as by `uwf stats`, as table and chart."""

from __future__ import annotations

from typing import Any

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
    page_addresses,
    resolve,
    spending_bars,
    spending_sums,
)

WAYS = ("workflow", "agent", "role", "model", "day")
SHOWN = 200  # groups; of days that is over half a year
SPAN = "30d"
EVER = "2000-01-01"


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
    value = spending_sums(instance, by, span, threads)
    groups: list[dict[str, Any]] = value["groups"]
    shown = groups[-SHOWN:] if by == "day" else groups[:SHOWN]
    what, bars = spending_bars(shown, value["total"], by)
    return Page(
        "stats.html",
        f"Spending by {by}",
        {
            "asked": request,
            "by": by,
            "ways": WAYS,
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
            "measured": what,
            "chart": Markup(charts.bars_drawing(f"{what} by {by}", bars)),
            "duration": duration_text,
            "wrong": wrong,
        },
        STATUS_FIELD[wrong.exit_status] if wrong else 200,
    )


def _link(by: str, name: str | None) -> str:
    return page_addresses.workflow(name) if by == "workflow" and name else ""
