"""A workflow's graph as SVG: roles top to bottom in graph order, forward edges on the right, backward ones on
the left, with counts. Fan-outs are drawn as `workflow.diagram` has them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from uwf_git.plugin import END, FAIL, counted, markup, node_label, shortened, tag

_WIDTH, _HEIGHT, _GAP = 190, 40, 46  # of a node, and between two
_LANE = 34  # between two edges beside the nodes
_LETTER = 6.6  # the width of one in a label
_LONGEST = 26
_INSET = 45  # by which the ends are narrower, at each side


class _Way(NamedTuple):
    source: int
    target: int
    label: str
    was: bool


def described(graph: Mapping[str, Any], address: Callable[[str], str | None] = lambda role: None) -> str:
    """Return a graph of `graph_value` as JSON for the drawing script; `address` links a node."""
    nodes = [{**node, "href": address(node["id"])} for node in graph["nodes"]]
    return json.dumps({**graph, "nodes": nodes}, ensure_ascii=False)


def drawing(graph: Mapping[str, Any]) -> str:
    """Return the SVG of a graph of `graph_value`."""
    ordered = sorted(graph["nodes"], key=lambda node: {END: 1, FAIL: 2}.get(node["id"], 0))
    nodes = {node["id"]: node for node in ordered}
    names = list(nodes)
    places = {name: number for number, name in enumerate(names)}
    placed = [
        _Way(places[way["source"]], places[way["target"]], way["label"], bool(way["times"]))
        for way in graph["ways"]
    ]
    lanes = _lanes([way for way in placed if way.target != way.source + 1])
    left = max((_out(lanes, way) for way in placed if way.target <= way.source), default=0.0)
    right = max((_out(lanes, way) for way in placed if way.target > way.source + 1), default=0.0)
    straight = max(
        (len(_label(way.label)) * _LETTER for way in placed if way.target == way.source + 1), default=0
    )
    right = max(right, straight - _WIDTH / 2 + 30, 10)
    left += 10
    height = len(names) * (_HEIGHT + _GAP) - _GAP + 16
    ends = [places[name] for name in names if nodes[name]["end"]]
    labels: list[tuple[float, float, float]] = []
    shown = [_way(way, lanes, left, ends, labels) for way in placed]
    parts = [path for path, _ in shown]
    parts += [_node(nodes[name], number, left) for name, number in places.items()]
    parts += [label for _, label in shown]
    description = "; ".join(
        f"{node_label(names[way.source])} to {node_label(names[way.target])}"
        + (f" ({way.label})" if way.label else "")
        for way in placed
    )
    inside = (
        tag("title", markup.text(f"The graph of {graph['name']}"))
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
) -> tuple[str, str]:
    kind = "way was" if way.was else "way"
    tip = "tip-was" if way.was else "tip"
    if way.target == way.source + 1:
        x, begin, end = left + _WIDTH / 2, _top(way.source) + _HEIGHT, _top(way.target)
        path = f"M{x:.0f} {begin:.0f}V{end - 2:.0f}"
        at, middle, back = x + 8, (begin + end) / 2 + 4, False
    else:
        back = way.target <= way.source
        sign = -1 if back else 1
        side = left if back else left + _WIDTH
        out = side + sign * (lanes[way] + 1) * _LANE
        begin_x, end_x = (
            side - sign * (_INSET if place in ends else 0) for place in (way.source, way.target)
        )
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


def _node(node: Mapping[str, Any], place: int, left: float) -> str:
    y = _top(place)
    ends, shown, count, turn = node["end"], node["label"], node["times"], node["turn"]
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


def _label(label: str) -> str:
    return shortened(label, _LONGEST)
