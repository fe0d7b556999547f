"""`/threads`: threads in dense rows, in tabs by what they want from a person, by a filter line in the words of
`uwf thread list`."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from uwf_git.ext.web.bulk import bulk_actions
from uwf_git.ext.web.start import registered
from uwf_git.plugin import (
    STATUS_FIELD,
    Instance,
    ListedThread,
    NotFound,
    Page,
    PageRequest,
    ThreadFilters,
    Usage,
    UwfError,
    board_threads,
    in_order,
    nest_threads,
    parse_filters,
    saved_views,
    thread_items,
    thread_state_value,
    thread_states,
)

ALL = "all"
TABS = (*(group.value for group in thread_states.Group), ALL)
SHOWN = 100
"""How many rows a page shows."""

_BRANCHES = 200  # of one thread that are shown
_SORT = re.compile(r"--sort[= ]\S+")
_FIELDS = ("status", "workflow", "author", "since")


class Row(NamedTuple):
    """A row: a thread, how deep it is below others, and its branches, if they are shown."""

    item: Mapping[str, Any]
    depth: int
    branches: Sequence[Mapping[str, Any]] = ()
    is_open: bool = False


def page(instance: Instance, request: PageRequest) -> Page:
    """Show the list. Query: `q`, the filter line; `tab`; `from`, the number of rows before; `open`, repeated, threads
    whose branches are shown; `thread`, repeated, the only ones. A wrong filter line shows its error with the form.
    Raises Usage."""
    line, tab, first = line_of(request), request.one("tab", ALL), request.number("from")
    if tab not in TABS:
        raise Usage(f"no tab {tab!r}", "it is one of " + ", ".join(TABS))
    group = next((group for group in thread_states.Group if group.value == tab), None)
    threads: list[ListedThread] = []
    wrong: Usage | NotFound | None = None
    filters = ThreadFilters()
    try:
        filters = parse_filters(instance, line)._replace(ended=True)
        threads, _ = board_threads(instance, filters)
    except (Usage, NotFound) as error:
        wrong = error
    if only := request.all("thread"):
        threads = [thread for thread in threads if thread.thread in only]
    counts = Counter(thread.state.group.value for thread in threads)
    chosen = [thread for thread in threads if group in (None, thread.state.group)]
    items = thread_items(instance, in_order(instance, chosen, filters.sort)[first : first + SHOWN])
    return Page(
        "threads.html",
        "Threads" if tab == ALL else f"Threads: {tab}",
        {
            "line": line,
            "unsorted": _SORT.sub("", line).strip(),
            "tab": tab,
            "tabs": {name: len(threads) if name == ALL else counts[name] for name in TABS},
            "rows": _rows(instance, items, request.all("open")),
            "sort": filters.sort,
            "asked": request,
            "more": max(0, len(chosen) - first - SHOWN),
            "next": first + SHOWN,
            "views": saved_views(instance),
            "save": f"uwf config set -- views.NAME {shlex.quote(line)}",
            "several": len({item["projectId"] for item in items}) > 1,
            "registered": registered(instance),
            "actions": bulk_actions(),
            "done": None,
            "wrong": wrong,
        },
        STATUS_FIELD[wrong.exit_status] if wrong else 200,
    )


def line_of(request: PageRequest) -> str:
    """Return the filter line of an address, also of one with a name for each filter."""
    words = [word for name in _FIELDS for value in request.all(name) for word in (f"--{name}", value)]
    parts = request.one("q"), shlex.join(words), request.one("search")
    return " ".join(part.strip() for part in parts if part.strip())


def _rows(instance: Instance, items: Sequence[dict[str, Any]], opened: Sequence[str]) -> list[Row]:
    """Return the rows of a list. Branches stand below the thread that waits for them, if that is opened."""
    rows: list[Row] = []
    hidden = 0  # the depth from which on rows are those of a thread that isn't opened
    for depth, item in nest_threads(items):
        if hidden and depth >= hidden:
            continue
        is_open, hidden = item["thread"] in opened, 0
        if "branches" in item:
            hidden = depth + 1
        rows.append(Row(item, depth, _branches(instance, item) if is_open else (), is_open))
    return rows


def _branches(instance: Instance, item: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    try:
        at = thread_state_value(instance, instance.threads.head(item["thread"]))
    except UwfError:
        return ()
    branches: Sequence[Mapping[str, Any]] = at.get("branches", {}).get("each", ())
    return branches[:_BRANCHES]
