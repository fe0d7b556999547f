"""Fan-outs: a step of role `$FORK`, its branches, each a thread of its own, and a step of role `$JOIN` that has their
outputs by index."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from uwf_git.base.errors import Invalid
from uwf_git.format.edges import ALL, ASK
from uwf_git.format.endings import COMPLETED, LEFT
from uwf_git.format.failure_policy import FAILURE_POLICIES, WAIT, FailurePolicy
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.payloads import from_payload, to_payload
from uwf_git.format.statuses import SUSPEND
from uwf_git.format.words import require_known_words

DEEPEST = 8
"""How many fan-outs may be within each other, sub-workflows not counted."""


class ForkedBranch(NamedTuple):
    """A branch as its fork has it: the thread of `workflow` (a node) that is to begin at `role`, "" for its start."""

    workflow: Hash
    role: str = ""


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
        payload = to_payload(self._replace(of_all=False), always=("on_failure", "on_conflict"))
        return {"summary": self.summary, **payload, "need": ALL if self.of_all else self.need}


class Conflict(NamedTuple):
    """The code of a branch, a commit, that does not merge with that of the branches before it: at these paths. `text`
    has the beginning of the conflicting lines, for agents and people."""

    commit: str
    paths: tuple[str, ...]
    text: str = ""

    def payload(self) -> dict[str, Any]:
        return to_payload(self, always=("text",))


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
        return to_payload(self, always=("step", "output"))


def join_payload(branches: Sequence[JoinedBranch], question: str = "") -> dict[str, Any]:
    """Return the payload of a Join. A `question` asks a person."""
    completed = sum(branch.status == COMPLETED for branch in branches)
    summary = f"{completed} of {_branches(len(branches))} completed"
    if conflicts := sum(branch.conflict is not None for branch in branches):
        summary += f", the code of {conflicts} conflicts"
    payload: dict[str, Any] = {"summary": summary, "branches": [branch.payload() for branch in branches]}
    return {**payload, "$status": SUSPEND, "question": question} if question else payload


def _branches(number: int) -> str:
    return f"{number:,} branch" if number == 1 else f"{number:,} branches"


def parse_fork(payload: Any, step: str = "") -> Fork:
    """Parse a Fork payload. Raises Invalid, UnknownWord, which names `step`."""
    require_known_words("Fork", payload, step and f"of step {step}")
    try:
        branches = tuple(from_payload(ForkedBranch, branch) for branch in payload["branches"])
        of_all = payload["need"] == ALL
        need = len(payload["items"]) if of_all else payload["need"]
        return from_payload(Fork, payload, branches=branches, need=need, of_all=of_all)
    except (KeyError, TypeError, AttributeError) as error:
        raise Invalid(f"the output of a fork has no valid {error}") from None


def parse_join(payload: Any, step: str = "") -> tuple[JoinedBranch, ...]:
    """Parse a Join payload. Raises Invalid, UnknownWord, which names `step`."""
    require_known_words("Join", payload, step and f"of step {step}")
    try:
        return tuple(map(_parse_joined, payload["branches"]))
    except (KeyError, TypeError, AttributeError) as error:
        raise Invalid(f"the output of a join has no valid {error}") from None


def _parse_joined(payload: Any) -> JoinedBranch:
    conflict = from_payload(Conflict, payload["conflict"]) if "conflict" in payload else None
    return from_payload(JoinedBranch, payload, conflict=conflict)
