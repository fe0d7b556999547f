"""Fan-outs: a step of role `$FORK`, its branches, each a thread of its own, and a step of role `$JOIN` that has their
outputs by index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from uwf_git.base.errors import Invalid
from uwf_git.format.endings import COMPLETED, LEFT
from uwf_git.format.failure_policy import FAILURE_POLICIES, WAIT, FailurePolicy
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.statuses import SUSPEND

DEFAULT_MOST = 200
DEEPEST = 8
"""How many fan-outs may be within each other, sub-workflows not counted."""
ALL, FIRST = "all", "first"
ASK, REFUSE = "ask", "fail"
ON_CONFLICT = ASK, REFUSE
"""The policies for code of branches that conflicts, besides the name of a role that merges it."""


class ForkedBranch(NamedTuple):
    """A branch as its fork has it: the thread of `workflow` (a node) that is to begin at `role`, "" for its start."""

    workflow: Hash
    role: str = ""

    def payload(self) -> dict[str, Any]:
        return {"workflow": self.workflow, **({"role": self.role} if self.role else {})}


class Fork(NamedTuple):
    """The output of a step of `$FORK`: the edge at index `edge` of `source`, its items, the branches of the items (one
    for all if they are alike), and its policy: `need` completed branches, of `of_all` all that end. `budget` is each
    branch's share of the thread's limits."""

    source: str
    edge: int
    name: str
    items: tuple[Any, ...]
    branches: tuple[ForkedBranch, ...]
    until: tuple[str, ...]
    need: int
    of_all: bool = False
    on_failure: str = WAIT.word
    at_once: int | None = None
    on_conflict: str = ASK
    budget: Mapping[str, float] = {}

    @property
    def size(self) -> int:
        return len(self.items)

    @property
    def summary(self) -> str:
        return _branches(self.size)

    @property
    def failure_policy(self) -> FailurePolicy:
        return FAILURE_POLICIES[self.on_failure]

    def branch(self, position: int) -> ForkedBranch:
        return self.branches[position if len(self.branches) > 1 else 0]

    def payload(self) -> dict[str, Any]:
        payload: dict[str, Any] = {
            "summary": self.summary,
            "source": self.source,
            "edge": self.edge,
            "name": self.name,
            "items": list(self.items),
            "branches": [each.payload() for each in self.branches],
            "until": list(self.until),
            "need": ALL if self.of_all else self.need,
            "onFailure": self.on_failure,
            "onConflict": self.on_conflict,
        }
        if self.at_once is not None:
            payload["atOnce"] = self.at_once
        if self.budget:
            payload["budget"] = dict(self.budget)
        return payload


class Conflict(NamedTuple):
    """The code of a branch, a commit, that does not merge with that of the branches before it: at these paths. `text`
    has the beginning of the conflicting lines, for agents and people."""

    commit: str
    paths: tuple[str, ...]
    text: str = ""

    def payload(self) -> dict[str, Any]:
        return {"commit": self.commit, "paths": list(self.paths), "text": self.text}


class JoinedBranch(NamedTuple):
    """A branch at its join. `output` is that of its last step by a role, None without one; `step` its last StepNode,
    None without steps, or if it is LEFT; `reason` why it failed or was killed; `conflict` why its code is not in that
    of the join."""

    status: str
    thread: ThreadId
    step: Hash | None = None
    output: Any = None
    reason: str = ""
    conflict: Conflict | None = None

    @property
    def is_left(self) -> bool:
        """Whether the branch had not ended at its join."""
        return self.status == LEFT

    def payload(self) -> dict[str, Any]:
        payload: dict[str, Any] = {
            "status": self.status, "thread": self.thread, "step": self.step, "output": self.output,
        }  # fmt: skip
        if self.reason:
            payload["reason"] = self.reason
        if self.conflict is not None:
            payload["conflict"] = self.conflict.payload()
        return payload


def join_payload(branches: Sequence[JoinedBranch], question: str = "") -> dict[str, Any]:
    """Return the payload of a Join. A `question` asks a person."""
    completed = sum(each.status == COMPLETED for each in branches)
    summary = f"{completed} of {_branches(len(branches))} completed"
    if conflicts := sum(each.conflict is not None for each in branches):
        summary += f", the code of {conflicts} conflicts"
    payload: dict[str, Any] = {"summary": summary, "branches": [each.payload() for each in branches]}
    return {**payload, "$status": SUSPEND, "question": question} if question else payload


def _branches(number: int) -> str:
    return f"{number:,} branch" if number == 1 else f"{number:,} branches"


def parse_fork(payload: Any) -> Fork:
    """Parse a Fork payload. Raises Invalid."""
    try:
        return _fork(payload)
    except (KeyError, TypeError, AttributeError) as error:
        raise Invalid(f"the output of a fork has no valid {error}") from None


def _fork(payload: Any) -> Fork:
    branches = tuple(
        ForkedBranch(Hash(each["workflow"]), each.get("role", "")) for each in payload["branches"]
    )
    need = payload["need"]
    return Fork(
        payload["source"],
        payload["edge"],
        payload["name"],
        tuple(payload["items"]),
        branches,
        tuple(payload["until"]),
        len(payload["items"]) if need == ALL else need,
        need == ALL,
        payload["onFailure"],
        payload.get("atOnce"),
        payload["onConflict"],
        payload.get("budget", {}),
    )


def parse_join(payload: Any) -> tuple[JoinedBranch, ...]:
    """Parse a Join payload. Raises Invalid."""
    try:
        return tuple(
            JoinedBranch(
                each["status"],
                ThreadId(each["thread"]),
                each["step"],
                each["output"],
                each.get("reason", ""),
                _parse_conflict(each["conflict"]) if "conflict" in each else None,
            )
            for each in payload["branches"]
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise Invalid(f"the output of a join has no valid {error}") from None


def _parse_conflict(payload: Any) -> Conflict:
    return Conflict(payload["commit"], tuple(payload["paths"]), payload["text"])
