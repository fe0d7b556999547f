"""A workflow's graph as data: its nodes and ways, how often a thread passed each, and where it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.base.text import harmless
from uwf_git.engine.forks import begun_at
from uwf_git.format import endings
from uwf_git.format.types import END, ENDS, FAIL, FORK, JOIN, START, USER
from uwf_git.store.history import ancestry
from uwf_git.workflow.diagram import Drawing, label_of
from uwf_git.workflow.fan_out import join_name

if TYPE_CHECKING:
    from uwf_git.format.kinds import Workflow
    from uwf_git.store.index import CommitRow
    from uwf_git.store.instance import Instance

_MOST_ROWS = 5_000  # steps of branches that are counted
NOW, NEXT = "now", "next"
NODE_NAMES = {START: "start", END: "end", FAIL: endings.FAILED}
"""The names shown for nodes that are no roles."""

BranchWays = tuple[tuple[str, ...], ...]
"""The roles that each branch of a fork passed."""


class _Way(NamedTuple):
    """The edges between two nodes: their labels and total count."""

    source: str
    target: str
    label: str
    times: int


class _Passed(NamedTuple):
    """How often nodes and arrows were passed. `join` is that of the last fork, None without one."""

    nodes: Counter[str]
    arrows: Counter[tuple[str, str]]
    join: str | None

    def named(self, current: str | None) -> str | None:
        """Return the node of the role that is next."""
        return self.join if current == JOIN else current

    def turns(self, current: str | None, turn: str, branches: str) -> dict[str, str]:
        """Return the words for whose turn it is, by node: `branches` are those for the last fork's."""
        node = self.named(current)
        turns = {node: turn} if node else {}
        return {**turns, self.join: branches} if branches and self.join else turns


def end_of(status: str | None) -> str | None:
    """Return the end of a thread with this archive status, None if it is active or was killed."""
    return {endings.COMPLETED: END, endings.FAILED: FAIL}.get(status or "")


def nodes_taken(steps: Iterable[tuple[str, bool]], end: str | None) -> list[str]:
    """Return the nodes that a thread passed, from $START to its `end`, $END, $FAIL or None. `steps` are roles without
    remarks, and whether each asks."""
    taken, has_asked = [START], False
    for role, asks in steps:
        if role == USER and not has_asked:  # resumption, by the edge from the start
            taken.append(START)
        elif role not in (END, USER):
            taken.append(role)
        has_asked = asks
    return [*taken, end] if end is not None else taken


def node_label(name: str) -> str:
    """Return a node's name as lists of transitions show it."""
    if name.startswith(JOIN):
        return f"join{name.removeprefix(JOIN)}"
    return NODE_NAMES.get(name, name)


def _passed(drawn: Drawing, taken: Sequence[str], ran: Sequence[BranchWays] = ()) -> _Passed:
    nodes, arrows = Counter[str](), Counter[tuple[str, str]]()
    before, join, forks = "", None, iter(ran)
    for name in taken:
        if name == FORK:
            # Of several fan-outs of a role, the first stands for all.
            edges = enumerate(drawn.workflow.graph.get(before, ()))
            join = next((join_name(before, place) for place, edge in edges if edge.fan_out is not None), None)
            ways = next(forks, ())
            arrows.update((before, entry) for entry in (drawn.joins[join].roles if join and not ways else ()))
            for way in ways:
                nodes.update(way)
                arrows.update(pairwise((before, *way, join) if join else (before, *way)))
            continue
        name = join or name if name == JOIN else name
        for target in (drawn.ends(before, name) if name in ENDS else ()) or [name]:
            arrows[before, target] += 1
        nodes[name] += 1
        before = name
    return _Passed(nodes, arrows, join)


def branch_ways(instance: Instance, rows: Iterable[CommitRow]) -> list[BranchWays]:
    """Return the roles that the branches of each fork passed, of forks in the order of `rows`, oldest first."""
    room, ways_here = _MOST_ROWS, []
    for row in rows:
        if row.role != FORK:
            continue
        ways = []
        for head in instance.threads.heads(begun_at(instance, row)).values():
            way: list[str] = []
            for commit_row in ancestry(instance.store, head.commit):
                room -= 1
                if commit_row.kind != "step" or room < 0:
                    break
                if commit_row.role not in (None, USER, FORK, JOIN, END):
                    way.append(commit_row.role or "")
            ways.append(tuple(reversed(way)))
        ways_here.append(tuple(filter(None, ways)))
    return ways_here


def _ways(drawn: Drawing, passed: _Passed) -> list[_Way]:
    labels: dict[tuple[str, str], list[str]] = {}
    known = {*drawn.names, *ENDS}
    for arrow in drawn.arrows:
        if arrow.target in known:
            labels.setdefault((arrow.source, arrow.target), []).append(arrow.label)
    return [
        _Way(*ends, " / ".join(filter(None, label)), passed.arrows[ends]) for ends, label in labels.items()
    ]


def graph_value(
    workflow: Workflow,
    taken: Sequence[str] = (),
    current: str | None = None,
    turn: str = NEXT,
    branches: str = "",
    ran: Sequence[BranchWays] = (),
) -> dict[str, Any]:
    """Return the graph as JSON: whether `code` decides, its `nodes` and `ways`, with the `times` each was passed.

    `taken` are the nodes that a thread passed, with `$FORK` and `$JOIN`, and `ran` those of each fork's branches.
    `current` is next or in progress, and `turn` the word for it: NOW or NEXT. `branches` says how those of the last
    fork are: `3 of 8 done`."""
    drawn = Drawing(workflow)
    passed = _passed(drawn, taken, ran)
    turns = passed.turns(current, turn, branches)
    nodes = [
        {
            "id": name,
            "label": NODE_NAMES.get(name) or harmless(label_of(name)),
            "end": name in NODE_NAMES,
            "times": passed.nodes[name],
            "now": name == passed.named(current),
            "turn": turns.get(name, ""),
        }
        for name in dict.fromkeys([START, *drawn.names, END])
    ]
    ways = [{**way._asdict(), "label": harmless(way.label)} for way in _ways(drawn, passed)]
    return {"name": workflow.name, "code": workflow.code is not None, "nodes": nodes, "ways": ways}
