"""Fan-outs, decided: the items of one, its branches' prompts, and whether its branches may be joined. Pure, as the
moderator is.

A branch that ended counts once, however often it was tried: its state is that of its thread. One that has not ended is
nothing yet, also if its last attempt failed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from uwf_git.base.errors import Invalid
from uwf_git.base.text import counted, fenced, listed, one_line
from uwf_git.format.edges import (
    ALL,
    ASK,
    FIRST,
    ON_CONFLICT,
    REFUSE,
    FanOut,
    FixedBranch,
    Transition,
)
from uwf_git.format.endings import COMPLETED, FAILED, KILLED
from uwf_git.format.fan_out import Fork, ForkedBranch, JoinedBranch, parse_fork, parse_join
from uwf_git.format.ids import MOST_BRANCHES
from uwf_git.format.kinds import StepContext, Workflow, asks_human
from uwf_git.format.types import FORK, JOIN, USER
from uwf_git.workflow.expression import evaluate, items_expression

MOST_BYTES = 1 << 20  # of the items of one fan-out, as JSON: forges refuse or hide large blobs
_NAMED = 10  # paths, or branches
_ENDED = COMPLETED, FAILED, KILLED
MERGED, LEAVE_OUT = "merged", "leave out"
"""The answers to the question of a join."""


def items_of(fan_out: FanOut, history: Mapping[str, Any], where: str) -> tuple[Any, ...]:
    """Return the items of a fan-out over `{start, steps}`: of an expression without a value there are none, and one
    that isn't an array is the only item. Raises Invalid for a failing expression, too many items or too large ones."""
    if isinstance(fan_out.items, str):
        value = evaluate(items_expression(fan_out.items), history)
        items = () if value is None else tuple(value) if isinstance(value, list) else (value,)
    else:
        items = tuple(item.name if isinstance(item, FixedBranch) else item for item in fan_out.items)
    most = min(fan_out.most, MOST_BRANCHES)
    if len(items) > most:
        hint = (
            f"raise max for new threads, at most to {MOST_BRANCHES:,}"
            if most < MOST_BRANCHES
            else "make fewer of them"
        )
        raise Invalid(f"{where}: each has {counted(len(items), 'item')}, more than max, {most:,}", hint)
    if len(json.dumps(items, ensure_ascii=False).encode("utf-8", "replace")) > MOST_BYTES:
        raise Invalid(
            f"{where}: the items of each have more than {MOST_BYTES >> 20} MiB together",
            "let an item name what its branch is to read",
        )
    return items


def needed(need: int | str, count: int) -> int:
    """Return how many of `count` branches must complete."""
    if need == ALL:
        return count
    if need == FIRST:
        return min(1, count)
    share = -(-count * int(need[:-1]) // 100) if isinstance(need, str) else need  # rounded up
    return min(share, count)


def planned(
    source: str,
    edge: int,
    fan_out: FanOut,
    items: Sequence[Any],
    branches: Sequence[ForkedBranch],
    budget: Mapping[str, float] = {},
) -> Fork:
    """Return the output of the fork of the edge at an index of `source`."""
    return Fork(
        source,
        edge,
        fan_out.name,
        tuple(items),
        tuple(branches),
        fan_out.ends,
        needed(fan_out.need, len(items)),
        fan_out.need == ALL,
        fan_out.on_failure,
        fan_out.at_once,
        fan_out.on_conflict,
        budget,
    )


def default_prompt(task: str, name: str, item: Any) -> str:
    """Return the prompt of a branch whose edge has none: the thread's task, and the item."""
    text = item if isinstance(item, str) else json.dumps(item, ensure_ascii=False, indent=2)
    return f"{task.rstrip()}\n\n{name}: {text}\n"


class Pending(NamedTuple):
    """The branches cannot be joined yet: `open` are the indexes of those that have not ended."""

    open: tuple[int, ...]


class Joinable(NamedTuple):
    """The branches may be joined. `failure` is why the thread then fails, "" if it doesn't."""

    failure: str = ""


def judge(fork: Fork, states: Sequence[str], reasons: Mapping[int, str] = {}) -> Pending | Joinable:
    """Return whether branches may be joined, by their states in order of the index: completed, failed, killed, or
    anything else for one that has not ended. `reasons` say why some failed."""
    completed = sum(state == COMPLETED for state in states)
    pending = tuple(index for index, state in enumerate(states) if state not in _ENDED)
    bad = [index for index, state in enumerate(states) if state in (FAILED, KILLED)]
    if bad and fork.failure_policy.fails_thread:
        first = bad[0]
        why = f": {one_line(reasons[first], 200)}" if reasons.get(first) else ""
        what = "has failed" if states[first] == FAILED else "was killed"
        return Joinable(f"branch {first} {what}{why}")
    if fork.of_all:
        return Pending(pending) if pending else Joinable()
    if completed >= fork.need:
        return Joinable()
    if completed + len(pending) < fork.need:
        return Joinable(f"{fork.need} of {fork.size} branches must complete, and {len(bad)} did not")
    return Pending(pending)


def judge_join(fork: Fork, branches: Sequence[JoinedBranch]) -> Pending | Joinable:
    """Return whether the branches of a join might be joined as they stood. The thread fails if their code conflicts and
    the fork wants that."""
    reasons = {index: branch.reason for index, branch in enumerate(branches)}
    joining = judge(fork, [branch.status for branch in branches], reasons)
    if fork.on_conflict == REFUSE and joining == Joinable() and (conflicts := _conflicts(branches)):
        return Joinable(f"{conflicts[0]}{_also(branches)}")
    return joining


def resolver(fork: Fork, branches: Sequence[JoinedBranch]) -> str:
    """Return the role that merges the code which conflicts at a join, "" without conflicts or such a role."""
    if fork.on_conflict in ON_CONFLICT or all(branch.conflict is None for branch in branches):
        return ""
    return fork.on_conflict


def join_question(fork: Fork, branches: Sequence[JoinedBranch]) -> str:
    """Return what a person is asked at a join about code that conflicts, "" for no question."""
    asks = fork.on_conflict == ASK and any(branch.conflict is not None for branch in branches)
    if not asks or judge_join(fork, branches) != Joinable():
        return ""
    conflicts = "\n".join(_conflicts(branches))
    return (
        f"{conflicts}\nMerge it in the worktree of this thread and commit that, then answer: {MERGED}."
        f" To go on without what is not merged there, answer: {LEAVE_OUT}."
    )


def conflict_task(branches: Sequence[JoinedBranch]) -> str:
    """Return the instruction of the role that merges code which conflicts."""
    parts = ["Merge the code of these branches into that of this folder, which has the code of the others."]
    for conflict, item in zip(
        _conflicts(branches), filter(None, (it.conflict for it in branches)), strict=True
    ):
        parts.append(conflict)
        if item.text:
            parts.append(fenced(item.text.rstrip("\n")))
    parts.append("Resolve each conflict so that the intent of both sides is kept, and finish each merge.")
    parts.append("What is not merged with git is left out.")
    return "\n\n".join(parts)


def _conflicts(branches: Sequence[JoinedBranch]) -> list[str]:
    """Return a line on each branch whose code conflicts."""
    sentences = []
    for index, branch in enumerate(branches):
        if branch.conflict is not None:
            paths = listed([one_line(path, 200) for path in branch.conflict.paths], _NAMED)
            sentences.append(
                f"branch {index} ({branch.thread}) conflicts with the branches before it in {paths}:"
                f" git merge {branch.conflict.commit}"
            )
    return sentences


def _also(branches: Sequence[JoinedBranch]) -> str:
    """Return words on the branches whose code conflicts, without the first."""
    others = [
        f"branch {index} ({branch.thread})"
        for index, branch in enumerate(branches)
        if branch.conflict is not None
    ][1:]
    return f"; so does {listed(others, _NAMED)}" if others else ""


def join_resolved(steps: Sequence[StepContext], role: str) -> Sequence[StepContext]:
    """Return the steps up to the join whose conflicts a step of `role` after these resolves, or its question and its
    answers before; none if it resolves none."""
    at = len(steps) - 1
    while at >= 0 and (
        steps[at].remark is not None
        or steps[at].role == USER
        or (steps[at].role == role and asks_human(steps[at].output))
    ):
        at -= 1
    if at < 0 or steps[at].role != JOIN:
        return ()
    joined = steps[: at + 1]
    if role == USER:
        return joined if asks_human(steps[at].output) else ()
    fork = fork_before(joined)
    if fork is None:
        return ()
    branches = parse_join(steps[at].output, steps[at].hash)
    return joined if resolver(parse_fork(fork.output, fork.hash), branches) == role else ()


def fork_before(steps: Sequence[StepContext]) -> StepContext | None:
    """Return the `$FORK` that the last step, a `$JOIN`, joins; None if there is none."""
    before = next((step for step in reversed(steps[:-1]) if step.remark is None), None)
    return before if before is not None and before.role == FORK else None


def join_name(source: str, edge: int) -> str:
    """Return the name that stands for the join of the edge at an index of `source`, as roles stand for themselves."""
    return f"{JOIN} of {source}" + (f", edge {edge}" if edge else "")


def joins_of(workflow: Workflow) -> dict[str, FanOut]:
    """Return the fan-outs of a workflow by the names of their joins."""
    return {
        join_name(source, position): edge.fan_out
        for source, edges in workflow.graph.items()
        for position, edge in enumerate(edges)
        if edge.fan_out is not None
    }


def with_joins(workflow: Workflow) -> dict[str, Sequence[Transition]]:
    """Return the edges of the graph, each fan-out's followed by those of its join, by the names of what they leave."""
    transitionses: dict[str, Sequence[Transition]] = {}
    for source, edges in workflow.graph.items():
        transitionses[source] = edges
        for position, edge in enumerate(edges):
            if edge.fan_out is not None:
                transitionses[join_name(source, position)] = edge.fan_out.join
    return transitionses
