"""How a workflow does: its runs by version, what they cost, how many failed, and which ways of its graph they took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.api.cockpit.graph import branch_ways, end_of, graph_value, nodes_taken
from uwf_git.api.cockpit.rows import rows_of, without_remarks
from uwf_git.api.listing import Filters, ListedThread, listed, without_quiet_branches
from uwf_git.base.errors import NotFound, UwfError
from uwf_git.base.text import iso, nearest
from uwf_git.base.thread_states import Group
from uwf_git.engine.next_turn import outlook
from uwf_git.format.types import FORK
from uwf_git.store.history import Head

if TYPE_CHECKING:
    from uwf_git.api.workflows import ResolvedWorkflow
    from uwf_git.format.ids import ThreadId
    from uwf_git.store.instance import Instance

COUNTED = 100
"""How many of the newest runs are counted into the graph."""
_MOST_STEPS = 20_000  # of these runs that are read


def used_workflow(instance: Instance, name: str) -> ResolvedWorkflow:
    """Return a workflow by name, NAME~2, CREW/ID or hash; an unregistered name is that of the newest thread with it.
    Raises NotFound."""
    from uwf_git.api.workflows import stored_workflow

    workflow = stored_workflow(instance, name)
    if workflow is None:
        heads = (head for head in instance.threads.all(archived=True) if isinstance(head, Head))
        node = next((head.row.workflow for head in heads if head.row.name == name), None)
        workflow = stored_workflow(instance, node) if node else None
    if workflow is None:
        hint = nearest(name, instance.registry.names()) or "see: uwf workflow list"
        raise NotFound(f"no workflow {name!r}", hint)
    return workflow


def runs_of(instance: Instance, name: str, only: Collection[str] = ()) -> list[ListedThread]:
    """Return the threads of a workflow's name, newest first, or those `only`; without branches, which are parts of
    runs, and calls of code that are idle or have ended."""
    threads = listed(instance, Filters(ended=True))
    own = [
        thread
        for thread in threads
        if isinstance(thread.head, Head)
        and thread.head.row.name == name
        and (not only or thread.thread in only)
        and instance.threads.fork_of(thread.head) is None
    ]
    return without_quiet_branches(instance, own)


def workflow_stats(
    instance: Instance, workflow: ResolvedWorkflow, runs: Sequence[ListedThread]
) -> dict[str, Any]:
    """Return how the runs of a workflow's name did, of all its versions:

    name, hash      the workflow, and its version that has the graph
    runs, states    how many there are, and how many have each status; `last` is when one changed last
    ended, failed   how many came to an end or failed, and how many of these failed; `failing` of them have not ended,
                    and can be tried again
    cost, seconds   what all took: US dollars and agents' time, null if unknown; `medianCost` and `medianSeconds` of
                    those that ended; `unpriced` tokens are not in the cost
    versions        the same for each `hash`, with when it was `registered` and whether it is `current`, newest first
    counted         how many of the newest runs are counted in the graph
    graph           `nodes` and `ways`, as of a thread: a node's `times` are steps, a way's are runs that passed it
    """
    from uwf_git.engine.thread_spending import spent_by_all

    heads = [run.head for run in runs if isinstance(run.head, Head)]
    prices = instance.known_prices
    spent = {
        thread: _Spent(totals.seconds, *totals.money(prices))
        for thread, totals in spent_by_all(instance, heads).items()
    }
    times = [head.updated for head in heads]
    by_version: dict[str, list[ListedThread]] = {}
    for run in runs:
        if isinstance(run.head, Head) and run.head.row.workflow:
            by_version.setdefault(run.head.row.workflow, []).append(run)
    registered = _registered(instance, workflow)
    order = [*registered, *(node for node in by_version if node not in registered)]
    counted, graph = _coverage(instance, workflow, heads)
    return {
        "name": workflow.workflow.name,
        "hash": workflow.hash,
        "states": dict(Counter(run.state.word for run in runs).most_common()),
        "last": iso(max(times)) if times else None,
        **_figures(runs, spent),
        "versions": [
            {
                "hash": node,
                **registered.get(node, {"registered": None, "current": False}),
                **_figures(by_version.get(node, ()), spent),
            }
            for node in order
        ],
        "counted": counted,
        "graph": graph,
    }


def _registered(instance: Instance, workflow: ResolvedWorkflow) -> dict[str, dict[str, Any]]:
    try:
        history = instance.registry.history(workflow.workflow.name)
    except UwfError:
        return {}
    versions: dict[str, dict[str, Any]] = {}
    for entry in history:
        value = {"registered": iso(entry.version.time), "current": entry.version.current}
        versions.setdefault(entry.version.hash, value)
    return versions


class _Spent(NamedTuple):
    """Agents' time, US dollars or None, and the tokens without a price."""

    seconds: float
    cost: float | None
    unpriced: int


def _figures(runs: Sequence[ListedThread], spent: Mapping[ThreadId, _Spent]) -> dict[str, Any]:
    every = [spent[run.thread] for run in runs if run.thread in spent]
    ended = [spent[run.thread] for run in runs if run.has_ended and run.thread in spent]
    costs, ended_costs = ([item.cost for item in items if item.cost is not None] for items in (every, ended))
    failed = sum(run.state.group is Group.FAILED for run in runs)
    return {
        "runs": len(runs),
        "ended": sum(run.has_ended or run.state.group is Group.FAILED for run in runs),
        "failed": failed,
        "failing": sum(run.state.is_failing for run in runs),
        "cost": round(sum(costs), 6) if costs else None,
        "medianCost": round(median(ended_costs), 6) if ended_costs else None,
        "unpriced": sum(item.unpriced for item in every),
        "seconds": round(sum(item.seconds for item in every), 3) if every else None,
        "medianSeconds": round(median(item.seconds for item in ended), 3) if ended else None,
    }


def _coverage(
    instance: Instance, workflow: ResolvedWorkflow, heads: Sequence[Head]
) -> tuple[int, dict[str, Any]]:
    """Return how many of the newest runs were counted, and the graph with what they passed."""
    graph = graph_value(workflow.workflow)
    if not graph["ways"]:
        return 0, graph
    room, counted = _MOST_STEPS, 0
    steps, passed = Counter[str](), Counter[tuple[str, str]]()
    ways: dict[tuple[object, ...], dict[str, Any]] = {}
    for head in heads[:COUNTED]:
        room -= head.row.number
        if room < 0:
            break
        rows, problem = rows_of(instance, head)
        if problem:  # damage, which doctor reports
            continue
        try:
            ran = branch_ways(instance, rows) if any(row.role == FORK for row in rows) else []
        except UwfError:
            continue
        end = end_of(head.archive.status if head.archive else None)
        taken = nodes_taken(without_remarks(rows), end)
        if role := _next(instance, workflow, head):
            taken.append(role)  # the way to it is passed, its step isn't made
            steps[role] -= 1
        key = tuple(taken), tuple(ran)
        if key not in ways:
            ways[key] = graph_value(workflow.workflow, taken, ran=ran)
        counted += 1
        steps.update({node["id"]: node["times"] for node in ways[key]["nodes"]})
        passed.update((way["source"], way["target"]) for way in ways[key]["ways"] if way["times"])
    for node in graph["nodes"]:
        node["times"] = steps[node["id"]]
    for way in graph["ways"]:
        way["times"] = passed[way["source"], way["target"]]
    return counted, graph


def _next(instance: Instance, workflow: ResolvedWorkflow, head: Head) -> str:
    """Return the role that an active thread is at, "" if it is at none."""
    if head.archive is not None:
        return ""
    try:
        role = outlook(instance, head).next
    except UwfError:
        return ""
    return role if role is not None and role in workflow.workflow.roles else ""
