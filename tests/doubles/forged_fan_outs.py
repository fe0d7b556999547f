"""Forks, branches and joins made by hand: as the engine makes them, but for one thing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fan_outs import TEXT
from forged import stepped
from workflows import register

from uwf_git.engine import fan_out
from uwf_git.engine.new_step import NewStep, record
from uwf_git.format.ids import Hash, ThreadId, branch_id, new_thread_id
from uwf_git.format.kinds import Detail, Start, Step
from uwf_git.format.types import DETAIL, FORK, FORK_OUTPUT, JOIN, JOIN_OUTPUT, STEPNODE, UWF
from uwf_git.git.repository import Oid, Repository
from uwf_git.store import layout
from uwf_git.store.history import Head
from uwf_git.store.instance import Instance
from uwf_git.verify.findings import Finding
from uwf_git.verify.whole import local_refs, verify_refs

FIXES = """
name: {name}
description: Fixes two files.
roles:
  fixer: {{description: Fixes a file., systemPrompt: Fix it., outputSchema: {text}}}
  reviewer: {{description: Reviews., systemPrompt: Review., outputSchema: {text}}}
  other: {{description: Another., systemPrompt: Do it., outputSchema: {text}}}
graph:
  $START:
    - {{each: [a, b], as: file, role: fixer, prompt: "Fix {{{{ file }}}}", {policy} join: reviewer}}
  reviewer: [{{each: [c], role: other, join: $END}}]
"""
Change = Callable[[dict[str, Any]], None]


def unchanged(_payload: dict[str, Any]) -> None:
    return None


class Forge:
    """A store whose threads fork at once, into two branches of one step each."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.repository = instance.store.repository
        self._versions: dict[str, Any] = {}
        self._number = 0

    def start(self, policy: str = "") -> ThreadId:
        if policy not in self._versions:
            name = f"fixes-{len(self._versions)}"
            text = FIXES.format(name=name, text=TEXT, policy=policy and f"{policy},")
            self._versions[policy] = register(self.instance, text)
        version = self._versions[policy]
        self._number += 1  # equal threads of one second are one history
        return self.instance.threads.start(
            Oid(hex=version.commit), Start(version.hash, f"Do {self._number}.")
        )

    def head(self, thread: ThreadId) -> Head:
        return self.instance.threads.head(thread)

    def append(
        self,
        thread: ThreadId,
        role: str,
        type_hash: Hash,
        payload: Any,
        merged: Sequence[Oid] = (),
        agent: str = UWF,
        answer: str = "",
    ) -> Head:
        """Add a step of any role, with any output and any other parents."""
        at = self.instance.threads.position(self.head(thread))
        store = self.instance.store
        detail = Detail(answer, context=at.history.head)
        step = Step(
            at.history.start_hash,
            at.history.prev,
            role,
            store.put(type_hash, payload),
            store.put(DETAIL, detail.payload()),
            agent,
        )
        new = NewStep(store.put(STEPNODE, step.payload()), step, merged)
        return record(self.instance, at, new).head

    def fork(self, thread: ThreadId, change: Change = unchanged, **given: Any) -> Head:
        """Add the fork that is next, changed; begins no branches."""
        at = self.instance.threads.position(self.head(thread))
        new = fan_out.fork(self.instance, at)
        payload = dict(self.instance.store.get(new.step.output).payload)
        change(payload)
        return self.append(thread, FORK, FORK_OUTPUT, payload, **given)

    def starts(self, thread: ThreadId) -> tuple[list[Oid], list[tuple[Hash, dict[str, Any]]]]:
        """Return the versions of the branches of a fork, and the types and payloads of their StartNodes."""
        seen: list[Any] = []
        threads = self.instance.threads
        begin = threads.begin_branches
        threads.begin_branches = lambda *given: seen.append(given) or []  # type: ignore[method-assign]
        try:
            fan_out.begin_branches(self.instance, threads.position(self.head(thread)))
        finally:
            threads.begin_branches = begin  # type: ignore[method-assign]
        _, versions, nodes = seen[0]
        return list(versions.values()), [(kind, dict(payload)) for kind, payload in nodes.values()]

    def begin(
        self, thread: ThreadId, change: Change = unchanged, on: Oid | None = None, place: int = 0
    ) -> ThreadId:
        """Begin a branch of a thread that has forked, changed; `on` is another commit to stand on."""
        versions, starts = self.starts(thread)
        kind, payload = starts[place]
        payload["branch"] = dict(payload["branch"])
        change(payload)
        fork = on or self.head(thread).commit
        (begun,) = self.instance.threads.begin_branches(fork, {place: versions[0]}, {place: (kind, payload)})
        return begun

    def forked(self, policy: str = "") -> tuple[ThreadId, list[ThreadId]]:
        """Return a new thread that has forked, and its branches."""
        thread = self.start(policy)
        self.fork(thread)
        head = self.head(thread)
        fan_out.begin_branches(self.instance, self.instance.threads.position(head))
        when = self.repository.commit(head.commit).time
        return thread, [branch_id(str(head.commit), when, place) for place in range(2)]

    def end(self, thread: ThreadId, status: str = "completed", reason: str = "", steps: int = 1) -> Oid:
        """End a branch after a step of its role; return its last commit."""
        for _ in range(steps):
            stepped(self.instance, self.head(thread), "fixer", {"text": "fixed"})
        self.instance.threads.archive(self.head(thread), status, reason)
        return self.head(thread).commit

    def ended(self, policy: str = "") -> tuple[ThreadId, list[ThreadId]]:
        """Return a thread that has forked, and its branches, which have completed."""
        thread, branches = self.forked(policy)
        for branch in branches:
            self.end(branch)
        return thread, branches

    def join(self, thread: ThreadId, change: Change = unchanged, **given: Any) -> Head:
        """Add the join that is next, changed."""
        at = self.instance.threads.position(self.head(thread))
        new = fan_out.join(self.instance, at)
        payload = dict(self.instance.store.get(new.step.output).payload)
        payload["branches"] = [dict(each) for each in payload["branches"]]
        change(payload)
        given.setdefault("merged", new.merged)
        return self.append(thread, JOIN, JOIN_OUTPUT, payload, **given)

    def point(self, commit: Oid, thread: ThreadId | None = None) -> ThreadId:
        """Let a thread's ref, by default a new one, lead to a commit."""
        made = thread or new_thread_id()
        ref = layout.THREADS + made
        self.repository.put_ref(ref, self.repository.ref(ref), commit)
        return made

    def findings(self) -> list[Finding]:
        repository = Repository(self.instance.location.git_dir)
        return list(verify_refs(repository, local_refs(repository)).findings)
