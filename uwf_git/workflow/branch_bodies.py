"""The bodies of fan-outs: the roles that a branch can come to before the roles of its join."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from uwf_git.format.types import ENDS
from uwf_git.workflow.draft import Draft
from uwf_git.workflow.fan_out_source import DraftFanOut


class Body(NamedTuple):
    """The `roles` of the branches of a fan-out that leaves `source`."""

    source: str
    fan_out: DraftFanOut
    roles: frozenset[str]


def bodies_of(draft: Draft) -> list[Body]:
    """Return the bodies of all fan-outs, in the order of the graph."""
    return [
        Body(source, edge.fan_out, _body(draft, edge.fan_out))
        for source, edges in draft.graph.items()
        for edge in edges.edges
        if edge.fan_out is not None
    ]


def _body(draft: Draft, fan_out: DraftFanOut) -> frozenset[str]:
    without = {*ENDS, *fan_out.ends}
    pending = [role for role in fan_out.roles if role not in without]
    found = set(pending)
    for role in pending:  # grows while it is walked
        edges = draft.graph.get(role)
        for target in (target for edge in (edges.edges if edges else ()) for target in edge.targets):
            if target not in without and target not in found:
                found.add(target)
                pending.append(target)
    return frozenset(found)


def nesting(body: Body, bodies: Sequence[Body]) -> int:
    """Return how many fan-outs a body's branches are within, its own included."""
    around = [other for other in bodies if other.fan_out is not body.fan_out and body.source in other.roles]
    level = {id(body.fan_out)}
    depth = 1
    while around and depth <= len(bodies):
        depth += 1
        level |= {id(each.fan_out) for each in around}
        around = [
            other
            for other in bodies
            if id(other.fan_out) not in level and any(each.source in other.roles for each in around)
        ]
    return depth
