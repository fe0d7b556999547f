"""Writes benchmarks.md: every row of a run, with plots as SVG beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle, groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rows import Point, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DOCS = Path(__file__).resolve().parent.parent / "docs" / "reference"
OURS = "uwf"

ROOMS = {
    "startup": "Commands",
    "peers": "Durable steps",
    "steps": "Steps in the library",
    "growth": "Large stores",
    "agents": "Shipped agents",
    "caching": "Prompt caches",
    "crews": "Crews",
    "chats": "Conversations",
    "pages": "Pages",
    "top": "The terminal",
    "exchange": "Sharing and verification",
    "throughput": "Sharing by workers",
    "worktrees": "Worktrees",
    "sessions": "Sessions of agent programs",
    "fan_out": "Fan-outs",
    "batches": "Many steps by one command",
    "fleet": "Fleets",
    "landing": "Landing",
    "integrity": "Integrity",
    "evaluation": "Evaluation",
}
"""The heading of each module of groups."""


class Plot(NamedTuple):
    """What is drawn of the points of that name. Without `x` there is one bar a line."""

    title: str
    y: str
    x: str = ""


DRAWN = {
    "step": Plot("A durable step of 4.2 KB", "ms", "step of the run"),
    "disk": Plot("Disk after 500 such steps, ours packed", "MB"),
    "growth": Plot("A durable step, as its thread grows", "ms, kB", "step of the thread"),
    "crowds": Plot("Commands, as the store fills", "ms", "threads of the store"),
    "exchange": Plot("One new step, as the remote fills", "ms", "threads on the remote"),
    "throughput": Plot("A worker's steps, as the remote fills", "steps a second", "refs on the remote"),
}

HEAD = """# Benchmarks

The output of `make bench`. Each figure is compared with a yardstick measured alternately in the same run, since
absolute times tell more about a machine than about a program. The fastest turn counts: it was disturbed least. Commands
are processes of a real install; rows "in the library" are measured in one process.

```sh
make bench                                          # everything; rewrites this page and its plots
.venv-bench/bin/python benchmarks/run.py --only peers   # some groups, on the terminal; with --page also here
```

The rows of a group are of one run.

Peers are set up with SQLite as their documentation says, with each transaction synced: LangGraph's graph with
`SqliteSaver` and `durability="sync"`, a DBOS workflow with a system database, a Burr application with
`SQLitePersister`. [benchmarks/peers.py](../../benchmarks/peers.py) has the code.

The edits of a store at rest are those of the package `agent-memory-integrity` (agmi): 1 is an edit that
nothing reported. [benchmarks/integrity.py](../../benchmarks/integrity.py) has the two attackers.

A row over its limit is marked `over`.
"""


def write(folder: Path, machine: str, found: Mapping[str, Sequence[Row | Point]]) -> None:
    """The page and its plots in a folder, of what each group found by its `module.function`."""
    drawn = _plots(folder, found)
    parts = [HEAD, f"The last run was on: {machine.partition(';')[0]}.\n"]
    for room, groups in groupby(found, key=lambda name: name.partition(".")[0]):
        yielded = [each for group in groups for each in found[group]]
        parts.append(f"## {ROOMS[room]}\n")
        parts.append(_table([each for each in yielded if isinstance(each, Row)]))
        shown = dict.fromkeys(each.plot for each in yielded if isinstance(each, Point))
        parts += [f"![{DRAWN[name].title}](benchmarks/{drawn[name]})\n" for name in shown]
    (folder / "benchmarks.md").write_text("\n".join(parts))


def renew(folder: Path, found: Mapping[str, Sequence[Row | Point]]) -> None:
    """Puts what some groups found into the page that is in a folder, in place of what they found before: rows by what
    they measure, new ones behind the others of their table."""
    _plots(folder, found)
    path = folder / "benchmarks.md"
    head, *sections = path.read_text().split("\n## ")
    tables = {section.partition("\n")[0]: section for section in sections}
    for room, groups in groupby(found, key=lambda name: name.partition(".")[0]):
        title = ROOMS[room]
        rows = [each for group in groups for each in found[group] if isinstance(each, Row)]
        fresh = _table(rows).rstrip("\n").split("\n")
        known = tables.get(title, f"{title}\n\n" + "\n".join(fresh[:2]) + "\n").split("\n")
        for line in fresh[2:]:
            what = line[: line.index(" | ", 2)]
            places = [place for place, each in enumerate(known) if each.startswith(f"{what} | ")]
            last = max(place for place, each in enumerate(known) if each.startswith("|"))
            known[places[0] if places else last + 1 : (places[0] if places else last) + 1] = [line]
        tables[title] = "\n".join(known)
    path.write_text("\n## ".join((head, *tables.values())))


def _plots(folder: Path, found: Mapping[str, Sequence[Row | Point]]) -> dict[str, str]:
    """Draws the plots of which there are points; gives their files in the folder `benchmarks` by their names."""
    plots = folder / "benchmarks"
    plots.mkdir(exist_ok=True)
    points = [each for group in found.values() for each in group if isinstance(each, Point)]
    return {
        name: _draw(plots, name, [p for p in points if p.plot == name])
        for name in dict.fromkeys(p.plot for p in points)
    }


def _table(rows: Sequence[Row]) -> str:
    lines = ["| what / yardstick | measured | yardstick | ratio | at most | |", "|---|--:|--:|--:|--:|---|"]
    for row in rows:
        what = row.what.replace("|", "\\|")
        figure = f"{_number(row.figure)} {row.unit}"
        over = "" if row.holds else "over"
        if row.against is None or row.ratio is None:
            lines.append(f"| {what} | {figure} | | | {_number(row.limit)} {row.unit} | {over} |")
        else:
            yardstick = f"{_number(row.against)} {row.unit}"
            lines.append(
                f"| {what} | {figure} | {yardstick} | {_number(row.ratio)} × | {_number(row.limit)} × | {over} |"
            )
    return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    """Three digits that count."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _draw(folder: Path, name: str, points: Sequence[Point]) -> str:
    """The plot's file in the folder."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update(
        {"svg.hashsalt": name, "font.size": 10, "axes.spines.right": False, "axes.spines.top": False}
    )
    import matplotlib.pyplot as plt

    plot = DRAWN[name]
    figure, axes = plt.subplots(figsize=(7, 3.4 if plot.x else 2.2), layout="constrained")
    (_lines if plot.x else _bars)(axes, points)
    axes.set_title(plot.title, loc="left")
    axes.set_xlabel(plot.x or plot.y)
    if plot.x:
        axes.set_ylabel(plot.y)
    figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
    plt.close(figure)
    return f"{name}.svg"


def _lines(axes: Axes, points: Sequence[Point]) -> None:
    dashes = cycle(("-", "--", ":", "-."))  # of several lines of ours, which have one color
    for number, line in enumerate(dict.fromkeys(point.line for point in points)):
        mine = sorted((point.x, point.y) for point in points if point.line == line)
        xs, ys = zip(*mine, strict=True)
        width, dash = (2.4, next(dashes)) if line.startswith(OURS) else (1.4, "-")
        axes.plot(xs, ys, color=_color(line, number), lw=width, ls=dash, label=line)
    xs = [point.x for point in points]
    if max(xs) > 100 * max(min(xs), 1):
        axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)


def _bars(axes: Axes, points: Sequence[Point]) -> None:
    ordered = sorted(points, key=lambda point: -point.y)
    colors = [_color(point.line, number) for number, point in enumerate(ordered)]
    bars = axes.barh([point.line for point in ordered], [point.y for point in ordered], color=colors)
    axes.bar_label(bars, labels=[f" {_number(point.y)}" for point in ordered])
    axes.set_xscale("log")


def _color(line: str, number: int) -> str:
    return "#c2410c" if line.startswith(OURS) else ("#334155", "#64748b", "#94a3b8", "#475569")[number % 4]
