"""One conversation with an agent in a process of its own, called by a code workflow during a step.

It is given the thread. Requests are JSON lines on standard input, answers are lines on standard output:

    {question: {…}, call}             the first: asks an agent, or takes the question's `text` as its answer
    {schema, prompt, call}            extracts an output from the answer, with corrections by the agent

    {value, commit, agent, detail, turns}
                                      the answer's text, or the output; with the conversation so far
    {error, hint, absent, thrown, misconfigured, throttled, ended, …}
                                      instead; `absent` if it waits, as for a person, `thrown` if a script gets an
                                      exception and not null, `misconfigured` if no agent could be asked at all,
                                      `throttled` at a rate limit or a used-up quota, `ended` the kind of an error
                                      that is not the agent's, such as a full disk

`call` is the Request as [content, count]. Before an agent's answer is told, it is committed in the call's thread, whose
last commit is `commit`; null if no agent or model was asked.

The end of requests closes the conversation. Parallel conversations are separate processes, since an
in-process agent may need the current folder and signals.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from uwf_git.ext.code.asking import Act, Heard, Suspended, answer, answer_of
from uwf_git.kit import Agent, Context, Reply
from uwf_git.plugin import (
    BUNDLE,
    HUMAN,
    QUESTION_VARIABLE,
    RESULT,
    SUSPEND_STATUS,
    USER,
    AgentFailed,
    CallRequest,
    Conversation,
    Detail,
    EngineOrder,
    ExtractionFailed,
    Hash,
    Invalid,
    PastRun,
    Recorder,
    Resume,
    Role,
    Schema,
    SessionState,
    ThreadId,
    TokenUsage,
    TurnRecord,
    Unavailable,
    UwfError,
    Waiting,
    asks_human,
    broken_off,
    closest_names,
    detail_of,
    ends_refused,
    errors,
    is_full,
    normalise_payload,
    one_line,
    parse_json,
    parse_thread_id,
    read_output,
    sum_tokens,
    system,
)

if TYPE_CHECKING:
    from uwf_git.plugin import AgentConfig, Config, Head, History, Instance


_RETURNED = "(Your last message is handed to a script, as it is: give the result itself, without a preamble.)"


class Question(NamedTuple):
    """A question to an agent on `head`, in the folder `cwd`.

    `override` is the user's agent for the step, `agent` the code's; by default the role's. Without a `role`
    the agent gets only the `prompt`; with one, it is the instruction, and `system` replaces the workflow's.
    The answer must match `schema`, else the role's. With a `text`, that is the answer. A script's agent `plays` the
    role for which agentOverrides names it, and answers with text, or with data that match the `schema`.
    """

    head: str
    cwd: str
    override: str | None = None
    agent: str | None = None
    role: str | None = None
    prompt: str | None = None
    system: str | None = None
    schema: Any = None
    text: str | None = None
    plays: str = ""
    isolation: str = ""


class _OfCommand(Conversation):
    """An agent that runs as a command: one of the kit is asked, another performs the whole step if it gets no prompt of
    the code's own."""

    correctable = False

    def __init__(self, ctx: Context, config: AgentConfig) -> None:
        super().__init__(ctx)
        self._config = config

    def begin(self) -> Reply:
        if self.ctx.instruction is not None:
            return self._answered()
        store = self.ctx.store
        step = store.step(self._run({}))
        detail = store.detail(step.detail)
        output = store.get(step.output).payload
        if detail is None:
            return Reply(json.dumps(output, ensure_ascii=False), output=output)
        return Reply.of(detail, store.turns(detail), output)

    def _answered(self) -> Reply:
        from uwf_git.plugin import kept_reply

        ctx = self.ctx
        with TemporaryDirectory(prefix="uwf-question-") as folder:
            question, answer = Path(folder, "question.json"), Path(folder, "answer.json")
            asked = {
                "prompt": ctx.prompt,
                "instruction": ctx.instruction,
                "system": ctx.role.system_prompt,
                "schema": ctx.schema.payload,
                "alias": ctx.alias,
                "timeout": self._left(),
            }
            question.write_text(json.dumps(asked), "ascii")
            self._run({QUESTION_VARIABLE: str(question)})
            reply = kept_reply(ctx.instance, json.loads(answer.read_bytes())) if answer.is_file() else None
        if reply is None:
            raise Unavailable(
                f"agent {self._config.alias!r} is a command, which cannot be told a prompt of the code's own",
                "make it an agent with the kit, or play it by uwf-exec",
            )
        return reply

    def _left(self) -> float | None:
        return None if self.ctx.deadline is None else max(0.0, self.ctx.deadline - time.monotonic())

    def _run(self, variables: Mapping[str, str]) -> Hash:
        """Run the command; return the hash that it printed, "" of one that was asked. Raises AgentFailed."""
        from uwf_git.plugin import agent_environment, hash_printed, processes

        ctx, config = self.ctx, self._config
        done = processes.run_command(
            [config.command, *config.args, ctx.thread, ctx.role.name],
            cwd=ctx.cwd,
            env={**agent_environment(ctx.instance, ctx.thread, ctx.role.name, config.env), **variables},
            timeout=self._left(),
            on_stderr=_pass_on,
        )
        if variables and not done.returncode and not done.timed_out and done.exceeded is None:
            return Hash("")
        return hash_printed(config, done, ctx.thread)


def _pass_on(data: bytes) -> None:
    os.write(2, data)


class _Asked:
    """A conversation with an agent, or with a given text."""

    def __init__(
        self, ctx: Context, recorder: Recorder, conversation: Conversation | None, command: str
    ) -> None:
        self._ctx = ctx
        self._command = command
        self._recorder = recorder
        self._conversation = conversation
        self._reply = Reply("")
        self._replies: list[Reply] = []
        self._turns: list[TurnRecord] = []
        self._usage: TokenUsage | None = None
        self._how = "native"

    def heard(self) -> tuple[Detail, Sequence[TurnRecord]]:
        if not self._replies and (turns := tuple(self._recorder.turns)):
            return broken_off(turns, self._recorder.session), turns
        return detail_of(self._replies, self._reply.text, self._usage, self._how), self._turns

    def also(self, recorder: Recorder | None) -> None:
        """Record further turns and the session in a call's thread too."""
        self._recorder.beside = recorder

    def begin(self, asks: Question) -> str:
        """Ask the agent. The code's own words are recorded as a turn, since no history determines them."""
        from uwf_git.plugin import agent_slot

        if self._conversation is None:
            self._reply = Reply(asks.text or "")
            return self._reply.text
        if asks.prompt is not None:
            self._count((), (TurnRecord("user", asks.prompt),), None)
        try:
            with agent_slot(self._ctx.instance, self._command):
                reply = self._reply = self._conversation.first()
        except ExtractionFailed as failure:
            self._count(failure.replies, failure.turns, failure.usage)
            raise
        turns = reply.turns or (TurnRecord("assistant", reply.text, usage=reply.usage, model=reply.model),)
        # Extractions for the agent or its commands were recorded as they happened: the step counts them.
        self._count((reply,), turns, reply.usage)
        return reply.text

    def read(self, schema: Any, prompt: str) -> Any:
        """Extract an output from the answer, or from the thread. Raises AgentFailed, Invalid for a bad
        schema."""
        if self._conversation is None:
            return self._extracted(schema, prompt)
        from uwf_git.plugin import agent_slot, wanted_data

        last = self._reply
        ctx = self._ctx._replace(role=self._ctx.role._replace(extract_prompt=prompt))
        # The rest is counted already, and its last turn represents all.
        known = Reply(last.text, last.session, output=last.output, turns=tuple(self._turns[-1:]))
        try:
            with agent_slot(ctx.instance, self._command):
                extraction = read_output(
                    ctx, known, self._conversation, wanted_data(schema), self._recorder.heard
                )
        except ExtractionFailed as failure:
            self._count(failure.replies[1:], failure.turns[1:], failure.usage)
            raise
        self._count(extraction.replies[1:], extraction.turns[1:], extraction.usage)
        self._reply, self._how = extraction.replies[-1], extraction.how
        return extraction.output

    def _extracted(self, schema: Any, prompt: str) -> Any:
        before = len(self._recorder.turns)
        try:
            return self._ctx.extract(schema, prompt, self._reply.text or None)
        finally:
            if turns := self._recorder.turns[before:]:
                self._count((), turns, sum_tokens(turn.usage for turn in turns))
                self._how = f"model:{turns[-1].arguments['model']}"

    def _count(self, replies: Sequence[Reply], turns: Sequence[TurnRecord], usage: TokenUsage | None) -> None:
        for turn in turns:
            self._recorder.record(turn)
        costs = [reply.cost for reply in replies if reply.cost is not None]
        self._recorder.spend(usage, turns, sum(costs) if costs else None)
        self._replies += replies
        self._turns += turns
        self._usage = sum_tokens((self._usage, usage))


def _open(
    instance: Instance, thread: ThreadId, asks: Question, call: Head | None, stack: ExitStack
) -> tuple[_Asked, str]:
    from uwf_git.plugin import AgentConfig, embedded_agent, refuse_to_make_up

    at = instance.threads.position(instance.threads.active_head(thread))
    if at.head.node != asks.head:
        raise AgentFailed(f"thread {thread} has moved on from {asks.head}, for which this was asked")
    role = _role(at.history, asks)
    if asks.text is not None:
        config = AgentConfig("", "", (), None)
    else:
        config = _agent_of(instance, at.history, asks)
        refuse_to_make_up(instance, at, asks.plays or role.name, config)
    performer = embedded_agent(config.command)
    args = config.args if performer else ()
    teller = performer or Agent(Path(config.command).name, lambda ctx: _OfCommand(ctx, config))
    name = teller.called(args) if config.command else ""
    order = EngineOrder(at.head.node, role.name, config.alias, asks.prompt, config.timeout, None, name)
    recorder = Recorder(instance, thread, name)
    ctx = teller.context(instance, at, order, args, Path(asks.cwd), recorder, role)
    if asks.schema is not None:
        ctx = ctx._replace(schema=Schema(asks.schema))
    if asks.role is None:
        ctx = ctx._replace(build_prompt=lambda *_: _describe(asks))
    if call is not None:  # the attempts of the caller are those of all its calls together
        ctx = ctx._replace(resume=_left(instance, thread, call, name, ctx))
    os.chdir(asks.cwd)
    conversation = stack.enter_context(teller.conversation(ctx)) if config.command else None
    return _Asked(ctx, recorder, conversation, config.command), name


def _agent_of(instance: Instance, history: History, asks: Question) -> AgentConfig:
    from uwf_git.plugin import resolve_agent

    role = asks.plays or asks.role or BUNDLE
    try:
        config = instance.config_of(instance.threads.head(history.thread).row)
        return resolve_agent(config, history.cast.role(role), _chosen(config, asks))
    except (Invalid, errors.Usage) as error:
        raise Unavailable(error.message, error.hint) from None


def _left(instance: Instance, thread: ThreadId, call: Head, agent: str, ctx: Context) -> Resume | None:
    """Return the last attempt at a call, to be resumed in its session."""
    attempt = instance.attempts.last(call)
    detail = (
        instance.store.detail(attempt.detail) if attempt is not None and attempt.detail is not None else None
    )
    if attempt is None or detail is None or is_full(attempt.error):
        return None
    if detail.session is None or not instance.sessions.is_own(agent, detail.session, thread):
        return None
    turns = instance.store.turns(detail)
    state = SessionState(detail.context, detail.kept)
    return Resume(detail.session, attempt.error, turns, lambda: (PastRun(ctx.prompt, turns),), state)


def _chosen(config: Config, asks: Question) -> str | None:
    """Return the user's or the code's agent. Code names agents only; commands come from the configuration.
    Raises AgentFailed for an unknown name."""
    from uwf_git.plugin import hint_to_add, known_agent, known_agents, known_names

    name = asks.agent
    if asks.override is not None or name is None:
        return asks.override
    if known_agent(config, name) is None:
        known = [item for item in known_names(config) if known_agents.shipped(item) is None]
        hint = "agents.default is whoever plays the role"
        if (meant := closest_names(name, known)) is not None:
            hint = f'did you mean "{meant}"?'
        elif name.replace("-", "_").isidentifier():
            hint = f"{hint_to_add(name)}, or let the code ask agents.default"
        raise AgentFailed(
            f"the code asks for agent {one_line(name, 60)!r}, which does not exist here",
            f"{hint}; known: {', '.join(known)}",
        )
    return name


def _role(history: History, asks: Question) -> Role:
    from uwf_git.plugin import role_of

    if asks.role is None:
        return Role(BUNDLE, "What the code of the workflow asks.", RESULT)
    role = role_of(history, asks.role)
    return role if asks.system is None else role._replace(system_prompt=asks.system)


def _describe(asks: Question) -> str:
    from uwf_git.plugin import format_instruction

    if asks.plays and asks.schema is None:
        return f"{_RETURNED}\n\n{asks.prompt}"
    deliverable = "" if asks.schema is None else f"# Deliverable format\n\n{format_instruction(asks.schema)}"
    return "\n\n".join(filter(None, (deliverable, asks.system, asks.prompt)))


def _requests(source: IO[bytes]) -> Iterator[dict[str, Any]]:
    for line in source:
        yield json.loads(line)


class _Calls:
    """The calls of one conversation of the code workflow's `thread`, each answered in a thread of its own."""

    def __init__(self, thread: ThreadId, stack: ExitStack) -> None:
        self._thread = thread
        self._stack = stack
        self._instance: Instance | None = None
        self._asked: _Asked | None = None
        self._cwd = Path()
        self.name = ""
        self.commit: str | None = None

    def heard(self) -> tuple[str, Detail, Sequence[TurnRecord]]:
        nothing: tuple[Detail, Sequence[TurnRecord]] = Detail(""), ()
        return (self.name, *(self._asked.heard() if self._asked else nothing))

    def begin(self, question: Mapping[str, Any], call: Sequence[Any] | None) -> Any:
        from uwf_git.plugin import open_here

        instance = self._instance = open_here()
        asks = Question(**question)
        self._cwd = Path(asks.cwd)

        def ask(head: Head | None, recorder: Recorder | None, cwd: Path) -> Any:
            if asks.plays and head is not None and recorder is not None:
                return self._scripted(instance, asks._replace(cwd=str(cwd)), head, recorder)
            self._asked, self.name = _open(instance, self._thread, asks, head, self._stack)
            if recorder is not None:
                self._asked.also(recorder)
            return self._asked.begin(asks)

        if call is None:
            return ask(None, None, self._cwd)
        value = self._answer(call, ask, self.heard, asks)
        if self._asked is not None:
            self._asked.also(None)
        return value

    def _scripted(self, instance: Instance, asks: Question, head: Head, recorder: Recorder) -> Any:
        """Ask for a script: for a text, or data that obey a schema. Raises Suspended for a question to a person, whose
        answer the call's history has the next time."""
        history = instance.threads.history(head)
        last = history.steps[-1] if history.steps else None
        answer = str(last.output.get("answer", "")) if last is not None and last.role == USER else None
        parent = instance.threads.history(instance.threads.active_head(self._thread))
        if _agent_of(instance, parent, asks).command == HUMAN:
            self.name = HUMAN
            if answer is None:
                raise Suspended({"$status": SUSPEND_STATUS, "question": asks.prompt}, asks.plays)
            return _of_person(asks, answer)
        if answer is not None:
            question = history.steps[-2].output.get("question", "")
            asks = asks._replace(prompt=f"{asks.prompt}\n\nYou asked: {question}\n\nThe answer: {answer}")
        self._asked, self.name = _open(instance, self._thread, asks, head, self._stack)
        self._asked.also(recorder)
        value = self._asked.begin(asks)
        output = self._asked.read(asks.schema, "") if asks.schema is not None else _question_in(value)
        if asks_human(output):
            raise Suspended(output, asks.plays)
        return value if asks.schema is None else output

    def read(self, schema: Any, prompt: str, call: Sequence[Any]) -> Any:
        """Extract an output. Only what an agent or model was asked for becomes a call."""
        assert self._asked is not None
        before = len(self._asked.heard()[1])

        def new() -> tuple[str, Detail, Sequence[TurnRecord]]:
            agent, detail, turns = self.heard()
            return agent, detail, turns[before:]

        error: UwfError | None = None
        output: Any = None
        try:
            output = self._asked.read(schema, prompt)
        except UwfError as failure:
            error = failure
        if not new()[2]:
            if error is not None:
                raise error
            return output

        def known(*_: object) -> Any:
            if error is not None:
                raise error
            return output

        return self._answer(call, known, new)

    def _answer(
        self,
        call: Sequence[Any],
        act: Act,
        heard: Heard,
        asks: Question | None = None,
    ) -> Any:
        assert self._instance is not None
        instance = self._instance
        at = instance.threads.position(instance.threads.active_head(self._thread))
        head, was_asked = answer(
            instance, at, CallRequest(*call), act, heard, self._cwd, asks is not None and bool(asks.isolation)
        )
        value, step, _ = answer_of(instance, head)
        self.commit = str(head.commit)
        if not was_asked and asks is not None:
            self._asked, _ = _open(instance, self._thread, asks._replace(text=value), None, self._stack)
            self._asked.begin(asks._replace(text=value))
            self.name = step.agent
        return value


def _of_person(asks: Question, answer: str) -> Any:
    """Return a person's answer to a script. Raises Suspended, with the problem, if it breaks the schema."""
    from uwf_git.plugin import ExpectedOutput, judge_answer

    if asks.schema is None:
        return answer
    schema = Schema(asks.schema)
    with suppress(Invalid):
        value = normalise_payload(parse_json(answer))
        if schema.is_valid(value):
            return value
    verdict = judge_answer(Reply(answer), ExpectedOutput(Role(BUNDLE, "", RESULT), schema))
    if verdict.problems:
        wrong = f"The last answer did not fit: {verdict.problems[0]}"
        raise Suspended({"$status": SUSPEND_STATUS, "question": f"{asks.prompt}\n\n{wrong}"}, asks.plays)
    return verdict.output


def _question_in(text: str) -> Any:
    """Return the reserved question that a text is, else None."""
    try:
        return json.loads(text) if SUSPEND_STATUS in text else None
    except (ValueError, RecursionError):
        return None


def main(argv: Sequence[str]) -> int:
    """Hold a conversation for a thread, and return the exit status of the process."""
    thread = parse_thread_id(argv[0])
    requests = os.fdopen(os.dup(0), "rb")
    nothing = system.open_file(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # an agent's input is no request
    os.close(nothing)
    answers = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)  # a package's output is not an answer

    def tell(act: Callable[[], Any], wants_data: bool = True) -> None:
        calls.commit = None
        try:
            with ends_refused(calls.name):
                reply: dict[str, Any] = {"value": act()}
        except UwfError as error:
            reply = {"error": error.message, "hint": error.hint, "absent": isinstance(error, Waiting)}
            is_unread = isinstance(error, ExtractionFailed) and wants_data
            reply["thrown"] = is_unread or isinstance(error, Invalid)
            reply["misconfigured"] = isinstance(error, Unavailable)
            if not isinstance(error, AgentFailed | Invalid | Waiting):
                reply["ended"] = type(error).__name__
            throttled = error.throttled if isinstance(error, AgentFailed) else None
            reply["throttled"] = list(throttled) if throttled is not None else None
        agent, detail, turns = calls.heard()
        reply |= {"commit": calls.commit, "agent": agent, "detail": detail.payload()}
        reply["turns"] = [turn.payload() for turn in turns]
        answers.write(json.dumps(reply) + "\n")
        answers.flush()

    with answers, requests, ExitStack() as stack:
        calls = _Calls(thread, stack)
        for request in _requests(requests):
            if "question" in request:
                question = request["question"]
                tell(partial(calls.begin, question, request["call"]), question["schema"] is not None)
            else:
                tell(partial(calls.read, request["schema"], request["prompt"] or "", request["call"]))
    return 0
