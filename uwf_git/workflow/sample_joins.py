"""Sample joins for rehearsals: which branches a join may find, and how they ended."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import permutations
from typing import Any

from uwf_git.format.edges import FanOut
from uwf_git.format.endings import COMPLETED, FAILED, KILLED, LEFT
from uwf_git.format.fan_out import Fork, ForkedBranch, JoinedBranch
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.workflow.fan_out import Joinable, judge_join, planned
from uwf_git.workflow.moderator import ChosenEdge

_THREAD = ThreadId("0" * 26)
_NODE = Hash("0" * 13)
_MOST = 60  # branches of one join
_MOST_ENDINGS = 24
_MOST_OF_A_KIND = 4
_PAIRED = 5  # endings that are combined with each other
_MOST_PROBED = 12


class Endings:
    """The distinct ways in which the branches of a fan-out have ended in a rehearsal, at most 24: a few of each kind,
    which is told by texts and booleans."""

    def __init__(self) -> None:
        self._kinds: dict[str, dict[str, JoinedBranch]] = {}

    def add(self, output: Any, failed: bool = False) -> None:
        fields = output if isinstance(output, dict) else {"": output}
        telling = {key: value if isinstance(value, bool | str) else "" for key, value in fields.items()}
        kind = self._kinds.setdefault(json.dumps([failed, telling], sort_keys=True), {})
        if len(kind) < _MOST_OF_A_KIND and sum(map(len, self._kinds.values())) < _MOST_ENDINGS:
            status = FAILED if failed else COMPLETED
            kind[json.dumps(output, sort_keys=True)] = JoinedBranch(status, _THREAD, _NODE, output)

    def __iter__(self) -> Iterator[JoinedBranch]:
        """Yield one of each kind, then the others."""
        kinds = [list(each.values()) for each in self._kinds.values()]
        return iter([*(each[0] for each in kinds if each), *(other for each in kinds for other in each[1:])])


def fork_of(chosen: ChosenEdge, fan_out: FanOut, items: Sequence[Any]) -> Fork:
    """Return the output of the fork of an edge."""
    branches = [ForkedBranch(_NODE, each.role) for each in fan_out.fixed]
    return planned(
        chosen.source, chosen.position, fan_out, items, branches or [ForkedBranch(_NODE, fan_out.role)]
    )


def sizes(fan_out: FanOut, count: int, numbers: Iterable[float]) -> list[int]:
    """Return the numbers of branches to try if there are `count` items: also one to three, and those around the literal
    `numbers` of conditions, unless the workflow names the items."""
    if not count or not isinstance(fan_out.items, str):
        return [count]
    around = (int(number) + more for number in numbers for more in (0, 1))
    most = min(_MOST, fan_out.most)
    return [*dict.fromkeys(each for each in (count, 1, 2, 3, *around) if 0 < each <= most)][:_MOST_PROBED]


def joins(fork: Fork, endings: Iterable[JoinedBranch], may_fail: bool) -> list[tuple[JoinedBranch, ...]]:
    """Return the branches that a join of this fork may find, if the workflow goes on after it: all alike, mixed, one or
    all of them failed, killed or left."""
    known, size = list(endings), fork.size
    if not size or not known:
        return [] if size else [()]
    mixed = [known[index % len(known)] for index in range(size)]
    found = [[each] * size for each in known]
    found.append(mixed)
    found += [[one, *[other] * (size - 1)] for one, other in permutations(known[:_PAIRED], 2)]
    gone = [JoinedBranch(KILLED, _THREAD, reason="Rehearsed: killed")]
    if may_fail or fork.failure_policy.ends_branch:
        gone.append(JoinedBranch(FAILED, _THREAD, reason="Rehearsed: failed"))
    found += [other for each in gone for other in ([each, *mixed[1:]], [each] * size)]
    if not fork.of_all:
        left = [JoinedBranch(LEFT, _THREAD)] * (size - fork.need)
        found += [[*mixed[: fork.need], *left], [*left, *mixed[: fork.need]]]
    return [tuple(each) for each in found if judge_join(fork, each) == Joinable()]
