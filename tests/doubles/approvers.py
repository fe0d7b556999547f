"""A workflow with a gate of two approvals, people who use `uwf` under their own names, and forged approvals."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from uwf_git.approvals.gate import standing_at
from uwf_git.approvals.records import page_and_message
from uwf_git.engine.forks import begun_at
from uwf_git.engine.new_step import NewStep, record
from uwf_git.engine.next_turn import outlook
from uwf_git.format.approvals import Approval, Revocation, parse_approval
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.kinds import HUMAN, Detail, Identity, Step
from uwf_git.format.types import APPROVAL, DETAIL, REVOCATION, STEPNODE
from uwf_git.git.objects import Person
from uwf_git.git.repository import Oid
from uwf_git.store import layout
from uwf_git.store.history import Position
from uwf_git.store.instance import Instance
from uwf_git.store.location import locate
from uwf_git.store.ref_kinds import APPROVALS
from uwf_git.store.thread_records import folder_of

APPROVERS = "[ann@example.invalid, bob@example.invalid, carol@example.invalid]"

RELEASE = """\
name: release
description: A release that two people approve.
roles:
  builder:
    description: Builds it.
    systemPrompt: Build.
    outputSchema: { type: object, properties: { text: { type: string } }, required: [text] }
  gate:
    description: Decides whether it is released.
    human: true
    approvers: APPROVERS
    quorum: 2
    outputSchema:
      type: object
      properties:
        decision: { enum: [ship, stop] }
        note: { type: string }
      required: [decision]
      additionalProperties: false
conditions:
  stop: { description: It isn't released., expression: 'steps[-1].output.decision = "stop"' }
graph:
  $START: [{ role: builder }]
  builder: [{ role: gate, prompt: "Ship {{ text }}?" }]
  gate:
    - { role: builder, condition: stop, prompt: Build another. }
    - { role: $END }
"""

IN_BRANCHES = """\
name: release
description: A release of parts that are built in branches.
roles:
  planner:
    description: Lists parts.
    systemPrompt: List.
    outputSchema: { type: object, properties: { parts: { type: array, items: { type: string } } }, required: [parts] }
  builder:
    description: Builds it.
    systemPrompt: Build.
    outputSchema: { type: object, properties: { text: { type: string } }, required: [text] }
  gate:
    description: Decides whether it is released.
    human: true
    approvers: APPROVERS
    notAuthor: true
    outputSchema:
      type: object
      properties: { decision: { enum: [ship, stop] } }
      required: [decision]
      additionalProperties: false
graph:
  $START: [{ role: planner }]
  planner: [{ each: $last().parts, role: builder, prompt: "{{ item }}", join: { role: gate, prompt: "Ship?" } }]
  gate: [{ role: $END }]
"""
"""A workflow whose gate judges what branches of a fan-out made."""

BUILDS = 'uwf-exec echo \'{"text": "v1"}\''


def release(approvers: str = APPROVERS, **more: object) -> str:
    """The workflow, with other approvers, or with more for its gate: `quorum=1`, `notAuthor=True`."""
    text = RELEASE.replace("APPROVERS", approvers)
    for name, value in more.items():
        said = str(value).lower() if isinstance(value, bool) else str(value)
        if name == "quorum":
            text = text.replace("    quorum: 2\n", f"    quorum: {said}\n")
        else:
            text = text.replace("    human: true\n", f"    human: true\n    {name}: {said}\n")
    return text


class Colleague:
    """Somebody who uses `uwf` under a name of their own, unsigned."""

    def __init__(self, uwf: Callable[..., Any], name: str) -> None:
        self._uwf = uwf
        self.name = name

    @property
    def environment(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for who in ("AUTHOR", "COMMITTER"):
            found |= {f"GIT_{who}_NAME": self.name, f"GIT_{who}_EMAIL": f"{self.name}@example.invalid"}
        return found

    def __call__(self, *args: str | Path, env: Mapping[str, str] | None = None, **more: Any) -> Any:
        return self._uwf(*args, env={**self.environment, **(env or {})}, **more)

    def approves(self, thread: str, decision: str = "ship", **more: Any) -> Any:
        return self("thread", "answer", thread, "-f", f"decision={decision}", **more)


def at_gate(uwf: Callable[..., Any], text: str = "", prompt: str = "v1") -> str:
    """A thread whose builder, run by dora, has built, so that its gate is next."""
    dora = Colleague(uwf, "dora")
    path = Path("release.yaml")
    path.write_text(text or release())
    dora("workflow", "put", path)
    thread = str(dora("thread", "start", "release", "-p", prompt).json["thread"])
    dora("thread", "step", thread, "--agent", BUILDS)
    return thread


def at_gate_after_branches(uwf: Callable[..., Any], *builders: str) -> str:
    """A thread at its gate, of which each of these people built a part in a branch, and the last one joined
    them; dora ran all else."""
    dora = Colleague(uwf, "dora")
    Path("release.yaml").write_text(IN_BRANCHES.replace("APPROVERS", APPROVERS))
    dora("workflow", "put", "release.yaml")
    thread = str(dora("thread", "start", "release", "-p", "v1").json["thread"])
    Path("parts.json").write_text(json.dumps({"parts": [f"part of {name}" for name in builders]}))
    dora("thread", "step", thread, "--agent", "uwf-exec cat parts.json")
    dora("thread", "step", thread, check=None)
    instance = Instance(locate(None, os.environ, Path.cwd()))
    branches = begun_at(instance, instance.threads.head(ThreadId(thread)).row)
    for name, branch in zip(builders, branches, strict=True):
        Colleague(uwf, name)("thread", "step", branch, "--agent", BUILDS)
    return thread


class ForgedApprovals:
    """Writes approvals to `refs/uwf/approvals/<ULID>` of a thread, with the library's own hands but without its
    checks: `by` is whom the node names, `committer` who commits it."""

    def __init__(self, instance: Instance, thread: str) -> None:
        self.instance = instance
        self.thread = ThreadId(thread)

    @property
    def position(self) -> Position:
        return self.instance.threads.position(self.instance.threads.active_head(self.thread))

    def honest(self, name: str, decision: str = "ship") -> Approval:
        """What a person of this name would approve."""
        instance, at = self.instance, self.position
        standing = standing_at(instance, at, outlook(instance, *at))
        assert standing is not None
        gate = standing.gate
        output = instance.store.put(gate.role.schema, {"decision": decision})
        by = Identity(name, f"{name}@example.invalid")
        return Approval(
            gate.start,
            gate.prev,
            gate.role.name,
            output,
            by,
            gate.shown,
            at.head.row.time,
            digest=gate.shown.digest,
        )

    def commit(
        self, said: Approval, committer: str = "", when: int | None = None, payload: Mapping[str, Any] = {}
    ) -> Oid:
        """Commits an approval on those before it. `payload` changes fields of the node."""
        instance, head = self.instance, self.position.head
        repository, store = instance.store.repository, instance.store
        node = store.put(APPROVAL, {**said.payload(), **payload})
        stop = {
            head.node,
            head.row.start or head.node,
            *instance.threads.workflow_nodes(repository.root(head.commit)),
        }
        files: dict[str, bytes | Oid] = dict(store.files(node, stop))
        made = parse_approval(store.get(node).payload)
        files["README.md"], text = page_and_message(node, made, lambda output: store.get(output).payload)
        tip = repository.ref(APPROVALS.prefix + self.thread)
        before = (
            repository.commit(tip).tree
            if tip is not None
            else repository.write_folder({".gitattributes": layout.GITATTRIBUTES})
        )
        tree = repository.graft(before, folder_of(APPROVALS, node), repository.write_folder(files))
        parents = [head.commit] if tip is None else [tip, head.commit]
        name = committer or said.by.name
        who = Person(name, f"{name}@example.invalid")
        oid = repository.write_commit(
            tree, parents, who, text, said.at if when is None else when, committer=who
        )
        repository.put_ref(APPROVALS.prefix + self.thread, tip, oid)
        return oid

    def revoke(self, approval: Hash, name: str, committer: str = "") -> Oid:
        """Takes an approval back in somebody's name."""
        repository, store, head = self.instance.store.repository, self.instance.store, self.position.head
        said = Revocation(approval, Identity(name, f"{name}@example.invalid"), 1_790_000_500)
        node = store.put(REVOCATION, said.payload())
        tip = repository.ref(APPROVALS.prefix + self.thread)
        assert tip is not None
        known = self.instance.threads.workflow_nodes(repository.root(head.commit))
        files: dict[str, bytes | Oid] = dict(store.files(node, {approval, *known}))
        files["README.md"], text = page_and_message(node, said, lambda output: store.get(output).payload)
        folder = repository.write_folder(files)
        tree = repository.graft(repository.commit(tip).tree, folder_of(APPROVALS, node), folder)
        who = Person(committer or name, f"{committer or name}@example.invalid")
        oid = repository.write_commit(tree, [tip, head.commit], who, text, said.at, committer=who)
        repository.put_ref(APPROVALS.prefix + self.thread, tip, oid)
        return oid

    def node_of(self, commit: Oid) -> Hash:
        return self.instance.store.index_commit(commit).node

    def step(self, approvals: Sequence[Hash], output: Hash, merge: bool = True) -> Hash:
        """Makes the step of the gate with these approvals, on the newest of them."""
        instance, at = self.instance, self.position
        found, store = outlook(instance, *at), instance.store
        told = Detail("---\ndecision: ship\n---\n", instruction=found.instruction, context=at.head.node)
        told = told._replace(approvals=tuple(approvals))
        made = Step(
            at.history.start_hash,
            at.history.prev,
            "gate",
            output,
            store.put(DETAIL, told.payload()),
            HUMAN,
        )
        node = store.put(STEPNODE, made.payload())
        tip = store.repository.ref(APPROVALS.prefix + self.thread) if merge else None
        record(instance, at, NewStep(node, made, (tip,) if tip else ()))
        return node
