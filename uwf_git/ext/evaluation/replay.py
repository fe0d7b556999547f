"""Repeating one role's step on its real history.

With the same workflow version this is a fork. With another version, the history is rebuilt on a StartNode
that names it: outputs and turns are the same nodes, details name the original step in `source`, and each step
must be the one this version calls for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from uwf_git.plugin import (
    ANSWER,
    BUNDLE,
    END,
    FORK,
    JOIN,
    QUESTION,
    REMARK,
    STEPNODE,
    USER,
    CommitRow,
    Hash,
    Head,
    History,
    Instance,
    Invalid,
    Oid,
    Person,
    Stamp,
    StartNode,
    StepContext,
    ThreadId,
    UnionSet,
    Workflow,
    ancestry,
    decide_at,
    is_kind,
    layout,
)

_NOBODY = Person("uwf", "uwf@localhost")
_NO_THREAD = ThreadId("0" * 26)


class Inapplicable(Invalid):
    """A version would not reach the step."""


def start_of(start: StartNode, workflow: Hash, definition: Workflow, speaker: str = "") -> tuple[Hash, Any]:
    """Return type and payload of the StartNode of a thread's prompt for a workflow. `speaker` replaces a
    missing persona. Raises Inapplicable."""
    persona = start.persona if start.persona in definition.personas else speaker
    if definition.crew is not None and not persona:
        raise Inapplicable(f"{definition.name} has no persona to speak", "")
    rounds = start.max_rounds if definition.code is not None else None
    data = start.data if definition.crew is not None else None
    persona = persona if definition.crew is not None else ""
    node = StartNode(workflow, start.prompt, start.budget, rounds, persona, data, issue=start.issue)
    return node.typed_payload()


def ground(instance: Instance, head: Hash, role: str, workflow: Hash, version: Oid) -> Oid:
    """Return the commit to repeat a role's step on, under a workflow version. Touches no ref. Raises
    Inapplicable."""
    if role in (FORK, JOIN):
        raise Inapplicable(f"the engine makes {role}: there is no role to try", "")
    threads = instance.threads
    there = threads.commit_of(head)
    history = threads.history_at(_NO_THREAD, head)
    if workflow == history.workflow_hash:
        commit = there
    else:
        with instance.store.together():
            commit, history = _transplanted(instance, there, history, workflow, version)
    _expect(history, role, "the step")
    return commit


def _expect(history: History, role: str, what: str) -> None:
    following = decide_at(history).next
    may_go_on = role == USER and history.workflow.resume is not None
    if following not in (role, BUNDLE) and not may_go_on:
        name = history.workflow.name
        called = {None: "nobody", END: "its end", USER: "a human"}.get(following, following)
        raise Inapplicable(f"this version of {name} calls for {called} where {what} was {role}'s", "")


def _transplanted(
    instance: Instance, there: Oid, history: History, workflow: Hash, version: Oid
) -> tuple[Oid, History]:
    store, threads = instance.store, instance.threads
    definition = instance.registry.workflow(workflow)
    rows = [row for row in ancestry(store, there) if row.kind in ("start", "step")][::-1]
    when = store.get(history.start_hash).timestamp
    start = store.put(*start_of(history.start, workflow, definition), timestamp=when)
    stamp = Stamp(_NOBODY, rows[0].time)
    commit = threads.begin(version, start, None, stamp)
    head = Head(_NO_THREAD, commit, store.index_commit(commit), None)
    at = threads.history_at(_NO_THREAD, start)
    known: set[Hash] = set()
    nodes = threads.workflow_nodes(store.repository.root(commit))
    for row, step in zip(rows[1:], history.steps, strict=True):
        if step.remark is None:
            _expect(at, step.role, f"step {row.number}")
        node = _as_step(instance, at, row, step)
        files = store.files(node, UnionSet(nodes, known, {start}))
        known |= {known_node for path in files if (known_node := layout.node_in_path(path)) is not None}
        context = threads.context(node, definition)
        after = at.after(context)
        detail = store.detail(context.detail)
        merge = Oid(raw=row.merged) if row.merged else None
        extraction = detail.extraction if detail else ""
        head = threads.extend(
            head, node, files, Stamp(_NOBODY, row.time), merge, extraction, decide_at(after).next
        )
        at = after
    return head.commit, at


def _as_step(instance: Instance, at: History, row: CommitRow, step: StepContext) -> Hash:
    store = instance.store
    recorded = store.step(step.hash)
    if recorded.role in (FORK, JOIN):
        raise Inapplicable(
            f"step {row.number} is {recorded.role}: after a fan-out, only the thread's own version of the workflow"
            " can be tried",
            "",
        )
    role = at.workflow.roles.get(recorded.role)
    output = store.get(recorded.output).type
    allowed = (ANSWER, REMARK) if recorded.role == USER else (role.schema if role else None, QUESTION)
    if output not in allowed:
        raise Inapplicable(
            f"step {row.number}, {recorded.role}'s, is not an output of that role any more", ""
        )
    payload: Mapping[str, Any] = {
        "start": at.start_hash,
        "prev": at.prev,
        "role": recorded.role,
        "output": recorded.output,
        "detail": _detail(instance, recorded.detail, step.hash),
        "agent": recorded.agent,
    }
    return store.put(STEPNODE, dict(payload), timestamp=store.get(step.hash).timestamp)


def _detail(instance: Instance, detail: Hash, step: Hash) -> Hash:
    store = instance.store
    content = store.get(detail)
    if not is_kind(content.type, "detail"):
        return detail
    record = store.detail(detail)
    assert record is not None
    plain = record._replace(
        instruction=None, context=None, budget=None, source=step, nodes=(), code=None, kept=None
    )
    return store.put(plain.type, plain.payload(), timestamp=content.timestamp)
