"""The threads of a store that are LangGraph's: found by name, read, lengthened, copied and replaced."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from uwf_git.ext.langgraph.name import WORKFLOW
from uwf_git.ext.langgraph.records import CheckpointThread, encoded_again, key_in, places_in
from uwf_git.ext.langgraph.values import Decoder, Encoder
from uwf_git.ext.langgraph.workflow import AGENT, ROLE, compiled, record_type
from uwf_git.plugin import (
    STEPNODE,
    TEXT,
    Busy,
    Hash,
    Head,
    HeadMoved,
    Invalid,
    NewRecord,
    Oid,
    StartNode,
    Step,
    ThreadId,
    derived_id,
    is_thread_id,
    layout,
    new_thread_id,
    open_instance,
    raise_if_paused,
    remove_thread,
)

RecordMaker = Callable[[CheckpointThread, Encoder], dict[str, Any] | None]
"""Makes a record for a thread, without `parts`; None for nothing to store."""

_PATIENCE = 60.0
"""Seconds to wait for another process that writes to the thread."""
_TRIES = 20
_KEPT = 64
"""Threads whose records are kept in memory."""


class CheckpointThreads:
    """LangGraph's threads of the store at a path. Not to be shared by threads of a program."""

    def __init__(self, path: str | Path | None) -> None:
        self._instance = instance = open_instance(path)
        self.path = instance.location.git_dir if instance.location.here else instance.location.root
        self._ids: dict[str, ThreadId] = {}
        self._records: dict[ThreadId, CheckpointThread] = {}

    def close(self) -> None:
        self._instance.store.index.close()

    # Finding

    def find(self, name: str) -> ThreadId | None:
        """Return the thread of a LangGraph thread's id: the newest of that name, or the one that has it as its id."""
        threads = self._instance.threads
        if (known := self._ids.get(name)) is not None and threads.exists(known):
            return known
        suffix = _suffix(name)
        matches = [thread for thread in threads.ids() if thread.endswith(suffix)]
        if not matches and is_thread_id(name) and threads.exists(ThreadId(name)):
            matches = [ThreadId(name)]
        if not matches:
            return None
        thread = max(matches)
        if not self._is_ours(threads.head(thread)):
            raise Invalid(f"thread {thread} is not LangGraph's", "give another thread_id")
        self._ids[name] = thread
        return thread

    def names(self) -> list[str]:
        """Return the ids under which LangGraph knows the threads here, newest first."""
        names: dict[str, None] = {}
        for head in self._instance.threads.all(archived=True):
            if isinstance(head, Head) and self._is_ours(head):
                records = self.records(head.thread)
                start = self._instance.store.start(head.row.start or head.node)
                name = records.name or start.prompt
                names[name if head.thread.endswith(_suffix(name)) else head.thread] = None
        return list(names)

    def _is_ours(self, head: Head) -> bool:
        return head.row.name == WORKFLOW and head.row.workflow == compiled().hash

    def _began(self, name: str) -> ThreadId:
        """Return the thread of a name, begun if there is none. Two processes begin one."""
        with self._instance.locks.hold(ThreadId("0" * 10 + _suffix(name)), _PATIENCE):
            return self.find(name) or self._begin(name, _id_for(name))

    def _begin(self, name: str, thread: ThreadId) -> ThreadId:
        start = StartNode(compiled().hash, name)
        return self._instance.threads.start(self._version(), start, project=self._project(), thread=thread)

    def _project(self) -> str:
        return self._instance.threads.projects.label_at(Path.cwd())

    def _version(self) -> Oid:
        return self._instance.registry.commit_unregistered(compiled())

    # Reading

    def records(self, thread: ThreadId) -> CheckpointThread:
        """Return what a thread has at its head. Raises NotFound, StoreDamaged."""
        head = self._instance.threads.head(thread)
        known = self._records.pop(thread, None)
        if known is None or known.head is None or known.head.node != head.node:
            known = self._read(known or CheckpointThread(thread), head)
        while len(self._records) >= _KEPT:
            self._records.pop(next(iter(self._records)))
        self._records[thread] = known
        known.head = head
        return known

    def _read(self, known: CheckpointThread, head: Head) -> CheckpointThread:
        store, last = self._instance.store, known.head.node if known.head is not None else None
        steps = []
        for step in self._instance.threads.past(head.node):
            if step.hash == last:
                break
            steps.append(step)
        else:  # begun, or other history than before
            known = CheckpointThread(known.thread)
        for step in reversed(steps):
            known.nodes.update((step.hash, step.step.output))
            if step.step.role == ROLE:
                known.add(step.step.output, store.get(step.step.output).payload)
        return known

    def decoder(self, records: CheckpointThread) -> Decoder:
        """Return a reader of a thread's values. It keeps what it has read."""
        return Decoder(lambda node: self._instance.store.get(node).payload, records.places)

    # Writing

    def append(self, name: str, make: RecordMaker) -> None:
        """Make a record the next step of a thread, which is begun if there is none. Raises Invalid for one with a known
        secret, or if the thread has ended, Paused, Busy."""
        self._append(self.find(name) or self._began(name), make)

    def _append(self, thread: ThreadId, make: RecordMaker) -> None:
        for _ in range(_TRIES):
            try:
                with self._instance.locks.hold(thread, _PATIENCE):
                    return self._append_locked(thread, make)
            except BaseException as error:
                self._records.pop(thread, None)  # it may know nodes that were not stored
                if not isinstance(error, HeadMoved):  # by a pull, or by a program that takes no lock
                    raise
        raise Busy(f"thread {thread} moves all the time", "repeat it")

    def _append_locked(self, thread: ThreadId, make: RecordMaker) -> None:
        instance, store = self._instance, self._instance.store
        raise_if_paused(instance, thread)
        instance.threads.active_head(thread)
        records = self.records(thread)
        head = records.head
        assert head is not None
        new: set[Hash] = set()

        def put(value: Any, parts: Sequence[Hash]) -> Hash:
            node = store.put(Hash(record_type()), {"value": value, "parts": sorted(parts)})
            new.add(node)
            return node

        with store.together():
            encoder = Encoder(records.places, put)
            payload = make(records, encoder)
            if payload is None:
                return
            payload["parts"] = sorted(encoder.parts)
            store.before_record(NewRecord("threads", WORKFLOW, ("steps",)))
            output = store.put(Hash(record_type()), payload)
            start = head.row.start or head.node
            prev = head.node if head.row.kind == "step" else None
            detail = store.put(TEXT, "")
            step = store.put(STEPNODE, Step(start, prev, ROLE, output, detail, AGENT).payload())
            head = instance.threads.append(head, step, records.nodes)
        encoder.settle(output)
        records.nodes |= new | {output, step, detail}
        records.add(output, payload)
        if "values" in payload:
            records.taken[key_in(payload)] = places_in(output, payload)
        records.head = head

    # Whole threads

    def remove(self, name: str) -> None:
        """Remove the threads of a name."""
        while (thread := self.find(name)) is not None:
            self._remove(thread)

    def _remove(self, thread: ThreadId) -> None:
        remove_thread(self._instance, thread)
        self._records.pop(thread, None)

    def copy(self, source: str, target: str) -> None:
        """Fork a thread under a name."""
        thread = self.find(source)
        if thread is None:
            return
        if self.find(target) is not None:
            raise Invalid(
                f"there is a thread {target!r} already", "copy to another thread_id, or delete that one"
            )
        threads = self._instance.threads
        copy = threads.fork(threads.head(thread).commit, thread, _id_for(target))
        self._append(copy, lambda records, encoder: {"summary": f"copied to {target}", "thread": target})

    def replace(self, name: str, thread: ThreadId, keep: Callable[[Any], bool]) -> None:
        """Put the records of a thread that are to be kept into a new one, which has the name once it is whole, and
        remove the old one."""
        threads, store = self._instance.threads, self._instance.store
        records, draft, whole = self.records(thread), new_thread_id(), _id_for(name)
        start = store.put(*StartNode(compiled().hash, name).typed_payload())
        threads.fork(threads.begin(self._version(), start, whole, project=self._project()), draft, draft)
        decoder = self.decoder(records)
        for node in records.order:
            if keep(payload := decoder.payload(node)):
                self._append(draft, partial(_moved, payload, node, decoder))
        threads.fork(threads.head(draft).commit, whole, whole)
        threads.drop(layout.THREADS + draft)
        self._remove(thread)


def _moved(
    payload: Any, node: Hash, decoder: Decoder, _: CheckpointThread, encoder: Encoder
) -> dict[str, Any]:
    return encoded_again(payload, node, decoder, encoder)


def _id_for(name: str) -> ThreadId:
    """Return the id of a new thread of a name."""
    return derived_id(time.time_ns() // 1_000_000, _digested(name))


def _suffix(name: str) -> str:
    """Return the end of the ids of the threads of a name."""
    return derived_id(0, _digested(name))[10:]


def _digested(name: str) -> str:
    return f"langgraph thread {name}"
