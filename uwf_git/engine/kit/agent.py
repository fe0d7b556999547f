"""Agents: commands that perform one step and print the hash of its StepNode.

    agent = create_agent("shout", run, continue_)
    if __name__ == "__main__":
        agent.main()

The command is called as `<command> [args…] <thread-id> <role>`. It sends the prompt, extracts a valid output,
asks for corrections if there is none, and stores the turns, the output, the Detail and the StepNode. The
engine may call `perform` in its own process instead. Only the engine moves a head, once it has accepted the
step.

One step is one `Conversation`. An agent with state between an answer and its correction subclasses it; a
stateless one is a pair of functions.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uwf_git.base import lifetime, log
from uwf_git.base.errors import AgentFailed, StoreUnwritable, Unavailable, Usage, UwfError
from uwf_git.base.text import shortened
from uwf_git.engine.agent_code import ends_refused, errors_caught
from uwf_git.engine.conversation import talks
from uwf_git.engine.kit.context import Context, KeptSession, Reply
from uwf_git.engine.kit.memory import Memory, carry_on
from uwf_git.engine.kit.prompt import prompt_at, role_of, was_chosen
from uwf_git.engine.kit.record import Answers, Recorder, broken_off, reply_value, sound
from uwf_git.engine.step_parts import Mounts, Recipient, parts_of
from uwf_git.format.ids import Hash, ThreadId, parse_thread_id
from uwf_git.format.kinds import Detail, Role, Step, TurnRecord, agent_name_problem
from uwf_git.format.kinds import Usage as TokenUsage
from uwf_git.format.types import RESULT, STEPNODE
from uwf_git.store.private import NONCE_VARIABLE, QUESTION_VARIABLE, EngineOrder

if TYPE_CHECKING:
    from uwf_git.config.settings import Config
    from uwf_git.engine.kit.candidate import Verdict
    from uwf_git.engine.kit.extract import Extraction, Heard
    from uwf_git.format.schema import Schema
    from uwf_git.store.history import Head, Position
    from uwf_git.store.instance import Instance

LONGEST_NAME = 60  # characters of the name that a command gives to its agent

RunFunction = Callable[[Context], "Reply | str"]
ContinueFunction = Callable[[Context, str, str], "Reply | str"]


class Conversation:
    """One step's conversation with an agent. The kit calls `first` once and `more` for each correction, which
    call `begin` and `say`, and always closes it. All raise AgentFailed if the agent cannot continue."""

    correctable = True
    """Whether the agent can be told, in the same session, what is wrong with its answer."""
    retells = False
    """Whether it can also be told so if its answer names no session: `say` then tells the whole conversation."""
    answers: Answers | None = None
    """Where its answers are kept until they are judged, if they are."""
    agent = ""
    """The name of its agent in steps."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx

    def begin(self) -> Reply:
        """Return the answer to the prompt, in the session of the failed attempt if the step resumes one."""
        raise NotImplementedError

    def say(self, text: str) -> Reply:
        """Return the answer to a further message in the session."""
        raise NotImplementedError

    def adopt_answer(self, reply: Reply) -> Reply:
        """Return an earlier process's saved answer. `say` follows only if the agent can continue from it."""
        self.correctable = False
        return reply

    def first(self) -> Reply:
        """Return the first answer, saved or from `begin`."""
        return self._next(self.begin)

    def more(self, text: str) -> Reply:
        """Return the next answer, saved or from `say`."""
        return self._next(lambda: self.say(text))

    def _next(self, ask: Callable[[], Reply]) -> Reply:
        def answer() -> Reply:
            hint = f"its traceback is kept: uwf thread attempts {self.ctx.thread} --json"
            with errors_caught(self.agent, hint=hint):
                return ask()

        return answer() if self.answers is None else self.answers.next(answer, self.adopt_answer)

    def keep_session(self, session: str, put: Callable[[Hash, Any], Hash]) -> KeptSession:
        """Put what the agent's program keeps of a session, without secrets, as a Session node, so that another
        machine can resume it. Called after the last answer, also of a failed run. Raises nothing."""
        return KeptSession()

    def close(self) -> None:
        """Release resources, such as a process."""

    def carried_on(self) -> tuple[str, str] | None:
        """Return the failed attempt's session and the first message in it; None for a new start."""
        resume = self.ctx.resume
        if resume is None or not resume.session:
            return None
        return resume.session, carry_on(resume.error, self.ctx.prompt_for_resumed_attempt)


class FunctionConversation(Conversation):
    """The conversation of an agent made by create_agent."""

    def __init__(self, ctx: Context, name: str, run: RunFunction, continue_: ContinueFunction | None) -> None:
        super().__init__(ctx)
        self.correctable = continue_ is not None
        self._name = name
        self._run = run
        self._continue = continue_
        self._session = ""

    def begin(self) -> Reply:
        """Call `continue_` to resume a failed attempt, else `run`."""
        if self._continue is not None and (rest := self.carried_on()):
            self._session, message = rest
            return self.say(message)
        return self._heard(self._run(self.ctx))

    def say(self, text: str) -> Reply:
        """Call `continue_` with the session named last."""
        assert self._continue is not None
        return self._heard(self._continue(self.ctx, self._session, text))

    def adopt_answer(self, reply: Reply) -> Reply:
        """Return the saved answer; corrections continue its session."""
        return self._heard(reply)

    def _heard(self, value: Reply | str) -> Reply:
        if isinstance(value, str):
            return Reply(value)
        if not isinstance(value, Reply):
            raise AgentFailed(
                f"{self._name} returned {type(value).__name__}", "run and continue_ return a Reply or text"
            )
        self._session = value.session or self._session
        return value


ConverseFunction = Callable[[Context], Conversation]
ParseFunction = Callable[[Sequence[str]], Any]
NameFunction = Callable[[Any], str]
ShellFunction = Callable[[Context], bool]
ToldFunction = Callable[["Config", Sequence[str]], str]
RunsFunction = Callable[[Sequence[str], str], Sequence[str]]
ReadyFunction = Callable[["Config", Sequence[str], Mapping[str, str]], str]


class AttemptFailed(AgentFailed):
    """A failed run whose turns are kept in the Detail node `detail`."""

    def __init__(self, cause: UwfError, detail: Hash | None) -> None:
        super().__init__(cause.message, cause.hint)
        self.since(cause)
        self.detail = detail


class Agent:
    """An agent: `converse` makes its conversation for a step.

    `about` is shown by `--help`; other parameters as for create_agent. `sees_files`: the agent reads files by
    the machine's paths, so its prompt names the folders of a crew's step; it and `has_shell` may use the
    context, but not its prompt. `missing_price` returns why the cost cannot be known beforehand, `asks` the
    alias of the provider that it will call; "" if none. `runs` returns the command that a role's steps run, if they do
    nothing else. `ready` raises a UwfError if the agent cannot work with these
    variables, as its program is missing, and returns how to log in if that seems to be missing, "" if not.
    """

    def __init__(
        self,
        name: str,
        converse: ConverseFunction,
        parse_args: ParseFunction | None = None,
        usage: str = "",
        named: NameFunction | None = None,
        about: str | None = None,
        has_shell: ShellFunction = lambda ctx: False,
        sees_files: ShellFunction = lambda ctx: True,
        missing_price: ToldFunction = lambda config, args: "",
        asks: ToldFunction = lambda config, args: "",
        ready: ReadyFunction = lambda config, args, environ: "",
        runs: RunsFunction = lambda args, role: (),
    ) -> None:
        self.name = name if name.startswith("uwf-") else f"uwf-{name}"
        self.usage = usage or self.name
        self._about = about or ""
        self.converse = converse
        self._parse = parse_args
        self._named = named
        self.has_shell = has_shell
        self.sees_files = sees_files
        self.missing_price = missing_price
        self.asks = asks
        self.ready = ready
        self.runs = runs

    def called(self, args: Sequence[str]) -> str:
        """Return the agent name in its steps with these arguments. Raises Usage."""
        return self.name if self._named is None else self._name_with(self._options(args))

    def _name_with(self, options: Any) -> str:
        if self._named is None or self._parse is None:
            return self.name
        with errors_caught(self.name):
            return self._named(options)

    @contextmanager
    def conversation(self, ctx: Context) -> Iterator[Conversation]:
        """Begin the conversation of a step, and close it at the end. Raises AgentFailed."""
        name = self._name_with(ctx.options)
        with errors_caught(name):
            conversation = self.converse(ctx)
        conversation.agent = name
        try:
            yield conversation
        finally:
            with errors_caught(name):
                conversation.close()

    def _options(self, args: Sequence[str]) -> Any:
        if self._parse is None:
            return None
        with errors_caught(self.name):
            return self._parse(args)

    def admit(self, instance: Instance, at: Position) -> None:
        """Raise if this machine cannot try the step at all; no attempt is recorded then."""

    def main(self, argv: Sequence[str] | None = None) -> None:
        """Run the command: print the StepNode's hash, or a one-line error on standard error. Exits."""
        lifetime.own()
        sys.exit(self._command(sys.argv[1:] if argv is None else argv))

    def _command(self, argv: Sequence[str]) -> int:
        from uwf_git.store.instance import Instance

        question = os.environ.pop(QUESTION_VARIABLE, "")  # which is not for its own commands
        if argv and argv[0] in ("-h", "--help"):
            print(self._help())
            return 0
        try:
            if len(argv) < 2:
                raise Usage(f"usage: {self.name} [args…] <thread-id> <role>", f"see: {self.name} --help")
            *args, thread_text, role = argv
            instance = Instance.open()
            thread = parse_thread_id(thread_text)
            if question:
                self._answer(instance, thread, role, args, Path(question))
                return 0
            head = instance.threads.active_head(thread)
            order = _order(instance, head, role) or EngineOrder(
                head.node, role, self.name, None, None, command=tuple(args), folder=str(Path.cwd())
            )
            print(self.report(instance, head, order, args))
        except UwfError as error:
            if isinstance(error, AgentFailed) and error.__cause__ is not None:  # of its own code
                import traceback

                traceback.print_exception(error.__cause__)
            hint = f" — {error.hint}" if error.hint else ""
            print(f"{self.name}: {error.message}{hint}", file=sys.stderr)
            return self.exit_status(error)
        except KeyboardInterrupt:
            return 130
        return 0

    def _answer(
        self, instance: Instance, thread: ThreadId, role: str, args: Sequence[str], question: Path
    ) -> None:
        from uwf_git.format.schema import Schema

        question_value = json.loads(question.read_bytes())
        at = instance.threads.position(instance.threads.active_head(thread))
        order = EngineOrder(
            at.head.node,
            role,
            question_value["alias"],
            question_value["instruction"],
            question_value["timeout"],
        )
        recorder = Recorder(instance, None, self.called(args))
        played = at.history.workflow.roles.get(role) or Role(role, "", RESULT)
        played = played._replace(system_prompt=question_value["system"])
        ctx = self.context(instance, at, order, args, Path.cwd(), recorder, played)
        ctx = ctx._replace(
            schema=Schema(question_value["schema"]),
            resume=None,
            previous=None,
            build_prompt=lambda *_: str(question_value["prompt"]),
        )
        with ends_refused(self.called(args)), self.conversation(ctx) as conversation:
            reply = conversation.first()
        value = reply_value(reply._replace(turns=reply.turns or tuple(recorder.turns)))
        clean = instance.redactor.value(sound(value))[0]
        question.with_name("answer.json").write_text(json.dumps(clean), "ascii")

    def exit_status(self, error: UwfError) -> int:
        """Return the exit status for an error."""
        return error.exit_status

    def _help(self) -> str:
        from inspect import cleandoc

        return (
            f"Examples:\n  uwf thread step ID --agent {self.name}\n  uwf config set defaultAgent {self.name}\n\n"
            f"Usage: {self.usage} <thread-id> <role>\n\n{cleandoc(self._about)}"
        )

    def report(
        self, instance: Instance, head: Head, order: EngineOrder, args: Sequence[str], is_put: bool = False
    ) -> Hash:
        """Perform a step, store its nodes and write a report into the private folder, also for early
        failures: the engine may be gone by then. The folder is left alone if another process was given the
        step. Raises as `perform`."""
        is_anothers = instance.runs.is_anothers(head.thread)
        recorder = Recorder(instance, None if is_anothers else head.thread, self.called(args), is_put)
        recorder.introduce()
        try:
            with ends_refused(self.called(args)):
                node = self.perform(instance, instance.threads.position(head), order, args, recorder)
            recorder.store()
            return node
        except UwfError as error:
            if instance.runs.read_report(head.thread) is None:
                recorder.settle(order, None, None, error)
            recorder.store()
            raise

    def perform(
        self,
        instance: Instance,
        at: Position,
        order: EngineOrder,
        args: Sequence[str],
        recorder: Recorder | None = None,
        cwd: Path | None = None,
    ) -> Hash:
        """Run the agent for one step and draft its nodes in a report. Return the StepNode's hash. Raises
        AttemptFailed with the turns if no output was valid, StoreUnwritable for disk errors, UwfError if
        nothing was said."""
        from uwf_git.engine.kit.extract import ExtractionFailed, sum_tokens

        head = at.head
        name = instance.redactor.text(self.called(args))[0]
        recorder = recorder or Recorder(instance, head.thread, name)
        context = self.context(instance, at, order, args, cwd or Path.cwd(), recorder)
        answers = None
        if context.mounts is None and instance.runs.is_asked(head.thread):
            answers = Answers(instance, head.thread, order, recorder)
            context = context._replace(keep=answers.keep)

        log.debug(
            "0SCJCGT5",
            "{agent} works on {head}",
            agent=name,
            head=head.node,
            folder=context.cwd,
            previous=context.previous_session,
            resumes=context.resume.error if context.resume else None,
            attempts=context.attempts,
        )

        def detail_with(detail_here: Detail, turns: Sequence[TurnRecord]) -> Hash:
            read = recorder.read_beside(turns)
            usage = sum_tokens([detail_here.usage, *(turn.usage for turn in read)])
            detail_here = detail_here._replace(budget=order.budget, usage=usage)
            detail_here = recorder.keep_session(detail_here, conversation.keep_session)
            return recorder.detail(detail_here, [*read, *recorder.with_remarks(turns)], order, head.node)

        with ExitStack() as stack:
            if context.mounts is not None:
                stack.enter_context(context.mounts)
            conversation = stack.enter_context(self.conversation(context))
            conversation.answers = answers
            extraction: Extraction | None = None
            try:
                extraction = read_output(context, conversation.first(), conversation, heard=recorder.heard)
                recorder.hush()
                output = recorder.put(extraction.type, recorder.redact(extraction.output, "output"))
                replies = extraction.replies
                detail_value = detail_of(replies, extraction.answer, extraction.usage, extraction.how)
                notes = tuple(dict.fromkeys((*detail_value.notes, *extraction.notes)))
                answer_detail = next((reply.detail for reply in reversed(replies) if reply.detail), None)
                detail = answer_detail or detail_with(detail_value._replace(notes=notes), extraction.turns)
                recorder.raise_if_cut()
            except ExtractionFailed as failure:
                last = failure.replies[-1]
                detail_value = detail_of(failure.replies, last.text, failure.usage, "failed")
                detail = detail_with(detail_value._replace(session=last.session), failure.turns)
                recorder.settle(order, None, detail, failure)
                raise AttemptFailed(failure, detail) from None
            except KeyboardInterrupt:
                recorder.break_off()
                raise
            except UwfError as error:
                recorder.hush()
                for turn in extraction.turns if extraction else ():
                    recorder.take(turn)
                if not (turns := tuple(recorder.turns)):
                    raise
                detail = detail_with(broken_off(turns, recorder.session), turns)
                recorder.settle(order, None, detail, error)
                if isinstance(error, StoreUnwritable):
                    raise
                raise AttemptFailed(error, detail) from error.__cause__
            history = context.history
            step = Step(history.start_hash, history.prev, order.role, output, detail, name)
            node = recorder.put(STEPNODE, step.payload())
            runs = instance.runs
            # An engine's own agent waits for the disk with the commit that follows, unless its answer did so.
            synced = not runs.is_engine(head.thread) or (answers is not None and answers.is_synced)
            recorder.settle(order, node, detail, synced=synced)
            return node

    def context(
        self,
        instance: Instance,
        at: Position,
        order: EngineOrder,
        args: Sequence[str],
        cwd: Path,
        recorder: Recorder,
        role: Role | None = None,
    ) -> Context:
        """Return the context of a step. `role` overrides the workflow's role of that name. Raises Usage for
        the arguments, Invalid for the role, NotFound."""
        name = instance.redactor.text(self.called(args))[0]
        head, history = at
        recorder.head = head.node
        role = role or role_of(history, order.role)
        last = history.steps[-1] if history.steps and talks(role) else None
        if last is not None and role.tools is not None and was_chosen(instance, history, last, cwd):
            role = role._replace(tools=None)
        attempts = instance.attempts.all(head.thread)
        memory = Memory(instance, history, role, name, attempts, lambda: self.has_shell(context))
        resume = None if talks(role) else memory.resume()
        context = Context(
            thread=head.thread,
            alias=order.agent,
            role=role,
            history=history,
            store=instance.store,
            schema=instance.store.schema(role.schema),
            instruction=order.instruction,
            previous=memory.previous(),
            resume=resume,
            attempt=sum(attempt.prev in history.places and attempt.role == role.name for attempt in attempts),
            attempts=len(attempts),
            config=instance.config_of(head.row),
            cwd=cwd,
            deadline=None if order.timeout is None else recorder.began + order.timeout,
            options=self._options(args),
            build_prompt=lambda remembers, resumes: prompt_at(
                instance,
                history,
                role,
                order.instruction,
                Recipient(
                    name,
                    remembers,
                    resumes,
                    self.has_shell(context),
                    context.mounts.prepare().named if context.mounts and self.sees_files(context) else {},
                ),
            ),
            record=recorder.record,
            in_session=recorder.in_session,
            show=recorder.show,
            hear=recorder.hear,
            extract=lambda schema, prompt="", text=None: _extract(context, schema, prompt, text),
            secrets=instance.secrets,
            instance=instance,
            mounts=_mounts(instance, at, role, cwd, resume is not None),
            has_remarks=recorder.has_remarks,
            take_remarks=recorder.take_remarks,
        )
        return context


class ModelAgent(Agent):
    """An agent that calls a configured model itself: its arguments, parsed, have the alias `model`, None for the
    default. It sees no files by the machine's paths."""

    def __init__(
        self, name: str, converse: ConverseFunction, parse_args: ParseFunction, usage: str, about: str | None
    ) -> None:
        from uwf_git.engine.kit import chat

        super().__init__(
            name,
            converse,
            parse_args,
            usage,
            about=about,
            sees_files=lambda ctx: False,
            missing_price=lambda config, args: chat.missing_price(name, config, parse_args(args).model),
            asks=lambda config, args: chat.provider_alias(name, config, parse_args(args).model),
            ready=lambda config, args, environ: chat.ready(name, config, parse_args(args).model, environ),
        )


def _order(instance: Instance, head: Head, role: str) -> EngineOrder | None:
    order = instance.runs.read_order(head.thread) if instance.runs.is_asked(head.thread) else None
    return order if order is not None and (order.head, order.role) == (head.node, role) else None


def put_step(instance: Instance, thread: ThreadId, role: str, text: str, name: str = "") -> Hash:
    """Store an agent's answer as turn, output, detail and StepNode, with a report. Return the StepNode's
    hash. `name` defaults to the one that the engine knows. Raises Usage for an invalid name, or if this
    process doesn't belong to that step's agent; AttemptFailed for an answer that the role's schema refuses.
    """
    if name:
        _check_name(name)
    head = instance.threads.active_head(thread)
    order = _order(instance, head, role)
    if order is None:
        if instance.runs.is_anothers(thread):
            raise Usage(
                f"another agent was asked for the step of thread {thread}: {NONCE_VARIABLE} isn't that of its order",
                "call it in that agent's command, for which uwf sets it",
            )
        raise Usage(f"no agent plays role {role!r} of thread {thread} now", "call it in an agent's command")
    called = name or order.name or order.agent
    agent = Agent(
        called,
        lambda ctx: FunctionConversation(ctx, called, lambda _: text, None),
        parse_args=lambda _: None,
        named=lambda _: called,
    )
    return agent.report(instance, head, order, (), is_put=True)


def _check_name(name: str) -> None:
    problem = agent_name_problem(name)
    if len(name) > LONGEST_NAME:
        problem = f"which has {len(name)} characters"
    if problem:
        raise Usage(
            f"no agent can be called {shortened(ascii(name), 60)}, {problem}",
            f"give a line of at most {LONGEST_NAME} printable characters",
        )


def require_program(name: str, environ: Mapping[str, str]) -> None:
    """Raise Unavailable for a program that cannot be run. `PWD` is the agent's folder, for a relative path; without it
    such a path isn't checked."""
    from uwf_git.config.resolve import why_missing

    if problem := why_missing(name, environ.get("PWD"), environ.get("PATH")):
        raise Unavailable(
            problem, "correct its path" if "/" in name else "install it, or name it with its path"
        )


def create_agent(
    name: str,
    run: RunFunction,
    continue_: ContinueFunction | None = None,
    parse_args: ParseFunction | None = None,
    usage: str = "",
    named: NameFunction | None = None,
    shell: bool = False,
) -> Agent:
    """Return an agent named `uwf-<name>`.

    `run(ctx)` performs a step and returns a Reply, or just the answer's text. `continue_(ctx, session,
    message)` sends one more message in the session that a Reply named: a correction, or to resume a failed
    attempt; without it neither is possible. Both raise AgentFailed if they cannot continue.

    `parse_args(args)` makes `ctx.options` of the arguments before the thread's id, and raises Usage. `usage`
    and the docstring of `run`'s module are the help text. `named(options)` is the name in its steps, such as
    "uwf-acp/opencode". With `shell`, the agent can run commands, and its prompts name commands to look things
    up.
    """
    about = getattr(sys.modules.get(run.__module__), "__doc__", None)
    agent = Agent(
        name,
        lambda ctx: FunctionConversation(ctx, agent.name, run, continue_),
        parse_args,
        usage,
        named,
        about,
        lambda ctx: shell,
    )
    return agent


def judged(ctx: Context, reply: Reply) -> Verdict:
    """Return whether a reply has a valid output. Raises Invalid if the role's schema cannot be applied."""
    from uwf_git.engine.kit.extract import ExpectedOutput, judge

    return judge(reply, ExpectedOutput(ctx.role, ctx.schema, ctx.reads, ctx.written))


def read_output(
    ctx: Context,
    reply: Reply,
    conversation: Conversation | None = None,
    schema: Schema | None = None,
    heard: Heard | None = None,
) -> Extraction:
    """Extract the output from a reply, with corrections or an extraction model if needed. The `schema`
    defaults to the role's. `heard` gets each reply's turns and the next message before it is sent. Raises
    ExtractionFailed."""
    from uwf_git.engine.kit.extract import ExpectedOutput, extract
    from uwf_git.engine.kit.reading import reader

    wanted = (
        ExpectedOutput(ctx.role, ctx.schema, ctx.reads, ctx.written)
        if schema is None
        else ExpectedOutput(ctx.role, schema)
    )
    more = conversation.more if conversation is not None and conversation.correctable else None
    return extract(
        reply,
        wanted._replace(clean=lambda value: ctx.instance.redactor.value(value)[0]),
        continue_=(lambda _, text: more(text)) if more else None,
        model=reader(ctx.config, ctx.secrets, wanted.schema.payload, ctx.deadline),
        heard=heard or (lambda turns, message: None),
        kept=f"all that was said is kept: uwf thread attempts {ctx.thread}",
        retells=conversation is not None and conversation.retells,
    )


def detail_of(replies: Sequence[Reply], answer: str, usage: TokenUsage | None, how: str) -> Detail:
    """Return the Detail of replies, without their turns. `how` says how the output was found."""
    costs = [reply.cost for reply in replies if reply.cost is not None]
    return Detail(
        answer,
        session=next((reply.session for reply in reversed(replies) if reply.session), None),
        model=next((reply.model for reply in replies if reply.model), None),
        usage=usage,
        extraction=how,
        cost=sum(costs) if costs else None,
        notes=tuple(note for reply in replies for note in reply.notes),
    )


def _mounts(instance: Instance, at: Position, role: Role, cwd: Path, carries_on: bool) -> Mounts | None:
    parts = parts_of(at.history.workflow)
    return None if parts is None else parts.mounts(instance, at, role, cwd, carries_on)


def _extract(ctx: Context, schema: Any, prompt: str, text: str | None) -> Any:
    from uwf_git.engine.kit.data import extract_data, wanted
    from uwf_git.engine.kit.prompt import thread_as_text
    from uwf_git.engine.kit.reading import reader, turn_of, why_unread

    obeyed = ctx.store.schema(ctx.store.complete(schema)) if isinstance(schema, str) else wanted(schema)
    return extract_data(
        text,
        obeyed,
        reader(ctx.config, ctx.secrets, obeyed.payload, ctx.deadline),
        instruction=prompt,
        around="" if text is not None else thread_as_text(ctx.instance, ctx.history, ctx.instruction),
        unread=why_unread(ctx.config),
        heard=lambda reply: ctx.record(turn_of(reply)),
    ).value
