"""Recording an agent's turns while it runs, without secrets, and reading them back. The node of each turn is saved in
the private folder at once, so its turns survive the process; it reaches the store with the step or the attempt."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from uwf_git.base import log
from uwf_git.base.errors import AgentFailed, NotFound, Oversized, StoreUnwritable
from uwf_git.base.text import cut, encodable, last_line, one_line, settled, whole_lines
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.kinds import EXTRACT, Detail, TurnRecord, Usage, parse_turn
from uwf_git.format.node import from_blob
from uwf_git.store.private import OUTPUT_END, Activity, AgentReport, Place

if TYPE_CHECKING:
    from uwf_git.base.errors import UwfError
    from uwf_git.config.secrets import Redactor
    from uwf_git.config.stream_redaction import ColouredText, StreamedText
    from uwf_git.engine.kit.context import KeptSession, Reply
    from uwf_git.store.history import Head
    from uwf_git.store.instance import Instance
    from uwf_git.store.mailbox import Remark
    from uwf_git.store.private import EngineOrder, LiveStream

_INTERVAL = 0.2  # seconds
_SOON, _SPACE = 0.01, 0.05  # seconds that a few lines wait for others, and between two passes
_FEW = 4096  # bytes of them
_LINE = 8000  # bytes of a stream that are searched for its last line
_CUT = 20_000  # characters that are kept of a turn that no node takes
_EDGE = (
    4000  # of these, how many are there only so that a secret at the beginning of the others is recognised
)


class _Lines:
    """A command's lines, forwarded without their secrets: a few at once, many a few times a second, since redaction is
    slow. Of more than OUTPUT_END bytes at once, only the end is forwarded."""

    def __init__(self, redactor: Redactor, printing: LiveStream) -> None:
        self._redactor = redactor
        self._printing = printing
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._waiting = b""
        self._clean: ColouredText | None = None
        self._is_cut = self._is_closed = False
        self._passed_on = 0.0

    def add(self, lines: bytes) -> None:
        with self._lock:
            self._waiting += lines
            if len(self._waiting) > OUTPUT_END:
                self._waiting, self._is_cut = self._waiting[-OUTPUT_END:], True
            if self._timer is None and not self._is_closed:
                self._wait(max(_SOON, self._passed_on + _SPACE - time.monotonic()), _FEW)

    def _wait(self, seconds: float, at_most: int) -> None:
        self._timer = threading.Timer(seconds, self._pass_on, (at_most,))
        self._timer.daemon = True
        self._timer.start()

    def close(self) -> None:
        """Forward what waits, and no more after that."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            if self._waiting:
                self._forward()
            self._is_closed = True

    def _pass_on(self, at_most: int) -> None:
        with self._lock:
            if self._is_closed:
                return
            if len(self._waiting) > at_most:
                self._wait(_INTERVAL, 2 * OUTPUT_END)
            else:
                self._forward()

    def _forward(self) -> None:
        from uwf_git.config.stream_redaction import ColouredText

        if self._clean is None or self._is_cut:
            self._clean = ColouredText(self._redactor)
        text = self._clean.feed(sound(settled(self._waiting.decode("utf-8", "replace"), colours=True)))
        if self._is_cut:  # half of it is there only to recognise a secret that begins before
            text = "[…]\n" + text[len(text) // 2 :].partition("\n")[2]
        self._timer, self._waiting, self._is_cut = None, b"", False
        self._passed_on = time.monotonic()
        self._printing.add(text)


class Recorder:
    """Makes the nodes of one run of an agent; `nodes` maps those that the store has to their blobs. Turns are saved at
    once, the rest with the result: see `settle`. `session` is the last one noted, `head` the one
    that the run is made on. `beside` records the same turns and session for another thread."""

    def __init__(
        self, instance: Instance, thread: ThreadId | None = None, agent: str = "", is_put: bool = False
    ) -> None:
        self._instance = instance
        self._is_put = is_put
        self._thread = thread
        self._agent = agent
        self.began = time.monotonic()
        self._known: dict[int, Hash] = {}
        self._noted_as: dict[Hash, tuple[Hash, str, Place | None]] = {}
        self._redacted: Counter[str] = Counter()
        self.nodes: dict[Hash, str] = {}
        self.turns: list[TurnRecord] = []
        self.session: str | None = None
        self.head: Hash | None = None
        self.beside: Recorder | None = None
        self._model = self._line = ""
        self._line_time = 0.0
        self._metered: dict[str, int] = {}  # tokens by stream
        self._saying: list[str] = []  # since the last turn
        self._streamed: StreamedText | None = None
        self._spoken: LiveStream | None = None
        self._printed: dict[str, bytes] = {}
        self._begun: dict[str, bytes] = {}  # lines that may still grow, by stream
        self._printing: _Lines | None = None
        self._noted: set[int] = set()  # of the turns, by identity
        self._told_before = 0  # turns, when an answer was the last time not the last word
        self._is_failing = False
        self._takes = False  # remarks, as was announced
        self._oversized: Oversized | None = None

    def redact(self, value: Any, where: str) -> Any:
        """Return the value without its secrets, which are counted for `where`."""
        clean, count = self._instance.redactor.value(sound(value))
        if count:
            self._redacted[where] += count
        return clean

    def put(self, type_hash: Hash, payload: Any) -> Hash:
        """Make a node, to be written by `store` or with the step or attempt."""
        store = self._instance.store
        node = store.draft(type_hash, payload)
        if node not in store.drafts:
            self.nodes[node] = str(store.blob_of(node))
        return node

    def store(self) -> None:
        """Write the nodes. Raises StoreUnwritable."""
        store = self._instance.store
        drafts = tuple(store.drafts)
        store.store_drafts()
        self.nodes.update((node, str(store.blob_of(node))) for node in drafts)

    def settle(
        self,
        order: EngineOrder,
        step: Hash | None,
        detail: Hash | None = None,
        error: UwfError | None = None,
        calls: Sequence[str] = (),
        synced: bool = True,
    ) -> None:
        """Write the run's result and its nodes into the private folder; `synced` waits for the disk. The nodes reach
        the store together with the ref that leads to them; if the process dies in between, the thread's next step
        takes over. Raises StoreUnwritable."""
        if self._printing is not None:
            self._printing.close()
        if self._thread:
            store = self._instance.store
            report = AgentReport(
                order.head,
                order.role,
                self._agent,
                step,
                detail,
                self._clean(error.message) if error else "",
                self._clean(error.hint) if error else "",
                self.nodes,
                {node: store.draft_file(node).decode() for node in store.drafts},
                error.throttled if isinstance(error, AgentFailed) else None,
                is_put=self._is_put,
                timed_out=isinstance(error, AgentFailed) and error.timed_out,
                calls=tuple(calls),
            )
            self._instance.runs.report(self._thread, report, synced)

    def record(self, turn: TurnRecord) -> None:
        """Save a turn now, also for watchers. If the disk fails it stays in memory, since the agent continues.
        Idempotent."""
        if self.beside is not None:
            self.beside.record(turn)
        if id(turn) in self._noted:
            return
        node = self._turn(turn)
        self._notify(turn)
        try:
            self._note(turn, node)
            self._noted.add(id(turn))
            if turn.role == "assistant":  # noted first, so that its words are never nowhere
                self._renew()
        except StoreUnwritable as error:
            log.error("WEHAE98F", "keeps a turn in memory: {error}", error=error.message, turn=node)
            if not self._is_failing:
                self._instance.warn(f"{error.message}; what {self._agent} says is kept in memory for now")
            self._is_failing = True

    def heard(self, turns: Iterable[TurnRecord], record: TurnRecord | None) -> None:
        """Store the turns of an insufficient answer, and the message to the agent, in the Detail's order."""
        if len(self.turns) == self._told_before:
            for turn in turns:
                self.record(turn)
        if record is not None:
            self.record(record)
        self._told_before = len(self.turns)

    def _note(self, turn: TurnRecord, node: Hash) -> None:
        if self._thread:
            self._model = turn.model or self._model
            store, runs = self._instance.store, self._instance.runs
            place = runs.keep_turn(self._thread, store.draft_file(node)) if node in store.drafts else None
            blob = str(store.blob_of(node))
            self._noted_as[node] = node, blob, place
            runs.note(
                self._thread,
                {
                    "agent": self._agent,
                    "turn": node,
                    "blob": blob,
                    "place": place,
                    "role": turn.role,
                    "model": self._model,
                    "tokens": turn.usage.input + turn.usage.output if turn.usage else 0,
                    "said": self._describe(turn),
                    **({"remark": turn.call} if turn.is_remark else {}),
                },
            )

    def has_remarks(self) -> bool:
        """Return whether a person has said something that this step's agent may take. Announces that it takes it."""
        runs, thread = self._instance.runs, self._thread
        if thread is None:
            return False
        if not self._takes:
            if not runs.is_asked(thread):
                return False
            self._takes = True
            runs.take_remarks(thread, self._clean(self._agent))
        return runs.has_remarks(thread) and bool(self._untaken(thread))

    def take_remarks(self) -> tuple[TurnRecord, ...]:
        """Record what a person has said meanwhile, and return these turns, for the agent to be told at once."""
        if not self.has_remarks() or self._thread is None:
            return ()
        turns = []
        for remark in self._untaken(self._thread):
            if remark.secrets:
                self._redacted["remark"] += remark.secrets
            turns.append(remark.turn)
            self.record(turns[-1])
        return tuple(turns)

    def _untaken(self, thread: ThreadId) -> list[Remark]:
        """Return the remarks that neither this nor another run of the step's agent has taken."""
        remarks = self._instance.mailbox.all(thread)
        taken = {turn.call for turn in self.turns if turn.is_remark}
        taken |= {note.get("remark") for note in self._instance.runs.notes(thread)} if remarks else set()
        return [remark for remark in remarks if remark.id not in taken]

    def with_remarks(self, turns: Sequence[TurnRecord]) -> tuple[TurnRecord, ...]:
        """Return turns with the remarks that the agent took, each at its place among what was recorded."""
        whole, own = list(turns), {turn.call for turn in turns if turn.is_remark}
        for place, turn in enumerate(self.turns):
            if turn.is_remark and turn.call not in own:
                before = {id(item) for item in self.turns[:place]}
                at = max((number for number, item in enumerate(whole, 1) if id(item) in before), default=0)
                whole.insert(at, turn)
        return tuple(whole)

    def hear(self, text: str | None) -> None:
        """Stream a model's words to watchers; None if the stream broke off and is repeated."""
        if self._streamed is None:
            from uwf_git.config.stream_redaction import StreamedText

            self._streamed = StreamedText(self._instance.redactor)
            self._spoken = self._instance.runs.spoken(self._thread) if self._thread else None
        if text is None:
            self._saying.clear()
            self._streamed.end()
            self._renew()
            if self._instance.listener:
                self._instance.listener.dropped()
            return
        self._saying.append(text)
        self._pass_on(self._streamed.feed(text))

    def hush(self) -> None:
        """End the current stream and release withheld text."""
        self._saying.clear()
        if self._streamed is not None:
            self._pass_on(self._streamed.end())

    def _pass_on(self, words: str) -> None:
        if not words:
            return
        if self._spoken is not None:
            self._spoken.add(words)
        if self._instance.listener:
            self._instance.listener.said(words)

    def _renew(self) -> None:
        if self._spoken is not None:
            self._spoken.renew()

    def break_off(self) -> None:
        """Keep the text of an interrupted stream as a turn, and the lines that a command has printed."""
        if self._printing is not None:
            self._printing.close()
        text = "".join(self._saying)
        self.hush()
        if text.strip():
            self.record(TurnRecord("assistant", text, model=self._model or None))

    def _notify(self, turn: TurnRecord) -> None:
        if turn.role == "assistant":
            self.hush()
        elif turn.role == "tool" and turn.call is not None and (listener := self._instance.listener):
            listener.called(
                turn._replace(
                    arguments=self._instance.redactor.value(turn.arguments)[0],
                    result=self._instance.redactor.value(turn.result)[0],
                )
            )

    def noted_as(self, turn: TurnRecord) -> tuple[Hash, str, Place | None] | None:
        """Return the node of a saved turn, its blob's id and its place, else None."""
        node = self._known.get(id(turn))
        return None if node is None else self._noted_as.get(node)

    def take(self, turn: TurnRecord) -> None:
        """Adopt a turn that another recorder stored."""
        self._turn(turn)
        self._noted.add(id(turn))

    def show(
        self,
        data: bytes = b"",
        model: str = "",
        stream: str = "",
        tokens: int = 0,
        whole: bool = False,
    ) -> None:
        """Show watchers a command's output as it is printed, the model being called, or a program's token
        count. Each of several outputs is a `stream`. Only the last whole line is kept, until the step ends:
        half a secret in half a line would not be recognised. If `whole`, watchers see all lines."""
        if not self._thread:
            return
        if whole and data:
            self._show_lines(data, stream)
        line = self._last(data, stream) if data else self._line
        if line != self._line:
            self._line_time = time.time()
        metered = {**self._metered, stream: tokens} if tokens else self._metered
        shown = model or self._model, line, metered
        if shown != (self._model, self._line, self._metered):
            self._model, self._line, self._metered = shown
            self._show()

    def introduce(self) -> None:
        """Tell watchers the agent's own name, which the engine cannot know for a command."""
        if self._thread:
            self._show()

    def _show(self) -> None:
        assert self._thread
        tokens, agent = sum(self._metered.values()), self._clean(self._agent)
        now = Activity(self._clean(self._model), self._line, self._line_time, tokens, agent)
        self._instance.runs.show(self._thread, now)

    def _show_lines(self, data: bytes, stream: str) -> None:
        assert self._thread is not None
        lines, end, begun = (self._begun.get(stream, b"") + data).rpartition(b"\n")
        self._begun[stream] = begun[-_LINE:]
        if self._printing is None:
            self._printing = _Lines(self._instance.redactor, self._instance.runs.printing(self._thread))
        if end:
            self._printing.add(lines + end)

    def _last(self, data: bytes, stream: str) -> str:
        printed = self._printed[stream] = (self._printed.get(stream, b"") + data)[-2 * _LINE :]
        if not (b"\n" in data or b"\r" in data):
            return self._line
        text = whole_lines(printed.decode("utf-8", "replace"))
        return last_line(self._end(text, len(printed) == 2 * _LINE)) or self._line

    def _end(self, text: str, is_cut: bool = False) -> str:
        clean = self._clean(text[-_LINE:])
        return clean[_EDGE:] if is_cut or len(text) > _LINE else clean

    def _clean(self, text: str) -> str:
        return self._instance.redactor.text(sound(text))[0]

    def _describe(self, turn: TurnRecord) -> str:
        if turn.role == "tool" and turn.tool and turn.arguments is not None:
            argument = turn.arguments
            if isinstance(argument, dict) and len(argument) == 1:
                argument = next(iter(argument.values()))
            text = argument if isinstance(argument, str) else json.dumps(argument)
            return one_line(f"{turn.tool} {self._clean(text[:_LINE])}")
        line = last_line(self._end(turn.text))
        return self._clean(one_line(f"{turn.tool} {line}" if turn.tool else line))

    def in_session(self, session: str) -> None:
        """Save the session, so that an interrupted run can be resumed."""
        if session != self.session:
            if self.beside is not None:
                self.beside.in_session(session)
            self.session = session
            log.debug("PSG9617J", "{agent} works in session {session}", agent=self._agent, session=session)
            self._claim(session)
            if self._thread:
                self._instance.runs.note(self._thread, {"agent": self._agent, "session": session})

    def spend(self, usage: Usage | None, turns: Sequence[TurnRecord], cost: float | None) -> None:
        """Note the part of an answer's tokens that its turns don't have, and its cost, which a kill would lose."""
        if usage is not None:
            for turn in turns:
                counted = turn.usage or Usage(0, 0)
                usage = Usage(*(max(0, all_ - own) for all_, own in zip(usage, counted, strict=True)))
        if self._thread and (cost is not None or any(usage or ())):
            self._instance.runs.note(self._thread, {"usage": usage, "cost": cost})

    def read_beside(self, turns: Sequence[TurnRecord]) -> tuple[TurnRecord, ...]:
        """Return this run's extraction turns that are not among its `turns`: requests of the agent and of its
        commands."""
        own = [turn for turn in self.turns if not any(turn is item for item in turns)]
        others = self._noted_by_others()
        return tuple(turn for turn in (*own, *others) if turn.tool == EXTRACT and turn.call is None)

    def take_noted(self) -> tuple[TurnRecord, ...]:
        """Adopt and return turns that other recorders stored in this run."""
        records = self._noted_by_others()
        for turn in records:
            self.take(turn)
        return records

    def _noted_by_others(self) -> tuple[TurnRecord, ...]:
        if not self._thread:
            return ()
        mine = set(self._known.values())
        notes = self._instance.runs.notes(self._thread)
        others = [note for note in notes if "turn" in note and note["turn"] not in mine]
        return noted_turns(self._instance, self._thread, others)

    def _claim(self, session: str) -> None:
        if self._thread:
            sessions = self._instance.sessions
            sessions.claim(self._agent, session, self._thread)
            keeps = self._instance.config.keeps_sessions or sessions.was_kept(self._agent, session)
            if self.head is not None and keeps:
                sessions.note(self._agent, session, self.head)

    def keep_session(
        self, detail: Detail, keep: Callable[[str, Callable[[Hash, Any], Hash]], KeptSession]
    ) -> Detail:
        """Return the detail with the Session node of its session, if sessions are kept. `keep` is the
        conversation's `keep_session`."""
        if not detail.session or not self._instance.config.keeps_sessions:
            return detail
        kept = keep(detail.session, self.put)
        if kept.secrets:
            self._redacted["kept session"] += kept.secrets
        if kept.node is None:
            return detail._replace(notes=(*detail.notes, kept.note)) if kept.note else detail
        if self._thread and self.head is not None:
            self._claim(detail.session)
            self._instance.sessions.note(self._agent, detail.session, self.head, kept.node)
        return detail._replace(kept=kept.node)

    def _turn(self, turn: TurnRecord) -> Hash:
        # By identity: equal turns are two turns, but the same record reported twice is one.
        known = self._known.get(id(turn))
        if known is None:
            self.turns.append(turn)
            where = f"turn {len(self.turns)}"
            try:
                known = self.put(turn.type, self.redact(turn.payload(), where))
            except Oversized as error:
                self._oversized = self._oversized or error
                known = self.put(turn.type, self.redact(_beginning_of(turn).payload(), where))
            self._known[id(turn)] = known
        return known

    def raise_if_cut(self) -> None:
        """Raise Oversized if a turn of this run is larger than a node, which has its beginning then."""
        if self._oversized is not None:
            raise self._oversized

    def detail(
        self,
        said: Detail,
        turns: Sequence[TurnRecord],
        order: EngineOrder,
        context: Hash,
        took: float | None = None,
    ) -> Hash:
        """Return the Detail node of the run, with a node for each turn. `context` is the head that the prompt
        was built from, `took` the seconds."""
        took = time.monotonic() - self.began if took is None else took
        if said.session:
            self._claim(said.session)
        detail = said._replace(
            turns=tuple(map(self._turn, turns)),
            answer=self.redact(said.answer, "answer"),
            session=self.redact(said.session, "session"),
            model=self.redact(said.model, "model"),
            duration_ms=int(took * 1000),
            instruction=self.redact(order.instruction, "instruction"),
            context=context,
            extraction=self.redact(said.extraction, "extraction"),
            notes=tuple(self.redact(said.notes, "notes")),
        )
        detail = detail._replace(redactions=tuple(self._redacted.items()))
        try:
            return self.put(detail.type, detail.payload())
        except Oversized:
            if detail.extraction != "failed":
                raise
            return self.put(detail.type, detail._replace(answer=cut(detail.answer, _CUT)).payload())


class Answers:
    """An agent's answers to an order, saved until the private folder has a report, so that the process after
    a killed one doesn't pay again. Secrets are removed. Nothing is saved for steps of crews' workflows, since
    the agent's files belong to its answer, nor for an agent that is being ended."""

    def __init__(self, instance: Instance, thread: ThreadId, order: EngineOrder, recorder: Recorder) -> None:
        self._instance = instance
        self._thread = thread
        self._order = order
        self._recorder = recorder
        self._left = instance.runs.take_answers(thread, order)
        self._number = 0
        self._is_kept = False
        self.is_synced = False
        """Whether one was saved that survives a power cut."""

    def next(self, ask: Callable[[], Reply], adopt_answer: Callable[[Reply], Reply]) -> Reply:
        """Return the next answer: a saved one, or the agent's, which is then saved."""
        reply, self._is_kept = self._taken(), False
        if reply is not None:
            reply = adopt_answer(reply)
        else:
            reply = ask()
            if not self._is_kept:
                self.keep(reply, synced=False)
        self._number += 1
        return reply

    def keep(self, reply: Reply, synced: bool = True) -> None:
        """Save the agent's answer; failures are ignored. With `synced` it also survives a power cut."""
        runs, number = self._instance.runs, self._number
        self._is_kept = True
        if reply.detail is not None or runs.broken_off(self._thread):
            return
        clean = self._instance.redactor.value
        if reply.turns:
            reply = reply._replace(turns=self._recorder.with_remarks(reply.turns))
        value = reply_value(reply, self._turn)
        try:
            runs.keep_answer(self._thread, self._order, number, clean(sound(value))[0], synced)
            self.is_synced = self.is_synced or synced
        except (StoreUnwritable, TypeError, ValueError) as error:
            log.warning("T4KQ7ZB2", "an answer isn't kept before it is judged: {error}", error=str(error))

    def _turn(self, turn: TurnRecord) -> Any:
        return self._recorder.noted_as(turn) or turn.payload()

    def _taken(self) -> Reply | None:
        if not self._left:
            return None
        reply = kept_reply(self._instance, self._left.pop(0), self._thread)
        if reply is None:
            self._left.clear()
            return None
        log.info("N8XW3RD5", "takes over what an agent answered before it could be judged")
        for turn in reply.turns:
            self._recorder.record(turn)
        return reply


def reply_value(reply: Reply, turn: Callable[[TurnRecord], Any] = TurnRecord.payload) -> dict[str, Any]:
    """Return a reply as JSON has it."""
    return {**reply._asdict(), "turns": [turn(item) for item in reply.turns]}


def kept_reply(instance: Instance, value: Mapping[str, Any], thread: ThreadId | None = None) -> Reply | None:
    """Return the reply that a value of JSON is, None if it is none. Its turns may be noted for the thread."""
    from uwf_git.engine.kit.context import Reply

    def told(turn: Any) -> TurnRecord:
        if isinstance(turn, dict):
            return parse_turn(turn)
        node, blob, *places = turn
        place = next((Place(*item) for item in places if item), None)
        note = {"turn": node, "blob": blob, "place": place}
        return noted_turns(instance, thread, [note])[0]

    try:
        usage = value["usage"]
        return Reply(**value)._replace(
            usage=None if usage is None else Usage(*map(int, usage)),
            turns=tuple(map(told, value["turns"])),
            notes=tuple(value["notes"]),
        )
    except (LookupError, TypeError, ValueError, NotFound):
        return None


def broken_off(turns: Sequence[TurnRecord], session: str | None) -> Detail:
    """Return the Detail of a run without an answer, from its recorded turns."""
    from uwf_git.engine.kit.extract import sum_tokens

    return Detail(
        next((turn.text for turn in reversed(turns) if turn.role == "assistant" and turn.text), ""),
        session=session,
        model=next((turn.model for turn in reversed(turns) if turn.model), None),
        usage=sum_tokens(turn.usage for turn in turns),
        extraction="failed",
    )


def _beginning_of(turn: TurnRecord) -> TurnRecord:
    def cut_json(value: Any) -> Any:
        text = json.dumps(value, ensure_ascii=False)
        return value if len(text) <= _CUT else cut(text, _CUT)

    return turn._replace(
        text=cut(turn.text, _CUT), arguments=cut_json(turn.arguments), result=cut_json(turn.result)
    )


def salvage(instance: Instance, head: Head, order: EngineOrder) -> tuple[str, Hash] | None:
    """Return a killed agent's name and a draft of a Detail node with its turns and unjudged answers, if any."""
    from uwf_git.engine.kit.extract import sum_tokens

    notes = instance.runs.notes(head.thread)
    kept = [kept_reply(instance, answer, head.thread) for answer in instance.runs.answers(head.thread, order)]
    replies = [reply for reply in kept if reply is not None]
    if not notes and not replies:
        return None
    noted = noted_turns(instance, head.thread, notes)
    sessions = [note["session"] for note in notes if "session" in note]
    is_of_calls = bool(notes) and notes[-1]["agent"] != order.name  # each in a session of its own
    session = None if not sessions or (is_of_calls and len(set(sessions)) > 1) else sessions[-1]
    detail, turns = _with_replies(broken_off(noted, session), noted, replies)
    for usage, cost in instance.runs.spending(head.thread):
        detail = detail._replace(usage=sum_tokens((detail.usage, usage)))
        if cost is not None:
            detail = detail._replace(cost=cost + (detail.cost or 0))
    took = sum(turn.duration_ms or 0 for turn in turns) / 1000
    agent = notes[-1]["agent"] if notes else order.name
    return agent, Recorder(instance).detail(detail, turns, order, head.node, took)


def _with_replies(
    detail: Detail, noted: Sequence[TurnRecord], replies: Sequence[Reply]
) -> tuple[Detail, tuple[TurnRecord, ...]]:
    from uwf_git.engine.kit.extract import sum_tokens

    others, unnoted = list(noted), list[TurnRecord]()
    used: list[Usage | None] = []
    for reply in replies:
        whole = TurnRecord("assistant", reply.text, usage=reply.usage)
        turns = reply.turns or (parse_turn(whole.payload()),)
        for turn in turns:
            if turn in others:
                others.remove(turn)
            else:
                unnoted.append(turn)
        used.append(reply.usage or sum_tokens(turn.usage for turn in turns))
    costs = [reply.cost for reply in replies if reply.cost is not None]
    told = detail._replace(
        answer=detail.answer
        if not replies or any(turn.role != "user" for turn in others)
        else replies[-1].text,
        session=detail.session or next((item.session for item in reversed(replies) if item.session), None),
        model=detail.model or next((item.model for item in reversed(replies) if item.model), None),
        usage=sum_tokens([*used, *(turn.usage for turn in others)]),
        cost=sum(costs) if costs else None,
        notes=tuple(note for reply in replies for note in reply.notes),
    )
    return told, (*noted, *unnoted)


def noted_turns(
    instance: Instance, thread: ThreadId | None, notes: Iterable[Mapping[str, Any]]
) -> tuple[TurnRecord, ...]:
    """Return the turns named by the notes of a thread's run, except those that are gone. Nodes that the store has are
    indexed again if the index was lost."""
    from uwf_git.git.repository import Oid

    store = instance.store
    turns = []
    for note in notes:
        if "turn" not in note:
            continue
        if thread is not None and note["place"] is not None:
            content = instance.runs.kept_turn(thread, note["blob"], note["place"])
            if content is not None:
                turns.append(parse_turn(from_blob(content, note["turn"]).payload))
                continue
        blob = Oid(hex=note["blob"])
        if store.index.node(note["turn"]) is None and store.repository.has(blob):
            store.adopt([(note["turn"], blob)])
        with suppress(NotFound):  # only a power cut or the end of the run takes one away
            turns.append(parse_turn(store.get(note["turn"]).payload))
    return tuple(turns)


def sound(value: Any) -> Any:
    """Return a JSON value with `?` in place of each lone surrogate."""
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, list | tuple):
        return [sound(item) for item in value]
    if isinstance(value, dict):
        return {sound(key): sound(item) for key, item in value.items()}
    return value
