"""The census of a thread: how its calls, or the branches of its fan-outs, ended. Computed from the history alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.base.text import counted
from uwf_git.engine.calls import answers_joined
from uwf_git.format.endings import COMPLETED, FAILED, KILLED, LEFT
from uwf_git.format.fan_out import Fork, JoinedBranch, parse_fork, parse_join
from uwf_git.format.kinds import CallCounts, parse_detail
from uwf_git.format.types import is_kind
from uwf_git.git.repository import Oid
from uwf_git.store.history import ancestry
from uwf_git.workflow.turn import begins_threads, gathers_threads

if TYPE_CHECKING:
    from uwf_git.format.kinds import Workflow
    from uwf_git.format.node import Node
    from uwf_git.store.index import CommitRow
    from uwf_git.store.instance import Instance

FAILURES = "with failures"
"""The beginning of the reason in the archive tag of a thread that is completed with failures."""
CALLS, BRANCHES = "call", "branch"


class Census(NamedTuple):
    """How many calls or branches were asked, `answered`, `failed`, and were `dropped`: nobody waited for them.
    `unallowed` is how many failed, or ended with failures themselves, without the workflow's allowing it."""

    of: str
    asked: int
    answered: int
    failed: int
    dropped: int
    unallowed: int

    def plus(self, other: Census) -> Census:
        return Census(self.of, *(mine + its for mine, its in zip(self[1:], other[1:], strict=True)))

    @property
    def ending(self) -> str:
        """The reason of an end with failures, "" for an end without."""
        return f"{FAILURES} in {self.unallowed} of {_counted(self.asked, self.of)}" if self.unallowed else ""

    def as_json(self) -> dict[str, Any]:
        return {
            "of": "calls" if self.of == CALLS else "branches",
            **{name: getattr(self, name) for name in ("asked", "answered", "failed", "dropped")},
        }


def census_text(value: dict[str, Any]) -> str:
    """Return a census of JSON for people: 102 calls, 101 answered, 1 failed."""
    ends = [f"{value[name]} {name}" for name in ("answered", "failed", "dropped") if value[name]]
    return ", ".join([_counted(value["asked"], CALLS if value["of"] == "calls" else BRANCHES), *ends])


def _counted(number: int, name: str) -> str:
    return counted(number, name) if name == CALLS else f"{number} {'branch' if number == 1 else 'branches'}"


def census_of(instance: Instance, commit: Oid) -> Census | None:
    """Return the census of a thread's steps up to a commit, None if no calls or branches were asked. A
    sub-workflow's is part of it. Read errors are raised."""
    census: Census | None = None
    fork: Fork | None = None
    for row in reversed(list(ancestry(instance.store, commit))):
        one = None
        if begins_threads(row.role):
            fork = parse_fork(_output(instance, row), row.node)
        elif gathers_threads(row.role) and fork is not None and row.workflow is not None:
            joined = parse_join(_output(instance, row), row.node)
            one = of_join(instance.registry.workflow(row.workflow), fork, joined)
        elif row.kind == "step":
            one = _of_step(instance, row)
        if one is not None:
            census = one if census is None else census.plus(one)
    return census


def of_join(workflow: Workflow, fork: Fork, branches: Sequence[JoinedBranch]) -> Census:
    """Return the census of a join. The policy of the fork allows failures if it drops branches or needs some only,
    or if an edge of the join has a condition, which decides what they mean."""
    states = [branch.status for branch in branches]
    failed = states.count(FAILED) + states.count(KILLED)
    edges = workflow.graph.get(fork.source, ())
    fan_out = edges[fork.edge].fan_out if fork.edge < len(edges) else None
    decides = fan_out is not None and any(
        transition.condition or transition.status for transition in fan_out.join
    )
    is_allowed = fork.failure_policy.allows_failures or not fork.of_all or decides
    inner = sum(branch.status == COMPLETED and branch.reason.startswith(FAILURES) for branch in branches)
    unallowed = inner + (0 if is_allowed else failed)
    return Census(BRANCHES, len(branches), states.count(COMPLETED), failed, states.count(LEFT), unallowed)


def calls_in(detail: Node) -> CallCounts | None:
    return parse_detail(detail.payload).calls if is_kind(detail.type, "detail") else None


def of_calls(counts: CallCounts) -> Census:
    answered = counts.asked - counts.failed - counts.dropped
    unallowed = counts.failed if counts.failed > counts.tolerated else 0
    return Census(CALLS, counts.asked, answered, counts.failed, counts.dropped, unallowed)


def _of_step(instance: Instance, row: CommitRow) -> Census | None:
    if row.merged is None:
        return _counted_in(instance, row) if instance.threads.is_code(row.workflow) else None
    if not instance.threads.is_code(row.workflow):
        detail = instance.store.step(row.node).detail
        is_child = is_kind(instance.store.get(detail).type, "step")
        return census_of(instance, Oid(raw=row.merged)) if is_child else None
    if (census := _counted_in(instance, row)) is not None:
        return census
    answered = len(answers_joined(instance, Oid(raw=row.oid)))
    return Census(CALLS, answered, answered, 0, 0, 0)


def _counted_in(instance: Instance, row: CommitRow) -> Census | None:
    counts = calls_in(instance.store.get(instance.store.step(row.node).detail))
    return None if counts is None else of_calls(counts)


def _output(instance: Instance, row: CommitRow) -> Any:
    return instance.store.get(instance.store.step(row.node).output).payload
