"""A thread's record: the contents of its commits as one JSON value, which others can build again with git alone.

All of it is in the thread's commits, except the judgement of signatures, by the keys of the trust policy or else of the
user, and the digests of rebuilt prompts. docs/guides/audit.md has each field; docs/audit/verify.py builds the same
value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any, NamedTuple

from uwf_git.plugin import (
    NO_SIGNATURE,
    Commit,
    CommitRow,
    Entry,
    Git,
    Hash,
    Head,
    History,
    Instance,
    Oid,
    Signature,
    StoreDamaged,
    ThreadId,
    UwfError,
    ancestry,
    current_policy,
    identity_of,
    is_kind,
    iso,
    node_from_blob,
    parse_detail,
    parse_step,
    parse_tag,
    persons_steps,
    signatures,
)

DEEPEST = 8
"""Sub-workflows within each other whose steps are in a record; of deeper ones there is only the commit."""

_NO_THREAD = ThreadId("0" * 26)
_NODE = re.compile(r"(?:workflow|start|steps/(?:[0-9]+xx/)?[^/]+)/nodes/([0-9A-Z]{13})\.json")


class _Run(NamedTuple):
    """The commits of a thread, or of one that did a step: the version, the start, the steps."""

    version: CommitRow
    start: CommitRow
    steps: list[CommitRow]


def record(instance: Instance, head: Head) -> dict[str, Any]:
    """Return a thread's record. Raises StoreDamaged, NotFound."""
    return _Records(instance).thread(head)


class _Records:
    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._store = instance.store
        self._repository = instance.store.repository
        self._signed: dict[Oid, Signature] = {}
        self._given: dict[Hash, list[dict[str, Any]]] = {}
        policy = current_policy(instance)
        self._allowed = policy.allowed_signers() if policy is not None else None

    def thread(self, head: Head) -> dict[str, Any]:
        runs: dict[bytes, _Run] = {}
        self._collect(head.commit, runs)
        tag = self._instance.threads.end_tag(head)
        objects = [Oid(raw=row.oid) for run in runs.values() for row in (run.start, *run.steps)]
        self._judge([*objects, *([tag] if tag is not None else [])])
        history = self._instance.threads.history(head)
        return {
            "thread": head.thread,
            **self._run(head.commit.raw, runs, history, 0),
            "end": None if tag is None else self._end(head, tag),
        }

    # Commits

    def _collect(self, head: Oid, runs: dict[bytes, _Run]) -> None:
        pending = [head]
        while pending:
            commit = pending.pop()
            if commit.raw in runs:
                continue
            steps: list[CommitRow] = []
            rows = ancestry(self._store, commit)
            start = next(rows)
            while start.kind == "step":
                steps.append(start)
                start = next(rows)
            runs[commit.raw] = _Run(next(rows), start, steps[::-1])
            pending += [
                Oid(raw=row.merged) for row in steps if row.merged is not None and self._is_child(row)
            ]

    def _is_child(self, row: CommitRow) -> bool:
        """Return whether a step's second parent is the thread that did it."""
        step = self._store.step(row.node)
        return is_kind(self._store.get(step.detail).type, "step")

    def _run(self, commit: bytes, runs: Mapping[bytes, _Run], history: History, depth: int) -> dict[str, Any]:
        run = runs[commit]
        blobs = self._blobs(run)
        first = self._repository.commit(Oid(raw=run.start.oid))
        start = self._store.start(run.start.node)
        steps = []
        for number, row in enumerate(run.steps, 1):
            before = run.steps[number - 2] if number > 1 else run.start
            blobs.update(self._added(Oid(raw=row.oid), Oid(raw=before.oid)))
            child = None
            if row.merged is not None and row.merged in runs and depth < DEEPEST:
                child = self._child(row.merged, runs, depth + 1)
            steps.append({**self._step(row, number, blobs, history), "child": child})
        return {
            "head": commit.hex(),
            "workflow": {
                "name": history.workflow.name,
                "node": start.workflow,
                "commit": run.version.oid.hex(),
            },
            "start": {
                "node": run.start.node,
                "commit": run.start.oid.hex(),
                **_made(first),
                "prompt": _digest(start.prompt),
                "signature": self._signature(Oid(raw=run.start.oid)),
            },
            "steps": steps,
            "approvals": self._approvals(run, steps, history),
        }

    def _blobs(self, run: _Run) -> dict[Hash, Oid]:
        """Return the files of nodes in a start's tree."""
        blobs = dict(self._added(Oid(raw=run.version.oid), None))
        blobs.update(self._added(Oid(raw=run.start.oid), Oid(raw=run.version.oid)))
        return blobs

    def _added(self, commit: Oid, before: Oid | None) -> Iterator[tuple[Hash, Oid]]:
        """Yield the nodes whose files a commit adds or changes."""
        tree = self._repository.commit(commit).tree
        other = None if before is None else self._repository.commit(before).tree
        for path, blob in self._changed(tree, other, ""):
            if match := _NODE.fullmatch(path):
                yield Hash(match[1]), blob

    def _changed(self, tree: Oid, before: Oid | None, path: str) -> Iterator[tuple[str, Oid]]:
        old: dict[str, Entry] = {}
        if before is not None:
            old = {item.name: item for item in self._repository.tree(before)}
        for entry in self._repository.tree(tree):
            was = old.get(entry.name)
            if was == entry:
                continue
            if entry.is_tree:
                below = was.oid if was is not None and was.is_tree else None
                yield from self._changed(entry.oid, below, f"{path}{entry.name}/")
            else:
                yield path + entry.name, entry.oid

    # Steps

    def _step(
        self, row: CommitRow, number: int, blobs: Mapping[Hash, Oid], history: History
    ) -> dict[str, Any]:
        oid = Oid(raw=row.oid)
        commit = self._repository.commit(oid)
        step = parse_step(self._payload(row.node, blobs))
        detail = self._payload(step.detail, blobs)
        values = detail if isinstance(detail, dict) and {"answer", "turns", "usage"} <= detail.keys() else {}
        self._given[row.node] = self._approved(oid, values, blobs)
        took = values.get("durationMs")
        return {
            "number": number,
            "role": step.role,
            "agent": step.agent,
            "node": row.node,
            "commit": row.oid.hex(),
            **_made(commit),
            "started": None if took is None else iso(commit.time - took // 1000),
            **{name: values.get(name) for name in ("durationMs", "model", "session", "usage", "cost")},
            "prompt": {
                "instruction": _digest(values.get("instruction")),
                "context": values.get("context"),
                "rebuilt": self._rebuilt(row, number, history),
            },
            "output": {"node": step.output, "sha256": sha256(self._data(step.output, blobs)).hexdigest()},
            "code": values.get("code"),
            "signature": self._signature(oid),
        }

    def _child(self, commit: bytes, runs: Mapping[bytes, _Run], depth: int) -> dict[str, Any]:
        run = runs[commit]
        last = run.steps[-1].node if run.steps else run.start.node
        thread = self._instance.threads.ending_with(last) or _NO_THREAD
        return self._run(commit, runs, self._instance.threads.history_at(thread, last), depth)

    def _data(self, node: Hash, blobs: Mapping[Hash, Oid]) -> bytes:
        if node not in blobs:
            raise StoreDamaged(f"node {node} is not in the thread's commits", "see: uwf verify")
        return self._repository.blob(blobs[node])

    def _payload(self, node: Hash, blobs: Mapping[Hash, Oid]) -> Any:
        return node_from_blob(self._data(node, blobs), node).payload

    def _rebuilt(self, row: CommitRow, number: int, history: History) -> str | None:
        """Return the digest of a step's prompt as it is rebuilt here, None if it can't be."""
        from uwf_git.plugin import prompt_of_step

        step = history.steps[number - 1]
        node = self._store.get(step.detail)
        if history.thread == _NO_THREAD or step.role not in history.workflow.roles or history.workflow.code:
            return None
        if not is_kind(node.type, "detail") or row.parent is None:
            return None
        before = self._store.index_commit(Oid(raw=row.parent))
        past = history.up_to(history.steps[number - 2].hash if number > 1 else None)
        try:
            prompt = prompt_of_step(self._instance, past, before, row, parse_detail(node.payload))
        except UwfError:
            return None
        return _digest(prompt)

    def _approvals(self, run: _Run, steps: list[dict[str, Any]], history: History) -> list[dict[str, Any]]:
        approvals = []
        for number, kind in persons_steps(history):
            step, row = steps[number - 1], run.steps[number - 1]
            shown = {name: step[name] for name in ("number", "role", "by", "time", "signature")}
            on, answers = (row.parent or b"").hex(), self._given.get(row.node, [])
            approvals.append({**shown, "kind": kind, "on": on, "given": answers})
        return approvals

    def _approved(self, at: Oid, told: Mapping[str, Any], blobs: Mapping[Hash, Oid]) -> list[dict[str, Any]]:
        """Return the approvals that the step of a commit names. Those of a role with approvers have commits of their
        own, which the second parent leads to; another's is the step's."""
        approvals = []
        parents = self._repository.commit(at).parents
        for node in told.get("approvals", ()):
            words = ("log", "--format=%H", f"--grep=^Uwf-Approval: {node}$")
            contents = Git(self._repository.path).run(*words, str(parents[-1]), f"^{parents[0]}").out.split()
            oid = Oid(hex=contents[-1].decode("ascii")) if contents else at
            approval = self._payload(node, blobs)
            self._judge([oid])
            texts = {"shown": approval["shown"]["digest"], "reason": approval.get("reason", "")}
            commit_values = _made(self._repository.commit(oid))
            signature = self._signature(oid)
            approvals.append(
                {"node": node, "commit": str(oid), **commit_values, **texts, "signature": signature}
            )
        return approvals

    # The end, and who signed

    def _end(self, head: Head, oid: Oid) -> dict[str, Any]:
        tag = parse_tag(self._repository.read(oid)[1])
        status, _, reason = tag.message.strip("\n").partition(": ")
        return {
            "status": status,
            "reason": reason,
            "tag": str(oid),
            "by": identity_of(tag.tagger)._asdict(),
            "time": iso(tag.time),
            "signature": self._signature(oid),
        }

    def _judge(self, objects: Iterable[Oid]) -> None:
        self._signed.update(signatures(self._repository, objects, self._allowed))

    def _signature(self, oid: Oid) -> dict[str, str] | None:
        signature = self._signed[oid]
        if signature.state == NO_SIGNATURE:
            return None
        return {
            "state": signature.state,
            "signer": signature.signer,
            "key": signature.fingerprint or signature.key,
        }


def _made(commit: Commit) -> dict[str, Any]:
    return {"by": identity_of(commit.committer)._asdict(), "time": iso(commit.time)}


def _digest(text: Any) -> str | None:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest() if isinstance(text, str) else None
