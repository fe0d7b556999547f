"""`/`: threads in tabs by what they want from a person, with the filters of `uwf thread list`."""

from __future__ import annotations

from collections import Counter
from typing import Any

from uwf_git.ext.web.actions import registered, workflows
from uwf_git.plugin import (
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


def page(instance: Instance, request: PageRequest) -> Page:
    """Show the list. Query: `tab`, `workflow`, `author`, `since`, `search`, `status`, repeated `thread`, and
    `from`. An invalid filter shows its error with the form. Raises Usage."""
    wrong: Usage | NotFound | None = None
    try:
        wanted = _filters(request)
        selected = list_threads(instance, wanted)
        if not wanted.states and wanted.search is None:
            selected = without_quiet_branches(instance, selected)
    except (Usage, NotFound) as error:
        selected, wrong = [], error
    found = selected
    if only := request.all("thread"):
        found = [thread for thread in found if thread.thread in only]
    counts = Counter(thread.state.group.value for thread in found)
    numbers = {tab: len(found) if tab == ALL else counts[tab] for tab in TABS}
    tab = request.one("tab") or next((name for name, number in numbers.items() if number), ALL)
    if tab not in TABS:
        raise Usage(f"no tab {tab!r}", "it is one of " + ", ".join(TABS))
    first = request.number("from")
    chosen = [thread for thread in found if tab in (ALL, thread.state.group.value)]
    listing = chosen[first : first + SHOWN]
    items: list[dict[str, Any]] = thread_items(instance, listing)
    shown = [
        {**item, "wants": _wanted(instance, thread) or _unjudged(item)}
        for item, thread in zip(items, listing, strict=True)
    ]
    return Page(
        "threads.html",
        f"Threads: {tab}",
        {
            "tab": tab,
            "tabs": numbers,
            "threads": nest_threads(shown),
            "asked": request,
            "first": first,
            "more": max(0, len(chosen) - first - SHOWN),
            "size": SHOWN,
            "empty": not found,
            "workflows": workflows(instance),
            "registered": registered(instance),
            "wrong": wrong,
            "filtered": any(
                request.one(name) for name in ("workflow", "author", "since", "search", "status")
            ),
        },
        STATUS_FIELD[wrong.exit_status] if wrong else 200,
    )


def _unjudged(item: dict[str, Any]) -> str:
    return "" if item["status"] == ThreadState.CORRUPT.word else item.get("problem", "")


def _wanted(instance: Instance, thread: ListedThread) -> str:
    if not isinstance(thread.head, Head):
        return ""
    try:
        waits = waits_in(instance, thread.head, thread.state)
    except UwfError:
        return ""
    if waits is None:
        return ""
    return waits.reason if waits.kind is thread_states.Request.BUDGET else waits.question


def _filters(request: PageRequest) -> ThreadFilters:
    statuses = request.all("status")
    if unknown := [word for word in statuses if word not in thread_states.WORDS]:
        raise Usage(f"no status {unknown[0]!r}", "it is one of " + ", ".join(thread_states.WORDS))
    return ThreadFilters(
        frozenset(state for word in statuses for state in thread_states.states_of(word)),
        workflow=request.one("workflow") or None,
        author=request.one("author") or None,
        since=resolve.moment(request.one("since") or None, "since"),
        search=request.one("search") or None,
        ended=True,
    )
