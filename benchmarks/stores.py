"""Stores to measure on, built with the library: thousands of processes would take an hour."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pygit2

from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.kinds import Start, Step
from uwf_git.format.types import DETAIL, STEPNODE
from uwf_git.store.history import Head
from uwf_git.store.instance import Instance
from uwf_git.store.location import Location, init
from uwf_git.workflow.compile import compile_source
from uwf_git.workflow.source import parse_source

PAYLOAD = 4200  # bytes of an answer
MEGABYTE = 1_000_000
UWF = str(Path(sys.executable).parent / "uwf")
EMPTY = {"PATH": os.environ.get("PATH", os.defpath), "HOME": "/nonexistent"}

# Long enough never to end: what is measured is a step in the middle of a thread.
BY_STATUS = b"""
name: by-status
description: Two roles in turn, routed by the status of their answers.
roles:
  worker: &role
    description: Works.
    systemPrompt: Work.
    outputSchema:
      type: object
      properties: {status: {enum: [done]}, note: {type: string}}
      required: [status, note]
  checker: *role
graph:
  $START: {_: worker}
  worker: {done: checker, _: $END}
  checker: {done: worker}
"""

BY_CONDITION = b"""
name: by-condition
description: Two roles in turn, routed by a condition over the history.
roles:
  worker: &role
    description: Works.
    systemPrompt: Work.
    outputSchema:
      type: object
      properties: {status: {enum: [done]}, note: {type: string}}
      required: [status, note]
  checker: *role
conditions:
  enough: {description: A hundred thousand steps are done., expression: $count(steps) >= 100000}
graph:
  $START: [{role: worker}]
  worker: [{role: $END, condition: enough}, {role: checker}]
  checker: [{role: worker}]
"""

NOT_AT_ITS_END = 11  # the exit status of a run that --max-steps stopped


class Lab:
    """A store in a folder of its own. `environ` leads child processes to it."""

    def __init__(self, folder: Path, definition: bytes = BY_STATUS) -> None:
        self.root = folder
        self.git_dir = folder / "store.git"
        self.location = Location(folder, self.git_dir)
        init(self.location)
        self.instance = Instance(self.location, {})
        self.environ = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(folder),
            "UWF_STORAGE_ROOT": str(folder),
        }
        self._compiled = compile_source(parse_source(definition, "bench.yaml", None))
        self.version = pygit2.Oid(hex=self.instance.registry.put(self._compiled).commit)
        self.workflow = self._compiled.hash
        self.words = random.Random(20250101)
        self._prepared: list[str] = []

    def start(self) -> ThreadId:
        """A new thread without a step."""
        return self.instance.threads.start(self.version, Start(self.workflow, "Measure this."))

    def threads(self, count: int, steps: int) -> list[ThreadId]:
        """New threads, each with so many steps."""
        made = []
        for _ in range(count):
            thread = self.start()
            self.grow(thread, steps)
            made.append(thread)
        return made

    def prepare(self, steps: int) -> None:
        """Makes up the answers of the next steps, so that doing so isn't measured with appending them."""
        self._prepared = [self._text() for _ in range(steps)]

    def grow(self, thread: ThreadId, steps: int, notes: Sequence[str] = ()) -> Head:
        """Appends steps, as the engine does after an agent's run, with these notes in their answers or made up ones."""
        head = self.instance.threads.head(thread)
        known = [step.hash for step in self.instance.threads.history(head).steps]
        *_, last = [head, *self.growing(head, known, steps, notes)]
        return last

    def growing(self, head: Head, known: list[Hash], steps: int, notes: Sequence[str] = ()) -> Iterator[Head]:
        """Appends steps one by one; `known` are the StepNodes so far, and grows with them."""
        start = head.row.start
        assert start is not None
        store, past = self.instance.store, set(known)
        for number in range(steps):
            role = ("worker", "checker")[len(known) % 2]
            schema = self._compiled.workflow.roles[role].schema
            note = notes[number] if notes else f"step {len(known) + 1}"
            with store.together():  # as the engine does
                output = store.put(schema, {"status": "done", "note": note})
                detail = store.put(DETAIL, self._detail(head.node))
                prev = known[-1] if known else None
                made = Step(start, prev, role, output, detail, "uwf-bench")
                node = store.put(STEPNODE, made.payload())
                head = self.instance.threads.append(head, node, past, (), "native")
            known.append(node)
            past.add(node)
            yield head

    def append_with(self, head: Head, detail: Hash) -> Head:
        """Appends a thread's first step, with a detail that is there."""
        store, start = self.instance.store, head.row.start
        assert start is not None
        output = store.put(
            self._compiled.workflow.roles["worker"].schema, {"status": "done", "note": "first"}
        )
        node = store.put(STEPNODE, Step(start, None, "worker", output, detail, "uwf-bench").payload())
        return self.instance.threads.append(head, node, set(), (), "native")

    def _detail(self, context: Hash) -> dict[str, object]:
        return {
            "answer": self._answer(),
            "turns": [],
            "session": None,
            "model": None,
            "usage": {"input": 1200, "output": 800, "cached": 0},
            "cost": 0.01,
            "durationMs": 1,
            "instruction": None,
            "context": context,
            "extraction": "native",
        }

    def _answer(self) -> str:
        return self._prepared.pop() if self._prepared else self._text()

    def _text(self) -> str:
        return prose(self.words)


def prose(words: random.Random, length: int = PAYLOAD) -> str:
    """Text that compresses about as prose does: words of a vocabulary, none of it repeated whole."""
    return " ".join(words.choices(_VOCABULARY, k=length // 3))[:length]


def _vocabulary() -> list[str]:
    letters = random.Random(7)
    return [
        "".join(letters.choice("etaoinshrdlucmfwypvbgkqjxz") for _ in range(letters.randint(2, 9)))
        for _ in range(4000)
    ]


_VOCABULARY = _vocabulary()
