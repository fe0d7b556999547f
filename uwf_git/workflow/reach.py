"""Which roles a graph reaches, and from which there is a way to `$END`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from uwf_git.values.kinds import END, START

Graph = Mapping[str, Iterable[str]]


def reachable(graph: Graph, start: str = START) -> set[str]:
    """What can be reached from start, itself included, along edges given as targets by source."""
    seen = {start}
    waiting = [start]
    while waiting:
        for target in graph.get(waiting.pop(), ()):
            if target not in seen:
                seen.add(target)
                waiting.append(target)
    return seen


def can_end(graph: Graph) -> set[str]:
    """The sources from which `$END` can be reached."""
    backwards: dict[str, set[str]] = {}
    for source, targets in graph.items():
        for target in targets:
            backwards.setdefault(target, set()).add(source)
    return reachable(backwards, END) - {END}
