"""The bodies of fan-outs: the roles that a branch can come to before the roles of its join."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from uwf_git.format.types import ENDS


class _FanOut(Protocol):
    @property
    def roles(self) -> tuple[str, ...]: ...
    @property
    def ends(self) -> tuple[str, ...]: ...


class _Edge(Protocol):
    @property
    def targets(self) -> tuple[str, ...]: ...
    @property
    def fan_out(self) -> _FanOut | None: ...


class Body(NamedTuple):
    """The body of the fan-out at index `position` of `source`: its branches begin at `entries`, go through `roles`,
    and end at an edge to one of `ends`, the roles of its join."""

    source: str
    position: int
    entries: tuple[str, ...]
    ends: tuple[str, ...]
    roles: frozenset[str]

    def is_within(self, other: Body) -> bool:
        return self is not other and self.source in other.roles


def bodies_of(graph: Mapping[str, Sequence[_Edge]]) -> list[Body]:
    """Return the bodies of all fan-outs, in the order of the graph."""
    return [
        Body(source, position, fan_out.roles, fan_out.ends, _roles(graph, fan_out))
        for source, edges in graph.items()
        for position, edge in enumerate(edges)
        if (fan_out := edge.fan_out) is not None
    ]


def _roles(graph: Mapping[str, Sequence[_Edge]], fan_out: _FanOut) -> frozenset[str]:
    without = {*ENDS, *fan_out.ends}
    pending = [role for role in fan_out.roles if role not in without]
    roles = set(pending)
    for role in pending:  # grows while it is walked
        for target in (target for edge in graph.get(role, ()) for target in edge.targets):
            if target not in without and target not in roles:
                roles.add(target)
                pending.append(target)
    return frozenset(roles)


def innermost(bodies: Sequence[Body]) -> dict[str, tuple[Body, ...]]:
    """Return the bodies that each role's step can be in: several if fan-outs share a body."""
    around: dict[str, list[Body]] = {}
    for body in bodies:
        for role in body.roles:
            around.setdefault(role, []).append(body)
    return {
        role: tuple(body for body in inside if not any(other.is_within(body) for other in inside))
        for role, inside in around.items()
    }


def nesting(body: Body, bodies: Sequence[Body]) -> int:
    """Return how many fan-outs a body's branches are within, its own included."""
    level, depth = [body], 0
    while level and depth <= len(bodies):  # those that are within each other are another mistake
        depth += 1
        level = [outer for outer in bodies if any(item.is_within(outer) for item in level)]
    return depth
