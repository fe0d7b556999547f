"""A workflow's graph as SVG: roles top to bottom in graph order, forward edges on the right, backward ones on
the left, with counts. Fan-outs are drawn as `workflow.diagram` has them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from uwf_git.plugin import (
    END,
    ENDS,
    FAIL,
    FORK,
    JOIN,
    START,
    USER,
    DiagramDrawing,
    Workflow,
    ancestry,
    begun_at,
    counted,
    endings,
    harmless,
    join_name,
    label_of,
    markup,
    shortened,
    tag,
)

if TYPE_CHECKING:
    from uwf_git.plugin import CommitRow, Instance

_WIDTH, _HEIGHT, _GAP = 190, 40, 46  # of a node, and between two
_LANE = 34  # between two edges beside the nodes
_LETTER = 6.6  # the width of one in a label
_LONGEST = 26
_MOST_ROWS = 5_000  # steps of branches that are counted
_INSET = 45  # by which the ends are narrower, at each side
NOW, NEXT = "now", "next"
NODE_NAMES = {START: "start", END: "end", FAIL: endings.FAILED}
"""The names shown for nodes that are no roles."""


BranchWays = tuple[tuple[str, ...], ...]
"""The roles that each branch of a fork passed."""


class _Way(NamedTuple):
    source: int
    target: int
    label: str


class Transition(NamedTuple):
    """The edges between two nodes: their labels and total count."""

    source: str
    target: str
    label: str
    times: int


def end_of(status: str | None) -> str | None:
    """Return the end of a thread with this archive status, None if it is active or was killed."""
    return {endings.COMPLETED: END, endings.FAILED: FAIL}.get(status or "")


def way_of(steps: Iterable[tuple[str, bool]], end: str | None) -> list[str]:
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


class _Passed(NamedTuple):
    """How often nodes and arrows were passed. `join` is that of the last fork, None without one."""

    nodes: Counter[str]
    arrows: Counter[tuple[str, str]]
    join: str | None

    def named(self, current: str | None) -> str | None:
        """Return the node of the role that is next."""
        return self.join if current == JOIN else current


def _passed(drawn: DiagramDrawing, taken: Sequence[str], ran: Sequence[BranchWays] = ()) -> _Passed:
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


def transitions(workflow: Workflow, taken: Sequence[str], ran: Sequence[BranchWays] = ()) -> list[Transition]:
    """Return the graph's edges in order. `taken` are the nodes passed, with `$FORK` and `$JOIN`, and `ran` those of
    the branches of each fork."""
    drawn = DiagramDrawing(workflow)
    return _transitions(drawn, _passed(drawn, taken, ran))


def _transitions(drawn: DiagramDrawing, passed: _Passed) -> list[Transition]:
    labels: dict[tuple[str, str], list[str]] = {}
    known = {*drawn.names, *ENDS}
    for arrow in drawn.arrows:
        if arrow.target in known:
            labels.setdefault((arrow.source, arrow.target), []).append(arrow.label)
    return [
        Transition(*ends, " / ".join(filter(None, label)), passed.arrows[ends])
        for ends, label in labels.items()
    ]


def described(
    workflow: Workflow,
    taken: Sequence[str],
    current: str | None = None,
    address: Callable[[str], str | None] = lambda role: None,
    turn: str = NEXT,
    branches: str = "",
    ran: Sequence[BranchWays] = (),
) -> str:
    """Return the graph as JSON for the drawing script. `taken`, `current`, `turn`, `branches` and `ran` as for
    `drawing`; `address` links a node."""
    drawn = DiagramDrawing(workflow)
    passed = _passed(drawn, taken, ran)
    current = passed.named(current)
    turns = _turns(passed, current, turn, branches)
    nodes = [
        {
            "id": name,
            "label": NODE_NAMES.get(name) or harmless(label_of(name)),
            "end": name in NODE_NAMES,
            "times": passed.nodes[name],
            "now": name == current,
            "turn": turns.get(name, ""),
            "href": address(name),
        }
        for name in dict.fromkeys([START, *drawn.names, END])
    ]
    ways = [{**way._asdict(), "label": harmless(way.label)} for way in _transitions(drawn, passed)]
    return json.dumps({"name": workflow.name, "nodes": nodes, "ways": ways}, ensure_ascii=False)


def _turns(passed: _Passed, current: str | None, turn: str, branches: str) -> dict[str, str]:
    """Return the words for whose turn it is, by node: `branches` are those for the last fork's."""
    turns = {current: turn} if current else {}
    return {**turns, passed.join: branches} if branches and passed.join else turns


def drawing(
    workflow: Workflow,
    taken: Sequence[str],
    current: str | None = None,
    turn: str = NEXT,
    branches: str = "",
    ran: Sequence[BranchWays] = (),
) -> str:
    """Return the SVG. `taken` are the nodes passed, with `$FORK` and `$JOIN`; `current` is next or in progress, and
    `turn` the word for it: NOW or NEXT. `branches` says how the branches of the last fork are: `3 of 8 done`; `ran`
    are the nodes that the branches of each fork passed."""
    drawn = DiagramDrawing(workflow)
    names = [name for name in drawn.names if name not in ENDS] + [END] + [FAIL] * (FAIL in drawn.names)
    places = {name: number for number, name in enumerate(names)}
    passed = _passed(drawn, taken, ran)
    ways = _transitions(drawn, passed)
    placed = [_Way(places[way.source], places[way.target], way.label) for way in ways]
    lanes = _lanes([way for way in placed if way.target != way.source + 1])
    left = max((_out(lanes, way) for way in placed if way.target <= way.source), default=0.0)
    right = max((_out(lanes, way) for way in placed if way.target > way.source + 1), default=0.0)
    straight = max(
        (len(_label(way.label)) * _LETTER for way in placed if way.target == way.source + 1), default=0
    )
    right = max(right, straight - _WIDTH / 2 + 30, 10)
    left += 10
    height = len(names) * (_HEIGHT + _GAP) - _GAP + 16
    ends = [places[name] for name in names if name in NODE_NAMES]
    labels: list[tuple[float, float, float]] = []
    shown = [
        _way(way, lanes, left, ends, labels, was=bool(passed.arrows[names[way.source], names[way.target]]))
        for way in placed
    ]
    parts = [path for path, _ in shown]
    turns = _turns(passed, passed.named(current), turn, branches)
    parts += [
        _node(name, number, left, passed.nodes[name], turns.get(name, "")) for name, number in places.items()
    ]
    parts += [label for _, label in shown]
    description = "; ".join(
        f"{_in_text(names[way.source])} to {_in_text(names[way.target])}"
        + (f" ({way.label})" if way.label else "")
        for way in placed
    )
    inside = (
        tag("title", markup.text(f"The graph of {workflow.name}"))
        + tag("desc", markup.text(description))
        + _ARROWS
    )
    size = f"0 0 {left + _WIDTH + right:.0f} {height:.0f}"
    wide = f"{left + _WIDTH + right:.0f}"
    return tag(
        "div",
        f'<svg class="graph" viewBox="{size}" width="{wide}" height="{height:.0f}" role="img">'
        + inside
        + "".join(parts)
        + "</svg>",
        "scrolls",
        tabindex="0",
    )


_ARROWS = "".join(
    f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    f'<path class="{name}" d="M0 0L8 4L0 8z"/></marker>'
    for name in ("tip", "tip-was")
)


def _lanes(ways: Sequence[_Way]) -> Mapping[_Way, int]:
    lanes: dict[_Way, int] = {}
    for way in sorted(ways, key=lambda way: abs(way.target - way.source)):
        back = way.target <= way.source
        low, high = sorted((way.source, way.target))
        used = {
            lane
            for other, lane in lanes.items()
            if (other.target <= other.source) == back
            and low <= max(other.source, other.target)
            and high >= min(other.source, other.target)
        }
        lanes[way] = next(lane for lane in range(len(ways) + 1) if lane not in used)
    return lanes


def _out(lanes: Mapping[_Way, int], way: _Way) -> float:
    return (lanes[way] + 1) * _LANE + len(_label(way.label)) * _LETTER + 14


def _top(place: int) -> float:
    return 8 + place * (_HEIGHT + _GAP)


def _way(
    way: _Way,
    lanes: Mapping[_Way, int],
    left: float,
    ends: Sequence[int],
    labels: list[tuple[float, float, float]],
    was: bool,
) -> tuple[str, str]:
    kind = "way was" if was else "way"
    tip = "tip-was" if was else "tip"
    if way.target == way.source + 1:
        x, begin, end = left + _WIDTH / 2, _top(way.source) + _HEIGHT, _top(way.target)
        path = f"M{x:.0f} {begin:.0f}V{end - 2:.0f}"
        at, middle, back = x + 8, (begin + end) / 2 + 4, False
    else:
        back = way.target <= way.source
        sign = -1 if back else 1
        side = left if back else left + _WIDTH
        out = side + sign * (lanes[way] + 1) * _LANE
        begin_x, end_x = (side - sign * (_INSET if place in ends else 0) for place in way[:2])
        # Ways of one node leave and reach it at different heights.
        shift = 6 + 5 * (lanes[way] % 3)
        begin, end = _top(way.source) + _HEIGHT - shift, _top(way.target) + shift
        if way.target == way.source:
            begin, end = _top(way.source) + 30, _top(way.source) + 10
        path = f"M{begin_x:.0f} {begin:.0f}C{out:.0f} {begin:.0f} {out:.0f} {end:.0f}"
        path += f" {end_x + 2 * sign:.0f} {end:.0f}"
        at, middle = side + (out - side) * 0.78, (begin + end) / 2 + 4
    shown = f'<path class="{kind}" d="{path}" marker-end="url(#{tip})"/>'
    return shown, _labelled(way.label, at, middle, back, labels)


def _labelled(
    label: str, at: float, middle: float, back: bool, labels: list[tuple[float, float, float]]
) -> str:
    short = _label(label)
    if not short:
        return ""
    size = len(short) * _LETTER
    begin, end = (at - size, at) if back else (at, at + size)
    while any(begin < right and end > begin_x and abs(middle - y) < 14 for begin_x, right, y in labels):
        middle += 14
    labels.append((begin, end, middle))
    title = tag("title", markup.text(label)) if short != label else ""
    place = f'x="{at:.0f}" y="{middle:.0f}" text-anchor="{"end" if back else "start"}"'
    return f'<text class="label" {place}>{markup.text(short)}{title}</text>'


def _node(name: str, place: int, left: float, count: int, turn: str) -> str:
    y = _top(place)
    ends = name in NODE_NAMES
    shown = NODE_NAMES.get(name) or label_of(name)
    inset = _INSET if ends else 0
    classes = "node" + (" was" if count else "") + (" now" if turn else "")
    box = (
        f'<rect class="{classes}" x="{left + inset:.0f}" y="{y:.0f}"'
        f' width="{_WIDTH - 2 * inset}" height="{_HEIGHT}" rx="{20 if ends else 6}"/>'
    )
    middle = left + _WIDTH / 2
    label = shortened(shown, 16 if turn else 22) + (f" · {count}×" if count and not ends else "")
    label += f" · {turn}" if turn and not ends else ""
    title_text = f"{shown}: {counted(count, 'step')}" + (f", {turn}" if turn else "")
    title = tag("title", markup.text(title_text if not ends else shown))
    return tag(
        "g",
        title
        + box
        + f'<text x="{middle:.0f}" y="{y + 25:.0f}" text-anchor="middle">{markup.text(label)}</text>',
    )


def _in_text(name: str) -> str:
    return node_label(name) if name.startswith(JOIN) else name


def _label(label: str) -> str:
    return shortened(label, _LONGEST)
