"""Reading a thread: Markdown of its prompt and steps, one step in full, a comparison of two."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from uwf_git.approvals.records import unsigned
from uwf_git.base.errors import NotFound
from uwf_git.base.markdown import below, code, inline
from uwf_git.base.text import counted, iso
from uwf_git.engine.census import census_of, census_text
from uwf_git.engine.outcome import summary_of
from uwf_git.format.ids import Hash
from uwf_git.format.kinds import REHEARSE, SUBWORKFLOW, StepContext, parse_attempt, parse_detail, parse_step
from uwf_git.format.types import is_kind
from uwf_git.store.history import log, shared_steps
from uwf_git.store.pages import PageStep, approvals_of, attempt_page, section
from uwf_git.workflow.turn import gathers_threads

if TYPE_CHECKING:
    from uwf_git.engine.spending import Totals
    from uwf_git.format.node import Node
    from uwf_git.store.history import Head, History
    from uwf_git.store.indexing import Store
    from uwf_git.store.instance import Instance


class Transcript:
    """The steps before `before`, or all; of those the newest within `quota` characters, at least one."""

    def __init__(self, instance: Instance, head: Head, quota: int | None, before: Hash | None) -> None:
        self._instance = instance
        self._head = head
        history = instance.threads.history(head)
        self._start = history.start
        self._name = history.workflow.name
        steps = list(enumerate(history.steps, 1))
        self._after = 0
        if before is not None:
            number = next((number for number, step in steps if step.hash == before), None)
            if number is None:
                raise NotFound(
                    f"thread {head.thread} has no step {before}", f"see: uwf thread steps {head.thread}"
                )
            self._after = len(steps) - number + 1
            steps = steps[: number - 1]
        self._steps: list[tuple[int, StepContext]] = []
        room = quota
        for number, step in reversed(steps):
            if room is not None:
                room -= len(self._section(number, step))
                if room < 0 and self._steps:
                    break
            self._steps.append((number, step))
        self._steps.reverse()

    @property
    def _omitted(self) -> int:
        return self._steps[0][0] - 1 if self._steps else 0

    def parts(self) -> Iterator[str]:
        """Yield the page as Markdown: the top, then each step, rendered separately so that answers cannot
        affect each other and long threads aren't held in memory."""
        head = self._head
        parts = [f"# {inline(self._name)}", f"Thread `{head.thread}`, {self._state()}.", "## Prompt"]
        parts.append(below(self._start.prompt.rstrip("\n"), 2))
        if self._omitted:
            first = self._steps[0][1].hash
            parts.append(
                f"*{counted(self._omitted, 'step')} before this; to read: "
                f"`uwf thread read {head.thread} --before {first}`*"
            )
        yield "\n\n".join(parts)
        for number, step in self._steps:
            yield self._section(number, step)
        if self._after:
            yield f"*{counted(self._after, 'step')} after this.*"

    def value(self) -> dict[str, Any]:
        threads, census = self._instance.threads, census_of(self._instance, self._head.commit)
        return {
            "thread": self._head.thread,
            "workflow": self._name,
            **({"census": census.as_json()} if census is not None else {}),
            "prompt": self._start.prompt,
            **({"issue": self._start.issue.value()} if self._start.issue is not None else {}),
            "omitted": self._omitted,
            "steps": [
                {
                    **step_value(number, step),
                    "output": step.output,
                    "answer": threads.answer(step),
                    **child_value(self._instance, step.detail),
                    **_approvals_value(self._instance, step.hash, step.detail),
                }
                for number, step in self._steps
            ],
        }

    def _state(self) -> str:
        from uwf_git.engine.thread_state import thread_state

        row, census = self._head.row, census_of(self._instance, self._head.commit)
        state = f"{thread_state(self._instance, self._head).label} after {counted(row.number, 'step')}"
        state += f" ({census_text(census.as_json())})" if census is not None else ""
        return state + (f", {row.rehearsed} of them made up by {code(REHEARSE)}" if row.rehearsed else "")

    def _section(self, number: int, step: StepContext) -> str:
        store = self._instance.store
        detail = store.get(step.detail)
        page = _page_step(store, number, step, detail)
        reference = code(step.hash)
        if page.child and (child := self._instance.threads.ending_with(step.detail)):
            reference += f" · thread {code(child)}"
        return section(page, 2, reference)


def _page_step(store: Store, number: int, step: StepContext, detail: Node) -> PageStep:
    return PageStep.of(number, step, detail, store.get)._replace(unsigned=unsigned(store, step.hash, detail))


def _approvals_value(instance: Instance, step: Hash, detail: Hash) -> dict[str, Any]:
    """Return the approvals that made a step, as `approvals`; empty without any. One that is `unseen` was given without
    the code that it is about."""
    content = instance.store.get(detail)
    approvals, names_alone = (
        approvals_of(content, instance.store.get),
        unsigned(instance.store, step, content),
    )
    values = [
        {
            "by": approval.by._asdict(),
            "at": iso(approval.at),
            "digest": approval.digest,
            "unseen": approval.is_unseen,
            "signed": approval not in names_alone,
        }
        for approval in approvals
    ]
    return {"approvals": values} if values else {}


def child_value(instance: Instance, detail: Hash) -> dict[str, Any]:
    """Return the thread that made a step, as `child`; empty if none or not here."""
    if not is_kind(instance.store.get(detail).type, "step"):
        return {}
    child = instance.threads.ending_with(detail)
    return {"child": child} if child else {}


def steps_of(instance: Instance, head: Head) -> list[dict[str, Any]]:
    """Return a thread's steps as JSON, oldest first. `seconds` and `cost` are those of its agent; of a sub-workflow's
    step those of its thread, of a join those of its branches."""
    from uwf_git.api.spending import money_value

    history = instance.threads.history(head)
    spent, prices = _spent_on(instance, head, history), instance.known_prices
    return [
        {
            **step_value(number, step),
            "output": step.output,
            "summary": summary_of(instance, history.workflow, step.role, step.output).text,
            "detail": step.detail,
            "time": iso(instance.store.get(step.hash).timestamp / 1000),
            **money_value(spent[step.hash], prices),
            **_commit(instance, step.detail),
        }
        for number, step in enumerate(history.steps, 1)
    ]


def _spent_on(instance: Instance, head: Head, history: History) -> dict[str, Totals]:
    """Return what each step has spent. What agents have is known in the index."""
    from uwf_git.engine.spending import Totals
    from uwf_git.engine.thread_spending import runs, spent_on

    own = {run.id: run.spent for run in runs(instance, head)}
    nested = [step for step in history.steps if step.agent == SUBWORKFLOW or gathers_threads(step.role)]
    within = spent_on(instance, nested)
    return {step.hash: within.get(step.hash) or own.get(step.hash, Totals()) for step in history.steps}


def _commit(instance: Instance, detail: Hash) -> dict[str, str]:
    from uwf_git.workspaces.changes import step_code

    code = step_code(instance, detail)
    return {} if code is None else {"code": code.commit}


def commits(instance: Instance, head: Head) -> list[dict[str, Any]]:
    """Return a thread's commits as JSON, newest first."""
    return [{**entry._asdict(), "time": iso(entry.time)} for entry in log(instance.store, head)]


def step_value(number: int, step: StepContext) -> dict[str, Any]:
    """Return a step's identity as in all JSON lists."""
    return {"step": step.hash, "number": number, "role": step.role, **step.credit.as_json()}


def details(instance: Instance, node: Hash) -> dict[str, Any]:
    """Return a step or failed attempt in full: node, output, and detail with its turns."""
    store = instance.store
    content = store.get(node)
    if is_kind(content.type, "attempt"):
        attempt = parse_attempt(content.payload)
        how = _detail(store, attempt.detail) if attempt.detail else None
        who = instance.threads.credit(attempt).as_json()
        time = iso(content.timestamp / 1000)
        return {"attempt": node, "time": time, **content.payload, **who, "detail": how}
    step = parse_step(content.payload)
    return {
        "step": node,
        "role": step.role,
        **instance.threads.credit(step).as_json(),
        "time": iso(content.timestamp / 1000),
        "start": step.start,
        "prev": step.prev,
        "output": {"hash": step.output, "value": store.get(step.output).payload},
        "detail": _detail(store, step.detail),
        **child_value(instance, step.detail),
        **_approvals_value(instance, node, step.detail),
    }


def step_page(instance: Instance, node: Hash) -> str:
    """Return a step or failed attempt as Markdown."""
    store = instance.store
    content = store.get(node)
    if is_kind(content.type, "attempt"):
        attempt = parse_attempt(content.payload)
        tried = store.get(attempt.detail) if attempt.detail else None
        return attempt_page(attempt, tried, instance.threads.credit(attempt)).decode("utf-8")
    step = parse_step(content.payload)
    detail = store.get(step.detail)
    number = instance.store.index_commit(instance.threads.commit_of(node)).number
    context = step.context(node, store.get(step.output).payload, instance.threads.credit(step))
    return section(_page_step(store, number, context, detail), 1)


def _detail(store: Store, node: Hash) -> dict[str, Any]:
    detail = store.get(node)
    if not is_kind(detail.type, "detail"):
        return {"hash": node, "value": detail.payload}
    turns = map(store.get, parse_detail(detail.payload).turns)
    # A detail that was made by hand may name nodes of other kinds.
    turn_values = [turn.payload for turn in turns if is_kind(turn.type, "turn")]
    return {"hash": node, "value": {**detail.payload, "turns": turn_values}}


def compare(instance: Instance, a: Head, b: Head) -> dict[str, Any]:
    """Return what two threads share, and what each has alone."""
    one, other = (instance.threads.history(head) for head in (a, b))
    shared = shared_steps(one, other)
    return {
        "workflow": _same(one.workflow_hash, other.workflow_hash),
        "start": _same(one.start_hash, other.start_hash),
        "shared": _listed(instance, one, 0, shared),
        "a": {"thread": a.thread, "steps": _listed(instance, one, shared)},
        "b": {"thread": b.thread, "steps": _listed(instance, other, shared)},
    }


def _same(a: Hash, b: Hash) -> dict[str, Any]:
    return {"same": a == b, "hashes": [a, b]}


def _listed(instance: Instance, history: History, begin: int, end: int | None = None) -> list[dict[str, Any]]:
    return [
        {
            **step_value(number, step),
            "summary": summary_of(instance, history.workflow, step.role, step.output).text,
        }
        for number, step in enumerate(history.steps[begin:end], begin + 1)
    ]
