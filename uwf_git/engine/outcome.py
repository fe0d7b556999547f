"""The outcome of a step: where the thread stands then, and its last output in a few words, as lists have it too. Stored
texts take `pages.verdict`, which knows no schema and never changes."""

from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.base.errors import UwfError
from uwf_git.base.text import one_line
from uwf_git.base.thread_states import ThreadState
from uwf_git.config.resolve import asks_no_model
from uwf_git.engine.budget import METERED, BudgetState, standing_of
from uwf_git.engine.next_turn import outlook
from uwf_git.engine.thread_state import RestingThread
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.kinds import Workflow, asks_human, reply_in, status_of
from uwf_git.format.shape import choices, types, variants
from uwf_git.format.types import END, FORK_OUTPUT, JOIN_OUTPUT
from uwf_git.store.history import Position
from uwf_git.store.instance import Instance
from uwf_git.store.pages import verdict
from uwf_git.workflow.turn import Outlook, gathers_threads

if TYPE_CHECKING:
    from uwf_git.engine.census import Census
    from uwf_git.engine.human_turn import HumanTurn

_LONGEST_SUMMARY = 120


class Outcome(NamedTuple):
    """A thread's state after a step. `role` made the step; None if there was nothing to do. `standing`: the
    exhausted budget, or None; `turn`: a person's turn at the next role. `unpriced` is the number of tokens
    without a price; `uncounted` the limit that doesn't count this step because its agent reported nothing;
    `redactions` are the places and numbers of removed secrets; `summary` is the last output in a few words;
    `census` is that of an end or a join."""

    position: Position
    outlook: Outlook
    state: ThreadState
    role: str | None
    standing: BudgetState | None
    redactions: tuple[tuple[str, int], ...]
    unpriced: int = 0
    uncounted: str = ""
    turn: "HumanTurn | None" = None
    summary: str = ""
    census: "Census | None" = None

    @property
    def workflow(self) -> Hash:
        return self.position.history.workflow_hash

    @property
    def thread(self) -> ThreadId:
        return self.position.head.thread

    @property
    def head(self) -> Hash:
        """The last StepNode, or the StartNode."""
        return self.position.head.node

    @property
    def done(self) -> bool:
        return self.position.head.archive is not None

    @property
    def may_warn(self) -> bool:
        return bool(self.redactions or self.unpriced or self.uncounted or self.turn)

    def as_json(self) -> dict[str, Any]:
        last = self.position.history.steps[-1] if self.role is not None else None
        value: dict[str, Any] = {
            "workflow": self.workflow,
            "thread": self.thread,
            "head": self.head,
            "done": self.done,
            "status": self.state.word,
            "role": self.role,
            **(last.credit.as_json() if last else {"agent": None}),
        }
        if self.turn is not None and self.turn.standing is not None:
            value |= self.turn.standing.as_json(self.thread)
        if self.outlook.problem is not None:
            value["problem"] = self.outlook.problem
        if (archive := self.position.head.archive) and archive.reason:
            value["reason"] = archive.reason
        if self.census is not None:
            value["census"] = self.census.as_json()
        return value

    def told(self) -> dict[str, Any]:
        """Return more for people: the step's number, a summary, and the next role."""
        steps, following = self.position.history.steps, self.outlook
        return {
            "number": len(steps),
            "verdict": self.summary,
            "next": following.next,
            "question": following.question or (self.turn.instruction if self.turn else ""),
            "options": list(self.turn.options if self.turn else following.options),
        }


def outcome_of(instance: Instance, at: Position, ahead: Outlook, role: str | None) -> Outcome:
    """Return the outcome after a role's step. The caller holds the lock."""
    standing = standing_of(instance, at.head, found=ahead)
    unpriced = standing.unpriced if standing else 0
    limited = standing.limits if standing else {}
    if standing is not None and standing.reached is None:
        standing = None
    # The lock is ours, and gone when this is read.
    resting = RestingThread(instance, at.head, is_ours=True)
    resting.standing = standing
    state = resting.state()
    turn: HumanTurn | None = None
    if state is ThreadState.PERSONS_TURN:
        from uwf_git.engine.human_turn import human_turn

        turn = human_turn(instance, at.head, found=ahead)
    last = at.history.steps[-1] if role is not None else None
    detail = instance.store.detail(last.detail) if last is not None else None
    uncounted = ""
    if last and detail and detail.usage is None and not detail.cost and not asks_no_model(last.agent):
        uncounted = next((key for key in METERED if key in limited), "")
    redactions = detail.redactions if detail else ()
    summary = ""
    if at.history.steps:
        newest = at.history.steps[-1]
        summary = summary_of(instance, at.history.workflow, newest.role, newest.output).text
    census: Census | None = None
    if at.head.archive is not None or gathers_threads(role):
        from uwf_git.engine.census import census_of

        census = census_of(instance, at.head.commit)
    return Outcome(at, ahead, state, role, standing, redactions, unpriced, uncounted, turn, summary, census)


def outcome_at(instance: Instance, thread: ThreadId) -> Outcome:
    """Return the outcome of a thread's last step, which another process made."""
    at = instance.threads.position(instance.threads.head(thread))
    ahead = Outlook(END) if at.head.archive is not None else outlook(instance, *at)
    return outcome_of(instance, at, ahead, at.history.steps[-1].role)


class Summary(NamedTuple):
    """An output in a few words; `decides` if they are a status or a decision."""

    text: str
    decides: bool = False


def summary_of(instance: Instance, workflow: Workflow, role: str, output: Any) -> Summary:
    """Return what the output of a role comes to, as `summary`."""
    known = workflow.roles.get(role)
    return summary(instance, known.schema if known is not None else None, output)


def summary(instance: Instance, schema: Hash | None, output: Any) -> Summary:
    """Return what an output of this type comes to: its question, its status, its required fields that choose among
    values; else what `pages.verdict` takes."""
    if not isinstance(output, dict) or reply_in(output) is not None or asks_human(output):
        return Summary(verdict(output))
    if schema in (FORK_OUTPUT, JOIN_OUTPUT):
        return Summary(verdict(output))
    if status_of(output):
        return Summary(verdict(output), True)
    if decided := _decided(instance, schema, output):
        return Summary(one_line(", ".join(decided), _LONGEST_SUMMARY), True)
    return Summary(verdict(output), any(isinstance(value, bool) for value in output.values()))


def _decided(instance: Instance, schema: Hash | None, output: dict[str, Any]) -> list[str]:
    try:
        payload = instance.store.schema(schema).payload if schema is not None else {}
    except UwfError:  # reported by what reads the workflow
        return []
    decided: dict[str, str] = {}
    for field in (field for variant in variants(payload) for field in variant.fields):
        value = output.get(field.name)
        if not field.required or value is None:
            continue
        if isinstance(value, bool) and types(field.schema) == ("boolean",):
            decided[field.name] = field.name if value else f"not {field.name}"
        elif isinstance(value, str | int | float) and len(choices(payload, field.schema) or ()) > 1:
            decided[field.name] = str(value)
    return list(decided.values())
