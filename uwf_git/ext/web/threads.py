"""`/`: threads in tabs by what they want from a person, with the filters of `uwf thread list`."""

from __future__ import annotations

from collections import Counter
from typing import Any

from uwf_git.ext.web.actions import registered, workflows
from uwf_git.plugin import (
    BUDGET_WAIT,
    STATUS_FIELD,
    Head,
    Instance,
    ListedThread,
    NotFound,
    Page,
    PageRequest,
    ThreadFilters,
    ThreadState,
    Usage,
    UwfError,
    list_threads,
    nest_threads,
    resolve,
    thread_items,
    thread_states,
    waits_in,
    without_quiet_branches,
)

ALL = "all"
TABS = (*(group.value for group in thread_states.Group), ALL)

SHOWN = 50


def page(instance: Instance, asked: PageRequest) -> Page:
    """Show the list. Query: `tab`, `workflow`, `author`, `since`, `search`, `status`, repeated `thread`, and
    `from`. An invalid filter shows its error with the form. Raises Usage."""
    wrong: Usage | NotFound | None = None
    try:
        wanted = _filters(asked)
        selected = list_threads(instance, wanted)
        if not wanted.states and wanted.search is None:
            selected = without_quiet_branches(instance, selected)
    except (Usage, NotFound) as error:
        selected, wrong = [], error
    found = selected
    if only := asked.all("thread"):
        found = [each for each in found if each.thread in only]
    counts = Counter(each.state.group.value for each in found)
    numbers = {tab: len(found) if tab == ALL else counts[tab] for tab in TABS}
    tab = asked.one("tab") or next((name for name, number in numbers.items() if number), ALL)
    if tab not in TABS:
        raise Usage(f"no tab {tab!r}", "it is one of " + ", ".join(TABS))
    first = asked.number("from")
    chosen = [each for each in found if tab in (ALL, each.state.group.value)]
    listing = chosen[first : first + SHOWN]
    items: list[dict[str, Any]] = thread_items(instance, listing)
    shown = [
        {**item, "wants": _wanted(instance, each) or _unjudged(item)}
        for item, each in zip(items, listing, strict=True)
    ]
    return Page(
        "threads.html",
        f"Threads: {tab}",
        {
            "tab": tab,
            "tabs": numbers,
            "threads": nest_threads(shown),
            "asked": asked,
            "first": first,
            "more": max(0, len(chosen) - first - SHOWN),
            "size": SHOWN,
            "empty": not found,
            "workflows": workflows(instance),
            "registered": registered(instance),
            "wrong": wrong,
            "filtered": any(asked.one(name) for name in ("workflow", "author", "since", "search", "status")),
        },
        STATUS_FIELD[wrong.exit_status] if wrong else 200,
    )


def _unjudged(item: dict[str, Any]) -> str:
    return "" if item["status"] == ThreadState.CORRUPT.word else item.get("problem", "")


def _wanted(instance: Instance, each: ListedThread) -> str:
    if not isinstance(each.head, Head):
        return ""
    try:
        waits = waits_in(instance, each.head, each.state)
    except UwfError:
        return ""
    if waits is None:
        return ""
    return waits.reason if waits.kind == BUDGET_WAIT else waits.question


def _filters(asked: PageRequest) -> ThreadFilters:
    statuses = asked.all("status")
    if unknown := [word for word in statuses if word not in thread_states.WORDS]:
        raise Usage(f"no status {unknown[0]!r}", "it is one of " + ", ".join(thread_states.WORDS))
    return ThreadFilters(
        frozenset(state for word in statuses for state in thread_states.states_of(word)),
        workflow=asked.one("workflow") or None,
        author=asked.one("author") or None,
        since=resolve.moment(asked.one("since") or None, "since"),
        search=asked.one("search") or None,
        ended=True,
    )
