"""Effects of a thread on the outside, recorded before they are sent, at `refs/uwf/effects/<ULID>`.

A Settlement has the outcome of an Effect. An effect without one is open: it may have been carried out. A Check is the
result of a command on a commit that was to be sent. All are records beside the thread, see `store.thread_records`:

    effects/<hash>/{README.md,nodes/}  an Effect, a Settlement or a Check, which has its log as a Text

An effect's key follows from the commit of the thread's start, so forks of a thread, and each machine, make the same
one; two threads never do, even if they have the same task.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence, Set
from contextlib import suppress
from hashlib import sha256
from typing import Any, NamedTuple

from uwf_git.ext.landing import EFFECTS
from uwf_git.ext.landing.node_types import CHECK, EFFECT, SETTLEMENT
from uwf_git.plugin import (
    Hash,
    Head,
    IndexedStore,
    Instance,
    Node,
    Oid,
    StoreDamaged,
    ThreadId,
    ThreadRecord,
    ThreadRecords,
    cbor,
    from_payload,
    harmless,
    hash_of,
    iso,
    layout,
    markdown,
    one_line,
    require_known_words,
    to_payload,
    words,
)

OPEN = "open"
"""The outcome of an effect without a settlement. No node has it."""
ENDED = (words.MERGED, words.CLOSED)
"""The outcomes of a request that is open no more."""
_RANKS = {words.MERGED: 0, words.CLOSED: 1, words.REOPENED: 1, words.DONE: 2, words.FOUND: 3}
SETTLED = tuple(_RANKS)
"""The outcomes after which no effect with the key is sent."""


class Effect(NamedTuple):
    """An Effect node. `prev` is the step that was the head, None at the start; `at` is in Unix seconds."""

    start: Hash
    prev: Hash | None
    key: str
    kind: str
    name: str
    sha256: str
    at: int
    target: str = ""
    text: str = ""

    def payload(self) -> dict[str, Any]:
        return to_payload(self)


class Settlement(NamedTuple):
    """A Settlement node: `outcome` is one of EFFECT_OUTCOMES, `reference` the other side's name for the effect, such
    as an address or a number; `at` is in Unix seconds."""

    effect: Hash
    outcome: str
    at: int
    reference: str = ""
    reason: str = ""

    def payload(self) -> dict[str, Any]:
        return to_payload(self)


class Check(NamedTuple):
    """A Check node: a command that was run on a commit of the project, with a tree. `prev` is the step that was the
    head, None at the start; `status` the exit status, None if it ran out of time; `log` a Text; `at` in Unix seconds.
    """

    start: Hash
    prev: Hash | None
    commit: str
    tree: str
    command: tuple[str, ...]
    status: int | None
    log: Hash
    at: int

    @property
    def has_passed(self) -> bool:
        return self.status == 0

    @property
    def end(self) -> str:
        """How the command ended, for people."""
        return "ran out of time" if self.status is None else f"exited with {self.status}"

    @property
    def outcome(self) -> str:
        """The same, but `passed` for status 0."""
        return "passed" if self.has_passed else self.end

    def payload(self) -> dict[str, Any]:
        return to_payload(self)


EffectRecord = Effect | Settlement | Check
_TYPES: dict[type[EffectRecord], Hash] = {Effect: EFFECT, Settlement: SETTLEMENT, Check: CHECK}


class RecordedEffect(NamedTuple):
    """An effect of a thread with its settlements, oldest first."""

    hash: Hash
    effect: Effect
    settlements: tuple[Settlement, ...] = ()

    @property
    def settlement(self) -> Settlement | None:
        """The settlement that counts: what became of it later, else one by which it was carried
        out, else the newest."""
        return min(reversed(self.settlements), key=lambda item: _rank(item.outcome), default=None)

    @property
    def outcome(self) -> str:
        return self.settlement.outcome if self.settlement is not None else OPEN

    @property
    def is_settled(self) -> bool:
        return self.outcome in SETTLED

    @property
    def is_uncertain(self) -> bool:
        """Whether it may have been carried out without a record of that. One that was unknown once stays so: a later
        failure may be that of another machine's attempt."""
        unknown = any(item.outcome == words.UNKNOWN for item in self.settlements)
        return not self.is_settled and (unknown or not self.settlements)

    def as_json(self) -> dict[str, Any]:
        effect, settlement = self.effect, self.settlement
        return {
            "effect": self.hash,
            "key": effect.key,
            "kind": effect.kind,
            "name": effect.name,
            "target": effect.target,
            "text": effect.text,
            "sha256": effect.sha256,
            "step": effect.prev,
            "at": iso(effect.at),
            "outcome": self.outcome,
            "reference": settlement.reference if settlement is not None else "",
            "reason": settlement.reason if settlement is not None else "",
            "settled": iso(settlement.at) if settlement is not None else None,
        }


def key_of(start: Oid, kind: str, target: str, name: str) -> str:
    """Return the key of an effect of the thread whose start has a commit: the first 32 hexadecimal digits of a SHA-256
    of all four."""
    return sha256(cbor.encode([str(start), kind, target, name])).hexdigest()[:32]


def digest_of(text: str) -> str:
    """Return the SHA-256 of a text, in hexadecimal digits."""
    return sha256(text.encode()).hexdigest()


def parse_effect_record(node: Node) -> EffectRecord:
    """Parse an Effect, Settlement or Check node. Raises UnknownWord."""
    kind = next(kind for kind, type_hash in _TYPES.items() if type_hash == node.type)
    require_known_words(kind.__name__, node.payload)
    return from_payload(kind, node.payload)


class Effects(ThreadRecords[EffectRecord]):
    """The effects of a store's threads, and the checks of what they sent."""

    def __init__(self, store: IndexedStore) -> None:
        super().__init__(store, EFFECTS, parse_effect_record)

    def of_thread(self, thread: ThreadId) -> list[RecordedEffect]:
        """Return a thread's effects, oldest first. Raises StoreDamaged."""
        return _gathered(self.all(thread))

    def checks(self, thread: ThreadId) -> dict[Hash, Check]:
        """Return a thread's checks by their nodes, oldest first. Raises StoreDamaged."""
        return {item.hash: item.content for item in self.all(thread) if isinstance(item.content, Check)}

    def log(self, check: Check) -> str:
        """Return what a check printed. Raises NotFound, StoreDamaged."""
        return str(self._store.get(check.log).payload)

    def of_kin(self, thread: ThreadId, start: Hash) -> list[RecordedEffect]:
        """Return the effects of the other threads here that have a StartNode, among which are a thread's forks. Refs
        that are damaged are left to `uwf verify`."""
        return [item for effects in self.with_starts({start}, thread).values() for item in effects]

    def with_starts(
        self, starts: Set[Hash], without: ThreadId | None = None
    ) -> dict[ThreadId, list[RecordedEffect]]:
        """Return the effects of the threads here that have one of these StartNodes. Refs that are damaged are left to
        `uwf verify`."""
        threads: dict[ThreadId, list[RecordedEffect]] = {}
        for ref, tip in self._store.repository.refs(EFFECTS.prefix).items():
            with suppress(StoreDamaged):
                thread = layout.thread_of(ref)
                if thread != without and self._store.index_commit(tip).start in starts:
                    threads[thread] = _gathered(self.up_to(tip))
        return threads

    def record(self, head: Head, content: EffectRecord) -> Hash:
        """Commit an effect, a settlement or a check, and return its node's hash. Moves `refs/uwf/effects/<ULID>`, once
        all is synced to disk. Raises as `add`."""
        type_hash = _TYPES[type(content)]
        while self.has(head.thread, hash_of(type_hash, content.payload())):  # the same in the same second
            content = content._replace(at=content.at + 1)
        known = {head.node, head.row.start or head.node}
        if isinstance(content, Settlement):
            known.add(content.effect)
        return self.add(
            head,
            type_hash,
            content,
            known,
            lambda node: page_and_message(node, content),
            lambda _commit, node: node,
        )


def _gathered(records: Sequence[ThreadRecord[EffectRecord]]) -> list[RecordedEffect]:
    effects: dict[Hash, RecordedEffect] = {}
    for record in records:
        content = record.content
        if isinstance(content, Effect):
            effects.setdefault(record.hash, RecordedEffect(record.hash, content))
        elif isinstance(content, Settlement) and (effect := effects.get(content.effect)) is not None:
            effects[content.effect] = effect._replace(settlements=(*effect.settlements, content))
    return list(effects.values())


def by_key(effects: Sequence[RecordedEffect]) -> list[RecordedEffect]:
    """Return the effect that counts of each key, in the order of their first ones: one that was carried out, else one
    that may have been, else the newest."""
    keys: dict[str, list[RecordedEffect]] = {}
    for item in effects:
        keys.setdefault(item.effect.key, []).append(item)
    return [
        min(reversed(items), key=lambda item: (_rank(item.outcome), not item.is_uncertain))
        for items in keys.values()
    ]


def _rank(outcome: str) -> int:
    return _RANKS.get(outcome, len(_RANKS))


def now(head: Head) -> int:
    """Return the time of a record that is made now at a head, whose clock may be ahead."""
    return max(int(time.time()), head.row.time)


def page_and_message(node: Hash, content: EffectRecord) -> tuple[bytes, str]:
    """Return the page of a record, and its commit's message."""
    if isinstance(content, Effect):
        title = f"Effect: {content.kind}"
        subject = f"effect {content.kind}: {content.text or content.name}"
        rows = [
            ("key", markdown.code(content.key)),
            ("to", markdown.inline(content.target)),
            ("name", markdown.inline(content.name)),
            ("text", markdown.inline(content.text)),
            ("SHA-256", markdown.code(content.sha256)),
        ]
    elif isinstance(content, Check):
        command = shlex.join(content.command)
        title = f"Check: {content.outcome}"
        subject = f"check {content.commit[:12]} {content.outcome}: {command}"
        rows = [
            ("command", markdown.inline(command)),
            ("commit", markdown.code(content.commit)),
            ("tree", markdown.code(content.tree)),
            ("log", markdown.code(content.log)),
        ]
    else:
        title = f"Effect {markdown.code(content.effect)}: {content.outcome}"
        subject = f"effect {content.effect} {content.outcome}: {content.reference or content.reason}"
        rows = [
            ("reference", markdown.inline(content.reference)),
            ("reason", markdown.inline(content.reason)),
        ]
    rows = [*((name, value) for name, value in rows if value), ("at", iso(content.at))]
    page = harmless(f"# {title}\n\n{markdown.table(('', ''), rows)}\n").encode("utf-8")
    return page, layout.message(one_line(subject.rstrip(": "), 100), {EFFECTS.trailer: node})


def listed(instance: Instance, thread: ThreadId) -> list[dict[str, Any]]:
    """Return a thread's effects, one for each key, and its checks in their printed form, oldest first. Raises NotFound,
    StoreDamaged."""
    effects = Effects(instance.store)
    rows = [item.as_json() for item in recorded_effects(instance, thread)]
    for node, item in effects.checks(thread).items():
        rows.append(
            {
                "effect": node,
                "key": "",
                "kind": "check",
                "name": item.commit,
                "target": "",
                "text": shlex.join(item.command),
                "sha256": digest_of(effects.log(item)),
                "step": item.prev,
                "at": iso(item.at),
                "outcome": "passed" if item.has_passed else words.FAILED,
                "reference": item.log,
                "reason": "" if item.has_passed else item.end,
                "settled": iso(item.at),
            }
        )
    order = [record.hash for record in effects.all(thread)]
    return sorted(rows, key=lambda row: order.index(row["effect"]))


def recorded_effects(instance: Instance, thread: ThreadId) -> list[RecordedEffect]:
    """Return a thread's effects, one for each key, oldest first. Raises NotFound, StoreDamaged."""
    instance.threads.head(thread)
    return by_key(Effects(instance.store).of_thread(thread))
