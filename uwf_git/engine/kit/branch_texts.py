"""Forks and joins of a thread's history as text for an agent."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from uwf_git.base.text import cut_middle, fenced, one_line
from uwf_git.format.endings import COMPLETED, FAILED, KILLED, LEFT
from uwf_git.format.fan_out import Fork, JoinedBranch, parse_fork, parse_join
from uwf_git.format.kinds import StepContext
from uwf_git.format.types import FORK

_LONGEST_ITEM = 300
_MIN_BRANCH = 300  # characters of a branch; with less, the last branches are left out
_HEADING = 60  # about the size of what stands around an item and an output
_ENDED = {
    COMPLETED: "completed",
    FAILED: "failed",
    KILLED: "was killed",
    LEFT: "had not ended, and goes on no further",
}


def engines_text(steps: Sequence[StepContext], room: int) -> str:
    """Return the last of these steps, a fork or a join, in about `room` characters."""
    number, step = len(steps), steps[-1]
    if step.role == FORK:
        return fork_text(number, step)
    from uwf_git.workflow.fan_out import fork_before

    return join_text(number, step, fork_before(steps), room)


def fork_text(number: int, step: StepContext) -> str:
    fork = parse_fork(step.output, step.hash)
    return f"## Step {number}: {fork.summary} forked, one for each {fork.name}"


def join_text(number: int, step: StepContext, before: StepContext | None, room: int) -> str:
    """Return the branches of a join by index, in about `room` characters. `before` is the step of its fork."""
    fork = parse_fork(before.output, before.hash) if before is not None else None
    branches = parse_join(step.output, step.hash)
    loop = "" if fork is None else f", one for each {fork.name}"
    lines = [f"## Step {number}: {step.output['summary']} and joined{loop}"]
    items = [""] * len(branches) if fork is None else [_item(fork, item) for item in fork.items]
    outputs = [_json(branch.output) for branch in branches]
    lengths = [_HEADING + len(item) + len(output) for item, output in zip(items, outputs, strict=True)]
    shown = min(len(branches), max(1, room // _MIN_BRANCH))
    most = _share(lengths[:shown], room)
    for index in range(shown):
        allowed = max(_MIN_BRANCH, most) - _HEADING - len(items[index])
        lines.append(_branch(index, branches[index], items[index], outputs[index], allowed))
    if hidden := len(branches) - shown:
        which = "1 more branch is" if hidden == 1 else f"{hidden:,} more branches are"
        lines.append(
            f"[{which} left out here for the size: `uwf thread step-details {step.hash}` has all of them.]"
        )
    return "\n\n".join(lines)


def _branch(index: int, branch: JoinedBranch, item: str, output: str, allowed: int) -> str:
    reason = f": {one_line(branch.reason, 200)}" if branch.reason else ""
    lines = [f"### Branch {index} {_ENDED[branch.status]}{reason}"]
    if item:
        lines.append(item)
    if branch.output is not None:
        shown = cut_middle(output, allowed)
        lines.append(f"Output:\n\n{fenced(shown, 'json')}")
        if shown != output:
            lines.append(f"[`uwf thread read {branch.thread}` has the rest.]")
    return "\n\n".join(lines)


def _item(fork: Fork, item: Any) -> str:
    text = item if isinstance(item, str) else json.dumps(item, ensure_ascii=False)
    return f"{fork.name}: {one_line(text, _LONGEST_ITEM)}"


def _json(output: Any) -> str:
    return "" if output is None else json.dumps(_without_ids(output), ensure_ascii=False, indent=2)


def _without_ids(output: Any) -> Any:
    """Return the output of a branch, which may have joined branches itself, without their threads and steps."""
    if not isinstance(output, dict) or output.keys() != {"summary", "branches"}:
        return output
    kept = ("status", "output", "reason")
    return (
        {
            "branches": [
                {key: _without_ids(branch[key]) for key in kept if key in branch}
                if isinstance(branch, dict) and {"thread", "step"} <= branch.keys()
                else branch
                for branch in output["branches"]
            ]
        }
        if isinstance(output["branches"], list)
        else output
    )


def _share(lengths: Sequence[int], room: int) -> int:
    """Return how long each text may be, so that short ones leave their room to long ones."""
    remaining, number = room, len(lengths)
    for length in sorted(lengths):
        if length * number > remaining:
            break
        remaining, number = remaining - length, number - 1
    return remaining // number if number else room
