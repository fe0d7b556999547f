"""From a `run` function to an agent: context, prompt, extraction, corrections, nodes, the hash.

    agent = create_agent("shout", run, continue_)
    if __name__ == "__main__":
        agent.main()

As a command it is called `<command> [args…] <thread-id> <role>` and prints the hash of the StepNode that
it wrote; the engine may call `perform` in its own process instead. Neither moves a head.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uwf_git.errors import AgentFailed, Usage, UwfError
from uwf_git.kit.context import Context, Reply
from uwf_git.kit.conversation import ContinueFunction, Conversation, OfFunctions, RunFunction
from uwf_git.kit.memory import Memory
from uwf_git.kit.prompt import prompt_at, role_of
from uwf_git.kit.record import Clock, Recorder, broken_off
from uwf_git.store.private import Order, Report
from uwf_git.values.ids import Hash, parse_thread_id
from uwf_git.values.kinds import Detail, Step
from uwf_git.values.kinds import Usage as TokenUsage
from uwf_git.values.types import STEPNODE

if TYPE_CHECKING:
    from uwf_git.kit.extract import Ask
    from uwf_git.store.opened import Instance
    from uwf_git.store.threads import Head, History, Position

ConverseFunction = Callable[[Context], Conversation]
ParseFunction = Callable[[Sequence[str]], Any]
NameFunction = Callable[[Any], str]


class AttemptFailed(AgentFailed):
    """A failed run whose answers were kept: `detail` is the node that holds them."""

    def __init__(self, message: str, hint: str, detail: Hash | None) -> None:
        super().__init__(message, hint)
        self.detail = detail


class Agent:
    """Something that can do a step: `converse` makes its conversation for one. The other parameters are those of
    create_agent; `about` is what `--help` shows below the usage."""

    def __init__(
        self,
        name: str,
        converse: ConverseFunction,
        parse_args: ParseFunction | None = None,
        usage: str = "",
        named: NameFunction | None = None,
        about: str | None = None,
    ) -> None:
        self.name = name if name.startswith("uwf-") else f"uwf-{name}"
        self.usage = usage or self.name
        self._about = about or ""
        self._converse = converse
        self._parse = parse_args
        self._named = named

    def called(self, args: Sequence[str]) -> str:
        """The name that the steps bear which it does with these arguments. Raises Usage."""
        if self._named is None or self._parse is None:
            return self.name
        return self._named(self._parse(args))

    def main(self, argv: Sequence[str] | None = None) -> None:
        """The command: prints the StepNode's hash, or one line on stderr. Exits."""
        sys.exit(self._command(sys.argv[1:] if argv is None else argv))

    def _command(self, argv: Sequence[str]) -> int:
        from uwf_git.store.opened import Instance

        if argv and argv[0] in ("-h", "--help"):
            print(self._help())
            return 0
        try:
            if len(argv) < 2:
                raise Usage(f"usage: {self.name} [args…] <thread-id> <role>", f"see: {self.name} --help")
            *args, thread_text, role = argv
            instance = Instance.open()
            thread = parse_thread_id(thread_text)
            head = instance.threads.active_head(thread)
            order = instance.runs.read_order(thread)
            if order is None or order.head != head.node or order.role != role:
                order = Order(head.node, role, self.name, None, None)
            print(self.report(instance, head, order, args))
        except UwfError as error:
            hint = f" — {error.hint}" if error.hint else ""
            print(f"{self.name}: {error.message}{hint}", file=sys.stderr)
            return self.exit_status(error)
        except KeyboardInterrupt:
            return 130
        return 0

    def exit_status(self, error: UwfError) -> int:
        """What the command exits with after this error."""
        return error.exit_status

    def _help(self) -> str:
        from inspect import cleandoc

        return (
            f"Examples:\n  uwf thread step ID --agent {self.name}\n  uwf config set defaultAgent {self.name}\n\n"
            f"Usage: {self.usage} <thread-id> <role>\n\n{cleandoc(self._about)}"
        )

    def report(self, instance: Instance, head: Head, order: Order, args: Sequence[str]) -> Hash:
        """Performs a step and leaves the report for an engine that may be gone by then."""
        name = self.called(args)
        recorder = Recorder(instance, head.thread, name)
        step: Hash | None = None
        failure: UwfError | None = None
        try:
            step = self.perform(instance, instance.threads.position(head), order, args, recorder)
        except UwfError as error:
            failure = error
        report = Report(
            head=order.head,
            role=order.role,
            agent=name,
            step=step,
            detail=getattr(failure, "detail", None),
            error=failure.message if failure else "",
            hint=failure.hint if failure else "",
            nodes=recorder.nodes,
        )
        instance.runs.report(head.thread, report)
        if failure is not None:
            raise failure
        assert step is not None
        return step

    def perform(
        self,
        instance: Instance,
        at: Position,
        order: Order,
        args: Sequence[str],
        recorder: Recorder | None = None,
        cwd: Path | None = None,
    ) -> Hash:
        """Runs the agent for one step and writes the nodes. Returns the StepNode's hash. Raises
        AttemptFailed, with what was said, when no valid output came of it."""
        from uwf_git.kit.extract import ExtractionFailed, extract

        clock = Clock()
        head = at.head
        name = self.called(args)
        recorder = recorder or Recorder(instance, head.thread, name)
        context = self._context(instance, at, order, args, clock, cwd or Path.cwd(), recorder)
        with closing(self._converse(context)) as conversation:
            try:
                extraction = extract(
                    conversation.begin(),
                    context.role,
                    context.schema,
                    continue_=(lambda _, text: conversation.say(text)) if conversation.correctable else None,
                    model=_extraction_model(instance, context),
                    clean=lambda value: instance.redactor.value(value)[0],
                )
            except ExtractionFailed as failure:
                last = failure.replies[-1]
                said = _said(failure.replies, last.text, failure.usage, "failed")
                said = said._replace(session=last.session, budget=order.budget)
                detail = recorder.detail(said, failure.turns, order, head.node, clock.took)
                raise AttemptFailed(failure.message, failure.hint, detail) from None
            except UwfError as error:
                if not (turns := tuple(recorder.turns)):
                    raise
                said = broken_off(turns, recorder.session)._replace(budget=order.budget)
                detail = recorder.detail(said, turns, order, head.node, clock.took)
                raise AttemptFailed(error.message, error.hint, detail) from None
            history, replies = context.history, extraction.replies
            said = _said(replies, extraction.answer, extraction.usage, extraction.how)
            said = said._replace(budget=order.budget)
            made = next((reply.detail for reply in reversed(replies) if reply.detail), None)
            with instance.store.index.transaction():
                output = recorder.put(extraction.type, recorder.redact(extraction.output, "output"))
                detail = made or recorder.detail(said, extraction.turns, order, head.node, clock.took)
                step = Step(history.start_hash, history.prev, order.role, output, detail, name)
                return recorder.put(STEPNODE, step.payload())

    def _context(
        self,
        instance: Instance,
        at: Position,
        order: Order,
        args: Sequence[str],
        clock: Clock,
        cwd: Path,
        recorder: Recorder,
    ) -> Context:
        name = self.called(args)
        head, history = at
        role = role_of(history, order.role)
        schema = instance.store.schema(role.schema)
        every = instance.attempts.all(head.thread)

        def build(at: History, instruction: str | None, remembers: bool) -> str:
            return prompt_at(instance, at, role, instruction, remembers, name)

        memory = Memory(instance, history, role, name, every, build)
        return Context(
            thread=head.thread,
            alias=order.agent,
            role=role,
            history=history,
            store=instance.store,
            schema=schema,
            instruction=order.instruction,
            previous=memory.previous(),
            resume=memory.resume(),
            attempt=sum(each.prev == history.prev and each.role == role.name for each in every),
            attempts=len(every),
            config=instance.config,
            cwd=cwd,
            deadline=None if order.timeout is None else clock.began + order.timeout,
            options=self._parse(args) if self._parse else None,
            build_prompt=lambda remembers: build(history, order.instruction, remembers),
            record=recorder.record,
            in_session=recorder.in_session,
            secrets=instance.secrets,
            instance=instance,
        )


def create_agent(
    name: str,
    run: RunFunction,
    continue_: ContinueFunction | None = None,
    parse_args: ParseFunction | None = None,
    usage: str = "",
    named: NameFunction | None = None,
) -> Agent:
    """An agent of that name. `run(ctx)` does a step and returns a Reply or just its text. `continue_(ctx,
    session, message)` says one more thing in the same session; without it a garbled answer can't be
    corrected. `parse_args(args)` makes `ctx.options` of what stands before the thread id; `usage` and the module's
    docstring are what `--help` shows. `named(options)` is for an agent that asks others in its turn: the name that
    its steps bear, such as "uwf-acp/opencode"."""
    about = getattr(sys.modules.get(run.__module__), "__doc__", None)
    agent = Agent(
        name, lambda ctx: OfFunctions(ctx, agent.name, run, continue_), parse_args, usage, named, about
    )
    return agent


def _said(replies: Sequence[Reply], answer: str, usage: TokenUsage | None, how: str) -> Detail:
    """What is kept of an agent's replies, but for their turns."""
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


def _extraction_model(instance: Instance, context: Context) -> Ask | None:
    """The model that reads an output out of an answer, where one is configured."""
    from uwf_git.config.read import resolve_model

    model = resolve_model(context.config, "extract")
    if model is None:
        return None

    def ask(messages: Sequence[Mapping[str, Any]]) -> Reply:
        from uwf_git.kit.chat import Chat, resolve_endpoint

        with Chat(resolve_endpoint(context.config, model.alias, instance.secrets)) as chat:
            return chat.complete(messages, deadline=context.deadline).reply()

    return ask
