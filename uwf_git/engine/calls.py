"""Calls of code workflows: each is a thread of its own, which is found again by its request.

A call's thread is of the code workflow's version. Its first commit stands on the one at which the call was first
asked; its StartNode has the request as an `item`, as branches have theirs, under the name CALL; its last step, of role
`$END`, has the answer. Its id follows from the first commit of the thread that asks, so that forks share what was
answered before they parted, from the request, and from the number of equal requests before it in the run: never from a
place in a log.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.base.errors import NotFound, UwfError
from uwf_git.format.ids import ThreadId, derived_id
from uwf_git.format.kinds import SUBWORKFLOW, Start
from uwf_git.format.origins import CALL, EDITED, ThreadOrigin
from uwf_git.format.schema import Schema
from uwf_git.format.types import END, RESULT
from uwf_git.git.repository import Oid
from uwf_git.store import layout
from uwf_git.store.history import Head, Position, ancestry, call_of, is_call, start_of

if TYPE_CHECKING:
    from uwf_git.store.index import CommitRow
    from uwf_git.store.instance import Instance

_TIME = 10  # characters of a thread's id that are its time
_TRIES = 1000  # threads of one request that ended without an answer, or whose answers others have


class Request(NamedTuple):
    """A call: its request as JSON, and the number of equal ones `before` it in this run of the code."""

    content: Mapping[str, Any]
    before: int = 0


class CallState(NamedTuple):
    """The thread of a call. `head` is None if it has not begun. `squatters` are threads that have its id, and are not
    such as it asks for."""

    thread: ThreadId
    head: Head | None
    squatters: tuple[ThreadId, ...] = ()

    @property
    def is_answered(self) -> bool:
        return self.head is not None and self.head.row.role == END


def root_of(instance: Instance, commit: Oid) -> CommitRow:
    """Return the first commit of a thread; of one that goes on from another version's run, that one's."""
    row = start_of(instance.store, commit)
    while row.merged is not None and _name(instance, row) == EDITED:
        row = start_of(instance.store, Oid(raw=row.merged))
    return row


def find(instance: Instance, root: CommitRow, request: Request) -> CallState:
    """Return the thread that has a call's answer, or is to have it: the first that has not ended without one, and whose
    answer no step of another thread has."""
    squatters: list[ThreadId] = []
    for thread in _ids(root, request):
        head = None
        with contextlib.suppress(NotFound):
            head = instance.threads.head(thread)
        state = CallState(thread, head, tuple(squatters))
        if head is not None and not _is_of(instance, head, root, request):
            squatters.append(thread)
        elif (
            head is None
            or head.archive is None
            or (state.is_answered and not _is_used(instance, head, request))
        ):
            break
    return state


def _is_used(instance: Instance, head: Head, request: Request) -> bool:
    """Return whether a step of another thread was made from the answer of a call that names the step before it, so that
    a fork which begins there asks anew."""
    asked_at = start_of(instance.store, head.commit).merged
    if "at" not in request.content or asked_at is None:
        return False
    steps = instance.store.index.merges_after(asked_at)
    return any(head.commit in answers_joined(instance, Oid(raw=step.oid)) for step in steps)


def ids_of(root: CommitRow, prompt: str, call: ThreadOrigin) -> Iterator[ThreadId]:
    """Yield the ids that the thread of a call may have, by its StartNode."""
    if not isinstance(call.item, dict):
        return
    for content in ({**call.item, "prompt": prompt}, call.item, {**call.item, "prompt": ""}):
        request = Request(content, call.position)
        if _begun_by(request) == (prompt, call.item):
            yield from _ids(root, request)


def _ids(root: CommitRow, request: Request) -> Iterator[ThreadId]:
    question = json.dumps([request.content, request.before], sort_keys=True)
    for number in range(_TRIES):
        yield derived_id(root.time * 1000, f"uwf call {root.oid.hex()} {number} {question}")


def _begun_by(request: Request) -> tuple[str, dict[str, Any]]:
    """Return the prompt and the item of the StartNode of a call."""
    item = dict(request.content)
    prompt = item.pop("prompt", None) or item.get("systemPrompt") or item.get("role") or ""
    return prompt, item


def _is_of(instance: Instance, head: Head, root: CommitRow, request: Request) -> bool:
    """Return whether a thread is a call of `root` that asks for this, and its answer, if any, is such as was asked
    for: anybody who may push can compute its id."""
    start = start_of(instance.store, head.commit)
    call = call_of(instance.store, start.node)
    if call is None or not call.is_call or start.merged is None:
        return False
    first = instance.store.start(start.node)
    recorded = [first.prompt, call.item, call.position]
    if json.dumps(recorded, sort_keys=True) != json.dumps(
        [*_begun_by(request), request.before], sort_keys=True
    ):
        return False
    asked_at = Oid(raw=start.merged)
    if (
        first.workflow != start_of(instance.store, asked_at).workflow
        or root_of(instance, asked_at).oid != root.oid
    ):
        return False
    if head.row.role != END:
        return True
    last = next(instance.threads.past(head.node), None)
    if last is None or last.step.start != start.node:
        return False
    output = instance.store.get(last.step.output)
    schema = request.content.get("schema") if request.content.get("what") != "agent" else None
    return output.type == RESULT and (schema is None or not Schema(schema).problems(output.payload))


def begin(instance: Instance, at: Position, thread: ThreadId, request: Request) -> Head:
    """Begin the thread of a call of the code workflow's thread at `at`, unless there is one. Makes
    `refs/uwf/threads/<thread>`."""
    prompt, item = _begun_by(request)
    origin = ThreadOrigin(at.head.node, request.before, CALL, item)
    version = Oid(raw=start_of(instance.store, at.head.commit).parent or b"")
    node = Start(at.history.workflow_hash, prompt, call=origin).typed_payload()
    instance.sessions.claim(SUBWORKFLOW, thread, at.head.thread)
    instance.threads.begin_at(thread, version, at.head.commit, node)
    return instance.threads.head(thread)


def caller_of(instance: Instance, head: Head) -> ThreadId | None:
    """Return the thread that asked a call, else None."""
    owner = instance.sessions.owner(SUBWORKFLOW, head.thread)
    if owner:
        return ThreadId(owner)
    start = start_of(instance.store, head.commit)
    return instance.threads.oldest_with(Oid(raw=start.merged)) if start.merged is not None else None


def left(instance: Instance, head: Head) -> list[Head]:
    """Return the calls of a thread that have not ended; none of a call, nor for other workflows than code."""
    if not instance.threads.is_code(head.row.workflow) or is_call(instance.store, head.row.start):
        return []
    own = {row.oid for row in ancestry(instance.store, head.commit)}
    return [
        item
        for item in _of_root(instance, head, (layout.THREADS,))
        if item.archive is None and start_of(instance.store, item.commit).merged in own
    ]


def calls_of(instance: Instance, head: Head) -> list[ThreadId]:
    """Return the calls that a thread, or another with the same first commit, asked, as far as they are not folded; none
    for other workflows than code."""
    if not instance.threads.is_code(head.row.workflow):
        return []
    return [item.thread for item in _of_root(instance, head, (layout.THREADS, layout.ARCHIVE))]


def _of_root(instance: Instance, head: Head, prefixes: Sequence[str]) -> Iterator[Head]:
    root = root_of(instance, head.commit)
    time = derived_id(root.time * 1000, "")[:_TIME]
    for prefix in prefixes:
        for name in instance.store.repository.ref_names(prefix):
            thread = ThreadId(name.removeprefix(prefix))
            if thread == head.thread or not thread.startswith(time):
                continue
            with contextlib.suppress(UwfError):
                each = instance.threads.head(thread)
                if is_call(instance.store, each.row.start) and root_of_call(instance, each) == root.oid:
                    yield each


def root_of_call(instance: Instance, call: Head) -> bytes | None:
    """Return the first commit of the thread that asked a call."""
    asked_at = start_of(instance.store, call.commit).merged
    return root_of(instance, Oid(raw=asked_at)).oid if asked_at is not None else None


def arrivals(instance: Instance, commit: Oid) -> dict[Oid, int]:
    """Return the places in which answers came to earlier runs from a commit on, those of the nearest run first, by the
    last commits of the calls."""
    store = instance.store
    bases, start = [commit], start_of(store, commit)
    while start.merged is not None and _name(instance, start) == EDITED:
        bases.append(Oid(raw=start.merged))
        start = start_of(store, bases[-1])
    places: dict[Oid, int] = {}
    for base in bases:
        runs = [store.index_commit(base), *store.index.merges_after(base.raw)]
        for run in sorted((item for item in runs if item.role == END), key=lambda row: row.time):
            for tip in answers_joined(instance, Oid(raw=run.oid)):
                places.setdefault(tip, len(places))
    return places


def answers_joined(instance: Instance, step: Oid) -> list[Oid]:
    """Return the last commits of the calls whose answers a step of code was made from, in the order in which they
    came."""
    tips = list(instance.store.repository.commit(step).parents[1:])
    while tips and instance.store.index_commit(tips[0]).kind == "part":
        tips = [tip for part in tips for tip in instance.store.repository.commit(part).parents]
    return tips


def joined(instance: Instance, head: Head, calls: Sequence[str]) -> tuple[Oid, ...]:
    """Return the further parents of a step for which the code was given these answers: the last commits of their
    threads."""
    tips = [Oid(hex=call) for call in dict.fromkeys(calls)]
    return instance.threads.gathered(head.node, [tip for tip in tips if instance.store.repository.has(tip)])


def _name(instance: Instance, start: CommitRow) -> str:
    call = call_of(instance.store, start.node)
    return call.name if call is not None else ""
