"""Calls of a code workflow within one step: agents in parallel, and outputs read from their answers.

Each conversation is a call of `conversation.py` in a warm process, open until the step ends, so an invalid output is
corrected by its agent in the same session. An answer is committed in a thread of the call's own before the code has it;
a call that has an answer there is not asked again. All turns, time and cost of the calls that were asked belong to the
step.

In a thread with limits, a call is asked only while these leave something, and beside others only as long as all in
flight may cost as much as the largest so far: before one is answered, each is asked alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
import subprocess
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.ext.code.asking import answer_of
from uwf_git.ext.code.conversation import Question
from uwf_git.ext.code.script import AGENT, is_script
from uwf_git.kit import Reply
from uwf_git.plugin import (
    BUNDLE,
    COST_LIMIT,
    NONCE_VARIABLE,
    REHEARSE,
    Absent,
    AgentFailed,
    Budgets,
    CallCounts,
    CallRequest,
    Descendants,
    Detail,
    Invalid,
    NotFound,
    SpendingTotals,
    ThreadId,
    Throttled,
    TurnRecord,
    UwfError,
    WarmPool,
    agent_options,
    call_arrivals,
    check_schema,
    counted,
    encodable,
    error_of,
    find_call,
    known_agent,
    last_line,
    log,
    name_problem,
    narrowed_options,
    normalise_payload,
    one_line,
    parse_detail,
    parse_turn,
    processes,
    require_trusted,
    root_of,
    signals_deferred,
    spending_account,
    spent_together,
    sum_usage,
)
from uwf_git.plugin import spent_in as spent

if TYPE_CHECKING:
    from uwf_git.plugin import (
        EngineOrder,
        Head,
        Instance,
        Oid,
        Recorder,
        RegisteredVersion,
        ThreadPosition,
        WarmProcess,
    )

AT_ONCE = 8
"""Calls in flight at once, twice as many for a script; the others wait."""
_IDLE = 4  # idle conversations kept for corrections when another begins; a script's answers are read at once
_PROGRAM = "uwf_git.ext.code.conversation:main"
_NAMED = 3  # other people named in a note
Arrival = tuple[int, int, str]
"""The place of an answer among others: whether it is known by its time only, its place or time, its thread."""
_PATIENCE = 5.0  # seconds for a finished conversation to exit
_QUICK = 0.25  # seconds to wait for a process before another one is started
_TEXTS = {"agent": ("agent", "role", "prompt", "systemPrompt"), "extract": ("text", "role", "prompt")}


class ConversationResult(NamedTuple):
    """A conversation's result: the agent, "" if a text was read; `texts` are the answers passed to the code,
    `data` the extracted values, both empty if it failed. With `is_known`, it was answered in an earlier run, to which
    its turns, time and cost belong."""

    agent: str
    role: str
    reply: Reply
    how: str
    texts: tuple[str, ...]
    data: tuple[Any, ...]
    is_known: bool = False


class Calls:
    """The calls of one step. `override` are the values of --agent for it; `cwd` is the agents' folder. Turns are
    recorded as they come. `fileno` is readable when answers are ready. Must be closed."""

    def __init__(
        self,
        instance: Instance,
        at: ThreadPosition,
        order: EngineOrder,
        recorder: Recorder,
        cwd: Path,
        override: Sequence[str] = (),
        is_script: bool = False,
    ) -> None:
        self._is_script = is_script
        self._spent = tokens_of(instance, at.head) if is_script else 0
        self.absence: Absent | None = None
        self.absent = 0
        self._asked = self._failed = 0
        self._held: list[tuple[Arrival, int, dict[str, Any]]] = []
        self._arrivals: Mapping[Oid, int] | None = None
        self._at = at.head
        self._thread = at.head.thread
        self._instance = instance
        self._cast = at.history.cast
        self._config = instance.config_of(at.head.row)
        code = at.history.workflow.code
        self._language = code.language if code is not None else ""
        self._root = root_of(instance, at.head.commit)
        self._counts: Counter[str] = Counter()
        self._foreign: Counter[str] = Counter()
        self._commits: dict[int, str] = {}
        self._head = order.head
        self._folder = str(cwd)
        self._options = agent_options(override)
        self._recorder = recorder
        self._log = instance.runs.log(self._thread)
        environ = {**os.environ, **instance.location.environment()}
        environ[NONCE_VARIABLE] = instance.runs.nonce(self._thread)
        self._descendants = Descendants(environ)
        self._processes = WarmPool(_PROGRAM, self._descendants.env, instance.locks.descriptors(self._thread))
        self._at_once = AT_ONCE * (1 + is_script)
        self._pool = ThreadPoolExecutor(self._at_once)
        self._guard = threading.Lock()
        self._conversations: list[_Conversation] = []
        self._answers: deque[tuple[int, dict[str, Any]]] = deque()
        self._questions: deque[tuple[int, Callable[[], None]]] = deque()
        self._readings: deque[tuple[int, Callable[[], None]]] = deque()
        self._in_flight: set[int] = set()
        standing = Budgets(instance).standing(at.head)
        self._is_limited = standing is not None and any(key != "maxSteps" for key in standing.limits)
        self._unheard: tuple[TurnRecord, ...] = ()
        self._is_settled = False
        self._pending = 0
        self._ready, self._wake = os.pipe()
        os.set_blocking(self._ready, False)

    def fileno(self) -> int:
        return self._ready

    @property
    def pending(self) -> int:
        return self._pending

    def put(self, number: int, message: Mapping[str, Any]) -> None:
        """Start call `number`: {what: agent, agent, role, prompt, systemPrompt, schema} or {what: extract,
        schema, prompt, text, role}. Raises AgentFailed for others."""
        what = message.get("what")
        if self._is_script:
            self._put_script(number, message)
            return
        names = _TEXTS.get(what) if isinstance(what, str) else None
        if names is None:
            raise AgentFailed(
                f"the code asked for {str(what)[:40]!r}, which is neither an agent nor an extraction"
            )
        given = _texts(message, names)
        schema = message.get("schema")
        if not isinstance(schema, dict | bool | None):
            raise AgentFailed(
                "the code gave a schema that is not a JSON Schema", "an object, as z.toJSONSchema makes it"
            )
        if (problem := _schema_problem(schema)) is not None:
            error = f"the code gave a schema that is not a JSON Schema: {problem}"
            self._refuse(number, error)
            return
        if what == "agent" and not any(given[name] for name in ("role", "prompt", "systemPrompt")):
            raise AgentFailed("the code asked an agent nothing", "name a role, or give a prompt")
        is_rehearsed = self._rehearses(given.get("agent"), given["role"] or BUNDLE)
        request = self._request({"what": what, **given, "schema": schema, "at": self._head}, is_rehearsed)
        self._begun()
        if (known := self._find(request)) is not None:
            self._hand_out(number, known, given, what == "agent")
        elif what == "agent":
            override = self._override(given["agent"], given["role"] or BUNDLE)
            question = Question(
                self._head,
                self._folder,
                override,
                given["agent"],
                given["role"],
                given["prompt"],
                given["systemPrompt"],
                schema,
            )
            who = override or given["agent"] or f"whoever plays {given['role'] or 'the role'}"
            conversation = self._new(given["role"], one_line(who, 60))
            order = {"question": question._asdict(), "call": list(request)}
            self._do(self._questions, number, lambda: self._answer(number, conversation, order))
        else:
            text, role = given["text"] or "", given["role"]
            reading = {
                "schema": {} if schema is None else schema,
                "prompt": given["prompt"],
                "call": list(request),
            }
            self._do(self._readings, number, lambda: self._read(number, text, role, reading))

    def _put_script(self, number: int, message: Mapping[str, Any]) -> None:
        if message.get("what") == "workflow":
            self._hand_out_script(number, message.get("name"))
            return
        texts = _texts(message, ("prompt", "label", "phase", "model", "effort", "isolation", "agentType"))
        schema = message.get("schema")
        if message.get("what") != "script" or texts["prompt"] is None or not isinstance(schema, dict | None):
            raise AgentFailed("the script asked for what is neither an agent nor a workflow")
        if (problem := _schema_problem(schema)) is not None:
            self._refuse(number, f"agent(): schema is not a JSON Schema: {problem}")
            return
        agent, plays = self._who(texts["agentType"], texts["model"])
        asked = {"what": "script", **texts, "schema": schema}
        for name in ("label", "phase"):
            del asked[name]
        request = self._request(asked, self._rehearses(agent, plays))
        self._begun()
        if (known := self._find(request)) is not None:
            self._hand_out(number, known, {"role": None}, is_agents=True)
            return
        override = self._override(agent, plays)
        question = Question(
            self._head,
            self._folder,
            override,
            agent,
            prompt=texts["prompt"],
            schema=schema,
            plays=plays,
            isolation=texts["isolation"] or "",
        )
        who = override or agent or texts["label"] or plays
        conversation = self._new(None, one_line(who, 60))
        order = {"question": question._asdict(), "call": list(request)}
        self._do(self._questions, number, lambda: self._answer(number, conversation, order))

    def _who(self, *names: str | None) -> tuple[str | None, str]:
        """Return the agent and the role for an agent type and a model: the first that agentOverrides or agents has,
        else the workflow's or the default agent."""
        from uwf_git.plugin import known_agent, overriding_options

        config = self._config
        for name in filter(None, names):
            if overriding_options(config, self._cast.role(name))[0] is not None:
                return None, name
            if known_agent(config, name) is not None:
                return name, name
        return None, AGENT

    def _registered(self, name: str) -> RegisteredVersion:
        instance = self._instance
        try:
            return instance.registry.current(name)
        except NotFound as error:
            from uwf_git.plugin import workflow_file

            file = None if name_problem(name) else workflow_file(instance.location.root, name)
            if file is not None:
                error.hint = f"register it first: uwf workflow put {shlex.quote(str(file))}"
            raise

    def _hand_out_script(self, number: int, name: Any) -> None:
        instance = self._instance
        version = self._registered(name if isinstance(name, str) else "")
        workflow = instance.registry.workflow(version.hash)
        source = instance.registry.code_of(version.hash) if workflow.code is not None else b""
        if (
            workflow.code is None
            or workflow.code.language != self._language
            or not is_script(source, self._language)
        ):
            raise AgentFailed(
                f"workflow {one_line(str(name), 60)} is not a script in {self._language}",
                f"make it an agent: uwf-workflow {one_line(str(name), 60)}",
            )
        require_trusted(instance, workflow)
        self._begun()
        suffix = workflow.file.partition(".")[2]
        value = {"source": source.decode("utf-8-sig", "replace"), "file": f"{workflow.name}.{suffix}"}
        self._notify(number, {"value": value, "turns": ()})

    def _request(self, given: Mapping[str, Any], is_rehearsed: bool) -> CallRequest:
        """Return a call's request, with all that its agent is told. Raises AgentFailed if it cannot be stored."""
        content = {key: value for key, value in given.items() if value is not None}
        if "text" in content:
            content["text"] = hashlib.sha256(content["text"].encode()).hexdigest()
        content = self._instance.redactor.value(content)[0]
        if is_rehearsed:
            content["rehearsed"] = True
        try:
            content = normalise_payload(content)
        except Invalid as error:
            raise AgentFailed(
                f"the code called an agent with what cannot be stored: {error.message}"
            ) from None
        key = json.dumps(content, sort_keys=True)
        count, self._counts[key] = self._counts[key], self._counts[key] + 1
        return CallRequest(content, count)

    def _override(self, agent: str | None, role: str) -> str | None:
        """Return what --agent names for a call of a role, for which the code may name an agent."""
        if self._options is None:
            return None
        config = self._config
        own = agent if agent is not None and known_agent(config, agent) is not None else None
        named: str | None = narrowed_options(config, self._cast.role(role), self._options, own)
        return named

    def _rehearses(self, agent: str | None, role: str) -> bool:
        from uwf_git.plugin import resolve_agent

        with contextlib.suppress(UwfError):
            override = self._override(agent, role)
            chosen = override if override is not None else agent
            config = resolve_agent(self._config, self._cast.role(role), chosen)
            return config.command == REHEARSE
        return False

    def _find(self, request: CallRequest) -> Head | None:
        """Return the head of the call that has answered a request."""
        state = find_call(self._instance, self._root, request)
        for thread in state.squatters:
            self._instance.warn(
                f"thread {thread} has the id of a call and is not what was asked, so it was asked anew; remove it with:"
                f" uwf thread rm {thread}"
            )
        return state.head if state.is_answered else None

    def _hand_out(self, number: int, head: Head, given: Mapping[str, Any], is_agents: bool) -> None:
        value, step, detail = answer_of(self._instance, head)
        log.debug("7D3KQZ8P", "call {thread} was answered before", thread=head.thread, number=number)
        repository = self._instance.store.repository
        if (by := repository.commit(head.commit).committer) != repository.user.ident:
            self._foreign[one_line(by, 100)] += 1
        reply = Reply(detail.answer, detail.session, detail.model, notes=detail.notes)
        conversation = self._new(given["role"])
        conversation.said = value if is_agents and not self._is_script else None
        is_text = is_agents and isinstance(value, str)
        texts, data = ((value, detail.answer), ()) if is_text else ((), (value,))
        conversation.heard = ConversationResult(
            step.agent, given["role"] or "", reply, detail.extraction, texts, data, is_known=True
        )
        answer = {"value": value, "commit": str(head.commit), "turns": ()}
        self._held.append((self._arrival(head), number, answer))

    def _refuse(self, number: int, error: str) -> None:
        """Throw in the code, before an agent was asked."""
        self._pending += 1
        self._notify(number, {"error": error, "thrown": True, "unasked": True, "turns": ()})

    def _begun(self) -> None:
        self._asked += 1
        self._pending += 1

    def _arrival(self, head: Head) -> Arrival:
        """Return the place of a known answer among those of earlier runs: that in which the last one heard it, else the
        time at which it was given."""
        if self._arrivals is None:
            self._arrivals = call_arrivals(self._instance, self._at.commit)
        place = self._arrivals.get(head.commit)
        return (0, place, "") if place is not None else (1, self._given_at(head), head.thread)

    def _given_at(self, head: Head) -> int:
        return next((past.time for past in self._instance.threads.past(head.node)), 0)

    @property
    def has_known(self) -> bool:
        """Whether known answers are held back until the code waits for one."""
        return bool(self._held)

    def release(self) -> None:
        """Let the known answer come that came first in the earlier run: the code can do nothing without one, so each
        later prompt is what it was."""
        if self._held:
            first = min(self._held)
            self._held.remove(first)
            self._notify(*first[1:])

    def answered(self) -> list[tuple[int, dict[str, Any]]]:
        """Return new answers by call number: {value} or {error}. Raises Absent if a person is needed who
        isn't there, Waiting once the thread's budget is used up and nothing is in flight."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._ready, 1 << 16)
        while self._held and not self._is_script:
            self.release()
        answers = []
        while self._answers:
            number, answer = self._taken()
            if answer.get("absent"):
                absence = Absent(answer["error"], answer["hint"])
                if not self._is_script:
                    raise absence
                self._pending += 1
                self.absent += 1
                self.absence = self.absence or absence
                continue
            self._failed += "error" in answer and "unasked" not in answer
            answers.append((number, self._told(answer)))
        self._ask_next()
        return answers

    def _told(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        """Return an answer as the code hears it. A script hears null of an agent that failed. Raises what ended a call
        although its agent has not failed, so that the step can be made again."""
        if kind := answer.get("ended"):
            raise error_of(kind, answer["error"], answer["hint"])
        spent = {"spent": self._spent + self._used()} if self._is_script else {}
        if "error" not in answer:
            return {"value": answer["value"], **spent}
        message = f"{answer['error']} — {answer['hint']}" if answer.get("hint") else answer["error"]
        if not self._is_script or answer.get("thrown"):
            return {"error": message, **spent}
        if answer.get("throttled"):
            failure = AgentFailed(answer["error"], answer["hint"])
            failure.throttled = Throttled(*answer["throttled"])
            raise failure
        if answer.get("misconfigured"):
            raise AgentFailed(answer["error"], answer["hint"])
        return {"value": None, **spent}

    def _used(self) -> int:
        usage = sum_usage([result.reply for result in self.heard if not result.is_known])
        return usage.input + usage.output if usage is not None else 0

    @property
    def heard(self) -> list[ConversationResult]:
        """Return all results, in the order their conversations began."""
        with self._guard:
            return [
                conversation.heard for conversation in self._conversations if conversation.heard is not None
            ]

    @property
    def asked(self) -> list[str]:
        """Return the agents called, each once, with failures."""
        with self._guard:
            names = [conversation.told for conversation in self._conversations]
        return list(dict.fromkeys(filter(None, names)))

    @property
    def foreign(self) -> str:
        """Return a note on the answers that other people committed, "" without any."""
        counts = [f"{counted(count, 'answer')} of {by}" for by, count in self._foreign.most_common()]
        others = f" and {counted(len(counts) - _NAMED, 'other')}" if len(counts) > _NAMED else ""
        is_one = self._foreign.total() == 1
        return (
            f"{', '.join(counts[:_NAMED])}{others} {'was' if is_one else 'were'} taken as given"
            if counts
            else ""
        )

    @property
    def unheard(self) -> Sequence[TurnRecord]:
        """Return the turns of unanswered conversations, once settled."""
        return self._unheard

    @property
    def commits(self) -> list[str]:
        """Return the last commits of the calls whose answers the code has, in the order in which they came."""
        return list(self._commits.values())

    def counts(self, tolerates: Callable[[int], int]) -> CallCounts | None:
        """Return the counts of the calls that the code made, None if all were answered. `tolerates` returns how many of
        a number may fail."""
        dropped = self._asked - len(self._commits) - self._failed
        if not self._failed and not dropped:
            return None
        return CallCounts(self._asked, self._failed, dropped, tolerates(self._asked))

    def drain(self) -> None:
        """Wait for the agents that are at work, so that their answers are kept although the code has failed."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def settle(self) -> None:
        """End the conversations that the code abandoned, recording their turns and unfetched answers."""
        if self._is_settled:
            return
        self._is_settled = True
        if self.foreign:
            self._instance.warn(self.foreign)
        self._pool.shutdown(wait=False, cancel_futures=True)
        with self._guard:
            speaking = [item for item in self._conversations if item.is_speaking]
        for conversation in speaking:
            conversation.end(0.0)
        self._pool.shutdown(wait=True)
        while self._answers:
            self._taken()
        if any(item.is_cut for item in self._conversations):
            self._unheard = self._recorder.take_noted()

    def close(self) -> None:
        self.settle()
        for conversation in self._conversations:
            conversation.let_go()
        for conversation in self._conversations:
            conversation.end(_PATIENCE)
        first = self._processes.first
        self._processes.close()
        if first is None:
            self._descendants.close()
        else:
            self._descendants.end(first, processes.GRACE)
        for descriptor in (self._ready, self._wake):
            os.close(descriptor)

    def _taken(self) -> tuple[int, dict[str, Any]]:
        number, answer = self._answers.popleft()
        self._pending -= 1
        self._asked -= "error" not in answer and answer.get("commit") is None  # no agent or model was asked
        self._in_flight.discard(number)
        if commit := answer.get("commit"):
            self._commits[number] = commit
        for turn in answer["turns"]:
            self._recorder.take(turn)
        return number, answer

    def _do(self, jobs: deque[tuple[int, Callable[[], None]]], number: int, job: Callable[[], None]) -> None:
        jobs.append((number, job))
        self._ask_next()

    def _ask_next(self) -> None:
        """Ask what waits, as far as the thread's budget allows. Raises Waiting if that is used up and nothing is in
        flight."""
        while jobs := self._readings or self._questions:
            if len(self._in_flight) >= self._at_once or (self._is_limited and not self._may_ask()):
                return
            number, job = jobs.popleft()
            self._in_flight.add(number)
            self._pool.submit(job)

    def _may_ask(self) -> bool:
        totals = [_spent(result.reply) for result in self.heard if not result.is_known]
        standing = Budgets(self._instance).standing(self._at, spent_together(totals))
        if standing is None or not self._in_flight:
            if standing is not None and standing.reached is not None:
                raise standing.waiting(self._thread)
            return True
        if standing.reached is not None or not totals:
            return False
        priced = self._instance.config.prices if COST_LIMIT in standing.limits else {}
        used = [spent.amounts(priced) for spent in totals]
        return all(
            max(item[key] for item in used) * (len(self._in_flight) + 1) <= limit.value - standing.used[key]
            for key, limit in standing.limits.items()
        )

    def _new(self, role: str | None, who: str = "") -> _Conversation:
        conversation = _Conversation(role or "", who)
        with self._guard:
            self._conversations.append(conversation)
        return conversation

    def _end_idle(self) -> None:
        with self._guard:
            idle = [item for item in self._conversations if item.is_idle]
            spare = idle if self._is_script else idle[:-_IDLE]
            for conversation in spare:
                conversation.is_idle = False
        for conversation in spare:
            conversation.let_go()
        for conversation in spare:
            conversation.end(_PATIENCE)

    def _read(self, number: int, text: str, role: str | None, reading: Mapping[str, Any]) -> None:
        with self._guard:
            conversations = [item for item in self._conversations if item.is_idle and item.said == text]
            conversation = next((item for item in reversed(conversations) if item.role == (role or "")), None)
            conversation = conversation or (conversations[-1] if conversations else None)
            if conversation is not None:
                conversation.is_idle = False
        if conversation is None:
            conversation = self._new(role)
            question = Question(self._head, self._folder, role=role, text=text)
            order = {"question": question._asdict(), "call": None}
            if "error" in (answer := self._exchange(conversation, order)):
                self._notify(number, answer)
                return
        self._answer(number, conversation, reading)

    def _answer(self, number: int, conversation: _Conversation, request: Mapping[str, Any]) -> None:
        self._notify(number, self._exchange(conversation, request))

    def _exchange(self, conversation: _Conversation, request: Mapping[str, Any]) -> dict[str, Any]:
        try:
            if "question" in request:
                self._end_idle()
                conversation.start(self._thread, self._processes, self._log)
            answer = conversation.exchange(request)
            if self._is_script:
                self._end_idle()
            return answer
        except UwfError as error:
            message, hint = error.message, error.hint
        except Exception as error:  # otherwise the call is never answered
            message, hint = f"asking the agent failed: {type(error).__name__}: {error}", ""
        again = f"nothing is lost, uwf thread run {self._thread} goes on"
        return {"error": message, "hint": hint or again, "ended": "AgentFailed", "turns": ()}

    def _notify(self, number: int, answer: dict[str, Any]) -> None:
        self._answers.append((number, answer))
        with contextlib.suppress(OSError):
            os.write(self._wake, b".")


def tokens_of(instance: Instance, head: Head) -> int:
    """Return the tokens that a thread has spent."""
    lines = spending_account(instance, head).spent.lines
    return sum(line.tokens.input + line.tokens.output for line in lines)


def _schema_problem(schema: Any) -> str | None:
    """Return the first reason why a call's schema is none, with the value at fault, else None."""
    if schema is None:
        return None
    try:
        content = normalise_payload(schema)
    except Invalid as error:
        return error.message
    problem = next(iter(check_schema(content)), None)
    return None if problem is None else one_line(str(problem), 200)


def _spent(reply: Reply) -> SpendingTotals:
    took = sum(turn.duration_ms or 0 for turn in reply.turns)
    detail = Detail("", model=reply.model, usage=reply.usage, cost=reply.cost, duration_ms=took)
    return spent(detail, reply.turns, attempt=True)._replace(attempts=0)


def _texts(message: Mapping[str, Any], names: Sequence[str]) -> dict[str, str | None]:
    """Return these texts of a call. Raises AgentFailed."""
    texts = {name: message.get(name) for name in names}
    for name, value in texts.items():
        if not isinstance(value, str | None):
            raise AgentFailed(f"the code called an agent with a {name} that is not text")
        if value is not None and encodable(value) != value:
            raise AgentFailed(f"the code called an agent with a {name} that holds an incomplete character")
    return texts


class _Conversation:
    """A call of `conversation.py` for the agent `who`, "" to read a text. `said` is its answer, `heard` the
    result; `is_cut`: it was interrupted."""

    def __init__(self, role: str, who: str) -> None:
        self.role = role
        self.said: str | None = None
        self.heard: ConversationResult | None = None
        self.is_idle = self.is_speaking = self.is_cut = False
        self._who = who
        self._data: tuple[Any, ...] = ()
        self._turns: tuple[TurnRecord, ...] = ()
        self._process: WarmProcess | None = None
        self._log = Path()
        self._is_over = self._is_ended = False

    @property
    def told(self) -> str:
        who = (self.heard.agent if self.heard else "") or self._who
        if self.heard is not None and self.heard.is_known:
            return f"{who} (answered before)"
        if not who or self._process is None:
            return ""
        if self.is_cut:
            return f"{who} (broken off)" if self._is_over else f"{who} (failed)"
        return who if self.said is not None or self._data else f"{who} (failed)"

    def start(self, thread: ThreadId, pool: WarmPool, log: Path) -> None:
        self._log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        try:
            with log.open("ab") as errors, signals_deferred():
                if self._is_over:
                    raise AgentFailed("the step is over")
                self._process = pool.spawn([thread], stdin=subprocess.PIPE, stderr=errors, patience=_QUICK)
        except OSError as error:
            raise AgentFailed(f"no process can be started to ask an agent: {error}") from None

    def exchange(self, request: Mapping[str, Any]) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdin is not None and self._process.stdout is not None
        self.is_speaking = True
        line = b""
        with contextlib.suppress(OSError, ValueError):
            self._process.stdin.write(json.dumps(request).encode("ascii") + b"\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        self.is_speaking = False
        if not line.endswith(b"\n"):
            self.is_cut = True
            complaint = last_line(self._log.read_text("utf-8", "replace")) if self._log.exists() else ""
            raise AgentFailed(f"the process that asked the agent {self._how()} before it answered", complaint)
        answer: dict[str, Any] = json.loads(line)
        detail = parse_detail(answer["detail"])
        records = [parse_turn(turn) for turn in answer["turns"]]
        new = records[len(self._turns) :]
        self._turns = (*self._turns, *new)
        reply = Reply.of(detail, self._turns)
        if "error" not in answer:
            if "question" in request and isinstance(answer["value"], str):
                self.said = answer["value"]
            else:
                self._data = (*self._data, answer["value"])
        texts = () if self.said is None else (self.said, reply.text)
        self.heard = ConversationResult(
            answer["agent"], self.role, reply, detail.extraction, texts, self._data
        )
        self.is_idle = True
        return {**answer, "turns": new}

    def _how(self) -> str:
        """Return how the process has ended."""
        assert self._process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            if (status := self._process.wait(_PATIENCE)) < 0:
                return f"was ended by signal {-status}"
        return "ended"

    def let_go(self) -> None:
        self.is_idle = False
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):  # it is gone
                self._process.stdin.close()

    def end(self, patience: float) -> None:
        self._is_over = True
        if self._is_ended or self._process is None:
            return
        self._is_ended = True
        if patience:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(patience)
        processes.stop(self._process, processes.GRACE, attached=True)
        assert self._process.stdout is not None
        self._process.stdout.close()
