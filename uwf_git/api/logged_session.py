"""Sessions that a program has logged, as threads: a workflow with one role, a step for all that the agent did about a
message of the person, and a step of `$USER` for each further message. The role waits for the next one, as its program
does, so the thread can be answered.

Ids and times follow from the log, so storing it again adds only what is new.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.base.errors import Invalid, NotFound, Oversized
from uwf_git.base.text import one_line, shortened
from uwf_git.engine.kit.record import sound
from uwf_git.format.ids import Hash, ThreadId, derived_id
from uwf_git.format.kinds import Detail, Step, TurnRecord, Usage
from uwf_git.format.kinds import Start as StartNode
from uwf_git.format.statuses import SUSPEND
from uwf_git.format.types import ANSWER, PERSON, QUESTION, STEPNODE, TEXT, USER
from uwf_git.git.objects import Oid, Person, Stamp
from uwf_git.store import layout
from uwf_git.store.history import Head
from uwf_git.store.new_record import STARTS, THREADS, NewRecord, new_step

if TYPE_CHECKING:
    from uwf_git.store.instance import Instance
    from uwf_git.workflow.compile import Compiled

ROLE = "agent"
WORKFLOW = f"""\
version: 1
name: session
description: A person and an agent who work in a conversation.
roles:
  {ROLE}:
    description: Does what the person says.
    systemPrompt: >
      Do what the person says. Ask what is next when you have done it, or when you need to know more. You have done
      all of it when the person says so.
    outputSchema:
      type: object
      properties:
        summary: {{ type: string, description: What was done in the whole conversation, in a line. }}
      required: [summary]
graph:
  $START:
    new: {{ role: {ROLE} }}
    resume: {{ role: {ROLE} }}
  {ROLE}: [{{ role: $END }}]
"""
IMPORTED = "imported"
"""The extraction of a step that a program has logged."""
NEW, GROWN, HERE, WENT_ON = "new", "grown", "here", "went on"

_PART = 200_000  # characters of an original in a node
_SHOWN = 300  # characters of an answer in the question
_NOBODY = Person("uwf", "uwf@localhost")


class LoggedExchange(NamedTuple):
    """A person's message, and what the agent did about it. Times are in Unix milliseconds, `cost` is in US dollars.
    `source` is what the log calls it, and `original` what the log has of it as JSON, if that is more than there is a
    place for."""

    prompt: str
    began: int
    ended: int
    answer: str
    turns: Sequence[TurnRecord] = ()
    model: str | None = None
    usage: Usage | None = None
    cost: float | None = None
    notes: tuple[str, ...] = ()
    source: str | None = None
    original: Any = None


class LoggedSession(NamedTuple):
    """A session of `agent`, as steps are credited, with one exchange at least. `began`, in Unix milliseconds, and
    `session` make the thread's id; the agent worked in `folder`."""

    agent: str
    session: str
    began: int
    exchanges: Sequence[LoggedExchange]
    folder: Path | None = None

    @property
    def thread(self) -> ThreadId:
        return derived_id(self.began, f"uwf session {self.agent} {self.session}")


def logged_original(instance: Instance, detail: Detail) -> Any:
    """Return what the log has of an exchange, None if it was not kept."""
    texts = [instance.store.get(node) for node in detail.nodes]
    if detail.extraction != IMPORTED or not texts or any(text.type != TEXT for text in texts):
        return None
    return json.loads("".join(text.payload for text in texts))


class StoredSession(NamedTuple):
    """What became of a session. `state` is NEW, GROWN, HERE or, if the thread was continued by uwf or has ended here,
    WENT_ON; `steps` counts the agent's, `added` those that were added now, `secrets` what was removed."""

    thread: ThreadId
    state: str
    steps: int
    added: int
    secrets: int = 0


_WORDS = {NEW: "new", GROWN: "goes on", HERE: "here already", WENT_ON: "went on here, not changed"}


def describe_stored(value: Mapping[str, Any]) -> str:
    """Return what became of a session, from the JSON of a StoredSession."""
    secrets = f"; secrets removed: {value['secrets']}" if value["secrets"] else ""
    return _WORDS[value["state"]] + secrets


def session_state(instance: Instance, thread: ThreadId) -> tuple[Head | None, int, bool]:
    """Return the head of a session's thread, None if it is not here, how many exchanges it has, and whether it went
    on by itself. Raises Invalid if it was removed here."""
    if instance.store.repository.ref(layout.REMOVED + thread) is not None:
        raise Invalid(f"thread {thread} was removed here", f"uwf thread restore {thread}")
    try:
        head = instance.threads.head(thread)
    except NotFound:
        return None, 0, False
    steps = instance.threads.history(head).steps
    imported = 0
    for step in steps:
        detail = instance.store.detail(step.detail)
        imported += step.role == ROLE and detail is not None and detail.extraction == IMPORTED
    return head, imported, head.archive is not None or len(steps) != max(0, 2 * imported - 1)


def store_session(instance: Instance, logged: LoggedSession) -> StoredSession:
    """Store a session as a thread, or add to the one that it is already. Secrets are removed. Makes or moves
    `refs/uwf/threads/<id>`. Raises Invalid, HeadMoved, what the trust policy forbids, and what writing raises."""
    head, done, went_on = session_state(instance, logged.thread)
    if head is not None and (went_on or len(logged.exchanges) <= done):
        return StoredSession(logged.thread, WENT_ON if went_on else HERE, done, 0)
    store = instance.store
    store.sync()
    with store.repository.in_bulk() as bulk:
        with store.registering():
            writer = _Writer(instance, logged, head)
            for exchange in logged.exchanges[done:]:
                writer.add(exchange)
            bulk.store()
        ref = layout.THREADS + logged.thread
        if head is None:
            store.repository.create_ref(ref, writer.head.commit)
        else:
            store.repository.move_ref(ref, head.commit, writer.head.commit)
    store.sync()
    instance.sessions.claim(logged.agent, logged.session, logged.thread)
    if logged.folder is not None and logged.folder.is_dir():
        instance.folders.remember(logged.thread, logged.folder)
    added = len(logged.exchanges) - done
    return StoredSession(logged.thread, NEW if done == 0 else GROWN, done + added, added, writer.secrets)


def compiled() -> Compiled:
    from uwf_git.workflow.compile import compile_source
    from uwf_git.workflow.source import parse_source

    return compile_source(parse_source(WORKFLOW.encode("utf-8"), "session.yaml"))


class _Writer:
    """Writes a session's nodes and commits; touches no ref. `head` is None for a new thread."""

    def __init__(self, instance: Instance, logged: LoggedSession, head: Head | None) -> None:
        self._instance = instance
        self._store = instance.store
        self._logged = logged
        self._person = instance.store.repository.user
        self.secrets = 0
        self._counts: dict[str, int] = {}
        self._begins = head is None
        workflow = compiled()
        self._store.before_record(new_step(workflow.workflow, ROLE, logged.agent))
        self.head = self._begun(workflow) if head is None else head
        history = instance.threads.history(self.head)
        self._start, self._prev = history.start_hash, history.prev
        self._known = {step.hash for step in history.steps}

    def _begun(self, workflow: Compiled) -> Head:
        first = self._logged.exchanges[0]
        version = self._instance.registry.write(workflow, [], Stamp(_NOBODY, 0))
        self._store.before_record(NewRecord(THREADS, workflow.workflow.name, (STARTS,), version))
        type_, payload = StartNode(workflow.hash, self._text(first.prompt, "prompt")).typed_payload()
        node = self._store.put(type_, payload, first.began)
        projects = self._instance.threads.projects
        project = projects.label_at(self._logged.folder) if self._logged.folder is not None else ""
        thread, stamp = self._logged.thread, Stamp(self._person, first.began // 1000)
        commit = self._instance.threads.begin(version, node, thread, stamp, project=project)
        return Head(thread, commit, self._store.index_commit(commit), None)

    def add(self, exchange: LoggedExchange) -> None:
        if not self._begins:
            self._add_message(exchange)
        self._begins = False
        when = exchange.ended
        detail = Detail(
            answer=self._text(exchange.answer, "answer"),
            turns=tuple(self._turn(turn, number, when) for number, turn in enumerate(exchange.turns, 1)),
            session=self._logged.session,
            model=exchange.model,
            usage=exchange.usage,
            duration_ms=max(0, exchange.ended - exchange.began),
            context=self.head.node,
            extraction=IMPORTED,
            cost=exchange.cost,
            notes=tuple(self._text(note, "notes") for note in exchange.notes),
            source=exchange.source,
            nodes=self._originals(exchange),
        )
        question = shortened(one_line(detail.answer), _SHOWN) or "What is next?"
        output = self._store.put(QUESTION, {"$status": SUSPEND, "question": question}, when)
        self._append(ROLE, self._logged.agent, output, detail, when)

    def _add_message(self, exchange: LoggedExchange) -> None:
        text = self._text(exchange.prompt, "answer")
        output = self._store.put(ANSWER, {"answer": text}, exchange.began)
        self._append(USER, PERSON, output, Detail(text, context=self.head.node), exchange.began)

    def _append(self, role: str, agent: str, output: Hash, detail: Detail, when: int) -> None:
        detail = detail._replace(redactions=tuple(self._counts.items()))
        self._counts = {}
        node = self._store.put(detail.type, detail.payload(), when)
        step = self._store.put(
            STEPNODE, Step(self._start, self._prev, role, output, node, agent).payload(), when
        )
        tree = self._store.repository.root(self.head.commit)
        stop = {*self._instance.threads.workflow_nodes(tree), *self._known, self._start}
        files: dict[str, bytes | Oid] = self._store.files(step, stop)
        stamp = Stamp(self._person, when // 1000)
        self.head = self._instance.threads.extend(self.head, step, files, stamp, None, detail.extraction)
        self._prev = step
        self._known.add(step)

    def _turn(self, turn: TurnRecord, number: int, when: int) -> Hash:
        where = f"turn {number}"
        try:
            return self._store.put(turn.type, self._clean(turn.payload(), where), when)
        except (Invalid, Oversized) as error:  # numbers that JSON has and nodes don't, megabytes of output
            text = f"{shortened(turn.text, _PART)}\n\n[not imported: {error.message}]".strip()
            turn = turn._replace(text=text, arguments=None, result=None)
            return self._store.put(turn.type, self._clean(turn.payload(), where), when)

    def _originals(self, exchange: LoggedExchange) -> tuple[Hash, ...]:
        if exchange.original is None:
            return ()
        text = json.dumps(self._clean(exchange.original, "original"), ensure_ascii=False)
        parts = (text[at : at + _PART] for at in range(0, len(text), _PART))
        return tuple(self._store.put(TEXT, part, exchange.ended) for part in parts)

    def _text(self, text: str, where: str) -> str:
        return str(self._clean(text, where))

    def _clean(self, value: Any, where: str) -> Any:
        clean, count = self._instance.redactor.value(sound(value))
        if count:
            self._counts[where] = self._counts.get(where, 0) + count
            self.secrets += count
        return clean
