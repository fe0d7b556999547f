"""Sending an effect to the outside once: it is recorded before it is sent, and settled afterwards.

A process may be killed between the two. So an open effect is looked up at the other side by its key before it is sent
again. If that doesn't tell, it is recorded as unknown, and a person is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import NamedTuple

from uwf_git.ext.landing import EFFECTS
from uwf_git.ext.landing.effect_records import (
    OPEN,
    Effect,
    EffectRecord,
    Effects,
    RecordedEffect,
    Settlement,
    by_key,
    key_of,
    now,
)
from uwf_git.plugin import (
    Declined,
    Hash,
    Head,
    Instance,
    NewRecord,
    Oid,
    ThreadId,
    Undecided,
    Usage,
    UwfError,
    one_line,
    start_of,
    words,
)

LONGEST = 2000
"""The characters that are recorded of a reference, a reason or a text."""
LOOK_HINT = "look for it, and repeat with --check true if it is there, --check false if it is not"
"""Of a command whose outcome is not known: the options are those of `uwf effect run`."""


class Sending(NamedTuple):
    """An effect to be sent: its `kind`, one of EFFECT_KINDS; its `target`, such as the address of a repository or an
    issue, without credentials; its `name` among the thread's effects of that kind and target, such as `summary` or
    `answer to 1234`; the `content`, and a `text` for lists."""

    kind: str
    target: str
    name: str
    content: bytes
    text: str = ""


Send = Callable[[str], str]
"""Sends an effect with its key, and returns the reference. It raises Declined only if the other side surely did
nothing."""
LookUp = Callable[[str], str | None]
"""Returns the reference of this user's effect with a key, None if it surely isn't there. Raises UwfError if that is not
known."""


def once(
    instance: Instance, thread: ThreadId, sending: Sending, send: Send, look_up: LookUp | None = None
) -> Settlement:
    """Send an effect unless it was sent, and return its settlement as done or found.

    The other side is asked first, by `look_up`, since another machine may have sent it. Effects of the thread's forks
    on this machine count, since they have the same keys. If `send` raises Declined, the effect is settled as failed,
    and may be sent again; after any other exception it stays open. Waits for another process here with the same
    effect. Moves `refs/uwf/effects/<ULID>`. Raises Undecided if it is not known whether an earlier one was carried
    out, Usage if the key is another command's, RequirementUnmet, RolledBack, and as `send` does.
    """
    store = instance.store
    head = instance.threads.head(thread)
    begin = start_of(store, head.commit)
    key = key_of(Oid(raw=begin.oid), sending.kind, sending.target, sending.name)
    with instance.locks.turn(f"effect-{key}", waits=lambda _holders: None):
        require_recordable(instance, head)
        sent = _Sending(instance, thread, begin.node, key, sending)
        return sent.settled() or sent.settle(send, look_up)


def require_recordable(instance: Instance, head: Head) -> None:
    """Raise RolledBack if records of a thread were lost here, Untrusted if this user may make none."""
    instance.witness.raise_if_lost(EFFECTS.prefix + head.thread)
    instance.store.before_record(NewRecord("threads", head.row.name or "", (EFFECTS.rule,)))


def record(instance: Instance, head: Head, content: EffectRecord) -> Hash:
    """Record something beside a thread, after what other processes here record, and return its node's hash."""
    with instance.locks.turn(f"effects-{head.thread}", waits=lambda _holders: None):
        return Effects(instance.store).record(head, content)


def settle_further(
    instance: Instance, thread: ThreadId, effect: Hash, outcome: str, reference: str, reason: str
) -> None:
    """Record what became later of something that was sent, unless that is what counts of it already. Moves
    `refs/uwf/effects/<ULID>`."""
    head = instance.threads.head(thread)
    require_recordable(instance, head)
    with instance.locks.turn(f"effects-{thread}", waits=lambda _holders: None):
        effects = Effects(instance.store)
        counting = next((item for item in effects.of_thread(thread) if item.hash == effect), None)
        if counting is not None and counting.outcome != outcome:
            effects.record(head, Settlement(effect, outcome, now(head), reference, one_line(reason, LONGEST)))


class _Sending:
    """The sending of one effect, whose key this process holds."""

    def __init__(self, instance: Instance, thread: ThreadId, start: Hash, key: str, sending: Sending) -> None:
        self._instance = instance
        self._thread = thread
        self._start = start
        self._key = key
        self._sending = sending
        self._sha256 = sha256(sending.content).hexdigest()
        self._effects = Effects(instance.store)
        self._own = self._with_key(self._effects.of_thread(thread))
        self._all = [*self._own, *self._with_key(self._effects.of_kin(thread, start))]
        others = (item for item in self._all if item.effect.sha256 != self._sha256)
        if sending.kind == words.COMMAND and any(item.is_settled or item.is_uncertain for item in others):
            raise Usage(
                f"key {sending.name!r} of thread {thread} is another command's", "choose another: --key NAME"
            )

    def _with_key(self, effects: Sequence[RecordedEffect]) -> list[RecordedEffect]:
        return [item for item in effects if item.effect.key == self._key]

    def settled(self) -> Settlement | None:
        return next((item.settlement for item in by_key(self._all) if item.is_settled), None)

    def settle(self, send: Send, look_up: LookUp | None) -> Settlement:
        uncertain = next((item for item in self._all if item.is_uncertain), None)
        if uncertain is not None or look_up is not None:
            reference = self._look(look_up, uncertain is not None)
            if reference is not None:
                mine = next((item for item in self._own if item.is_uncertain), None)
                return self._settled_as(mine.hash if mine else self._begun(), words.FOUND, reference)
        effect = self._begun()
        try:
            reference = send(self._key)
        except Declined as refusal:
            self._settled_as(effect, words.FAILED, reason=refusal.message)
            raise
        return self._settled_as(effect, words.DONE, reference)

    def _look(self, look_up: LookUp | None, uncertain: bool) -> str | None:
        why = "no look-up was given"
        if look_up is not None:
            try:
                return look_up(self._key)
            except UwfError as error:
                why = error.message
        kind, thread = self._sending.kind, self._thread
        what = f"{kind} {self._sending.name!r} of thread {thread}"
        if not uncertain:
            raise Undecided(f"it is not known whether {what} was sent before: {why}", "repeat")
        for item in self._own:
            if item.outcome == OPEN:
                self._settled_as(item.hash, words.UNKNOWN, reason=why)
        hint = LOOK_HINT if kind == words.COMMAND else "repeat"
        raise Undecided(f"it is not known whether {what}, which was begun, was carried out: {why}", hint)

    def _begun(self) -> Hash:
        """Return this thread's effect to settle, recorded now unless one of the same content is open."""
        same = (item for item in self._own if item.is_uncertain and item.effect.sha256 == self._sha256)
        if (mine := next(same, None)) is not None:
            return mine.hash
        sending, head = self._sending, self._head()
        effect = Effect(
            self._start,
            head.node if head.row.kind == "step" else None,
            self._key,
            sending.kind,
            sending.name,
            self._sha256,
            now(head),
            sending.target,
            self._clean(sending.text, "the text of an effect"),
        )
        return record(self._instance, head, effect)

    def _settled_as(self, effect: Hash, outcome: str, reference: str = "", reason: str = "") -> Settlement:
        head = self._head()
        settlement = Settlement(
            effect,
            outcome,
            now(head),
            self._clean(reference, "the reference of an effect"),
            self._clean(reason, "the reason of an outcome"),
        )
        record(self._instance, head, settlement)
        return settlement

    def _head(self) -> Head:
        return self._instance.threads.head(self._thread)

    def _clean(self, text: str, what: str) -> str:
        return one_line(self._instance.without_secrets(text, what), LONGEST)
