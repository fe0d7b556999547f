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
        kinds = [list(kind.values()) for kind in self._kinds.values()]
        return iter([*(kind[0] for kind in kinds if kind), *(other for kind in kinds for other in kind[1:])])


def fork_of(chosen: ChosenEdge, fan_out: FanOut, items: Sequence[Any]) -> Fork:
    """Return the output of the fork of an edge."""
    branches = [ForkedBranch(_NODE, branch.role) for branch in fan_out.fixed]
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
    return [*dict.fromkeys(item for item in (count, 1, 2, 3, *around) if 0 < item <= most)][:_MOST_PROBED]


def joins(fork: Fork, endings: Iterable[JoinedBranch], may_fail: bool) -> list[tuple[JoinedBranch, ...]]:
    """Return the branches that a join of this fork may find, if the workflow goes on after it: all alike, mixed, one or
    all of them failed, killed or left."""
    known, size = list(endings), fork.size
    if not size or not known:
        return [] if size else [()]
    mixed = [known[index % len(known)] for index in range(size)]
    brancheses = [[branch] * size for branch in known]
    brancheses.append(mixed)
    brancheses += [[one, *[other] * (size - 1)] for one, other in permutations(known[:_PAIRED], 2)]
    gone = [JoinedBranch(KILLED, _THREAD, reason="Rehearsed: killed")]
    if may_fail or fork.failure_policy.ends_branch:
        gone.append(JoinedBranch(FAILED, _THREAD, reason="Rehearsed: failed"))
    brancheses += [other for branch in gone for other in ([branch, *mixed[1:]], [branch] * size)]
    if not fork.of_all:
        branches = [JoinedBranch(LEFT, _THREAD)] * (size - fork.need)
        brancheses += [[*mixed[: fork.need], *branches], [*branches, *mixed[: fork.need]]]
    return [tuple(branchese) for branchese in brancheses if judge_join(fork, branchese) == Joinable()]
