"""Writing down what an agent says, as it says it, with the secrets taken out.

A turn becomes a node at once, and a line in the private folder names it: so a step can be watched while it
runs, and what was said outlives the process that heard it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.values.ids import Hash, ThreadId
from uwf_git.values.kinds import TurnRecord, parse_detail
from uwf_git.values.kinds import Usage as Tokens
from uwf_git.values.types import DETAIL, TURN

if TYPE_CHECKING:
    from uwf_git.store.opened import Instance
    from uwf_git.store.private import Order
    from uwf_git.store.threads import Head, Threads


class Said(NamedTuple):
    """What a detail is made of. `extraction` is how the output was found, or "failed"."""

    answer: str
    turns: Sequence[TurnRecord]
    session: str | None
    model: str | None
    usage: Tokens | None
    extraction: str
    cost: float | None = None
    notes: tuple[str, ...] = ()
    budget: Mapping[str, float] | None = None


class Recorder:
    """Puts the nodes of one run of an agent, and remembers them. `turns` are those recorded so far."""

    def __init__(self, instance: Instance, thread: ThreadId | None = None, agent: str = "") -> None:
        self._instance = instance
        self._thread = thread
        self._agent = agent
        self._known: dict[int, Hash] = {}
        self._redacted: Counter[str] = Counter()
        self.nodes: dict[Hash, str] = {}
        self.turns: list[TurnRecord] = []
        self.session: str | None = None

    def redact(self, value: Any, where: str) -> Any:
        """The value without secrets; how many stood where is counted."""
        clean, count = self._instance.redactor.value(sound(value))
        if count:
            self._redacted[where] += count
        return clean

    def put(self, type_hash: Hash, payload: Any) -> Hash:
        """Puts a node, and remembers it with its blob."""
        store = self._instance.store
        node = store.put(type_hash, payload)
        self.nodes[node] = str(store.blob_of(node))
        return node

    def record(self, turn: TurnRecord) -> None:
        """Writes a turn now, and tells whoever watches."""
        node = self._turn(turn)
        if self._thread:
            self._instance.runs.note(
                self._thread, {"agent": self._agent, "turn": node, "blob": self.nodes[node]}
            )

    def in_session(self, session: str) -> None:
        """Notes the session as soon as it is known: a run that is broken off can then be carried on."""
        if session != self.session:
            self.session = session
            self._claim(session)
            if self._thread:
                self._instance.runs.note(self._thread, {"agent": self._agent, "session": session})

    def _claim(self, session: str) -> None:
        if self._thread:
            self._instance.sessions.claim(self._agent, session, self._thread)

    def _turn(self, turn: TurnRecord) -> Hash:
        # By identity: the same words said twice are two turns, the same record told twice is one.
        known = self._known.get(id(turn))
        if known is None:
            self.turns.append(turn)
            where = f"turn {len(self.turns)}"
            known = self._known[id(turn)] = self.put(TURN, self.redact(_payload(turn), where))
        return known

    def detail(self, said: Said, order: Order, context: Hash, took: float) -> Hash:
        """The Detail node of a run that took so many seconds, with a node for each turn. `context` is the
        head its prompt was built from."""
        if said.session:
            self._claim(said.session)
        turns = [self._turn(turn) for turn in said.turns]
        payload: dict[str, Any] = {
            "answer": self.redact(said.answer, "answer"),
            "turns": turns,
            "session": self.redact(said.session, "session"),
            "model": self.redact(said.model, "model"),
            "usage": said.usage._asdict() if said.usage else None,
            "durationMs": int(took * 1000),
            "instruction": self.redact(order.instruction, "instruction"),
            "context": context,
            "extraction": self.redact(said.extraction, "extraction"),
        }
        if said.cost is not None:
            payload["cost"] = said.cost
        if said.notes:
            payload["notes"] = self.redact(list(said.notes), "notes")
        if said.budget:
            payload["budget"] = dict(said.budget)
        if self._redacted:
            counted = self._redacted.items()
            payload["redactions"] = [{"where": where, "count": count} for where, count in counted]
        return self.put(DETAIL, payload)


class Clock:
    """How long a run takes, in seconds."""

    def __init__(self) -> None:
        self.began = time.monotonic()

    @property
    def took(self) -> float:
        """Seconds so far."""
        return time.monotonic() - self.began


def broken_off(turns: Sequence[TurnRecord], session: str | None) -> Said:
    """What is known of a run that came to no answer: the turns it had recorded."""
    from uwf_git.kit.extract import sum_tokens

    answer = next((turn.text for turn in reversed(turns) if turn.role == "assistant"), "")
    model = next((turn.model for turn in reversed(turns) if turn.model), None)
    return Said(answer, turns, session, model, sum_tokens(turn.usage for turn in turns), "failed")


def salvage(instance: Instance, head: Head, order: Order) -> tuple[str, Hash] | None:
    """What an agent recorded before it, or the process it ran in, was ended: the agent's name, and a detail
    that holds the turns. None where nothing was recorded."""
    notes = instance.runs.notes(head.thread)
    if not notes:
        return None
    turns = noted_turns(instance, notes)
    session = next((note["session"] for note in reversed(notes) if "session" in note), None)
    took = sum(turn.duration_ms or 0 for turn in turns) / 1000
    detail = Recorder(instance).detail(broken_off(turns, session), order, head.node, took)
    return notes[-1]["agent"], detail


def noted_turns(instance: Instance, notes: Iterable[Mapping[str, Any]]) -> tuple[TurnRecord, ...]:
    """The turns that the notes of a run name; the index may have been lost since."""
    from uwf_git.git.repository import Oid

    store = instance.store
    turns = []
    for note in notes:
        if "turn" not in note:
            continue
        blob = Oid(hex=note["blob"])
        if store.index.node(note["turn"]) is None and store.repository.has(blob):
            store.adopt(note["turn"], blob)
        turns.append(read_turn(store.get(note["turn"]).payload))
    return tuple(turns)


def turns_in(threads: Threads, detail: Mapping[str, Any]) -> tuple[TurnRecord, ...]:
    """The turns that a Detail's payload names."""
    return threads.turns(parse_detail(detail))


def read_turn(payload: Any) -> TurnRecord:
    """The value of a Turn node's payload, of either version."""
    usage = payload.get("usage")
    return TurnRecord(
        payload["role"],
        payload["text"],
        payload.get("tool"),
        payload.get("arguments"),
        payload.get("result"),
        Tokens(**usage) if usage else None,
        payload.get("durationMs"),
        payload.get("model"),
        payload.get("call"),
        payload.get("failed", False),
    )


def _payload(turn: TurnRecord) -> dict[str, Any]:
    payload: dict[str, Any] = {"role": turn.role, "text": turn.text}
    if turn.tool is not None:
        payload |= {"tool": turn.tool, "arguments": turn.arguments, "result": turn.result}
    if turn.usage is not None:
        payload["usage"] = turn.usage._asdict()
    if turn.duration_ms is not None:
        payload["durationMs"] = turn.duration_ms
    for key, text in (("model", turn.model), ("call", turn.call)):
        if text is not None:
            payload[key] = text
    if turn.failed:
        payload["failed"] = True
    return payload


def sound(value: Any) -> Any:
    """A JSON value with lone surrogates, which no encoding of Unicode has, replaced."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, list | tuple):
        return [sound(item) for item in value]
    if isinstance(value, dict):
        return {sound(key): sound(item) for key, item in value.items()}
    return value
