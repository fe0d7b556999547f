"""A thread as an OpenTelemetry trace: spans of the generative AI conventions in OTLP JSON.

    invoke_workflow NAME                  the thread
      invoke_agent ROLE                   a step, or a failed attempt at it (status: error)
        chat MODEL                        a turn of the model
        execute_tool NAME                 a tool call
        invoke_workflow NAME              a sub-workflow, in the same form; within a fork's step, a branch

Everything, including ids, derives from the thread, so every export is the same. Times are commits', since
shared nodes have the first thread's. Details have durations but not start times, so turns within a step are
placed one after another. Texts are included only on request.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple

from uwf_git import __version__
from uwf_git.ext.traces.live import Note
from uwf_git.plugin import (
    DEEPEST,
    EXTRACT,
    FORK,
    JOIN,
    USER,
    CommitRow,
    Detail,
    Hash,
    Head,
    Instance,
    NotFound,
    Oid,
    Step,
    ThreadId,
    Tokens,
    TurnRecord,
    Workflow,
    ancestry,
    begun_at,
    extracting_model,
    is_kind,
    remark_in,
    tokens_in,
    tokens_of_step,
)

SCHEMA_URL = "https://opentelemetry.io/schemas/1.41.1"
"""The version of the semantic conventions from which the names of spans and attributes are taken: the last that has the
generative AI ones itself. Later ones have the same names, as moved to conventions of their own."""

_INTERNAL, _CLIENT = 1, 3
_ERROR = 2
_MS = 1_000_000  # nanoseconds
_SAME = 1  # seconds between a node and its commit; a node made longer ago was another thread's first

_PROVIDERS = (
    ("claude", "anthropic"), ("gpt", "openai"), ("chatgpt", "openai"), ("o1", "openai"), ("o3", "openai"),
    ("o4", "openai"), ("gemini", "gcp.gen_ai"), ("mistral", "mistral_ai"), ("codestral", "mistral_ai"),
    ("deepseek", "deepseek"), ("grok", "x_ai"), ("command", "cohere"), ("kimi", "moonshot_ai"),
)  # fmt: skip


class Span(NamedTuple):
    """A span without its place in a trace. Times are in Unix nanoseconds; `key` is unique among siblings."""

    key: str
    name: str
    kind: int
    begin: int
    end: int
    attributes: Mapping[str, Any]
    error: str | None = None
    events: tuple[tuple[int, str, Mapping[str, Any]], ...] = ()
    children: tuple[Span, ...] = ()


def export(instance: Instance, head: Head, content: bool = False) -> dict[str, Any]:
    """Return a thread's trace as an OTLP ExportTraceServiceRequest. `content` includes prompts, answers, tool
    arguments and results. Raises what reading raises."""
    root = _Spans(instance, content).thread(head)
    spans: list[dict[str, Any]] = []
    _flatten(root, trace_id(head.thread), "", spans)
    return request(spans)


def request(spans: list[dict[str, Any]], service: Mapping[str, str] = {}) -> dict[str, Any]:
    """Return spans as an OTLP ExportTraceServiceRequest. `service` are attributes of the resource."""
    scope = {"scope": {"name": "uwf", "version": __version__}, "spans": spans, "schemaUrl": SCHEMA_URL}
    attributes = {"service.name": "uwf", "service.version": __version__, **service}
    resource = {"resource": {"attributes": _attributes(attributes)}, "schemaUrl": SCHEMA_URL}
    return {"resourceSpans": [{**resource, "scopeSpans": [scope]}]}


def trace_id(thread: str) -> str:
    return sha256(f"uwf trace {thread}".encode()).hexdigest()[:32]


def span_id(trace: str, parent: str, key: str) -> str:
    """Return the id of a span by its key; the key of a thread's is its id, of a step's its StepNode."""
    return sha256(f"{trace} {parent} {key}".encode()).hexdigest()[:16]


def spans_of_note(instance: Instance, note: Note, content: bool = False) -> list[dict[str, Any]]:
    """Return the spans of what a step has added, with the ids that `export` gives them. A fork's is among those of its
    join, since it lasts until then. Raises what reading raises."""
    head = instance.threads.head(ThreadId(note.thread))
    trace, parent = trace_id(note.above[0][0] if note.above else note.thread), ""
    for thread, fork in note.above:
        parent = span_id(trace, span_id(trace, parent, thread), fork)
    spans: list[dict[str, Any]] = []
    maker, root = _Spans(instance, content), span_id(trace, parent, note.thread)
    for span in maker.added(head, note):
        _flatten(span, trace, root, spans)
    if note.ended:
        _flatten(maker.thread(head)._replace(children=()), trace, parent, spans)
    return spans


def _flatten(span: Span, trace: str, parent: str, into: list[dict[str, Any]]) -> None:
    own = span_id(trace, parent, span.key)
    value: dict[str, Any] = {
        "traceId": trace,
        "spanId": own,
        **({"parentSpanId": parent} if parent else {}),
        "name": span.name,
        "kind": span.kind,
        "startTimeUnixNano": str(span.begin),
        "endTimeUnixNano": str(span.end),
        "attributes": _attributes(span.attributes),
    }
    if span.events:
        value["events"] = [
            {"timeUnixNano": str(when), "name": name, "attributes": _attributes(attributes)}
            for when, name, attributes in span.events
        ]
    value["status"] = {} if span.error is None else {"code": _ERROR, "message": span.error}
    into.append(value)
    for child in span.children:
        _flatten(child, trace, own, into)


def _attributes(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [_attribute(key, value) for key, value in values.items() if value is not None]


@lru_cache(1024, typed=True)
def _attribute(key: str, value: Any) -> dict[str, Any]:
    """Cached, since most of thousands are equal."""
    return {"key": key, "value": _any(value)}


def _any(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    return {"stringValue": value}


class _Done(NamedTuple):
    """A step or attempt `node`; `when` in Unix nanoseconds, `merged` the sub-workflow's last commit, `commit` that of a
    fork."""

    node: Hash
    role: str
    agent: str
    detail: Hash | None
    when: int
    merged: bytes | None = None
    commit: Oid | None = None


class _Spans:
    """Makes spans of a store's threads."""

    def __init__(self, instance: Instance, content: bool) -> None:
        self._instance = instance
        self._store = instance.store
        self._content = content

    def thread(self, head: Head, depth: int = 0) -> Span:
        return self._run(head.node, head.commit, head.thread, self._failed(head, 0, None, depth), depth)

    def added(self, head: Head, note: Note) -> Iterator[Span]:
        """Yield the spans of the steps and attempts of a note."""
        yield from self._failed(head, note.tried, note.tries, 0)
        workflow, rows = self._workflow(Hash(note.until)), dict[Hash, CommitRow]()
        forks, is_new = 0, True
        past = list(self._instance.threads.past(Hash(note.until)))
        for at, step, _ in past:
            is_new = is_new and at != note.since
            if not is_new and not forks:
                return
            if step.role == USER or (step.role == FORK and not forks) or not (is_new or step.role == FORK):
                continue
            if not rows:
                rows = {row.node: row for row in self._rows(head.commit, past[-1].step.start)}
            span = self._step(workflow, at, step, rows.get(at), 0)
            forks += (step.role == JOIN) - (step.role == FORK)
            yield span._replace(children=()) if step.role == FORK else span

    def _failed(self, head: Head, after: int, until: int | None, depth: int) -> list[Span]:
        """Return the spans of a thread's failed attempts, of those with the numbers after one and up to another."""
        workflow = self._workflow(head.node)
        return [
            self._agent(
                workflow,
                _Done(
                    attempt.hash,
                    attempt.role,
                    attempt.agent,
                    attempt.detail,
                    self._time(attempt.hash, attempt.time),
                ),
                attempt.error,
                depth,
            )._replace(key=f"attempt {attempt.number}")
            for attempt in self._instance.attempts.all(head.thread)[after:until]
        ]

    def _step(self, workflow: Workflow, at: Hash, step: Step, row: CommitRow | None, depth: int) -> Span:
        when = self._time(at, row.time if row else None)
        merged, fork = (row.merged, Oid(raw=row.oid)) if row else (None, None)
        return self._agent(
            workflow, _Done(at, step.role, step.agent, step.detail, when, merged, fork), None, depth
        )

    def _branches(self, fork: Oid, depth: int) -> Iterator[Span]:
        """Yield the spans of a fork's branches, by index, without those that are not here."""
        for thread in begun_at(self._instance, self._store.index_commit(fork)):
            with suppress(NotFound):
                yield self.thread(self._instance.threads.head(thread), depth)

    def _run(self, last: Hash, commit: Oid | None, thread: str, besides: Sequence[Span], depth: int) -> Span:
        """Return the span of a run up to a node. `commit` and `thread` may be unknown; `besides` are other
        spans; `depth` counts enclosing sub-workflows."""
        workflow = self._workflow(last)
        children = list(besides)
        events: list[tuple[int, str, Mapping[str, Any]]] = []
        steps = list(self._instance.threads.past(last))
        start = steps[-1].step.start if steps else last
        rows = {row.node: row for row in self._rows(commit, start)}
        for at, step, _ in steps:
            row = rows.get(at)
            if step.role == USER:
                when = self._time(at, row.time if row else None)
                remarks = remark_in(USER, self._store.get(step.output).payload) is not None
                events.append((when, "uwf.remark" if remarks else "uwf.answer", {"uwf.step": at}))
                continue
            children.append(self._step(workflow, at, step, row, depth))
        began = self._time(start, rows[start].time if start in rows else None)
        attributes = {
            "gen_ai.operation.name": "invoke_workflow",
            "gen_ai.workflow.name": workflow.name,
            "gen_ai.conversation.id": thread or None,
            "uwf.thread": thread or None,
            "uwf.start": start,
            "uwf.steps": len(steps),
        }
        if self._content:
            attributes["gen_ai.input.messages"] = _messages("user", self._store.start(start).prompt)
        children.sort(key=lambda span: (span.begin, span.key))
        begin = min((began, *(span.begin for span in children)))
        end = max((begin, *(span.end for span in children), *(when for when, _, _ in events)))
        name = f"invoke_workflow {workflow.name}"
        key = thread or start  # that it has from its beginning on
        return Span(
            key, name, _INTERNAL, begin, end, attributes, None, tuple(sorted(events)), tuple(children)
        )

    def _workflow(self, node: Hash) -> Workflow:
        start = self._store.step(node).start if is_kind(self._store.get(node).type, "step") else node
        return self._instance.registry.workflow(self._store.start(start).workflow)

    def _rows(self, commit: Oid | None, start: Hash) -> Iterator[CommitRow]:
        for row in ancestry(self._store, commit) if commit is not None else ():
            yield row
            if row.node == start:
                return

    def _time(self, node: Hash, committed: int | None) -> int:
        """Return a time in nanoseconds: the commit's second, refined by the node unless that is older."""
        timestamp = self._store.get(node).timestamp
        if committed is None or abs(timestamp // 1000 - committed) <= _SAME:
            return timestamp * _MS
        return committed * 1000 * _MS

    def _agent(self, workflow: Workflow, done: _Done, error: str | None, depth: int = 0) -> Span:
        node, role, agent, detail, end, merged, commit = done
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": role,
            "gen_ai.agent.description": workflow.roles[role].description if role in workflow.roles else None,
            "uwf.agent": agent,
            "uwf.step" if error is None else "uwf.attempt": node,
            "error.type": None if error is None else "agent_failed",
        }
        begin, children = end, ()  # type: int, tuple[Span, ...]
        if detail is not None and is_kind(self._store.get(detail).type, "step"):
            if depth < DEEPEST:
                child = self._run(detail, Oid(raw=merged) if merged else None, "", (), depth + 1)
                begin, end, children = min(begin, child.begin), max(end, child.end), (child,)
        elif detail is not None and (record := self._instance.store.detail(detail)) is not None:
            begin = end - record.duration_ms * _MS
            turns = self._instance.store.turns(record)
            attributes |= _detail(record, turns)
            if self._content:
                attributes["gen_ai.output.messages"] = _messages("assistant", record.answer)
            children = self._turns(record.model, turns, begin, end)
        if role == FORK and commit is not None and depth < DEEPEST:
            children = tuple(self._branches(commit, depth + 1))
            end = max((end, *(child.end for child in children)))
        attributes.setdefault("gen_ai.provider.name", _provider(None))
        name = f"invoke_agent {role}"
        return Span(node, name, _INTERNAL, begin, end, attributes, error, (), children)

    def _turns(
        self, model: str | None, turns: Sequence[TurnRecord], begin: int, end: int
    ) -> tuple[Span, ...]:
        """Return spans of turns in sequence, compressed if they exceed the step, as parallel ones do."""
        shown = [(number, turn) for number, turn in enumerate(turns) if _is_shown(turn)]
        took = sum(turn.duration_ms or 0 for _, turn in shown) * _MS
        share = min(1.0, (end - begin) / took) if took else 0.0
        spans: list[Span] = []
        at = begin
        for number, turn in shown:
            until = min(end, at + int((turn.duration_ms or 0) * _MS * share))
            spans.append(self._turn(str(number), turn, model, at, until))
            at = until
        return tuple(spans)

    def _turn(self, key: str, turn: TurnRecord, model: str | None, begin: int, end: int) -> Span:
        if turn.role == "tool" and (turn.tool != EXTRACT or turn.call is not None):
            tool = turn.tool or "unknown"
            attributes = {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": tool,
                "gen_ai.tool.call.id": turn.call,
                "gen_ai.tool.type": "function",
                "error.type": "_OTHER" if turn.failed else None,
            }
            if self._content:
                attributes["gen_ai.tool.call.arguments"] = _json(turn.arguments)
                attributes["gen_ai.tool.call.result"] = _json(turn.result)
            error = "the tool failed" if turn.failed else None
            return Span(key, f"execute_tool {tool}", _INTERNAL, begin, end, attributes, error)
        model = turn.model or (extracting_model(turn) if turn.tool == EXTRACT else model)
        attributes = {
            "gen_ai.operation.name": "chat",
            **_model(model, tokens_in(turn.usage)),
        }
        if self._content:
            attributes["gen_ai.output.messages"] = _messages("assistant", turn.text)
        return Span(key, f"chat {model}" if model else "chat", _CLIENT, begin, end, attributes)


def _is_shown(turn: TurnRecord) -> bool:
    return turn.role == "tool" or (turn.role == "assistant" and bool(turn.usage or turn.model))


def _detail(detail: Detail, turns: Sequence[TurnRecord]) -> dict[str, Any]:
    tokens = tokens_of_step(detail, turns)
    return {
        **_model(detail.model, tokens, detail.session),
        "uwf.extraction": detail.extraction,
        "uwf.cost.usd": float(detail.cost) if detail.cost else None,
    }


def _model(model: str | None, tokens: Tokens | None, session: str | None = None) -> dict[str, Any]:
    return {
        "gen_ai.provider.name": _provider(model),
        "gen_ai.request.model": model,
        "gen_ai.response.model": model,
        "gen_ai.conversation.id": session,
        "gen_ai.usage.input_tokens": tokens.input if tokens else None,
        "gen_ai.usage.output_tokens": tokens.output if tokens else None,
        "gen_ai.usage.cache_read.input_tokens": tokens.cached if tokens else None,
        "gen_ai.usage.cache_creation.input_tokens": (tokens.written or None) if tokens else None,
    }


def _provider(model: str | None) -> str:
    name = (model or "").rpartition("/")[2].lower()
    return next((provider for begin, provider in _PROVIDERS if name.startswith(begin)), "uwf")


def _messages(role: str, text: str) -> str:
    message = {"role": role, "parts": [{"type": "text", "content": text}]}
    if role == "assistant":
        message["finish_reason"] = "stop"
    return _json([message])


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
