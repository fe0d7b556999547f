"""A list of threads with its head: how many there are of each kind, what runs, and what today has cost."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from uwf_git.api.listing import (
    Filters,
    ListedThread,
    in_order,
    listed_and_left_out,
    thread_items,
    without_quiet_branches,
)
from uwf_git.api.spending import spent_since
from uwf_git.base.thread_states import Group, ThreadState
from uwf_git.store.history import Head

if TYPE_CHECKING:
    from collections.abc import Sequence

    from uwf_git.store.instance import Instance

SHOWN = 100


def board(
    instance: Instance,
    wanted: Filters,
    group: Group | None = None,
    first: int = 0,
    most: int = SHOWN,
) -> dict[str, Any]:
    """Return the `items` from `first` on, at most `most`, of the threads that match and are of a `group`, in their
    order, as `thread_items`; `total` counts these, `counts` all by group, with `idle` apart from those that run or have
    branches that do, `leftOut` those of other projects. `running` are the agents at work, `maxAgents` those that may be
    at once, None for any number; `today` is what all have spent since midnight. Branches and calls that are idle or
    have ended are left out unless a state or a text is asked for. Raises NotFound for an unknown workflow."""
    every, left_out = board_threads(instance, wanted)
    chosen = [thread for thread in every if group in (None, thread.state.group)]
    page = in_order(instance, chosen, wanted.sort)[first : first + most]
    return {
        "total": len(chosen),
        "leftOut": left_out,
        **board_head(instance, every),
        "items": thread_items(instance, page),
    }


def board_threads(instance: Instance, wanted: Filters) -> tuple[list[ListedThread], int]:
    """Return the threads of a board, newest first, and the number of those of other projects."""
    threads, left_out = listed_and_left_out(instance, wanted)
    if not wanted.states and wanted.search is None:
        threads = without_quiet_branches(instance, threads)
    return threads, left_out


def board_head(instance: Instance, threads: Sequence[ListedThread]) -> dict[str, Any]:
    """Return the figures above the items of such threads."""
    counts = {item.value: 0 for item in Group} | {ThreadState.IDLE.word: 0}
    for thread in threads:
        word = ThreadState.IDLE.word
        counts[word if thread.state.word == word else thread.state.group.value] += 1
    midnight = _midnight()
    heads = [thread.head for thread in threads if isinstance(thread.head, Head)]
    return {
        "counts": counts,
        "running": sum(thread.state.is_at_work for thread in threads),
        "maxAgents": instance.config.max_agents if instance.config_has(b"maxAgents") else None,
        "today": spent_since(instance, [head for head in heads if head.updated >= midnight], midnight),
    }


def _midnight() -> float:
    now = time.localtime()
    return time.mktime((now.tm_year, now.tm_mon, now.tm_mday, 0, 0, 0, 0, 0, -1))
